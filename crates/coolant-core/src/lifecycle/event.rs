//! What can happen to a job, and what is answered.

use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;
use crate::job::{Job, Lease, LeaseToken, Outcome, Progress};
use crate::money::Usage;
use crate::time::Timestamp;

/// What happens to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker wants to run it.
    Claim {
        /// Its label.
        worker: String,
        /// The lease it asks for; the job's own if it asks for none.
        lease: Option<Duration>,
    },
    /// A heartbeat.
    Renew {
        /// The lease.
        token: LeaseToken,
        /// How far the attempt is, if that changed.
        progress: Option<Progress>,
    },
    /// A finished piece, to be kept.
    SaveStep {
        /// The lease.
        token: LeaseToken,
        /// The step's name.
        name: String,
        /// What it gave.
        output: Value,
        /// The paid calls that made it.
        usage: Vec<Usage>,
    },
    /// The work is done.
    Succeed {
        /// The lease.
        token: LeaseToken,
        /// What it gave.
        result: Value,
        /// Paid calls that no step has booked.
        usage: Vec<Usage>,
    },
    /// The work failed.
    Fail {
        /// The lease.
        token: LeaseToken,
        /// How.
        failure: Failure,
        /// Random part of the wait, 0 to 1: rolled by the caller, since rules roll no dice.
        jitter: f64,
        /// Paid calls that no step has booked.
        usage: Vec<Usage>,
    },
    /// Not now: its upstream is closed. Uses up no attempt.
    Defer {
        /// The lease.
        token: LeaseToken,
        /// For how long.
        wait: Duration,
        /// Why, for people.
        reason: String,
        /// Paid calls that no step has booked.
        usage: Vec<Usage>,
    },
    /// A paid call of an attempt is over. Booked whatever became of the attempt: it is paid.
    Pay {
        /// The attempt's lease, which need not hold any more.
        token: LeaseToken,
        /// The step it was for.
        step: Option<String>,
        /// The calls.
        usage: Vec<Usage>,
    },
    /// Given back at a shutdown. Uses up no attempt.
    Release {
        /// The lease.
        token: LeaseToken,
    },
    /// Somebody wants it ended.
    Cancel,
    /// Somebody wants it run again.
    Reopen {
        /// Whether an operator insists, past the cooldown and past a permanent failure.
        force: bool,
    },
    /// Somebody takes it out of the dead-letter queue for good.
    Discard,
    /// The process that holds the lease is dead.
    HolderDied {
        /// The lease.
        token: LeaseToken,
    },
    /// Time has passed.
    Sweep,
    /// Something that it needs has let no job start since then, and still does not.
    Blocked {
        /// Since when.
        since: Timestamp,
        /// What the job ends with if it has waited too long.
        failure: Failure,
    },
}

impl Event {
    /// Those of its calls that were made under permits, with the attempt and the step: they are booked also if
    /// the change itself is refused.
    #[must_use]
    pub fn paid_under_permits(&self) -> Option<(LeaseToken, Option<String>, Vec<Usage>)> {
        let (token, step) = match self {
            Self::SaveStep { token, name, .. } => (*token, Some(name.clone())),
            Self::Pay { token, step, .. } => (*token, step.clone()),
            Self::Succeed { token, .. } | Self::Fail { token, .. } | Self::Defer { token, .. } => {
                (*token, None)
            }
            _ => return None,
        };
        let calls: Vec<_> = self.usage().iter().filter(|call| call.permit.is_some()).cloned().collect();
        (!calls.is_empty()).then_some((token, step, calls))
    }

    /// The paid calls that it carries.
    pub fn usage_mut(&mut self) -> Option<&mut Vec<Usage>> {
        match self {
            Self::SaveStep { usage, .. }
            | Self::Succeed { usage, .. }
            | Self::Fail { usage, .. }
            | Self::Defer { usage, .. }
            | Self::Pay { usage, .. } => Some(usage),
            _ => None,
        }
    }

    /// The same, to look at.
    #[must_use]
    pub fn usage(&self) -> &[Usage] {
        match self {
            Self::SaveStep { usage, .. }
            | Self::Succeed { usage, .. }
            | Self::Fail { usage, .. }
            | Self::Defer { usage, .. }
            | Self::Pay { usage, .. } => usage,
            _ => &[],
        }
    }
}

/// What an event did.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The caller holds this lease now.
    Claimed(Lease),
    /// It was claimable no more: its end is in the job's state.
    Ended,
    /// The lease is renewed, or the step kept, until then.
    Held {
        /// The lease's end.
        until: Timestamp,
    },
    /// The job was cancelled under its worker, which should stop; it has ended with this answer.
    Cancelled,
    /// The change is made.
    Done,
    /// It was so already; nothing changed.
    Already,
}

/// Why an event changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody may start it before that instant.
    #[error("the job may not be started yet")]
    NotVisible {
        /// From then on.
        visible_at: Timestamp,
    },
    /// The lease token is not the newest, or its attempt has ended.
    #[error("the lease is lost: the attempt was superseded or has ended")]
    LeaseLost,
    /// The job was cancelled; the attempt's work is not kept.
    #[error("the lease is lost: the job was cancelled")]
    LeaseLostByCancel,
    /// The job has ended, so it cannot be cancelled or claimed.
    #[error("the job has ended")]
    Ended,
    /// The job has not ended, so it cannot be reopened or discarded.
    #[error("the job has not ended")]
    NotEnded,
    /// It succeeded; there is nothing to do again.
    #[error("the job succeeded")]
    Succeeded,
    /// The cooldown after its failure still runs.
    #[error("the job is cooling down")]
    CoolingDown {
        /// The earliest retry.
        until: Timestamp,
    },
    /// The same work would fail again.
    #[error("the failure is permanent")]
    Permanent,
    /// No such job.
    #[error("there is no such job")]
    NotFound,
    /// Somebody else's transaction holds the job at this moment, so nothing was decided: ask again soon.
    #[error("another transaction holds the job")]
    Busy,
}

/// A job after an event, and what else the store has to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The job as it is now; its version is one higher if anything changed.
    pub job: Job,
    /// An attempt that ended with this event, for the history.
    pub ended: Option<AttemptEnd>,
    /// What to tell the caller.
    pub answer: Answer,
}

impl Transition {
    /// The attempt that what this event paid for, or wasted, belongs to: of a late payment not always the newest.
    #[must_use]
    pub fn attempt(&self, event: &Event) -> i64 {
        match (event, &self.ended) {
            (Event::Pay { token, .. }, _) => token.0,
            (_, Some(end)) => end.number,
            (_, None) => self.job.counters.claims,
        }
    }
}

/// How an attempt ended, for its row in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptEnd {
    /// Which one.
    pub number: i64,
    /// How.
    pub outcome: Outcome,
    /// Why, if not by success.
    pub error: Option<Failure>,
}

impl AttemptEnd {
    /// Whether its result keeps what it paid for. What an attempt paid for that has none is wasted, but for the
    /// calls of those steps that it saved.
    #[must_use]
    pub const fn keeps_calls(&self) -> bool {
        matches!(self.outcome, Outcome::Succeeded)
    }
}
