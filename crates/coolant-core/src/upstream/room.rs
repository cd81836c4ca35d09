//! Room: what a provider says is left of its limits, and what of that still holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::admit::Live;
use crate::time::Timestamp;

/// No statement holds for longer: one that is wrong has to end by itself.
const LONGEST: Duration = Duration::from_secs(3600);
/// Statements about one limit that are kept: those with the least left.
const KEPT: usize = 8;
/// When to ask again where calls in flight may use less than they said.
const SOON: Duration = Duration::from_secs(1);

/// What one answer states is left of its provider's limits. A limit that it says nothing of is not in it.
///
/// Several limits may count the same: calls by the minute and by the day.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Room {
    /// Calls. What is counted in units that nobody knows is here when nothing is left of it, since it lets no
    /// call begin either.
    pub requests: Vec<Left>,
    /// Tokens in and out together.
    pub tokens: Vec<Left>,
}

impl Room {
    /// Whether the answer stated nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.tokens.is_empty()
    }
}

/// What is left of one limit until its reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Calls, or tokens.
    pub amount: u64,
    /// How long it is to the reset, from the answer on; above zero.
    pub reset_in: Duration,
}

/// What still holds of the room that was stated, for an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stated {
    requests: Standing,
    tokens: Standing,
}

/// What a call needs, or has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) requests: u64,
    pub(super) tokens: u64,
}

/// Room that is missing for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lack {
    /// When to ask again.
    pub(super) wait: Duration,
    unit: &'static str,
    left: u64,
    in_flight: u64,
    need: u64,
}

impl Lack {
    /// For people.
    pub(super) fn reason(&self, whose: &str) -> String {
        let Self { unit, left, in_flight, need, .. } = self;
        format!(
            "the provider of {whose} says how much is left of its limits; {unit} left: {left}, \
             in flight: {in_flight}, needed: {need}"
        )
    }
}

impl Stated {
    /// A call that used so much is over; its answer may have stated room.
    pub(super) fn hear(&mut self, room: Option<&Room>, used: Need, now: Timestamp) {
        let (requests, tokens) =
            room.map_or((&[][..], &[][..]), |room| (room.requests.as_slice(), room.tokens.as_slice()));
        self.requests.hear(requests, used.requests, now);
        self.tokens.hear(tokens, used.tokens, now);
    }

    /// Forgets what holds no more.
    pub(super) fn settle_down(&mut self, now: Timestamp) {
        self.requests.settle_down(now);
        self.tokens.settle_down(now);
    }

    /// The room that is missing for a call of so many tokens beside those in flight, if any is.
    pub(super) fn lack(&self, tokens: u64, live: Live, now: Timestamp) -> Option<Lack> {
        // A call uses something, whatever its estimate says.
        let (tokens, calls) = (tokens.max(1), u64::from(live.permits));
        let requests = self.requests.lack("requests", 1, calls, now);
        let tokens = self.tokens.lack("tokens", tokens, live.tokens, now);
        requests.into_iter().chain(tokens).max_by_key(|lack| lack.wait)
    }
}

/// What was stated about one kind of unit. None of these both has less left and holds longer than another.
///
/// Answers overtake one another, and nothing in them says which is the older one. So none replaces another: each
/// holds until its reset, and what a call finds is the same in whatever order they came. Until its reset a window
/// only empties, so the one with less left is right about it; where a provider refills meanwhile, calls wait for
/// its reset at worst.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Standing(Vec<Held>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    left: u64,
    until: Timestamp,
}

impl Standing {
    fn hear(&mut self, stated: &[Left], used: u64, now: Timestamp) {
        self.settle_down(now);
        if stated.is_empty() {
            // It is not in what was said before, and nobody will say it now.
            self.0.iter_mut().for_each(|held| held.left = held.left.saturating_sub(used));
        }
        for Left { amount, reset_in } in stated {
            let said = Held { left: *amount, until: now.plus((*reset_in).min(LONGEST)) };
            if said.until <= now || self.0.iter().any(|held| held.implies(said)) {
                continue;
            }
            self.0.retain(|held| !said.implies(*held));
            let place = self.0.partition_point(|held| held.left < said.left);
            self.0.insert(place, said);
            self.0.truncate(KEPT);
        }
    }

    fn settle_down(&mut self, now: Timestamp) {
        self.0.retain(|held| held.until > now);
    }

    fn lack(&self, unit: &'static str, need: u64, in_flight: u64, now: Timestamp) -> Option<Lack> {
        let lacks = self.0.iter().filter(|held| held.until > now).filter_map(|held| {
            let left = held.left;
            let until_reset = held.until.since(now);
            // What is in flight may turn out smaller than it said, and its answers state the room anew.
            let wait = if left >= need { until_reset.min(SOON) } else { until_reset };
            (left.saturating_sub(in_flight) < need).then_some(Lack { wait, unit, left, in_flight, need })
        });
        lacks.max_by_key(|lack| lack.wait)
    }
}

impl Held {
    /// Whether nothing is refused by the other that this one lets pass.
    fn implies(self, other: Self) -> bool {
        self.left <= other.left && self.until >= other.until
    }
}
