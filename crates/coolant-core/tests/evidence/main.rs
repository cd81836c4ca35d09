//! Reading of evidence: the case file, changed forms of its cases, forms of other providers, properties.
//!
//! `COOLANT_CASES` names the folder that holds `provider-errors.json`. Without it the tests that need the
//! file say that they are skipped, and the rest runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod cases;
mod forms;
mod mutations;
mod properties;
mod room;
mod waits;

use std::time::{Duration, SystemTime};

use coolant_core::evidence::{Context, Evidence, Reading, read};
use serde_json::Value;

/// Evidence with a status, headers and a body.
fn evidence(status: u16, headers: &[(&str, &str)], body: Value) -> Evidence {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Evidence { status: Some(status), headers, body }
}

/// The reading of an answer that the caller asked nothing special of.
fn reading(status: u16, headers: &[(&str, &str)], body: Value) -> Reading {
    read(&evidence(status, headers, body), &Context::default())
}

/// Class, retry and scope in one word, as the tables of these tests write them.
fn said(reading: &Reading) -> String {
    let class = reading.class.map_or("success", |class| class.as_str());
    format!("{class} {:?} {:?}", reading.retryable, reading.scope).to_lowercase()
}

fn at_epoch(secs: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
}
