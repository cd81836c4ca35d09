//! Money and tokens: what paid calls cost.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::FailureClass;
use crate::usage::{Reading, Tier};

use crate::upstream::{PermitId, Room};

/// An amount in US dollars, exact to 1e-9 (a nano-dollar). Sums saturate instead of wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i64);

impl Money {
    /// That many billionths of a dollar.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Billionths of a dollar.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The nearest billionth to that many dollars; `None` for what is no amount (NaN, negative, above
    /// nine billion).
    #[must_use]
    pub fn from_usd(usd: f64) -> Option<Self> {
        let nanos = (usd * 1e9).round();
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        (0.0..9e18).contains(&nanos).then_some(Self(nanos as i64))
    }

    /// Dollars, for people and JSON.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact to 1e-9 up to nine million dollars")]
    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::fmt::Display for Money {
    /// Dollars to the last nano-dollar that is not zero: `0.0021`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let part = format!("{:09}", nanos % 1_000_000_000);
        let part = part.trim_end_matches('0');
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "{sign}{}{point}{part}", nanos / 1_000_000_000)
    }
}

/// Longest usage of a provider that is kept as it was reported, in bytes of JSON.
pub const MAX_REPORTED: usize = 4096;

/// What one paid call used: what the ledger keeps of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Whom it was paid to, by upstream name, where known.
    pub upstream: Option<String>,
    /// The provider; else the upstream's name up to its first `/` says it.
    pub provider: Option<String>,
    /// The model that was asked; else the upstream's name from its first `/` on says it.
    pub asked_model: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Tokens in: all of them, those read from and written to a cache included.
    pub input_tokens: i64,
    /// The part of `input_tokens` that was read from the provider's cache.
    pub cached_tokens: i64,
    /// The part of `input_tokens` that was written to the provider's cache.
    pub cache_write_tokens: i64,
    /// Tokens out: all of them, reasoning included.
    pub output_tokens: i64,
    /// The part of `output_tokens` that was reasoning.
    pub reasoning_tokens: i64,
    /// What it cost; `None` if nobody knows, which is not the same as nothing.
    pub cost: Option<Money>,
    /// The prices that `cost` was computed from; `None` if the caller stated it, or it is unknown.
    pub price: Option<String>,
    /// Whether the tokens are an estimate, since the provider did not say.
    pub estimated: bool,
    /// Why its answer was of no use; `None` if it was.
    pub failed: Option<FailureClass>,
    /// The name of the key that paid, never the key.
    pub credential: Option<String>,
    /// The usage in the provider's own words, [`MAX_REPORTED`] bytes at most.
    pub reported: Option<Value>,
    /// The permit it was made under. A change that carries such a call settles the permit with it, as
    /// gone well; a call whose permit is settled already is in the ledger, and is not booked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<PermitId>,
    /// What its answer said is left of the provider's limits: told to the upstream with the permit.
    #[serde(default, skip_serializing_if = "Room::is_empty")]
    pub room: Room,
}

impl Usage {
    /// The usage of a call, from what its provider reported (the `usage` of its answer).
    #[must_use]
    pub fn of_report(upstream: impl Into<String>, reported: Value) -> Self {
        let mut usage = Self { upstream: Some(upstream.into()), ..Self::default() };
        usage.take_report(reported);
        usage
    }

    /// The same as the ledger keeps it: without what is only told to the upstream.
    #[must_use]
    pub fn booked(self) -> Self {
        Self { permit: None, room: Room::default(), ..self }
    }

    /// Takes over the counts of a provider's report, where it has any, and keeps it.
    pub fn take_report(&mut self, reported: Value) {
        if let Some(reading) = crate::usage::read(&reported) {
            self.input_tokens = reading.input;
            self.cached_tokens = reading.cached;
            self.cache_write_tokens = reading.cache_write;
            self.output_tokens = reading.output;
            self.reasoning_tokens = reading.reasoning;
        }
        self.reported = Some(bounded(reported));
    }

    /// Its counts in full: what only the report tells is taken from there, if it speaks of the same counts.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let own = Reading {
            input: self.input_tokens,
            cached: self.cached_tokens,
            cache_write: self.cache_write_tokens,
            cache_write_1h: 0,
            output: self.output_tokens,
            reasoning: self.reasoning_tokens,
            tier: Tier::Standard,
        };
        let told = self.reported.as_ref().and_then(crate::usage::read);
        told.filter(|told| Reading { cache_write_1h: 0, tier: Tier::Standard, ..*told } == own).unwrap_or(own)
    }

    /// Who provides it, as far as that is known.
    #[must_use]
    pub fn provider_name(&self) -> Option<&str> {
        let by_upstream = || self.upstream.as_deref().and_then(|name| name.split_once('/'));
        self.provider.as_deref().or_else(|| by_upstream().map(|(provider, _)| provider))
    }

    /// The models it may be priced as, the most certain first: the one that answered, the one asked.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        let by_upstream = self.upstream.as_deref().and_then(|name| name.split_once('/'));
        let asked = self.asked_model.as_deref().or_else(|| by_upstream.map(|(_, model)| model));
        self.model.as_deref().into_iter().chain(asked)
    }

    /// Whether it was paid for nothing. `kept` says whether a step or a result keeps what it gave.
    #[must_use]
    pub const fn is_wasted(&self, kept: bool) -> bool {
        !kept || self.failed.is_some()
    }
}

/// A report that is kept: one of unreasonable size is only measured.
fn bounded(reported: Value) -> Value {
    let bytes = reported.to_string().len();
    if bytes <= MAX_REPORTED { reported } else { json!({ "left_out_bytes": bytes }) }
}

/// What all paid calls of a job used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Paid calls.
    pub calls: i64,
    /// Tokens in.
    pub input_tokens: i64,
    /// Tokens out.
    pub output_tokens: i64,
    /// What they cost.
    pub cost: Money,
    /// The part of `cost` paid for output that no attempt kept.
    pub wasted: Money,
}

impl UsageTotals {
    /// Adds one paid call.
    pub fn add(&mut self, usage: &Usage) {
        self.calls = self.calls.saturating_add(1);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cost = self.cost.plus(usage.cost.unwrap_or_default());
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost: self.cost.plus(other.cost),
            wasted: self.wasted.plus(other.wasted),
        }
    }

    /// What this has more than `before`.
    #[must_use]
    pub const fn less(&self, before: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cost: Money(self.cost.0.saturating_sub(before.cost.0)),
            wasted: Money(self.wasted.0.saturating_sub(before.wasted.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nano_dollar_is_not_lost() {
        let tenth = Money::from_usd(0.1).unwrap();
        let sum = (0..10).fold(Money::default(), |sum, _| sum.plus(tenth));
        assert_eq!(sum.as_usd(), 1.0);
        assert_eq!(Money::from_usd(0.000_000_001).unwrap().as_nanos(), 1);
        assert_eq!(Money::from_usd(f64::NAN), None);
        assert_eq!(Money::from_usd(-0.1), None);
        let shown = [0, 1, -1, 2_100_000, 3_000_000_000].map(|nanos| Money(nanos).to_string());
        assert_eq!(shown, ["0", "0.000000001", "-0.000000001", "0.0021", "3"]);
    }
}
