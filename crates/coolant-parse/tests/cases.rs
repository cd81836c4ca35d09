//! Real documents with their right results, from the folder that `COOLANT_CASES` names. Each of its
//! `pdf` and `text` folders holds a `manifest.json`.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::path::Path;

use common::manifest::{self, Case};
use common::{case_limits, folded, named, parser, text};
use coolant_parse::{Document, Hints, ParseError};
use unicode_normalization::UnicodeNormalization;

#[tokio::test]
async fn heavy_every_pdf_of_the_cases_gives_its_right_result() {
    run("pdf").await;
}

#[tokio::test]
async fn every_text_of_the_cases_gives_its_right_result() {
    run("text").await;
}

async fn run(kind: &str) {
    let Some((folder, manifest)) = manifest::read(kind) else { return };
    let mut failures = Vec::new();
    for case in &manifest.cases {
        for hints in [named(&case.file), Hints::default()] {
            if let Err(failure) = run_case(&folder, case, &hints).await {
                failures.push(format!("{} (name given: {}): {failure}", case.file, hints.filename.is_some()));
            }
        }
    }
    eprintln!("{kind}: {} cases, {} failures", manifest.cases.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

async fn run_case(folder: &Path, case: &Case, hints: &Hints) -> Result<(), String> {
    let bytes = std::fs::read(folder.join(&case.file)).unwrap();
    let mut parser = parser();
    parser.limits = case_limits();
    let parsed = parser.parse(&bytes, hints).await;
    match (case.expect.kind.as_str(), parsed) {
        ("text", Ok(document)) => check_text(case, &document),
        ("bounded", Ok(_) | Err(ParseError::Document { .. })) => Ok(()),
        (kind, Err(error)) if code_of(kind) == Some(error.code()) => Ok(()),
        (kind, other) => Err(format!("{kind} expected, got {other:?}")),
    }
}

fn code_of(kind: &str) -> Option<&'static str> {
    match kind {
        "encrypted" => Some("DOCUMENT_ENCRYPTED"),
        "damaged" => Some("DOCUMENT_DAMAGED"),
        "no_text_layer" => Some("DOCUMENT_NO_TEXT"),
        _ => None,
    }
}

fn check_text(case: &Case, document: &Document) -> Result<(), String> {
    let text = text(document);
    if text.starts_with('\u{FEFF}') || text.contains('\0') {
        return Err("invisible characters are left".to_owned());
    }
    if let Some(missing) = case.expect.must_contain.iter().find(|expected| !contains(&text, expected)) {
        return Err(format!("`{missing}` is not in: {text}"));
    }
    if let Some(unwanted) = case.expect.must_not_contain.iter().find(|unwanted| contains(&text, unwanted)) {
        return Err(format!("`{unwanted}` is in: {text}"));
    }
    match (&case.encoding, &document.encoding) {
        (Some(named), Some(found)) if !named.to_lowercase().starts_with(&found.to_lowercase()) => {
            Err(format!("{named} was taken for {found}"))
        }
        _ => Ok(()),
    }
}

/// Scripts without spaces between words are compared without white space.
fn contains(text: &str, expected: &str) -> bool {
    let is_spaceless = expected.chars().any(|c| matches!(c, '\u{590}'..='\u{6FF}' | '\u{E00}'..='\u{E7F}')
        || matches!(c, '\u{1100}'..='\u{11FF}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}'));
    if is_spaceless {
        let bare = |text: &str| text.nfkc().filter(|c| !c.is_whitespace()).collect::<String>();
        bare(text).contains(&bare(expected))
    } else {
        folded(text).contains(&folded(expected))
    }
}
