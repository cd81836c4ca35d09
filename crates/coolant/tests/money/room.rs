//! A provider that says how much is left of its limit, and many calls that have to share it.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::program::{Fake, json_of, paying};

const DOCUMENTS: usize = 16;

/// Documents of one chunk each, of about thirty tokens.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    for n in 0..DOCUMENTS {
        let words: Vec<String> = (0..12).map(|word| format!("word{n}x{word}")).collect();
        std::fs::write(folder.path().join(format!("docs/report{n}.md")), words.join(" ")).unwrap();
    }
    std::fs::write(folder.path().join("coolant.toml"), "[embedding]\nbatch_items = 1\n").unwrap();
    folder
}

/// Two processes index the same folder with a call for each chunk, where a second takes the tokens of a few calls.
/// Gives what the provider counted.
async fn indexed_by_two(says_what_is_left: bool) -> Value {
    let fake = Fake::start(&format!("[limit]\ntokens = 150\nwindow = '1s'\nheaders = {says_what_is_left}\n"));
    let folder = folder();
    let start = || {
        let mut command = paying(folder.path(), &fake, &["index", "docs", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for process in [start(), start()] {
        let report = json_of(&process.wait_with_output().unwrap());
        assert_eq!(report["documents"]["failed"], json!([]), "{report}");
    }
    let counts = fake.counts().await;
    assert_eq!(counts["inputs"], DOCUMENTS, "{counts}");
    assert!(counts["input_tokens"].as_u64().unwrap() > 450, "it takes four windows: {counts}");
    counts
}

#[tokio::test]
async fn nobody_runs_into_a_limit_whose_provider_says_what_is_left() {
    let counts = indexed_by_two(true).await;
    assert_eq!(counts["by_outcome"], json!({ "ok": DOCUMENTS }), "{counts}");
}

/// What the other test would be without the statements.
#[tokio::test]
async fn where_nothing_is_said_the_limit_is_met_by_a_refusal() {
    let counts = indexed_by_two(false).await;
    assert!(counts["by_outcome"]["rate_limit"].as_u64() > Some(0), "{counts}");
}
