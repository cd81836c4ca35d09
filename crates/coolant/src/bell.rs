//! The bell: wakes whoever waits for something to change, whether this process changed it or another did.
//!
//! A ring is a hint, never the truth. Whoever hears it looks into the store; whoever misses it finds out at
//! the next poll.

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::SqlStore;
use tokio::sync::watch;

/// Rung after every change that somebody may wait for.
#[derive(Debug, Clone)]
pub struct Bell(Arc<watch::Sender<u64>>);

impl Default for Bell {
    fn default() -> Self {
        Self(Arc::new(watch::channel(0).0))
    }
}

impl Bell {
    /// Wakes all who listen.
    pub fn ring(&self) {
        self.0.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    /// Rings for what other processes on that store change, until the store is closed. Has to be called within
    /// a tokio runtime.
    pub fn ring_for_others(&self, store: &SqlStore) {
        let (bell, mut hints) = (self.clone(), store.hints());
        tokio::spawn(async move {
            while hints.next().await {
                bell.ring();
            }
        });
    }

    /// Starts to listen: hears every ring from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

/// Hears the rings since the last time it asked.
#[derive(Debug)]
pub struct Listener(watch::Receiver<u64>);

impl Listener {
    /// Returns at the first ring not yet heard, or after `longest`.
    pub async fn rung(&mut self, longest: Duration) {
        // Both a time-out and a bell that is gone mean the same to the caller: look again.
        let _ = tokio::time::timeout(longest, self.0.changed()).await;
    }
}
