//! Blockages: what lets no job start at all, and since when. Jobs wait for the end of one no longer than their
//! `max_wait`.

use super::admit::Denial;
use super::breaker::Breaker;
use super::limits::Limits;
use super::meter::Meter;
use crate::failure::{Failure, FailureClass};
use crate::lifecycle::Event;
use crate::names::Upstream;
use crate::time::Timestamp;

/// A closed upstream, or a spent budget.
#[derive(Debug, Clone, PartialEq)]
pub struct Blockage {
    /// Since when; probes in between do not end it.
    pub since: Timestamp,
    /// What a job ends with that has waited too long for its end.
    pub failure: Failure,
}

impl Blockage {
    /// What it means for a job that needs what is blocked.
    #[must_use]
    pub fn event(&self) -> Event {
        Event::Blocked { since: self.since, failure: self.failure.clone() }
    }

    /// By a breaker that an upstream stands behind, if that is closed.
    pub(super) fn by_breaker(name: &Upstream, breaker: &Breaker, now: Timestamp) -> Option<Self> {
        let closure = breaker.closure()?;
        // An operator who closes an upstream says no class.
        let class = closure.class.unwrap_or(FailureClass::Overloaded);
        let failure = Failure::new(class, closure.code.clone(), closure.reason.clone());
        let failure = failure.with_upstream(Some(name.to_string()));
        Some(Self { since: breaker.closed_since.unwrap_or(now), failure })
    }

    /// By the budget of somebody, if that is spent.
    pub(super) fn by_budget(whose: &str, meter: &Meter, limits: &Limits, now: Timestamp) -> Option<Self> {
        let since = meter.exhausted_since(limits, now)?;
        let message = format!("{whose} has spent its money of the day");
        let code = Denial::BudgetExhausted.as_str();
        Some(Self { since, failure: Failure::new(FailureClass::QuotaExhausted, code, message) })
    }
}
