//! Real documents with their right results, from the folder that `COOLANT_CASES` names: what their
//! manifests say is what a search finds.

use std::collections::BTreeMap;

use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use crate::cases::{self, Case};
use crate::client::Client;
use crate::kit::{Site, counts, failed};

#[tokio::test]
async fn heavy_every_pdf_of_the_cases_is_found_or_says_why_not() {
    run("pdf").await;
}

#[tokio::test]
async fn every_text_of_the_cases_is_found_or_says_why_not() {
    run("text").await;
}

async fn run(kind: &str) {
    let Some((folder, manifest)) = cases::read(kind) else { return };
    // The limits of the manifests; those of memory hold for every process of the run.
    let site = Site::new().limited_to_gib(2).env("COOLANT_PARSER_SECONDS", "10");
    for case in &manifest.cases {
        site.write(&case.file, std::fs::read(folder.join(&case.file)).unwrap());
    }
    let ran = site.index().await;
    let code = ran.status.code().unwrap();
    let report = ran.report(code);
    let errors: BTreeMap<String, String> = failed(&report).into_iter().collect();
    assert_eq!(code, i32::from(!errors.is_empty()), "{report}");
    let (server, client) = site.serve(&["--no-work"]).await;
    let mut wrong = Vec::new();
    for case in &manifest.cases {
        if let Err(fault) = check(case, &errors, client).await {
            wrong.push(format!("{}: {fault}", case.file));
        }
    }
    server.kill();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{kind}: {} cases, {} of them with an error", manifest.cases.len(), errors.len());

    let again = site.index().await.report(code);
    assert_eq!(counts(&again)[4..], [0, 0], "{again}");
    assert_eq!(counts(&again)[2], counts(&report)[0], "{again}");
    assert_eq!(failed(&again).into_iter().collect::<BTreeMap<_, _>>(), errors);
    site.examine().await;
}

async fn check(case: &Case, errors: &BTreeMap<String, String>, client: Client) -> Result<(), String> {
    let error = errors.get(&format!("docs/{}", case.file)).map(String::as_str);
    let right = match case.expect.kind.as_str() {
        "text" => None,
        // Text or a clear error, within the limits.
        "bounded" if error.is_none_or(|code| code.starts_with("DOCUMENT_")) => return Ok(()),
        "encrypted" => Some("DOCUMENT_ENCRYPTED"),
        "damaged" => Some("DOCUMENT_DAMAGED"),
        "no_text_layer" => Some("DOCUMENT_NO_TEXT"),
        kind => return Err(format!("{kind} expected, got {error:?}")),
    };
    if error != right {
        return Err(format!("{right:?} expected, got {error:?}"));
    }
    for words in &case.expect.must_contain {
        for mode in ["text", "hybrid"] {
            let found = search(client, &case.file, words, mode).await;
            if !contains(&found, words) {
                return Err(format!("a search by {mode} does not find `{words}`, but: {found}"));
            }
        }
    }
    for words in &case.expect.must_not_contain {
        let found = search(client, &case.file, words, "hybrid").await;
        if contains(&found, words) {
            return Err(format!("`{words}` is found, and should not be there"));
        }
    }
    Ok(())
}

/// The texts of the hits in one document.
async fn search(client: Client, file: &str, words: &str, mode: &str) -> String {
    let query = serde_urlencoded::to_string([
        ("q", words),
        ("mode", mode),
        ("k", "10"),
        ("document_id", &format!("docs/{file}")),
    ]);
    let found = client.get(format!("/search?{}", query.unwrap())).await.expect(200);
    let hits = found["hits"].as_array().unwrap().iter();
    let texts: Vec<&str> = hits.map(|hit: &Value| hit["text"].as_str().unwrap()).collect();
    texts.join("\n")
}

/// As the manifests compare: scripts without spaces between words without white space.
fn contains(text: &str, expected: &str) -> bool {
    let is_spaceless = expected.chars().any(|c| matches!(c, '\u{590}'..='\u{6FF}' | '\u{E00}'..='\u{E7F}')
        || matches!(c, '\u{1100}'..='\u{11FF}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}'));
    let between = if is_spaceless { "" } else { " " };
    let folded =
        |text: &str| text.nfkc().collect::<String>().split_whitespace().collect::<Vec<_>>().join(between);
    folded(text).contains(&folded(expected))
}
