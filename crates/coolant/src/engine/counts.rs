//! Counts: what only the engine sees, told to the store: starts that were refused, money that was not spent
//! again.
//!
//! A number that could not be counted is lost; no call fails for it.

use coolant_core::job::{Job, JobState};
use coolant_core::money::Money;
use coolant_core::names::Queue;
use coolant_core::store::{Claimed, Counter, StoreResult, SubmitOutcome};
use coolant_core::time::Timestamp;
use coolant_core::view::RetryAt;

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

    /// Counts what a submit met: a result that was there already, or a door that is closed for now.
    pub(super) async fn count_submitted<'a>(&self, answers: impl Iterator<Item = &'a SubmitAnswer>) {
        let met = |answer: &SubmitAnswer| {
            let job = &answer.job.record.job;
            match (answer.outcome, &job.state) {
                (SubmitOutcome::Existing, JobState::Succeeded { .. }) => saved(job, job.usage.cost),
                (SubmitOutcome::Existing, _) => refused(job, answer.job.now),
                _ => None,
            }
        };
        let counts = answers.filter_map(met).collect();
        self.count(counts).await;
    }

    /// Counts starts that a cooldown refused.
    pub(super) async fn count_refused(&self, queues: Vec<Queue>) {
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

fn refused(job: &Job, now: Timestamp) -> Option<Count> {
    let cooling = RetryAt::of(job).is_some_and(|retry| retry.at > now);
    cooling.then(|| (Counter::BlockedStarts, job.spec.queue.clone(), 1))
}
