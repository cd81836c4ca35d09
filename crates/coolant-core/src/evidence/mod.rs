//! Evidence: what a paid call left behind, and how it is read into class, retry, scope and wait.
//!
//! The order is always the same: what the body says (codes, then words), then headers, then the status.
//! A 200 is opened too, because many failures arrive under one. A new provider usually needs one more
//! code or phrase in `rules` and nothing else.
//!
//! Always true:
//! - `read` never panics, whatever the bytes, and gives the same answer for the same input;
//! - a wait lies above zero and is 31 days at most;
//! - a summary holds no API key that [`mask`] knows the form of.
//!
//! Elsewhere: finding the error in its wrapping (`fault`), the table (`rules`), how a row matches
//! (`matching`), answers that came under a 2xx (`answer`, `stream`, `output`), waits (`wait`, `span`,
//! `date`), limits in headers (`room`), what a class does to a job (`lifecycle`).

mod answer;
mod date;
mod embedded;
mod embedding;
mod fault;
mod mask;
mod matching;
mod output;
mod room;
mod rules;
mod span;
mod stream;
mod wait;
mod window;

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{CoolingScope, Failure, FailureClass};
use crate::upstream::Room;

use fault::Fault;
pub use mask::mask;
use matching::{Column, Verdict};

/// What is known about one paid call: everything its answer left, good or bad.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// HTTP status; `None` means that no answer came, and `body` is the client library's error text.
    pub status: Option<u16>,
    /// Header names with their values, in the order they came. Case does not matter.
    pub headers: Vec<(String, String)>,
    /// The body: parsed JSON, or a string for anything that is not JSON (HTML, raw SSE text, plain text).
    pub body: Value,
}

impl Evidence {
    /// The evidence of an answer as it came off the wire: JSON if it parses, else text with damaged
    /// UTF-8 replaced.
    #[must_use]
    pub fn from_bytes(status: Option<u16>, headers: Vec<(String, String)>, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
        Self { status, headers, body }
    }

    /// The first value of that header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.trim().eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
    }

    /// The same with every API key masked, fit to be stored and shown.
    #[must_use]
    pub fn masked(&self) -> Self {
        let headers = self.headers.iter().map(|(n, v)| (n.clone(), mask::header(n, v))).collect();
        Self { status: self.status, headers, body: mask::json(&self.body) }
    }
}

/// What an answer that went well says is left of its provider's limits. Of a limit whose unit is not known, or is
/// a part of a call's tokens, only that nothing is left.
#[must_use]
pub fn room(evidence: &Evidence, now: Option<SystemTime>) -> Room {
    room::read(evidence, now)
}

/// What kind of answer the caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Text, tool calls or JSON from a language model.
    Chat,
    /// Vectors, one for each input.
    Embeddings,
}

/// What the caller asked for, as far as the answer can only be judged against it. All of it is optional:
/// what is not known is not checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Name of the provider (`mistral`, `z.ai/glm-4`): tells apart numeric codes that several providers
    /// use with different meanings.
    pub provider: Option<String>,
    /// What was asked for.
    pub operation: Option<Operation>,
    /// Number of texts sent for embedding.
    pub inputs: Option<usize>,
    /// Length that each vector must have.
    pub dimensions: Option<usize>,
    /// Whether the answer's text must be JSON. A schema implies it.
    pub expects_json: bool,
    /// JSON Schema that the answer's JSON must fit. Only `type`, `required`, `properties`, `items`,
    /// `enum`, `const` and `additionalProperties: false` are checked; the rest is the caller's.
    pub schema: Option<Value>,
    /// Limit of the answer's length in tokens: an answer that used all of it was cut, even if its
    /// finish reason does not say so.
    pub max_tokens: Option<u64>,
    /// The time of the reading, for absolute reset times. The answer's own `date` header wins.
    pub now: Option<SystemTime>,
}

/// Whether the identical request may pass later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Yes, after a wait.
    Yes,
    /// Not until somebody changes the input, a setting, the key or the balance.
    No,
    /// In bounds: one or two tries, or only after a known reset, or after a repair by the caller.
    Conditional,
}

/// What the evidence says, in terms that decide what happens next.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// What went wrong; `None` if the answer is usable as far as it can be judged.
    pub class: Option<FailureClass>,
    /// Whether the identical request may pass later.
    pub retryable: Retry,
    /// What must pause.
    pub scope: CoolingScope,
    /// The wait that the answer states, above zero and at most 31 days, rounded up to a millisecond;
    /// `None` if it states none or none that is credible.
    pub retry_after: Option<Duration>,
    /// The absolute time that the answer states, if it states one.
    pub not_before: Option<SystemTime>,
    /// Name of the rule that decided.
    pub rule: &'static str,
    /// One short line for people, with API keys masked.
    pub summary: String,
}

impl Reading {
    /// Whether the answer is usable as far as it can be judged.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.class.is_none()
    }

    /// The failure to store, with a code such as `LLM_RATE_LIMIT` for the prefix `LLM`; `None` for a
    /// success. It is final where the class would be retried by rule but this answer never passes.
    #[must_use]
    pub fn failure(&self, prefix: &str) -> Option<Failure> {
        let class = self.class?;
        let code = format!("{prefix}_{}", class.code_suffix());
        let mut failure = Failure::new(class, code, self.summary.clone()).with_retry_after(self.retry_after);
        // A class that waits for a person or fails at once needs no mark of its own.
        failure.final_ = self.retryable == Retry::No && !class.is_permanent() && !class.needs_operator();
        Some(failure)
    }
}

/// Reads what a paid call left behind. Costs about a tenth of a millisecond for a usual error body; the work is
/// bounded for any body.
#[must_use]
pub fn read(evidence: &Evidence, context: &Context) -> Reading {
    let (fault, verdict) = judge(evidence, context);
    let Some(verdict) = verdict else { return success() };
    let verdict = obey_should_retry(evidence, verdict);
    let stated = wait::stated(evidence, &fault, &verdict, context.now);
    let (verdict, stated) = window::refine(&fault, verdict, stated);
    Reading {
        class: Some(verdict.class),
        retryable: verdict.retry,
        scope: verdict.scope,
        retry_after: stated.wait,
        not_before: stated.until,
        rule: verdict.rule,
        summary: summary(evidence, &fault, &verdict),
    }
}

/// Where the fault lies, and what it is; no verdict means success.
fn judge(evidence: &Evidence, context: &Context) -> (Fault, Option<Verdict>) {
    match evidence.status {
        None => {
            let fault = Fault::of_error(evidence, context);
            let verdict = matching::decide_without_answer(&fault);
            (fault, Some(verdict))
        }
        Some(200..=299) => answer::judge(evidence, context),
        Some(_) => {
            let fault = stream::first_error(&evidence.body)
                .map(|error| Fault::of_value(evidence, &error, context))
                .unwrap_or_else(|| Fault::of_error(evidence, context));
            let verdict = matching::decide(&fault);
            (fault, Some(verdict))
        }
    }
}

/// `x-should-retry` is the server's own word on retrying. "No" is obeyed as it stands; "yes" only where
/// nothing but a vague status says otherwise, since no header makes a wrong key right.
fn obey_should_retry(evidence: &Evidence, mut verdict: Verdict) -> Verdict {
    match evidence.header("x-should-retry") {
        Some(no) if no.eq_ignore_ascii_case("false") => {
            verdict.retry = Retry::No;
            // The refusal is about this request: others of the same upstream are not to blame.
            if matches!(verdict.class, FailureClass::UpstreamError | FailureClass::Timeout) {
                verdict.scope = CoolingScope::Job;
            }
        }
        Some(yes)
            if yes.eq_ignore_ascii_case("true")
                && verdict.column == Column::Status
                && verdict.class == FailureClass::InvalidRequest =>
        {
            verdict.class = FailureClass::UpstreamError;
            verdict.retry = Retry::Yes;
            verdict.scope = CoolingScope::Upstream;
        }
        _ => {}
    }
    verdict
}

fn success() -> Reading {
    Reading {
        class: None,
        retryable: Retry::No,
        scope: CoolingScope::Job,
        retry_after: None,
        not_before: None,
        rule: "success",
        summary: "usable answer".to_owned(),
    }
}

/// One line for people: the status and the first thing that the provider said.
fn summary(evidence: &Evidence, fault: &Fault, verdict: &Verdict) -> String {
    const LONGEST: usize = 300;
    let status = match (evidence.status, fault.inner_status) {
        (Some(outer), Some(inner)) if outer != inner => format!("HTTP {outer} ({inner} inside)"),
        (Some(outer), _) => format!("HTTP {outer}"),
        (None, _) => "no answer".to_owned(),
    };
    let said = match verdict.detail.as_deref().or_else(|| fault.texts.first().map(String::as_str)) {
        Some(text) => text,
        None => verdict.class.as_str(),
    };
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    // Masked before it is cut, so that no cut can hide the form of a key.
    let line = mask(&format!("{status}: {said}"));
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
