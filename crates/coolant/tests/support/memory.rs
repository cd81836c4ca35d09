//! Stores in memory: documents over a map, and a job store that can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coolant::bell::Bell;
use coolant::engine::documents::{Hit, SearchError, SearchQuery, Searcher};
use coolant::engine::payloads::PayloadChecks;
use coolant::engine::{Engine, Parts, Pipeline};
use coolant_core::documents::{
    ContentHash, Document, DocumentStore, DocumentVersion, IndexHealth, NewDocument, Publication, PutOutcome,
    SearchCandidates, SearchRequest, VectorBatch,
};
use coolant_core::job::{Attempt, Job, JobId, JobRecord, Step};
use coolant_core::ledger::{
    LedgerBy, LedgerEntry, LedgerFilter, LedgerPage, LedgerRow, LedgerStore, LedgerSum,
};
use coolant_core::lifecycle::Refusal;
use coolant_core::lock::{LockAnswer, LockAt, LockEvent, LockStore};
use coolant_core::names::{
    DocumentId, IdempotencyKey, JobType, LockName, Queue, ScheduleName, Tenant, Upstream,
};
use coolant_core::process::{Burial, Process, ProcessId, ProcessLock, ProcessStore};
use coolant_core::retention::Retention;
use coolant_core::schedule::{Schedule, ScheduleStore};
use coolant_core::store::{
    Applied, AuditEntry, ClaimRequest, Claimed, Counter, DlqGroup, JobChange, JobFilter, NewJob, Page,
    Redrive, Stats, Store, StoreError, StoreResult, Submitted,
};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Limits, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement, SettledPermit, Spending,
    TenantNow, UpstreamNow, UpstreamSettings, UpstreamStore,
};
use tokio::sync::Barrier;

/// The engine over a store, with documents in memory.
pub fn engine_over(store: Arc<dyn Store>) -> Engine {
    Engine::new(Parts {
        store,
        documents: Arc::new(MemoryDocuments::default()),
        searcher: Arc::new(OneHit),
        bell: Bell::default(),
        prices: coolant_core::prices::Prices::built_in(),
        payload_checks: PayloadChecks::built_in(),
        pipeline: Pipeline { version: "test-1".into(), upstreams: Vec::new() },
    })
}

type Versions = Vec<(DocumentVersion, Vec<u8>)>;

/// Keeps documents, but no index.
#[derive(Default)]
pub struct MemoryDocuments(Mutex<BTreeMap<(Tenant, DocumentId), Versions>>);

fn document(id: &DocumentId, versions: &Versions) -> Document {
    let versions = versions.iter().rev().map(|(version, _)| version.clone()).collect();
    Document { id: id.clone(), versions, searchable: None }
}

#[async_trait]
impl DocumentStore for MemoryDocuments {
    async fn put_document(&self, new: NewDocument) -> StoreResult<PutOutcome> {
        let mut documents = self.0.lock().unwrap();
        let versions = documents.entry((new.tenant, new.id)).or_default();
        let new_document = versions.is_empty();
        if let Some((version, bytes)) = versions.last()
            && *bytes == new.bytes
        {
            return Ok(PutOutcome { version: version.clone(), new_document, new_version: false });
        }
        let version = DocumentVersion {
            version: i64::try_from(versions.len()).unwrap() + 1,
            sha256: "0".repeat(64),
            bytes: i64::try_from(new.bytes.len()).unwrap(),
            content_type: new.content_type,
            filename: new.filename,
            created_at: Timestamp::default(),
        };
        versions.push((version.clone(), new.bytes));
        Ok(PutOutcome { version, new_document, new_version: true })
    }

    async fn document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<Option<Document>> {
        let documents = self.0.lock().unwrap();
        Ok(documents.get(&(tenant.clone(), id.clone())).map(|versions| document(id, versions)))
    }

    async fn documents(
        &self,
        tenant: &Tenant,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> StoreResult<Vec<Document>> {
        let documents = self.0.lock().unwrap();
        let own = documents.iter().filter(|((owner, id), _)| owner == tenant && after.is_none_or(|a| id > a));
        Ok(own.take(limit as usize).map(|((_, id), versions)| document(id, versions)).collect())
    }

    async fn delete_document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<bool> {
        Ok(self.0.lock().unwrap().remove(&(tenant.clone(), id.clone())).is_some())
    }

    async fn source(
        &self,
        tenant: &Tenant,
        id: &DocumentId,
        version: i64,
    ) -> StoreResult<Option<(DocumentVersion, Vec<u8>)>> {
        let documents = self.0.lock().unwrap();
        let versions = documents.get(&(tenant.clone(), id.clone()));
        Ok(versions.and_then(|versions| versions.iter().find(|(kept, _)| kept.version == version).cloned()))
    }

    async fn known_vectors(&self, _: &Tenant, _: &str, _: &[ContentHash]) -> StoreResult<Vec<ContentHash>> {
        Ok(Vec::new())
    }

    async fn vector(&self, _: &Tenant, _: &str, _: &ContentHash) -> StoreResult<Option<Vec<f32>>> {
        Ok(None)
    }

    async fn save_vectors(&self, _: VectorBatch) -> StoreResult<Result<(), Refusal>> {
        Ok(Ok(()))
    }

    async fn publish(&self, _: Publication) -> StoreResult<Result<(), Refusal>> {
        Ok(Ok(()))
    }

    async fn search(&self, _: SearchRequest) -> StoreResult<SearchCandidates> {
        Ok(SearchCandidates::default())
    }

    async fn index_health(&self) -> StoreResult<IndexHealth> {
        Ok(IndexHealth::default())
    }
}

/// Finds the question itself, once.
pub struct OneHit;

#[async_trait]
impl Searcher for OneHit {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Hit>, SearchError> {
        Ok(vec![Hit {
            document_id: query.document_id.unwrap_or_else(|| DocumentId::parse("d").unwrap()),
            version: 1,
            chunk: 0,
            score: 1.0,
            text: format!("{} {}", query.tenant, query.q),
            heading: None,
            page: Some(1),
        }])
    }
}

/// What a store is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Work.
    None,
    /// Be away.
    Away,
    /// Be full.
    Full,
    /// Hold what cannot be there.
    Broken,
    /// Panic.
    Panic,
    /// Write what is to be written, and lose the answer.
    LoseAnswer,
}

/// A store that fails when it is told to.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: AtomicU8,
    claims: AtomicUsize,
    reads: AtomicUsize,
    meeting: Mutex<Option<Arc<Barrier>>>,
    slipped_in: Mutex<Option<(&'static str, JobChange)>>,
}

impl FaultyStore {
    /// A store that works.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            fault: AtomicU8::new(Fault::None as u8),
            claims: AtomicUsize::default(),
            reads: AtomicUsize::default(),
            meeting: Mutex::default(),
            slipped_in: Mutex::default(),
        }
    }

    /// Makes every save of a schedule wait at that barrier first.
    pub fn meet(&self, barrier: Option<Arc<Barrier>>) {
        *self.meeting.lock().unwrap() = barrier;
    }

    /// Makes a change just before the next call of that name, as another process might.
    pub fn slip_in(&self, before: &'static str, change: JobChange) {
        *self.slipped_in.lock().unwrap() = Some((before, change));
    }

    async fn arrive(&self, call: &str) {
        let change = self.slipped_in.lock().unwrap().take_if(|(before, _)| *before == call);
        if let Some((_, change)) = change {
            self.inner.apply(vec![change]).await.unwrap().remove(0).unwrap();
        }
        let meeting = self.meeting.lock().unwrap().clone();
        if let Some(barrier) = meeting.filter(|_| call == "save_schedule") {
            barrier.wait().await;
        }
    }

    fn check_answer(&self, call: &str) -> StoreResult<()> {
        let is_lost = self.fault.load(Ordering::SeqCst) == Fault::LoseAnswer as u8;
        match is_lost && ["save_schedule", "submit", "apply"].contains(&call) {
            true => Err(StoreError::Unavailable(Arc::new(std::io::Error::other("told to")))),
            false => Ok(()),
        }
    }

    /// Tells it what to do from now on.
    pub fn fail(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// How often jobs were asked for.
    pub fn claims(&self) -> usize {
        self.claims.load(Ordering::SeqCst)
    }

    /// How often single jobs were read.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    fn check(&self, call: &str) -> StoreResult<()> {
        let cause = || Arc::new(std::io::Error::other("told to")) as Arc<dyn std::error::Error + Send + Sync>;
        match call {
            "claim" => self.claims.fetch_add(1, Ordering::SeqCst),
            "jobs" => self.reads.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        match self.fault.load(Ordering::SeqCst) {
            1 => Err(StoreError::Unavailable(cause())),
            2 => Err(StoreError::Full(cause())),
            3 => Err(StoreError::Broken("secret detail".into())),
            4 => panic!("told to"),
            _ => Ok(()),
        }
    }
}

macro_rules! pass_on {
    ($trait:ident: $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl $trait for FaultyStore {
            $(async fn $name(&self, $($arg: $type),*) -> StoreResult<$answer> {
                self.check(stringify!($name))?;
                self.arrive(stringify!($name)).await;
                let answer = self.inner.$name($($arg),*).await?;
                self.check_answer(stringify!($name)).map(|()| answer)
            })*
        }
    };
}

pass_on! {
    ScheduleStore:
    save_schedule(schedule: Schedule, jobs: Vec<NewJob>) -> bool;
    schedule(tenant: &Tenant, name: &ScheduleName) -> Option<Schedule>;
    schedules(tenant: &Tenant, after: Option<&ScheduleName>, limit: u32) -> Vec<Schedule>;
    delete_schedule(tenant: &Tenant, name: &ScheduleName) -> bool;
    due_schedules(limit: u32) -> Vec<Schedule>;
}

pass_on! {
    LockStore:
    change_lock(key: &LockName, event: LockEvent) -> LockAnswer;
    lock(key: &LockName) -> LockAt;
    forget_locks(limit: u32) -> u32;
}

pass_on! {
    ProcessStore:
    renew_process(id: ProcessId) -> ();
    lock_process(id: ProcessId) -> Box<dyn ProcessLock>;
    processes() -> (Timestamp, Vec<Process>);
    bury_process(process: Process, limit: u32) -> Burial;
    forget_process(id: ProcessId) -> ();
}

pass_on! {
    LedgerStore:
    ledger_page(filter: &LedgerFilter, page: LedgerPage) -> Vec<LedgerRow>;
    ledger_sums(by: LedgerBy, filter: &LedgerFilter) -> Vec<LedgerSum>;
}

pass_on! {
    UpstreamStore:
    set_upstream(name: &Upstream, settings: UpstreamSettings) -> UpstreamNow;
    upstreams(names: Option<&[Upstream]>) -> Vec<UpstreamNow>;
    control_upstream(name: &Upstream, control: Control, audit: AuditEntry) -> UpstreamNow;
    set_tenant(tenant: &Tenant, limits: Limits) -> TenantNow;
    tenant(tenant: &Tenant) -> Option<TenantNow>;
    acquire_permits(requests: Vec<PermitRequest>) -> Vec<Result<Permit, NoPermit>>;
    permit(id: PermitId) -> Option<Spending>;
    settle_permits(settlements: Vec<PermitSettlement>) -> Vec<Option<SettledPermit>>;
    breakers_stir() -> bool;
}

pass_on! {
    Store:
    now() -> Timestamp;
    ready() -> ();
    submit(jobs: Vec<NewJob>) -> Vec<Submitted>;
    claim(request: ClaimRequest) -> Vec<Claimed>;
    apply(changes: Vec<JobChange>) -> Vec<Result<Applied, Refusal>>;
    sweep(limit: u32) -> u32;
    forget(keep: &Retention, limit: u32) -> u64;
    jobs(ids: &[JobId]) -> Vec<Option<JobRecord>>;
    by_key(tenant: &Tenant, key: &IdempotencyKey) -> Option<JobRecord>;
    list(filter: &JobFilter, page: Page) -> Vec<JobRecord>;
    blocked(ids: &[JobId]) -> BTreeSet<JobId>;
    attempts(job_id: JobId) -> Vec<Attempt>;
    steps(job_id: JobId) -> Vec<Step>;
    step(job_id: JobId, name: &str) -> Option<Step>;
    ledger(job_id: JobId) -> Vec<LedgerEntry>;
    ahead_of(job: &Job) -> i64;
    stats(queue: Option<&Queue>, window: Duration) -> Stats;
    count(counts: Vec<(Counter, Queue, i64)>) -> ();
    dlq_groups(filter: &JobFilter) -> Vec<DlqGroup>;
    live_lock_keys(keys: &[(Tenant, String)]) -> Vec<(Tenant, String)>;
    save_redrive(redrive: Redrive) -> bool;
    redrive(id: JobId) -> Option<Redrive>;
    running_redrives() -> Vec<Redrive>;
    write_audit(entry: AuditEntry) -> ();
    audit(limit: u32) -> Vec<AuditEntry>;
    last_claim_asked(queue: &Queue, job_type: &JobType) -> Option<Timestamp>;
}
