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

/// Whether a change needs the job's lock key free of other jobs: a claim, and a beat so late that its
/// lease had run out and another job of the key may run by now. Such a beat is refused as `LeaseLost`
/// while another job holds the key; late steps and a late success are kept, since they are paid for.
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
