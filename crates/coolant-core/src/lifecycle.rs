//! The lifecycle: the one function that changes a job's state, and every rule that it asks.
//!
//! ```text
//!            submit
//!              │
//!              ▼        claim                 succeed
//!        ┌──▶ PENDING ────────▶ RUNNING ───────────────────▶ SUCCEEDED
//!        │     │  ▲ ▲             │ │ │                          ▲
//!        │     │  │ └─ fail, ─────┘ │ │ fail for good            │ late success of the
//!        │     │  │    defer,       │ │                          │ newest lost attempt
//!        │     │  │    release      │ ├───────────▶ FAILED ──────┘
//!        │     │  └─ lease ran out ─┘ │             │  ▲
//!        │     │     (at the next     │ cancel,     │  │ expired, waited too long,
//!        │     │      claim; it ends  │ then beat   │  │ out of attempts
//!        │     │      with its holder)│             │  │
//!        │     │                      ▼             │  │
//!        │     └──── cancel ───▶ CANCELLED          │  └── PENDING, RUNNING (sweep)
//!        │                            │             │
//!        └────────── reopen ──────────┴─────────────┘  after the cooldown, or forced
//! ```
//!
//! Always true:
//! - a lease token is given out once; a write with any other than the newest is refused;
//! - tokens fence, not time: a late beat, step or success with the newest token is accepted until
//!   somebody else claims the job or the sweep ends it;
//! - nothing leaves `Succeeded`;
//! - an attempt is counted when it is claimed, and only a release or a deferral takes it back.
//!
//! Elsewhere: how long to wait (`retry`), what a failure is (`failure`), how a change is made atomic
//! (`store`).

mod change;
mod event;
mod lock;

use std::time::Duration;

use change::{Change, expires_at, is_exhausted};
pub use event::{Answer, AttemptEnd, Event, Refusal, Transition};
pub use lock::{bars, holds_lock, locked_until, needs_lock};

use crate::failure::{Failure, FailureClass};
use crate::job::{
    Counters, Job, JobState, Lease, LeaseToken, Outcome, Policy, Progress, Reopen, Settled, Wait,
};
use crate::money::Usage;
use crate::time::Timestamp;

/// The only place where a job changes state. What is not listed is refused.
///
/// # Errors
/// A [`Refusal`]; then nothing changed.
pub fn on(job: &Job, event: &Event, now: Timestamp) -> Result<Transition, Refusal> {
    match event {
        Event::Claim { worker, lease } => claim(job, worker, *lease, now),
        Event::Renew { token, progress } => renew(job, *token, progress.as_ref(), now),
        Event::SaveStep { token, usage, .. } => save_step(job, *token, usage, now),
        Event::Succeed { token, usage, .. } => succeed(job, *token, usage, now),
        Event::Fail { token, failure, jitter, usage } => {
            settle(job, *token, usage, now, Outcome::Failed, |change| change.fail(failure, *jitter))
        }
        Event::Defer { token, wait, reason, usage } => {
            settle(job, *token, usage, now, Outcome::Deferred, |change| change.defer(*wait, reason, None))
        }
        Event::Pay { token, usage, .. } => pay(job, *token, usage, now),
        Event::Release { token } => settle(job, *token, &[], now, Outcome::Released, Change::release),
        Event::Cancel => cancel(job, now),
        Event::Reopen { force } => reopen(job, *force, now),
        Event::Discard => discard(job, now),
        Event::HolderDied { token } => holder_died(job, *token, now),
        Event::Sweep => sweep(job, now),
        Event::Blocked { since, failure } => blocked(job, *since, failure, now),
    }
}

fn claim(job: &Job, worker: &str, lease: Option<Duration>, now: Timestamp) -> Result<Transition, Refusal> {
    let mut change = Change::of(job, now);
    match &job.state {
        JobState::Pending { visible_at, .. }
        | JobState::Running { lease: Lease { until: visible_at, .. }, .. }
            if *visible_at > now =>
        {
            return Err(Refusal::NotVisible { visible_at: *visible_at });
        }
        JobState::Pending { .. } => change.expire(),
        JobState::Running { cancel_requested: true, .. } => change.cancel_attempt(),
        JobState::Running { lease, .. } if lease.deadline <= now => time_out(&mut change),
        JobState::Running { lease, .. } => change.lapse(lease),
        JobState::Succeeded { .. } | JobState::Failed { .. } | JobState::Cancelled { .. } => {
            return Err(Refusal::Ended);
        }
    }
    // What its past made of it may be an end, or another wait.
    if !matches!(&change.job.state, JobState::Pending { visible_at, .. } if *visible_at <= now) {
        return Ok(change.answer(Answer::Ended));
    }
    let lease = new_lease(&change.job, worker, lease, now);
    let counters = &mut change.job.counters;
    counters.claims = lease.token.0;
    // Counted at the claim, not at the end: a worker that dies still used up its attempt.
    counters.executions += 1;
    counters.tries += 1;
    change.job.progress = None;
    change.job.started_at.get_or_insert(now);
    change.job.state = JobState::Running { lease: lease.clone(), cancel_requested: false };
    Ok(change.answer(Answer::Claimed(lease)))
}

fn new_lease(job: &Job, worker: &str, asked: Option<Duration>, now: Timestamp) -> Lease {
    let range = Policy::LEASE_RANGE;
    let length = asked.unwrap_or(job.spec.policy.lease).clamp(*range.start(), *range.end());
    Lease {
        token: LeaseToken(job.counters.claims + 1),
        until: now.plus(length),
        length,
        worker: worker.to_owned(),
        started_at: now,
        deadline: now.plus(job.spec.policy.timeout),
    }
}

/// The lease of a running job, if that token is its newest.
fn current(job: &Job, token: LeaseToken) -> Result<(&Lease, bool), Refusal> {
    match &job.state {
        JobState::Running { lease, cancel_requested } if lease.token == token => {
            Ok((lease, *cancel_requested))
        }
        JobState::Cancelled { .. } if job.counters.claims == token.0 => Err(Refusal::LeaseLostByCancel),
        _ => Err(Refusal::LeaseLost),
    }
}

/// Whether that token is the job's newest and its attempt has not ended: the leave to write beside the job.
///
/// # Errors
/// A [`Refusal`] saying how the lease was lost.
pub fn check_lease(job: &Job, token: LeaseToken) -> Result<(), Refusal> {
    current(job, token).map(|_| ())
}

/// The lease of that token, if its attempt may still begin a paid call: one whose job is cancelled may not.
///
/// # Errors
/// A [`Refusal`] saying how the lease was lost.
pub fn paying_lease(job: &Job, token: LeaseToken) -> Result<&Lease, Refusal> {
    match current(job, token)? {
        (_, true) => Err(Refusal::LeaseLostByCancel),
        (lease, false) => Ok(lease),
    }
}

fn renew(
    job: &Job,
    token: LeaseToken,
    progress: Option<&Progress>,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let (lease, cancel_requested) = current(job, token)?;
    let mut change = Change::of(job, now);
    if cancel_requested {
        change.cancel_attempt();
        return Ok(change.answer(Answer::Cancelled));
    }
    if lease.deadline <= now {
        time_out(&mut change);
        return Ok(change.answer(Answer::Ended));
    }
    // A claim's lease ends where it was promised to; a clock that stepped back must not shorten it.
    let until = lease.until.max(now.plus(lease.length));
    if let JobState::Running { lease, .. } = &mut change.job.state {
        lease.until = until;
    }
    if let Some(progress) = progress {
        change.job.progress = Some(progress.clone());
    }
    Ok(change.answer(Answer::Held { until }))
}

fn save_step(job: &Job, token: LeaseToken, usage: &[Usage], now: Timestamp) -> Result<Transition, Refusal> {
    // Saved also after a cancel: the output is paid for, and a reopened job gets it back.
    let (lease, _) = current(job, token)?;
    let until = lease.until;
    let mut change = Change::of(job, now);
    change.book(usage, true);
    // What moves on does not wait: the bound of the wait begins anew.
    change.job.deferred_since = None;
    Ok(change.answer(Answer::Held { until }))
}

/// Money is booked whatever became of the attempt. What was paid for an attempt that is over has no keeper.
fn pay(job: &Job, token: LeaseToken, usage: &[Usage], now: Timestamp) -> Result<Transition, Refusal> {
    if token.0 < 1 || token.0 > job.counters.claims {
        return Err(Refusal::LeaseLost);
    }
    let mut change = Change::of(job, now);
    change.book(usage, current(job, token).is_ok());
    Ok(change.answer(Answer::Done))
}

fn succeed(job: &Job, token: LeaseToken, usage: &[Usage], now: Timestamp) -> Result<Transition, Refusal> {
    // A late success is kept as long as nobody else claimed the job: the answer is paid for. That holds
    // also where the sweep, with no attempt left to give, has already buried the job.
    let buried = Some(Settled { token, outcome: Outcome::Lost });
    let rises = matches!(job.state, JobState::Failed { reopen: Reopen::From(_), .. })
        && job.counters.claims == token.0
        && job.last_settled == buried;
    let succeed = |change: &mut Change| {
        change.job.state = JobState::Succeeded { at: now };
        change.job.finished_at = Some(now);
        change.job.last_error = None;
        change.job.deferred_since = None;
        change.end_attempt(Outcome::Succeeded, None);
    };
    if rises {
        let mut change = Change::of(job, now);
        change.book(usage, true);
        change.job.counters.lost = change.job.counters.lost.saturating_sub(1);
        succeed(&mut change);
        return Ok(change.answer(Answer::Done));
    }
    settle(job, token, usage, now, Outcome::Succeeded, succeed)
}

/// Ends the attempt of that token by `end`; answers a repetition of the same end as the first time.
fn settle(
    job: &Job,
    token: LeaseToken,
    usage: &[Usage],
    now: Timestamp,
    outcome: Outcome,
    end: impl FnOnce(&mut Change),
) -> Result<Transition, Refusal> {
    if let Some(settled) = job.last_settled
        && settled.token == token
        && is_repeated(settled.outcome, outcome)
    {
        return Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already });
    }
    let (lease, cancel_requested) = current(job, token)?;
    let late = lease.deadline <= now && outcome != Outcome::Succeeded;
    let mut change = Change::of(job, now);
    // What the attempt paid for is lost with it, unless a step or the result keeps it.
    change.book(usage, !cancel_requested && outcome == Outcome::Succeeded);
    if cancel_requested {
        change.cancel_attempt();
        return Ok(change.answer(Answer::Cancelled));
    }
    if late {
        time_out(&mut change);
        return Ok(change.answer(Answer::Ended));
    }
    end(&mut change);
    Ok(change.answer(Answer::Done))
}

/// A failure laid at an upstream's door is kept as a deferral, and its repetition is the same failure.
fn is_repeated(settled: Outcome, reported: Outcome) -> bool {
    settled == reported || (settled == Outcome::Deferred && reported == Outcome::Failed)
}

fn time_out(change: &mut Change) {
    let limit = change.job.spec.policy.timeout;
    let message = format!("the attempt ran longer than {}", crate::time::spoken(limit));
    change.fail(&Failure::new(FailureClass::Timeout, "TIMED_OUT", message), 0.0);
}

fn cancel(job: &Job, now: Timestamp) -> Result<Transition, Refusal> {
    let mut change = Change::of(job, now);
    match &job.state {
        JobState::Pending { .. } => change.cancel(),
        JobState::Running { lease, cancel_requested: false } => {
            change.job.state = JobState::Running { lease: lease.clone(), cancel_requested: true };
        }
        JobState::Running { .. } | JobState::Cancelled { .. } => {
            return Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already });
        }
        JobState::Succeeded { .. } | JobState::Failed { .. } => return Err(Refusal::Ended),
    }
    Ok(change.answer(Answer::Done))
}

fn reopen(job: &Job, force: bool, now: Timestamp) -> Result<Transition, Refusal> {
    match job.state {
        JobState::Pending { visible_at, wait: Wait::Cooling } if visible_at > now => {
            return skip_cooling(job, force, now, visible_at);
        }
        JobState::Pending { .. } | JobState::Running { .. } => return Err(Refusal::NotEnded),
        JobState::Succeeded { .. } => return Err(Refusal::Succeeded),
        JobState::Failed { reopen: Reopen::From(_) | Reopen::OnlyForced, .. } if force => {}
        JobState::Failed { reopen: Reopen::From(until), .. } if until > now => {
            return Err(Refusal::CoolingDown { until });
        }
        JobState::Failed { reopen: Reopen::OnlyForced | Reopen::Discarded, .. } => {
            return Err(Refusal::Permanent);
        }
        JobState::Failed { reopen: Reopen::From(_), .. } | JobState::Cancelled { .. } => {}
    }
    let mut change = Change::of(job, now);
    let Counters { claims, executions, .. } = job.counters;
    change.job.counters = Counters { claims, executions, ..Counters::default() };
    change.job.deferred_since = None;
    change.job.finished_at = None;
    change.wait(now, Wait::Start);
    Ok(change.answer(Answer::Done))
}

/// The same door as for a failed job: closed until the same instant, and open to an operator. The job has
/// not ended, so its counters go on.
fn skip_cooling(job: &Job, force: bool, now: Timestamp, until: Timestamp) -> Result<Transition, Refusal> {
    if !force {
        return Err(Refusal::CoolingDown { until });
    }
    let mut change = Change::of(job, now);
    change.wait(now, Wait::Start);
    Ok(change.answer(Answer::Done))
}

fn discard(job: &Job, now: Timestamp) -> Result<Transition, Refusal> {
    match job.state {
        JobState::Failed { reopen: Reopen::Discarded, .. } => {
            Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already })
        }
        JobState::Failed { at, .. } => {
            let mut change = Change::of(job, now);
            change.job.state = JobState::Failed { at, reopen: Reopen::Discarded };
            Ok(change.answer(Answer::Done))
        }
        JobState::Succeeded { .. } | JobState::Cancelled { .. } => Err(Refusal::Ended),
        JobState::Pending { .. } | JobState::Running { .. } => Err(Refusal::NotEnded),
    }
}

/// The lease ends now instead of later, and that is all: what follows is what follows the end of any lease.
fn holder_died(job: &Job, token: LeaseToken, now: Timestamp) -> Result<Transition, Refusal> {
    let (lease, cancel_requested) = current(job, token)?;
    if lease.until <= now {
        return Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already });
    }
    let mut change = Change::of(job, now);
    change.job.state = JobState::Running { lease: Lease { until: now, ..lease.clone() }, cancel_requested };
    Ok(change.answer(Answer::Done))
}

fn sweep(job: &Job, now: Timestamp) -> Result<Transition, Refusal> {
    let unchanged = || Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already });
    let mut change = Change::of(job, now);
    match &job.state {
        JobState::Pending { .. } => {
            change.expire();
            let waited_out = job.deferred_since.is_some_and(|at| at.plus(job.spec.policy.max_wait) <= now);
            if waited_out && change.job.state == job.state {
                change.give_up_waiting();
            }
        }
        // Cancelled first: a job that somebody ended must not come back as a retry of its time-out.
        JobState::Running { lease, cancel_requested: true } if lease.until.min(lease.deadline) <= now => {
            change.cancel_attempt();
        }
        JobState::Running { lease, cancel_requested: false } if lease.deadline <= now => {
            time_out(&mut change);
        }
        // A lost job with attempts left stays as it is: its next claim takes it from here, and until
        // then a late success still counts.
        JobState::Running { lease, .. } if lease.until <= now && dies_with(job, now) => change.lapse(lease),
        _ => {}
    }
    if change.job.state == job.state { unchanged() } else { Ok(change.answer(Answer::Ended)) }
}

/// A job waits for what is closed from its own instant on, or from the closing, whichever is later. A running
/// one does not wait.
fn blocked(job: &Job, since: Timestamp, failure: &Failure, now: Timestamp) -> Result<Transition, Refusal> {
    match job.state {
        JobState::Pending { visible_at, .. }
            if visible_at.max(since).plus(job.spec.policy.max_wait) <= now =>
        {
            let mut change = Change::of(job, now);
            change.give_up_waiting_for(failure.clone());
            Ok(change.answer(Answer::Ended))
        }
        _ => Ok(Transition { job: job.clone(), ended: None, answer: Answer::Already }),
    }
}

/// Whether the end of its lease would be the end of the job.
fn dies_with(job: &Job, now: Timestamp) -> bool {
    let counters = Counters { lost: job.counters.lost + 1, ..job.counters };
    is_exhausted(&job.spec.policy, &counters) || job.spec.expires_at.is_some_and(|at| at <= now)
}

/// When [`Event::Sweep`] will end the job if nothing happens before: at `expires_at`, when it has waited
/// too long for its upstream, at its attempt's time limit, or with a lease that is its last. A store keeps
/// it beside the job, so that a sweep finds what is due and nothing else.
#[must_use]
pub fn gives_up_at(job: &Job) -> Option<Timestamp> {
    match &job.state {
        JobState::Pending { .. } => {
            let waited_out = job.deferred_since.map(|at| at.plus(job.spec.policy.max_wait));
            [expires_at(job), waited_out].into_iter().flatten().min()
        }
        JobState::Running { lease, cancel_requested } => {
            let is_last = *cancel_requested || dies_with(job, lease.until);
            let lapses = if is_last { Some(lease.until) } else { job.spec.expires_at };
            // A lease that has not run out keeps an expired job alive.
            let lapses = lapses.map(|at| at.max(lease.until));
            Some(lapses.map_or(lease.deadline, |at| at.min(lease.deadline)))
        }
        _ => None,
    }
}
