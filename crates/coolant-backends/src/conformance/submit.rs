//! Submits: one key is one job.

use std::sync::Arc;

use coolant_core::failure::FailureClass;
use coolant_core::job::{Counters, Reopen, Status};
use coolant_core::lifecycle::Event;
use coolant_core::store::{IfFailed, NewJob, Start, SubmitOutcome, Submitted};
use futures::future::join_all;
use serde_json::json;

use super::Subject;
use super::kit::*;

fn outcomes(answers: &[Submitted]) -> Vec<SubmitOutcome> {
    answers.iter().map(|answer| answer.outcome).collect()
}

pub(super) async fn a_new_job_waits_for_its_turn(s: Subject) {
    let new = keyed(1, "k");
    let answer = s.submit(new.clone()).await;
    assert_eq!(answer.outcome, SubmitOutcome::Created);
    assert_eq!(answer.record.job, new.first(s.now()));
    assert_eq!((&answer.record.payload, &answer.record.result), (&new.payload, &None));
    assert_eq!(s.record(id(1)).await, answer.record);
}

pub(super) async fn one_key_is_one_job_whatever_its_status(s: Subject) {
    let first = s.submit(keyed(1, "k")).await.record;
    let again = s.submit(keyed(2, "k")).await;
    assert_eq!((again.outcome, again.record), (SubmitOutcome::Existing, first));
    s.claim_one().await;
    assert_eq!(s.submit(keyed(3, "k")).await.record.job.status(), Status::Running);
    s.done(id(1), succeed(1)).await;
    let again = s.submit(NewJob { if_failed: IfFailed::Retry, ..keyed(4, "k") }).await;
    assert_eq!((again.outcome, again.record.job.status()), (SubmitOutcome::Existing, Status::Succeeded));
    assert_eq!(again.record.result, Some(json!({ "by": 1 })));
    assert_eq!(s.store.jobs(&[id(2), id(3), id(4)]).await.unwrap(), [None, None, None]);
}

pub(super) async fn a_hundred_simultaneous_submits_of_a_key_make_one_job(s: Subject) {
    let submits = (1..=100).map(|n| {
        let store = if n % 2 == 0 { &s.store } else { &s.twin };
        store.submit(vec![keyed(n, "k")])
    });
    let answers: Vec<_> =
        join_all(submits).await.into_iter().flat_map(|answer| answer.expect("no submit fails")).collect();
    let created = outcomes(&answers).iter().filter(|outcome| **outcome == SubmitOutcome::Created).count();
    let existing = outcomes(&answers).iter().filter(|outcome| **outcome == SubmitOutcome::Existing).count();
    assert_eq!((created, existing), (1, 99));
    assert!(answers.iter().all(|answer| answer.record.job.id == answers[0].record.job.id));
    assert_eq!(s.stats().await.duplicate_request_count, 99);
    assert_eq!(s.claim(10).await.len(), 1);
}

pub(super) async fn twins_in_one_call_are_one_job(s: Subject) {
    let other = NewJob { payload: json!({ "a": 2 }), ..keyed(3, "k") };
    let answers = s.submit_all(vec![keyed(1, "k"), keyed(2, "k"), other, keyed(4, "l"), keyed(5, "k")]).await;
    use SubmitOutcome::{Conflict, Created, Existing};
    assert_eq!(outcomes(&answers), [Created, Existing, Conflict, Created, Existing]);
    let of_k = [0, 1, 2, 4].map(|index: usize| answers[index].record.job.id);
    assert_eq!(of_k, [id(1); 4]);
    assert_eq!(s.stats().await.duplicate_request_count, 2);
}

pub(super) async fn other_parameters_are_refused_and_change_nothing(s: Subject) {
    s.submit(keyed(1, "k")).await;
    let before = s.record(id(1)).await;
    s.advance(1);
    let other_payload = NewJob { payload: json!({ "a": 2 }), ..keyed(2, "k") };
    let mut other_type = keyed(3, "k");
    Arc::make_mut(&mut other_type.spec).job_type = coolant_core::names::JobType::parse("OTHER").unwrap();
    for job in [other_payload, other_type] {
        let answer = s.submit(job).await;
        assert_eq!((answer.outcome, &answer.record), (SubmitOutcome::Conflict, &before));
    }
    assert_eq!(s.record(id(1)).await, before);
    let stats = s.stats().await;
    assert_eq!((stats.conflict_count, stats.duplicate_request_count), (2, 0));
    // What is not a parameter may differ: queue, priority, policy.
    let mut elsewhere = keyed(4, "k");
    Arc::make_mut(&mut elsewhere.spec).priority = 5;
    assert_eq!(s.submit(elsewhere).await.outcome, SubmitOutcome::Existing);
}

pub(super) async fn parameters_are_compared_by_meaning(s: Subject) {
    let spelled = |n, text: &str| NewJob { payload: serde_json::from_str(text).unwrap(), ..keyed(n, "k") };
    s.submit(spelled(1, r#"{"a": 1, "b": [2.0]}"#)).await;
    let again = s.submit(spelled(2, r#"{"b": [2], "a": 1e0}"#)).await;
    assert_eq!(again.outcome, SubmitOutcome::Existing);
}

pub(super) async fn tenants_share_no_keys(s: Subject) {
    let of = |n, name| {
        let mut job = keyed(n, "k");
        Arc::make_mut(&mut job.spec).tenant = tenant(name);
        NewJob { payload: json!(name), ..job }
    };
    let answers = s.submit_all(vec![of(1, "a"), of(2, "b"), of(3, "a")]).await;
    use SubmitOutcome::{Created, Existing};
    assert_eq!(outcomes(&answers), [Created, Created, Existing]);
    let of_a = s.store.by_key(&tenant("a"), &key("k")).await.unwrap().unwrap();
    assert_eq!((of_a.job.id, of_a.payload), (id(1), json!("a")));
}

pub(super) async fn jobs_without_a_key_are_never_one(s: Subject) {
    let answers = s.submit_all(vec![job(1), job(2)]).await;
    assert_eq!(outcomes(&answers), [SubmitOutcome::Created; 2]);
    assert_eq!(s.claim(10).await.len(), 2);
}

pub(super) async fn a_submit_that_comes_again_is_answered_as_the_first_time(s: Subject) {
    for new in [job(1), keyed(2, "k")] {
        let first = s.submit(new.clone()).await;
        s.advance(1);
        assert_eq!(s.submit(new).await, first);
    }
    assert_eq!(s.stats().await.duplicate_request_count, 0, "a lost answer is no duplicate request");
    assert_eq!(s.list(coolant_core::store::JobFilter::default()).await, [id(2), id(1)]);
}

pub(super) async fn a_failed_key_is_reopened_once_and_only_after_its_cooldown(s: Subject) {
    let new = |n| {
        let mut job = keyed(n, "k");
        Arc::make_mut(&mut job.spec).policy.max_attempts = 1;
        NewJob { if_failed: IfFailed::Retry, ..job }
    };
    s.running(new(1)).await;
    s.done(id(1), fail(1, NETWORK)).await;
    s.advance(299);
    let cooling = s.submit(new(2)).await;
    assert_eq!((cooling.outcome, cooling.record.job.status()), (SubmitOutcome::Existing, Status::Failed));
    s.advance(1);
    let returned = s.submit(NewJob { if_failed: IfFailed::Return, ..new(3) }).await;
    assert_eq!((returned.outcome, returned.record.job.status()), (SubmitOutcome::Existing, Status::Failed));

    let submits = (10..20).map(|n| if n % 2 == 0 { &s.store } else { &s.twin }.submit(vec![new(n)]));
    let answers: Vec<_> = join_all(submits).await.into_iter().flat_map(Result::unwrap).collect();
    let reopened = answers.iter().filter(|answer| answer.outcome == SubmitOutcome::Reopened).count();
    assert_eq!(reopened, 1);
    assert!(answers.iter().all(|answer| answer.record.job.status() == Status::Pending));
    let claimed = s.claim_one().await;
    assert_eq!((claimed.lease.token, claimed.record.job.counters.executions), (token(2), 2));
}

pub(super) async fn a_submit_reopens_no_permanent_failure_and_no_cancelled_job(s: Subject) {
    let again = |n, key| NewJob { if_failed: IfFailed::Retry, ..keyed(n, key) };
    s.running(keyed(1, "permanent")).await;
    let job = s.done(id(1), fail(1, FailureClass::InvalidRequest)).await;
    assert!(matches!(job.state, coolant_core::job::JobState::Failed { reopen: Reopen::OnlyForced, .. }));
    s.submit(keyed(2, "cancelled")).await;
    s.done(id(2), Event::Cancel).await;
    s.advance(10_000);
    for key in ["permanent", "cancelled"] {
        assert_eq!(s.submit(again(3, key)).await.outcome, SubmitOutcome::Existing);
    }
    assert!(s.claim(10).await.is_empty());
}

pub(super) async fn a_start_may_lie_ahead(s: Subject) {
    let at = s.now().plus(secs(10));
    let starts = [Start::At(at), Start::After(secs(10)), Start::At(s.now()), Start::Now];
    let jobs = (1..).zip(starts).map(|(n, start)| NewJob { start, ..job(n) });
    let answers = s.submit_all(jobs.collect()).await;
    let visible: Vec<_> = answers.iter().map(|answer| answer.record.job.visible_at().unwrap()).collect();
    assert_eq!(visible, [at, at, s.now(), s.now()]);
    assert!(answers.iter().all(|answer| answer.record.job.counters == Counters::default()));
}
