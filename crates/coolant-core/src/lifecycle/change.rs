//! A job in the middle of a change: what each kind of end does to it.

use std::time::Duration;

use super::event::{Answer, AttemptEnd, Transition};
use crate::failure::{Failure, FailureClass};
use crate::job::{Counters, Job, JobState, Lease, LeaseToken, Outcome, Policy, Reopen, Settled, Wait};
use crate::money::Usage;
use crate::retry;
use crate::time::Timestamp;

/// A job in the middle of a change.
pub(super) struct Change {
    pub(super) job: Job,
    now: Timestamp,
    ended: Option<AttemptEnd>,
}

impl Change {
    pub(super) fn of(job: &Job, now: Timestamp) -> Self {
        let mut job = job.clone();
        job.version += 1;
        job.updated_at = now;
        Self { job, now, ended: None }
    }

    pub(super) fn answer(self, answer: Answer) -> Transition {
        Transition { job: self.job, ended: self.ended, answer }
    }

    /// Books paid calls. `kept` says whether a step or the result keeps what they gave.
    pub(super) fn book(&mut self, usage: &[Usage], kept: bool) {
        for call in usage {
            self.job.usage.add(call);
            if call.is_wasted(kept) {
                self.job.usage.wasted = self.job.usage.wasted.plus(call.cost.unwrap_or_default());
            }
        }
    }

    pub(super) fn end_attempt(&mut self, outcome: Outcome, error: Option<Failure>) {
        let token = LeaseToken(self.job.counters.claims);
        self.job.last_settled = Some(Settled { token, outcome });
        self.ended = Some(AttemptEnd { number: token.0, outcome, error });
    }

    /// Puts the job back until then.
    pub(super) fn wait(&mut self, visible_at: Timestamp, wait: Wait) {
        self.job.state = JobState::Pending { visible_at, wait };
    }

    /// Puts the job into the dead-letter queue.
    fn give_up(&mut self, failure: Failure, reopen: Reopen) {
        self.job.state = JobState::Failed { at: self.now, reopen };
        self.job.finished_at = Some(self.now);
        self.job.last_error = Some(failure);
    }

    fn after_cooldown(&self) -> Reopen {
        Reopen::From(self.now.plus(self.job.spec.policy.cooldown))
    }

    pub(super) fn fail(&mut self, failure: &Failure, jitter: f64) {
        if failure.class.is_upstreams_fault()
            && !failure.final_
            && let Some(upstream) = &failure.upstream
        {
            let wait = retry::upstream_wait(failure, jitter);
            let reason = format!("upstream `{upstream}`: {}", failure.code);
            return self.defer(wait, &reason, Some(failure));
        }
        self.job.deferred_since = None;
        self.job.last_error = Some(failure.clone());
        let counters = &mut self.job.counters;
        counters.timeouts += u32::from(failure.class == FailureClass::Timeout);
        counters.invalid_outputs += u32::from(failure.class == FailureClass::InvalidOutput);
        let verdict = retry::after_failure(&self.job.spec.policy, &self.job.counters, failure, jitter);
        match verdict {
            retry::Verdict::Retry(wait) => self.wait(self.now.plus(wait), Wait::Cooling),
            retry::Verdict::GiveUp => self.give_up(failure.clone(), self.after_cooldown()),
            retry::Verdict::Permanent => self.give_up(failure.clone(), Reopen::OnlyForced),
        }
        self.end_attempt(Outcome::Failed, Some(failure.clone()));
    }

    pub(super) fn defer(&mut self, wait: Duration, reason: &str, failure: Option<&Failure>) {
        self.uncount();
        self.job.counters.deferrals += 1;
        if let Some(failure) = failure {
            self.job.last_error = Some(failure.clone());
        }
        let since = *self.job.deferred_since.get_or_insert(self.now);
        self.end_attempt(Outcome::Deferred, failure.cloned());
        let wait = wait.min(retry::LONGEST_AUTOMATIC_WAIT);
        self.wait(self.now.plus(wait), Wait::Deferred { reason: reason.to_owned() });
        if since.plus(self.job.spec.policy.max_wait) <= self.now {
            self.give_up_waiting();
        }
    }

    /// The upstream stayed closed for too long: given up with the upstream's own failure, if it was told.
    pub(super) fn give_up_waiting(&mut self) {
        let told = self.job.last_error.clone().filter(|failure| failure.class.is_upstreams_fault());
        let failure = told.unwrap_or_else(|| {
            Failure::new(FailureClass::Overloaded, "UPSTREAM_CLOSED", "waited too long for its upstream")
        });
        self.give_up_waiting_for(failure);
    }

    /// The same where it is known what stayed closed.
    pub(super) fn give_up_waiting_for(&mut self, failure: Failure) {
        self.give_up(failure, self.after_cooldown());
    }

    pub(super) fn release(&mut self) {
        self.uncount();
        self.job.counters.releases += 1;
        self.end_attempt(Outcome::Released, None);
        let max = self.job.spec.policy.max_releases;
        if self.job.counters.releases >= max {
            let message = format!("given back {max} times without an end");
            let failure = Failure::new(FailureClass::HandlerError, "RELEASE_LIMIT", message);
            return self.give_up(failure, self.after_cooldown());
        }
        self.wait(self.now, Wait::Start);
    }

    fn uncount(&mut self) {
        let counters = &mut self.job.counters;
        counters.executions = counters.executions.saturating_sub(1);
        counters.tries = counters.tries.saturating_sub(1);
    }

    pub(super) fn cancel_attempt(&mut self) {
        self.end_attempt(Outcome::Cancelled, None);
        self.cancel();
    }

    pub(super) fn cancel(&mut self) {
        self.job.state = JobState::Cancelled { at: self.now };
        self.job.finished_at = Some(self.now);
    }

    /// The lease ran out: the attempt is lost, and the job is pending again or dead.
    pub(super) fn lapse(&mut self, lease: &Lease) {
        self.job.counters.lost += 1;
        let message = format!("worker `{}` stopped renewing its lease", lease.worker);
        let failure = Failure::new(FailureClass::WorkerLost, "WORKER_LOST", message);
        self.end_attempt(Outcome::Lost, Some(failure.clone()));
        if is_exhausted(&self.job.spec.policy, &self.job.counters) {
            return self.give_up(failure, self.after_cooldown());
        }
        self.job.last_error = Some(failure);
        // No second wait: the lease itself was the cooldown.
        self.wait(lease.until, Wait::Start);
        self.expire();
    }

    /// Past its `expires_at` a pending job is given up.
    pub(super) fn expire(&mut self) {
        let JobState::Pending { .. } = self.job.state else { return };
        if expires_at(&self.job).is_some_and(|at| at <= self.now) {
            let failure = Failure::new(FailureClass::InvalidRequest, EXPIRED, EXPIRED_MESSAGE);
            self.give_up(failure, Reopen::OnlyForced);
        }
    }
}

const EXPIRED: &str = "EXPIRED";
const EXPIRED_MESSAGE: &str = "not finished before its `expires_at`";

/// When a pending job expires. One that did and was reopened all the same has one more attempt: whoever
/// insisted knows how late it is.
pub(super) fn expires_at(job: &Job) -> Option<Timestamp> {
    let last = job.last_error.as_ref().map(|failure| (failure.code.as_str(), failure.message.as_str()));
    job.spec.expires_at.filter(|_| last != Some((EXPIRED, EXPIRED_MESSAGE)))
}

/// Whether no attempt is left.
pub(super) fn is_exhausted(policy: &Policy, counters: &Counters) -> bool {
    counters.tries >= policy.max_attempts || counters.lost >= policy.max_lost
}
