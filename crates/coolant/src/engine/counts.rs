//! Counts: what only the engine sees, told to the store: money that was not spent again, and jobs that a
//! redrive leaves alone because they cool. (What a cooldown refuses in the store, the store counts.)
//!
//! A number that could not be counted is lost; no call fails for it.

use std::collections::BTreeSet;

use coolant_core::job::{JobId, JobState, LeaseToken};
use coolant_core::money::Money;
use coolant_core::names::Queue;
use coolant_core::store::{Claimed, Counter, Store, StoreResult, SubmitOutcome};

use super::Engine;
use super::submit::SubmitAnswer;

type Count = (Counter, Queue, i64);

/// A claimed job that gets back finished steps.
pub(crate) struct Resumed {
    job_id: JobId,
    queue: Queue,
    token: LeaseToken,
    steps: BTreeSet<String>,
}

impl Resumed {
    /// Those of claimed jobs that do.
    pub(crate) fn among(claimed: &[Claimed]) -> Vec<Self> {
        let resumed = claimed.iter().filter(|claimed| !claimed.steps.is_empty());
        let resumed = resumed.map(|claimed| Self {
            job_id: claimed.record.job.id,
            queue: claimed.record.job.spec.queue.clone(),
            token: claimed.lease.token,
            steps: claimed.steps.keys().cloned().collect(),
        });
        resumed.collect()
    }

    /// What those steps cost when they were paid.
    async fn saved(&self, store: &dyn Store) -> StoreResult<Money> {
        let ledger = store.ledger(self.job_id).await?;
        let kept = ledger.iter().filter(|entry| {
            !entry.wasted
                && entry.attempt < self.token.0
                && entry.step.as_ref().is_some_and(|step| self.steps.contains(step))
        });
        Ok(kept.fold(Money::default(), |sum, entry| sum.plus(entry.usage.cost.unwrap_or_default())))
    }
}

/// Counts what steps of earlier attempts save the jobs of a claim.
pub(crate) async fn count_resumed(store: &dyn Store, resumed: Vec<Resumed>) {
    let mut counts = Vec::new();
    for resumed in resumed {
        match resumed.saved(store).await {
            Ok(cost) => counts.extend(saved(Counter::SavedBySteps, &resumed.queue, cost)),
            Err(error) => tracing::debug!(%error, "what steps saved was not counted"),
        }
    }
    count(store, counts).await;
}

async fn count(store: &dyn Store, counts: Vec<Count>) {
    if counts.is_empty() {
        return;
    }
    if let Err(error) = store.count(counts).await {
        tracing::debug!(%error, "a count was lost");
    }
}

fn saved(by: Counter, queue: &Queue, cost: Money) -> Option<Count> {
    (cost > Money::default()).then(|| (by, queue.clone(), cost.as_nanos()))
}

impl Engine {
    /// Counts what submits save that find their work done.
    pub(super) async fn count_replayed<'a>(&self, answers: impl Iterator<Item = &'a SubmitAnswer>) {
        let is_replay = |answer: &&SubmitAnswer| {
            let state = &answer.job.record.job.state;
            answer.outcome == SubmitOutcome::Existing && matches!(state, JobState::Succeeded { .. })
        };
        let found = |answer: &SubmitAnswer| {
            let job = &answer.job.record.job;
            saved(Counter::SavedByKeys, &job.spec.queue, job.usage.cost)
        };
        let counts = answers.filter(is_replay).filter_map(found).collect();
        count(self.parts.store.as_ref(), counts).await;
    }

    /// Counts jobs that a redrive left alone because they cool, by their queues and what each would have cost.
    pub(super) async fn count_cooling(&self, jobs: Vec<(Queue, Money)>) {
        let saving = jobs.iter().filter_map(|(queue, cost)| saved(Counter::SavedByCooldowns, queue, *cost));
        let mut counts: Vec<Count> = saving.collect();
        counts.extend(jobs.into_iter().map(|(queue, _)| (Counter::BlockedStarts, queue, 1)));
        count(self.parts.store.as_ref(), counts).await;
    }
}
