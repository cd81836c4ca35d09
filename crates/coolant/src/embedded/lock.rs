//! Leaky locks: a lease on a name that success alone gives back.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::lock::{Cooldown, LockAt, LockEvent, LockRefusal, LockStore, LockToken};
use coolant_core::names::LockName;
use coolant_core::say::Language;
use coolant_core::store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config;
use crate::engine::EngineError;
use crate::engine::locks::{COOLDOWN_RANGE, TTL_RANGE, checked_holder, lock_name};

/// How long a lock is held without a renewal, unless said otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(300);
/// How long a guard goes on trying to tell how its work ended while the store is away. The lock's TTL goes on
/// meanwhile, and ends it in any case.
const TELL_FOR: Duration = Duration::from_secs(10);

/// A lock by its name. Nothing is asked before [`LeakyLock::acquire`].
///
/// ```
/// # async fn example(store: &str) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use coolant::{Coolant, LockError};
///
/// let coolant = Coolant::open(store).await?;
/// let lock = coolant.lock("nightly-report").ttl(Duration::from_secs(300));
/// let guard = match lock.acquire().await {
///     Ok(guard) => guard,
///     // Who has it, why and how long.
///     Err(LockError::Taken(lock)) => panic!("not now: {:?} for {:?}", lock.state, lock.left()),
///     Err(error) => return Err(error.into()),
/// };
/// // The work. Its lock is renewed meanwhile; a `?` or a panic in here leaves it cooling.
/// guard.succeed().await?;
/// # assert_eq!(lock.look().await?.state.as_str(), "free");
/// #
/// # let guard = lock.acquire().await?;
/// # guard.fail("no paper").await?;
/// # assert_eq!(lock.look().await?.state.reason(), Some("no paper"));
/// # Ok(())
/// # }
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = format!("sqlite:{}/coolant.db", folder.path().display());
/// # tokio::runtime::Runtime::new().unwrap().block_on(example(&store)).unwrap();
/// ```
#[derive(Clone)]
pub struct LeakyLock {
    locks: Arc<dyn LockStore>,
    key: String,
    ttl: Duration,
    holder: Option<String>,
}

impl std::fmt::Debug for LeakyLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeakyLock").field("key", &self.key).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// Why a lock was not given, or not given back.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It is held, cooling or closed.
    #[error(transparent)]
    Taken(Box<LockTaken>),
    /// Its time ended, or an operator opened it: what was done since was done unguarded.
    #[error("the lock is lost: its time ended or somebody opened it, and it may have another holder")]
    Lost,
    /// Its name, TTL, holder or reason is none.
    #[error("{0}")]
    Invalid(String),
    /// The store did not answer.
    #[error("the locks did not answer")]
    Store(#[from] StoreError),
}

/// A lock that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockTaken(LockAt);

impl std::ops::Deref for LockTaken {
    type Target = LockAt;

    fn deref(&self) -> &LockAt {
        &self.0
    }
}

impl std::fmt::Display for LockTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.sentence().say(Language::English))
    }
}

impl std::error::Error for LockTaken {}

impl From<LockRefusal> for LockError {
    fn from(refusal: LockRefusal) -> Self {
        match refusal {
            LockRefusal::Taken(lock) => Self::Taken(Box::new(LockTaken(lock))),
            LockRefusal::Lost => Self::Lost,
        }
    }
}

fn invalid(error: &EngineError) -> LockError {
    LockError::Invalid(error.to_string())
}

impl LeakyLock {
    /// A lock in that store of locks. Its TTL is 5 minutes and its holder this process, unless set.
    #[must_use]
    pub fn new(locks: Arc<dyn LockStore>, key: impl Into<String>) -> Self {
        Self { locks, key: key.into(), ttl: DEFAULT_TTL, holder: None }
    }

    /// How long it stays when nobody renews it: 0.1 s to 7 days. A living guard renews it three times as often.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Who has it, for people: 256 bytes at most.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Gives the lock, if it is free; waits for nobody. Has to be called within a tokio runtime, on which it is
    /// renewed.
    ///
    /// # Errors
    /// [`LockError::Taken`] with who has it, why and how long.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        let name = lock_name(&self.key).map_err(|error| invalid(&error))?;
        if !TTL_RANGE.contains(&self.ttl) {
            return Err(LockError::Invalid(format!("a TTL of {:?} is out of bounds", self.ttl)));
        }
        let holder = self.holder.clone().unwrap_or_else(config::this_process);
        let holder = checked_holder(&holder).map_err(|error| invalid(&error))?;
        // The lock's time is counted from before the call: never longer here than in the store.
        let asked = Instant::now();
        let given = self.locks.change_lock(&name, LockEvent::Acquire { holder, ttl: self.ttl }).await??;
        let (lost, seen) = watch::channel(false);
        let held = Held { locks: Arc::clone(&self.locks), name, token: given.token, ttl: self.ttl };
        let renewal = tokio::spawn(held.clone().renewed(asked, lost));
        Ok(LockGuard { held, lost: seen, renewal, runtime: Handle::current(), told: false })
    }

    /// How the lock stands.
    ///
    /// # Errors
    /// That the name is none, or the store did not answer.
    pub async fn look(&self) -> Result<LockAt, LockError> {
        let name = lock_name(&self.key).map_err(|error| invalid(&error))?;
        Ok(self.locks.lock(&name).await?)
    }
}

/// A lock that is held, and how to say so.
#[derive(Clone)]
struct Held {
    locks: Arc<dyn LockStore>,
    name: LockName,
    token: LockToken,
    ttl: Duration,
}

impl Held {
    /// Renews until the lock is lost. While the store is away, a tenth of the TTL before the end counts as the
    /// end, so that there is time to stop.
    async fn renewed(self, asked: Instant, lost: watch::Sender<bool>) {
        let usable = self.ttl.mul_f64(0.9);
        let mut end = asked + usable;
        let mut next = asked + self.ttl / 3;
        loop {
            sleep_until(next).await;
            let asked = Instant::now();
            let event = LockEvent::Renew { token: self.token, ttl: self.ttl };
            match timeout_at(end, self.locks.change_lock(&self.name, event)).await {
                Ok(Ok(Ok(_))) => (end, next) = (asked + usable, asked + self.ttl / 3),
                Ok(Ok(Err(_))) => break,
                Err(_) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a lock could not be renewed; it is tried again until it ends");
                    next = Instant::now() + (self.ttl / 30).min(Duration::from_secs(1));
                    if next >= end {
                        sleep_until(end).await;
                        break;
                    }
                }
            }
        }
        let _ = lost.send(true);
    }

    /// Says how it ended, again if the store is away for a moment.
    async fn tell(&self, event: LockEvent) -> Result<LockAt, LockError> {
        let end = Instant::now() + TELL_FOR.min(self.ttl);
        loop {
            match self.locks.change_lock(&self.name, event.clone()).await {
                Ok(answer) => return Ok(answer?),
                Err(error) if error.is_retryable() && Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A lock that is held, and renewed in the background, as long as this lives. Dropped without a word, by a
/// `?` or a panic, it stays cooling until its TTL ends.
pub struct LockGuard {
    held: Held,
    lost: watch::Receiver<bool>,
    renewal: JoinHandle<()>,
    runtime: Handle,
    told: bool,
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard").field("key", &self.held.name).finish_non_exhaustive()
    }
}

impl LockGuard {
    /// Grows with every acquire of this lock. Give it to what the lock guards, which can refuse smaller ones.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.held.token.0
    }

    /// Whether it is still held, as far as this process knows.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !*self.lost.borrow()
    }

    /// Ends when the lock is lost: somebody opened it, or the store was away until nearly its end. Stop the
    /// work then.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Gives the lock back: it is free at once.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was not held to the end.
    pub async fn succeed(self) -> Result<(), LockError> {
        let event = LockEvent::Succeed { token: self.held.token };
        self.end(event).await.map(|_| ())
    }

    /// Leaves the lock cooling until it would have ended; `reason` is shown to whoever asks.
    ///
    /// # Errors
    /// [`LockError::Lost`] if it was not held to the end.
    pub async fn fail(self, reason: impl Into<String>) -> Result<LockAt, LockError> {
        self.end_with(reason.into(), Cooldown::RestOfTtl).await
    }

    /// Leaves the lock cooling for that long from now, 30 days at most.
    ///
    /// # Errors
    /// As [`Self::fail`].
    pub async fn fail_for(self, reason: impl Into<String>, wait: Duration) -> Result<LockAt, LockError> {
        let wait = wait.min(*COOLDOWN_RANGE.end());
        self.end_with(reason.into(), Cooldown::For(wait)).await
    }

    /// Leaves the lock closed until an operator opens it.
    ///
    /// # Errors
    /// As [`Self::fail`].
    pub async fn close(self, reason: impl Into<String>) -> Result<LockAt, LockError> {
        self.end_with(reason.into(), Cooldown::Permanent).await
    }

    async fn end_with(self, reason: String, cooldown: Cooldown) -> Result<LockAt, LockError> {
        let event = LockEvent::Fail { token: self.held.token, reason: one_line(&reason), cooldown };
        self.end(event).await
    }

    async fn end(mut self, event: LockEvent) -> Result<LockAt, LockError> {
        self.renewal.abort();
        self.told = true;
        self.held.tell(event).await
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        self.renewal.abort();
        let reason = if std::thread::panicking() { "the holder panicked" } else { "the holder gave up" };
        let (held, token) = (self.held.clone(), self.held.token);
        // It is over at the same instant if this is never said; others are told more if it is.
        self.runtime.spawn(async move {
            let event = LockEvent::Fail { token, reason: reason.into(), cooldown: Cooldown::RestOfTtl };
            let _ = held.locks.change_lock(&held.name, event).await;
        });
    }
}

/// A reason as it is kept: on one line, 1000 bytes at most, and never empty.
fn one_line(reason: &str) -> String {
    const MOST: usize = 1000;
    let line = reason.split(char::is_control).collect::<Vec<_>>().join(" ");
    let line = line.trim();
    let end = (0..=MOST.min(line.len())).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    if end == 0 { "not said".to_owned() } else { line[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_reason_becomes_a_line() {
        assert_eq!(one_line("a\n\tb\0"), "a  b");
        assert_eq!(one_line(" \n"), "not said");
        assert_eq!(one_line(&"가".repeat(400)).len(), 999);
    }
}
