//! The calls that change something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Row, State};
use crate::fingerprint::Fingerprint;
use crate::job::{Attempt, JobId, JobRecord, JobState, LeaseToken, Reopen, Status, Step};
use crate::ledger::LedgerEntry;
use crate::lifecycle::{Answer, AttemptEnd, Event, Refusal, Transition, bars, check_lease, on};
use crate::money::{Money, Usage, UsageTotals};
use crate::names::{LockKey, Queue, Tenant};
use crate::retention::{Retention, before};
use crate::store::{
    Applied, ClaimRequest, Claimed, Counter, IfFailed, JobChange, NewJob, Redrive, SubmitOutcome, Submitted,
};
use crate::time::Timestamp;
use crate::turns::{Given, Kind, Share, Waiting, rank_of};
use crate::upstream::{Blockage, Starter};
use uuid::Uuid;

impl State {
    pub(super) fn submit(&mut self, new: NewJob, now: Timestamp) -> Submitted {
        let fingerprint = Fingerprint::of(&new.spec.job_type, &new.payload);
        let key = new.spec.idempotency_key.clone().map(|key| (new.spec.tenant.clone(), key));
        let taken = key.as_ref().and_then(|key| self.keys.get(key)).copied();
        if let Some(id) = taken.or(self.rows.contains_key(&new.id).then_some(new.id)) {
            return self.submit_again(id, &new, fingerprint, now);
        }
        let record = JobRecord { job: new.first(now), payload: new.payload, result: None };
        let row = Row {
            record: record.clone(),
            fingerprint,
            steps: BTreeMap::new(),
            attempts: BTreeMap::new(),
            ledger: Vec::new(),
            claimed_by: BTreeMap::new(),
        };
        self.rows.insert(new.id, row);
        if let Some(key) = key {
            self.keys.insert(key, new.id);
        }
        Submitted { outcome: SubmitOutcome::Created, record }
    }

    fn submit_again(
        &mut self,
        id: JobId,
        new: &NewJob,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Submitted {
        let row = &self.rows[&id];
        let record = row.record.clone();
        let queue = record.job.spec.queue.clone();
        if row.fingerprint != fingerprint {
            self.count(Counter::Conflicts, queue, 1, now);
            return Submitted { outcome: SubmitOutcome::Conflict, record };
        }
        if id == new.id {
            // The same submit once more, after an answer that was lost: answered as the first time.
            return Submitted { outcome: SubmitOutcome::Created, record };
        }
        if new.if_failed == IfFailed::Retry && matches!(record.job.state, JobState::Failed { .. }) {
            let reopened = self.apply(JobChange::new(id, Event::Reopen { force: false }), now);
            if reopened.is_ok() {
                let record = self.rows[&id].record.clone();
                return Submitted { outcome: SubmitOutcome::Reopened, record };
            }
        }
        self.count(Counter::Duplicates, queue, 1, now);
        Submitted { outcome: SubmitOutcome::Existing, record }
    }

    pub(super) fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Vec<Claimed> {
        self.note_asked(request, now);
        self.look_around(now);
        let mut waiting = self.candidates(request, now);
        let asked = Kind::of(request);
        let mut given = Given::default();
        let mut left = request.max;
        let tenants = self.waiting_tenants(&waiting);
        let mut shares = self.rota.of(asked).deal(tenants, left, now);
        while left > 0 && !shares.is_empty() {
            let mut done = BTreeSet::new();
            for Share { tenant, jobs: share, .. } in &shares {
                let jobs = waiting.entry(tenant.clone()).or_default();
                let claimed = self.claim_some(jobs, *share, request, now);
                let count = u32::try_from(claimed.len()).unwrap_or(u32::MAX);
                left = left.saturating_sub(count);
                given.add(tenant, claimed);
                if count < *share {
                    done.insert(tenant.clone());
                }
            }
            shares = self.rota.of(asked).deal_again(shares, &done, left, now);
        }
        given.in_turn()
    }

    /// Who they belong to, and since when each waits. The rota knows every turn: there is one process.
    fn waiting_tenants(&self, jobs: &BTreeMap<Tenant, VecDeque<JobId>>) -> Vec<Waiting> {
        let instant = |id: &JobId| self.rows[id].job().visible_at();
        jobs.iter()
            .filter_map(|(tenant, jobs)| {
                let since = jobs.iter().filter_map(instant).min()?;
                Some(Waiting { tenant: tenant.clone(), since, last: None })
            })
            .collect()
    }

    /// Claims so many of a tenant's jobs, the first ones first.
    fn claim_some(
        &mut self,
        jobs: &mut VecDeque<JobId>,
        share: u32,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        while claimed.len() < share as usize
            && let Some(id) = jobs.pop_front()
        {
            let spec = Arc::clone(&self.rows[&id].job().spec);
            self.look_around(now);
            if self.upstreams.desk.allowance(&spec.upstreams, &spec.tenant, now).of(1) == 0 {
                continue;
            }
            let event = Event::Claim { worker: request.worker.clone(), lease: request.lease };
            // A candidate may turn out to have ended, or its lock key may just have been taken.
            if let Ok(Applied { answer: Answer::Claimed(lease), .. }) =
                self.apply(JobChange::new(id, event), now)
            {
                if let Some((row, process)) = self.rows.get_mut(&id).zip(request.process) {
                    row.claimed_by.insert(lease.token.0, process);
                }
                self.upstreams.desk.start(&spec.upstreams, Starter::Job { id, token: lease.token }, now);
                let row = &self.rows[&id];
                claimed.push(Claimed { record: row.record.clone(), lease, steps: row.outputs() });
            }
        }
        claimed
    }

    fn note_asked(&mut self, request: &ClaimRequest, now: Timestamp) {
        for queue in &request.queues {
            if request.job_types.is_empty() {
                self.asked.insert((queue.clone(), None), now);
            }
            for job_type in &request.job_types {
                self.asked.insert((queue.clone(), Some(job_type.clone())), now);
            }
        }
    }

    /// Jobs of open gates whose instant has come, by tenant, each tenant's in the order in which they go.
    fn candidates(&self, request: &ClaimRequest, now: Timestamp) -> BTreeMap<Tenant, VecDeque<JobId>> {
        // A lost job whose lock key somebody else has by now waits for that, and not for its turn.
        let claim = Event::Claim { worker: request.worker.clone(), lease: request.lease };
        let mut due: Vec<_> = self
            .rows
            .values()
            .filter(|row| {
                row.job().status() != Status::Running || self.barred_until(row, &claim, now).is_none()
            })
            .map(Row::job)
            .filter(|job| request.queues.contains(&job.spec.queue))
            .filter(|job| request.job_types.is_empty() || request.job_types.contains(&job.spec.job_type))
            .filter(|job| self.upstreams.desk.allowance(&job.spec.upstreams, &job.spec.tenant, now).of(1) > 0)
            .filter(|job| job.visible_at().is_some_and(|at| at <= now))
            .collect();
        due.sort_unstable_by_key(|job| (rank_of(job), job.id));
        let mut by_tenant: BTreeMap<Tenant, VecDeque<JobId>> = BTreeMap::new();
        for job in due {
            by_tenant.entry(job.spec.tenant.clone()).or_default().push_back(job.id);
        }
        by_tenant
    }

    pub(super) fn apply(&mut self, change: JobChange, now: Timestamp) -> Result<Applied, Refusal> {
        let JobChange { job_id, mut event, audit } = change;
        let row = self.rows.get(&job_id).ok_or(Refusal::NotFound)?;
        if let Some(until) = self.barred_until(row, &event, now) {
            return Err(match event {
                Event::Claim { .. } => Refusal::NotVisible { visible_at: until },
                _ => Refusal::LeaseLost,
            });
        }
        let repeated = repeated_step(row, &event);
        self.settle_with(&mut event, now);
        let row = &self.rows[&job_id];
        if let Some(answer) = repeated {
            let job = row.job().clone();
            self.pay_all_the_same(job_id, &event, now);
            return Ok(Applied { job, answer });
        }
        let queue = row.job().spec.queue.clone();
        let mut transition = match on(row.job(), &event, now) {
            Ok(transition) => transition,
            Err(refusal) => {
                if let Refusal::CoolingDown { .. } = refusal {
                    let worth = row.job().mean_cost().as_nanos();
                    self.count(Counter::BlockedStarts, queue.clone(), 1, now);
                    if worth > 0 {
                        self.count(Counter::SavedByCooldowns, queue, worth, now);
                    }
                }
                self.pay_all_the_same(job_id, &event, now);
                return Err(refusal);
            }
        };
        supersede(row, &event, &mut transition);
        waste_unkept(row, &mut transition);
        let applied = Applied { job: transition.job.clone(), answer: transition.answer.clone() };
        if transition.answer == Answer::Already {
            self.pay_all_the_same(job_id, &event, now);
        } else {
            self.tell_upstreams(&applied.job, &event, now);
            if let Some(row) = self.rows.get_mut(&job_id) {
                row.save(transition, event, now);
            }
            self.audit.extend(audit.map(|entry| crate::store::AuditEntry { at: now, ..entry }));
        }
        Ok(applied)
    }

    /// A change that is not made may carry calls whose permits were settled by it just now.
    fn pay_all_the_same(&mut self, job_id: JobId, event: &Event, now: Timestamp) {
        let Some((token, step, usage)) = event.paid_under_permits() else { return };
        let pay = Event::Pay { token, step, usage };
        let Some(row) = self.rows.get_mut(&job_id) else { return };
        if let Ok(transition) = on(row.job(), &pay, now) {
            row.save(transition, pay, now);
        }
    }

    fn barred_until(&self, row: &Row, event: &Event, now: Timestamp) -> Option<Timestamp> {
        row.job().spec.lock_key.as_ref()?;
        self.rows.values().filter_map(|other| bars(other.job(), row.job(), event, now)).max()
    }

    pub(super) fn sweep(&mut self, limit: u32, now: Timestamp) -> u32 {
        let ids: Vec<_> = self.rows.keys().copied().collect();
        let mut changed = 0;
        for id in ids {
            if changed == limit {
                break;
            }
            let blocked = self.blockages(self.rows[&id].job(), now);
            let blocked = blocked.iter().map(Blockage::event);
            // Each until one has ended the job.
            let has_ended = std::iter::once(Event::Sweep).chain(blocked).any(|event| {
                let swept = self.apply(JobChange::new(id, event), now);
                swept.is_ok_and(|applied| applied.answer != Answer::Already)
            });
            changed += u32::from(has_ended);
        }
        changed
    }

    pub(super) fn forget(&mut self, keep: &Retention, limit: u32, now: Timestamp) -> u64 {
        let over = self.rows.values().map(Row::job).filter(|job| keep.is_over(job, now));
        let mut over: Vec<_> = over.map(|job| (job.finished_at, job.id)).collect();
        over.sort_unstable();
        let (mut dead, mut finished, mut forgotten) = (0, 0, 0);
        for (_, id) in over {
            let job = self.rows[&id].job();
            let is_dead =
                matches!(job.state, JobState::Failed { reopen: Reopen::From(_) | Reopen::OnlyForced, .. });
            let count = if is_dead { &mut dead } else { &mut finished };
            *count += 1;
            if *count > limit {
                continue;
            }
            forgotten += 1;
            let Some(row) = self.rows.remove(&id) else { continue };
            self.keys.retain(|_, of| *of != id);
            let queue = row.job().spec.queue.clone();
            let named = (1..).map(|n: u128| Uuid::from_u128(id.0.as_u128().wrapping_add(n)));
            self.loose.extend(named.zip(row.ledger).map(|(name, entry)| (name, queue.clone(), entry)));
        }
        forgotten + keep.ledger.map_or(0, |kept| self.forget_paid(before(kept, now)))
    }

    fn forget_paid(&mut self, then: Timestamp) -> u64 {
        let count =
            |state: &Self| state.loose.len() + state.rows.values().map(|row| row.ledger.len()).sum::<usize>();
        let all = count(self);
        self.loose.retain(|(.., entry)| entry.at > then);
        self.rows.values_mut().for_each(|row| row.ledger.retain(|entry| entry.at > then));
        (all - count(self)) as u64
    }

    pub(super) fn count(&mut self, counter: Counter, queue: Queue, n: i64, now: Timestamp) {
        *self.counters.entry((now.as_millis().div_euclid(60_000), counter, queue)).or_default() += n;
    }

    pub(super) fn live_lock_keys(&self, keys: &[(Tenant, String)]) -> Vec<(Tenant, String)> {
        let live = self.rows.values().filter(|row| !row.job().status().has_ended());
        let names = live.filter_map(lock_name).map(|(tenant, key)| (tenant.clone(), key.to_string()));
        names.filter(|name| keys.contains(name)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn save_redrive(&mut self, redrive: Redrive) -> bool {
        let kept = self.redrives.get(&redrive.id).map_or(0, |kept| kept.version);
        if kept != redrive.version {
            return false;
        }
        self.redrives.insert(redrive.id, Redrive { version: kept + 1, ..redrive });
        true
    }
}

fn lock_name(row: &Row) -> Option<(&Tenant, &LockKey)> {
    let spec = &row.job().spec;
    spec.lock_key.as_ref().map(|key| (&spec.tenant, key))
}

/// A step that this very attempt has saved before: the worker repeats itself, because an answer was lost.
/// Its calls are in the ledger already.
fn repeated_step(row: &Row, event: &Event) -> Option<Answer> {
    match (event, &row.job().state) {
        (Event::SaveStep { token, name, .. }, JobState::Running { lease, .. })
            if lease.token == *token && row.steps.get(name).is_some_and(|step| step.attempt == token.0) =>
        {
            Some(Answer::Held { until: lease.until })
        }
        _ => None,
    }
}

impl Row {
    fn save(&mut self, transition: Transition, event: Event, now: Timestamp) {
        let spent = difference(transition.job.usage, self.job().usage);
        if let Some(attempt) = self.attempts.get_mut(&transition.attempt(&event)) {
            attempt.usage = sum(attempt.usage, spent);
        }
        self.record.job = transition.job;
        let kept = transition.ended.as_ref().is_none_or(AttemptEnd::keeps_calls);
        if let Some(end) = transition.ended.as_ref().filter(|_| !kept) {
            let Self { ledger, steps, .. } = self;
            let unkept = ledger.iter_mut().filter(|entry| is_unkept(entry, steps, end.number));
            unkept.for_each(|entry| entry.wasted = true);
        }
        if let Some(end) = transition.ended
            && let Some(attempt) = self.attempts.get_mut(&end.number)
        {
            attempt.ended_at = Some(now);
            attempt.outcome = Some(end.outcome);
            attempt.error = end.error;
        }
        if let Answer::Claimed(lease) = transition.answer {
            let attempt = Attempt {
                number: lease.token.0,
                worker: lease.worker,
                started_at: lease.started_at,
                ended_at: None,
                outcome: None,
                error: None,
                usage: UsageTotals::default(),
            };
            self.attempts.insert(attempt.number, attempt);
        }
        self.keep(event, now, kept);
    }

    /// What an event brings along: a step, a result, paid calls.
    fn keep(&mut self, event: Event, now: Timestamp, kept: bool) {
        match event {
            Event::SaveStep { token, name, output, usage } => {
                for entry in self.ledger.iter_mut().filter(|entry| is_superseded(entry, &name, token)) {
                    entry.wasted = true;
                }
                self.book(token, Some(&name), usage, now, true);
                let bytes = output.to_string().len() as u64;
                let step = Step { name, bytes, finished_at: now, attempt: token.0, output: Some(output) };
                self.steps.insert(step.name.clone(), step);
            }
            Event::Succeed { token, result, usage } => {
                if matches!(self.job().state, JobState::Succeeded { .. }) {
                    self.record.result = Some(result);
                }
                self.book(token, None, usage, now, kept);
            }
            Event::Fail { token, usage, .. } | Event::Defer { token, usage, .. } => {
                self.book(token, None, usage, now, kept);
            }
            Event::Pay { token, step, usage } => {
                let kept = check_lease(self.job(), token).is_ok();
                self.book(token, step.as_ref(), usage, now, kept);
            }
            _ => {}
        }
    }

    fn book(
        &mut self,
        token: LeaseToken,
        step: Option<&String>,
        calls: Vec<Usage>,
        now: Timestamp,
        kept: bool,
    ) {
        let (job_id, tenant) = (self.job().id, self.job().spec.tenant.clone());
        let job_type = self.job().spec.job_type.clone();
        self.ledger.extend(calls.into_iter().map(|usage| LedgerEntry {
            job_id: Some(job_id),
            job_type: Some(job_type.clone()),
            attempt: token.0,
            step: step.cloned(),
            tenant: tenant.clone(),
            at: now,
            wasted: usage.is_wasted(kept),
            usage: usage.booked(),
        }));
    }
}

/// Whether an entry is of a step that this attempt pays for again.
fn is_superseded(entry: &LedgerEntry, step: &str, by: LeaseToken) -> bool {
    entry.step.as_deref() == Some(step) && entry.attempt < by.0
}

/// Adds what the step cost before to the job's waste, if this event pays for it again.
fn supersede(row: &Row, event: &Event, transition: &mut Transition) {
    let Event::SaveStep { token, name, .. } = event else { return };
    let again = row.ledger.iter().filter(|entry| !entry.wasted && is_superseded(entry, name, *token));
    let cost = again.fold(Money::default(), |sum, entry| sum.plus(entry.usage.cost.unwrap_or_default()));
    transition.job.usage.wasted = transition.job.usage.wasted.plus(cost);
}

/// Whether an entry is of that attempt and of no step that it saved. A call that names no step counts as one of
/// whichever it saved.
fn is_unkept(entry: &LedgerEntry, steps: &BTreeMap<String, Step>, attempt: i64) -> bool {
    let is_its = |step: &Step| entry.step.as_ref().is_none_or(|name| *name == step.name);
    let is_kept = steps.values().any(|step| step.attempt == attempt && is_its(step));
    !entry.wasted && entry.attempt == attempt && !is_kept
}

/// Adds to the job's waste what an attempt paid for that ends without a result, and no step of it keeps.
fn waste_unkept(row: &Row, transition: &mut Transition) {
    let Some(end) = transition.ended.as_ref().filter(|end| !end.keeps_calls()) else { return };
    let unkept = row.ledger.iter().filter(|entry| is_unkept(entry, &row.steps, end.number));
    let cost = unkept.fold(Money::default(), |sum, entry| sum.plus(entry.usage.cost.unwrap_or_default()));
    transition.job.usage.wasted = transition.job.usage.wasted.plus(cost);
}

fn sum(a: UsageTotals, b: UsageTotals) -> UsageTotals {
    UsageTotals {
        calls: a.calls.saturating_add(b.calls),
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        cost: a.cost.plus(b.cost),
        wasted: a.wasted.plus(b.wasted),
    }
}

fn difference(now: UsageTotals, before: UsageTotals) -> UsageTotals {
    let less = |a: Money, b: Money| Money::from_nanos(a.as_nanos().saturating_sub(b.as_nanos()));
    UsageTotals {
        calls: now.calls.saturating_sub(before.calls),
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cost: less(now.cost, before.cost),
        wasted: less(now.wasted, before.wasted),
    }
}
