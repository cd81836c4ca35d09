//! Patience with the store: what a worker does while it does not answer.
//!
//! Always true:
//! - every wait between two tries grows to a limit and is scattered, so that an outage ends in no stampede;
//! - an outage is logged when it begins and when it is over, however many calls it hits;
//! - a change that keeps what was paid for is given up only when it is refused, when the store calls it
//!   impossible again and again, or when the process ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coolant_core::lifecycle::Refusal;
use coolant_core::store::{Applied, JobChange, Store, StoreError, StoreResult};
use coolant_core::upstream::PermitSettlement;
use tokio::sync::watch;

/// How long one call of the store may take before it counts as not answered.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(60);

/// Tries of a change that the store calls broken, before it is given up.
const TRIES_IF_BROKEN: u32 = 8;

/// Makes changes, however long the store is away.
pub(super) struct Courier {
    pub(super) store: Arc<dyn Store>,
    outage: Outage,
    closing: Closing,
}

/// Why a change was not made.
#[derive(Debug)]
pub(super) enum NotMade {
    /// The store refused it: the lease is somebody else's, or the job has ended.
    Refused(Refusal),
    /// It was given up; it may yet have been made.
    GivenUp(StoreError),
}

impl Courier {
    pub(super) fn new(store: Arc<dyn Store>, closing: Closing) -> Self {
        Self { store, outage: Outage::new("apply"), closing }
    }

    /// Makes the change, and tries again until the store has answered it.
    pub(super) async fn deliver(&self, change: JobChange) -> Result<Applied, NotMade> {
        let answers = self.insist(|| self.store.apply(vec![change.clone()])).await;
        let mut answers = answers.map_err(NotMade::GivenUp)?;
        let unanswered = || NotMade::GivenUp(StoreError::Broken("one change, and no answer to it".into()));
        answers.pop().ok_or_else(unanswered)?.map_err(NotMade::Refused)
    }

    /// Settles a paid call, and tries again until the store has taken it.
    pub(super) async fn settle_permit(&self, settlement: PermitSettlement) -> StoreResult<()> {
        let settled = self.insist(|| self.store.settle_permits(vec![settlement.clone()])).await?;
        match settled.as_slice() {
            [Some(_)] => Ok(()),
            _ => Err(StoreError::Broken("its permit is not known".into())),
        }
    }

    /// Calls the store until it has answered, or there is no more sense in it.
    async fn insist<T, F>(&self, call: impl Fn() -> F) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let mut broken = 0;
        loop {
            let error = match within(LONGEST_CALL, call()).await {
                Ok(answer) => {
                    self.outage.is_over();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            self.outage.goes_on(&error);
            broken += u32::from(matches!(error, StoreError::Broken(_)));
            if broken >= TRIES_IF_BROKEN || !self.closing.outlasts(backoff.next()).await {
                return Err(error);
            }
        }
    }
}

/// Says when the worker has no more time for what is left. Its worker being gone says the same.
#[derive(Debug, Clone)]
pub(super) struct Closing(pub(super) watch::Receiver<bool>);

impl Closing {
    /// Ends when the worker closes.
    pub(super) async fn closed(&self) {
        let _ = self.0.clone().wait_for(|closed| *closed).await;
    }

    /// Waits; says whether the worker is still open after it.
    async fn outlasts(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.closed()).await.is_err()
    }
}

/// The answer of a store call, if it comes in time.
pub(super) async fn within<T>(limit: Duration, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(StoreError::Unavailable(Arc::new(elapsed))),
    }
}

/// Waits that double up to a limit, each scattered over its upper half.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, next: first, longest }
    }

    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next.min(self.longest);
        self.next = wait.saturating_mul(2).min(self.longest);
        wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Whether calls of one kind fail at the moment; logs each outage once.
#[derive(Debug)]
pub(super) struct Outage {
    call: &'static str,
    since: Mutex<Option<Instant>>,
}

impl Outage {
    pub(super) fn new(call: &'static str) -> Self {
        Self { call, since: Mutex::new(None) }
    }

    pub(super) fn goes_on(&self, error: &StoreError) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(Instant::now());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(store.call = self.call, error = %error, cause, "the store fails; trying again");
        }
    }

    pub(super) fn is_over(&self) {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = since {
            let duration_ms = millis(since.elapsed());
            tracing::info!(store.call = self.call, duration_ms, "the store answers again");
        }
    }
}

/// Whole milliseconds, for log fields.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit_and_are_never_shorter_than_half() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        for expected in [50, 100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next();
            assert!(wait <= Duration::from_millis(expected), "{wait:?}");
            assert!(wait >= Duration::from_millis(expected / 2), "{wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(50));
    }
}
