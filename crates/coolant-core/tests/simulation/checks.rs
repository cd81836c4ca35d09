//! What a bystander sees: every answer of the store, judged without asking the rules that made it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coolant_core::failure::Failure;
use coolant_core::job::{Attempt, JobId, JobRecord, JobState, Outcome, Status, Step};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::Money;
use coolant_core::names::{IdempotencyKey, LockKey, Tenant};
use coolant_core::store::{
    Applied, ClaimRequest, Claimed, JobChange, NewJob, Start, SubmitOutcome, Submitted,
};
use coolant_core::time::Timestamp;
use serde_json::Value;

use super::upstreams::Upstreams;

/// What is known of one job from outside.
#[derive(Debug)]
struct Seen {
    spec: coolant_core::job::JobSpec,
    payload: Value,
    /// Not to be started before.
    not_before: Timestamp,
    /// The newest token that was handed out.
    token: i64,
    /// When the current lease ends, if there is one.
    lease: Option<Lease>,
    /// Claims since the submit or a reopening that used up an attempt.
    tries: u32,
    /// Until when a failure keeps others of the lock key back.
    cools_until: Option<Timestamp>,
    /// The result of an acknowledged success.
    success: Option<Value>,
    /// When the dead letter may be reopened without force.
    closed_until: Option<Timestamp>,
    steps: BTreeSet<String>,
    paid: BTreeMap<String, u32>,
    interrupted: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    until: Timestamp,
    deadline: Timestamp,
}

impl Lease {
    fn end(self) -> Timestamp {
        self.until.min(self.deadline)
    }
}

/// All that was seen, and what was wrong with it.
#[derive(Debug, Default)]
pub struct Checks {
    jobs: BTreeMap<JobId, Seen>,
    keys: BTreeMap<(Tenant, IdempotencyKey), JobId>,
    latest: Timestamp,
    pub upstreams: Upstreams,
    pub violations: Vec<String>,
    pub claims: u64,
    pub successes: u64,
}

impl Checks {
    /// The clock moved; maybe back.
    pub fn clock(&mut self, now: Timestamp) {
        self.latest = self.latest.max(now);
    }

    /// Whether an attempt surely goes on, and whether it may: some ends nobody sees.
    pub fn attempt_lives(&self, id: JobId, token: i64) -> (bool, bool) {
        let lease = self.jobs.get(&id).filter(|seen| seen.token == token).and_then(|seen| seen.lease);
        lease.map_or((false, false), |lease| (lease.end() > self.latest, lease.until > self.latest))
    }

    pub const fn latest(&self) -> Timestamp {
        self.latest
    }

    pub fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    pub fn submitted(&mut self, new: &NewJob, answer: &Submitted, now: Timestamp) {
        let id = answer.record.job.id;
        let key = new.spec.idempotency_key.clone().map(|key| (new.spec.tenant.clone(), key));
        let known = key.as_ref().and_then(|key| self.keys.get(key)).copied();
        if let Some(first) = known {
            self.hold(first == id, || format!("one key, two jobs: {first} and {id}"));
            let created = answer.outcome == SubmitOutcome::Created;
            self.hold(!created || new.id == first, || format!("job {id} was created twice"));
        }
        match answer.outcome {
            SubmitOutcome::Created if !self.jobs.contains_key(&id) => {
                self.keys.extend(key.map(|key| (key, id)));
                self.jobs.insert(id, Seen::new(new, now));
            }
            SubmitOutcome::Reopened => {
                let closed = self.jobs.get(&id).and_then(|seen| seen.closed_until);
                self.hold(closed.is_none_or(|until| until <= now), || {
                    format!("job {id} was reopened by a submit at {now:?}, before {closed:?}")
                });
                self.reopened(id, now, true);
            }
            _ => {}
        }
        let same = self.jobs.get(&id).is_some_and(|seen| seen.payload == new.payload);
        let conflict = answer.outcome == SubmitOutcome::Conflict;
        self.hold(same != conflict, || format!("job {id}: a submit was answered {:?}", answer.outcome));
    }

    pub fn claimed(&mut self, request: &ClaimRequest, answer: &Claimed, now: Timestamp) {
        let id = answer.record.job.id;
        self.claims += 1;
        let Some(seen) = self.jobs.get_mut(&id) else {
            return self.hold(false, || format!("job {id} was claimed, and never submitted"));
        };
        let (token, before) = (answer.lease.token.0, seen.token);
        let (lease, not_before, tries) = (seen.lease, seen.not_before, seen.tries + 1);
        let (max, success) = (seen.spec.policy.max_attempts, seen.success.is_some());
        let forgotten: Vec<_> =
            seen.steps.iter().filter(|step| !answer.steps.contains_key(*step)).cloned().collect();
        let asked_for = request.queues.contains(&seen.spec.queue)
            && (request.job_types.is_empty() || request.job_types.contains(&seen.spec.job_type));
        seen.token = token;
        seen.lease = Some(Lease { until: answer.lease.until, deadline: answer.lease.deadline });
        seen.tries = tries;
        seen.cools_until = None;
        seen.closed_until = None;
        self.hold(token > before, || format!("job {id}: token {token} after token {before}"));
        self.hold(lease.is_none_or(|lease| lease.end() <= now), || {
            format!("job {id}: claimed at {now:?} under a current lease, {lease:?}")
        });
        self.hold(not_before <= now, || format!("job {id}: started at {now:?}, before {not_before:?}"));
        self.hold(tries <= max, || format!("job {id}: try {tries} of {max}"));
        self.hold(!success, || format!("job {id}: claimed after its success"));
        self.hold(forgotten.is_empty(), || format!("job {id}: steps {forgotten:?} are forgotten"));
        self.hold(asked_for, || format!("job {id}: nobody asked for its queue or type"));
        self.alone(id, true, now);
        self.claimed_at_upstreams(answer, now);
    }

    /// No other job of its lock key runs; and none cools where a job starts.
    fn alone(&mut self, id: JobId, starts: bool, now: Timestamp) {
        // A lease that ran out stays so, also if the clock is set back.
        let now = self.latest.max(now);
        let name = |seen: &Seen| -> Option<(Tenant, LockKey)> {
            seen.spec.lock_key.clone().map(|key| (seen.spec.tenant.clone(), key))
        };
        let Some(own) = self.jobs.get(&id).and_then(name) else { return };
        let others =
            self.jobs.iter().filter(|(other, seen)| **other != id && name(seen).as_ref() == Some(&own));
        let busy: Vec<_> = others
            .filter_map(|(other, seen)| {
                // Nobody sees a sweep end a job, but everybody knows when it may: at its expiry.
                let cools = seen
                    .cools_until
                    .filter(|_| starts)
                    .map(|at| seen.spec.expires_at.map_or(at, |end| at.min(end)));
                let until = seen.lease.map(Lease::end).max(cools)?;
                (until > now).then_some((*other, until))
            })
            .collect();
        self.hold(busy.is_empty(), || format!("job {id} at {now:?}: its lock key is held by {busy:?}"));
    }

    pub fn applied(&mut self, change: &JobChange, answer: &Result<Applied, Refusal>, now: Timestamp) {
        let id = change.job_id;
        self.told_upstreams(change, answer, now);
        let Ok(Applied { job, answer }) = answer else { return };
        let Some(seen) = self.jobs.get_mut(&id) else {
            return self.hold(false, || format!("job {id} was changed, and never submitted"));
        };
        if seen.success.is_some() {
            self.hold(job.status() == Status::Succeeded, || format!("job {id}: its success was undone"));
            return;
        }
        if let Some(token) = token_of(&change.event)
            && !matches!(answer, Answer::Already)
        {
            let newest = seen.token;
            self.hold(token == newest, || format!("job {id}: token {token} taken, the newest is {newest}"));
        }
        match answer {
            Answer::Already | Answer::Claimed(_) => {}
            Answer::Held { until } => self.held(id, &change.event, *until, now),
            Answer::Cancelled | Answer::Ended => self.ended(id, job.visible_at(), now),
            Answer::Done => self.done(id, &change.event, job, now),
        }
    }

    fn held(&mut self, id: JobId, event: &Event, until: Timestamp, now: Timestamp) {
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        if let Event::SaveStep { name, .. } = event {
            seen.steps.insert(name.clone());
            return;
        }
        seen.not_before = seen.not_before.max(until.min(seen.lease.map_or(until, |lease| lease.deadline)));
        seen.lease = seen.lease.map(|lease| Lease { until, ..lease });
        self.alone(id, false, now);
    }

    fn ended(&mut self, id: JobId, visible_at: Option<Timestamp>, now: Timestamp) {
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        seen.lease = None;
        seen.closed_until = None;
        seen.not_before = visible_at.unwrap_or(now);
    }

    fn done(&mut self, id: JobId, event: &Event, job: &coolant_core::job::Job, now: Timestamp) {
        match event {
            Event::Succeed { result, .. } => {
                self.successes += 1;
                let seen = self.jobs.get_mut(&id);
                seen.into_iter().for_each(|seen| {
                    seen.success = Some(result.clone());
                    seen.lease = None;
                    seen.cools_until = None;
                });
            }
            Event::Fail { failure, .. } => self.failed(id, failure, job, now),
            Event::Defer { wait, .. } => self.gave_back(id, job, now.plus(*wait)),
            Event::Release { .. } => self.gave_back(id, job, now),
            Event::HolderDied { .. } => {
                let Some(seen) = self.jobs.get_mut(&id) else { return };
                seen.not_before = now;
                seen.lease = seen.lease.map(|lease| Lease { until: now, ..lease });
            }
            Event::Reopen { force } => {
                let closed = self.jobs.get(&id).and_then(|seen| seen.closed_until);
                self.hold(*force || closed.is_none_or(|until| until <= now), || {
                    format!("job {id} was reopened at {now:?}, before {closed:?}")
                });
                self.reopened(id, now, job.counters.tries == 0);
            }
            Event::Cancel | Event::Discard if job.status().has_ended() => {
                let Some(seen) = self.jobs.get_mut(&id) else { return };
                seen.lease = None;
                seen.cools_until = None;
                let discarded = job.status() == Status::Failed;
                seen.closed_until = discarded.then_some(Timestamp::from_millis(i64::MAX));
            }
            _ => {}
        }
    }

    fn failed(&mut self, id: JobId, failure: &Failure, job: &coolant_core::job::Job, now: Timestamp) {
        if failure.class.is_upstreams_fault() && failure.upstream.is_some() {
            return self.gave_back(id, job, now.plus(failure.retry_after.unwrap_or_default()));
        }
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        let policy = seen.spec.policy.clone();
        seen.lease = None;
        let door = match job.visible_at() {
            Some(at) => {
                seen.not_before = at;
                seen.cools_until = Some(at);
                let stated = now.plus(failure.retry_after.unwrap_or_default());
                self.hold(at >= stated, || format!("job {id}: a retry at {at:?}, stated was {stated:?}"));
                at
            }
            None => now.plus(policy.cooldown),
        };
        let dies = failure.class.is_permanent();
        self.hold(!dies || job.status() == Status::Failed, || {
            format!("job {id}: {} is tried again", failure.class)
        });
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        seen.closed_until = Some(if dies { Timestamp::from_millis(i64::MAX) } else { door });
        if let JobState::Failed { reopen: coolant_core::job::Reopen::From(at), .. } = job.state
            && failure.class != coolant_core::failure::FailureClass::WorkerLost
        {
            seen.cools_until = Some(at);
        }
    }

    /// Back in line, with no attempt used.
    fn gave_back(&mut self, id: JobId, job: &coolant_core::job::Job, earliest: Timestamp) {
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        seen.lease = None;
        seen.tries = seen.tries.saturating_sub(1);
        seen.not_before = job.visible_at().unwrap_or(seen.not_before);
        let at = job.visible_at();
        self.hold(at.is_none_or(|at| at >= earliest), || {
            format!("job {id}: back at {at:?}, not {earliest:?}")
        });
    }

    fn reopened(&mut self, id: JobId, now: Timestamp, afresh: bool) {
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        seen.not_before = now;
        seen.lease = None;
        seen.closed_until = None;
        seen.cools_until = None;
        if afresh {
            seen.tries = 0;
        }
    }

    pub fn paid(&mut self, id: JobId, step: &str) {
        let seen = self.jobs.get_mut(&id).into_iter();
        seen.for_each(|seen| *seen.paid.entry(step.to_owned()).or_default() += 1);
    }

    /// A call was paid, and its worker stopped before the output was kept.
    pub fn interrupted(&mut self, id: JobId, step: &str) {
        let seen = self.jobs.get_mut(&id).into_iter();
        seen.for_each(|seen| *seen.interrupted.entry(step.to_owned()).or_default() += 1);
    }

    pub fn ids(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// Judges a job once nothing more happens to it.
    pub fn at_the_end(&mut self, id: JobId, record: Option<&JobRecord>, ledger: &[LedgerEntry]) {
        let Some(record) = record else { return self.hold(false, || format!("job {id} is gone")) };
        let job = &record.job;
        self.hold(job.status().has_ended(), || format!("job {id} is stuck: {:?}", job.state));
        let Some(seen) = self.jobs.get(&id) else { return };
        let (success, newest, overpaid) = (seen.success.clone(), seen.token, seen.overpaid());
        if let Some(result) = success {
            let kept = job.status() == Status::Succeeded && record.result.as_ref() == Some(&result);
            self.hold(kept, || format!("job {id}: its success {result} became {:?}", job.state));
        }
        self.hold(job.counters.claims == newest, || {
            format!("job {id}: {newest} claims were seen, {} counted", job.counters.claims)
        });
        self.hold(overpaid.is_empty(), || format!("job {id}: paid too often: {overpaid:?}"));
        let rows: BTreeSet<_> = ledger.iter().map(|entry| (entry.attempt, entry.step.clone())).collect();
        self.hold(rows.len() == ledger.len(), || format!("job {id}: a call is booked twice: {ledger:?}"));
        let calls = i64::try_from(ledger.len()).unwrap_or(0);
        self.hold(job.usage.calls == calls, || format!("job {id}: {calls} ledger rows, {:?}", job.usage));
    }
}

impl Checks {
    /// Judges what a job that has ended says that it wasted.
    pub fn waste_at_the_end(
        &mut self,
        record: &JobRecord,
        ledger: &[LedgerEntry],
        attempts: &[Attempt],
        steps: &[Step],
    ) {
        let id = record.job.id;
        let is_kept = |entry: &LedgerEntry| {
            let attempt = attempts.iter().find(|attempt| attempt.number == entry.attempt);
            let is_its = |step: &Step| entry.step.as_ref().is_none_or(|name| *name == step.name);
            attempt.is_some_and(|attempt| matches!(attempt.outcome, None | Some(Outcome::Succeeded)))
                || steps.iter().any(|step| step.attempt == entry.attempt && is_its(step))
        };
        let overlooked: Vec<_> = ledger.iter().filter(|entry| !entry.wasted && !is_kept(entry)).collect();
        self.hold(overlooked.is_empty(), || format!("job {id}: {overlooked:?} is wasted"));
        let wasted = ledger.iter().filter(|entry| entry.wasted).filter_map(|entry| entry.usage.cost);
        let wasted = wasted.fold(Money::default(), Money::plus);
        let said = record.job.usage.wasted;
        self.hold(said == wasted, || format!("job {id}: it says {said}, and {wasted} is wasted"));
    }
}

impl Seen {
    fn new(new: &NewJob, now: Timestamp) -> Self {
        let not_before = match new.start {
            Start::Now => now,
            Start::At(at) => at,
            Start::After(delay) => Timestamp::from_millis(now.as_millis() + millis(delay)),
        };
        Self {
            spec: (*new.spec).clone(),
            payload: new.payload.clone(),
            not_before,
            token: 0,
            lease: None,
            tries: 0,
            cools_until: None,
            success: None,
            closed_until: None,
            steps: BTreeSet::new(),
            paid: BTreeMap::new(),
            interrupted: BTreeMap::new(),
        }
    }

    /// Steps that were paid more often than once and once for every interruption.
    fn overpaid(&self) -> Vec<(String, u32)> {
        let allowed = |step: &String| 1 + self.interrupted.get(step).copied().unwrap_or(0);
        let paid = self.paid.iter().map(|(step, times)| (step.clone(), *times));
        paid.filter(|(step, times)| *times > allowed(step)).collect()
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn token_of(event: &Event) -> Option<i64> {
    match event {
        Event::Renew { token, .. }
        | Event::SaveStep { token, .. }
        | Event::Succeed { token, .. }
        | Event::Fail { token, .. }
        | Event::Defer { token, .. }
        | Event::Release { token }
        | Event::HolderDied { token } => Some(token.0),
        _ => None,
    }
}
