//! Schedules: saved only over what was read, and together with the jobs of their ticks or not at all.

use coolant_core::names::{IdempotencyKey, ScheduleName};
use coolant_core::schedule::{CatchUp, JobTemplate, Schedule};
use coolant_core::store::{NewJob, Stats};
use coolant_core::time::Timestamp;
use serde_json::json;

use super::Subject;
use super::kit::*;

fn name(text: &str) -> ScheduleName {
    ScheduleName::parse(text).unwrap()
}

/// Schedule number `n`, new, due at the clock's first instant.
fn schedule(s: &Subject, n: u32, named: &str) -> Schedule {
    let mut template = JobTemplate::of(job_with(n, |spec| spec.priority = -3));
    template.payload = json!({"text": "it's 문서", "number": 0.1});
    Schedule {
        id: id(n),
        tenant: tenant("default"),
        name: name(named),
        cron: "0 3 * * MON-FRI".into(),
        time_zone: "Asia/Seoul".into(),
        template,
        catch_up: CatchUp::All,
        paused: false,
        next_at: Some(s.now()),
        last_at: None,
        created_at: s.now(),
        updated_at: s.now(),
        version: 0,
    }
}

async fn save(s: &Subject, schedule: &Schedule, jobs: Vec<NewJob>) -> bool {
    s.store.save_schedule(schedule.clone(), jobs).await.unwrap()
}

async fn read(s: &Subject, schedule: &Schedule) -> Schedule {
    s.twin.schedule(&schedule.tenant, &schedule.name).await.unwrap().expect("it is there")
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

pub(super) async fn a_schedule_is_saved_only_over_the_version_it_was_read_with(s: Subject) {
    let new = schedule(&s, 1, "nightly");
    assert!(save(&s, &new, Vec::new()).await);
    assert!(!save(&s, &new, Vec::new()).await, "it is no longer new");
    let kept = read(&s, &new).await;
    assert_eq!(kept, Schedule { version: 1, ..new.clone() });
    let moved = Schedule { next_at: None, last_at: Some(s.now()), paused: true, ..kept.clone() };
    assert!(save(&s, &moved, Vec::new()).await);
    assert!(!s.twin.save_schedule(moved.clone(), Vec::new()).await.unwrap(), "somebody else was faster");
    assert_eq!(read(&s, &new).await, Schedule { version: 2, ..moved });
    let never = Schedule { name: name("never"), version: 1, ..new };
    assert!(!save(&s, &never, Vec::new()).await, "there is nothing to save over");
    assert_eq!(s.store.schedule(&never.tenant, &never.name).await.unwrap(), None);
}

pub(super) async fn a_schedule_moves_together_with_the_jobs_of_its_ticks(s: Subject) {
    assert!(save(&s, &schedule(&s, 1, "a"), Vec::new()).await);
    let kept = read(&s, &schedule(&s, 1, "a")).await;
    let moved = Schedule { next_at: Some(s.now().plus(secs(60))), ..kept };
    assert!(save(&s, &moved, vec![keyed(10, "tick 1"), keyed(11, "tick 2")]).await);
    let late = s.twin.save_schedule(moved, vec![keyed(12, "tick 3")]).await.unwrap();
    assert!(!late);
    let of = async |text| s.twin.by_key(&tenant("default"), &key(text)).await.unwrap();
    assert_eq!(of("tick 1").await.unwrap().job.id, id(10));
    assert_eq!(of("tick 2").await.unwrap().job.id, id(11));
    assert_eq!(of("tick 3").await, None, "whoever was late made no job");
    assert_eq!(claimed_ids(&s.claim(10).await), [id(10), id(11)]);
}

pub(super) async fn a_tick_whose_job_is_there_is_left_as_it_is_and_counted_nowhere(s: Subject) {
    s.submit(keyed(10, "tick 1")).await;
    let mut other = keyed(12, "tick 1");
    other.payload = json!({"other": true});
    assert!(save(&s, &schedule(&s, 1, "a"), vec![keyed(11, "tick 1")]).await);
    assert!(save(&s, &schedule(&s, 2, "b"), vec![other, keyed(13, "tick 2")]).await);
    assert_eq!(s.list(Default::default()).await, [id(13), id(10)]);
    let Stats { duplicate_request_count, conflict_count, .. } = s.stats().await;
    assert_eq!((duplicate_request_count, conflict_count), (0, 0));
}

pub(super) async fn of_simultaneous_moves_of_a_schedule_one_is_made(s: Subject) {
    assert!(save(&s, &schedule(&s, 1, "a"), Vec::new()).await);
    let kept = read(&s, &schedule(&s, 1, "a")).await;
    let moves = (0..20_u32).map(|n| {
        let store = if n % 2 == 0 { &s.store } else { &s.twin };
        store.save_schedule(kept.clone(), vec![job(100 + n)])
    });
    let saved = futures::future::join_all(moves).await;
    assert_eq!(saved.into_iter().filter(|saved| *saved.as_ref().unwrap()).count(), 1);
    assert_eq!(s.list(Default::default()).await.len(), 1, "and one job with it");
    assert_eq!(read(&s, &kept).await.version, 2);
}

pub(super) async fn a_deleted_schedule_is_gone_and_one_made_again_is_another(s: Subject) {
    let first = schedule(&s, 1, "a");
    assert!(save(&s, &first, vec![keyed(10, "tick 1")]).await);
    let read_before = read(&s, &first).await;
    assert!(s.twin.delete_schedule(&first.tenant, &first.name).await.unwrap());
    assert!(!s.store.delete_schedule(&first.tenant, &first.name).await.unwrap());
    assert_eq!(s.store.schedule(&first.tenant, &first.name).await.unwrap(), None);
    assert!(s.store.due_schedules(10).await.unwrap().is_empty());
    assert!(!save(&s, &read_before, vec![keyed(11, "tick 2")]).await, "it does not come back");
    let second = schedule(&s, 2, "a");
    assert!(save(&s, &second, Vec::new()).await);
    assert!(!save(&s, &read_before, vec![keyed(11, "tick 2")]).await, "the new one is not the old one");
    assert_eq!(read(&s, &second).await.id, id(2));
    assert_eq!(s.list(Default::default()).await, [id(10)], "its jobs stay");
}

pub(super) async fn schedules_are_listed_by_name_within_their_tenant(s: Subject) {
    for (n, named) in ["c", "a", "b", "d"].into_iter().enumerate() {
        assert!(save(&s, &schedule(&s, n as u32, named), Vec::new()).await);
    }
    let elsewhere = Schedule { tenant: tenant("other"), ..schedule(&s, 9, "a") };
    assert!(save(&s, &elsewhere, Vec::new()).await);
    let listed = async |of: &str, after: Option<&str>, limit| {
        let found = s.store.schedules(&tenant(of), after.map(name).as_ref(), limit).await.unwrap();
        found.into_iter().map(|schedule| schedule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed("default", None, 3).await, ["a", "b", "c"]);
    assert_eq!(listed("default", Some("c"), 3).await, ["d"]);
    assert_eq!(listed("other", None, 3).await, ["a"]);
    assert!(listed("nobody", None, 3).await.is_empty());
    assert!(s.store.delete_schedule(&tenant("other"), &name("a")).await.unwrap());
    assert_eq!(listed("default", None, 10).await.len(), 4);
}

pub(super) async fn a_schedule_is_due_when_its_tick_has_come(s: Subject) {
    let ticks = [Some(30), None, Some(10), Some(20), Some(40)];
    for (n, seconds) in ticks.into_iter().enumerate() {
        let next_at: Option<Timestamp> = seconds.map(|seconds| s.now().plus(secs(seconds)));
        let schedule = Schedule { next_at, ..schedule(&s, n as u32, &format!("s{n}")) };
        assert!(save(&s, &schedule, Vec::new()).await);
    }
    let due = async |limit| {
        let due = s.store.due_schedules(limit).await.unwrap();
        due.into_iter().map(|schedule| schedule.name.to_string()).collect::<Vec<_>>()
    };
    assert!(due(10).await.is_empty());
    s.advance(30);
    assert_eq!(due(10).await, ["s2", "s3", "s0"], "the earliest first");
    assert_eq!(due(2).await, ["s2", "s3"]);
    let first = s.store.due_schedules(1).await.unwrap().pop().unwrap();
    assert!(save(&s, &Schedule { next_at: None, ..first }, Vec::new()).await);
    assert_eq!(due(10).await, ["s3", "s0"]);
}
