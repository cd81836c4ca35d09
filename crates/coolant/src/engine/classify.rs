//! Classify: what a worker reports as an error, read as a failure with a class.
//!
//! Elsewhere: how evidence is read (`coolant_core::evidence`), what a class decides (`lifecycle`).

use std::time::Duration;

use coolant_core::evidence::{self, Context, Evidence, Operation, mask};
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::time::Timestamp;

use super::submit::{seconds, text};
use super::{EngineError, EngineResult};

/// An error as a worker reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ErrorReport {
    /// Its code; may be missing when there is evidence or a class.
    pub code: Option<String>,
    /// For people.
    pub message: String,
    /// Its class, if the worker knows it: then that counts.
    pub class: Option<String>,
    /// What the paid call left behind.
    pub http: Option<Evidence>,
    /// Whom the call was made to.
    pub upstream: Option<String>,
    /// The wait that the worker asks for.
    pub retry_after_seconds: Option<f64>,
}

/// The longest wait that a report may state.
const LONGEST_STATED: Duration = Duration::from_secs(366 * 86_400);

/// Reads a report: the worker's own words first, then what the evidence says.
///
/// # Errors
/// If its class is none, or a part of it is out of bounds.
pub fn classify(report: &ErrorReport, now: Timestamp) -> EngineResult<Failure> {
    let range = Duration::ZERO..=LONGEST_STATED;
    let stated = seconds("error.retry_after_seconds", report.retry_after_seconds, range)?;
    if let Some(code) = &report.code {
        text("error.code", code, 1..=128)?;
    }
    if let Some(upstream) = &report.upstream {
        text("error.http.upstream", upstream, 1..=128)?;
    }
    let read = report.http.as_ref().and_then(|http| read(http, report.upstream.as_deref(), now));
    let class = report.class.as_deref().map(class_named).transpose()?;
    let mut failure = match (class, read) {
        // The class counts; of the evidence its wait still does.
        (Some(class), read) => {
            let wait = read.and_then(|failure| failure.retry_after);
            Failure::new(class, class.code_suffix(), "").with_retry_after(wait)
        }
        (None, Some(read)) => read,
        (None, None) if report.code.is_none() && report.http.is_none() => {
            return Err(EngineError::field("error.code", "is needed where there is no `http`"));
        }
        (None, None) => Failure::new(FailureClass::HandlerError, "HANDLER_ERROR", ""),
    };
    if let Some(code) = &report.code {
        failure.code.clone_from(code);
    }
    if !report.message.is_empty() {
        failure.message = coolant_core::failure::cut(mask(&report.message));
    }
    failure.retry_after = stated.or(failure.retry_after);
    failure.upstream.clone_from(&report.upstream);
    Ok(failure)
}

fn class_named(name: &str) -> EngineResult<FailureClass> {
    FailureClass::parse(name)
        .ok_or_else(|| EngineError::field("error.class", "is not the name of a failure class"))
}

/// What the evidence says; `None` if it shows a usable answer.
fn read(http: &Evidence, upstream: Option<&str>, now: Timestamp) -> Option<Failure> {
    let is_embedding = upstream.is_some_and(|name| name.contains("embed"));
    let (operation, prefix) = match is_embedding {
        true => (Operation::Embeddings, "EMBEDDING"),
        false => (Operation::Chat, "LLM"),
    };
    let context = Context {
        provider: upstream.map(ToOwned::to_owned),
        operation: Some(operation),
        now: Some(now.into()),
        ..Context::default()
    };
    evidence::read(http, &context).failure(prefix)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn http(status: u16, body: serde_json::Value) -> Option<Evidence> {
        Some(Evidence { status: Some(status), headers: vec![("retry-after".into(), "7".into())], body })
    }

    #[test]
    fn the_body_is_read_before_the_status_and_the_workers_class_before_both() {
        let now = Timestamp::from_millis(1_764_417_600_000);
        let quota = json!({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}});
        let report = ErrorReport { http: http(429, quota), ..ErrorReport::default() };
        let failure = classify(&report, now).unwrap();
        assert_eq!(
            (failure.class, failure.code.as_str()),
            (FailureClass::QuotaExhausted, "LLM_QUOTA_EXHAUSTED")
        );

        let class = Some("timeout".to_owned());
        let report = ErrorReport { class, http: http(503, json!("busy")), ..ErrorReport::default() };
        let failure = classify(&report, now).unwrap();
        assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Timeout, "TIMEOUT"));
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
    }

    #[test]
    fn a_workers_own_code_is_kept_and_its_message_holds_no_key() {
        let report = ErrorReport {
            code: Some("MINE".into()),
            message: "key sk-proj-abcdefgh12345 is wrong".into(),
            http: http(503, json!("busy")),
            upstream: Some("embeddings".into()),
            ..ErrorReport::default()
        };
        let failure = classify(&report, Timestamp::default()).unwrap();
        assert_eq!((failure.code.as_str(), failure.class), ("MINE", FailureClass::Overloaded));
        assert!(!failure.message.contains("abcdefgh"), "{}", failure.message);
        assert_eq!(failure.upstream.as_deref(), Some("embeddings"));
    }
}
