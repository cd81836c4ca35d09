//! Failures: what went wrong with a paid call or a job, in terms that decide what happens next.
//!
//! A provider's answer becomes a [`Failure`] once, where it is first read (see `evidence`), and never
//! again: everything after that asks the class, not the text.
//!
//! Elsewhere: how evidence is read (`evidence`), what a failure does to a job (`lifecycle`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What kind of failure it was. The class decides three things: retry or not, what cools, how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Too many requests for now; the provider opens again within the hour.
    RateLimited,
    /// The provider has no capacity at the moment, or its model is still loading.
    Overloaded,
    /// No answer in time. The call may have been billed.
    Timeout,
    /// The connection failed or was cut.
    Network,
    /// The provider failed by itself (5xx, an error event in a stream, an empty 200).
    UpstreamError,
    /// No money, or the quota of a day or a month is used up.
    QuotaExhausted,
    /// The key is wrong, missing or expired.
    Auth,
    /// The key may not do this: model access, region, data policy.
    Permission,
    /// An answer came, but not a usable one: JSON or schema violated, cut, wrong vectors.
    InvalidOutput,
    /// The request itself is wrong and will stay so.
    InvalidRequest,
    /// The input is longer than the model takes.
    ContextTooLong,
    /// No such model, deployment or endpoint.
    NotFound,
    /// The provider refused the content.
    ContentFiltered,
    /// The document is encrypted, damaged, of no known format, or holds no text.
    InvalidDocument,
    /// The worker stopped renewing its lease.
    WorkerLost,
    /// Anything a handler raised that has no class of its own.
    HandlerError,
}

impl FailureClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::RateLimited,
        Self::Overloaded,
        Self::Timeout,
        Self::Network,
        Self::UpstreamError,
        Self::QuotaExhausted,
        Self::Auth,
        Self::Permission,
        Self::InvalidOutput,
        Self::InvalidRequest,
        Self::ContextTooLong,
        Self::NotFound,
        Self::ContentFiltered,
        Self::InvalidDocument,
        Self::WorkerLost,
        Self::HandlerError,
    ];

    /// The name users see: `rate_limited`, `worker_lost`, and so on.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::UpstreamError => "upstream_error",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Auth => "auth",
            Self::Permission => "permission",
            Self::InvalidOutput => "invalid_output",
            Self::InvalidRequest => "invalid_request",
            Self::ContextTooLong => "context_too_long",
            Self::NotFound => "not_found",
            Self::ContentFiltered => "content_filtered",
            Self::InvalidDocument => "invalid_document",
            Self::WorkerLost => "worker_lost",
            Self::HandlerError => "handler_error",
        }
    }

    /// The class of that name, or `None`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether the same request cannot pass until somebody changes it: straight to the dead-letter queue.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::InvalidRequest
                | Self::ContextTooLong
                | Self::NotFound
                | Self::ContentFiltered
                | Self::InvalidDocument
        )
    }

    /// Whether the fault lies with an upstream or its key, so that a job that names the upstream waits
    /// for it without using up a try.
    #[must_use]
    pub fn is_upstreams_fault(self) -> bool {
        matches!(
            self,
            Self::RateLimited | Self::Overloaded | Self::QuotaExhausted | Self::Auth | Self::Permission
        )
    }

    /// Whether a person has to act: pay, renew a key, ask for access.
    #[must_use]
    pub fn needs_operator(self) -> bool {
        matches!(self, Self::QuotaExhausted | Self::Auth | Self::Permission)
    }

    /// Whether one such failure says little about an upstream, and three in a row say that it is down.
    #[must_use]
    pub fn counts_in_a_row(self) -> bool {
        matches!(self, Self::Timeout | Self::Network | Self::UpstreamError)
    }

    /// Whether a call that ended so may be on the bill all the same: it was answered, or broke off so late
    /// that nobody knows.
    #[must_use]
    pub fn may_be_billed(self) -> bool {
        matches!(self, Self::Timeout | Self::Network | Self::InvalidOutput | Self::ContentFiltered)
    }

    /// The last part of the error code that belongs to the class: `RATE_LIMIT` of `LLM_RATE_LIMIT`.
    #[must_use]
    pub fn code_suffix(self) -> &'static str {
        match self {
            Self::RateLimited => "RATE_LIMIT",
            Self::Overloaded => "OVERLOADED",
            Self::Timeout => "TIMEOUT",
            Self::Network => "NETWORK",
            Self::UpstreamError => "UPSTREAM_ERROR",
            Self::QuotaExhausted => "QUOTA_EXHAUSTED",
            Self::Auth => "AUTH",
            Self::Permission => "PERMISSION",
            Self::InvalidOutput => "INVALID_OUTPUT",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::ContextTooLong => "CONTEXT_TOO_LONG",
            Self::NotFound => "NOT_FOUND",
            Self::ContentFiltered => "CONTENT_FILTERED",
            Self::InvalidDocument => "INVALID_DOCUMENT",
            Self::WorkerLost => "WORKER_LOST",
            Self::HandlerError => "HANDLER_ERROR",
        }
    }
}

impl std::fmt::Display for FailureClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What must pause after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoolingScope {
    /// This job alone.
    Job,
    /// All that use this provider and model.
    Upstream,
    /// All that use this key.
    Credential,
}

/// One failed attempt, as a worker reports it and a store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Stable code for programs, `SCREAMING_SNAKE_CASE`: `LLM_RATE_LIMIT`, or a worker's own.
    pub code: String,
    /// For people; 8 KiB at most, longer ones are cut with a mark.
    pub message: String,
    /// What kind of failure it was.
    pub class: FailureClass,
    /// The wait that the upstream stated, if it is credible.
    pub retry_after: Option<Duration>,
    /// The upstream at fault, if the evidence or the job names one.
    pub upstream: Option<String>,
    /// `true`: no retry although the class would allow one (untrusted TLS, `x-should-retry: false`,
    /// an answer cut at the length limit).
    pub final_: bool,
}

impl Failure {
    /// The longest message that is kept, in bytes.
    pub const MAX_MESSAGE: usize = 8 * 1024;

    /// A failure of that class with nothing else known.
    #[must_use]
    pub fn new(class: FailureClass, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: cut(message.into()),
            class,
            retry_after: None,
            upstream: None,
            final_: false,
        }
    }

    /// The same with the wait that the upstream stated.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// The same, laid at the door of an upstream.
    #[must_use]
    pub fn with_upstream(mut self, upstream: Option<String>) -> Self {
        self.upstream = upstream;
        self
    }
}

/// Cuts a message to [`Failure::MAX_MESSAGE`] at a character boundary, and says so; drops NUL, which
/// PostgreSQL text cannot hold.
#[must_use]
pub fn cut(message: String) -> String {
    const MARK: &str = " … [cut]";
    let mut message = if message.contains('\0') { message.replace('\0', "\u{fffd}") } else { message };
    if message.len() > Failure::MAX_MESSAGE {
        let mut end = Failure::MAX_MESSAGE - MARK.len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(MARK);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_name_that_reads_back() {
        for class in FailureClass::ALL {
            assert_eq!(FailureClass::parse(class.as_str()), Some(class));
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character_and_says_so() {
        let kept = cut("가".repeat(5000));
        assert!(kept.len() <= Failure::MAX_MESSAGE);
        assert!(kept.ends_with("[cut]"));
        assert_eq!(cut("a\0b".into()), "a\u{fffd}b");
    }
}
