//! The parser as the product uses it, and what it is given.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

pub mod made;
pub mod manifest;

use std::path::PathBuf;
use std::time::Duration;

use coolant_parse::{Document, Hints, Limits, ParseError, Parser};
use unicode_normalization::UnicodeNormalization;

/// A parser whose children are the test binary of this crate.
pub fn parser() -> Parser {
    Parser::new(PathBuf::from(env!("CARGO_BIN_EXE_coolant-parse-child")), Vec::new())
}

/// The limits of both manifests; memory stays at the default, which is stricter.
pub fn case_limits() -> Limits {
    Limits { time: Duration::from_secs(10), ..Limits::default() }
}

pub fn named(filename: &str) -> Hints {
    Hints { filename: Some(filename.to_owned()), content_type: None }
}

pub async fn parse(bytes: &[u8], filename: &str) -> Result<Document, ParseError> {
    parser().parse(bytes, &named(filename)).await
}

/// The text of all pages, in order.
pub fn text(document: &Document) -> String {
    document.pages.iter().map(|page| page.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// NFKC with white space folded, as the manifests compare.
pub fn folded(text: &str) -> String {
    text.nfkc().collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}
