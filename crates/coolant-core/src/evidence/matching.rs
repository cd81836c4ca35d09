//! How a row of the table in `rules` meets a fault.
//!
//! The columns are tried from left to right, and in each column the rows from top to bottom: a code that
//! names one fault beats any words, words beat a code that only names a family, and the status is last.

use crate::failure::{CoolingScope, FailureClass};

use super::Retry;
use super::fault::{Fault, squash};
use super::rules::{FAMILY_STATUS, NO_ANSWER, RULES};

/// What was decided, and by what.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) class: FailureClass,
    pub(crate) retry: Retry,
    pub(crate) scope: CoolingScope,
    pub(crate) rule: &'static str,
    pub(crate) column: Column,
    /// What to tell people, where the provider's own words are not to the point.
    pub(crate) detail: Option<String>,
}

/// Which sign decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Code,
    Words,
    Family,
    Status,
    /// A check of the answer itself, not of an error.
    Output,
}

/// One kind of fault: its signs, and what they mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) class: FailureClass,
    pub(crate) retry: Retry,
    pub(crate) scope: CoolingScope,
    codes: &'static str,
    says: &'static str,
    unless_says: &'static str,
    unless_code: &'static str,
    family: &'static str,
    status: &'static [u16],
    under: &'static [u16],
    not_under: &'static [u16],
    shows: Option<fn(&Fault) -> bool>,
}

impl Rule {
    pub(crate) const fn new(
        name: &'static str,
        class: FailureClass,
        retry: Retry,
        scope: CoolingScope,
    ) -> Self {
        Self {
            name,
            class,
            retry,
            scope,
            codes: "",
            says: "",
            unless_says: "",
            unless_code: "",
            family: "",
            status: &[],
            under: &[],
            not_under: &[],
            shows: None,
        }
    }

    /// Codes that mean this and nothing else, separated by blanks. Case, punctuation and a trailing
    /// `Error` or `Exception` do not count. `vendor/code` holds unless the provider is known as another.
    pub(crate) const fn codes(mut self, codes: &'static str) -> Self {
        self.codes = codes;
        self
    }

    /// Phrases separated by `|`, in lower case, with blanks for `-` and `_`. A phrase starts at the start
    /// of a word; `*` stands for anything within the next 80 bytes.
    pub(crate) const fn says(mut self, phrases: &'static str) -> Self {
        self.says = phrases;
        self
    }

    /// Phrases that keep the words of this row from counting.
    pub(crate) const fn unless_says(mut self, phrases: &'static str) -> Self {
        self.unless_says = phrases;
        self
    }

    /// Codes that keep the words of this row from counting.
    pub(crate) const fn unless_code(mut self, codes: &'static str) -> Self {
        self.unless_code = codes;
        self
    }

    /// Codes of the whole family, which weigh less than words.
    pub(crate) const fn family(mut self, codes: &'static str) -> Self {
        self.family = codes;
        self
    }

    /// Statuses that mean this if nothing else is known.
    pub(crate) const fn status(mut self, status: &'static [u16]) -> Self {
        self.status = status;
        self
    }

    /// The only statuses under which the words count.
    pub(crate) const fn under(mut self, status: &'static [u16]) -> Self {
        self.under = status;
        self
    }

    /// Statuses under which the words do not count.
    pub(crate) const fn not_under(mut self, status: &'static [u16]) -> Self {
        self.not_under = status;
        self
    }

    /// A sign that a phrase cannot express; it counts as words.
    pub(crate) const fn shows(mut self, sign: fn(&Fault) -> bool) -> Self {
        self.shows = Some(sign);
        self
    }

    fn meets(&self, column: Column, fault: &Fault) -> bool {
        match column {
            Column::Code => has_code(fault, self.codes),
            Column::Words => self.words_meet(fault),
            Column::Family => has_code(fault, self.family),
            Column::Status => fault.status.is_some_and(|status| self.status.contains(&status)),
            Column::Output => false,
        }
    }

    fn words_meet(&self, fault: &Fault) -> bool {
        let status = fault.status.unwrap_or(0);
        (self.under.is_empty() || self.under.contains(&status))
            && !self.not_under.contains(&status)
            && (self.shows.is_some_and(|sign| sign(fault)) || says(&fault.words, self.says))
            && !says(&fault.words, self.unless_says)
            && !has_code(fault, self.unless_code)
    }

    pub(crate) fn verdict(&self, column: Column) -> Verdict {
        Verdict {
            class: self.class,
            retry: self.retry,
            scope: self.scope,
            rule: self.name,
            column,
            detail: None,
        }
    }
}

/// Decides about an error that came over HTTP.
pub(crate) fn decide(fault: &Fault) -> Verdict {
    if let Some(verdict) = by_body(fault) {
        return verdict;
    }
    if let Some(rule) = RULES.iter().find(|rule| rule.meets(Column::Status, fault)) {
        return rule.verdict(Column::Status);
    }
    unknown(fault.status)
}

/// Decides by what the body says, without the status.
pub(crate) fn by_body(fault: &Fault) -> Option<Verdict> {
    [Column::Code, Column::Words, Column::Family].into_iter().find_map(|column| {
        RULES.iter().find(|rule| rule.meets(column, fault)).map(|rule| rule.verdict(column))
    })
}

/// Decides about a call that got no HTTP answer. A client library may still have put one into its text.
pub(crate) fn decide_without_answer(fault: &Fault) -> Verdict {
    if fault.inner_status.is_some() {
        return decide(fault);
    }
    let of_wire = [Column::Code, Column::Words].into_iter().find_map(|column| {
        NO_ANSWER.iter().find(|rule| rule.meets(column, fault)).map(|rule| rule.verdict(column))
    });
    if let Some(verdict) = of_wire.filter(|_| !fault.structured).or_else(|| by_body(fault)) {
        return verdict;
    }
    if fault.structured {
        return decide(fault);
    }
    Rule::new("no_answer", FailureClass::Network, Retry::Conditional, CoolingScope::Upstream)
        .verdict(Column::Status)
}

fn unknown(status: Option<u16>) -> Verdict {
    use CoolingScope::{Job, Upstream};
    let rule = match status {
        // A redirect that the client did not follow: the base URL is wrong.
        Some(300..=399) => Rule::new("status_3xx", FailureClass::NotFound, Retry::No, Upstream),
        Some(400..=499) => Rule::new("status_4xx", FailureClass::InvalidRequest, Retry::No, Job),
        Some(500..=599) => Rule::new("status_5xx", FailureClass::UpstreamError, Retry::Yes, Upstream),
        _ => Rule::new("unknown_error", FailureClass::UpstreamError, Retry::Yes, Upstream),
    };
    rule.verdict(Column::Status)
}

/// Whether the fault carries one of these codes.
pub(crate) fn has_code(fault: &Fault, list: &str) -> bool {
    list.split_ascii_whitespace().any(|entry| match entry.split_once('/') {
        None => fault.bare_codes.iter().any(|code| is_code(code, entry)),
        Some(("minimax" | "baidu", _)) => fault.codes.iter().any(|code| code == entry),
        Some((vendor, number)) => {
            fault.codes.iter().any(|code| code == number) && of_vendor(fault.provider.as_deref(), vendor)
        }
    })
}

/// The status that a family's name stands for, where no status was sent: in a stream or a frame.
pub(crate) fn family_status(fault: &Fault) -> Option<u16> {
    FAMILY_STATUS.iter().find(|(codes, _)| has_code(fault, codes)).map(|(_, status)| *status)
}

/// Whether a bare number may be that vendor's: always, unless the provider is one that numbers its own.
fn of_vendor(provider: Option<&str>, vendor: &str) -> bool {
    const VENDORS: [(&str, &[&str]); 3] = [
        ("zai", &["zai", "zhipu", "bigmodel", "glm"]),
        ("mistral", &["mistral"]),
        ("siliconflow", &["siliconflow"]),
    ];
    let Some(provider) = provider else { return true };
    let known = VENDORS.iter().find(|(_, names)| names.iter().any(|name| provider.contains(name)));
    known.is_none_or(|(name, _)| *name == vendor)
}

/// A code by its letters and digits, without case and without the ending that only says that it is a
/// code. What is left must still say something: `api_error` is not `api`.
pub(crate) fn bare_code(code: &str) -> String {
    let code = squash(code);
    let ending =
        CODE_ENDINGS.iter().find(|end| code.len() > end.len() + SHORTEST_CODE && code.ends_with(**end));
    code[..code.len() - ending.map_or(0, |end| end.len())].to_owned()
}

const CODE_ENDINGS: [&str; 2] = ["exception", "error"];
/// A shorter code needs its ending.
const SHORTEST_CODE: usize = 5;

/// Whether an entry of the table is that bare code, with or without an ending. Run for each entry of the
/// table, so it allocates nothing.
fn is_code(bare: &str, entry: &str) -> bool {
    let mut letters = entry.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase());
    if bare.is_empty() || !bare.bytes().all(|b| letters.next() == Some(b)) {
        return false;
    }
    let mut ending = letters.peekable();
    if ending.peek().is_none() {
        return true;
    }
    bare.len() > SHORTEST_CODE && {
        let left = ending.count();
        CODE_ENDINGS.iter().any(|end| left == end.len() && squash(entry).ends_with(end))
    }
}

/// Whether one of the phrases stands in the words; both in the form of [`normalise`].
pub(crate) fn says(words: &str, phrases: &str) -> bool {
    phrases.split('|').map(str::trim).filter(|phrase| !phrase.is_empty()).any(|phrase| holds(words, phrase))
}

fn holds(words: &str, phrase: &str) -> bool {
    const GAP: usize = 80;
    let mut pieces = phrase.split('*').map(str::trim);
    let Some(first) = pieces.next() else { return false };
    let rest: Vec<&str> = pieces.collect();
    starts(words, first).any(|start| {
        let mut at = start + first.len();
        rest.iter().all(|piece| {
            let window = super::fault::clip(&words[at..], GAP + piece.len());
            let found = starts(window, piece).next();
            at += found.map_or(0, |offset| offset + piece.len());
            found.is_some()
        })
    })
}

/// Where a piece stands in the words, counting only starts of words.
fn starts<'a>(words: &'a str, piece: &'a str) -> impl Iterator<Item = usize> + 'a {
    let needs_edge = piece.starts_with(|c: char| c.is_ascii_alphanumeric());
    words
        .match_indices(piece)
        .map(|(at, _)| at)
        .filter(move |at| !needs_edge || !words[..*at].ends_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Text in the form that phrases are written in: lower case, blanks for `-` and `_`, straight quotes,
/// single blanks, and no web addresses, whose paths are full of words like `rate-limits`.
pub(crate) fn normalise(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let address = ["https://", "http://"].iter().find_map(|scheme| word.find(scheme));
        let word = &word[..address.unwrap_or(word.len())];
        for c in word.chars() {
            match c {
                '-' | '_' | '\u{2010}'..='\u{2014}' => out.push(' '),
                '\u{2018}' | '\u{2019}' => out.push('\''),
                '\u{201c}' | '\u{201d}' => out.push('"'),
                c => out.extend(c.to_lowercase()),
            }
        }
        out.push(' ');
    }
    out
}
