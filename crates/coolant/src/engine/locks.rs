//! Leaky locks: what users ask of them. What becomes of a lock, `coolant_core::lock` says.

use std::ops::RangeInclusive;
use std::time::Duration;

use coolant_core::lock::{Cooldown, LockAt, LockEvent, LockRefusal, LockToken};
use coolant_core::names::LockName;
use coolant_core::store::AuditEntry;
use coolant_core::time::Timestamp;

use super::control::checked_reason;
use super::error::LeaseLoss;
use super::submit::{seconds, text};
use super::{Caller, Engine, EngineError, EngineResult};

/// How long a lock may be held without a renewal.
pub const TTL_RANGE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
/// How long a failure may keep a lock cooling.
pub const COOLDOWN_RANGE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);
/// Longest name of a holder, in bytes.
pub const MAX_HOLDER: usize = 256;
/// What names of locks do not begin with: under it stands what Coolant keeps beside locks in Redis.
pub const RESERVED: &str = "coolant:";

/// A failure as its holder reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailRequest {
    /// The holder's token.
    pub token: i64,
    /// What failed: 1 to 1000 bytes on one line.
    pub reason: String,
    /// From now on; the rest of the lock's time if `None`.
    pub cooldown_seconds: Option<f64>,
    /// Whether it stays closed until an operator opens it.
    pub permanent: bool,
}

impl Engine {
    /// Gives a free lock to whoever asks first.
    ///
    /// # Errors
    /// [`EngineError::Locked`] with who has it, why and how long; what is wrong with a value.
    pub async fn acquire_lock(
        &self,
        caller: &Caller,
        key: &str,
        ttl_seconds: f64,
        holder: Option<&str>,
    ) -> EngineResult<LockAt> {
        let holder = checked_holder(holder.unwrap_or(&caller.actor))?;
        let event = LockEvent::Acquire { holder, ttl: checked_ttl(ttl_seconds)? };
        self.change_lock(&lock_name(key)?, event).await
    }

    /// Moves the end of a lock: so long from now.
    ///
    /// # Errors
    /// [`EngineError::LeaseLost`] for a token that is not the holder's any more.
    pub async fn renew_lock(&self, key: &str, token: i64, ttl_seconds: f64) -> EngineResult<LockAt> {
        let event = LockEvent::Renew { token: LockToken(token), ttl: checked_ttl(ttl_seconds)? };
        self.change_lock(&lock_name(key)?, event).await
    }

    /// Frees a lock at once.
    ///
    /// # Errors
    /// As [`Self::renew_lock`].
    pub async fn succeed_lock(&self, key: &str, token: i64) -> EngineResult<LockAt> {
        self.change_lock(&lock_name(key)?, LockEvent::Succeed { token: LockToken(token) }).await
    }

    /// Leaves a lock cooling, or closes it.
    ///
    /// # Errors
    /// As [`Self::renew_lock`].
    pub async fn fail_lock(&self, key: &str, request: FailRequest) -> EngineResult<LockAt> {
        let reason = checked_reason(&request.reason)?;
        let wait = seconds("cooldown_seconds", request.cooldown_seconds, COOLDOWN_RANGE)?;
        let cooldown = match (request.permanent, wait) {
            (true, None) => Cooldown::Permanent,
            (true, Some(_)) => return Err(EngineError::field("cooldown_seconds", "is not for `permanent`")),
            (false, Some(wait)) => Cooldown::For(wait),
            (false, None) => Cooldown::RestOfTtl,
        };
        let event = LockEvent::Fail { token: LockToken(request.token), reason, cooldown };
        self.change_lock(&lock_name(key)?, event).await
    }

    /// How a lock stands.
    ///
    /// # Errors
    /// If the name is none.
    pub async fn lock(&self, key: &str) -> EngineResult<LockAt> {
        Ok(self.locks.lock(&lock_name(key)?).await?)
    }

    /// Opens a lock, whoever has it. Audited, before it is done.
    ///
    /// # Errors
    /// If the name or the reason is none.
    pub async fn open_lock(&self, caller: &Caller, key: &str, reason: Option<&str>) -> EngineResult<LockAt> {
        let key = lock_name(key)?;
        let entry = AuditEntry {
            // The store sets its own time.
            at: Timestamp::default(),
            actor: caller.actor.clone(),
            action: "lock.opened".into(),
            target: key.to_string(),
            reason: reason.map(checked_reason).transpose()?.unwrap_or_default(),
        };
        self.parts.store.write_audit(entry).await?;
        self.change_lock(&key, LockEvent::Open).await
    }

    async fn change_lock(&self, key: &LockName, event: LockEvent) -> EngineResult<LockAt> {
        self.locks.change_lock(key, event).await?.map_err(EngineError::from)
    }
}

impl From<LockRefusal> for EngineError {
    fn from(refusal: LockRefusal) -> Self {
        match refusal {
            LockRefusal::Taken(lock) => Self::Locked(Box::new(lock)),
            LockRefusal::Lost => Self::LeaseLost(LeaseLoss::Lock),
        }
    }
}

/// A name for a lock.
///
/// # Errors
/// What is wrong with it, as field `key`.
pub fn lock_name(key: &str) -> EngineResult<LockName> {
    match key.starts_with(RESERVED) {
        true => Err(EngineError::field("key", format!("must not begin with `{RESERVED}`"))),
        false => Ok(LockName::parse(key)?),
    }
}

/// Who holds a lock, as they say: 1 to [`MAX_HOLDER`] bytes on one line.
///
/// # Errors
/// What is wrong with it, as field `holder`.
pub fn checked_holder(holder: &str) -> EngineResult<String> {
    text("holder", holder, 1..=MAX_HOLDER)?;
    Ok(holder.to_owned())
}

/// How long a lock is held without a renewal.
///
/// # Errors
/// That it is out of [`TTL_RANGE`], as field `ttl_seconds`.
pub fn checked_ttl(ttl_seconds: f64) -> EngineResult<Duration> {
    let ttl = seconds("ttl_seconds", Some(ttl_seconds), TTL_RANGE)?;
    ttl.ok_or_else(|| EngineError::field("ttl_seconds", "is needed"))
}
