//! What the worker's tests share: a store that can be watched and made to fail, and handlers that are held
//! at a point.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coolant::bell::Bell;
use coolant::embedded::{JobHandle, ResultError};
use coolant::worker::{Drained, RunError, Shutdown, Worker, WorkerBuilder};
use coolant::{Context, Coolant, Handler, HandlerError};
use coolant_core::job::{Attempt, Job, JobId, JobRecord, Outcome, Policy, Step};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::model::{ManualClock, ModelStore};
use coolant_core::names::{IdempotencyKey, JobType, Queue, Tenant};
use coolant_core::retention::Retention;
use coolant_core::store::*;
use coolant_core::time::Timestamp;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::forward::{forward_parts, forward_upstreams};

/// Longer than any test should take: a wait that ends here is a failure, never a pass.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(20);

/// A model store that notes its calls and fails when told to.
pub(crate) struct Watched {
    pub(crate) model: ModelStore,
    pub(crate) clock: Arc<ManualClock>,
    calls: watch::Sender<Calls>,
    faults: Mutex<VecDeque<Fault>>,
    /// Claims wait while it is shut.
    claims_open: watch::Sender<bool>,
}

/// What the store was asked, so far.
#[derive(Clone, Default, Debug)]
pub(crate) struct Calls {
    pub(crate) claims: usize,
    /// The kinds of the events of each apply that got through.
    pub(crate) applied: Vec<Vec<&'static str>>,
    /// Calls that were made to fail before they did anything.
    pub(crate) failed: usize,
}

impl Calls {
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.applied.iter().flatten().filter(|seen| **seen == kind).count()
    }
}

/// The next so many calls of that kind fail.
struct Fault {
    kind: &'static str,
    times: usize,
    made: bool,
}

impl Watched {
    pub(crate) fn new() -> Arc<Self> {
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
        Arc::new(Self {
            model: ModelStore::new(clock.reader()),
            clock,
            calls: watch::channel(Calls::default()).0,
            faults: Mutex::default(),
            claims_open: watch::channel(true).0,
        })
    }

    /// The next `times` calls with an event of that kind (or `claim`) are not made, and fail.
    pub(crate) fn fail(&self, kind: &'static str, times: usize) {
        self.faults.lock().unwrap().push_back(Fault { kind, times, made: false });
    }

    /// The next `times` calls of that kind are made, but their answer is lost.
    pub(crate) fn lose_answer(&self, kind: &'static str, times: usize) {
        self.faults.lock().unwrap().push_back(Fault { kind, times, made: true });
    }

    pub(crate) fn mend(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(crate) fn open_claims(&self, open: bool) {
        self.claims_open.send_replace(open);
    }

    pub(crate) fn calls(&self) -> Calls {
        self.calls.borrow().clone()
    }

    /// Waits until the calls so far are such.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Calls) -> bool) {
        let mut calls = self.calls.subscribe();
        tokio::time::timeout(TOO_LONG, calls.wait_for(is_so)).await.expect("it never came").unwrap();
    }

    pub(crate) async fn job(&self, id: JobId) -> Job {
        self.model.jobs(&[id]).await.unwrap().pop().unwrap().unwrap().job
    }

    /// Somebody else's claim.
    pub(crate) async fn steal(&self) -> Claimed {
        let request = ClaimRequest {
            worker: "thief".into(),
            queues: vec![Queue::default()],
            job_types: vec![],
            max: 1,
            lease: None,
            process: None,
        };
        self.model.claim(request).await.unwrap().pop().expect("nothing to steal")
    }

    /// A change that has to be made.
    pub(crate) async fn change(&self, id: JobId, event: Event) {
        self.model.apply(vec![JobChange::new(id, event)]).await.unwrap().pop().unwrap().unwrap();
    }

    fn fault(&self, kinds: &[&'static str]) -> Option<bool> {
        let mut faults = self.faults.lock().unwrap();
        let fault = faults.iter_mut().find(|fault| fault.times > 0 && kinds.contains(&fault.kind))?;
        fault.times -= 1;
        Some(fault.made)
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Renew { .. } => "renew",
        Event::SaveStep { .. } => "save_step",
        Event::Succeed { .. } => "succeed",
        Event::Fail { .. } => "fail",
        Event::Defer { .. } => "defer",
        Event::Release { .. } => "release",
        _ => "other",
    }
}

fn away() -> StoreError {
    StoreError::Unavailable(Arc::new(std::io::Error::other("away")))
}

#[async_trait]
impl Store for Watched {
    async fn claim(&self, request: ClaimRequest) -> StoreResult<Vec<Claimed>> {
        self.calls.send_modify(|calls| calls.claims += 1);
        self.claims_open.subscribe().wait_for(|open| *open).await.unwrap();
        match self.fault(&["claim"]) {
            Some(_) => Err(away()),
            None => self.model.claim(request).await,
        }
    }

    async fn apply(&self, changes: Vec<JobChange>) -> StoreResult<Vec<Result<Applied, Refusal>>> {
        let kinds: Vec<_> = changes.iter().map(|change| kind(&change.event)).collect();
        let fault = self.fault(&kinds);
        if fault == Some(false) {
            self.calls.send_modify(|calls| calls.failed += 1);
            return Err(away());
        }
        let answers = self.model.apply(changes).await?;
        self.calls.send_modify(|calls| calls.applied.push(kinds));
        if fault.is_some() { Err(away()) } else { Ok(answers) }
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        self.model.now().await
    }
    async fn ready(&self) -> StoreResult<()> {
        if self.fault(&["ready"]).is_some() { Err(away()) } else { self.model.ready().await }
    }
    async fn submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        self.model.submit(jobs).await
    }
    async fn sweep(&self, limit: u32) -> StoreResult<u32> {
        self.model.sweep(limit).await
    }
    async fn forget(&self, keep: &Retention, limit: u32) -> StoreResult<u64> {
        self.model.forget(keep, limit).await
    }
    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Option<JobRecord>>> {
        self.model.jobs(ids).await
    }
    async fn by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> StoreResult<Option<JobRecord>> {
        self.model.by_key(tenant, key).await
    }
    async fn list(&self, filter: &JobFilter, page: Page) -> StoreResult<Vec<JobRecord>> {
        self.model.list(filter, page).await
    }
    async fn blocked(&self, ids: &[JobId]) -> StoreResult<BTreeSet<JobId>> {
        self.model.blocked(ids).await
    }
    async fn attempts(&self, job_id: JobId) -> StoreResult<Vec<Attempt>> {
        self.model.attempts(job_id).await
    }
    async fn steps(&self, job_id: JobId) -> StoreResult<Vec<Step>> {
        self.model.steps(job_id).await
    }
    async fn step(&self, job_id: JobId, name: &str) -> StoreResult<Option<Step>> {
        self.model.step(job_id, name).await
    }
    async fn ledger(&self, job_id: JobId) -> StoreResult<Vec<LedgerEntry>> {
        self.model.ledger(job_id).await
    }
    async fn ahead_of(&self, job: &Job) -> StoreResult<i64> {
        self.model.ahead_of(job).await
    }
    async fn stats(&self, queue: Option<&Queue>, window: Duration) -> StoreResult<Stats> {
        self.model.stats(queue, window).await
    }
    async fn count(&self, counts: Vec<(Counter, Queue, i64)>) -> StoreResult<()> {
        self.model.count(counts).await
    }
    async fn dlq_groups(&self, filter: &JobFilter) -> StoreResult<Vec<DlqGroup>> {
        self.model.dlq_groups(filter).await
    }
    async fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> StoreResult<Vec<(Tenant, String)>> {
        self.model.live_lock_keys(keys).await
    }
    async fn save_redrive(&self, redrive: Redrive) -> StoreResult<bool> {
        self.model.save_redrive(redrive).await
    }
    async fn redrive(&self, id: JobId) -> StoreResult<Option<Redrive>> {
        self.model.redrive(id).await
    }
    async fn running_redrives(&self) -> StoreResult<Vec<Redrive>> {
        self.model.running_redrives().await
    }
    async fn write_audit(&self, entry: AuditEntry) -> StoreResult<()> {
        self.model.write_audit(entry).await
    }
    async fn audit(&self, limit: u32) -> StoreResult<Vec<AuditEntry>> {
        self.model.audit(limit).await
    }
    async fn last_claim_asked(&self, queue: &Queue, job_type: &JobType) -> StoreResult<Option<Timestamp>> {
        self.model.last_claim_asked(queue, job_type).await
    }
}

forward_parts!(Watched, model);
forward_upstreams!(Watched, model);

/// A worker under test, and its surroundings.
pub(crate) struct Rig {
    pub(crate) store: Arc<Watched>,
    pub(crate) coolant: Coolant,
    pub(crate) shutdown: Shutdown,
    pub(crate) bell: Bell,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let store = Watched::new();
        let coolant = Coolant::with_store(Arc::clone(&store) as Arc<dyn Store>);
        let bell = coolant.bell().clone();
        Self { store, coolant, shutdown: Shutdown::new(), bell }
    }

    /// A worker whose leases last half a second: it beats six times a second.
    pub(crate) fn worker(&self) -> WorkerBuilder {
        let short = Duration::from_millis(500);
        Worker::builder(self.store.clone()).bell(self.bell.clone()).lease(Some(short)).name("under-test")
    }

    pub(crate) fn run(&self, worker: WorkerBuilder) -> JoinHandle<Result<Drained, RunError>> {
        tokio::spawn(worker.build().unwrap().run(self.shutdown.clone()))
    }
}

/// What a held handler tells its test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It began, with this payload.
    Began(String),
    /// Its future was dropped before its end.
    Dropped(String),
}

/// A handler that waits at its first point until it is let on.
pub(crate) struct HeldAt {
    told: mpsc::UnboundedSender<Told>,
    go: watch::Receiver<bool>,
}

/// The test's end of a [`HeldAt`].
pub(crate) struct Holder {
    pub(crate) told: mpsc::UnboundedReceiver<Told>,
    pub(crate) go: watch::Sender<bool>,
}

impl HeldAt {
    pub(crate) fn new() -> (Self, Holder) {
        let (tell, told) = mpsc::unbounded_channel();
        let (let_go, go) = watch::channel(false);
        (Self { told: tell, go }, Holder { told, go: let_go })
    }
}

impl Holder {
    pub(crate) async fn next(&mut self) -> Told {
        tokio::time::timeout(TOO_LONG, self.told.recv()).await.expect("nothing was told").unwrap()
    }

    pub(crate) async fn began(&mut self) -> String {
        match self.next().await {
            Told::Began(name) => name,
            Told::Dropped(name) => panic!("`{name}` was dropped"),
        }
    }
}

struct OnDrop(Option<(mpsc::UnboundedSender<Told>, String)>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some((told, name)) = self.0.take() {
            let _ = told.send(Told::Dropped(name));
        }
    }
}

#[async_trait]
impl Handler for HeldAt {
    type Payload = String;
    type Output = String;

    fn job_type(&self) -> &str {
        "HELD"
    }

    async fn run(&self, ctx: &Context, name: String) -> Result<String, HandlerError> {
        let mut on_drop = OnDrop(Some((self.told.clone(), name.clone())));
        ctx.progress(1, Some(2), "points");
        let _ = self.told.send(Told::Began(name.clone()));
        self.go.clone().wait_for(|go| *go).await?;
        on_drop.0 = None;
        Ok(format!("{name} is done"))
    }
}

/// A handler made of a function.
pub(crate) struct Does<F>(pub(crate) &'static str, pub(crate) F);

#[async_trait]
impl<F> Handler for Does<F>
where
    F: AsyncRun,
{
    type Payload = serde_json::Value;
    type Output = serde_json::Value;

    fn job_type(&self) -> &str {
        self.0
    }

    async fn run(
        &self,
        ctx: &Context,
        payload: serde_json::Value,
    ) -> Result<serde_json::Value, HandlerError> {
        self.1.call(ctx.clone(), payload).await
    }
}

/// An async function of a context and a payload.
#[async_trait]
pub(crate) trait AsyncRun: Send + Sync + 'static {
    async fn call(&self, ctx: Context, payload: serde_json::Value)
    -> Result<serde_json::Value, HandlerError>;
}

#[async_trait]
impl<F, R> AsyncRun for F
where
    F: Fn(Context, serde_json::Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<serde_json::Value, HandlerError>> + Send,
{
    async fn call(
        &self,
        ctx: Context,
        payload: serde_json::Value,
    ) -> Result<serde_json::Value, HandlerError> {
        self(ctx, payload).await
    }
}

pub(crate) fn one_attempt() -> Policy {
    Policy { max_attempts: 1, ..Policy::default() }
}

pub(crate) async fn failure_code(job: &JobHandle) -> String {
    match job.result::<Value>(TOO_LONG).await {
        Err(ResultError::Failed(failure)) => failure.code,
        other => panic!("not failed: {other:?}"),
    }
}

pub(crate) async fn attempt_ended(rig: &Rig, job: &JobHandle, outcome: Outcome) {
    let attempts = rig.store.attempts(job.id()).await.unwrap();
    assert_eq!(attempts.last().unwrap().outcome, Some(outcome));
}
