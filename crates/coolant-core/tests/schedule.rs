//! Which ticks become jobs: on time, caught up, dropped.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::collections::BTreeMap;
use std::time::Duration;

use coolant_core::job::{JobId, Policy};
use coolant_core::names::{IdempotencyKey, JobType, Queue, ScheduleName, Tenant};
use coolant_core::schedule::{
    CatchUp, Identity, JobTemplate, MAX_CATCH_UP, ON_TIME, Plan, Schedule, TAG, Ticks,
};
use coolant_core::store::Start;
use coolant_core::time::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// A tick every so many seconds.
struct Every(i64);

impl Ticks for Every {
    fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let step = self.0 * 1000;
        Some(Timestamp::from_millis((at.as_millis().div_euclid(step) + 1) * step))
    }

    fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let step = self.0 * 1000;
        Some(Timestamp::from_millis(at.as_millis().div_euclid(step) * step))
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn schedule(catch_up: CatchUp, next_at: i64) -> Schedule {
    Schedule {
        id: JobId(Uuid::from_u128(1)),
        tenant: Tenant::default(),
        name: ScheduleName::parse("nightly").unwrap(),
        cron: String::new(),
        time_zone: "UTC".into(),
        template: JobTemplate {
            job_type: JobType::parse("T").unwrap(),
            payload: json!({"a": 1}),
            queue: Queue::default(),
            lock_key: None,
            upstreams: Vec::new(),
            priority: 3,
            tags: BTreeMap::new(),
            delay: Duration::ZERO,
            policy: Policy::default(),
        },
        catch_up,
        paused: false,
        next_at: Some(at(next_at)),
        last_at: None,
        created_at: at(0),
        updated_at: at(0),
        version: 1,
    }
}

fn seconds(plan: &Plan) -> Vec<i64> {
    plan.run.iter().map(|tick| tick.as_millis() / 1000).collect()
}

const HOURLY: Every = Every(3600);
const POLICIES: [CatchUp; 3] = [CatchUp::Skip, CatchUp::Latest, CatchUp::All];

#[test]
fn a_tick_that_is_looked_at_in_time_runs_whatever_the_policy() {
    for policy in POLICIES {
        let schedule = schedule(policy, 3600);
        assert_eq!(schedule.plan(Timestamp::from_millis(3_599_999), &HOURLY), None);
        for late in [0, ON_TIME.as_secs()] {
            let plan = schedule.plan(at(3600).plus(Duration::from_secs(late)), &HOURLY).unwrap();
            assert_eq!((seconds(&plan), plan.dropped, plan.next_at), (vec![3600], false, Some(at(7200))));
        }
    }
}

#[test]
fn ticks_between_two_looks_are_on_time_and_none_is_lost() {
    for policy in POLICIES {
        let plan = schedule(policy, 100).plan(at(103), &Every(1)).unwrap();
        assert_eq!((seconds(&plan), plan.dropped), (vec![100, 101, 102, 103], false), "{policy:?}");
    }
}

#[test]
fn what_nobody_looked_at_in_time_is_caught_up_as_the_policy_says() {
    // Five hours of nobody, and 20 minutes past the last tick.
    let now = at(5 * 3600 + 1200);
    let planned = |policy| schedule(policy, 3600).plan(now, &HOURLY).unwrap();
    let skip = planned(CatchUp::Skip);
    assert_eq!((seconds(&skip), skip.dropped), (vec![], true));
    let latest = planned(CatchUp::Latest);
    assert_eq!((seconds(&latest), latest.dropped), (vec![5 * 3600], true));
    let all = planned(CatchUp::All);
    assert_eq!((seconds(&all), all.dropped), ([1, 2, 3, 4, 5].map(|h| h * 3600).to_vec(), false));
    for plan in [skip, latest, all] {
        assert_eq!(plan.next_at, Some(at(6 * 3600)));
    }
}

#[test]
fn a_tick_on_time_stands_for_the_late_ones_before_it() {
    let now = at(5 * 3600 + 2);
    let plan = schedule(CatchUp::Latest, 3600).plan(now, &HOURLY).unwrap();
    assert_eq!((seconds(&plan), plan.dropped), (vec![5 * 3600], true));
    let plan = schedule(CatchUp::Skip, 3600).plan(now, &HOURLY).unwrap();
    assert_eq!(seconds(&plan), [5 * 3600]);
}

#[test]
fn catching_up_is_bounded_and_keeps_the_newest() {
    let now = at(86_400 * 365);
    let plan = schedule(CatchUp::All, 1).plan(now, &Every(1)).unwrap();
    assert_eq!((plan.run.len(), plan.dropped), (MAX_CATCH_UP, true));
    assert_eq!((plan.run.last(), plan.next_at), (Some(&now), Some(at(86_400 * 365 + 1))));
}

#[test]
fn a_paused_schedule_has_nothing_to_do_and_goes_on_from_now() {
    let resting = Schedule { paused: true, ..schedule(CatchUp::All, 10) };
    assert_eq!(resting.plan(at(100), &Every(10)), None);
    assert_eq!(resting.first_tick(at(100), &Every(10)), None);
    let awake = Schedule { paused: false, ..resting };
    assert_eq!(awake.first_tick(at(100), &Every(10)), Some(at(110)));
}

#[test]
fn no_tick_comes_again_when_the_clock_goes_back() {
    let schedule = schedule(CatchUp::All, 100);
    let plan = schedule.plan(at(120), &Every(10)).unwrap();
    assert_eq!(seconds(&plan), [100, 110, 120]);
    let after = schedule.after(&plan);
    assert_eq!((after.last_at, after.next_at), (Some(at(120)), Some(at(130))));
    assert_eq!(after.plan(at(90), &Every(10)), None);
    assert_eq!(after.first_tick(at(90), &Every(5)), Some(at(125)), "also with another expression");
}

#[test]
fn a_tick_that_the_rules_no_longer_know_is_not_run() {
    // The expression names 100, the rules of its time zone changed, and now 105 comes instead.
    struct Moved;
    impl Ticks for Moved {
        fn after(&self, at: Timestamp) -> Option<Timestamp> {
            Some(self::at(105)).filter(|tick| *tick > at)
        }
        fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
            Some(self::at(105)).filter(|tick| *tick <= at)
        }
    }
    let plan = schedule(CatchUp::All, 100).plan(at(101), &Moved).unwrap();
    assert_eq!((seconds(&plan), plan.next_at), (vec![], Some(at(105))));
}

#[test]
fn a_job_of_a_schedule_is_what_the_template_says_and_carries_its_name() {
    let identity = || Identity { id: JobId(Uuid::from_u128(7)), trace_id: "f".repeat(32) };
    let key = IdempotencyKey::parse("schedule:nightly:2026-01-01T00:00:00Z").unwrap();
    let mut schedule = schedule(CatchUp::Skip, 0);
    let job = schedule.job(Some(key.clone()), identity());
    assert_eq!((job.spec.idempotency_key.as_ref(), job.spec.priority), (Some(&key), 3));
    assert_eq!((job.spec.tags[TAG].as_str(), job.start), ("nightly", Start::Now));
    assert_eq!(JobTemplate { tags: BTreeMap::new(), ..JobTemplate::of(job) }, schedule.template);
    schedule.template.delay = Duration::from_secs(5);
    schedule.template.tags = [(TAG.to_owned(), "mine".to_owned())].into();
    let job = schedule.job(None, identity());
    assert_eq!((job.spec.tags[TAG].as_str(), job.start), ("mine", Start::After(Duration::from_secs(5))));
}

proptest! {
    /// However irregularly it is looked at, ticks run in order, none twice, and the schedule moves past now.
    #[test]
    fn ticks_run_in_order_and_never_twice(
        step in 1_i64..5000,
        policy in prop_oneof![Just(CatchUp::Skip), Just(CatchUp::Latest), Just(CatchUp::All)],
        looks in prop::collection::vec(-50_000_i64..200_000, 1..40),
    ) {
        let ticks = Every(step);
        let mut schedule = schedule(policy, step);
        let (mut now, mut run) = (at(0), Vec::<Timestamp>::new());
        for look in looks {
            now = Timestamp::from_millis((now.as_millis() + look).max(0));
            let Some(plan) = schedule.plan(now, &ticks) else { continue };
            prop_assert!(plan.run.len() <= MAX_CATCH_UP);
            prop_assert!(plan.next_at > Some(now));
            if !plan.dropped {
                let all = std::iter::successors(schedule.next_at, |tick| ticks.after(*tick));
                let all: Vec<_> = all.take_while(|tick| *tick <= now).collect();
                prop_assert_eq!(&plan.run, &all, "nothing is lost unless it is said");
            }
            run.extend(&plan.run);
            schedule = schedule.after(&plan);
        }
        prop_assert!(run.is_sorted_by(|a, b| a < b), "{:?}", run);
    }
}
