//! Leaky locks: a lease on a name, without a job. Success alone gives it back; a failure, a crash or a
//! holder that stalls leaves it where it is, and it ends by itself.
//!
//! ```text
//! free ──acquire──▶ held ──succeed──▶ free
//!  ▲                 │ ├──fail───────▶ cooling ──┐
//!  │                 │ └──fail for good──▶ closed │
//!  └── its time ends ◀┴──────────────────────────┘      open, by an operator: free, from anywhere
//! ```
//!
//! Always true:
//! - a name has one holder at most: whoever has the newest token, until the lock's time ends;
//! - tokens of a name grow with every acquire, so that what a lock guards can refuse an older holder;
//! - a token that is not the newest changes nothing, and neither does one whose time has ended. A holder
//!   that comes too late has run unguarded, and is told.
//!
//! Elsewhere: lock keys, which jobs share (`lifecycle::lock`).

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::names::LockName;
use crate::say::Sentence;
use crate::store::StoreResult;
use crate::time::Timestamp;

/// How long a name remembers its last holder after it became free, at least: so long a repeated
/// [`LockEvent::Succeed`] is answered as the first time.
pub const REMEMBERED: Duration = Duration::from_secs(60);

/// A number that grows with every acquire of a name; 0 is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LockToken(pub i64);

/// How a lock stands. Each variant holds what is true in it and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LockState {
    /// Anybody may have it.
    #[default]
    Free,
    /// Somebody has it.
    Held {
        /// Who, as they said; `None` for a holder that is no program of Coolant's.
        holder: Option<String>,
        /// Until when, unless renewed; `None` for a holder that set no end, which only others do.
        until: Option<Timestamp>,
    },
    /// It was given back by a failure.
    Cooling {
        /// Who had it.
        holder: Option<String>,
        /// What failed, as they said; `None` where the note of it is lost.
        reason: Option<String>,
        /// Until when.
        until: Timestamp,
    },
    /// It was given back by a failure for good: only an operator opens it.
    Closed {
        /// Who had it.
        holder: Option<String>,
        /// What failed, as they said; `None` where the note of it is lost.
        reason: Option<String>,
    },
}

impl LockState {
    /// `free`, `held`, `cooling` or `closed`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held { .. } => "held",
            Self::Cooling { .. } => "cooling",
            Self::Closed { .. } => "closed",
        }
    }

    /// When it ends by itself, if it does.
    #[must_use]
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Held { until, .. } => *until,
            Self::Cooling { until, .. } => Some(*until),
            Self::Free | Self::Closed { .. } => None,
        }
    }

    /// Who has it, or had it when it failed.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        match self {
            Self::Held { holder, .. } | Self::Cooling { holder, .. } | Self::Closed { holder, .. } => {
                holder.as_deref()
            }
            Self::Free => None,
        }
    }

    /// What failed.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Cooling { reason, .. } | Self::Closed { reason, .. } => reason.as_deref(),
            Self::Free | Self::Held { .. } => None,
        }
    }

    fn at(&self, now: Timestamp) -> Self {
        if self.until().is_some_and(|until| until <= now) { Self::Free } else { self.clone() }
    }
}

/// Everything that is kept of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lock {
    /// The newest token given out.
    pub token: LockToken,
    /// How it was left; [`Lock::state`] says how it stands.
    pub left: LockState,
}

/// What can happen to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockEvent {
    /// Somebody wants it.
    Acquire {
        /// Who, for people.
        holder: String,
        /// How long it is held unless renewed.
        ttl: Duration,
    },
    /// Its holder goes on.
    Renew {
        /// The holder's.
        token: LockToken,
        /// From now on.
        ttl: Duration,
    },
    /// Its holder is done: free at once.
    Succeed {
        /// The holder's.
        token: LockToken,
    },
    /// Its holder failed.
    Fail {
        /// The holder's.
        token: LockToken,
        /// What failed, for people.
        reason: String,
        /// What becomes of the lock.
        cooldown: Cooldown,
    },
    /// An operator wants it free, whoever has it. Its holder's token is stale from then on.
    Open,
}

/// What becomes of a lock after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cooldown {
    /// It ends when it would have: for the rest of its TTL.
    #[default]
    RestOfTtl,
    /// It ends that long from now.
    For(Duration),
    /// It stays closed until an operator opens it.
    Permanent,
}

/// A lock as it stands at an instant of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockAt {
    /// How it stands.
    pub state: LockState,
    /// The newest token given out; of a holder that is not ours, 0.
    pub token: LockToken,
    /// The store's time.
    pub now: Timestamp,
}

impl LockAt {
    /// How long until it ends by itself, if it does.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.state.until().map(|until| until.since(self.now))
    }

    /// For people: who has it, why and how long.
    #[must_use]
    pub fn sentence(&self) -> Sentence {
        match self.state.clone() {
            LockState::Free => Sentence::LockFree,
            LockState::Held { holder, .. } => Sentence::LockHeld { holder, left: self.left() },
            LockState::Cooling { holder, reason, until } => {
                Sentence::LockCools { holder, reason, left: until.since(self.now) }
            }
            LockState::Closed { holder, reason } => Sentence::LockClosed { holder, reason },
        }
    }
}

/// Why an event did not happen. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRefusal {
    /// It is held, cooling or closed.
    Taken(LockAt),
    /// The token is not, or no longer, its holder's.
    Lost,
}

/// What a change is answered with: the lock after it, or why there was none.
pub type LockAnswer = Result<LockAt, LockRefusal>;

impl Lock {
    /// How it stands at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> LockState {
        self.left.at(now)
    }

    /// The same with the instant.
    #[must_use]
    pub fn seen(&self, now: Timestamp) -> LockAt {
        LockAt { state: self.state(now), token: self.token, now }
    }

    /// The only place where a lock changes. What was done already is done again without effect: a `Succeed`
    /// or `Fail` of the newest token, whose first answer may have been lost.
    ///
    /// # Errors
    /// Why the event cannot happen.
    pub fn on(&self, event: &LockEvent, now: Timestamp) -> Result<Self, LockRefusal> {
        let state = self.state(now);
        let is_newest = |token: &LockToken| *token == self.token && *token != LockToken::default();
        match (event, &state) {
            (LockEvent::Acquire { holder, ttl }, LockState::Free) => {
                let until = Some(now.plus(*ttl));
                let left = LockState::Held { holder: Some(holder.clone()), until };
                Ok(Self { token: LockToken(self.token.0 + 1), left })
            }
            (LockEvent::Acquire { .. }, _) => Err(LockRefusal::Taken(self.seen(now))),
            (LockEvent::Renew { token, ttl }, LockState::Held { holder, .. }) if is_newest(token) => {
                let left = LockState::Held { holder: holder.clone(), until: Some(now.plus(*ttl)) };
                Ok(Self { token: self.token, left })
            }
            (LockEvent::Succeed { token }, LockState::Held { .. }) if is_newest(token) => {
                Ok(Self { token: self.token, left: LockState::Free })
            }
            (LockEvent::Fail { token, reason, cooldown }, LockState::Held { holder, until })
                if is_newest(token) =>
            {
                let left = cooldown.begin(holder.clone(), reason, *until, now);
                Ok(Self { token: self.token, left })
            }
            // The answer to the first one was lost.
            (LockEvent::Succeed { token }, LockState::Free)
                if is_newest(token) && self.left == LockState::Free =>
            {
                Ok(self.clone())
            }
            (LockEvent::Fail { token, .. }, LockState::Cooling { .. } | LockState::Closed { .. })
                if is_newest(token) =>
            {
                Ok(self.clone())
            }
            // One more token, so that a holder who does not know of it is told at its next call.
            (LockEvent::Open, _) => Ok(Self { token: LockToken(self.token.0 + 1), left: LockState::Free }),
            (LockEvent::Renew { .. } | LockEvent::Succeed { .. } | LockEvent::Fail { .. }, _) => {
                Err(LockRefusal::Lost)
            }
        }
    }
}

impl Cooldown {
    fn begin(
        self,
        holder: Option<String>,
        reason: &str,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> LockState {
        let reason = Some(reason.to_owned());
        let until = match self {
            Self::Permanent => return LockState::Closed { holder, reason },
            Self::For(wait) => now.plus(wait),
            Self::RestOfTtl => until.unwrap_or(now),
        };
        LockState::Cooling { holder, reason, until }
    }
}

/// Keeps leaky locks, for all processes that share it. What every one holds to (the conformance suite
/// checks it):
/// - a change is decided as [`Lock::on`] says, from the lock as it is, and no two overlap;
/// - time is the store's own; a caller counts the end of its lock from before its call;
/// - tokens of a name grow for ever, also over times in which nothing is kept of it;
/// - a call that returns an error may or may not have happened. An acquire that did leaks until its TTL
///   ends; any other may be repeated.
#[async_trait]
pub trait LockStore: Send + Sync + 'static {
    /// Lets something happen to a lock.
    async fn change_lock(&self, key: &LockName, event: LockEvent) -> StoreResult<LockAnswer>;

    /// How a lock stands.
    async fn lock(&self, key: &LockName) -> StoreResult<LockAt>;

    /// Forgets up to `limit` locks that have been free for [`REMEMBERED`]; gives how many.
    async fn forget_locks(&self, limit: u32) -> StoreResult<u32>;
}
