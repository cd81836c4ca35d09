//! The SQL store: opens either database, and answers what `coolant_core`'s contracts ask.

mod documents;
mod ledger;
mod locks;
mod processes;
mod reading;
mod schedules;
mod upstreams;

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use coolant_core::job::{Attempt, Job, JobId, JobRecord, Step};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::Refusal;
use coolant_core::names::{IdempotencyKey, JobType, Queue, Tenant};
use coolant_core::retention::Retention;
use coolant_core::store::{
    Applied, AuditEntry, ClaimRequest, Claimed, Counter, DlqGroup, JobChange, JobFilter, NewJob, Page,
    Redrive, Stats, Store, StoreError, StoreResult, Submitted,
};
use coolant_core::time::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use reading::{LONGEST_LOOK, Readers};

use crate::batch::{self, Batcher, Custom, Lane, Request, Response, Source};
use crate::clock::{StoreClock, TestClock};
use crate::conn::Conn;
use crate::hints::{self, Hints};
use crate::postgres::Purpose;
use crate::sql::upstreams::Dealings;
use crate::sql::{ahead, blocked, examine, jobs, operation, retention, stats};
use crate::{Address, migrate, postgres, sqlite};

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Bring the schema up to date first; without it an old schema is an error of every call.
    pub migrate: bool,
    /// A clock that a test moves instead of the store's own.
    pub clock: Option<TestClock>,
    /// Connections for writing, 1 to 16; SQLite has one whatever is asked.
    pub lanes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { migrate: true, clock: None, lanes: 4 }
    }
}

/// How bad a finding of [`SqlStore::examine`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As it should be.
    Good,
    /// Works, but somebody should look.
    Warning,
    /// Does not work.
    Bad,
}

/// What an examination of PostgreSQL does not mind yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// A transaction that is open for so long; a minute by default.
    pub open_transaction: Duration,
    /// So many dead rows in a table, or half as many as live ones, whichever is more; 10 000 by default.
    pub dead_rows: i64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { open_transaction: Duration::from_secs(60), dead_rows: 10_000 }
    }
}

/// Something that an examination found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// How it is.
    pub condition: Condition,
    /// In words, with what to do.
    pub detail: String,
}

impl Finding {
    /// What was found of something.
    #[must_use]
    pub fn new(what: &str, condition: Condition, detail: String) -> Self {
        Self { what: what.to_owned(), condition, detail }
    }
}

/// Jobs, documents and the index in SQLite or PostgreSQL.
pub struct SqlStore {
    address: Address,
    batcher: Batcher,
    readers: Readers,
    clock: StoreClock,
    /// The runtime that drives connections, whichever runtime asks.
    runtime: Handle,
    /// When each queue and type was last noted as asked for.
    asked: Mutex<HashMap<(String, String), Timestamp>>,
    hints: Arc<hints::Wire>,
    _hinting: hints::Task,
}

/// How often a worker's question is written down.
const ASKED_EVERY: Duration = Duration::from_secs(1);

impl SqlStore {
    /// Opens a store. Has to be called within a tokio runtime, which then drives its connections; no
    /// handler's blocking code should run there.
    ///
    /// # Errors
    /// That it cannot be reached, or needs migrating and may not be.
    pub async fn open(address: &Address, options: Options) -> StoreResult<Arc<Self>> {
        match address {
            Address::Sqlite(path) => Self::open_file(path, options).await,
            Address::Postgres(url) => Self::open_server(url, options).await,
        }
    }

    async fn open_file(path: &Path, options: Options) -> StoreResult<Arc<Self>> {
        let file = path.to_owned();
        let migrating = options.migrate;
        let opened = tokio::task::spawn_blocking(move || -> StoreResult<_> {
            let mut conn = Conn::Sqlite(sqlite::open_writer(&file)?);
            futures::executor::block_on(async {
                if migrating {
                    migrate::migrate(&mut conn, crate::clock::wall_ms()).await?;
                } else {
                    migrate::check(&mut conn).await?;
                }
                let clock = StoreClock::of(&mut conn).await?;
                if let Conn::Sqlite(conn) = &conn {
                    sqlite::wait_for_others(conn, sqlite::GROUP_WAIT)?;
                }
                Ok((conn, clock))
            })
        });
        let (conn, clock) = opened.await.map_err(|error| StoreError::Broken(error.to_string()))??;
        let clock = options.clock.map_or(clock, StoreClock::Test);
        // There is one writer: whoever waits for another process waits with everybody else.
        let (batcher, intake, _) = batch::queues();
        let Conn::Sqlite(conn) = conn else { return Err(StoreError::Broken("not a file".into())) };
        let wire = hints::Wire::new();
        let lane =
            Lane::new(intake, Source::Own(Some(conn)), clock.clone(), Arc::clone(&wire), Arc::default());
        std::thread::Builder::new()
            .name("coolant-writer".into())
            .spawn(move || futures::executor::block_on(lane.run()))
            .map_err(crate::conn::unavailable)?;
        let readers = Readers::Files { path: path.to_owned(), idle: Arc::default() };
        let hinting = hints::on_file(path.to_owned(), &wire);
        let address = Address::Sqlite(path.to_owned());
        Ok(Arc::new(Self::new(address, batcher, readers, clock, (wire, hinting))))
    }

    async fn open_server(url: &str, options: Options) -> StoreResult<Arc<Self>> {
        let lanes = options.lanes.clamp(1, 16);
        let writers = postgres::pool(url, lanes, Purpose::Write)?;
        if options.migrate {
            let client = writers.get().await.map_err(postgres::pool_error)?;
            migrate::migrate(&mut Conn::Postgres(client), crate::clock::wall_ms()).await?;
        }
        let clock = options.clock.map_or(StoreClock::Database, StoreClock::Test);
        let readers = postgres::pool(url, lanes * 2, Purpose::Read)?;
        let (batcher, intake, for_the_patient) = batch::queues();
        let wire = hints::Wire::new();
        // Lanes deal turns together: each for itself, they would go round in step.
        let rota = Arc::default();
        let lane = |intake, writers: &deadpool_postgres::Pool| {
            let source = Source::Pool { writers: writers.clone(), readers: readers.clone() };
            Lane::new(intake, source, clock.clone(), Arc::clone(&wire), Arc::clone(&rota))
        };
        for _ in 0..lanes {
            tokio::spawn(lane(intake.clone(), &writers).with_aside(batcher.aside()).run());
        }
        let patient = postgres::pool(url, 1, Purpose::PatientWrite)?;
        tokio::spawn(lane(for_the_patient, &patient).patient(batcher.aside()).run());
        let hinting = hints::on_server(url.to_owned(), Arc::clone(&wire));
        let (address, readers) = (Address::Postgres(url.to_owned()), Readers::Pool(readers));
        Ok(Arc::new(Self::new(address, batcher, readers, clock, (wire, hinting))))
    }

    fn new(
        address: Address,
        batcher: Batcher,
        readers: Readers,
        clock: StoreClock,
        (hints, hinting): (Arc<hints::Wire>, hints::Task),
    ) -> Self {
        let (runtime, asked) = (Handle::current(), Mutex::default());
        Self { address, batcher, readers, clock, runtime, asked, hints, _hinting: hinting }
    }

    /// Starts to listen to other processes on this store: hears that they changed something that somebody
    /// may wait for. PostgreSQL tells it at once, a file within about 50 ms, and there this process's own
    /// changes are heard too. A lost one is made up for by polling.
    #[must_use]
    pub fn hints(&self) -> Hints {
        self.hints.listen()
    }

    /// Brings a store's schema up to date; gives how many steps that took.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn migrate(address: &Address) -> StoreResult<usize> {
        let mut conn = match address {
            Address::Sqlite(path) => Conn::Sqlite(sqlite::open_writer(path)?),
            Address::Postgres(url) => {
                let pool = postgres::pool(url, 1, Purpose::Read)?;
                Conn::Postgres(pool.get().await.map_err(postgres::pool_error)?)
            }
        };
        migrate::migrate(&mut conn, crate::clock::wall_ms()).await
    }

    /// Looks for what is wrong with this store.
    ///
    /// # Errors
    /// That it cannot be reached at all.
    pub async fn examine(&self) -> StoreResult<Vec<Finding>> {
        self.examine_beyond(Tolerance::default()).await
    }

    /// The same with other bounds on what is still as it should be.
    ///
    /// # Errors
    /// As for [`Self::examine`].
    pub async fn examine_beyond(&self, tolerance: Tolerance) -> StoreResult<Vec<Finding>> {
        let clock = self.clock.clone();
        self.read(move |conn| async move { examine::examine(conn, &clock, &tolerance).await }.boxed()).await
    }

    /// Writes something that only its caller understands, in a group's transaction.
    async fn write<T: Send + 'static>(
        &self,
        write: impl for<'c> Fn(&'c mut Conn, Timestamp) -> BoxFuture<'c, StoreResult<T>> + Send + Sync + 'static,
    ) -> StoreResult<T> {
        self.write_and_deal(Request::Custom, move |conn, _, now| write(conn, now)).await
    }

    /// The same for one that moves a document, and may take its time.
    async fn write_long<T: Send + 'static>(
        &self,
        write: impl for<'c> Fn(&'c mut Conn, Timestamp) -> BoxFuture<'c, StoreResult<T>> + Send + Sync + 'static,
    ) -> StoreResult<T> {
        self.write_and_deal(Request::LongCustom, move |conn, _, now| write(conn, now)).await
    }

    /// The same for one that may have something to tell upstreams, which is done at the end of the group.
    async fn write_and_deal<T: Send + 'static>(
        &self,
        request: fn(Custom) -> Request,
        write: impl for<'c> Fn(&'c mut Conn, &'c mut Dealings, Timestamp) -> BoxFuture<'c, StoreResult<T>>
        + Send
        + Sync
        + 'static,
    ) -> StoreResult<T> {
        let write = Arc::new(write);
        let custom: Custom = Box::new(move |conn, dealings, now| {
            let write = Arc::clone(&write);
            let written = async move { write(conn, dealings, now).await };
            written.map(|value| value.map(|value| Box::new(value) as Box<dyn Any + Send>)).boxed()
        });
        match self.batcher.run(request(custom)).await? {
            Response::Done(value) => value.downcast().map(|value| *value).map_err(|_| mixed_up()),
            _ => Err(mixed_up()),
        }
    }

    /// Writes down who asks for jobs, once a second for each queue and type.
    async fn note_asking(&self, request: &ClaimRequest) -> StoreResult<()> {
        let now = self.clock.here();
        let types: Vec<String> = match request.job_types.as_slice() {
            [] => vec![String::new()],
            types => types.iter().map(ToString::to_string).collect(),
        };
        let due: Vec<(String, String)> = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let pairs = request
                .queues
                .iter()
                .flat_map(|queue| types.iter().map(move |job_type| (queue.to_string(), job_type.clone())));
            let due: Vec<_> = pairs
                .filter(|pair| asked.get(pair).is_none_or(|last| last.plus(ASKED_EVERY) <= now))
                .collect();
            for pair in &due {
                asked.insert(pair.clone(), now);
            }
            due
        };
        if due.is_empty() {
            return Ok(());
        }
        self.write(move |conn, now| {
            let due = due.clone();
            async move { operation::note_claimers(conn, &due, now).await }.boxed()
        })
        .await
    }
}

fn mixed_up() -> StoreError {
    StoreError::Broken("an answer came to the wrong question".into())
}

#[async_trait]
impl Store for SqlStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        match &self.clock {
            StoreClock::Test(_) | StoreClock::SinceBoot { .. } => Ok(self.clock.here()),
            StoreClock::Database => {
                let clock = self.clock.clone();
                self.read(move |conn| async move { clock.now(conn).await }.boxed()).await
            }
        }
    }

    async fn ready(&self) -> StoreResult<()> {
        self.read_within(LONGEST_LOOK, |conn| {
            async move {
                migrate::check(conn).await?;
                conn.check_takes_writes().await
            }
            .boxed()
        })
        .await
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> StoreResult<Vec<Submitted>> {
        match self.batcher.run(Request::Submit(jobs)).await? {
            Response::Submitted(answers) => Ok(answers),
            _ => Err(mixed_up()),
        }
    }

    async fn claim(&self, request: ClaimRequest) -> StoreResult<Vec<Claimed>> {
        self.note_asking(&request).await?;
        match self.batcher.run(Request::Claim(request)).await? {
            Response::Claimed(claimed) => Ok(claimed),
            _ => Err(mixed_up()),
        }
    }

    async fn apply(&self, changes: Vec<JobChange>) -> StoreResult<Vec<Result<Applied, Refusal>>> {
        match self.batcher.run(Request::Apply(changes)).await? {
            Response::Applied(answers) => Ok(answers),
            _ => Err(mixed_up()),
        }
    }

    async fn sweep(&self, limit: u32) -> StoreResult<u32> {
        match self.batcher.run(Request::Sweep(limit)).await? {
            Response::Swept(ended) => Ok(ended),
            _ => Err(mixed_up()),
        }
    }

    async fn forget(&self, keep: &Retention, limit: u32) -> StoreResult<u64> {
        let keep = *keep;
        self.write(move |conn, now| async move { retention::forget(conn, &keep, limit, now).await }.boxed())
            .await
    }

    async fn jobs(&self, ids: &[JobId]) -> StoreResult<Vec<Option<JobRecord>>> {
        let ids = ids.to_vec();
        self.read(move |conn| {
            async move {
                let found = jobs::records(conn, &ids).await?;
                Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
            }
            .boxed()
        })
        .await
    }

    async fn by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> StoreResult<Option<JobRecord>> {
        let (tenant, key) = (tenant.clone(), key.clone());
        self.read(move |conn| async move { jobs::by_key(conn, &tenant, &key).await }.boxed()).await
    }

    async fn list(&self, filter: &JobFilter, page: Page) -> StoreResult<Vec<JobRecord>> {
        let filter = filter.clone();
        self.read_now(move |conn, now| async move { stats::list(conn, &filter, page, now).await }.boxed())
            .await
    }

    async fn blocked(&self, ids: &[JobId]) -> StoreResult<BTreeSet<JobId>> {
        let ids = ids.to_vec();
        self.read_now(move |conn, now| async move { blocked::of(conn, &ids, now).await }.boxed()).await
    }

    async fn attempts(&self, job_id: JobId) -> StoreResult<Vec<Attempt>> {
        self.read(move |conn| async move { jobs::attempts(conn, job_id).await }.boxed()).await
    }

    async fn steps(&self, job_id: JobId) -> StoreResult<Vec<Step>> {
        self.read(move |conn| async move { jobs::steps(conn, job_id).await }.boxed()).await
    }

    async fn step(&self, job_id: JobId, name: &str) -> StoreResult<Option<Step>> {
        let name = name.to_owned();
        self.read(move |conn| async move { jobs::step(conn, job_id, &name).await }.boxed()).await
    }

    async fn ledger(&self, job_id: JobId) -> StoreResult<Vec<LedgerEntry>> {
        self.read(move |conn| async move { crate::sql::ledger::of_job(conn, job_id).await }.boxed()).await
    }

    async fn ahead_of(&self, job: &Job) -> StoreResult<i64> {
        let job = job.clone();
        self.read_now(move |conn, now| async move { ahead::ahead_of(conn, &job, now).await }.boxed()).await
    }

    async fn stats(&self, queue: Option<&Queue>, window: Duration) -> StoreResult<Stats> {
        let queue = queue.cloned();
        self.read_now(move |conn, now| {
            async move { stats::stats(conn, queue.as_ref(), window, now).await }.boxed()
        })
        .await
    }

    async fn count(&self, counts: Vec<(Counter, Queue, i64)>) -> StoreResult<()> {
        self.batcher.run(Request::Count(counts)).await.map(|_| ())
    }

    async fn dlq_groups(&self, filter: &JobFilter) -> StoreResult<Vec<DlqGroup>> {
        let filter = filter.clone();
        self.read_now(move |conn, now| async move { stats::dlq_groups(conn, &filter, now).await }.boxed())
            .await
    }

    async fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> StoreResult<Vec<(Tenant, String)>> {
        let keys = keys.to_vec();
        self.read(move |conn| async move { operation::live_lock_keys(conn, &keys).await }.boxed()).await
    }

    async fn save_redrive(&self, redrive: Redrive) -> StoreResult<bool> {
        self.write(move |conn, _| {
            let redrive = redrive.clone();
            async move { operation::save_redrive(conn, &redrive).await }.boxed()
        })
        .await
    }

    async fn redrive(&self, id: JobId) -> StoreResult<Option<Redrive>> {
        self.read(move |conn| async move { operation::redrive(conn, id).await }.boxed()).await
    }

    async fn running_redrives(&self) -> StoreResult<Vec<Redrive>> {
        self.read(|conn| operation::running_redrives(conn).boxed()).await
    }

    async fn write_audit(&self, entry: AuditEntry) -> StoreResult<()> {
        self.write(move |conn, at| {
            let entry = AuditEntry { at, ..entry.clone() };
            async move { operation::write_audit(conn, vec![entry]).await }.boxed()
        })
        .await
    }

    async fn audit(&self, limit: u32) -> StoreResult<Vec<AuditEntry>> {
        self.read(move |conn| async move { operation::audit(conn, limit).await }.boxed()).await
    }

    async fn last_claim_asked(&self, queue: &Queue, job_type: &JobType) -> StoreResult<Option<Timestamp>> {
        let (queue, job_type) = (queue.clone(), job_type.clone());
        self.read(move |conn| {
            async move { operation::last_claim_asked(conn, &queue, &job_type).await }.boxed()
        })
        .await
    }
}
