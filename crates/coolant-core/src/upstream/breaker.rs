//! Breakers: whether an upstream, or a credential, is open; when it is tried again, and by whom.
//!
//! ```text
//!            report                    its time has come           success
//!   OPEN ───────────────▶ CLOSED ───────────────────────▶ PROBING ─────────▶ RAMP ──────▶ OPEN
//!    ▲                     ▲  ▲                             │                 │   10 s
//!    │                     │  └── failure: for longer ──────┘                 │
//!    │                     └───────────────── report ─────────────────────────┘
//!    └── an operator opens it: by the ramp, from wherever it is
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::permit::PermitId;
use crate::failure::{Failure, FailureClass};
use crate::job::{JobId, LeaseToken};
use crate::retry::LONGEST_AUTOMATIC_WAIT;
use crate::time::Timestamp;

/// Closure by an upstream that did not say for how long; doubles with each failed probe.
const UNSTATED: Duration = Duration::from_secs(10);
/// The longest closure that nobody stated.
const LONGEST_UNSTATED: Duration = Duration::from_secs(300);
/// Time between two probes where only a person can help.
const OPERATOR_PROBE: Duration = Duration::from_secs(3600);
/// Timeouts, broken connections and faults of the upstream in a row that close it.
const ROW: u32 = 3;
/// After that many seconds of the ramp, with a success at its beginning, nothing is held back any more.
const RAMP_SECONDS: u64 = 10;

/// Who begins something at an upstream: by it a probe is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Starter {
    /// An attempt of a job, with all its calls.
    Job {
        /// The job.
        id: JobId,
        /// The attempt's lease.
        token: LeaseToken,
    },
    /// A call that belongs to no job.
    Permit(PermitId),
}

/// Why and until when something is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closure {
    /// Then the probe goes.
    pub until: Timestamp,
    /// The end that was stated, where that is later than the probe.
    pub stated_until: Option<Timestamp>,
    /// What was reported, if it was not an operator who closed it.
    pub class: Option<FailureClass>,
    /// The code of the failure: what a job ends with that waited for too long.
    pub code: String,
    /// For people.
    pub reason: String,
}

impl Closure {
    /// Until when people are told that it is closed.
    #[must_use]
    pub fn shown_until(&self) -> Timestamp {
        self.stated_until.map_or(self.until, |stated| stated.max(self.until))
    }

    /// Whether a person has to act.
    #[must_use]
    pub fn needs_operator(&self) -> bool {
        self.class.is_some_and(FailureClass::needs_operator)
    }
}

/// Where a breaker stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Nothing is held back.
    #[default]
    Open,
    /// Nothing passes before `until`, and then one probe.
    Closed(Closure),
    /// The probe is under way.
    Probing {
        /// Whose it is.
        by: Starter,
        /// What it probes.
        closure: Closure,
    },
    /// Open again since then, for a few at first.
    Ramp {
        /// The probe's success.
        since: Timestamp,
        /// Let through since then.
        started: u32,
    },
}

/// A breaker, and what it remembers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Breaker {
    /// Where it stands.
    pub state: BreakerState,
    /// Since when it has not been open, probes in between included.
    pub closed_since: Option<Timestamp>,
    /// Failed probes since the last success.
    strikes: u32,
    /// Failures in a row that do not close it one by one.
    in_a_row: u32,
    /// Whose failed call was reported last.
    last_fault: Option<Starter>,
}

/// How much a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// Whatever comes.
    Any,
    /// That many.
    AtMost(u32),
    /// Nothing before then, where that is known.
    Nothing(Option<Timestamp>),
}

impl Allowance {
    /// How many of `max`.
    #[must_use]
    pub fn of(self, max: u32) -> u32 {
        match self {
            Self::Any => max,
            Self::AtMost(n) => n.min(max),
            Self::Nothing(_) => 0,
        }
    }

    /// What passes both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing(a), Self::Nothing(b)) => Self::Nothing(a.zip(b).map(|(a, b)| a.max(b))),
            (Self::Nothing(until), _) | (_, Self::Nothing(until)) => Self::Nothing(until),
            (Self::AtMost(a), Self::AtMost(b)) => Self::AtMost(a.min(b)),
            (Self::AtMost(n), Self::Any) | (Self::Any, Self::AtMost(n)) => Self::AtMost(n),
            (Self::Any, Self::Any) => Self::Any,
        }
    }
}

/// A failed call, or a failed attempt, as a breaker hears of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What kind of failure it was.
    pub class: FailureClass,
    /// The wait that the upstream stated.
    pub stated: Option<Duration>,
    /// The failure's code.
    pub code: String,
    /// For people.
    pub reason: String,
    /// Whose call it was.
    pub by: Starter,
    /// It is the attempt that ended, not one call: its last call may have been reported already.
    pub ends_attempt: bool,
}

impl Report {
    /// What the failure of an attempt says of the upstream that it names.
    #[must_use]
    pub fn of_attempt(failure: &Failure, id: JobId, token: LeaseToken) -> Self {
        let by = Starter::Job { id, token };
        Self { ends_attempt: true, ..Self::of_call(failure, by) }
    }

    /// What the failure of a call says.
    #[must_use]
    pub fn of_call(failure: &Failure, by: Starter) -> Self {
        Self {
            class: failure.class,
            stated: failure.retry_after,
            code: failure.code.clone(),
            reason: failure.message.clone(),
            by,
            ends_attempt: false,
        }
    }
}

impl Breaker {
    /// How much passes now. `prober_lives`: whether the attempt or permit of a probe still holds.
    #[must_use]
    pub fn allowance(&self, prober_lives: bool, now: Timestamp) -> Allowance {
        match &self.state {
            BreakerState::Open => Allowance::Any,
            BreakerState::Closed(closure) if closure.until > now => Allowance::Nothing(Some(closure.until)),
            BreakerState::Probing { .. } if prober_lives => Allowance::Nothing(None),
            BreakerState::Closed(_) | BreakerState::Probing { .. } => Allowance::AtMost(1),
            BreakerState::Ramp { since, started } => match ramp(*since, now) {
                None => Allowance::Any,
                Some((all, _)) if all > *started => Allowance::AtMost(all - started),
                Some((_, next)) => Allowance::Nothing(Some(next)),
            },
        }
    }

    /// Whether that starter is the probe, all of whose calls pass.
    #[must_use]
    pub fn is_probe(&self, starter: Starter) -> bool {
        matches!(&self.state, BreakerState::Probing { by, .. } if *by == starter)
    }

    /// Whose probe is under way.
    #[must_use]
    pub const fn prober(&self) -> Option<Starter> {
        match &self.state {
            BreakerState::Probing { by, .. } => Some(*by),
            _ => None,
        }
    }

    /// Why it is closed, if it is; a probe does not open it yet.
    #[must_use]
    pub const fn closure(&self) -> Option<&Closure> {
        match &self.state {
            BreakerState::Closed(closure) | BreakerState::Probing { closure, .. } => Some(closure),
            BreakerState::Open | BreakerState::Ramp { .. } => None,
        }
    }

    /// Whether there is anything to remember: a breaker of which there is not lets everything pass.
    #[must_use]
    pub fn needs_care(&self) -> bool {
        self.state != BreakerState::Open || self.in_a_row > 0
    }

    /// Somebody begins, who was allowed to.
    pub fn start(&mut self, starter: Starter, now: Timestamp) {
        match &mut self.state {
            BreakerState::Open => {}
            BreakerState::Closed(closure) | BreakerState::Probing { closure, .. } => {
                self.state = BreakerState::Probing { by: starter, closure: closure.clone() };
            }
            BreakerState::Ramp { since, started } => match ramp(*since, now) {
                None => self.state = BreakerState::Open,
                Some(_) => *started = started.saturating_add(1),
            },
        }
    }

    /// A call went well, or a job. Gives whether that opened it.
    pub fn succeed(&mut self, by: Starter, now: Timestamp) -> bool {
        self.in_a_row = 0;
        self.last_fault = None;
        if !self.is_probe(by) {
            return false;
        }
        self.reopen(now);
        true
    }

    /// A call or an attempt failed. Gives whether that closed it, or for longer.
    pub fn report(&mut self, report: &Report, now: Timestamp) -> bool {
        let closes = report.class.is_upstreams_fault();
        if !closes && !report.class.counts_in_a_row() {
            return false;
        }
        let is_heard = report.ends_attempt && self.last_fault == Some(report.by);
        self.last_fault = Some(report.by);
        let is_probe = self.is_probe(report.by);
        if is_heard && !is_probe {
            return false;
        }
        if is_probe {
            self.strikes = self.strikes.saturating_add(1);
        } else if !closes {
            // A call that was in flight when it closed says nothing new.
            if self.closure().is_some() {
                return false;
            }
            self.in_a_row += 1;
            if self.in_a_row < ROW {
                return false;
            }
        }
        self.in_a_row = 0;
        let wait = self.wait(report, is_probe);
        let stated_until = report.stated.filter(|stated| *stated > wait).map(|stated| now.plus(stated));
        self.close(
            Closure {
                until: now.plus(wait),
                stated_until,
                class: Some(report.class),
                code: report.code.clone(),
                reason: report.reason.clone(),
            },
            now,
        )
    }

    fn wait(&self, report: &Report, is_probe: bool) -> Duration {
        let doubled = |strikes: u32| {
            UNSTATED
                .saturating_mul(1_u32.checked_shl(strikes.min(31)).unwrap_or(u32::MAX))
                .min(LONGEST_UNSTATED)
        };
        match report.stated {
            None if report.class.needs_operator() => OPERATOR_PROBE,
            None => doubled(self.strikes),
            // Obeyed as it stands; yet one that is always short and never true is tried less and less.
            Some(stated) => {
                let least = if is_probe { doubled(self.strikes.saturating_sub(1)) } else { Duration::ZERO };
                stated.max(least).min(LONGEST_AUTOMATIC_WAIT)
            }
        }
    }

    /// Closes it, or keeps it closed for longer: the latest end counts. Gives whether it did.
    pub fn close(&mut self, closure: Closure, now: Timestamp) -> bool {
        self.closed_since.get_or_insert(now);
        match &mut self.state {
            BreakerState::Closed(old) => {
                if closure.until <= old.until {
                    return false;
                }
                // What only a person can mend stays the reason.
                let kept = if old.needs_operator() && !closure.needs_operator() { &*old } else { &closure };
                *old = Closure {
                    until: closure.until,
                    stated_until: closure.stated_until.max(old.stated_until),
                    ..kept.clone()
                };
            }
            _ => self.state = BreakerState::Closed(closure),
        }
        true
    }

    /// Opens it by the ramp: after a probe, or because an operator says so. Gives whether it was closed.
    pub fn reopen(&mut self, now: Timestamp) -> bool {
        let was_closed = self.closure().is_some();
        *self = Self::default();
        if was_closed {
            self.state = BreakerState::Ramp { since: now, started: 0 };
        }
        was_closed
    }

    /// Forgets a ramp that is over.
    pub fn settle_down(&mut self, now: Timestamp) {
        if let BreakerState::Ramp { since, .. } = self.state
            && ramp(since, now).is_none()
        {
            self.state = BreakerState::Open;
        }
    }
}

/// How many may have started by `now`, and when there will be more; `None` once the ramp is over. One in the
/// first second, two in the next, four, and so on.
fn ramp(since: Timestamp, now: Timestamp) -> Option<(u32, Timestamp)> {
    let seconds = now.since(since).as_secs();
    if seconds >= RAMP_SECONDS {
        return None;
    }
    let all = 2_u32.pow(u32::try_from(seconds).unwrap_or(0) + 1) - 1;
    Some((all, since.plus(Duration::from_secs(seconds + 1))))
}
