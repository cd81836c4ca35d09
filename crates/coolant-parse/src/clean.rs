//! Cleaning: the one form of text that is hashed, stored, embedded and searched.
//!
//! Texts, titles and queries go through the same steps, so that what is typed finds what was read:
//! Unicode NFC, no invisible characters, typesetters' forms (`ﬁ`, `⽤`) as plain letters, words whole again
//! after a hyphen at a line's end, single spaces.
//!
//! Always true: cleaning a clean text changes nothing.

use std::collections::{HashSet, VecDeque};
use std::iter::Peekable;
use std::str::Chars;

use unicode_normalization::{UnicodeNormalization, char::decompose_compatible};

/// Cleans running text. Lines and paragraphs stay; at most one empty line stands between two paragraphs.
#[must_use]
pub fn text(raw: &str) -> String {
    fold_lines(&join_hyphenated(&characters(raw)), false)
}

/// Cleans a title, a heading or a query to one line.
#[must_use]
pub fn line(raw: &str) -> String {
    join_hyphenated(&characters(raw)).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cleans Markdown: indentation stays, and the inside of code fences loses invisible characters only.
#[must_use]
pub fn markdown(raw: &str) -> String {
    let raw = characters(raw);
    let mut cleaned = String::with_capacity(raw.len());
    let mut prose = String::new();
    let mut fence: Option<Fence> = None;
    for line in raw.split_inclusive('\n') {
        match &fence {
            None => match Fence::opened_by(line) {
                None => prose.push_str(line),
                Some(opened) => {
                    push_prose(&mut cleaned, &mut prose);
                    cleaned.push_str(line.trim_end());
                    cleaned.push('\n');
                    fence = Some(opened);
                }
            },
            Some(open) => {
                if open.is_closed_by(line) {
                    fence = None;
                }
                cleaned.push_str(line.trim_end());
                cleaned.push('\n');
            }
        }
    }
    push_prose(&mut cleaned, &mut prose);
    cleaned.trim_end().trim_start_matches('\n').to_owned()
}

fn push_prose(cleaned: &mut String, prose: &mut String) {
    let folded = fold_lines(&join_hyphenated(prose), true);
    // Folding trims the ends, but a fence needs to keep its distance from the text around it.
    if prose.starts_with('\n') && !cleaned.is_empty() {
        cleaned.push('\n');
    }
    cleaned.push_str(&folded);
    if !folded.is_empty() {
        cleaned.push('\n');
        if prose.ends_with("\n\n") {
            cleaned.push('\n');
        }
    }
    prose.clear();
}

/// A Markdown code fence: three or more backticks or tildes.
#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let start = line.trim_start();
        let mark = start.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let length = start.chars().take_while(|c| *c == mark).count();
        // A backtick after the fence means inline code, as in ```` ```code``` ````.
        let is_inline = mark == '`' && start[length..].contains('`');
        (length >= 3 && !is_inline).then_some(Self { mark, length })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let line = line.trim();
        line.chars().count() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

/// Every step that looks at one character at a time, and NFC at the end of them: a mark between a letter
/// and its accent must be gone before the two can compose.
///
/// Streamed, so that a text at the size limit needs no second copy four times its size; `stream_safe`
/// bounds the run of accents that NFC has to sort.
fn characters(raw: &str) -> String {
    let visible = Visible { rest: raw.chars().peekable(), pending: VecDeque::new() };
    let mut cleaned = String::with_capacity(raw.len());
    cleaned.extend(visible.stream_safe().nfc());
    cleaned
}

struct Visible<'a> {
    rest: Peekable<Chars<'a>>,
    pending: VecDeque<char>,
}

impl Iterator for Visible<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        loop {
            if let Some(c) = self.pending.pop_front() {
                return Some(c);
            }
            match self.rest.next()? {
                // A soft hyphen that was used: the word goes on in the next line.
                '\u{AD}' => while self.rest.next_if(|next| matches!(next, '\n' | '\r')).is_some() {},
                '\r' => {
                    self.rest.next_if_eq(&'\n');
                    return Some('\n');
                }
                '\u{B}' | '\u{C}' | '\u{85}' | '\u{2028}' | '\u{2029}' => return Some('\n'),
                c @ ('\n' | '\t') => return Some(c),
                c if is_dropped(c) => {}
                c if is_typesetters_form(c) => decompose_compatible(c, |part| self.pending.push_back(part)),
                c => return Some(c),
            }
        }
    }
}

/// Characters that no reader sees and no query holds.
fn is_dropped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61C}' | '\u{180E}'
            | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}'
            // Tags: invisible letters that can carry hidden instructions.
            | '\u{E0000}'..='\u{E007F}')
        || (u32::from(c) & 0xFFFE) == 0xFFFE
        || matches!(c, '\u{FDD0}'..='\u{FDEF}')
}

/// Code points that stand for the look of letters in print: Latin and Arabic ligatures and shapes, radicals
/// that fonts share with ideographs. Full-width and half-width letters are left as typed.
fn is_typesetters_form(c: char) -> bool {
    matches!(c,
        '\u{2E9F}' | '\u{2EF3}'
        | '\u{2F00}'..='\u{2FD5}'
        | '\u{FB00}'..='\u{FB06}'
        | '\u{FB1D}'..='\u{FB4F}'
        | '\u{FB50}'..='\u{FDFF}'
        | '\u{FE70}'..='\u{FEFC}')
}

/// Makes words whole that were hyphenated at the end of a line.
///
/// Whether the hyphen was the typesetter's or the writer's is not written in the text. It is kept if the
/// same word has it elsewhere within a line, if the word has another hyphen, if one letter stands before
/// it, or if a capital or a digit follows; else it goes.
fn join_hyphenated(text: &str) -> String {
    if !text.contains("-\n") && !text.contains("\u{2010}\n") {
        return text.to_owned();
    }
    let hyphenated: HashSet<String> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .filter(|word| word.contains(['-', '\u{2010}']))
        .collect();
    let mut joined = String::with_capacity(text.len());
    let mut lines = text.split('\n').peekable();
    let mut continued: Option<&str> = None;
    while let Some(line) = continued.take().or_else(|| lines.next()) {
        let end = line.trim_end_matches([' ', '\t']);
        let next = lines.peek().map(|next| next.trim_start_matches([' ', '\t']));
        let Some((stem, next)) = next.and_then(|next| Some((broken_stem(end)?, next))) else {
            joined.push_str(line);
            if lines.peek().is_some() {
                joined.push('\n');
            }
            continue;
        };
        let Some(first) = next.chars().next().filter(|c| c.is_alphanumeric()) else {
            joined.push_str(line);
            joined.push('\n');
            continue;
        };
        joined.push_str(&end[..end.len() - hyphen_length(end)]);
        if keeps_hyphen(stem, next, first, &hyphenated) {
            joined.push('-');
        }
        continued = Some(next);
        lines.next();
    }
    joined
}

fn hyphen_length(line: &str) -> usize {
    line.chars().next_back().map_or(0, char::len_utf8)
}

/// The part of a word before the hyphen that ends the line.
fn broken_stem(line: &str) -> Option<&str> {
    let before = line.strip_suffix(['-', '\u{2010}'])?;
    let start = before
        .char_indices()
        .rev()
        .take_while(|(_, c)| c.is_alphanumeric() || matches!(c, '-' | '\u{2010}' | '\'' | '’'))
        .last()?
        .0;
    let stem = &before[start..];
    stem.chars().next_back().filter(|c| c.is_alphanumeric()).map(|_| stem)
}

fn keeps_hyphen(stem: &str, next: &str, first: char, hyphenated: &HashSet<String>) -> bool {
    if !first.is_lowercase() || stem.contains(['-', '\u{2010}']) {
        return true;
    }
    if stem.chars().count() == 1 || stem.chars().any(|c| !c.is_alphabetic() && !matches!(c, '\'' | '’')) {
        return true;
    }
    let tail: String = next.chars().take_while(|c| c.is_alphanumeric()).collect();
    hyphenated.contains(&format!("{stem}-{tail}").to_lowercase())
}

/// Folds runs of blanks to one space and runs of empty lines to one; `indented` keeps the start of lines.
fn fold_lines(text: &str, indented: bool) -> String {
    let mut folded = String::with_capacity(text.len());
    let mut empty_lines = 0;
    for line in text.split('\n') {
        let words = line.trim();
        if words.is_empty() {
            empty_lines += 1;
            continue;
        }
        if !folded.is_empty() {
            folded.push_str(if empty_lines > 0 { "\n\n" } else { "\n" });
        }
        empty_lines = 0;
        if indented {
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            folded.push_str(&line[..indent]);
        }
        let mut words = words.split_whitespace();
        folded.extend(words.next());
        for word in words {
            folded.push(' ');
            folded.push_str(word);
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{line, markdown, text};

    #[test]
    fn a_word_broken_over_a_line_end_is_whole_again() {
        for (raw, cleaned) in [
            ("The idempo-\ntency key", "The idempotency key"),
            ("the exist-\n   ing job", "the existing job"),
            ("ex\u{AD}\ntra", "extra"),
            ("a re-entrant lock,\nre-\nentrant", "a re-entrant lock,\nre-entrant"),
            ("state-of-the-\nart", "state-of-the-art"),
            ("Jean-\nPaul", "Jean-Paul"),
            ("pages 10-\n12", "pages 10-12"),
            ("an e-\nmail", "an e-mail"),
            ("inter-\nna-\ntional", "international"),
            ("Heading\n-------\ntext", "Heading\n-------\ntext"),
            ("one -\ntwo", "one -\ntwo"),
            ("a list:\nitem-\n- next", "a list:\nitem-\n- next"),
            ("the end-", "the end-"),
        ] {
            assert_eq!(text(raw), cleaned, "{raw:?}");
            assert_eq!(line(raw), cleaned.replace('\n', " "), "{raw:?}");
        }
    }

    #[test]
    fn what_is_typed_finds_what_was_read() {
        for (read, typed) in [
            ("\u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF}", "한글"),
            ("e\u{301}te\u{301}", "été"),
            ("e\u{200B}\u{301}", "é"),
            ("ﬁne oﬃce", "fine office"),
            ("利⽤", "利用"),
            ("a\u{A0}b\u{3000}c", "a b c"),
            ("\u{FEFF}start", "start"),
            ("pay\u{202E}ment", "payment"),
            ("nul\0byte \u{7}bell", "nulbyte bell"),
        ] {
            assert_eq!(line(read), typed);
            assert_eq!(text(read), typed);
        }
    }

    #[test]
    fn lines_and_paragraphs_stay_and_blanks_fold() {
        assert_eq!(text("one \t two  \r\n  three\n\n\n\n\u{C}four\rfive\n"), "one two\nthree\n\nfour\nfive");
    }

    #[test]
    fn code_keeps_its_shape() {
        let raw = "#  Title\n\n\n```rust\nfn  a() {\n\n\n    b-\nc();  \n}\n```\n- one\n    -   two\n";
        let cleaned = "# Title\n\n```rust\nfn  a() {\n\n\n    b-\nc();\n}\n```\n- one\n    - two";
        assert_eq!(markdown(raw), cleaned);
    }

    #[test]
    fn a_fence_is_closed_by_its_own_kind_only() {
        let raw = "~~~~\n```\na  b\n~~~\n~~~~\nc  d";
        assert_eq!(markdown(raw), "~~~~\n```\na  b\n~~~\n~~~~\nc d");
    }

    proptest! {
        #[test]
        fn cleaning_twice_changes_nothing(raw in r"([a-zA-Z0-9 \t\n\r`~#\-\u{2010}\u{AD}\u{301}\u{200B}\u{FB01}\u{1112}\u{1161}]|.){0,60}") {
            for clean in [text, line, markdown] {
                let once = clean(&raw);
                prop_assert_eq!(clean(&once), once);
            }
        }

        #[test]
        fn a_clean_text_holds_nothing_invisible(raw in any::<String>()) {
            let clean = text(&raw);
            let is_invisible = |c: char| (c.is_control() && c != '\n') || c == char::from_u32(0xFEFF).unwrap();
            prop_assert!(!clean.contains(is_invisible), "{:?}", clean);
        }
    }
}
