//! Submits and what people do to jobs.

use std::collections::BTreeMap;

use coolant_core::store::SubmitOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::job::JobView;
use super::named::IfFailedName;
use super::time::Time;
use crate::engine::EngineResult;
use crate::engine::error::Code;
use crate::engine::submit::{SubmitAnswer, SubmitRequest};
use crate::http::problem::Problem;

/// A job as somebody asks for it. Only `job_type` is required.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Submit)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody {
    pub(crate) job_type: String,
    /// What the handler gets: 1 MiB of JSON at most; `{}` if left out.
    #[serde(default)]
    payload: Option<Value>,
    queue: Option<String>,
    /// The same work has the same key; also the header `Idempotency-Key`. 512 bytes at most.
    pub(crate) idempotency_key: Option<String>,
    tenant: Option<String>,
    lock_key: Option<String>,
    /// Paid services it uses: `openai/gpt-4.1-mini`. 16 at most.
    upstreams: Option<Vec<String>>,
    /// -10 to 10, higher first.
    priority: Option<i64>,
    run_at: Option<Time>,
    /// Not together with `run_at`.
    delay_seconds: Option<f64>,
    /// 1 to 100.
    max_attempts: Option<i64>,
    retry_delays_seconds: Option<Vec<f64>>,
    cooldown_seconds: Option<f64>,
    /// 0.5 to 3600.
    lease_seconds: Option<f64>,
    timeout_seconds: Option<f64>,
    max_wait_seconds: Option<f64>,
    /// 1 to 100.
    max_lost: Option<i64>,
    expires_at: Option<Time>,
    max_paid_calls: Option<i64>,
    /// 64 at most.
    tags: Option<BTreeMap<String, String>>,
    /// What to do if the key's job failed and its cooldown is over.
    if_failed: Option<IfFailedName>,
}

impl SubmitBody {
    pub(crate) fn into_request(self, trace_id: &str) -> SubmitRequest {
        SubmitRequest {
            job_type: self.job_type,
            payload: self.payload,
            queue: self.queue,
            idempotency_key: self.idempotency_key,
            tenant: self.tenant,
            lock_key: self.lock_key,
            upstreams: self.upstreams.unwrap_or_default(),
            priority: self.priority,
            run_at: self.run_at.map(|at| at.0),
            delay_seconds: self.delay_seconds,
            max_attempts: self.max_attempts,
            retry_delays_seconds: self.retry_delays_seconds,
            cooldown_seconds: self.cooldown_seconds,
            lease_seconds: self.lease_seconds,
            timeout_seconds: self.timeout_seconds,
            max_wait_seconds: self.max_wait_seconds,
            max_lost: self.max_lost,
            max_releases: None,
            expires_at: self.expires_at.map(|at| at.0),
            max_paid_calls: self.max_paid_calls,
            tags: self.tags.unwrap_or_default(),
            if_failed: self.if_failed.map(|name| name.0).unwrap_or_default(),
            trace_id: Some(trace_id.to_owned()),
        }
    }
}

/// Many jobs at once.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SubmitBatch)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody {
    /// 1000 at most. Each is read by itself, so that one that cannot be read spoils no other.
    #[schema(value_type = Vec<SubmitBody>)]
    pub(crate) jobs: Vec<Value>,
}

/// An answer to each, in the order asked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchAnswer {
    pub(crate) results: Vec<BatchResult>,
}

/// What became of one job of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchResult {
    pub(crate) outcome: BatchOutcome,
    pub(crate) job: Option<JobView>,
    pub(crate) error: Option<Problem>,
}

/// What became of one job of a batch, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BatchOutcome {
    Created,
    Existing,
    Reopened,
    Conflict,
    Invalid,
}

impl BatchResult {
    pub(crate) fn invalid(problem: Problem) -> Self {
        Self { outcome: BatchOutcome::Invalid, job: None, error: Some(problem) }
    }
}

impl From<EngineResult<SubmitAnswer>> for BatchResult {
    fn from(answer: EngineResult<SubmitAnswer>) -> Self {
        match answer {
            Ok(SubmitAnswer { outcome, job }) => Self {
                outcome: match outcome {
                    SubmitOutcome::Created => BatchOutcome::Created,
                    SubmitOutcome::Existing => BatchOutcome::Existing,
                    SubmitOutcome::Reopened => BatchOutcome::Reopened,
                    SubmitOutcome::Conflict => BatchOutcome::Conflict,
                },
                job: Some(job.into()),
                error: None,
            },
            Err(error) => {
                let outcome = match error.code() {
                    Code::IdempotencyKeyReused => BatchOutcome::Conflict,
                    _ => BatchOutcome::Invalid,
                };
                Self { outcome, job: None, error: Some(error.into()) }
            }
        }
    }
}

/// How a job is retried.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = RetryRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// Past a cooldown and a permanent failure; needs a `reason`, audited.
    #[serde(default)]
    pub(crate) force: Option<bool>,
    pub(crate) reason: Option<String>,
}

/// Nothing: the body may be left out or be `{}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}
