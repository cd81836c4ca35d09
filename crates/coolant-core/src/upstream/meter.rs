//! Meters: how much of its limits an upstream or a tenant has used.

use serde::{Deserialize, Serialize};

use super::admit::Live;
use super::bucket::Bucket;
use super::limits::Limits;
use super::room::{Lack, Need, Room, Stated};
use crate::money::Money;
use crate::time::Timestamp;

const DAY_MS: i64 = 86_400_000;
const MINUTE_MS: i64 = 60_000;

/// The number of a UTC day.
#[must_use]
pub const fn day_of(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(DAY_MS)
}

/// The first instant of the next UTC day.
#[must_use]
pub const fn end_of_day(now: Timestamp) -> Timestamp {
    Timestamp::from_millis((day_of(now) + 1).saturating_mul(DAY_MS))
}

/// What was used, and when. What is in flight is not in here: it is counted from the permits themselves, so
/// that nothing of it can be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Meter {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// What the provider itself said is left.
    stated: Stated,
    day: i64,
    spent: Money,
    /// Since when the budget is spent, as it was noticed.
    spent_since: Option<Timestamp>,
    minute: i64,
    minute_requests: u64,
    minute_tokens: u64,
}

impl Meter {
    /// Money spent on the day of `now`.
    #[must_use]
    pub fn spent_today(&self, now: Timestamp) -> Money {
        if self.day == day_of(now) { self.spent } else { Money::default() }
    }

    /// Calls begun and tokens used within the minute of `now`.
    #[must_use]
    pub fn used_this_minute(&self, now: Timestamp) -> (u64, u64) {
        if self.minute == now.as_millis().div_euclid(MINUTE_MS) {
            (self.minute_requests, self.minute_tokens)
        } else {
            (0, 0)
        }
    }

    /// Whether today's budget is spent, reservations aside.
    #[must_use]
    pub fn is_exhausted(&self, limits: &Limits, now: Timestamp) -> bool {
        limits.budget_per_day.is_some_and(|budget| self.spent_today(now) >= budget)
    }

    /// Since when it is spent, if it is: within the day, as each day has money again. Now, if nobody noticed
    /// before.
    pub(super) fn exhausted_since(&self, limits: &Limits, now: Timestamp) -> Option<Timestamp> {
        let never_has_any = limits.budget_per_day == Some(Money::default());
        let lasts = |since: &Timestamp| never_has_any || day_of(*since) == day_of(now);
        self.is_exhausted(limits, now).then(|| self.spent_since.filter(lasts).unwrap_or(now))
    }

    /// Remembers since when the budget is spent.
    pub(super) fn notice(&mut self, limits: &Limits, now: Timestamp) {
        self.spent_since = self.exhausted_since(limits, now);
    }

    /// How long until a call of so many tokens may begin by the rates; zero if it may now.
    pub(super) fn wait(&self, limits: &Limits, tokens: u64, now: Timestamp) -> std::time::Duration {
        let of = |rate: Option<_>, bucket: Option<Bucket>, units| {
            rate.zip(bucket).map(|(rate, bucket)| bucket.wait(rate, units, now)).unwrap_or_default()
        };
        of(limits.requests, self.requests, 1).max(of(limits.tokens, self.tokens, tokens))
    }

    /// The room that is missing for a call of so many tokens by the provider's own word, if any is.
    pub(super) fn lack(&self, tokens: u64, live: Live, now: Timestamp) -> Option<Lack> {
        self.stated.lack(tokens, live, now)
    }

    /// A call that used so much of the provider's limits is over; its answer may have said what is left of them.
    pub(super) fn hear(&mut self, room: Option<&Room>, used: Need, now: Timestamp) {
        self.stated.hear(room, used, now);
    }

    /// A call of so many tokens begins.
    pub(super) fn begin(&mut self, limits: &Limits, tokens: u64, now: Timestamp) {
        let take = |rate: Option<super::Rate>, bucket: Option<Bucket>, units| {
            rate.map(|rate| bucket.unwrap_or_else(|| Bucket::full(rate, now)).take(rate, units, now))
        };
        self.requests = take(limits.requests, self.requests, 1);
        self.tokens = take(limits.tokens, self.tokens, tokens);
        self.stated.settle_down(now);
        self.turn_minute(now);
        self.minute_requests = self.minute_requests.saturating_add(1);
        self.minute_tokens = self.minute_tokens.saturating_add(tokens);
    }

    /// A call that was estimated at so many tokens used so many, and cost so much.
    pub(super) fn end(
        &mut self,
        limits: &Limits,
        (estimated, used): (u64, u64),
        cost: Money,
        now: Timestamp,
    ) {
        if let (Some(rate), Some(bucket)) = (limits.tokens, self.tokens) {
            self.tokens = Some(match estimated.checked_sub(used) {
                Some(unused) => bucket.give_back(rate, unused, now),
                None => bucket.take(rate, used - estimated, now),
            });
        }
        self.turn_minute(now);
        self.minute_tokens = self.minute_tokens.saturating_sub(estimated).saturating_add(used);
        self.spent = self.spent_today(now).plus(cost);
        self.day = day_of(now);
        self.notice(limits, now);
    }

    fn turn_minute(&mut self, now: Timestamp) {
        let minute = now.as_millis().div_euclid(MINUTE_MS);
        if self.minute != minute {
            (self.minute, self.minute_requests, self.minute_tokens) = (minute, 0, 0);
        }
    }
}
