//! Lock keys: jobs that share one run one at a time, and share the cooldown.
//!
//! A lock key is held by a job, never by a worker, and for a time that the job's own state tells; so there
//! is nothing to unlock, and nothing that a crash could leave locked.

use super::Event;
use crate::failure::FailureClass;
use crate::job::{Job, JobState, Reopen, Wait};
use crate::time::Timestamp;

/// Until when a job holds its lock key if nothing happens to it; `None` if it does not. A store keeps it
/// beside the job, so that a claim can pass over the others of that key.
///
/// - Running: to the end of its lease. A worker that is lost frees the key by that, at once.
/// - Pending after a failure: to the end of the wait.
/// - Failed for good, by what may pass another time: to the end of the cooldown.
/// - Everything else holds nothing: a success, a cancel, a permanent failure, `WORKER_LOST`, a job that
///   waits for its turn or for its upstream.
#[must_use]
pub fn locked_until(job: &Job) -> Option<Timestamp> {
    job.spec.lock_key.as_ref()?;
    match &job.state {
        JobState::Running { lease, .. } => Some(lease.until),
        JobState::Pending { visible_at, wait: Wait::Cooling } => Some(*visible_at),
        JobState::Failed { reopen: Reopen::From(until), .. } if cools(job) => Some(*until),
        _ => None,
    }
}

/// Until when a job holds its lock key, if it holds it now: no other job of its tenant with that key is
/// started before then.
#[must_use]
pub fn holds_lock(job: &Job, now: Timestamp) -> Option<Timestamp> {
    locked_until(job).filter(|until| *until > now)
}

/// Until when `other` keeps an event from happening to `job`, because it holds the lock key of both;
/// `None` if it does not. Two events can be kept from happening:
///
/// - a claim: one job of a key runs at a time;
/// - a beat of a lease that had run out when `other` took over, also if the clock was set back since. The
///   store answers it `LeaseLost`. Late steps and a late success are kept all the same: they are paid for.
#[must_use]
pub fn bars(other: &Job, job: &Job, event: &Event, now: Timestamp) -> Option<Timestamp> {
    let until = holds_lock(other, now)?;
    let name = |job: &Job| (job.spec.tenant.clone(), job.spec.lock_key.clone());
    if other.id == job.id || name(other) != name(job) {
        return None;
    }
    let barred = match (event, &job.state) {
        (Event::Claim { .. }, _) => true,
        (Event::Renew { .. }, JobState::Running { lease, .. }) => {
            let taken_at = match &other.state {
                JobState::Running { lease, .. } => lease.started_at,
                _ => other.updated_at,
            };
            lease.until <= now || lease.until <= taken_at
        }
        _ => false,
    };
    barred.then_some(until)
}

/// Whether an event is one that [`bars`] can keep from happening, as long as nobody sets the clock back: a
/// claim, or a beat of a lease that ran out. Most events are none, and spare a store the look for others.
#[must_use]
pub fn needs_lock(job: &Job, event: &Event, now: Timestamp) -> bool {
    job.spec.lock_key.is_some()
        && match (event, &job.state) {
            (Event::Claim { .. }, _) => true,
            (Event::Renew { .. }, JobState::Running { lease, .. }) => lease.until <= now,
            _ => false,
        }
}

fn cools(job: &Job) -> bool {
    let class = job.last_error.as_ref().map(|failure| failure.class);
    class.is_some_and(|class| class != FailureClass::WorkerLost && !class.is_permanent())
}
