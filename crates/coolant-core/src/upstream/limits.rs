//! Limits: what an operator sets for an upstream or a tenant.

use serde::{Deserialize, Serialize};

use crate::money::Money;
use crate::names::Credential;

/// The span that a rate counts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// A second.
    Second,
    /// A minute.
    Minute,
}

impl Per {
    /// Its length in milliseconds.
    #[must_use]
    pub const fn millis(self) -> i64 {
        match self {
            Self::Second => 1000,
            Self::Minute => 60_000,
        }
    }
}

/// So many in a span, and a tenth of it at once, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// How many; 1 or more.
    pub amount: u32,
    /// In what span.
    pub per: Per,
}

impl Rate {
    /// The most that may be taken at once.
    #[must_use]
    pub const fn burst(self) -> u64 {
        let tenth = self.amount as u64 / 10;
        if tenth == 0 { 1 } else { tenth }
    }
}

/// What holds over all processes. `None` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Calls in flight.
    pub max_concurrent: Option<u32>,
    /// Calls begun.
    pub requests: Option<Rate>,
    /// Tokens in and out together.
    pub tokens: Option<Rate>,
    /// Money a day, by UTC.
    pub budget_per_day: Option<Money>,
}

/// What an operator says about an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UpstreamSettings {
    /// How much of it may be used.
    pub limits: Limits,
    /// The name of the key that calls are paid with, never the key. Upstreams of one credential close
    /// together when it has no money or is refused.
    pub credential: Option<Credential>,
}
