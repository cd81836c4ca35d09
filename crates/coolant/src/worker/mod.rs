//! The worker: claims jobs, runs their handlers, keeps their leases, settles them.
//!
//! ```text
//!  claim loop ──▶ run_once: context ─▶ handler ─▶ verdict ─▶ settle     control runtime: the caller's
//!                    │         ▲           │
//!                 lease     stop│           └── on threads of its own    handlers' runtime
//!                    ▼         │
//!                 heartbeat: all leases of the process in one call      control runtime
//! ```
//!
//! Always true:
//! - no more jobs run than there are slots, and a handler that blocks its thread keeps its slot;
//! - every call of the store is made on the control runtime, where no handler runs;
//! - an end that is paid for is reported until the store has taken or refused it.
//!
//! Elsewhere: what an event does to a job (`coolant_core::lifecycle`), what a handler is
//! (`coolant_core::handler`).

mod builder;
mod claims;
mod handlers;
mod heartbeat;
mod leases;
mod patience;
mod permits;
mod presence;
mod run_once;
mod shutdown;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::names::{JobType, Queue};
use coolant_core::prices::Prices;
use coolant_core::process::ProcessId;
use coolant_core::store::{Store, StoreError};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinError, JoinSet};

pub use builder::{BuildError, WorkerBuilder};
pub use permits::LooseCalls;
pub use shutdown::Shutdown;

use crate::bell::Bell;
use handlers::Handlers;
use heartbeat::Heartbeat;
use leases::{Leases, Stop};
use patience::{Backoff, Closing, Courier, Outage};
use presence::Presence;
use run_once::Settled;

/// How long the process waits, after the drain, for the store to take the last reports.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Runs jobs of some queues, so many at a time.
pub struct Worker {
    inner: Arc<Inner>,
    /// Tells all that waits for the store to give up; its end tells the same.
    closing: watch::Sender<bool>,
}

/// What all tasks of a worker share.
struct Inner {
    store: Arc<dyn Store>,
    courier: Arc<Courier>,
    leases: Arc<Leases>,
    handlers: Handlers,
    bell: Bell,
    closing: Closing,
    slots: Arc<Semaphore>,
    settings: Settings,
    /// This process's name among others, once its death could be seen.
    process: Arc<OnceLock<ProcessId>>,
    finished: AtomicUsize,
    released: AtomicUsize,
}

/// What a worker was built with.
#[derive(Debug, Clone)]
struct Settings {
    name: String,
    queues: Vec<Queue>,
    job_types: Vec<JobType>,
    lease: Option<Duration>,
    poll: (Duration, Duration),
    drain: Duration,
    prices: Prices,
}

/// Why a worker did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store needs a migration, or is no store of this program.
    #[error("the worker cannot use the store")]
    Store(#[source] StoreError),
}

/// What became of the jobs that ran when the shutdown was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Ended by themselves.
    pub finished: usize,
    /// Given back; claimable at once.
    pub released: usize,
    /// Neither, since the store did not answer: their leases run out.
    pub left: usize,
}

impl Worker {
    /// Builds one over a store.
    pub fn builder(store: Arc<dyn Store>) -> WorkerBuilder {
        WorkerBuilder::new(store)
    }

    /// Runs jobs until the shutdown is asked for, then drains and gives back what is left.
    ///
    /// Dropping the future is a crash: nothing is given back, and its leases end when others notice.
    ///
    /// # Errors
    /// If the store can never serve, as it is. A store that is only away is waited for.
    pub async fn run(self, shutdown: Shutdown) -> Result<Drained, RunError> {
        self.until_ready(&shutdown).await?;
        let mut background = JoinSet::new();
        background.spawn(Arc::clone(&self.inner).keep_beating());
        let mut jobs = JoinSet::new();
        let presence = Presence::enter(&self.inner.store, Arc::clone(&self.inner.process)).await;
        self.inner.claim_until_asked(&shutdown, &mut jobs).await;
        let drained = self.drain(jobs, &shutdown).await;
        // Whoever leaves leases behind is better found dead than forgotten.
        if drained.left == 0 {
            presence.leave().await;
        }
        Ok(drained)
    }

    async fn until_ready(&self, shutdown: &Shutdown) -> Result<(), RunError> {
        let outage = Outage::new("ready");
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        while !shutdown.is_asked() {
            match patience::within(patience::LONGEST_CALL, self.inner.store.ready()).await {
                Ok(()) => {
                    outage.is_over();
                    break;
                }
                Err(error @ StoreError::NotMigrated(_)) => return Err(RunError::Store(error)),
                Err(error) => outage.goes_on(&error),
            }
            let _ = tokio::time::timeout(backoff.next(), shutdown.asked()).await;
        }
        Ok(())
    }

    async fn drain(&self, mut jobs: JoinSet<()>, shutdown: &Shutdown) -> Drained {
        let inner = &self.inner;
        let finished_before = inner.finished.load(Ordering::Relaxed);
        let released_before = inner.released.load(Ordering::Relaxed);
        tracing::info!(worker = inner.settings.name, running = inner.leases.len(), "the worker drains");
        tokio::select! {
            () = all_ended(&mut jobs) => {}
            () = tokio::time::sleep(inner.settings.drain) => {}
            () = shutdown.asked_now() => {}
        }
        inner.leases.stop_all(Stop::Shutdown);
        let _ = tokio::time::timeout(LAST_REPORTS, inner.leases.none_left()).await;
        let drained = Drained {
            finished: inner.finished.load(Ordering::Relaxed) - finished_before,
            released: inner.released.load(Ordering::Relaxed) - released_before,
            left: inner.leases.len(),
        };
        self.closing.send_replace(true);
        let Drained { finished, released, left } = drained;
        tracing::info!(worker = inner.settings.name, finished, released, left, "the worker has stopped");
        drained
    }
}

impl Inner {
    /// Beats as long as the worker lives: a panic in the store may cost a beat, not the heartbeat.
    async fn keep_beating(self: Arc<Self>) {
        loop {
            let heartbeat = Heartbeat {
                store: Arc::clone(&self.store),
                leases: Arc::clone(&self.leases),
                bell: self.bell.clone(),
                outage: Outage::new("renew"),
            };
            let mut beating = JoinSet::new();
            beating.spawn(async move { heartbeat.run().await });
            if let Some(ended) = beating.join_next().await {
                log_fault(ended);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn tally(&self, settled: &Settled) {
        let released = matches!(settled, Settled::Made { is_release: true, .. });
        let counter = if released { &self.released } else { &self.finished };
        if !matches!(settled, Settled::GivenUp(_)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn all_ended(jobs: &mut JoinSet<()>) {
    while let Some(ended) = jobs.join_next().await {
        log_fault(ended);
    }
}

/// A task of the worker itself that panicked: a fault of this program, or of the store.
fn log_fault(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a task of the worker panicked; its job's lease runs out by itself");
    }
}

fn final_failure(class: FailureClass, code: &str, message: impl std::fmt::Display) -> Failure {
    Failure { final_: true, ..Failure::new(class, code, message.to_string()) }
}
