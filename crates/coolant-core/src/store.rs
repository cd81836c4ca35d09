//! The store: the truth about jobs, behind one small, batch-first interface.
//!
//! A store decides nothing. It makes what `lifecycle` decides atomic, and keeps it. Every call takes many
//! items and answers each in its place; one bad item spoils no other.
//!
//! What every store holds to (the conformance suite checks it):
//! - what a call acknowledged survives a crash of the process and of the store;
//! - a call that returns [`StoreError`] may or may not have happened; repeating it is safe;
//! - two claims never get the same job, however they overlap;
//! - a change is decided from the job as it is, and saved only if the job is still so;
//! - time is the store's own, and never goes backwards by more than the machine's clock is corrected.

mod dlq;
mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::dlq::{DlqGroup, Redrive, RedriveState, Skipped};
pub use self::stats::{Counter, Saved, Stats};
use crate::failure::FailureClass;
use crate::job::{Attempt, Counters, Job, JobId, JobRecord, JobSpec, JobState, Lease, Status, Step, Wait};
use crate::ledger::{LedgerEntry, LedgerStore};
use crate::lifecycle::{Answer, Event, Refusal};
use crate::lock::LockStore;
use crate::money::UsageTotals;
use crate::names::{IdempotencyKey, JobType, Queue, Tenant};
use crate::process::{ProcessId, ProcessStore};
use crate::retention::Retention;
use crate::schedule::ScheduleStore;
use crate::time::Timestamp;
use crate::upstream::UpstreamStore;
use crate::view::Phase;

/// Why a store did not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or is too busy at the moment; the same call may pass later.
    #[error("the store is not available")]
    Unavailable(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// It has no room left.
    #[error("the store is full")]
    Full(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// Its schema is not the one this program needs.
    #[error("the store is not migrated: {0}")]
    NotMigrated(String),
    /// It holds what cannot be there, or refused what must be allowed: a fault to report.
    #[error("the store is broken: {0}")]
    Broken(String),
}

impl StoreError {
    /// Whether the same call may pass later without anybody doing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// What a store call gives.
pub type StoreResult<T> = Result<T, StoreError>;

/// When a new job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At once.
    #[default]
    Now,
    /// Not before that instant.
    At(Timestamp),
    /// That long after the store took it.
    After(Duration),
}

/// What a submit does that finds its key on a failed job whose cooldown is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfFailed {
    /// Answers with the failed job.
    #[default]
    Return,
    /// Reopens it: once, for however many callers.
    Retry,
}

/// A job to be submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its name, if it is new.
    pub id: JobId,
    /// What is asked for.
    pub spec: Arc<JobSpec>,
    /// What the handler gets; 1 MiB of JSON at most.
    pub payload: Value,
    /// When it may start.
    pub start: Start,
    /// What to do if its key failed before.
    pub if_failed: IfFailed,
}

impl NewJob {
    /// The job as it is at its first instant.
    #[must_use]
    pub fn first(&self, now: Timestamp) -> Job {
        let visible_at = match self.start {
            Start::Now => now,
            Start::At(at) => at.max(now),
            Start::After(delay) => now.plus(delay),
        };
        Job {
            id: self.id,
            spec: Arc::clone(&self.spec),
            state: JobState::Pending { visible_at, wait: Wait::Start },
            counters: Counters::default(),
            last_error: None,
            deferred_since: None,
            last_settled: None,
            progress: None,
            usage: UsageTotals::default(),
            version: 1,
            created_at: now,
            updated_at: now,
            started_at: None,
            finished_at: None,
        }
    }
}

/// What became of a submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmitOutcome {
    /// A new job.
    Created,
    /// The key has its job already.
    Existing,
    /// The key's job had failed, and this submit reopened it.
    Reopened,
    /// The key has its job, with other parameters; nothing changed.
    Conflict,
}

/// A submit's answer: the job of its key, and how that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// What became of it.
    pub outcome: SubmitOutcome,
    /// The key's job.
    pub record: JobRecord,
}

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRequest {
    /// Its label.
    pub worker: String,
    /// From these queues.
    pub queues: Vec<Queue>,
    /// Of these types; any if empty.
    pub job_types: Vec<JobType>,
    /// This many at most, 1 to 1000.
    pub max: u32,
    /// For so long at first; each job's own lease if `None`.
    pub lease: Option<Duration>,
    /// The process that asks, if its death can be seen: then its leases end with it.
    pub process: Option<ProcessId>,
}

/// A job and the right to run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The job.
    pub record: JobRecord,
    /// The right.
    pub lease: Lease,
    /// What earlier attempts finished, by name.
    pub steps: BTreeMap<String, Value>,
}

/// Who did something out of the ordinary, for the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When; set by the store.
    pub at: Timestamp,
    /// Who: a key's name, or `local` on a server without keys.
    pub actor: String,
    /// What: `job.retry.forced`.
    pub action: String,
    /// To what: a job's id.
    pub target: String,
    /// Why, as they said.
    pub reason: String,
}

/// Something that happens to one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobChange {
    /// Which.
    pub job_id: JobId,
    /// What.
    pub event: Event,
    /// Written with the change, if it is made.
    pub audit: Option<AuditEntry>,
}

impl JobChange {
    /// A change that needs no audit.
    #[must_use]
    pub const fn new(job_id: JobId, event: Event) -> Self {
        Self { job_id, event, audit: None }
    }
}

/// A change that was made, or was so already.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The job after it.
    pub job: Job,
    /// What to tell the caller.
    pub answer: Answer,
}

/// Which jobs a listing gives. Everything that is set has to hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// With this status.
    pub status: Option<Status>,
    /// In this phase.
    pub phase: Option<Phase>,
    /// Of this type.
    pub job_type: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// With this label and value.
    pub tag: Option<(String, String)>,
    /// Whose last error has this code.
    pub error_code: Option<String>,
    /// With this key.
    pub idempotency_key: Option<String>,
    /// Submitted at or after.
    pub created_after: Option<Timestamp>,
    /// Submitted before.
    pub created_before: Option<Timestamp>,
}

/// A page of a listing: newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// This many at most, 1 to 1000.
    pub limit: u32,
    /// Older than this job.
    pub before: Option<JobId>,
}

/// Keeps jobs, schedules, leaky locks, processes and the ledger. See the module for what every store holds to.
#[async_trait]
pub trait Store: ScheduleStore + LockStore + ProcessStore + LedgerStore + UpstreamStore {
    /// The store's time.
    async fn now(&self) -> StoreResult<Timestamp>;

    /// Whether it answers and has the schema this program needs.
    async fn ready(&self) -> StoreResult<()>;

    /// Takes jobs. Within a tenant one key is one job, whatever its status, also within one call.
    ///
    /// A job whose id is there already is the same submit come again after a lost answer, and is answered
    /// `Created` as the first time. [`IfFailed::Retry`] reopens a failed job, never a cancelled one.
    /// `Existing` counts as [`Counter::Duplicates`] and `Conflict` as [`Counter::Conflicts`], in the queue
    /// of the key's job. What a cooldown refuses, here or in [`Store::apply`], counts as
    /// [`Counter::BlockedStarts`], and what it would have cost as [`Counter::SavedByCooldowns`].
    async fn submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>>;

    /// Gives jobs to a worker, out of those whose instant has come. A job whose lease ran out is one of them;
    /// its instant is the lease's end. Where many jobs run, one whose lease was ended before its time may be
    /// found a quarter of a second later.
    ///
    /// Tenants take turns (`turns::Turns`), and each tenant's jobs go by `turns::rank`, equal ones by id:
    /// a tenant that has none left passes its turn on, and one alone gets them all. The turns are those of
    /// all processes, except that claims of several processes at the same moment do not know of each other:
    /// each may give the same tenant its turn. While more tenants have jobs waiting than a store looks at in
    /// one piece, 64 at least, each process may deal turns in the order of their names instead, going on
    /// where it ended.
    ///
    /// A job that the claim finds to have ended (`Answer::Ended`) is saved so and not given out; fewer than
    /// `max` may come then.
    ///
    /// A job is passed over while another one of its tenant holds its lock key (`lifecycle::holds_lock`),
    /// also one given out by the same call.
    async fn claim(&self, request: ClaimRequest) -> StoreResult<Vec<Claimed>>;

    /// Makes changes, each decided by `lifecycle::on`. Changes of one job are made in the order given.
    ///
    /// With a change go, in one transaction: its attempt's row, its step, its result, one ledger row for
    /// each paid call, its audit entry. `Answer::Already` writes nothing. A step that the same attempt saved
    /// before is a repetition: answered `Held`, nothing written or booked again; one of an earlier attempt
    /// is replaced, and its calls are wasted: they are marked so, and what they cost is added to the job's waste.
    /// A beat that another job of its lock key bars (`lifecycle::bars`) is refused as
    /// `LeaseLost`.
    ///
    /// A beat waits for no other transaction: one whose job is held at this moment is refused as `Busy`, so
    /// that it holds up no other lease. Any other change waits for a while.
    async fn apply(&self, changes: Vec<JobChange>) -> StoreResult<Vec<Result<Applied, Refusal>>>;

    /// Ends what time has ended (`Event::Sweep`), and what has waited too long for an upstream or a budget
    /// (`Event::Blocked`): this many jobs at most. Gives how many it changed.
    async fn sweep(&self, limit: u32) -> StoreResult<u32>;

    /// Forgets what was kept long enough (`Retention::is_over`): of each kind this many at most. Gives how
    /// many jobs and paid calls those were. A job goes with its attempts, steps and result, its key is free
    /// again; its paid calls stay until their own time is over.
    async fn forget(&self, keep: &Retention, limit: u32) -> StoreResult<u64>;

    /// Jobs by id, in the order asked.
    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Option<JobRecord>>>;

    /// The job of a key.
    async fn by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> StoreResult<Option<JobRecord>>;

    /// A page of jobs, newest first: by id, descending.
    async fn list(&self, filter: &JobFilter, page: Page) -> StoreResult<Vec<JobRecord>>;

    /// Those of these jobs that something outside them keeps from starting although their instant has come: an
    /// upstream that they name is closed or has spent its budget, their tenant has (and they name an upstream),
    /// or another job holds their lock key. [`Store::list`] filters phases by the same rule.
    async fn blocked(&self, ids: &[JobId]) -> StoreResult<BTreeSet<JobId>>;

    /// Every attempt of a job, oldest first.
    async fn attempts(&self, job_id: JobId) -> StoreResult<Vec<Attempt>>;

    /// The finished steps of a job without their outputs, oldest first.
    async fn steps(&self, job_id: JobId) -> StoreResult<Vec<Step>>;

    /// One step with its output.
    async fn step(&self, job_id: JobId, name: &str) -> StoreResult<Option<Step>>;

    /// The paid calls of a job, oldest first.
    async fn ledger(&self, job_id: JobId) -> StoreResult<Vec<LedgerEntry>>;

    /// How many pending jobs of its queue whose instant has come go before this one at most, as tenants take
    /// turns (`turns::jobs_ahead`); counted to 10 000. 0 if it is not pending.
    async fn ahead_of(&self, job: &Job) -> StoreResult<i64>;

    /// The metrics of one queue or of all.
    async fn stats(&self, queue: Option<&Queue>, window: Duration) -> StoreResult<Stats>;

    /// Adds to counters of a queue.
    async fn count(&self, counts: Vec<(Counter, Queue, i64)>) -> StoreResult<()>;

    /// The dead-letter queue by what failed alike (`view::without_particulars` of the message), most first,
    /// 500 groups at most. Discarded jobs are no longer in it.
    async fn dlq_groups(&self, filter: &JobFilter) -> StoreResult<Vec<DlqGroup>>;

    /// Those of these lock keys that a pending or running job has, each once, as (tenant, lock key).
    async fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> StoreResult<Vec<(Tenant, String)>>;

    /// Saves a redrive if its version is still the one it was read with (0: it is new). It is kept with a
    /// version one higher.
    async fn save_redrive(&self, redrive: Redrive) -> StoreResult<bool>;

    /// One redrive.
    async fn redrive(&self, id: JobId) -> StoreResult<Option<Redrive>>;

    /// Redrives that are running.
    async fn running_redrives(&self) -> StoreResult<Vec<Redrive>>;

    /// Writes into the audit trail what is no change of a job. The store sets the time.
    async fn write_audit(&self, entry: AuditEntry) -> StoreResult<()>;

    /// The newest entries of the audit trail, this many at most.
    async fn audit(&self, limit: u32) -> StoreResult<Vec<AuditEntry>>;

    /// When a worker process last asked for jobs of that queue and type, if ever. One that takes any type
    /// asks for each. To a second or so, since not every claim need write it down.
    async fn last_claim_asked(&self, queue: &Queue, job_type: &JobType) -> StoreResult<Option<Timestamp>>;
}

/// The class of the newest failure, for filters and views.
#[must_use]
pub fn last_class(job: &Job) -> Option<FailureClass> {
    job.last_error.as_ref().map(|failure| failure.class)
}
