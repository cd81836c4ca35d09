//! What holds after any sequence of events, found by rolling dice: lawful and unlawful events, current and
//! stale tokens, a clock that also steps back.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use common::*;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{Counters, Job, JobState, Outcome, Status};
use coolant_core::lifecycle::{Answer, Event, Transition, gives_up_at, holds_lock, on};
use coolant_core::time::Timestamp;
use proptest::prelude::*;

/// An event with tokens counted back from the newest, so that most of them hit.
#[derive(Debug, Clone)]
enum Roll {
    Claim(Option<u64>),
    Renew(i64),
    Step(i64),
    Succeed(i64),
    Fail(i64, Failure, f64),
    Defer(i64, u64),
    Release(i64),
    Cancel,
    Reopen(bool),
    Discard,
    HolderDied(i64),
    Sweep,
    Blocked(i64),
}

fn roll() -> impl Strategy<Value = Roll> {
    let back = || prop_oneof![9 => Just(0_i64), 1 => 1_i64..3];
    prop_oneof![
        6 => proptest::option::of(1_u64..60).prop_map(Roll::Claim),
        3 => back().prop_map(Roll::Renew),
        2 => back().prop_map(Roll::Step),
        1 => back().prop_map(Roll::Succeed),
        3 => (back(), failures(), 0.0..1.0).prop_map(|(back, failure, jitter)| Roll::Fail(back, failure, jitter)),
        2 => (back(), 0_u64..100_000).prop_map(|(back, wait)| Roll::Defer(back, wait)),
        2 => back().prop_map(Roll::Release),
        1 => Just(Roll::Cancel),
        2 => any::<bool>().prop_map(Roll::Reopen),
        1 => Just(Roll::Discard),
        1 => back().prop_map(Roll::HolderDied),
        3 => Just(Roll::Sweep),
        2 => (0_i64..200_000).prop_map(Roll::Blocked),
    ]
}

fn failures() -> impl Strategy<Value = Failure> {
    let class = proptest::sample::select(FailureClass::ALL.to_vec());
    let wait = proptest::option::of(0_u64..200_000);
    (class, wait, any::<bool>(), proptest::bool::weighted(0.1)).prop_map(|(class, wait, named, final_)| {
        let failure = failure(class).with_retry_after(wait.map(secs));
        Failure { final_, ..failure.with_upstream(named.then(|| "openai/gpt".into())) }
    })
}

impl Roll {
    fn event(&self, job: &Job) -> Event {
        let newest = |back: i64| job.counters.claims - back;
        match self.clone() {
            Self::Claim(lease) => Event::Claim { worker: "w".into(), lease: lease.map(secs) },
            Self::Renew(back) => renew(newest(back)),
            Self::Step(back) => step(newest(back), "s", 2),
            Self::Succeed(back) => succeed(newest(back)),
            Self::Fail(back, failure, jitter) => {
                Event::Fail { token: token(newest(back)), failure, jitter, usage: vec![paid(3)] }
            }
            Self::Defer(back, wait) => defer(newest(back), wait),
            Self::Release(back) => release(newest(back)),
            Self::Cancel => Event::Cancel,
            Self::Reopen(force) => Event::Reopen { force },
            Self::Discard => Event::Discard,
            Self::HolderDied(back) => Event::HolderDied { token: token(newest(back)) },
            Self::Sweep => Event::Sweep,
            Self::Blocked(since) => {
                Event::Blocked { since: at(since), failure: failure(FailureClass::Overloaded) }
            }
        }
    }
}

/// Small steps, long waits, and corrections of the clock.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0_i64..40, 2 => 0_i64..400, 1 => 0_i64..200_000, 1 => -3_i64..0]
}

fn jobs() -> impl Strategy<Value = Job> {
    (1_u32..5, 1_u32..4, 1_u32..4, proptest::option::of(1_i64..500), any::<bool>()).prop_map(
        |(max_attempts, max_lost, max_releases, expires, lock)| {
            job_with(|spec| {
                spec.policy.max_attempts = max_attempts;
                spec.policy.max_lost = max_lost;
                spec.policy.max_releases = max_releases;
                spec.policy.timeout = secs(90);
                spec.expires_at = expires.map(at);
                if lock {
                    locked(spec);
                }
            })
        },
    )
}

/// What one event may do to a job.
fn check_change(before: &Job, after: &Transition) {
    let job = &after.job;
    if after.answer == Answer::Already {
        assert_eq!(before, job, "`Already` changes nothing");
        assert_eq!(after.ended, None);
        return;
    }
    assert_eq!(job.version, before.version + 1, "one change, one version");
    assert_eq!((job.id, &job.spec), (before.id, &before.spec));
    assert_ne!(before.status(), Status::Succeeded, "nothing leaves a success");
    let claimed = i64::from(matches!(after.answer, Answer::Claimed(_)));
    assert_eq!(job.counters.claims, before.counters.claims + claimed, "a claim is one token");
    let rose = before.status() == Status::Failed && job.status() == Status::Succeeded;
    if before.status() != Status::Running && !rose {
        assert_eq!(after.ended, None, "only a running attempt ends");
    }
    if before.status() == Status::Running && job.status() != Status::Running
        || claimed == 1 && before.status() == Status::Running
    {
        let end = after.ended.as_ref().expect("an attempt that is over is in the history");
        assert_eq!(end.number, before.counters.claims);
        let settled = job.last_settled.unwrap();
        assert_eq!((settled.token.0, settled.outcome), (end.number, end.outcome));
    }
    check_counters(before.counters, after);
    assert!(before.usage.cost <= job.usage.cost, "money is never unspent");
    assert!(job.usage.wasted <= job.usage.cost);
}

/// Each end of an attempt moves its own counter and no other.
fn check_counters(before: Counters, after: &Transition) {
    let now = after.job.counters;
    let claimed = u32::from(matches!(after.answer, Answer::Claimed(_)));
    let outcome = after.ended.as_ref().map(|end| end.outcome);
    let free = u32::from(matches!(outcome, Some(Outcome::Released | Outcome::Deferred)));
    assert_eq!(now.executions, before.executions + claimed - free);
    let reopened = now.tries + 1 < before.tries + claimed || now.lost + 1 < before.lost;
    if reopened || now == (Counters { claims: now.claims, executions: now.executions, ..Counters::default() })
    {
        return;
    }
    let plus = |is: Outcome| u32::from(outcome == Some(is));
    assert_eq!(now.tries, before.tries + claimed - free);
    assert_eq!(now.releases, before.releases + plus(Outcome::Released));
    assert_eq!(now.deferrals, before.deferrals + plus(Outcome::Deferred));
    if outcome != Some(Outcome::Succeeded) {
        assert_eq!(now.lost, before.lost + plus(Outcome::Lost));
    }
}

/// A sweep ends a job at the instant that was foretold, and not before.
fn check_sweep(job: &Job) {
    let sweep = |at: i64| on(job, &Event::Sweep, Timestamp::from_millis(at)).unwrap().answer;
    match gives_up_at(job).map(Timestamp::as_millis) {
        Some(foretold) => {
            assert_eq!(sweep(foretold), Answer::Ended, "{job:?}");
            assert_eq!(sweep(foretold - 1), Answer::Already, "{job:?}");
        }
        None => assert_eq!(sweep(i64::MAX), Answer::Already, "{job:?}"),
    }
}

/// What holds of a job at any time.
fn check_job(job: &Job) {
    let (counters, policy) = (job.counters, &job.spec.policy);
    assert!(counters.tries <= policy.max_attempts, "{counters:?}");
    assert!(counters.lost <= policy.max_lost, "{counters:?}");
    assert!(counters.releases <= policy.max_releases, "{counters:?}");
    assert!(i64::from(counters.executions) <= counters.claims);
    assert_eq!(job.finished_at.is_some(), job.status().has_ended());
    match &job.state {
        JobState::Running { lease, .. } => assert_eq!(lease.token.0, counters.claims),
        JobState::Failed { .. } => assert!(job.last_error.is_some(), "a dead letter says why"),
        JobState::Succeeded { .. } => assert_eq!(job.last_error, None),
        _ => {}
    }
    check_sweep(job);
    if job.spec.lock_key.is_none() || job.status() == Status::Succeeded || job.status() == Status::Cancelled {
        assert_eq!(holds_lock(job, at(0)), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_story_keeps_the_rules(job in jobs(), rolls in prop::collection::vec((time(), roll()), 1..60)) {
        let (mut job, mut now) = (job, 0);
        for (passed, roll) in rolls {
            now += passed;
            if let Ok(after) = on(&job, &roll.event(&job), at(now)) {
                check_change(&job, &after);
                job = after.job;
                check_job(&job);
            }
        }
    }

    #[test]
    fn a_repeated_event_of_a_worker_never_counts_twice(
        job in jobs(),
        rolls in prop::collection::vec((time(), roll()), 1..40),
    ) {
        let (mut job, mut now) = (job, 0);
        for (passed, roll) in rolls {
            now += passed;
            let event = roll.event(&job);
            let Ok(after) = on(&job, &event, at(now)) else { continue };
            job = after.job;
            let settles = matches!(event, Event::Fail { .. } | Event::Succeed { .. } | Event::Defer { .. } | Event::Release { .. });
            if settles && let Ok(again) = on(&job, &event, at(now + 1)) {
                prop_assert_eq!(again.answer, Answer::Already);
            }
        }
    }

    #[test]
    fn left_alone_every_job_ends(job in jobs(), rolls in prop::collection::vec((time(), roll()), 1..40)) {
        let (mut job, mut now) = (job, 0);
        for (passed, roll) in rolls {
            now += passed;
            if let Ok(after) = on(&job, &roll.event(&job), at(now)) {
                job = after.job;
            }
        }
        // Workers that claim whenever they may and die each time, and a sweep.
        for _ in 0..50 {
            let Some(due) = job.visible_at() else { break };
            now = now.max(due.as_millis() / 1000 + 1);
            for event in [claim(), Event::Sweep] {
                if let Ok(after) = on(&job, &event, at(now)) {
                    job = after.job;
                }
            }
        }
        prop_assert!(job.status().has_ended(), "{:?}", job);
    }
}
