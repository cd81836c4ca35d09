//! The model store: every rule of [`Store`] over plain maps. What it answers, every store has to answer.
//!
//! One lock around everything makes each call atomic, and that is the whole trick; there is no IO, and no
//! call ever waits. Nothing survives the process.
//!
//! Elsewhere: what a change does (`lifecycle`), what the calls promise (`store`).

mod ledger;
mod locks;
mod processes;
mod read;
mod schedules;
mod upstreams;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use crate::fingerprint::Fingerprint;
use crate::job::{Attempt, Job, JobId, JobRecord, Step};
use crate::ledger::LedgerEntry;
use crate::lifecycle::Refusal;
use crate::lock::Lock;
use crate::names::{IdempotencyKey, JobType, LockName, Queue, ScheduleName, Tenant};
use crate::process::ProcessId;
use crate::retention::Retention;
use crate::schedule::Schedule;
use crate::store::{
    Applied, AuditEntry, ClaimRequest, Claimed, Counter, DlqGroup, JobChange, JobFilter, NewJob, Page,
    Redrive, RedriveState, Stats, Store, StoreResult, Submitted,
};
use crate::time::Timestamp;
use crate::turns::Rota;

/// A clock as a value.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that a test moves.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at that instant.
    #[must_use]
    pub fn at(start: Timestamp) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(start.as_millis())))
    }

    /// The instant at which it stands.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Moves it on.
    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }

    /// Moves it to an instant, also an earlier one.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::SeqCst);
    }

    /// The clock as a value, for a store.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Clock {
        let clock = Arc::clone(self);
        Arc::new(move || clock.now())
    }
}

/// Keeps jobs in memory, for tests and as the measure of other stores.
pub struct ModelStore {
    clock: Clock,
    state: Mutex<State>,
    /// The processes whose lock is held.
    locked: Arc<Mutex<BTreeSet<ProcessId>>>,
}

impl ModelStore {
    /// An empty store that takes its time from `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), locked: Arc::default() }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock has said so already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStore").field("jobs", &self.state().rows.len()).finish_non_exhaustive()
    }
}

/// All that is kept.
#[derive(Default)]
struct State {
    rows: BTreeMap<JobId, Row>,
    keys: BTreeMap<(Tenant, IdempotencyKey), JobId>,
    counters: BTreeMap<(i64, Counter, Queue), i64>,
    audit: Vec<AuditEntry>,
    redrives: BTreeMap<JobId, Redrive>,
    schedules: BTreeMap<(Tenant, ScheduleName), Schedule>,
    locks: BTreeMap<LockName, Lock>,
    asked: BTreeMap<(Queue, Option<JobType>), Timestamp>,
    processes: BTreeMap<ProcessId, Timestamp>,
    /// Paid calls of no job.
    loose: Vec<(Uuid, Queue, LedgerEntry)>,
    upstreams: upstreams::Upstreams,
    rota: Rota,
}

/// A job and what belongs to it.
struct Row {
    record: JobRecord,
    fingerprint: Fingerprint,
    steps: BTreeMap<String, Step>,
    attempts: BTreeMap<i64, Attempt>,
    ledger: Vec<LedgerEntry>,
    /// Who made each claim, by its token, where that is known.
    claimed_by: BTreeMap<i64, ProcessId>,
}

impl Row {
    const fn job(&self) -> &Job {
        &self.record.job
    }

    fn outputs(&self) -> BTreeMap<String, Value> {
        let output = |step: &Step| step.output.clone().unwrap_or_default();
        self.steps.iter().map(|(name, step)| (name.clone(), output(step))).collect()
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(Self::now(self))
    }

    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        let (now, mut state) = (Self::now(self), self.state());
        Ok(jobs.into_iter().map(|job| state.submit(job, now)).collect())
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Vec<Claimed>> {
        Ok(self.state().claim(&request, Self::now(self)))
    }

    async fn apply(&self, changes: Vec<JobChange>) -> StoreResult<Vec<Result<Applied, Refusal>>> {
        let (now, mut state) = (Self::now(self), self.state());
        Ok(changes.into_iter().map(|change| state.apply(change, now)).collect())
    }

    async fn sweep(&self, limit: u32) -> StoreResult<u32> {
        Ok(self.state().sweep(limit, Self::now(self)))
    }

    async fn forget(&self, keep: &Retention, limit: u32) -> StoreResult<u64> {
        Ok(self.state().forget(keep, limit, Self::now(self)))
    }

    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Option<JobRecord>>> {
        let state = self.state();
        Ok(ids.iter().map(|id| state.rows.get(id).map(|row| row.record.clone())).collect())
    }

    async fn by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> StoreResult<Option<JobRecord>> {
        let state = self.state();
        let id = state.keys.get(&(tenant.clone(), key.clone()));
        Ok(id.and_then(|id| state.rows.get(id)).map(|row| row.record.clone()))
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> StoreResult<Vec<JobRecord>> {
        Ok(self.state().list(filter, page, Self::now(self)))
    }

    async fn blocked(&self, ids: &[JobId]) -> StoreResult<BTreeSet<JobId>> {
        Ok(self.state().blocked(ids, Self::now(self)))
    }

    async fn attempts(&self, job_id: JobId) -> StoreResult<Vec<Attempt>> {
        Ok(self
            .state()
            .rows
            .get(&job_id)
            .map_or_else(Vec::new, |row| row.attempts.values().cloned().collect()))
    }

    async fn steps(&self, job_id: JobId) -> StoreResult<Vec<Step>> {
        Ok(self.state().steps(job_id))
    }

    async fn step(&self, job_id: JobId, name: &str) -> StoreResult<Option<Step>> {
        Ok(self.state().rows.get(&job_id).and_then(|row| row.steps.get(name)).cloned())
    }

    async fn ledger(&self, job_id: JobId) -> StoreResult<Vec<LedgerEntry>> {
        let state = self.state();
        let kept = state.rows.get(&job_id).map_or_else(Vec::new, |row| row.ledger.clone());
        let outlived = state.loose.iter().filter(|(.., entry)| entry.job_id == Some(job_id));
        Ok(kept.into_iter().chain(outlived.map(|(.., entry)| entry.clone())).collect())
    }

    async fn ahead_of(&self, job: &Job) -> StoreResult<i64> {
        Ok(self.state().ahead_of(job, Self::now(self)))
    }

    async fn stats(&self, queue: Option<&Queue>, window: Duration) -> StoreResult<Stats> {
        Ok(self.state().stats(queue, window, Self::now(self)))
    }

    async fn count(&self, counts: Vec<(Counter, Queue, i64)>) -> StoreResult<()> {
        let (now, mut state) = (Self::now(self), self.state());
        counts.into_iter().for_each(|(counter, queue, n)| state.count(counter, queue, n, now));
        Ok(())
    }

    async fn dlq_groups(&self, filter: &JobFilter) -> StoreResult<Vec<DlqGroup>> {
        Ok(self.state().dlq_groups(filter, Self::now(self)))
    }

    async fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> StoreResult<Vec<(Tenant, String)>> {
        Ok(self.state().live_lock_keys(keys))
    }

    async fn save_redrive(&self, redrive: Redrive) -> StoreResult<bool> {
        Ok(self.state().save_redrive(redrive))
    }

    async fn redrive(&self, id: JobId) -> StoreResult<Option<Redrive>> {
        Ok(self.state().redrives.get(&id).cloned())
    }

    async fn running_redrives(&self) -> StoreResult<Vec<Redrive>> {
        let running = |redrive: &&Redrive| redrive.state == RedriveState::Running;
        Ok(self.state().redrives.values().filter(running).cloned().collect())
    }

    async fn write_audit(&self, entry: AuditEntry) -> StoreResult<()> {
        let at = Self::now(self);
        self.state().audit.push(AuditEntry { at, ..entry });
        Ok(())
    }

    async fn audit(&self, limit: u32) -> StoreResult<Vec<AuditEntry>> {
        Ok(self.state().audit.iter().rev().take(limit as usize).cloned().collect())
    }

    async fn last_claim_asked(&self, queue: &Queue, job_type: &JobType) -> StoreResult<Option<Timestamp>> {
        let state = self.state();
        let asked = |job_type| state.asked.get(&(queue.clone(), job_type)).copied();
        // A worker that takes any type asks for this one too.
        Ok(asked(None).max(asked(Some(job_type.clone()))))
    }
}
