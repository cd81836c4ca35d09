//! The case file, run as it stands.

use std::path::PathBuf;
use std::time::Duration;

use coolant_core::evidence::{Context, Evidence, Operation, Reading, Retry, read};
use serde::Deserialize;
use serde_json::Value;

/// One entry of `provider-errors.json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    provider: String,
    pub(crate) status: Option<u16>,
    pub(crate) headers: serde_json::Map<String, Value>,
    pub(crate) body_kind: String,
    pub(crate) body: Value,
    pub(crate) request: Option<Value>,
    pub(crate) expect: Expect,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Expect {
    pub(crate) class: String,
    pub(crate) retryable: Value,
    pub(crate) scope: String,
    pub(crate) retry_after_ms: Option<u64>,
    #[serde(default)]
    pub(crate) also_accept: Vec<String>,
    why: String,
}

/// Entries that we read otherwise on purpose; `docs/provider-failures.md` says why.
const DISPUTED: [&str; 0] = [];

/// The entries of the file, or `None` (with a word about it) if no folder is named.
pub(crate) fn all(test: &str) -> Option<Vec<Case>> {
    let Some(folder) = std::env::var_os("COOLANT_CASES") else {
        println!("{test}: skipped, COOLANT_CASES names no folder with provider-errors.json");
        return None;
    };
    let text = std::fs::read_to_string(PathBuf::from(folder).join("provider-errors.json")).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

impl Case {
    pub(crate) fn evidence(&self) -> Evidence {
        let headers =
            self.headers.iter().map(|(n, v)| (n.clone(), v.as_str().map_or(v.to_string(), str::to_owned)));
        let headers: Vec<_> = headers.collect();
        // Through the bytes, as a real caller does it.
        let bytes = match (&self.body_kind[..], &self.body) {
            ("base64", body) => base64(body["base64"].as_str().unwrap()),
            (_, Value::String(text)) => text.clone().into_bytes(),
            (_, Value::Null) => Vec::new(),
            (_, json) => serde_json::to_vec(json).unwrap(),
        };
        Evidence::from_bytes(self.status, headers, &bytes)
    }

    pub(crate) fn context(&self) -> Context {
        let request = self.request.clone().unwrap_or_default();
        let number = |key: &str| request[key].as_u64();
        Context {
            provider: Some(self.provider.clone()),
            operation: match request["operation"].as_str() {
                Some("embeddings") => Some(Operation::Embeddings),
                Some("chat") => Some(Operation::Chat),
                _ => None,
            },
            inputs: number("inputs").map(|n| usize::try_from(n).unwrap()),
            dimensions: number("dimensions").map(|n| usize::try_from(n).unwrap()),
            expects_json: request["expects"] == "json",
            schema: request.get("schema").cloned(),
            max_tokens: number("max_tokens"),
            now: None,
        }
    }
}

/// What is wrong with a reading; `None` if it is fully right.
pub(crate) fn miss(expect: &Expect, reading: &Reading) -> Option<String> {
    let class = reading.class.map_or("success", |class| class.as_str());
    let mut wrong = Vec::new();
    if class != expect.class && !expect.also_accept.iter().any(|also| also == class) {
        wrong.push(format!("class {class}, expected {}", expect.class));
    }
    let retryable = match reading.retryable {
        Retry::Yes => Value::Bool(true),
        Retry::No => Value::Bool(false),
        Retry::Conditional => "conditional".into(),
    };
    if retryable != expect.retryable {
        wrong.push(format!("retryable {retryable}, expected {}", expect.retryable));
    }
    let scope = serde_json::to_value(reading.scope).unwrap();
    if scope != expect.scope {
        wrong.push(format!("scope {scope}, expected {}", expect.scope));
    }
    let wait = reading.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
    let near = match (wait, expect.retry_after_ms) {
        (Some(got), Some(want)) => got.abs_diff(want) <= (want / 100).max(1000),
        (got, want) => got.is_none() && want.is_none(),
    };
    if !near {
        wrong.push(format!("wait {wait:?}, expected {:?}", expect.retry_after_ms));
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

#[test]
fn the_case_file_is_read_as_expected() {
    let Some(cases) = all("the_case_file_is_read_as_expected") else { return };
    let mut right = 0;
    for case in &cases {
        let reading = read(&case.evidence(), &case.context());
        assert!(reading.retry_after.is_none_or(|wait| wait > Duration::ZERO));
        match miss(&case.expect, &reading) {
            None => right += 1,
            Some(wrong) => {
                let known = if DISPUTED.contains(&case.id.as_str()) { " (disputed)" } else { "" };
                println!("{}{known}: {wrong}; rule {}; why: {}", case.id, reading.rule, case.expect.why);
            }
        }
    }
    println!("{right} of {} cases fully right", cases.len());
    assert!(right * 100 >= cases.len() * 97, "{right} of {} cases fully right", cases.len());
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::try_from(ALPHABET.iter().position(|a| *a == c).unwrap()).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff) as u8);
        }
    }
    out
}
