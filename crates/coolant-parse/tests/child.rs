//! What the parent does about a child that does not behave, and what the child does about its parent.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::made::pdf_of;
use common::{named, parser, text};
use coolant_parse::{Hints, ParseError, Parser};

/// A parser whose child misbehaves; the marker makes it findable among all processes.
fn misbehaving(how: &str, marker: &str) -> Parser {
    let mut parser = parser();
    parser.args = ["misbehave", how, marker].map(Into::into).to_vec();
    parser.limits.time = Duration::from_secs(20);
    parser
}

async fn error_of(parser: &Parser) -> ParseError {
    parser.parse(b"text", &Hints::default()).await.unwrap_err()
}

/// Whether a process runs that has the marker on its command line. A dead one has none.
fn is_running(marker: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.windows(marker.len()).any(|window| window == marker.as_bytes()))
}

/// A script in the place of `pdftotext`.
fn second_reader(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/second-readers").join(name)
}

/// Waits for a change outside of this process; a change that does not come is a failure.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came true that {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_child_that_spins_is_killed_at_the_time_limit() {
    let mut parser = misbehaving("spin", "marker-spins");
    parser.limits.time = Duration::from_millis(500);
    let error = error_of(&parser).await;
    assert_eq!((error.code(), error.is_retryable()), ("DOCUMENT_TOO_LARGE", false));
    assert_eq!(error.to_string(), "reading the document took more than 0.5 s");
    assert!(!is_running("marker-spins"));
}

#[tokio::test]
async fn a_dropped_parse_takes_its_child_along() {
    let parser = misbehaving("spin", "marker-dropped");
    let task = tokio::spawn(async move { error_of(&parser).await });
    until("the child runs", || is_running("marker-dropped")).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    until("the child is gone", || !is_running("marker-dropped")).await;
}

#[tokio::test]
async fn a_crash_is_the_documents_fault() {
    for how in ["abort", "overflow", "panic", "complain"] {
        let error = error_of(&misbehaving(how, "marker-crash")).await;
        assert_eq!((error.code(), error.is_retryable()), ("DOCUMENT_DAMAGED", false), "{how}: {error}");
        assert_eq!(error.to_string(), "the document crashed its reader");
    }
}

#[tokio::test]
async fn an_answer_that_no_child_of_ours_gives_may_be_tried_again() {
    for how in ["garble", "flood", "silence"] {
        let error = error_of(&misbehaving(how, "marker-answer")).await;
        assert_eq!((error.code(), error.is_retryable()), ("PARSER_UNAVAILABLE", true), "{how}: {error}");
    }
    assert!(!is_running("marker-answer"));
}

#[tokio::test]
async fn a_child_that_cannot_be_started_may_be_tried_again() {
    let parser = Parser::new(PathBuf::from("/nowhere/coolant"), Vec::new());
    let error = error_of(&parser).await;
    assert_eq!((error.code(), error.is_retryable()), ("PARSER_UNAVAILABLE", true));
}

#[tokio::test]
async fn a_child_inherits_no_variable() {
    assert_eq!(
        error_of(&misbehaving("count-variables", "marker-variables")).await.to_string(),
        "0 variables"
    );
}

#[tokio::test]
async fn a_document_that_needs_too_much_memory_is_too_large() {
    let mut parser = parser();
    parser.limits.memory_bytes = 160 << 20;
    let error = parser.parse(&vec![b'a'; 60 << 20], &named("a.txt")).await.unwrap_err();
    assert_eq!(error.code(), "DOCUMENT_TOO_LARGE");
    assert_eq!(error.to_string(), "reading the document took more than 160 MiB of memory");
}

#[tokio::test]
async fn a_document_with_too_much_text_is_too_large() {
    let mut parser = parser();
    parser.limits.text_bytes = 1 << 20;
    let error = parser.parse(&vec![b'a'; (1 << 20) + 1], &named("a.txt")).await.unwrap_err();
    assert_eq!(error.code(), "DOCUMENT_TOO_LARGE");
    assert_eq!(error.to_string(), "the document holds more than 1 MiB of text");
    assert!(parser.parse(&vec![b'a'; 1 << 20], &named("a.txt")).await.is_ok());
}

#[tokio::test]
async fn the_same_bytes_give_the_same_document() {
    let bytes = pdf_of(&["One page", "", "and a third"]);
    let first = parser().parse(&bytes, &Hints::default()).await.unwrap();
    let numbers: Vec<_> = first.pages.iter().map(|page| page.number).collect();
    assert_eq!(numbers, [Some(1), Some(3)]);
    assert_eq!(first, parser().parse(&bytes, &named("other.txt")).await.unwrap());
    assert_eq!(first, coolant_parse::read(&bytes, &Hints::default()).unwrap());
}

#[tokio::test]
async fn a_second_reader_is_asked_where_the_first_finds_nothing() {
    let mut parser = parser();
    parser.pdftotext = Some(second_reader("finds"));
    let document = parser.parse(&pdf_of(&[""]), &Hints::default()).await.unwrap();
    assert_eq!(text(&document), "needle\nfile fi");
    assert_eq!(document.pages.last().unwrap().number, Some(3));
    // It is not asked where the first finds text.
    let document = parser.parse(&pdf_of(&["first"]), &Hints::default()).await.unwrap();
    assert_eq!(text(&document), "first");
}

#[tokio::test]
async fn a_second_reader_that_hangs_ends_with_the_child() {
    let mut parser = parser();
    parser.limits.time = Duration::from_secs(2);
    let script = second_reader("hangs-for-child");
    parser.pdftotext = Some(script.clone());
    let error = parser.parse(&pdf_of(&[""]), &Hints::default()).await.unwrap_err();
    assert_eq!(error.code(), "DOCUMENT_TOO_LARGE");
    until("the second reader is gone", || !is_running(script.to_str().unwrap())).await;
}

#[tokio::test]
async fn a_child_ends_with_its_parent() {
    let script = second_reader("hangs-for-parent");
    let mut child = Command::new(env!("CARGO_BIN_EXE_coolant-parse-child"))
        .arg("--limits=60,1073741824")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let bytes = pdf_of(&[""]);
    let request = serde_json::json!({
        "bytes": bytes.len(), "hints": {"filename": null, "content_type": null},
        "pdftotext": script, "text_bytes": 1000,
    });
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{request}").unwrap();
    stdin.write_all(&bytes).unwrap();
    until("the second reader runs", || is_running(script.to_str().unwrap())).await;
    drop(stdin);
    assert!(!child.wait().unwrap().success());
    until("the second reader is gone", || !is_running(script.to_str().unwrap())).await;
}

#[tokio::test]
async fn a_child_limits_itself_before_it_reads() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_coolant-parse-child"))
        .arg("--limits=7,536870912")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let path = format!("/proc/{}/limits", child.id());
    let limit = |name: &str| -> Option<String> {
        let limits = fs::read_to_string(&path).ok()?;
        let line = limits.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].split_whitespace().next().map(str::to_owned)
    };
    until("all limits are set", || limit("Max open files").as_deref() == Some("64")).await;
    assert_eq!(limit("Max address space").as_deref(), Some("536870912"));
    assert_eq!(limit("Max cpu time").as_deref(), Some("7"));
    assert_eq!(limit("Max core file size").as_deref(), Some("0"));
    assert_eq!(limit("Max file size").as_deref(), Some("0"));
    drop(child.stdin.take());
    assert!(!child.wait().unwrap().success());
}
