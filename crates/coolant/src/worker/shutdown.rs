//! Shutdown: how a process is asked to stop, in two stages.
//!
//! The first signal drains: nothing new is begun, what runs goes on for a while. The second one gives back
//! at once what still runs.

use std::sync::Arc;

use tokio::sync::watch;

/// Asks everything that holds a clone of it to stop.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<Stage>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    Draining,
    Now,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::channel(Stage::Open).0))
    }
}

impl Shutdown {
    /// One that nobody has asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM and SIGINT ask for: the first drains, the second stops at once.
    ///
    /// # Errors
    /// The system's, if it takes no signal handlers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let on_signal = shutdown.clone();
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        _ = terminate.recv() => on_signal.signal(),
                        _ = interrupt.recv() => on_signal.signal(),
                    }
                }
            });
        }
        #[cfg(not(unix))]
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                on_signal.signal();
            }
        });
        Ok(shutdown)
    }

    /// The next stage, as a signal asks for it: drain, then at once.
    pub fn signal(&self) {
        self.0.send_modify(|stage| {
            *stage = if *stage == Stage::Open { Stage::Draining } else { Stage::Now };
        });
    }

    /// Begin nothing new; let what runs go on.
    pub fn drain(&self) {
        self.0.send_modify(|stage| *stage = Stage::Draining.max(*stage));
    }

    /// Give back what runs, at once.
    pub fn now(&self) {
        self.0.send_modify(|stage| *stage = Stage::Now);
    }

    /// Whether anybody asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        *self.0.borrow() != Stage::Open
    }

    /// Ends when somebody asks.
    pub async fn asked(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Ends when it has to be at once.
    pub async fn asked_now(&self) {
        self.reached(Stage::Now).await;
    }

    async fn reached(&self, least: Stage) {
        // Cannot fail: the sender is our own.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= least).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_stops_at_once() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_asked());
        shutdown.signal();
        shutdown.asked().await;
        shutdown.drain();
        shutdown.signal();
        shutdown.asked_now().await;
        shutdown.drain();
        shutdown.asked_now().await;
    }
}
