//! Heartbeats: one task renews the leases of the process, those that are due at about the same time in one call
//! of the store.
//!
//! A lease whose job somebody else's transaction holds is tried again soon, and costs no other lease anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coolant_core::lifecycle::{Answer, Refusal};
use coolant_core::store::{Applied, JobChange, Store, StoreError};

use super::leases::{Held, Leases, Stop};
use super::patience::{Backoff, Outage, within};
use crate::bell::Bell;

/// Renews the leases of one process.
pub(super) struct Heartbeat {
    pub(super) store: Arc<dyn Store>,
    pub(super) leases: Arc<Leases>,
    pub(super) bell: Bell,
    pub(super) outage: Outage,
}

impl Heartbeat {
    /// Beats for ever: for each lease a third of its length after the last beat, and soon again after one that
    /// failed.
    pub(super) async fn run(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        loop {
            self.until_due().await;
            match self.beat().await {
                Ok(()) => {
                    self.outage.is_over();
                    backoff.reset();
                }
                Err(error) => {
                    // No lease is lost by this: the store alone says so, once it is back.
                    self.outage.goes_on(&error);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    async fn until_due(&self) {
        loop {
            let earlier = self.leases.earlier.notified();
            match self.leases.plan() {
                None => earlier.await,
                Some(due) if due <= Instant::now() => return,
                Some(due) => {
                    let wait = due.saturating_duration_since(Instant::now());
                    // A new lease may be shorter than all others.
                    let _ = tokio::time::timeout(wait, earlier).await;
                }
            }
        }
    }

    /// Renews the leases that are due, in one call.
    async fn beat(&self) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let held = self.leases.due(asked_at);
        if held.is_empty() {
            return Ok(());
        }
        let renewals: Vec<_> = held.iter().map(|held| held.renewal()).collect();
        let shortest = held.iter().map(|held| held.length).min().unwrap_or_default();
        // A call that hangs must leave time for another before the leases end.
        let limit = (shortest / 3).max(Duration::from_secs(1));
        match within(limit, self.store.apply(renewals.clone())).await {
            Ok(answers) => {
                for ((held, renewal), answer) in held.iter().zip(renewals).zip(answers) {
                    match answer {
                        Err(Refusal::Busy) => held.put_off(renewal),
                        answer => self.hand_back(held, answer, asked_at),
                    }
                }
                Ok(())
            }
            Err(error) => {
                take_back(&held, renewals);
                Err(error)
            }
        }
    }

    /// Gives a job what the store said of its lease.
    fn hand_back(&self, held: &Held, answer: Result<Applied, Refusal>, asked_at: Instant) {
        let stop = match answer.map(|applied| applied.answer) {
            Ok(Answer::Cancelled) | Err(Refusal::LeaseLostByCancel) => Stop::Cancelled,
            Ok(Answer::Ended) => Stop::Ended,
            Ok(Answer::Held { .. } | Answer::Claimed(_) | Answer::Done | Answer::Already) => {
                return held.renewed(asked_at);
            }
            Err(_) => Stop::LeaseLost,
        };
        // A job that is being settled no longer listens: its settle has an answer of its own.
        held.stop(stop);
        self.leases.forget(held);
        self.bell.ring();
    }
}

fn take_back(held: &[Arc<Held>], renewals: Vec<JobChange>) {
    for (held, renewal) in held.iter().zip(renewals) {
        held.take_back(renewal);
    }
}
