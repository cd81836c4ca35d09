//! What a worker is built from, and what it takes by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use coolant_core::handler::{AnyHandler, Handler};
use coolant_core::names::{InvalidName, JobType, Queue};
use coolant_core::prices::Prices;
use coolant_core::store::Store;
use tokio::sync::{Semaphore, watch};

use super::handlers::Handlers;
use super::patience::{Closing, Courier};
use super::{Inner, Settings, Worker};
use crate::bell::Bell;

/// Most jobs that one worker runs at a time.
const MOST_SLOTS: usize = 10_000;

/// Builds a [`Worker`].
#[must_use]
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    handlers: Vec<Arc<dyn AnyHandler>>,
    job_types: Option<Vec<JobType>>,
    bell: Bell,
    concurrency: usize,
    threads: Option<usize>,
    settings: Settings,
}

/// Why a worker cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It would have nothing to do.
    #[error("the worker has neither a handler nor a job type")]
    NothingToDo,
    /// Two handlers for one type.
    #[error("`{job_type}` has two handlers")]
    TwoHandlers {
        /// The type.
        job_type: String,
    },
    /// A handler's type is no type.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Out of range.
    #[error("concurrency {asked} is not within 1 to {MOST_SLOTS}")]
    Concurrency {
        /// What was asked for.
        asked: usize,
    },
    /// The system gave no threads.
    #[error("could not start the handlers' threads")]
    Threads(#[source] std::io::Error),
}

impl WorkerBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let settings = Settings {
            name: format!("worker-{}", std::process::id()),
            queues: vec![Queue::default()],
            job_types: Vec::new(),
            lease: None,
            poll: (Duration::from_millis(50), Duration::from_secs(1)),
            drain: Duration::from_secs(30),
            prices: Prices::built_in(),
        };
        Self {
            store,
            handlers: Vec::new(),
            job_types: None,
            bell: Bell::default(),
            concurrency: 8,
            threads: None,
            settings,
        }
    }

    /// Runs jobs of the handler's type by it.
    pub fn handler(self, handler: impl Handler) -> Self {
        self.any_handler(Arc::new(handler))
    }

    /// The same for a handler whose types are hidden.
    pub fn any_handler(mut self, handler: Arc<dyn AnyHandler>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// Claims from these queues; from `default` if never set.
    pub fn queues(mut self, queues: impl IntoIterator<Item = Queue>) -> Self {
        self.settings.queues = queues.into_iter().collect();
        self
    }

    /// Claims these types, or any if there are none; those of its handlers if never set. A job whose type
    /// has no handler here goes to the dead-letter queue.
    pub fn job_types(mut self, job_types: impl IntoIterator<Item = JobType>) -> Self {
        self.job_types = Some(job_types.into_iter().collect());
        self
    }

    /// Runs so many jobs at a time; 8 if never set.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs;
        self
    }

    /// Threads that handlers run on; one per slot if never set, 32 at most. Handlers that block more
    /// threads than that delay other handlers, and nothing else.
    pub fn handler_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Its label in attempts and logs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The lease of its claims; each job's own if `None`.
    pub fn lease(mut self, lease: Option<Duration>) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long it waits after a claim that found too little: `first`, doubling to `longest`; 50 ms to 1 s
    /// if never set. The bell wakes it earlier.
    pub fn poll(mut self, first: Duration, longest: Duration) -> Self {
        self.settings.poll = (first, longest.max(first));
        self
    }

    /// How long running jobs may go on at a shutdown before they are given back; 30 s if never set.
    pub fn drain(mut self, longest: Duration) -> Self {
        self.settings.drain = longest;
        self
    }

    /// Prices paid calls so whose cost the handler does not state; at list price if never set.
    pub fn prices(mut self, prices: Prices) -> Self {
        self.settings.prices = prices;
        self
    }

    /// Listens to that bell for new jobs, and rings it when a job has changed.
    pub fn bell(mut self, bell: Bell) -> Self {
        self.bell = bell;
        self
    }

    /// Builds it, with the threads for its handlers.
    ///
    /// # Errors
    /// [`BuildError`], naming what is wrong.
    pub fn build(mut self) -> Result<Worker, BuildError> {
        if !(1..=MOST_SLOTS).contains(&self.concurrency) {
            return Err(BuildError::Concurrency { asked: self.concurrency });
        }
        let mut table = BTreeMap::new();
        let mut own_types = Vec::new();
        for handler in self.handlers {
            let job_type = JobType::parse(handler.job_type())?;
            own_types.push(job_type.clone());
            if table.insert(job_type.as_str().to_owned(), handler).is_some() {
                return Err(BuildError::TwoHandlers { job_type: job_type.into() });
            }
        }
        if own_types.is_empty() && self.job_types.is_none() {
            return Err(BuildError::NothingToDo);
        }
        self.settings.job_types = self.job_types.unwrap_or(own_types);
        let threads = self.threads.unwrap_or(self.concurrency.clamp(2, 32));
        let handlers = Handlers::new(table, threads).map_err(BuildError::Threads)?;
        let (closing, closed) = watch::channel(false);
        let closed = Closing(closed);
        let inner = Inner {
            courier: Arc::new(Courier::new(Arc::clone(&self.store), closed.clone())),
            store: self.store,
            leases: Arc::default(),
            handlers,
            bell: self.bell,
            closing: closed,
            slots: Arc::new(Semaphore::new(self.concurrency)),
            settings: self.settings,
            process: Arc::default(),
            finished: AtomicUsize::new(0),
            released: AtomicUsize::new(0),
        };
        Ok(Worker { inner: Arc::new(inner), closing })
    }
}
