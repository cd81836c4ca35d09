//! Reading a document within this process. Only the child does it: see [`crate::Parser`].

use std::path::Path;

use crate::document::{Document, Format, Hints, Page};
use crate::error::ParseError;
use crate::sniff::{self, Container};
use crate::{charset, clean, html, office, pdf, text, wire};

/// Titles longer than this, in characters, are cut.
const LONGEST_TITLE: usize = 500;

/// What a reader may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) pdftotext: Option<&'a Path>,
    /// The most text, in bytes.
    pub(crate) text_bytes: u64,
}

/// Reads a document in this process, without any limit on time or memory.
///
/// For the child and for bytes that are trusted: a hostile file can take the process down. Everything else
/// goes through [`crate::Parser::parse`].
///
/// # Errors
/// [`ParseError::Document`] only.
pub fn read(bytes: &[u8], hints: &Hints) -> Result<Document, ParseError> {
    read_with(bytes, hints, Means { pdftotext: None, text_bytes: u64::MAX })
}

pub(crate) fn read_with(bytes: &[u8], hints: &Hints, means: Means<'_>) -> Result<Document, ParseError> {
    match sniff::container(bytes)? {
        Container::Pdf => {
            let pdf = pdf::read(bytes, means)?;
            document(Format::Pdf, None, pdf.title, pdf.pages, means)
        }
        Container::Zip | Container::Compound => {
            let office = office::read(bytes)?;
            document(office.format, None, office.title, whole(office.markdown), means)
        }
        Container::Text => read_text(bytes, hints, means),
    }
}

fn read_text(bytes: &[u8], hints: &Hints, means: Means<'_>) -> Result<Document, ParseError> {
    let decoded = charset::decode(bytes, hints.charset());
    if sniff::is_binary(&decoded.text) {
        return Err(ParseError::unsupported("binary data"));
    }
    let format = sniff::text_format(&decoded.text, hints);
    let (title, text) = match format {
        Format::Html => {
            let html = html::read(&decoded.text);
            (html.title, html.markdown)
        }
        Format::Markdown => {
            let markdown = text::markdown(&decoded.text);
            (markdown.title, markdown.markdown)
        }
        _ => (None, clean::text(&decoded.text)),
    };
    document(format, Some(decoded.encoding), title, whole(text), means)
}

fn whole(text: String) -> Vec<Page> {
    vec![Page { number: None, text }]
}

fn document(
    format: Format,
    encoding: Option<&str>,
    title: Option<String>,
    mut pages: Vec<Page>,
    means: Means<'_>,
) -> Result<Document, ParseError> {
    pages.retain(|page| holds_text(&page.text));
    if pages.is_empty() {
        return Err(ParseError::no_text());
    }
    if pages.iter().map(|page| page.text.len() as u64).sum::<u64>() > means.text_bytes {
        return Err(wire::too_much_text(means.text_bytes));
    }
    let characters = pages.iter().map(|page| page.text.chars().count() as u64).sum();
    let title = title.map(|title| title.chars().take(LONGEST_TITLE).collect());
    Ok(Document { format, encoding: encoding.map(str::to_owned), title, pages, characters })
}

/// Whether there is anything to find: lines and bullets alone are no text.
pub(crate) fn holds_text(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}
