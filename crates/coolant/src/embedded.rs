//! Coolant inside a program of your own: submit jobs, wait for their results, run them here.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use coolant::{Coolant, Context, Handler, HandlerError};
//! # struct Greet;
//! # #[coolant::async_trait]
//! # impl Handler for Greet {
//! #     type Payload = String;
//! #     type Output = String;
//! #     fn job_type(&self) -> &str { "GREET" }
//! #     async fn run(&self, _: &Context, name: String) -> Result<String, HandlerError> { Ok(name) }
//! # }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let coolant = Coolant::open("sqlite:coolant-data/coolant.db").await?;
//! let running = coolant.start(coolant.worker().handler(Greet))?;
//!
//! let job = coolant.submit("GREET", &"Ada").key("user:42:v1").await?;
//! let greeting: String = job.result(Duration::from_secs(30)).await?;
//!
//! running.stop().await?;
//! # Ok(())
//! # }
//! ```

mod lock;
mod result;
mod submit;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Address, InvalidAddress, Options, SqlStore};
use coolant_core::job::JobId;
use coolant_core::lock::LockStore;
use coolant_core::retention::Retention;
use coolant_core::store::{Store, StoreError};
use serde::Serialize;
use tokio::task::JoinHandle;

pub use lock::{LeakyLock, LockError, LockGuard, LockTaken};
pub use result::{JobHandle, ResultError};
pub use submit::{Submit, SubmitError};

use crate::bell::Bell;
use crate::deaths::Deaths;
use crate::engine::housekeeping;
use crate::engine::schedule::{Troubles, fire_due};
use crate::worker::{BuildError, Drained, RunError, Shutdown, Worker, WorkerBuilder};

/// How often time-outs and deaths are looked for that no worker reports.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Looks between two at the locks that nobody needs any more.
const FORGET_LOCKS_EVERY: u64 = 10;
/// Jobs that one sweep ends at most.
const SWEEP_LIMIT: u32 = 1000;

/// A store of jobs, in this process. A clone is the same one.
#[derive(Clone)]
pub struct Coolant {
    store: Arc<dyn Store>,
    bell: Bell,
    keep: Retention,
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is no store's address.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// The store does not open.
    #[error("cannot open the store")]
    Store(#[from] StoreError),
}

impl Coolant {
    /// Opens `sqlite:PATH`, made and brought up to date if need be, or `postgres://…`, which other programs
    /// may be using and `coolant migrate` brings up to date. Has to be called within a tokio runtime, which
    /// then drives the store.
    ///
    /// # Errors
    /// That the text is no address, or the store cannot be reached.
    pub async fn open(store: &str) -> Result<Self, OpenError> {
        let address = Address::parse(store)?;
        let migrate = matches!(address, Address::Sqlite(_));
        let store = SqlStore::open(&address, Options { migrate, ..Options::default() }).await?;
        let coolant = Self::with_store(Arc::clone(&store) as Arc<dyn Store>);
        coolant.bell.ring_for_others(&store);
        Ok(coolant)
    }

    /// Over a store that is open and migrated.
    #[must_use]
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { store, bell: Bell::default(), keep: Retention::default() }
    }

    /// Keeps what is over for other times than the default ones; see [`Retention`]. Workers that are started
    /// from now on forget by them. Of several programs on one store the shortest time counts.
    #[must_use]
    pub fn keeping(self, keep: Retention) -> Self {
        Self { keep, ..self }
    }

    /// The store, for everything that has no method here.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The bell that wakes workers and waiters of this process.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// A job to be submitted: set what it needs, then await it. The same key is the same job, whatever
    /// became of it.
    pub fn submit<P: Serialize + ?Sized>(&self, job_type: impl Into<String>, payload: &P) -> Submit<'_> {
        Submit::new(self, job_type.into(), serde_json::to_value(payload))
    }

    /// A leaky lock of that name: 1 to 512 bytes, for all who use this store.
    #[must_use]
    pub fn lock(&self, key: impl Into<String>) -> LeakyLock {
        LeakyLock::new(Arc::clone(&self.store) as Arc<dyn LockStore>, key)
    }

    /// A job that was submitted before.
    #[must_use]
    pub fn job(&self, id: JobId) -> JobHandle {
        JobHandle::new(self.clone(), id, None)
    }

    /// A worker for this store, to be built or given to [`Self::start`].
    pub fn worker(&self) -> WorkerBuilder {
        Worker::builder(Arc::clone(&self.store)).bell(self.bell.clone())
    }

    /// Builds the worker and runs it in the background, until [`Running::stop`].
    ///
    /// # Errors
    /// As for [`WorkerBuilder::build`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self, worker: WorkerBuilder) -> Result<Running, BuildError> {
        let worker = worker.build()?;
        let shutdown = Shutdown::new();
        let task = tokio::spawn(run(worker, self.clone(), shutdown.clone()));
        Ok(Running { shutdown, task: Some(task) })
    }
}

async fn run(worker: Worker, coolant: Coolant, shutdown: Shutdown) -> Result<Drained, RunError> {
    let Coolant { store, bell, keep } = coolant;
    tokio::select! {
        drained = worker.run(shutdown) => drained,
        never = housekeeping::forget(&*store, keep) => match never {},
        never = sweep(Arc::clone(&store), bell) => match never {},
    }
}

/// Ends what time has ended, so that a job out of attempts ends with nobody polling for it, and submits the
/// ticks of schedules.
async fn sweep(store: Arc<dyn Store>, bell: Bell) -> Infallible {
    let (mut troubles, mut deaths) = (Troubles::new(), Deaths::default());
    let mut looks: u64 = 0;
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match deaths.look(&*store).await {
            Ok(true) => bell.ring(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "the look for the dead failed; the next one makes up for it");
            }
        }
        match store.sweep(SWEEP_LIMIT).await {
            Ok(0) => {}
            Ok(_) => bell.ring(),
            // The worker's own calls report the outage.
            Err(error) => tracing::debug!(%error, "the sweep failed; the next one makes up for it"),
        }
        if let Err(error) = fire_due(&store, &bell, &mut troubles).await {
            tracing::debug!(%error, "the look at schedules failed; the next one makes up for it");
        }
        if looks.is_multiple_of(FORGET_LOCKS_EVERY)
            && let Err(error) = store.forget_locks(SWEEP_LIMIT).await
        {
            tracing::debug!(%error, "old locks could not be forgotten; the next look makes up for it");
        }
        looks += 1;
    }
}

/// A worker that runs in the background. Dropping it lets the worker drain with nobody waiting for it.
#[derive(Debug)]
pub struct Running {
    shutdown: Shutdown,
    /// `None` once it is waited for.
    task: Option<JoinHandle<Result<Drained, RunError>>>,
}

impl Running {
    /// To stop it from elsewhere.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Claims nothing more, lets running jobs finish for a while, gives back the rest.
    ///
    /// # Errors
    /// Why the worker did not run at all.
    pub async fn stop(self) -> Result<Drained, RunError> {
        self.shutdown.drain();
        self.ended().await
    }

    /// Waits until the worker ends: until somebody asked its shutdown.
    ///
    /// # Errors
    /// Why the worker did not run at all.
    ///
    /// # Panics
    /// With the worker's own panic, if it had one.
    pub async fn ended(mut self) -> Result<Drained, RunError> {
        let Some(task) = &mut self.task else { return Ok(Drained::default()) };
        let joined = task.await;
        self.task = None;
        match joined {
            Ok(ended) => ended,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends, and the worker with it.
            Err(_) => Ok(Drained::default()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.drain();
    }
}
