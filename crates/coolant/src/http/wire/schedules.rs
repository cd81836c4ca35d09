//! Schedules.

use std::collections::BTreeMap;
use std::time::Duration;

use coolant_core::names::{LockKey, Upstream};
use coolant_core::schedule::{JobTemplate, Schedule};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::named::{CatchUpName, Named};
use super::object;
use super::time::Time;
use crate::engine::schedule::{ScheduleNow, ScheduleRequest};
use crate::engine::submit::SubmitRequest;

/// A schedule as somebody sets it. `cron` and `job` are required.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSchedule)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody {
    /// Five fields (minute, hour, day of month, month, day of week), or six with the second first.
    cron: String,
    /// An IANA name: `Europe/Berlin`. `UTC` if left out.
    time_zone: Option<String>,
    #[serde(deserialize_with = "object::one")]
    job: TemplateBody,
    /// What happens to ticks that nobody looked at in time: the newest becomes a job (`latest`, if left
    /// out), none (`skip`), or the newest 100 (`all`).
    catch_up: Option<CatchUpName>,
    /// Whether it rests. False if left out.
    paused: Option<bool>,
}

/// What each tick submits: a submit without `idempotency_key`, `run_at`, `expires_at` and `if_failed`, which
/// belong to one job. Only `job_type` is required.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetScheduledJob)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateBody {
    job_type: String,
    /// What the handler gets: 1 MiB of JSON at most; `{}` if left out.
    #[serde(default)]
    payload: Option<Value>,
    queue: Option<String>,
    /// The tenant of the schedule, if given.
    tenant: Option<String>,
    lock_key: Option<String>,
    /// Paid services it uses: `openai/gpt-4.1-mini`. 16 at most.
    upstreams: Option<Vec<String>>,
    /// -10 to 10, higher first.
    priority: Option<i64>,
    /// After its tick.
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
    max_paid_calls: Option<i64>,
    /// 64 at most. Each job gets `schedule` with the schedule's name as well, unless it is given here.
    tags: Option<BTreeMap<String, String>>,
}

impl From<ScheduleBody> for ScheduleRequest {
    fn from(body: ScheduleBody) -> Self {
        let job = body.job;
        Self {
            cron: body.cron,
            time_zone: body.time_zone,
            job: SubmitRequest {
                job_type: job.job_type,
                payload: job.payload,
                queue: job.queue,
                tenant: job.tenant,
                lock_key: job.lock_key,
                upstreams: job.upstreams.unwrap_or_default(),
                priority: job.priority,
                delay_seconds: job.delay_seconds,
                max_attempts: job.max_attempts,
                retry_delays_seconds: job.retry_delays_seconds,
                cooldown_seconds: job.cooldown_seconds,
                lease_seconds: job.lease_seconds,
                timeout_seconds: job.timeout_seconds,
                max_wait_seconds: job.max_wait_seconds,
                max_lost: job.max_lost,
                max_paid_calls: job.max_paid_calls,
                tags: job.tags.unwrap_or_default(),
                ..SubmitRequest::default()
            },
            catch_up: body.catch_up.map(|name| name.0).unwrap_or_default(),
            paused: body.paused.unwrap_or(false),
        }
    }
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(crate) struct ScheduleView {
    name: String,
    tenant: String,
    cron: String,
    time_zone: String,
    job: TemplateView,
    catch_up: CatchUpName,
    paused: bool,
    /// The tick to come; null while it is paused.
    next_at: Option<Time>,
    /// The next five ticks; none while it is paused.
    next_ticks: Vec<Time>,
    /// The newest tick that became a job; null before the first.
    last_at: Option<Time>,
    created_at: Time,
    /// When somebody last set, paused or resumed it.
    updated_at: Time,
}

/// What each tick submits, with every limit as it was when the schedule was set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduledJob)]
pub(crate) struct TemplateView {
    job_type: String,
    payload: Value,
    queue: String,
    lock_key: Option<String>,
    upstreams: Vec<String>,
    priority: i8,
    delay_seconds: f64,
    max_attempts: u32,
    retry_delays_seconds: Vec<f64>,
    cooldown_seconds: f64,
    lease_seconds: f64,
    timeout_seconds: f64,
    max_wait_seconds: f64,
    max_lost: u32,
    max_paid_calls: Option<u32>,
    tags: BTreeMap<String, String>,
}

impl From<ScheduleNow> for ScheduleView {
    fn from(ScheduleNow { schedule, next }: ScheduleNow) -> Self {
        let Schedule { name, tenant, cron, time_zone, template, catch_up, paused, .. } = schedule;
        Self {
            name: name.into(),
            tenant: tenant.into(),
            cron,
            time_zone,
            job: template.into(),
            catch_up: Named(catch_up),
            paused,
            next_at: schedule.next_at.map(Time),
            next_ticks: next.into_iter().map(Time).collect(),
            last_at: schedule.last_at.map(Time),
            created_at: Time(schedule.created_at),
            updated_at: Time(schedule.updated_at),
        }
    }
}

impl From<JobTemplate> for TemplateView {
    fn from(job: JobTemplate) -> Self {
        let seconds = |span: Duration| span.as_secs_f64();
        let policy = job.policy;
        Self {
            job_type: job.job_type.into(),
            payload: job.payload,
            queue: job.queue.into(),
            lock_key: job.lock_key.map(LockKey::into),
            upstreams: job.upstreams.into_iter().map(Upstream::into).collect(),
            priority: job.priority,
            delay_seconds: seconds(job.delay),
            max_attempts: policy.max_attempts,
            retry_delays_seconds: policy.retry_delays.into_iter().map(seconds).collect(),
            cooldown_seconds: seconds(policy.cooldown),
            lease_seconds: seconds(policy.lease),
            timeout_seconds: seconds(policy.timeout),
            max_wait_seconds: seconds(policy.max_wait),
            max_lost: policy.max_lost,
            max_paid_calls: policy.max_paid_calls,
            tags: job.tags,
        }
    }
}
