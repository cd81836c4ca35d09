//! Stores with one deliberate bug each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coolant_core::job::{Attempt, Job, JobId, JobRecord, JobSpec, JobState, LeaseToken, Step, Wait};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::model::{ManualClock, ModelStore};
use coolant_core::names::{IdempotencyKey, JobType, Queue, Tenant, Upstream};
use coolant_core::retention::Retention;
use coolant_core::store::*;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Limits, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement, Room, SettledPermit,
    Spending, TenantNow, UpstreamNow, UpstreamSettings, UpstreamStore, Verdict,
};

use super::calls::nobody;
use super::forward::forward_parts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    HandOutTwice,
    AcceptStaleTokens,
    ClaimEarly,
    ForgetSteps,
    LoseSubmits,
    IgnoreKeys,
    IgnoreLockKeys,
    OneAttemptMore,
    ForgetLostJobs,
    IgnoreCooldowns,
    BookStepsTwice,
    UndoSuccess,
    IgnoreClosures,
    ManyProbes,
    IgnoreLimits,
    KeepReservations,
    IgnoreRoom,
    IgnoreEstimates,
    WasteNothing,
}

pub struct Mutant {
    bug: Bug,
    inner: ModelStore,
    clock: Arc<ManualClock>,
    /// Steps ahead of the clock while a claim is made early.
    ahead: Arc<Mutex<Duration>>,
    last: Mutex<Option<Claimed>>,
}

impl Mutant {
    pub fn new(bug: Bug, clock: &Arc<ManualClock>) -> Self {
        let ahead = Arc::new(Mutex::new(Duration::ZERO));
        let (of_test, of_claim) = (Arc::clone(clock), Arc::clone(&ahead));
        let inner = ModelStore::new(Arc::new(move || of_test.now().plus(*of_claim.lock().unwrap())));
        Self { bug, inner, clock: Arc::clone(clock), ahead, last: Mutex::default() }
    }

    fn changed_spec(&self, spec: &JobSpec) -> JobSpec {
        let mut spec = spec.clone();
        match self.bug {
            Bug::IgnoreKeys => spec.idempotency_key = None,
            Bug::IgnoreLockKeys => spec.lock_key = None,
            Bug::OneAttemptMore => spec.policy.max_attempts += 1,
            _ => {}
        }
        spec
    }

    async fn changed_event(&self, job_id: JobId, mut event: Event) -> StoreResult<Event> {
        if self.bug == Bug::IgnoreRoom {
            event.usage_mut().into_iter().flatten().for_each(|call| call.room = Room::default());
        }
        let newest = match &self.inner.jobs(&[job_id]).await?[0] {
            Some(record) => LeaseToken(record.job.counters.claims),
            None => return Ok(event),
        };
        Ok(match (self.bug, event) {
            (Bug::AcceptStaleTokens, Event::Succeed { result, usage, .. }) => {
                Event::Succeed { token: newest, result, usage }
            }
            (Bug::AcceptStaleTokens, Event::Renew { progress, .. }) => {
                Event::Renew { token: newest, progress }
            }
            (Bug::IgnoreCooldowns, Event::Reopen { .. }) => Event::Reopen { force: true },
            (_, event) => event,
        })
    }
}

impl Mutant {
    /// Opens what is closed, or what only a probe may try.
    async fn open_upstreams(&self) -> StoreResult<()> {
        let now = self.clock.now();
        for upstream in self.inner.upstreams(None).await? {
            let Some(closure) = upstream.breaker.closure() else { continue };
            let opens = match self.bug {
                Bug::IgnoreClosures => true,
                Bug::ManyProbes => closure.until <= now,
                _ => false,
            };
            if opens {
                self.inner.control_upstream(&upstream.name, Control::Open, nobody()).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl UpstreamStore for Mutant {
    async fn set_upstream(&self, name: &Upstream, settings: UpstreamSettings) -> StoreResult<UpstreamNow> {
        let limits = if self.bug == Bug::IgnoreLimits { Limits::default() } else { settings.limits };
        self.inner.set_upstream(name, UpstreamSettings { limits, ..settings }).await
    }

    async fn acquire_permits(
        &self,
        requests: Vec<PermitRequest>,
    ) -> StoreResult<Vec<Result<Permit, NoPermit>>> {
        self.open_upstreams().await?;
        let changed = |request: PermitRequest| match self.bug {
            Bug::KeepReservations => PermitRequest { job: None, ..request },
            Bug::IgnoreEstimates => PermitRequest { tokens: 0, ..request },
            _ => request,
        };
        self.inner.acquire_permits(requests.into_iter().map(changed).collect()).await
    }

    async fn upstreams(&self, names: Option<&[Upstream]>) -> StoreResult<Vec<UpstreamNow>> {
        self.inner.upstreams(names).await
    }

    async fn control_upstream(
        &self,
        name: &Upstream,
        control: Control,
        audit: AuditEntry,
    ) -> StoreResult<UpstreamNow> {
        self.inner.control_upstream(name, control, audit).await
    }

    async fn set_tenant(&self, tenant: &Tenant, limits: Limits) -> StoreResult<TenantNow> {
        self.inner.set_tenant(tenant, limits).await
    }

    async fn tenant(&self, tenant: &Tenant) -> StoreResult<Option<TenantNow>> {
        self.inner.tenant(tenant).await
    }

    async fn permit(&self, id: PermitId) -> StoreResult<Option<Spending>> {
        self.inner.permit(id).await
    }

    async fn settle_permits(
        &self,
        settlements: Vec<PermitSettlement>,
    ) -> StoreResult<Vec<Option<SettledPermit>>> {
        let deaf = |settlement: PermitSettlement| match (self.bug, settlement.verdict) {
            (Bug::IgnoreRoom, Verdict::Ok { .. }) => {
                PermitSettlement { verdict: Verdict::Ok { room: Room::default() }, ..settlement }
            }
            (_, verdict) => PermitSettlement { verdict, ..settlement },
        };
        self.inner.settle_permits(settlements.into_iter().map(deaf).collect()).await
    }

    async fn breakers_stir(&self) -> StoreResult<bool> {
        self.inner.breakers_stir().await
    }
}

fn is_lost(record: &JobRecord, now: Timestamp) -> bool {
    matches!(&record.job.state, JobState::Running { lease, .. } if lease.until <= now)
}

#[async_trait]
impl Store for Mutant {
    async fn submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        if self.bug == Bug::LoseSubmits && jobs[0].spec.idempotency_key.is_none() {
            let submitted = |job: &NewJob| {
                let record = JobRecord {
                    job: job.first(self.clock.now()),
                    payload: job.payload.clone(),
                    result: None,
                };
                Submitted { outcome: SubmitOutcome::Created, record }
            };
            return Ok(jobs.iter().map(submitted).collect());
        }
        let change = |job: NewJob| NewJob { spec: Arc::new(self.changed_spec(&job.spec)), ..job };
        self.inner.submit(jobs.into_iter().map(change).collect()).await
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Vec<Claimed>> {
        self.open_upstreams().await?;
        if self.bug == Bug::ClaimEarly {
            *self.ahead.lock().unwrap() = Duration::from_secs(4);
        }
        let lost = match self.bug {
            Bug::ForgetLostJobs => {
                self.list(&JobFilter::default(), Page { limit: 1000, before: None }).await?
            }
            _ => Vec::new(),
        };
        let now = self.clock.now();
        if lost.iter().any(|record| is_lost(record, now)) {
            return Ok(Vec::new());
        }
        let mut claimed = self.inner.claim(request).await?;
        *self.ahead.lock().unwrap() = Duration::ZERO;
        let mut last = self.last.lock().unwrap();
        if self.bug == Bug::HandOutTwice && claimed.is_empty() {
            claimed.extend(last.take());
        }
        *last = claimed.last().cloned();
        if self.bug == Bug::ForgetSteps {
            claimed.iter_mut().for_each(|claimed| claimed.steps.clear());
        }
        Ok(claimed)
    }

    async fn apply(&self, changes: Vec<JobChange>) -> StoreResult<Vec<Result<Applied, Refusal>>> {
        let mut answers = Vec::new();
        for mut change in changes {
            change.event = self.changed_event(change.job_id, change.event).await?;
            answers.extend(self.inner.apply(vec![change]).await?);
        }
        Ok(answers)
    }

    async fn sweep(&self, limit: u32) -> StoreResult<u32> {
        match self.bug {
            Bug::ForgetLostJobs => Ok(0),
            _ => self.inner.sweep(limit).await,
        }
    }

    async fn forget(&self, keep: &Retention, limit: u32) -> StoreResult<u64> {
        self.inner.forget(keep, limit).await
    }

    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Option<JobRecord>>> {
        let mut records = self.inner.jobs(ids).await?;
        for record in records.iter_mut().flatten() {
            if self.bug == Bug::UndoSuccess
                && let JobState::Succeeded { at } = record.job.state
            {
                record.job.state = JobState::Pending { visible_at: at, wait: Wait::Start };
            }
        }
        Ok(records)
    }

    async fn ledger(&self, job_id: JobId) -> StoreResult<Vec<LedgerEntry>> {
        let mut ledger = self.inner.ledger(job_id).await?;
        if self.bug == Bug::WasteNothing {
            ledger.iter_mut().for_each(|entry| entry.wasted = false);
        }
        if self.bug == Bug::BookStepsTwice {
            ledger.extend(ledger.clone().into_iter().filter(|entry| entry.step.is_some()));
        }
        Ok(ledger)
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Store::now(&self.inner).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.inner.ready().await
    }

    async fn by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> StoreResult<Option<JobRecord>> {
        self.inner.by_key(tenant, key).await
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> StoreResult<Vec<JobRecord>> {
        self.inner.list(filter, page).await
    }

    async fn blocked(&self, ids: &[JobId]) -> StoreResult<BTreeSet<JobId>> {
        self.inner.blocked(ids).await
    }

    async fn attempts(&self, job_id: JobId) -> StoreResult<Vec<Attempt>> {
        self.inner.attempts(job_id).await
    }

    async fn steps(&self, job_id: JobId) -> StoreResult<Vec<Step>> {
        self.inner.steps(job_id).await
    }

    async fn step(&self, job_id: JobId, name: &str) -> StoreResult<Option<Step>> {
        self.inner.step(job_id, name).await
    }

    async fn ahead_of(&self, job: &Job) -> StoreResult<i64> {
        self.inner.ahead_of(job).await
    }

    async fn stats(&self, queue: Option<&Queue>, window: Duration) -> StoreResult<Stats> {
        self.inner.stats(queue, window).await
    }

    async fn count(&self, counts: Vec<(Counter, Queue, i64)>) -> StoreResult<()> {
        self.inner.count(counts).await
    }

    async fn dlq_groups(&self, filter: &JobFilter) -> StoreResult<Vec<DlqGroup>> {
        self.inner.dlq_groups(filter).await
    }

    async fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> StoreResult<Vec<(Tenant, String)>> {
        self.inner.live_lock_keys(keys).await
    }

    async fn save_redrive(&self, redrive: Redrive) -> StoreResult<bool> {
        self.inner.save_redrive(redrive).await
    }

    async fn redrive(&self, id: JobId) -> StoreResult<Option<Redrive>> {
        self.inner.redrive(id).await
    }

    async fn running_redrives(&self) -> StoreResult<Vec<Redrive>> {
        self.inner.running_redrives().await
    }

    async fn write_audit(&self, entry: AuditEntry) -> StoreResult<()> {
        self.inner.write_audit(entry).await
    }

    async fn audit(&self, limit: u32) -> StoreResult<Vec<AuditEntry>> {
        self.inner.audit(limit).await
    }

    async fn last_claim_asked(&self, queue: &Queue, job_type: &JobType) -> StoreResult<Option<Timestamp>> {
        self.inner.last_claim_asked(queue, job_type).await
    }
}

forward_parts!(Mutant, inner);
