//! Token buckets: a rate with a bounded burst, counted in whole millionths.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::limits::Rate;
use crate::time::Timestamp;

/// Parts of one unit.
const MICRO: i128 = 1_000_000;

/// What is left of a rate at an instant. It fills up steadily to the rate's burst.
///
/// A taker of more than a whole burst waits until the bucket is full and leaves it in debt: no rate is
/// exceeded in the long run, and nothing that fits the rate is refused for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Millionths of a unit; below zero while in debt.
    level: i64,
    at: Timestamp,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn full(rate: Rate, now: Timestamp) -> Self {
        Self { level: narrow(capacity(rate)), at: now }
    }

    /// The bucket as it is at `now`. A clock that went back fills nothing.
    #[must_use]
    pub fn at(self, rate: Rate, now: Timestamp) -> Self {
        let elapsed = i128::from(now.as_millis()) - i128::from(self.at.as_millis());
        let gained = elapsed.max(0) * i128::from(rate.amount) * MICRO / i128::from(rate.per.millis());
        let level = (i128::from(self.level) + gained).min(capacity(rate));
        Self { level: narrow(level), at: self.at.max(now) }
    }

    /// How long until `units` may be taken; zero if they may be now.
    #[must_use]
    pub fn wait(self, rate: Rate, units: u64, now: Timestamp) -> Duration {
        let missing = (i128::from(units) * MICRO).min(capacity(rate)) - i128::from(self.level);
        if missing <= 0 {
            return Duration::ZERO;
        }
        // Counted from when the level was so: what is rounded off twice would be lost.
        let per_unit_time = i128::from(rate.amount.max(1)) * MICRO;
        let millis = (missing * i128::from(rate.per.millis()) + per_unit_time - 1) / per_unit_time;
        let left = millis + i128::from(self.at.as_millis()) - i128::from(now.as_millis());
        Duration::from_millis(u64::try_from(left.max(0)).unwrap_or(u64::MAX))
    }

    /// Takes `units`, whether they are there or not.
    #[must_use]
    pub fn take(self, rate: Rate, units: u64, now: Timestamp) -> Self {
        let bucket = self.at(rate, now);
        Self { level: narrow(i128::from(bucket.level) - i128::from(units) * MICRO), ..bucket }
    }

    /// Puts `units` back that were taken and not used.
    #[must_use]
    pub fn give_back(self, rate: Rate, units: u64, now: Timestamp) -> Self {
        let bucket = self.at(rate, now);
        let level = i128::from(bucket.level) + i128::from(units) * MICRO;
        Self { level: narrow(level.min(capacity(rate))), ..bucket }
    }
}

fn capacity(rate: Rate) -> i128 {
    i128::from(rate.burst()) * MICRO
}

fn narrow(level: i128) -> i64 {
    i64::try_from(level).unwrap_or(if level < 0 { i64::MIN } else { i64::MAX })
}
