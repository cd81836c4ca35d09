//! Money and tokens: what paid calls cost.

use serde::{Deserialize, Serialize};

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

/// What one paid call used.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Whom it was paid to, by upstream name, where known.
    pub upstream: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Tokens in, cached ones included.
    pub input_tokens: i64,
    /// Tokens out.
    pub output_tokens: i64,
    /// What it cost, where known.
    pub cost: Option<Money>,
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
    }
}
