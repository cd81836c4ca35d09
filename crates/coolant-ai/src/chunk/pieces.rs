//! Cutting text before it is split, because the splitter is quadratic in text without breaks.
//!
//! `text-splitter` looks for the largest unit that fits (paragraph, sentence, word, character), and
//! without breaks it looks through the rest of the text for every chunk: 1.5 MB without a space took it
//! 24 s. So a piece is bounded in two ways: its length, and the length of what it holds without the end
//! of a line or a sentence (Han is the worst case: there the splitter asks a dictionary for the words).
//! Over such pieces the whole is linear.

use std::ops::Range;

/// The longest piece, in bytes.
pub(super) const MAX_PIECE: usize = 32 * 1024;

/// The pieces of a text, in order and without gaps, each at most [`MAX_PIECE`] bytes and not empty.
///
/// A piece ends, if its second half has such a place, before a heading (`headings`: ascending offsets),
/// else after an empty line, a line, a space, else at any character. It ends early, after a space or a
/// comma if possible, where `max_run` bytes passed without the end of a line or a sentence.
pub(super) fn cut<'a>(
    text: &'a str,
    headings: &'a [usize],
    max_run: usize,
) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == text.len() {
            return None;
        }
        let limit = text.floor_char_boundary(start + MAX_PIECE);
        let end = match end_of_long_run(text, start..limit, max_run) {
            Some(end) => end,
            None if limit == text.len() => limit,
            None => best_end(text, start, limit, headings),
        };
        let piece = start..end;
        start = end;
        Some(piece)
    })
}

/// Where to cut the first run of more than `max_run` bytes without a break, if there is one.
fn end_of_long_run(text: &str, within: Range<usize>, max_run: usize) -> Option<usize> {
    let mut run = within.start;
    let mut gap = within.start;
    for (at, c) in text[within.clone()].char_indices() {
        let after = within.start + at + c.len_utf8();
        let before_space = || text[after..].starts_with(char::is_whitespace);
        match c {
            '\n' | '。' | '！' | '？' | '｡' => run = after,
            '.' | '!' | '?' if before_space() => run = after,
            '，' | '、' | '；' | '：' | ',' | ';' => gap = after,
            _ if c.is_whitespace() => gap = after,
            _ if after - run > max_run => return Some(if gap > run { gap } else { after }),
            _ => {}
        }
    }
    None
}

fn best_end(text: &str, start: usize, limit: usize, headings: &[usize]) -> usize {
    let half = text.floor_char_boundary(start + MAX_PIECE / 2);
    let heading = headings[..headings.partition_point(|&at| at <= limit)].last();
    if let Some(&heading) = heading.filter(|&&at| at > half) {
        return heading;
    }
    let window = &text[half..limit];
    let after = |pattern: &str| window.rfind(pattern).map(|at| half + at + pattern.len());
    let space = || {
        let (at, space) = window.char_indices().rfind(|(_, c)| c.is_whitespace())?;
        Some(half + at + space.len_utf8())
    };
    after("\n\n").or_else(|| after("\n")).or_else(space).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RUN: usize = 2048;

    #[test]
    fn a_piece_ends_at_the_best_place() {
        let filler = "xxxxxxxxx。".repeat(20_000 / 12);
        for (between, ends_with) in [(" y\n\nz w\nq ", "\n\n"), (" y\nz ", "\n"), ("y z", " ")] {
            let text = format!("{filler}{between}{filler}");
            let first = cut(&text, &[], RUN).next().unwrap();
            assert!(text[first].ends_with(ends_with), "{between:?}");
        }
        let text = format!("{filler}\n# Heading\n\n{filler}");
        assert_eq!(cut(&text, &[filler.len() + 1], RUN).next(), Some(0..filler.len() + 1));
    }

    #[test]
    fn a_run_without_a_break_is_cut_at_a_space_else_anywhere() {
        let spaced = "word ".repeat(1000);
        assert!(cut(&spaced, &[], RUN).all(|piece| piece.len() <= RUN && spaced[piece].ends_with(' ')));
        let text = "가".repeat(500_000);
        let pieces: Vec<_> = cut(&text, &[], RUN).collect();
        assert!(pieces.iter().all(|piece| text.get(piece.clone()).is_some() && piece.len() <= RUN + 4));
        assert!(pieces.len() <= text.len() / RUN + 1);
        let sentences = "a short sentence. ".repeat(1000);
        assert_eq!(cut(&sentences, &[], RUN).count(), 1);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_text(
            words in prop::collection::vec("[a가\u{1f600} .\n]{0,3000}", 0..40),
            max_run in 1_usize..5000,
        ) {
            let text = words.concat();
            let mut end = 0;
            for piece in cut(&text, &[], max_run) {
                prop_assert_eq!(piece.start, end);
                prop_assert!(!piece.is_empty() && piece.len() <= MAX_PIECE);
                end = piece.end;
            }
            prop_assert_eq!(end, text.len());
        }
    }
}
