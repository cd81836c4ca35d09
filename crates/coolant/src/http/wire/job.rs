//! Jobs, attempts and steps as people and programs see them.

use std::collections::BTreeMap;

use coolant_core::job::{Attempt, Job, JobState, Progress, Step};
use coolant_core::money::UsageTotals;
use coolant_core::time::Timestamp;
use coolant_core::view::RetryAt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::named::{ClassName, Named, OutcomeName, PhaseName, ReasonName, StatusName};
use super::time::Time;
use crate::engine::JobAt;
use crate::engine::explain::Explanation;
use crate::language;

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobView {
    pub(crate) job_id: Uuid,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) tenant: String,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) lock_key: Option<String>,
    pub(crate) upstreams: Vec<String>,
    pub(crate) priority: i8,
    pub(crate) status: StatusName,
    pub(crate) phase: PhaseName,
    /// Executions so far: claims less releases and deferrals.
    pub(crate) attempt_count: u32,
    pub(crate) max_attempts: u32,
    pub(crate) lost_count: u32,
    pub(crate) released_count: u32,
    pub(crate) deferred_count: u32,
    pub(crate) last_error_code: Option<String>,
    pub(crate) last_error_message: Option<String>,
    pub(crate) last_error_class: Option<ClassName>,
    /// When it may be tried again; null where no retry can come.
    pub(crate) retry: Option<RetryView>,
    pub(crate) progress: Option<ProgressView>,
    pub(crate) usage: UsageView,
    pub(crate) payload: Value,
    pub(crate) result: Option<Value>,
    /// Whether somebody cancelled it while it runs.
    pub(crate) cancel_requested: bool,
    /// W3C trace id, 32 hex digits.
    pub(crate) trace_id: String,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) expires_at: Option<Time>,
    pub(crate) created_at: Time,
    pub(crate) updated_at: Time,
    pub(crate) started_at: Option<Time>,
    pub(crate) finished_at: Option<Time>,
}

impl From<JobAt> for JobView {
    fn from(at: JobAt) -> Self {
        let phase = at.phase();
        let JobAt { record, now, .. } = at;
        let job = &record.job;
        let spec = &job.spec;
        let error = job.last_error.as_ref();
        Self {
            job_id: job.id.0,
            job_type: spec.job_type.to_string(),
            queue: spec.queue.to_string(),
            tenant: spec.tenant.to_string(),
            idempotency_key: spec.idempotency_key.as_ref().map(ToString::to_string),
            lock_key: spec.lock_key.as_ref().map(ToString::to_string),
            upstreams: spec.upstreams.iter().map(ToString::to_string).collect(),
            priority: spec.priority,
            status: Named(job.status()),
            phase: Named(phase),
            attempt_count: job.counters.executions,
            max_attempts: spec.policy.max_attempts,
            lost_count: job.counters.lost,
            released_count: job.counters.releases,
            deferred_count: job.counters.deferrals,
            last_error_code: error.map(|error| error.code.clone()),
            last_error_message: error.map(|error| error.message.clone()),
            last_error_class: error.map(|error| Named(error.class)),
            retry: RetryView::of(job, now),
            progress: job.progress.clone().map(ProgressView::from),
            usage: job.usage.into(),
            cancel_requested: matches!(job.state, JobState::Running { cancel_requested: true, .. }),
            trace_id: spec.trace_id.clone(),
            tags: spec.tags.clone(),
            expires_at: spec.expires_at.map(Time),
            created_at: Time(job.created_at),
            updated_at: Time(job.updated_at),
            started_at: job.started_at.map(Time),
            finished_at: job.finished_at.map(Time),
            payload: record.payload,
            result: record.result,
        }
    }
}

/// When a job may be tried again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Retry)]
pub(crate) struct RetryView {
    /// The earliest instant.
    pub(crate) at: Time,
    /// Seconds until then; 0 once it is past.
    pub(crate) in_seconds: f64,
    /// Whether Coolant does it by itself.
    pub(crate) automatic: bool,
    /// The same for people.
    pub(crate) message: String,
}

impl RetryView {
    pub(crate) fn of(job: &Job, now: Timestamp) -> Option<Self> {
        let retry = RetryAt::of(job)?;
        Some(Self {
            at: Time(retry.at),
            in_seconds: retry.in_seconds(now),
            automatic: retry.automatic,
            message: retry.sentence(now).say(language::current()),
        })
    }
}

/// How far a running job is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Progress)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressView {
    /// Finished pieces.
    pub(crate) done: u64,
    /// All pieces, where known.
    pub(crate) total: Option<u64>,
    /// What a piece is: `chunks`.
    pub(crate) unit: Option<String>,
    /// Anything for people.
    pub(crate) message: Option<String>,
}

impl From<Progress> for ProgressView {
    fn from(Progress { done, total, unit, message }: Progress) -> Self {
        Self { done, total, unit, message }
    }
}

impl From<ProgressView> for Progress {
    fn from(ProgressView { done, total, unit, message }: ProgressView) -> Self {
        Self { done, total, unit, message }
    }
}

/// What paid calls used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageTotals)]
pub(crate) struct UsageView {
    pub(crate) calls: i64,
    pub(crate) input_tokens: i64,
    pub(crate) output_tokens: i64,
    /// Exact to 1e-9.
    pub(crate) cost_usd: f64,
    /// The part of `cost_usd` paid for output that no attempt kept.
    pub(crate) wasted_cost_usd: f64,
}

impl From<UsageTotals> for UsageView {
    fn from(usage: UsageTotals) -> Self {
        Self {
            calls: usage.calls,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cost_usd: usage.cost.as_usd(),
            wasted_cost_usd: usage.wasted.as_usd(),
        }
    }
}

/// One claim of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView {
    /// From 1; never repeats.
    pub(crate) number: i64,
    pub(crate) worker: String,
    pub(crate) started_at: Time,
    pub(crate) ended_at: Option<Time>,
    pub(crate) outcome: Option<OutcomeName>,
    pub(crate) error: Option<AttemptError>,
    pub(crate) usage: UsageView,
}

/// Why an attempt did not succeed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) class: ClassName,
    pub(crate) upstream: Option<String>,
    /// The wait that the upstream stated.
    pub(crate) retry_after_seconds: Option<f64>,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> Self {
        Self {
            number: attempt.number,
            worker: attempt.worker,
            started_at: Time(attempt.started_at),
            ended_at: attempt.ended_at.map(Time),
            outcome: attempt.outcome.map(Named),
            error: attempt.error.map(|error| AttemptError {
                code: error.code,
                message: error.message,
                class: Named(error.class),
                upstream: error.upstream,
                retry_after_seconds: error.retry_after.map(|wait| wait.as_secs_f64()),
            }),
            usage: attempt.usage.into(),
        }
    }
}

/// A finished, kept piece of a job, in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepSummary {
    pub(crate) name: String,
    /// Size of the output as JSON.
    pub(crate) bytes: u64,
    pub(crate) finished_at: Time,
    /// The attempt that finished it.
    pub(crate) attempt: i64,
}

/// A finished, kept piece of a job with what it gave.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Step)]
pub(crate) struct StepView {
    pub(crate) name: String,
    /// Size of the output as JSON.
    pub(crate) bytes: u64,
    pub(crate) finished_at: Time,
    /// The attempt that finished it.
    pub(crate) attempt: i64,
    pub(crate) output: Value,
}

impl From<Step> for StepSummary {
    fn from(step: Step) -> Self {
        let Step { name, bytes, finished_at, attempt, .. } = step;
        Self { name, bytes, finished_at: Time(finished_at), attempt }
    }
}

impl From<Step> for StepView {
    fn from(step: Step) -> Self {
        let Step { name, bytes, finished_at, attempt, output } = step;
        Self { name, bytes, finished_at: Time(finished_at), attempt, output: output.unwrap_or_default() }
    }
}

/// Why a job is not running now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplanationView {
    pub(crate) job_id: Uuid,
    pub(crate) status: StatusName,
    pub(crate) phase: PhaseName,
    /// Everything that holds it up; empty if nothing does.
    pub(crate) reasons: Vec<ReasonView>,
    /// It cannot start before; null once it has started or ended.
    pub(crate) earliest_at: Option<Time>,
}

/// One thing that holds a job up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reason)]
pub(crate) struct ReasonView {
    pub(crate) reason: ReasonName,
    /// Until when, where known.
    pub(crate) until: Option<Time>,
    /// The same for people.
    pub(crate) message: String,
}

impl From<Explanation> for ExplanationView {
    fn from(explanation: Explanation) -> Self {
        let phase = explanation.job.phase();
        let record = explanation.job.record;
        let reasons = explanation.reasons.into_iter().map(|reason| ReasonView {
            reason: Named(reason.kind),
            until: reason.until.map(Time),
            message: reason.detail.say(language::current()),
        });
        Self {
            job_id: record.job.id.0,
            status: Named(record.job.status()),
            phase: Named(phase),
            reasons: reasons.collect(),
            earliest_at: explanation.earliest_at.map(Time),
        }
    }
}
