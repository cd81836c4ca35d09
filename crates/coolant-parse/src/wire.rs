//! What parent and child say to each other.
//!
//! On the child's input: one line of JSON (a [`Request`]), then the bytes of the document. The input stays
//! open after them; its end tells the child that the parent is gone. On its output: one [`Frame`] of JSON a
//! line, ended by `Done` or `Fault`. Every line is bounded, since a parent that is to survive a hostile
//! document must not trust the process that read it.

use std::io::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Format, Hints, Page};
use crate::error::{Fault, ParseError};

/// The longest line, in bytes. A frame's text, escaped at its worst (six bytes for one), stays below it.
pub(crate) const LONGEST_LINE: u64 = 4 << 20;

/// The most text in one frame, in bytes.
const FRAME_TEXT: usize = 512 << 10;

/// More pages than any book: a bound on what a document of empty pages can make the parent keep.
pub(crate) const MOST_PAGES: usize = 200_000;

/// The first line of the child's input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// How many bytes follow.
    pub(crate) bytes: u64,
    pub(crate) hints: Hints,
    pub(crate) pdftotext: Option<PathBuf>,
    /// The most text to answer with, in bytes.
    pub(crate) text_bytes: u64,
}

/// One line of the child's output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Frame {
    /// Always the first, unless the document is at fault.
    Head { format: Format, encoding: Option<String>, title: Option<String> },
    /// The start of a page.
    Page { number: Option<u32>, text: String },
    /// More text of the page before.
    More { text: String },
    /// All pages were sent; the counts prove that none was lost.
    Done { pages: u64, characters: u64 },
    /// The document cannot be read.
    Fault { fault: Fault, message: String },
}

/// Writes a document as frames.
pub(crate) fn write_document(out: &mut impl Write, document: &Document) -> io::Result<()> {
    let Document { format, encoding, title, pages, characters } = document;
    let head = Frame::Head { format: *format, encoding: encoding.clone(), title: title.clone() };
    write_frame(out, &head)?;
    for page in pages {
        let (first, mut rest) = split_at_most(&page.text, FRAME_TEXT);
        write_frame(out, &Frame::Page { number: page.number, text: first.to_owned() })?;
        while !rest.is_empty() {
            let (next, after) = split_at_most(rest, FRAME_TEXT);
            write_frame(out, &Frame::More { text: next.to_owned() })?;
            rest = after;
        }
    }
    write_frame(out, &Frame::Done { pages: pages.len() as u64, characters: *characters })
}

pub(crate) fn write_frame(out: &mut impl Write, frame: &Frame) -> io::Result<()> {
    serde_json::to_writer(&mut *out, frame)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn split_at_most(text: &str, bytes: usize) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(bytes))
}

/// Puts the frames of a child together, and refuses what no honest child sends.
#[derive(Debug)]
pub(crate) struct Assembly {
    document: Option<Document>,
    text_bytes: u64,
    most_text_bytes: u64,
}

impl Assembly {
    pub(crate) fn new(most_text_bytes: u64) -> Self {
        Self { document: None, text_bytes: 0, most_text_bytes }
    }

    /// Takes one line; `Some` is the child's final answer.
    pub(crate) fn push(&mut self, line: &[u8]) -> Option<Result<Document, ParseError>> {
        let Ok(frame) = serde_json::from_slice(line) else {
            return Some(Err(malformed()));
        };
        self.take(frame).unwrap_or_else(|error| Some(Err(error)))
    }

    fn take(&mut self, frame: Frame) -> Result<Option<Result<Document, ParseError>>, ParseError> {
        match (frame, &mut self.document) {
            (Frame::Fault { fault, message }, _) => Ok(Some(Err(ParseError::document(fault, message)))),
            (Frame::Head { format, encoding, title }, document @ None) => {
                *document = Some(Document { format, encoding, title, pages: Vec::new(), characters: 0 });
                Ok(None)
            }
            (Frame::Page { number, text }, Some(document)) if document.pages.len() < MOST_PAGES => {
                count(&mut self.text_bytes, self.most_text_bytes, &text)?;
                document.characters += text.chars().count() as u64;
                document.pages.push(Page { number, text });
                Ok(None)
            }
            (Frame::More { text }, Some(document)) => {
                count(&mut self.text_bytes, self.most_text_bytes, &text)?;
                document.characters += text.chars().count() as u64;
                document.pages.last_mut().ok_or_else(malformed)?.text.push_str(&text);
                Ok(None)
            }
            (Frame::Done { pages, characters }, Some(document))
                if pages == document.pages.len() as u64 && characters == document.characters =>
            {
                Ok(self.document.take().map(Ok))
            }
            _ => Err(malformed()),
        }
    }
}

fn count(text_bytes: &mut u64, most: u64, text: &str) -> Result<(), ParseError> {
    *text_bytes += text.len() as u64;
    if *text_bytes > most { Err(too_much_text(most)) } else { Ok(()) }
}

/// The answer to a document with more text than its limit allows.
pub(crate) fn too_much_text(most: u64) -> ParseError {
    let message = format!("the document holds more than {} of text", mebibytes(most));
    ParseError::document(Fault::TooLarge, message)
}

pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Not the document's fault: a child of another version, or no child of ours at all.
pub(crate) fn malformed() -> ParseError {
    ParseError::reader("gave an answer that could not be understood", None)
}

#[cfg(test)]
mod tests {
    use super::{Assembly, FRAME_TEXT, write_document};
    use crate::document::{Document, Format, Page};

    fn document(texts: &[String]) -> Document {
        let pages: Vec<Page> = texts
            .iter()
            .zip(1..)
            .map(|(text, number)| Page { number: Some(number), text: text.clone() })
            .collect();
        let characters = texts.iter().map(|text| text.chars().count() as u64).sum();
        Document {
            format: Format::Pdf,
            encoding: None,
            title: Some("\"제목\"".to_owned()),
            pages,
            characters,
        }
    }

    #[test]
    fn a_document_survives_the_way_to_the_parent() {
        let sent = document(&["한".repeat(FRAME_TEXT), "short \"quoted\"\n".to_owned()]);
        let mut lines = Vec::new();
        write_document(&mut lines, &sent).unwrap();
        let mut assembly = Assembly::new(u64::MAX);
        let answer = lines.split_inclusive(|byte| *byte == b'\n').find_map(|line| assembly.push(line));
        assert_eq!(answer.unwrap().unwrap(), sent);
    }

    #[test]
    fn what_no_honest_child_sends_is_refused() {
        let head = r#"{"head":{"format":"pdf","encoding":null,"title":null}}"#;
        let page = r#"{"page":{"number":1,"text":"text"}}"#;
        for (lines, code) in [
            (vec!["no json"], "PARSER_UNAVAILABLE"),
            (vec![page], "PARSER_UNAVAILABLE"),
            (vec![head, head], "PARSER_UNAVAILABLE"),
            (vec![head, r#"{"more":{"text":"text"}}"#], "PARSER_UNAVAILABLE"),
            (vec![head, page, r#"{"done":{"pages":2,"characters":4}}"#], "PARSER_UNAVAILABLE"),
            (vec![head, page, r#"{"done":{"pages":1,"characters":5}}"#], "PARSER_UNAVAILABLE"),
            (vec![head, page, page, page], "DOCUMENT_TOO_LARGE"),
            (vec![head, page, r#"{"fault":{"fault":"damaged","message":"late"}}"#], "DOCUMENT_DAMAGED"),
        ] {
            let mut assembly = Assembly::new(10);
            let answer = lines.iter().find_map(|line| assembly.push(line.as_bytes()));
            assert_eq!(answer.unwrap().unwrap_err().code(), code, "{lines:?}");
        }
    }
}
