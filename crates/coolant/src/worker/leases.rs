//! The leases that this process holds, and the lifeline of the jobs under them.
//!
//! Always true:
//! - a lease is listed from its claim until its job is settled, so it is renewed also while a handler waits
//!   for a thread and while the store keeps a settle waiting;
//! - only the store's answer makes a lease lost, never a clock of this process;
//! - a job stops once, for the first reason that came.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use coolant_core::failure::FailureClass;
use coolant_core::handler::{HandlerError, Lifeline};
use coolant_core::job::{JobId, LeaseToken, Progress};
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::money::Usage;
use coolant_core::names::StepName;
use coolant_core::prices::Prices;
use coolant_core::store::{Claimed, JobChange};
use coolant_core::time::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, OwnedRwLockReadGuard, RwLock, watch};

use super::patience::{Courier, NotMade};
use crate::size;

/// Why a job has to stop before its handler is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Somebody cancelled it; the store has ended it.
    Cancelled,
    /// Its lease is somebody else's.
    LeaseLost,
    /// The store ended the attempt by its time limit.
    Ended,
    /// The attempt is over its time limit by this process's clock.
    TimeUp,
    /// The process shuts down.
    Shutdown,
}

impl Stop {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::LeaseLost => "lease_lost",
            Self::Ended | Self::TimeUp => "timed_out",
            Self::Shutdown => "shutdown",
        }
    }
}

/// All leases of the process.
#[derive(Default)]
pub(super) struct Leases {
    list: Mutex<List>,
    /// Rung when a beat is due earlier than planned.
    pub(super) earlier: Notify,
    /// Rung when a lease is off the list.
    fewer: Notify,
    /// Rung after each plan.
    planned: Notify,
}

#[derive(Default)]
struct List {
    held: HashMap<JobId, Arc<Held>>,
    /// When the next beat is to come; `None` while there is nothing to renew.
    due: Option<Instant>,
    /// From then on the leases have gone without a beat for too long.
    late: Option<Instant>,
}

/// A lease, and what passes between its job and the heartbeats.
pub(super) struct Held {
    pub(super) job_id: JobId,
    pub(super) token: LeaseToken,
    pub(super) length: Duration,
    /// When the attempt is over its time limit, by this process's clock.
    pub(super) deadline: Instant,
    beats: Mutex<Beats>,
    progress: Mutex<Option<Progress>>,
    stop: watch::Sender<Option<Stop>>,
    /// Read by each step that is being kept and each call that is being settled, written before the job is settled.
    pub(super) saving: Arc<RwLock<()>>,
}

/// How the renewals of a lease go.
#[derive(Debug, Clone, Copy)]
struct Beats {
    /// When the newest successful one was sent.
    renewed_at: Instant,
    /// When to try again one that somebody else's transaction held up.
    again_at: Option<Instant>,
}

/// How soon a renewal is tried again that somebody else's transaction held up. Shorter than a third of the
/// shortest lease.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Takes a lease off the list when its job is settled, or dropped.
pub(super) struct Hold {
    leases: Arc<Leases>,
    pub(super) held: Arc<Held>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.leases.forget(&self.held);
    }
}

impl Leases {
    /// Lists the lease of a claim that was asked for at that instant.
    pub(super) fn hold(self: &Arc<Self>, claimed: &Claimed, asked_at: Instant) -> Hold {
        let lease = &claimed.lease;
        let limit = lease.deadline.since(lease.started_at);
        let held = Arc::new(Held {
            job_id: claimed.record.job.id,
            token: lease.token,
            length: lease.length,
            deadline: after(Instant::now(), limit),
            beats: Mutex::new(Beats { renewed_at: asked_at, again_at: None }),
            progress: Mutex::new(None),
            stop: watch::channel(None).0,
            saving: Arc::default(),
        });
        let (due, late) = (held.beat_due(), held.beat_late());
        let mut list = self.list();
        if list.due.is_none_or(|planned| due < planned) {
            list.due = Some(due);
            self.earlier.notify_one();
        }
        list.late = list.late.into_iter().chain(late).min();
        if let Some(superseded) = list.held.insert(held.job_id, Arc::clone(&held)) {
            // Its lease ran out unnoticed, and this process took the job from itself.
            superseded.stop(Stop::LeaseLost);
        }
        drop(list);
        Hold { leases: Arc::clone(self), held }
    }

    /// All that are held, and none that is lost.
    fn all(&self) -> Vec<Arc<Held>> {
        self.list().held.values().cloned().collect()
    }

    /// Those whose beat is due now, and those whose beat would be soon: then they go in one call from now on.
    pub(super) fn due(&self, now: Instant) -> Vec<Arc<Held>> {
        let is_due = |held: &&Arc<Held>| held.beat_due() <= after(now, held.length / 6);
        self.list().held.values().filter(is_due).cloned().collect()
    }

    /// When the next beat is due, if there is anything to renew.
    pub(super) fn plan(&self) -> Option<Instant> {
        let mut list = self.list();
        list.due = list.held.values().map(|held| held.beat_due()).min();
        list.late = list.held.values().filter_map(|held| held.beat_late()).min();
        self.planned.notify_one();
        list.due
    }

    /// Ends when no lease has gone without a beat for long. A claim before that, when the store is back
    /// from an outage, could take our own running jobs from us and pay for them again.
    pub(super) async fn none_late(&self) {
        loop {
            let planned = self.planned.notified();
            if self.list().late.is_none_or(|late| Instant::now() < late) {
                return;
            }
            planned.await;
        }
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.list().held.len()
    }

    /// Ends when every job is settled.
    pub(super) async fn none_left(&self) {
        loop {
            let fewer = self.fewer.notified();
            if self.list().held.is_empty() {
                return;
            }
            fewer.await;
        }
    }

    /// Tells every job to stop.
    pub(super) fn stop_all(&self, reason: Stop) {
        for held in self.all() {
            held.stop(reason);
        }
    }

    /// Renews it no more.
    pub(super) fn forget(&self, held: &Held) {
        let mut list = self.list();
        if list.held.get(&held.job_id).is_some_and(|listed| listed.token == held.token) {
            list.held.remove(&held.job_id);
        }
        drop(list);
        self.fewer.notify_one();
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Tells the job to stop, unless it was told already.
    pub(super) fn stop(&self, reason: Stop) {
        self.stop.send_if_modified(|stop| {
            let is_first = stop.is_none();
            stop.get_or_insert(reason);
            is_first
        });
    }

    /// Ends when the job has to stop, and says why.
    pub(super) async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        let reason = stop.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        // The sender is our own, so there is always a reason.
        reason.unwrap_or(Stop::LeaseLost)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// The event that renews it, with the progress that nobody has seen yet.
    pub(super) fn renewal(&self) -> JobChange {
        let progress = self.progress().take();
        JobChange::new(self.job_id, Event::Renew { token: self.token, progress })
    }

    /// Takes the progress of a renewal back that did not get through, unless there is a newer one.
    pub(super) fn take_back(&self, renewal: JobChange) {
        self.beats().again_at = None;
        if let Event::Renew { progress: Some(progress), .. } = renewal.event {
            self.progress().get_or_insert(progress);
        }
    }

    /// When it should be renewed next: after a third of its length, so that two beats may fail.
    fn beat_due(&self) -> Instant {
        let Beats { renewed_at, again_at } = *self.beats();
        again_at.unwrap_or_else(|| after(renewed_at, self.length / 3))
    }

    /// When it has missed a beat for so long that half of the rest of its length is gone. Never where another
    /// transaction holds the job: nobody can claim it then.
    fn beat_late(&self) -> Option<Instant> {
        let Beats { renewed_at, again_at } = *self.beats();
        again_at.is_none().then(|| after(renewed_at, self.length * 2 / 3))
    }

    /// Renewed by a call that began then.
    pub(super) fn renewed(&self, asked_at: Instant) {
        *self.beats() = Beats { renewed_at: asked_at, again_at: None };
    }

    /// Somebody else's transaction held this renewal up.
    pub(super) fn put_off(&self, renewal: JobChange) {
        self.take_back(renewal);
        self.beats().again_at = Some(Instant::now() + AGAIN_AFTER);
    }

    /// Ends when no step is being kept any more: a settle before it would lose what the step paid for.
    pub(super) async fn steps_kept(&self) {
        drop(self.saving.write().await);
    }

    fn progress(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That much later; so late that it never comes where the clock has no such instant.
fn after(start: Instant, span: Duration) -> Instant {
    const NEVER: Duration = Duration::from_secs(86_400 * 365 * 30);
    start.checked_add(span).unwrap_or_else(|| start + NEVER)
}

/// What a handler's context stands on.
pub(super) struct Line {
    pub(super) held: Arc<Held>,
    pub(super) courier: Arc<Courier>,
    /// What calls cost whose cost the handler does not state.
    pub(super) prices: Prices,
    /// Store calls run here: a connection whose task lived on the handlers' runtime would stand still
    /// while a handler blocks its thread, and the heartbeats with it.
    pub(super) control: tokio::runtime::Handle,
    /// How often the job was put back already.
    pub(super) deferrals: u32,
}

/// The least that a handler waits before it calls the store again.
const PAUSE: Duration = Duration::from_millis(500);

#[async_trait]
impl Lifeline for Line {
    async fn save_step(&self, name: &str, output: &Value, mut usage: Vec<Usage>) -> Result<(), HandlerError> {
        usage.iter_mut().for_each(|call| self.prices.price(call, today()));
        let name = StepName::parse(name).map_err(|error| unusable("INVALID_STEP_NAME", error))?;
        size::check(output).map_err(|error| unusable("STEP_TOO_LARGE", error))?;
        let Ok(saving) = Arc::clone(&self.held.saving).try_read_owned() else {
            return Err(HandlerError::Gone(Refusal::LeaseLost));
        };
        let event =
            Event::SaveStep { token: self.held.token, name: name.into(), output: output.clone(), usage };
        let change = JobChange::new(self.held.job_id, event);
        // A task of its own: it is paid for, so it is kept also if the handler is dropped meanwhile.
        let kept = self.control.spawn(keep(Arc::clone(&self.courier), change, saving));
        match kept.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NotMade::Refused(refusal))) => Err(HandlerError::Gone(refusal)),
            Ok(Err(NotMade::GivenUp(error))) => Err(error.into()),
            // The process ends.
            Err(_) => Err(HandlerError::Gone(Refusal::LeaseLost)),
        }
    }

    fn report(&self, progress: Progress) {
        *self.held.progress() = Some(progress);
    }

    async fn pause(&self) {
        // A part of the wait is left to chance, so that the handlers of a fleet do not come back as one.
        let wait = PAUSE.mul_f64(1.0 + rand::random::<f64>());
        let _ = tokio::time::timeout(wait, self.held.stopped()).await;
    }

    fn time_left(&self) -> Duration {
        self.held.deadline.saturating_duration_since(Instant::now())
    }

    async fn stopped(&self) {
        self.held.stopped().await;
    }

    fn is_stopped(&self) -> bool {
        self.held.is_stopped()
    }
}

/// The day whose prices hold; to the day, the machine's clock is good enough.
pub(super) fn today() -> Timestamp {
    SystemTime::now().into()
}

async fn keep(
    courier: Arc<Courier>,
    change: JobChange,
    _saving: OwnedRwLockReadGuard<()>,
) -> Result<(), NotMade> {
    courier.deliver(change).await.map(drop)
}

/// A fault of the handler that another try would only repeat.
fn unusable(code: &str, message: impl std::fmt::Display) -> HandlerError {
    HandlerError::Failed(super::final_failure(FailureClass::HandlerError, code, message))
}
