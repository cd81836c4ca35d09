//! Submit: checks what is asked for, once, and hands it to the store as a job.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::fingerprint::differing_fields;
use coolant_core::job::{JobSpec, Policy};
use coolant_core::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{IfFailed, NewJob, Start, SubmitOutcome, Submitted};
use coolant_core::time::Timestamp;
use serde_json::Value;

use super::{Caller, Engine, EngineError, EngineResult, JobAt, new_id};
use crate::size::{self, TooLarge};

/// Most jobs in one batch.
pub const MAX_BATCH: usize = 1000;
/// Most labels of a job.
pub const MAX_TAGS: usize = 64;
/// Most paid services of a job.
pub const MAX_UPSTREAMS: usize = 16;
/// Longest of everything that has no narrower limit of its own.
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// A job as somebody asks for it; `None` is the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SubmitRequest {
    /// Which handler runs it.
    pub job_type: String,
    /// What the handler gets; an empty object if `None`.
    pub payload: Option<Value>,
    /// Its line.
    pub queue: Option<String>,
    /// The caller's name for this piece of work.
    pub idempotency_key: Option<String>,
    /// On whose behalf.
    pub tenant: Option<String>,
    /// Jobs with this name run one at a time.
    pub lock_key: Option<String>,
    /// Paid services it uses.
    pub upstreams: Vec<String>,
    /// -10 to 10.
    pub priority: Option<i64>,
    /// Not before that instant.
    pub run_at: Option<Timestamp>,
    /// Not before that long from now; not together with `run_at`.
    pub delay_seconds: Option<f64>,
    /// 1 to 100.
    pub max_attempts: Option<i64>,
    /// Waits after failures.
    pub retry_delays_seconds: Option<Vec<f64>>,
    /// Wait after the last failure.
    pub cooldown_seconds: Option<f64>,
    /// 0.5 to 3600.
    pub lease_seconds: Option<f64>,
    /// Longest run of one attempt.
    pub timeout_seconds: Option<f64>,
    /// Longest wait for a closed upstream.
    pub max_wait_seconds: Option<f64>,
    /// Lost workers before the dead-letter queue, 1 to 100.
    pub max_lost: Option<i64>,
    /// Releases before the dead-letter queue, 1 to 10 000.
    pub max_releases: Option<i64>,
    /// After this it is no longer worth starting.
    pub expires_at: Option<Timestamp>,
    /// Most paid calls it may make.
    pub max_paid_calls: Option<i64>,
    /// Labels.
    pub tags: BTreeMap<String, String>,
    /// What to do if its key failed before.
    pub if_failed: IfFailed,
    /// W3C trace id; a new one if `None`.
    pub trace_id: Option<String>,
}

/// A submit's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmitAnswer {
    /// What became of it: never `Conflict`.
    pub outcome: SubmitOutcome,
    /// The key's job.
    pub job: JobAt,
}

impl Engine {
    /// Takes one job.
    ///
    /// # Errors
    /// What is wrong with it, or that the store did not answer; then repeating it is safe.
    pub async fn submit(&self, caller: &Caller, request: SubmitRequest) -> EngineResult<SubmitAnswer> {
        let mut answers = self.submit_batch(caller, vec![request]).await?;
        answers.pop().unwrap_or_else(|| Err(unanswered()))
    }

    /// Takes many jobs and answers each in its place; one bad item spoils no other.
    ///
    /// # Errors
    /// That the store did not answer, or there are more than [`MAX_BATCH`]; then none is answered.
    pub async fn submit_batch(
        &self,
        caller: &Caller,
        requests: Vec<SubmitRequest>,
    ) -> EngineResult<Vec<EngineResult<SubmitAnswer>>> {
        if requests.len() > MAX_BATCH {
            return Err(EngineError::field("jobs", format!("takes at most {MAX_BATCH} items")));
        }
        let checked: Vec<_> = requests.into_iter().map(|request| self.checked(caller, request)).collect();
        let jobs: Vec<NewJob> = checked.iter().filter_map(|job| job.as_ref().ok().cloned()).collect();
        let mut submitted = Vec::new();
        if !jobs.is_empty() {
            submitted = self.parts.store.submit(jobs).await?;
            self.parts.bell.ring();
        }
        let now = self.parts.store.now().await?;
        let mut submitted = submitted.into_iter();
        let mut answers: Vec<_> = checked
            .into_iter()
            .map(|job| job.and_then(|job| answer(&job, submitted.next().ok_or_else(unanswered)?, now)))
            .collect();
        // The jobs are taken: that nobody knows what holds them up is no error.
        let jobs = answers.iter_mut().flatten().map(|answer: &mut SubmitAnswer| &mut answer.job);
        let _ = self.mark_blocked(jobs).await;
        self.count_replayed(answers.iter().flatten()).await;
        Ok(answers)
    }

    /// Takes a job that was checked before.
    pub(super) async fn submit_checked(&self, job: NewJob) -> EngineResult<SubmitAnswer> {
        let submitted = self.parts.store.submit(vec![job.clone()]).await?.pop();
        self.parts.bell.ring();
        let now = self.parts.store.now().await?;
        let answer = answer(&job, submitted.ok_or_else(unanswered)?, now)?;
        self.count_replayed(std::iter::once(&answer)).await;
        Ok(answer)
    }

    /// The job that is asked for, if everything about it is within bounds.
    pub(super) fn checked(&self, caller: &Caller, request: SubmitRequest) -> EngineResult<NewJob> {
        let tenant = tenant_of(caller, request.tenant.as_deref())?;
        new_job(tenant, request, |job_type, payload| self.parts.payload_checks.check(job_type, payload))
    }
}

/// The job that is asked for, if everything about it is within bounds and `check` has nothing against its
/// payload. For every door that jobs come in by.
pub(crate) fn new_job(
    tenant: Tenant,
    request: SubmitRequest,
    check: impl FnOnce(&JobType, &Value) -> EngineResult<()>,
) -> EngineResult<NewJob> {
    let job_type = JobType::parse(request.job_type.as_str())?;
    let payload = request.payload.clone().unwrap_or_else(|| Value::Object(serde_json::Map::default()));
    check_size("payload", &payload)?;
    check(&job_type, &payload)?;
    let spec = JobSpec {
        job_type,
        queue: request.queue.as_deref().map(Queue::parse).transpose()?.unwrap_or_default(),
        tenant,
        idempotency_key: request.idempotency_key.as_deref().map(IdempotencyKey::parse).transpose()?,
        lock_key: request.lock_key.as_deref().map(LockKey::parse).transpose()?,
        upstreams: upstreams(&request.upstreams)?,
        priority: whole("priority", request.priority, -10..=10)?.unwrap_or(0),
        trace_id: request.trace_id.clone().unwrap_or_else(new_trace_id),
        expires_at: request.expires_at,
        policy: policy(&request)?,
        tags: tags(request.tags)?,
    };
    let delay = seconds("delay_seconds", request.delay_seconds, Duration::ZERO..=YEAR)?;
    let start = match (request.run_at, delay) {
        (Some(_), Some(_)) => {
            return Err(EngineError::field("delay_seconds", "must not be given together with `run_at`"));
        }
        (Some(at), None) => Start::At(at),
        (None, Some(delay)) => Start::After(delay),
        (None, None) => Start::Now,
    };
    Ok(NewJob { id: new_id(), spec: Arc::new(spec), payload, start, if_failed: request.if_failed })
}

/// The tenant asked for, if the caller may act for it. Somebody else's is not even admitted to exist.
pub(super) fn tenant_of(caller: &Caller, asked: Option<&str>) -> EngineResult<Tenant> {
    let Some(asked) = asked else { return Ok(caller.own_tenant()) };
    let tenant = Tenant::parse(asked)?;
    if caller.sees(&tenant) {
        return Ok(tenant);
    }
    Err(EngineError::field("tenant", "is not the tenant of this key"))
}

fn answer(asked: &NewJob, submitted: Submitted, now: Timestamp) -> EngineResult<SubmitAnswer> {
    let Submitted { outcome, record } = submitted;
    if outcome == SubmitOutcome::Conflict {
        let mut fields = differing_fields(&record.payload, &asked.payload);
        if record.job.spec.job_type != asked.spec.job_type {
            fields.insert(0, "job_type".into());
        }
        return Err(EngineError::KeyReused { job_id: record.job.id, fields });
    }
    Ok(SubmitAnswer { outcome, job: JobAt { record, now, blocked: false } })
}

fn unanswered() -> EngineError {
    coolant_core::store::StoreError::Broken("a submit was left without an answer".into()).into()
}

fn policy(request: &SubmitRequest) -> EngineResult<Policy> {
    let default = Policy::default();
    let month = Duration::ZERO..=MONTH;
    let retry_delays = match &request.retry_delays_seconds {
        None => default.retry_delays,
        Some(delays) if delays.len() > 100 => {
            return Err(EngineError::field("retry_delays_seconds", "takes at most 100 items"));
        }
        Some(delays) => delays
            .iter()
            .enumerate()
            .filter_map(|(i, delay)| {
                seconds(&format!("retry_delays_seconds[{i}]"), Some(*delay), month.clone()).transpose()
            })
            .collect::<EngineResult<_>>()?,
    };
    Ok(Policy {
        max_attempts: whole("max_attempts", request.max_attempts, 1..=100)?.unwrap_or(default.max_attempts),
        retry_delays,
        cooldown: seconds("cooldown_seconds", request.cooldown_seconds, month.clone())?
            .unwrap_or(default.cooldown),
        lease: lease(request.lease_seconds)?.unwrap_or(default.lease),
        timeout: seconds("timeout_seconds", request.timeout_seconds, Duration::from_millis(100)..=MONTH)?
            .unwrap_or(default.timeout),
        max_wait: seconds("max_wait_seconds", request.max_wait_seconds, month)?.unwrap_or(default.max_wait),
        max_lost: whole("max_lost", request.max_lost, 1..=100)?.unwrap_or(default.max_lost),
        max_releases: whole("max_releases", request.max_releases, 1..=10_000)?
            .unwrap_or(default.max_releases),
        max_paid_calls: whole("max_paid_calls", request.max_paid_calls, 0..=1_000_000)?,
    })
}

fn upstreams(names: &[String]) -> EngineResult<Vec<Upstream>> {
    if names.len() > MAX_UPSTREAMS {
        return Err(EngineError::field("upstreams", format!("takes at most {MAX_UPSTREAMS} items")));
    }
    let mut upstreams = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        let name =
            Upstream::parse(name.as_str()).map_err(|error| renamed(format!("upstreams[{i}]"), error))?;
        if !upstreams.contains(&name) {
            upstreams.push(name);
        }
    }
    Ok(upstreams)
}

fn tags(tags: BTreeMap<String, String>) -> EngineResult<BTreeMap<String, String>> {
    if tags.len() > MAX_TAGS {
        return Err(EngineError::field("tags", format!("takes at most {MAX_TAGS} labels")));
    }
    for (name, value) in &tags {
        text("tags", name, 1..=128)?;
        text(&format!("tags.{name}"), value, 0..=512)?;
    }
    Ok(tags)
}

fn renamed(field: String, error: coolant_core::names::InvalidName) -> EngineError {
    match EngineError::from(error) {
        EngineError::InvalidField { reason, .. } => EngineError::InvalidField { field, reason },
        other => other,
    }
}

/// A lease that is asked for.
pub(super) fn lease(asked: Option<f64>) -> EngineResult<Option<Duration>> {
    seconds("lease_seconds", asked, Policy::LEASE_RANGE)
}

/// A text of that many bytes, without control characters: such a text breaks logs and databases.
pub(super) fn text(field: &str, text: &str, bytes: RangeInclusive<usize>) -> EngineResult<()> {
    if !bytes.contains(&text.len()) {
        let (min, max) = bytes.into_inner();
        return Err(EngineError::field(field, format!("takes {min} to {max} bytes")));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => {
            Err(EngineError::field(field, format!("holds a control character (U+{:04X})", u32::from(c))))
        }
        None => Ok(()),
    }
}

/// A span within bounds.
pub(super) fn seconds(
    field: &str,
    seconds: Option<f64>,
    range: RangeInclusive<Duration>,
) -> EngineResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if range.contains(&span) => Ok(Some(span)),
        _ => {
            let (min, max) = (range.start().as_secs_f64(), range.end().as_secs_f64());
            Err(EngineError::field(field, format!("takes {min} to {max} seconds")))
        }
    }
}

/// A whole number within bounds.
pub(super) fn whole<T: TryFrom<i64>>(
    field: &str,
    number: Option<i64>,
    range: RangeInclusive<i64>,
) -> EngineResult<Option<T>> {
    let Some(number) = number else { return Ok(None) };
    if range.contains(&number)
        && let Ok(number) = T::try_from(number)
    {
        return Ok(Some(number));
    }
    let (min, max) = range.into_inner();
    Err(EngineError::field(field, format!("takes {min} to {max}")))
}

/// Refuses a JSON value that is larger than the store keeps.
pub(super) fn check_size(what: &str, value: &Value) -> EngineResult<()> {
    size::check(value).map_err(|TooLarge { bytes }| EngineError::TooLarge {
        what: what.into(),
        bytes,
        max: size::MAX,
    })
}

/// A new trace: 32 hex digits, never all zero.
#[must_use]
pub fn new_trace_id() -> String {
    format!("{:032x}", rand::random::<u128>().max(1))
}
