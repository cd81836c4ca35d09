//! Jobs as rows: the one place that knows which column holds what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::Failure;
use coolant_core::gate::Gate;
use coolant_core::job::{
    Counters, Job, JobId, JobSpec, JobState, Lease, LeaseToken, Outcome, Policy, Reopen, Settled, Status,
    Wait,
};
use coolant_core::lifecycle;
use coolant_core::money::{Money, UsageTotals};
use coolant_core::names::{IdempotencyKey, InvalidName, JobType, LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{NewJob, StoreError, StoreResult};
use coolant_core::time::{Timestamp, millis_up};
use serde::{Deserialize, Serialize};

use crate::conn::{Columns, Kind, Row, Value};

/// The part of a spec that no query looks into, as JSON.
#[derive(Serialize, Deserialize)]
struct SpecText {
    upstreams: Vec<Upstream>,
    tags: BTreeMap<String, String>,
    trace_id: String,
    expires_at: Option<Timestamp>,
    policy: Policy,
}

/// The columns of `job_specs`.
pub(crate) const SPEC_COLUMNS: Columns<'_> = &[
    ("job_id", Kind::Text),
    ("tenant", Kind::Text),
    ("idempotency_key", Kind::Text),
    ("spec", Kind::Text),
    ("payload", Kind::Text),
];

/// The columns of `jobs`, in the order of [`encode`] and [`decode`].
pub(crate) const JOB_COLUMNS: Columns<'_> = &[
    ("id", Kind::Text),
    ("queue", Kind::Text),
    ("job_type", Kind::Text),
    ("tenant", Kind::Text),
    ("lock_key", Kind::Text),
    ("priority", Kind::Int),
    ("gate", Kind::Text),
    ("status", Kind::Text),
    ("due_at", Kind::Int),
    ("wait", Kind::Text),
    ("wait_reason", Kind::Text),
    ("gives_up_at", Kind::Int),
    ("lease_until", Kind::Int),
    ("lease_ms", Kind::Int),
    ("worker", Kind::Text),
    ("attempt_began_at", Kind::Int),
    ("deadline_at", Kind::Int),
    ("cancel_requested", Kind::Int),
    ("reopen", Kind::Text),
    ("reopen_at", Kind::Int),
    ("lock_until", Kind::Int),
    ("max_wait_ms", Kind::Int),
    ("delayed", Kind::Int),
    ("claims", Kind::Int),
    ("executions", Kind::Int),
    ("tries", Kind::Int),
    ("lost", Kind::Int),
    ("releases", Kind::Int),
    ("deferrals", Kind::Int),
    ("timeouts", Kind::Int),
    ("invalid_outputs", Kind::Int),
    ("last_error", Kind::Text),
    ("error_code", Kind::Text),
    ("deferred_since", Kind::Int),
    ("settled_token", Kind::Int),
    ("settled_outcome", Kind::Text),
    ("progress", Kind::Text),
    ("calls", Kind::Int),
    ("input_tokens", Kind::Int),
    ("output_tokens", Kind::Int),
    ("cost_nanos", Kind::Int),
    ("wasted_nanos", Kind::Int),
    ("version", Kind::Int),
    ("created_at", Kind::Int),
    ("updated_at", Kind::Int),
    ("started_at", Kind::Int),
    ("finished_at", Kind::Int),
];

/// Columns that a job keeps from its submit on; a save leaves them alone.
pub(crate) const FIXED_COLUMNS: usize = 7;

/// The names of all columns of `jobs`, each behind `prefix`.
pub(crate) fn job_columns(prefix: &str) -> String {
    JOB_COLUMNS.iter().map(|(name, _)| format!("{prefix}{name}")).collect::<Vec<_>>().join(", ")
}

/// A row of `job_specs`.
pub(crate) fn encode_spec(new: &NewJob) -> StoreResult<Vec<Value>> {
    let JobSpec { tenant, idempotency_key, upstreams, tags, trace_id, expires_at, policy, .. } = &*new.spec;
    let text = SpecText {
        upstreams: upstreams.clone(),
        tags: tags.clone(),
        trace_id: trace_id.clone(),
        expires_at: *expires_at,
        policy: policy.clone(),
    };
    Ok(vec![
        new.id.to_string().into(),
        tenant.as_str().into(),
        idempotency_key.as_ref().map(IdempotencyKey::as_str).into(),
        to_json(&text)?.into(),
        to_json(&new.payload)?.into(),
    ])
}

/// A row of `jobs`.
pub(crate) fn encode(job: &Job) -> StoreResult<Vec<Value>> {
    let Job { spec, counters, usage, .. } = job;
    let mut row: Vec<Value> = vec![
        job.id.to_string().into(),
        spec.queue.as_str().into(),
        spec.job_type.as_str().into(),
        spec.tenant.as_str().into(),
        spec.lock_key.as_ref().map(LockKey::as_str).into(),
        i64::from(spec.priority).into(),
        Gate::of(&spec.upstreams).as_str().into(),
        job.status().as_str().into(),
    ];
    row.extend(encode_state(job));
    row.extend([
        at(lifecycle::locked_until(job)),
        millis_up(spec.policy.max_wait).into(),
        i64::from(is_delayed(job)).into(),
        counters.claims.into(),
        i64::from(counters.executions).into(),
        i64::from(counters.tries).into(),
        i64::from(counters.lost).into(),
        i64::from(counters.releases).into(),
        i64::from(counters.deferrals).into(),
        i64::from(counters.timeouts).into(),
        i64::from(counters.invalid_outputs).into(),
        job.last_error.as_ref().map(to_json).transpose()?.into(),
        job.last_error.as_ref().map(|failure| failure.code.as_str()).into(),
        at(job.deferred_since),
        job.last_settled.map(|settled| settled.token.0).into(),
        job.last_settled.map(|settled| settled.outcome.as_str()).into(),
        job.progress.as_ref().map(to_json).transpose()?.into(),
        usage.calls.into(),
        usage.input_tokens.into(),
        usage.output_tokens.into(),
        usage.cost.as_nanos().into(),
        usage.wasted.as_nanos().into(),
        job.version.into(),
        job.created_at.as_millis().into(),
        job.updated_at.as_millis().into(),
        at(job.started_at),
        at(job.finished_at),
    ]);
    Ok(row)
}

/// Whether its instant was still to come when it was written (`delayed`).
fn is_delayed(job: &Job) -> bool {
    matches!(job.state, JobState::Pending { visible_at, .. } if visible_at > job.updated_at)
}

/// The columns from `due_at` to `reopen_at`: each state fills its own and leaves the others empty.
fn encode_state(job: &Job) -> [Value; 12] {
    let mut state = [const { Value::Null }; 12];
    state[3] = at(lifecycle::gives_up_at(job));
    match &job.state {
        JobState::Pending { visible_at, wait } => {
            state[0] = visible_at.as_millis().into();
            let (name, reason) = match wait {
                Wait::Start => ("start", None),
                Wait::Cooling => ("cooling", None),
                Wait::Deferred { reason } => ("deferred", Some(reason.as_str())),
            };
            state[1] = name.into();
            state[2] = reason.into();
        }
        JobState::Running { lease, cancel_requested } => {
            state[4] = lease.until.as_millis().into();
            state[5] = millis_up(lease.length).into();
            state[6] = lease.worker.as_str().into();
            state[7] = lease.started_at.as_millis().into();
            state[8] = lease.deadline.as_millis().into();
            state[9] = i64::from(*cancel_requested).into();
        }
        JobState::Failed { reopen, .. } => {
            let (name, from) = match reopen {
                Reopen::From(from) => ("from", Some(*from)),
                Reopen::OnlyForced => ("forced", None),
                Reopen::Discarded => ("discarded", None),
            };
            state[10] = name.into();
            state[11] = at(from);
        }
        JobState::Succeeded { .. } | JobState::Cancelled { .. } => {}
    }
    state
}

fn at(instant: Option<Timestamp>) -> Value {
    instant.map(Timestamp::as_millis).into()
}

/// Reads what [`job_columns`] and then `idempotency_key` and `spec` give.
pub(crate) fn decode(row: &mut Row) -> StoreResult<Job> {
    let id = job_id(&row.text()?)?;
    let queue = name(Queue::parse(row.text()?))?;
    let job_type = name(JobType::parse(row.text()?))?;
    let tenant = name(Tenant::parse(row.text()?))?;
    let lock_key = row.maybe_text()?.map(LockKey::parse).transpose().map_err(broken)?;
    let priority = i8::try_from(row.int()?).map_err(broken)?;
    let _gate = row.text()?;
    let status = row.text()?;
    let status = Status::parse(&status).ok_or_else(|| StoreError::Broken(format!("status `{status}`")))?;
    let columns = StateColumns::read(row)?;
    let _lock_until = row.maybe_int()?;
    let _max_wait_ms = row.int()?;
    let _delayed = row.int()?;
    let counters = decode_counters(row)?;
    let last_error: Option<Failure> = from_maybe_json(row.maybe_text()?)?;
    let _error_code = row.maybe_text()?;
    let deferred_since = maybe_at(row)?;
    let last_settled = decode_settled(row)?;
    let progress = from_maybe_json(row.maybe_text()?)?;
    let usage = UsageTotals {
        calls: row.int()?,
        input_tokens: row.int()?,
        output_tokens: row.int()?,
        cost: Money::from_nanos(row.int()?),
        wasted: Money::from_nanos(row.int()?),
    };
    let version = row.int()?;
    let created_at = Timestamp::from_millis(row.int()?);
    let updated_at = Timestamp::from_millis(row.int()?);
    let started_at = maybe_at(row)?;
    let finished_at = maybe_at(row)?;
    let idempotency_key = row.maybe_text()?.map(IdempotencyKey::parse).transpose().map_err(broken)?;
    let SpecText { upstreams, tags, trace_id, expires_at, policy } = from_json(&row.text()?)?;
    let state = columns.state(status, counters.claims, finished_at)?;
    let spec = Arc::new(JobSpec {
        job_type,
        queue,
        tenant,
        idempotency_key,
        lock_key,
        upstreams,
        priority,
        tags,
        trace_id,
        expires_at,
        policy,
    });
    Ok(Job {
        id,
        spec,
        state,
        counters,
        last_error,
        deferred_since,
        last_settled,
        progress,
        usage,
        version,
        created_at,
        updated_at,
        started_at,
        finished_at,
    })
}

/// The columns that only some states fill.
struct StateColumns {
    due_at: Option<i64>,
    wait: Option<String>,
    wait_reason: Option<String>,
    lease_until: Option<i64>,
    lease_ms: Option<i64>,
    worker: Option<String>,
    attempt_began_at: Option<i64>,
    deadline_at: Option<i64>,
    cancel_requested: Option<i64>,
    reopen: Option<String>,
    reopen_at: Option<i64>,
}

impl StateColumns {
    fn read(row: &mut Row) -> StoreResult<Self> {
        let due_at = row.maybe_int()?;
        let wait = row.maybe_text()?;
        let wait_reason = row.maybe_text()?;
        let _gives_up_at = row.maybe_int()?;
        Ok(Self {
            due_at,
            wait,
            wait_reason,
            lease_until: row.maybe_int()?,
            lease_ms: row.maybe_int()?,
            worker: row.maybe_text()?,
            attempt_began_at: row.maybe_int()?,
            deadline_at: row.maybe_int()?,
            cancel_requested: row.maybe_int()?,
            reopen: row.maybe_text()?,
            reopen_at: row.maybe_int()?,
        })
    }

    fn state(self, status: Status, claims: i64, finished_at: Option<Timestamp>) -> StoreResult<JobState> {
        let at = |ms: Option<i64>| {
            ms.map(Timestamp::from_millis)
                .ok_or_else(|| StoreError::Broken(format!("a {} job lacks an instant", status.as_str())))
        };
        Ok(match status {
            Status::Pending => {
                let wait = match self.wait.as_deref() {
                    Some("cooling") => Wait::Cooling,
                    Some("deferred") => Wait::Deferred { reason: self.wait_reason.unwrap_or_default() },
                    _ => Wait::Start,
                };
                JobState::Pending { visible_at: at(self.due_at)?, wait }
            }
            Status::Running => JobState::Running {
                lease: Lease {
                    token: LeaseToken(claims),
                    until: at(self.lease_until)?,
                    length: Duration::from_millis(
                        self.lease_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default(),
                    ),
                    worker: self.worker.unwrap_or_default(),
                    started_at: at(self.attempt_began_at)?,
                    deadline: at(self.deadline_at)?,
                },
                cancel_requested: self.cancel_requested == Some(1),
            },
            Status::Succeeded => JobState::Succeeded { at: at(finished_at.map(Timestamp::as_millis))? },
            Status::Cancelled => JobState::Cancelled { at: at(finished_at.map(Timestamp::as_millis))? },
            Status::Failed => JobState::Failed {
                at: at(finished_at.map(Timestamp::as_millis))?,
                reopen: match self.reopen.as_deref() {
                    Some("from") => Reopen::From(at(self.reopen_at)?),
                    Some("discarded") => Reopen::Discarded,
                    _ => Reopen::OnlyForced,
                },
            },
        })
    }
}

fn decode_counters(row: &mut Row) -> StoreResult<Counters> {
    let claims = row.int()?;
    let mut small = || -> StoreResult<u32> { u32::try_from(row.int()?).map_err(broken) };
    Ok(Counters {
        claims,
        executions: small()?,
        tries: small()?,
        lost: small()?,
        releases: small()?,
        deferrals: small()?,
        timeouts: small()?,
        invalid_outputs: small()?,
    })
}

fn decode_settled(row: &mut Row) -> StoreResult<Option<Settled>> {
    let token = row.maybe_int()?;
    let outcome = row.maybe_text()?.map(|name| outcome(&name)).transpose()?;
    Ok(token.zip(outcome).map(|(token, outcome)| Settled { token: LeaseToken(token), outcome }))
}

pub(crate) fn outcome(name: &str) -> StoreResult<Outcome> {
    Outcome::parse(name).ok_or_else(|| StoreError::Broken(format!("outcome `{name}`")))
}

pub(crate) fn maybe_at(row: &mut Row) -> StoreResult<Option<Timestamp>> {
    Ok(row.maybe_int()?.map(Timestamp::from_millis))
}

pub(crate) fn job_id(text: &str) -> StoreResult<JobId> {
    text.parse().map_err(broken)
}

pub(crate) fn name<T>(parsed: Result<T, InvalidName>) -> StoreResult<T> {
    parsed.map_err(broken)
}

pub(crate) fn broken(error: impl std::fmt::Display) -> StoreError {
    StoreError::Broken(error.to_string())
}

pub(crate) fn to_json(value: &impl Serialize) -> StoreResult<String> {
    serde_json::to_string(value).map_err(broken)
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(broken)
}

pub(crate) fn from_maybe_json<T: serde::de::DeserializeOwned>(
    text: Option<String>,
) -> StoreResult<Option<T>> {
    text.map(|text| from_json(&text)).transpose()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
