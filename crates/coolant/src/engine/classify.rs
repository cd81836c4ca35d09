//! Classify: what a worker reports as an error, read as a failure with a class.

use std::time::Duration;

use coolant_core::evidence::Evidence;
use coolant_core::failure::{Failure, FailureClass};

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

/// Reads a report.
///
/// # Errors
/// If its class is none, or a part of it is out of bounds.
pub fn classify(report: &ErrorReport) -> EngineResult<Failure> {
    let stated =
        seconds("error.retry_after_seconds", report.retry_after_seconds, Duration::ZERO..=LONGEST_STATED)?;
    if let Some(code) = &report.code {
        text("error.code", code, 1..=128)?;
    }
    if let Some(upstream) = &report.upstream {
        text("error.http.upstream", upstream, 1..=128)?;
    }
    let class = match (&report.class, &report.http) {
        (Some(name), _) => FailureClass::parse(name)
            .ok_or_else(|| EngineError::field("error.class", "is not the name of a failure class"))?,
        (None, Some(evidence)) => class_of(evidence),
        (None, None) => FailureClass::HandlerError,
    };
    let code = match &report.code {
        Some(code) => code.clone(),
        None if report.http.is_some() => format!("LLM_{}", class.code_suffix()),
        None if report.class.is_some() => class.code_suffix().to_owned(),
        None => return Err(EngineError::field("error.code", "is needed where there is no `http`")),
    };
    let waited = stated.or_else(|| report.http.as_ref().and_then(retry_after));
    Ok(Failure::new(class, code, report.message.clone())
        .with_retry_after(waited)
        .with_upstream(report.upstream.clone()))
}

// The next two functions stand in for the classifier of `coolant_core::evidence`, which reads bodies first:
// they are to be replaced by one call to it.

fn class_of(evidence: &Evidence) -> FailureClass {
    match evidence.status {
        None => FailureClass::Network,
        Some(401) => FailureClass::Auth,
        Some(402) => FailureClass::QuotaExhausted,
        Some(403) => FailureClass::Permission,
        Some(404) => FailureClass::NotFound,
        Some(408 | 504 | 524) => FailureClass::Timeout,
        Some(429) => FailureClass::RateLimited,
        Some(503 | 529) => FailureClass::Overloaded,
        Some(400..=499) => FailureClass::InvalidRequest,
        Some(_) => FailureClass::UpstreamError,
    }
}

fn retry_after(evidence: &Evidence) -> Option<Duration> {
    let (_, value) = evidence.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"))?;
    let seconds: f64 = value.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| *wait <= LONGEST_STATED)
}
