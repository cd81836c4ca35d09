//! Retention: how long what is over is kept.

use std::time::Duration;

use crate::job::{Job, JobState, Reopen};
use crate::time::{Timestamp, millis_up};

/// How long finished things are kept; `None` for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Jobs that succeeded, were cancelled or discarded, with their attempts, steps and results, and the
    /// counts of that time. A job that is forgotten gives its key back.
    pub finished: Option<Duration>,
    /// Dead-lettered jobs: they wait for somebody.
    pub dead_letters: Option<Duration>,
    /// Paid calls. They outlive their jobs, so that what was spent can be told.
    pub ledger: Option<Duration>,
}

impl Default for Retention {
    /// Thirty days for what is finished; dead letters and the ledger for ever.
    fn default() -> Self {
        Self { finished: Some(Duration::from_secs(30 * 86_400)), dead_letters: None, ledger: None }
    }
}

impl Retention {
    /// Whether a job is to be forgotten.
    #[must_use]
    pub fn is_over(&self, job: &Job, now: Timestamp) -> bool {
        let kept = match &job.state {
            JobState::Succeeded { .. } | JobState::Cancelled { .. } => self.finished,
            JobState::Failed { reopen: Reopen::Discarded, .. } => self.finished,
            JobState::Failed { .. } => self.dead_letters,
            JobState::Pending { .. } | JobState::Running { .. } => None,
        };
        kept.zip(job.finished_at).is_some_and(|(kept, at)| at <= before(kept, now))
    }
}

/// What ended then, or earlier, was kept that long.
#[must_use]
pub fn before(kept: Duration, now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(millis_up(kept)))
}
