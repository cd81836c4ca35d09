//! Leaky locks.

use coolant_core::lock::LockAt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::time::Time;
use crate::engine::locks::FailRequest;

/// Somebody wants a lock.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = AcquireLock)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireBody {
    /// 0.1 to 604800.
    pub(crate) ttl_seconds: f64,
    /// Who, for people: 256 bytes at most. The caller's name if left out.
    pub(crate) holder: Option<String>,
}

/// Its holder goes on.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RenewLock)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewBody {
    pub(crate) token: i64,
    /// From now on: 0.1 to 604800.
    pub(crate) ttl_seconds: f64,
}

/// Its holder is done.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SucceedLock)]
#[serde(deny_unknown_fields)]
pub(crate) struct SucceedBody {
    pub(crate) token: i64,
}

/// Its holder failed.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = FailLock)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailBody {
    token: i64,
    /// What failed, for people: 1000 bytes at most.
    reason: String,
    /// From now on, 0 to 2592000; the rest of the lock's time if left out.
    cooldown_seconds: Option<f64>,
    /// Whether it stays closed until an operator opens it.
    permanent: Option<bool>,
}

impl From<FailBody> for FailRequest {
    fn from(body: FailBody) -> Self {
        let FailBody { token, reason, cooldown_seconds, permanent } = body;
        Self { token, reason, cooldown_seconds, permanent: permanent.unwrap_or(false) }
    }
}

/// Why a lock is opened.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenQuery {
    /// For the audit trail: 1000 bytes at most.
    pub(crate) reason: Option<String>,
}

/// A lock that was given.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LockGrant)]
pub(crate) struct GrantView {
    /// Grows with every acquire of this lock: what it guards can refuse smaller ones.
    token: i64,
    /// When it ends unless renewed, by the clock of the locks.
    expires_at: Option<Time>,
}

impl From<LockAt> for GrantView {
    fn from(lock: LockAt) -> Self {
        Self { token: lock.token.0, expires_at: lock.state.until().map(Time) }
    }
}

/// How a lock stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lock)]
pub(crate) struct LockView {
    key: String,
    /// `free`, `held`, `cooling` or `closed`.
    state: &'static str,
    /// Who has it, or had it when it failed; null if it is free, or its holder is no program of Coolant's.
    holder: Option<String>,
    /// What failed, if it cools down or is closed.
    reason: Option<String>,
    /// When it is free by itself; null if it is free, closed, or held by a holder that set no end.
    until: Option<Time>,
    /// Seconds until then.
    retry_after_seconds: Option<f64>,
}

impl LockView {
    pub(crate) fn of(key: impl Into<String>, lock: &LockAt) -> Self {
        let text = |text: Option<&str>| text.map(ToOwned::to_owned);
        Self {
            key: key.into(),
            state: lock.state.as_str(),
            holder: text(lock.state.holder()),
            reason: text(lock.state.reason()),
            until: lock.state.until().map(Time),
            retry_after_seconds: lock.left().map(|left| left.as_secs_f64()),
        }
    }
}
