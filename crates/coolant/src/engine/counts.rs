//! Counts: what only the engine sees, told to the store: money that was not spent again, and jobs that a
//! redrive leaves alone because they cool. (What a cooldown refuses in the store, the store counts.)
//!
//! A number that could not be counted is lost; no call fails for it.

use coolant_core::job::{Job, JobState};
use coolant_core::money::Money;
use coolant_core::names::Queue;
use coolant_core::store::{Claimed, Counter, StoreResult, SubmitOutcome};

use super::Engine;
use super::submit::SubmitAnswer;

type Count = (Counter, Queue, i64);

impl Engine {
    /// Counts what steps of earlier attempts save the jobs of this claim. Whoever claims past the engine
    /// calls it.
    pub async fn count_resumed(&self, claimed: &[Claimed]) {
        let mut counts = Vec::new();
        for claimed in claimed.iter().filter(|claimed| !claimed.steps.is_empty()) {
            match self.paid_for_steps(claimed).await {
                Ok(paid) => counts.extend(saved(&claimed.record.job, paid)),
                Err(error) => tracing::debug!(%error, "what steps saved was not counted"),
            }
        }
        self.count(counts).await;
    }

    async fn paid_for_steps(&self, claimed: &Claimed) -> StoreResult<Money> {
        let ledger = self.parts.store.ledger(claimed.record.job.id).await?;
        let kept = ledger.iter().filter(|entry| {
            entry.attempt < claimed.lease.token.0
                && entry.step.as_ref().is_some_and(|step| claimed.steps.contains_key(step))
        });
        Ok(kept.fold(Money::default(), |sum, entry| sum.plus(entry.usage.cost.unwrap_or_default())))
    }

    /// Counts what submits save that find their work done.
    pub(super) async fn count_replayed<'a>(&self, answers: impl Iterator<Item = &'a SubmitAnswer>) {
        let is_replay = |answer: &&SubmitAnswer| {
            let state = &answer.job.record.job.state;
            answer.outcome == SubmitOutcome::Existing && matches!(state, JobState::Succeeded { .. })
        };
        let saved = |answer: &SubmitAnswer| {
            let job = &answer.job.record.job;
            saved(job, job.usage.cost)
        };
        let counts = answers.filter(is_replay).filter_map(saved).collect();
        self.count(counts).await;
    }

    /// Counts jobs that a redrive left alone because they cool, by their queues.
    pub(super) async fn count_cooling(&self, queues: Vec<Queue>) {
        let counts = queues.into_iter().map(|queue| (Counter::BlockedStarts, queue, 1)).collect();
        self.count(counts).await;
    }

    async fn count(&self, counts: Vec<Count>) {
        if counts.is_empty() {
            return;
        }
        if let Err(error) = self.parts.store.count(counts).await {
            tracing::debug!(%error, "a count was lost");
        }
    }
}

fn saved(job: &Job, cost: Money) -> Option<Count> {
    (cost > Money::default()).then(|| (Counter::SavedNanos, job.spec.queue.clone(), cost.as_nanos()))
}
