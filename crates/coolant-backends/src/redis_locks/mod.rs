//! Leaky locks in Redis or Valkey.
//!
//! A held lock is exactly the key that `SET key token NX PX ttl` makes, so that Coolant and programs that use
//! that convention by themselves exclude one another. Everything else stands in a note beside it, and is not
//! needed for the lock to be right. One script makes each change; nothing happens in between.
//!
//! What a single Redis cannot promise: a lock that it acknowledged may be lost when it fails over to a
//! replica, or starts again without an append-only file that was synced. Tokens grow all the same, so that
//! what is guarded can refuse the older holder.

use std::time::Duration;

use async_trait::async_trait;
use coolant_core::lock::{
    Cooldown, LockAnswer, LockAt, LockEvent, LockRefusal, LockState, LockStore, LockToken, REMEMBERED,
};
use coolant_core::names::LockName;
use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::{Timestamp, millis_up};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, RedisError, Script, ServerErrorKind};

use crate::conn::unavailable;

/// How long a call waits for a connection, or for its answer, before Redis counts as away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Leaky locks in one Redis or Valkey.
pub struct RedisLocks {
    connection: ConnectionManager,
    script: Script,
    prefix: String,
}

/// The connection stays out of every log: its address may hold a password.
impl std::fmt::Debug for RedisLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisLocks").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RedisLocks {
    /// Locks in the Redis at `redis://[:PASSWORD@]HOST[:PORT][/DATABASE]`, under keys that begin with
    /// `prefix`. Connects at the first call, and again by itself. Has to be called within a tokio runtime.
    ///
    /// # Errors
    /// That the address is none.
    pub fn open(url: &str, prefix: &str) -> StoreResult<Self> {
        // Without its own words, which may quote the address.
        let wrong = |_| StoreError::Broken("the address of the locks is no `redis://HOST:PORT`".into());
        let client = redis::Client::open(url).map_err(wrong)?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        Ok(Self {
            connection: ConnectionManager::new_lazy_with_config(client, config).map_err(wrong)?,
            script: Script::new(include_str!("lock.lua")),
            prefix: prefix.to_owned(),
        })
    }

    async fn say(&self, key: &LockName, words: &[&str]) -> StoreResult<Answer> {
        let prefix = &self.prefix;
        let mut call = self.script.prepare_invoke();
        call.key(format!("{prefix}{key}"))
            .key(format!("{prefix}coolant:lock:{key}"))
            .key(format!("{prefix}coolant:lock-token"));
        for word in words {
            call.arg(word);
        }
        call.invoke_async(&mut self.connection.clone()).await.map_err(error)
    }
}

/// Outcome, time, value, ms left, holder, reason.
type Answer = (String, i64, Option<String>, i64, Option<String>, Option<String>);

#[async_trait]
impl LockStore for RedisLocks {
    async fn change_lock(&self, key: &LockName, event: LockEvent) -> StoreResult<LockAnswer> {
        let ms = |span: Duration| millis_up(span).max(1).to_string();
        let answer = match &event {
            LockEvent::Acquire { holder, ttl } => self.say(key, &["acquire", holder, &ms(*ttl)]).await?,
            LockEvent::Renew { token, ttl } => {
                self.say(key, &["renew", &token.0.to_string(), &ms(*ttl)]).await?
            }
            LockEvent::Succeed { token } => {
                self.say(key, &["succeed", &token.0.to_string(), &ms(REMEMBERED)]).await?
            }
            LockEvent::Fail { token, reason, cooldown } => {
                let cooldown = match cooldown {
                    Cooldown::RestOfTtl => "rest".to_owned(),
                    Cooldown::Permanent => "permanent".to_owned(),
                    Cooldown::For(wait) => millis_up(*wait).to_string(),
                };
                self.say(key, &["fail", &token.0.to_string(), reason, &cooldown]).await?
            }
            LockEvent::Open => self.say(key, &["open"]).await?,
        };
        let seen = seen(&answer);
        match answer.0.as_str() {
            "ok" => Ok(Ok(seen)),
            "taken" => Ok(Err(LockRefusal::Taken(seen))),
            "lost" => Ok(Err(LockRefusal::Lost)),
            other => Err(StoreError::Broken(format!("the script of the locks answered `{other}`"))),
        }
    }

    async fn lock(&self, key: &LockName) -> StoreResult<LockAt> {
        Ok(seen(&self.say(key, &["look"]).await?))
    }

    /// Redis forgets by itself.
    async fn forget_locks(&self, _: u32) -> StoreResult<u32> {
        Ok(0)
    }
}

/// The lock as the script found it.
fn seen((_, now, value, left_ms, holder, reason): &Answer) -> LockAt {
    let now = Timestamp::from_millis(*now);
    let until = u64::try_from(*left_ms).ok().map(|ms| now.plus(Duration::from_millis(ms)));
    let (holder, reason) = (holder.clone(), reason.clone());
    let value = value.as_deref();
    let (left, token) = match value.map(|value| value.split_once(':').unwrap_or(("", value))) {
        None => (LockState::Free, None),
        Some(("closed", token)) => (LockState::Closed { holder, reason }, Some(token)),
        Some(("cooling", token)) => match until {
            Some(until) => (LockState::Cooling { holder, reason, until }, Some(token)),
            // Somebody took its end away.
            None => (LockState::Closed { holder, reason }, Some(token)),
        },
        // Whoever set the key without a note is no program of ours.
        Some((_, token)) => {
            let ours = holder.is_some();
            (LockState::Held { holder, until }, Some(token).filter(|_| ours))
        }
    };
    let token = LockToken(token.and_then(|token| token.parse().ok()).unwrap_or(0));
    LockAt { state: left, token, now }
}

/// What a fault of Redis means to the callers of a store.
fn error(error: RedisError) -> StoreError {
    let passing = [
        ServerErrorKind::BusyLoading,
        ServerErrorKind::TryAgain,
        ServerErrorKind::ClusterDown,
        ServerErrorKind::MasterDown,
        ServerErrorKind::ReadOnly,
    ];
    match error.kind() {
        ErrorKind::Server(kind) if passing.contains(&kind) => unavailable(error),
        _ if error.code() == Some("OOM") => StoreError::Full(std::sync::Arc::new(error)),
        _ if matches!(error.code(), Some("BUSY" | "NOREPLICAS" | "MISCONF")) => unavailable(error),
        _ if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => unavailable(error),
        _ => StoreError::Broken(format!("redis refused: {error}")),
    }
}
