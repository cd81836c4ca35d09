//! The bell: wakes whoever waits for something to change in this process.
//!
//! A ring is a hint, never the truth. Whoever hears it looks into the store; whoever misses it finds out at
//! the next poll.

use std::sync::Arc;
use std::time::Duration;

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
