//! Worker processes: how the death of one is known within seconds, not only when its leases end.
//!
//! Every process with workers holds a lock that its death frees by itself, and renews a row of its own each
//! second. One that has neither any more is dead, and its leases end at once. Each alone proves nothing: a
//! stopped process keeps its lock and is left to its leases, and one whose connection broke renews its row.
//!
//! Always true:
//! - what is believed dead by mistake loses nothing but its head start: its tokens are good until somebody
//!   else claims its jobs;
//! - after an outage that may have cut off everybody, everybody gets the time to come back first.
//!
//! Elsewhere: what the end of a lease does to a job (`lifecycle`), what the lock is (each store).

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::store::StoreResult;
use crate::time::Timestamp;

/// How often a process renews its row.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);
/// A row older than this is one that nobody renews any more.
pub const STALE_AFTER: Duration = Duration::from_secs(3);
/// Looks further apart than this are no watch: whoever makes them was away, or the store was.
const LONGEST_BLINK: Duration = Duration::from_secs(2);
/// How long somebody has to watch before it may call others dead. Longer than a living process takes to reach
/// a store that is back from an outage.
const SETTLE_IN: Duration = Duration::from_secs(5);

/// A name for one run of a process with workers; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub Uuid);

impl std::fmt::Display for ProcessId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for ProcessId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

/// A process's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Whose.
    pub id: ProcessId,
    /// When it was last renewed, by the store's clock.
    pub renewed_at: Timestamp,
}

/// Somebody who looks at all processes again and again, and knows for how long it has done so.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watch {
    /// First and last look of those that followed each other closely.
    looks: Option<(Timestamp, Timestamp)>,
}

impl Watch {
    /// Notes a look that found these rows at that time, and gives those whose process is dead if its lock is
    /// free as well.
    pub fn look(&mut self, found: &[Process], now: Timestamp) -> Vec<Process> {
        let since = match self.looks {
            Some((first, last)) if last <= now && now.since(last) <= LONGEST_BLINK => first,
            _ => now,
        };
        self.looks = Some((since, now));
        if now.since(since) < SETTLE_IN {
            return Vec::new();
        }
        found.iter().filter(|process| process.renewed_at.plus(STALE_AFTER) <= now).copied().collect()
    }
}

/// What became of an attempt to bury a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burial {
    /// It lives: its lock is held, or its row was renewed since.
    Lives,
    /// So many of its leases were ended, and there are more.
    Begun {
        /// How many; 0 where others are changing the rest at this moment.
        ended: u32,
    },
    /// The last of its leases were ended, and it is forgotten.
    Done {
        /// How many.
        ended: u32,
    },
}

/// A process's lock. Dropping it frees it, as death does, though not within any certain time.
#[async_trait]
pub trait ProcessLock: Send + Sync {
    /// Frees it, and returns when it is free.
    async fn free(self: Box<Self>);
}

/// The part of a store that knows which processes with workers there are.
#[async_trait]
pub trait ProcessStore: Send + Sync {
    /// Writes down that the process lives now. Its first call makes its row.
    async fn renew_process(&self, id: ProcessId) -> StoreResult<()>;

    /// Takes the lock of the process, which nobody else may. From then on the lock is taken again by itself
    /// whenever it is lost, until it is dropped.
    async fn lock_process(&self, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>>;

    /// All rows, and the store's time.
    async fn processes(&self) -> StoreResult<(Timestamp, Vec<Process>)>;

    /// If the lock of a process is free and its row is still this one: ends its leases
    /// ([`Event::HolderDied`](crate::lifecycle::Event::HolderDied)), this many at most, and forgets it once
    /// it has none.
    async fn bury_process(&self, process: Process, limit: u32) -> StoreResult<Burial>;

    /// Forgets a process that leaves by itself; leases that it still has run out by themselves.
    async fn forget_process(&self, id: ProcessId) -> StoreResult<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProcessId = ProcessId(Uuid::from_u128(1));

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn row(renewed_at: i64) -> Process {
        Process { id: ID, renewed_at: at(renewed_at) }
    }

    /// Looks twice a second, at rows that say when they were renewed. Gives the first instant of a death.
    fn first_death(watch: &mut Watch, from: i64, to: i64, renewed_at: impl Fn(i64) -> i64) -> Option<i64> {
        (from..=to).step_by(500).find(|now| !watch.look(&[row(renewed_at(*now))], at(*now)).is_empty())
    }

    #[test]
    fn a_process_that_renews_no_more_is_dead_after_three_seconds() {
        let mut watch = Watch::default();
        assert_eq!(first_death(&mut watch, 0, 20_000, |now| now - now % 1000), None);
        assert_eq!(first_death(&mut watch, 20_500, 30_000, |_| 20_400), Some(23_500));
    }

    #[test]
    fn who_has_just_begun_to_watch_calls_nobody_dead() {
        assert_eq!(first_death(&mut Watch::default(), 100_000, 110_000, |_| 0), Some(105_000));
    }

    #[test]
    fn after_an_outage_everybody_has_the_time_to_come_back() {
        let mut watch = Watch::default();
        first_death(&mut watch, 0, 10_000, |now| now);
        // Nobody reached the store from 10 s to 70 s. One comes back after 4 s, another one never does.
        let back = |now| if now < 74_000 { 10_000 } else { now };
        assert_eq!(first_death(&mut { watch }, 70_000, 100_000, back), None);
        assert_eq!(first_death(&mut watch, 70_000, 100_000, |_| 10_000), Some(75_000));
    }

    #[test]
    fn a_clock_that_was_set_back_begins_the_watch_anew() {
        let mut watch = Watch::default();
        first_death(&mut watch, 50_000, 60_000, |now| now);
        assert_eq!(first_death(&mut watch, 40_000, 60_000, |_| 0), Some(45_000));
    }
}
