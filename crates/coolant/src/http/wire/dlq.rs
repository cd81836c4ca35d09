//! The dead-letter queue and redrives.

use coolant_core::money::Money;
use coolant_core::store::{DlqGroup, Redrive};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::{AttemptView, RetryView, UsageView};
use super::named::{ClassName, Named, RedriveStateName};
use super::object;
use super::query::FilterBody;
use super::time::Time;
use crate::engine::JobAt;
use crate::engine::dlq::DeadLetter;
use crate::engine::redrive::RedrivePlan;

/// A dead-lettered job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(crate) struct DeadLetterView {
    job_id: Uuid,
    idempotency_key: Option<String>,
    job_type: String,
    queue: String,
    tenant: String,
    attempt_count: u32,
    last_error_code: Option<String>,
    last_error_message: Option<String>,
    last_error_class: Option<ClassName>,
    trace_id: String,
    dead_lettered_at: Option<Time>,
    /// When it may be tried again; null after a permanent failure.
    retry: Option<RetryView>,
    usage: UsageView,
    payload: Value,
}

impl From<JobAt> for DeadLetterView {
    fn from(JobAt { record, now, .. }: JobAt) -> Self {
        let job = &record.job;
        let error = job.last_error.as_ref();
        Self {
            job_id: job.id.0,
            idempotency_key: job.spec.idempotency_key.as_ref().map(ToString::to_string),
            job_type: job.spec.job_type.to_string(),
            queue: job.spec.queue.to_string(),
            tenant: job.spec.tenant.to_string(),
            attempt_count: job.counters.executions,
            last_error_code: error.map(|error| error.code.clone()),
            last_error_message: error.map(|error| error.message.clone()),
            last_error_class: error.map(|error| Named(error.class)),
            trace_id: job.spec.trace_id.clone(),
            dead_lettered_at: job.finished_at.map(Time),
            retry: RetryView::of(job, now),
            usage: job.usage.into(),
            payload: record.payload,
        }
    }
}

/// A dead-lettered job with its history.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetterWithAttempts)]
pub(crate) struct DeadLetterDetail {
    #[serde(flatten)]
    record: DeadLetterView,
    /// Oldest first.
    attempts: Vec<AttemptView>,
}

impl From<DeadLetter> for DeadLetterDetail {
    fn from(DeadLetter { job, attempts }: DeadLetter) -> Self {
        Self { record: job.into(), attempts: attempts.into_iter().map(Into::into).collect() }
    }
}

/// Jobs that failed alike.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DlqGroup)]
pub(crate) struct GroupView {
    job_type: String,
    error_code: String,
    /// Its numbers and ids taken out.
    message: String,
    count: i64,
    first_at: Time,
    last_at: Time,
    /// One of them.
    sample_job_id: Uuid,
    /// What they cost so far.
    cost_usd: f64,
}

impl From<DlqGroup> for GroupView {
    fn from(group: DlqGroup) -> Self {
        Self {
            job_type: group.job_type,
            error_code: group.error_code,
            message: group.message,
            count: group.count,
            first_at: Time(group.first_at),
            last_at: Time(group.last_at),
            sample_job_id: group.sample.0,
            cost_usd: group.cost.as_usd(),
        }
    }
}

/// What to put back.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RedriveRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveBody {
    /// All if left out.
    #[serde(default, deserialize_with = "object::maybe")]
    pub(crate) filter: Option<FilterBody>,
    /// 1 to 10 000; 100 if left out.
    pub(crate) limit: Option<i64>,
    /// 0.001 to 1000; 5 if left out.
    pub(crate) per_second: Option<f64>,
    /// True if left out: only says what would be done.
    pub(crate) dry_run: Option<bool>,
    /// Past cooldowns and permanent failures; needs a `reason`, audited.
    pub(crate) force: Option<bool>,
    pub(crate) reason: Option<String>,
}

/// A redrive.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Redrive)]
pub(crate) struct RedriveView {
    /// Null for a dry run.
    redrive_id: Option<Uuid>,
    dry_run: bool,
    /// Null for a dry run.
    state: Option<RedriveStateName>,
    /// All jobs that matched at the start.
    matched: u32,
    /// Jobs put back; of a dry run, those that would be.
    redriven: u32,
    /// Jobs still to be put back.
    left: u32,
    /// Jobs left alone, 1000 at most.
    skipped: Vec<SkippedView>,
    /// What running the redriven jobs again may cost; null when asked for the progress.
    estimated_cost_usd: Option<f64>,
    per_second: f64,
    created_at: Time,
}

/// A job that a redrive leaves alone.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Skipped)]
pub(crate) struct SkippedView {
    job_id: Uuid,
    reason: String,
}

impl RedriveView {
    pub(crate) fn of_plan(plan: RedrivePlan, dry_run: bool) -> Self {
        let mut view = Self::of(plan.redrive, Some(plan.estimated_cost));
        if dry_run {
            view.dry_run = true;
            (view.redrive_id, view.state) = (None, None);
            (view.redriven, view.left) = (view.left, 0);
        }
        view
    }

    pub(crate) fn of(redrive: Redrive, estimated_cost: Option<Money>) -> Self {
        let skipped = redrive.skipped.into_iter();
        Self {
            redrive_id: Some(redrive.id.0),
            dry_run: false,
            state: Some(Named(redrive.state)),
            matched: redrive.matched,
            redriven: redrive.redriven,
            left: u32::try_from(redrive.left.len()).unwrap_or(u32::MAX),
            skipped: skipped.map(|s| SkippedView { job_id: s.job_id.0, reason: s.reason }).collect(),
            estimated_cost_usd: estimated_cost.map(Money::as_usd),
            per_second: redrive.per_second,
            created_at: Time(redrive.created_at),
        }
    }
}

/// Why a job is taken out of the dead-letter queue.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = DiscardRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiscardBody {
    pub(crate) note: Option<String>,
}
