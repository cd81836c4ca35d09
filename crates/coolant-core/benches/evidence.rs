//! How fast failures are read: classifications a second on one core, over answers of many providers.
//!
//! `cargo bench -p coolant-core --bench evidence`
//!
//! The answers are those of `tests/evidence/forms.jsonl`, and kinds that stand for the rest: pages of HTML, plain
//! text, streams, frames, errors of clients, answers that are good. `-- --seconds N` says for how long each
//! kind is read (1), in time that a core was had.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints")]
#![allow(missing_docs, reason = "nobody calls it")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use coolant_core::evidence::{Context, Evidence, read};
use serde_json::{Value, json};

fn evidence(status: Option<u16>, headers: &[(&str, &str)], body: Value) -> Evidence {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Evidence { status, headers, body }
}

/// The answers written down for the tests.
fn forms() -> Vec<Evidence> {
    let lines = include_str!("../tests/evidence/forms.jsonl").lines();
    let form = |line: &str| {
        let form: Value = serde_json::from_str(line).unwrap();
        let headers: BTreeMap<String, String> =
            serde_json::from_value(form["headers"].clone()).unwrap_or_default();
        let status = u16::try_from(form["status"].as_u64().unwrap()).unwrap();
        Evidence { status: Some(status), headers: headers.into_iter().collect(), body: form["body"].clone() }
    };
    lines.map(form).collect()
}

fn kinds() -> Vec<(&'static str, Vec<Evidence>)> {
    let page = format!(
        "<html><head><title>502 Bad Gateway</title></head><body>{}<center>nginx</center></body></html>",
        "<p>The page is temporarily unavailable.</p>".repeat(40)
    );
    let stream = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let answer = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant",
        "content": "A good answer of some length. ".repeat(60)}}], "usage": {"prompt_tokens": 9, "completion_tokens": 400}});
    let nested = json!({"error": {"message": json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "Quota exceeded", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]}}).to_string()}});
    vec![
        ("answers of many providers (`forms.jsonl`)", forms()),
        ("JSON within text", vec![evidence(Some(429), &[("retry-after", "30")], nested)]),
        (
            "plain text",
            vec![evidence(
                Some(503),
                &[],
                json!("upstream connect error or disconnect/reset before headers"),
            )],
        ),
        ("a page of HTML, 2 kB", vec![evidence(Some(502), &[("content-type", "text/html")], page.into())]),
        (
            "a stream that broke",
            vec![evidence(Some(200), &[("content-type", "text/event-stream")], stream.into())],
        ),
        (
            "no answer, a client's error",
            vec![evidence(
                None,
                &[],
                json!("error sending request: connection reset by peer (os error 104)"),
            )],
        ),
        ("a good answer, 2 kB", vec![evidence(Some(200), &[], answer)]),
    ]
}

/// Time that this thread had a core, where the system says so (Linux); else the time that went by. A machine
/// that is busy with other things then changes little.
fn busy(since: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let told = told.and_then(|text| text.split(' ').next()?.parse().ok());
    told.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

fn main() {
    let begun = Instant::now();
    let mut args = std::env::args().skip_while(|arg| arg != "--seconds");
    let seconds: u64 = args.nth(1).map_or(1, |text| text.parse().unwrap());
    println!("| kind | answers | readings a second | one reading |\n|---|---:|---:|---:|");
    for (kind, answers) in kinds() {
        let context = Context::default();
        let (start, mut readings) = (busy(begun), 0_u32);
        while busy(begun).saturating_sub(start) < Duration::from_secs(seconds) {
            // Many between two looks at the clock.
            for _ in 0..1_000 / answers.len() + 1 {
                for answer in &answers {
                    black_box(read(black_box(answer), &context));
                }
                readings += u32::try_from(answers.len()).unwrap();
            }
        }
        let one = busy(begun).saturating_sub(start) / readings;
        let rate = 1.0 / one.as_secs_f64();
        println!("| {kind} | {} | {rate:.0} | {one:.1?} |", answers.len());
    }
}
