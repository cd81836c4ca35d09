//! What a store counts: the metrics, and the counters that some of them add up.

use std::time::Duration;

use crate::money::Money;

/// The six metrics, and money.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Pending jobs.
    pub queue_depth: i64,
    /// 95th percentile of the time from first start to end, of jobs that ended within the window.
    pub job_duration_p95: Option<Duration>,
    /// Failed jobs among those that ended within the window, 0 to 1.
    pub job_failure_rate: f64,
    /// Attempts that began within the window and followed one that failed or was lost. What was given back
    /// or deferred is not tried again: it is tried later.
    pub retry_count: i64,
    /// Jobs in the dead-letter queue.
    pub dlq_message_count: i64,
    /// Submits that found their key taken, within the window.
    pub duplicate_request_count: i64,
    /// Submits refused for their key's other parameters, within the window.
    pub conflict_count: i64,
    /// Paid calls within the window.
    pub paid_calls: i64,
    /// What they cost.
    pub spent: Money,
    /// What was saved within the window, by what saved it.
    pub saved: Saved,
    /// Starts refused by a cooldown or a closure within the window.
    pub blocked_calls: i64,
    /// Paid for output that no attempt kept, by attempts that ended within the window.
    pub wasted: Money,
}

/// Money that was not spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Saved {
    /// Submits that found their work done.
    pub by_keys: Money,
    /// Steps that later attempts got back.
    pub by_steps: Money,
    /// Content that had been embedded before.
    pub by_content: Money,
    /// Starts that a cooldown refused, had each cost as much as the attempts before. An estimate, so that
    /// [`Self::total`] is without it.
    pub by_cooldowns: Money,
}

impl Saved {
    /// What surely would have been paid again.
    #[must_use]
    pub const fn total(&self) -> Money {
        self.by_keys.plus(self.by_steps).plus(self.by_content)
    }
}

/// Something counted by the minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// A submit found its key taken.
    Duplicates,
    /// A submit was refused for its key's other parameters.
    Conflicts,
    /// A start was refused by a cooldown or a closure.
    BlockedStarts,
    /// Nano-dollars not paid again, since a submit found its work done.
    SavedByKeys,
    /// Nano-dollars not paid again, since a later attempt got back finished steps.
    SavedBySteps,
    /// Nano-dollars not paid, since content had been embedded before.
    SavedByContent,
    /// Nano-dollars that starts refused by a cooldown would have cost, had each cost as much as the attempts
    /// before: an estimate.
    SavedByCooldowns,
}

impl Counter {
    /// The name it is stored under.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicates => "duplicates",
            Self::Conflicts => "conflicts",
            Self::BlockedStarts => "blocked_starts",
            Self::SavedByKeys => "saved_nanos",
            Self::SavedBySteps => "saved_steps_nanos",
            Self::SavedByContent => "saved_content_nanos",
            Self::SavedByCooldowns => "saved_cooldown_nanos",
        }
    }
}
