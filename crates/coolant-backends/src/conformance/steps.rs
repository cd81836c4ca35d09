//! Steps, the ledger and the history of attempts.

use coolant_core::job::Outcome;
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::UsageTotals;
use serde_json::json;

use super::Subject;
use super::kit::*;

pub(super) async fn a_step_is_kept_and_comes_back(s: Subject) {
    s.running(job(1)).await;
    let until = s.now().plus(secs(30));
    s.advance(1);
    let applied = s.apply(id(1), step(1, "둘", json!({ "x": [1, "é"] }))).await.unwrap();
    assert_eq!(applied.answer, Answer::Held { until }, "a step does not move the lease");
    s.advance(1);
    s.apply(id(1), step(1, "a", json!(null))).await.unwrap();
    let steps = s.store.steps(id(1)).await.unwrap();
    let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["둘", "a"], "oldest first");
    assert!(steps.iter().all(|step| step.output.is_none() && step.attempt == 1));
    assert_eq!(steps[1].finished_at, s.now());
    let one = s.store.step(id(1), "둘").await.unwrap().unwrap();
    assert_eq!(one.output, Some(json!({ "x": [1, "é"] })));
    assert_eq!((one.bytes, one.finished_at), (steps[0].bytes, steps[0].finished_at));
    assert_eq!(s.store.step(id(1), "a").await.unwrap().unwrap().output, Some(json!(null)));
    assert_eq!(s.store.step(id(1), "b").await.unwrap(), None);
    assert_eq!(s.store.step(id(9), "a").await.unwrap(), None);
    assert!(s.store.steps(id(9)).await.unwrap().is_empty());
}

pub(super) async fn a_step_needs_the_newest_token(s: Subject) {
    s.running(job(1)).await;
    s.apply(id(1), step(1, "a", json!("first"))).await.unwrap();
    s.advance(30);
    s.claim_one().await;
    s.refused(id(1), step(1, "a", json!("late")), &Refusal::LeaseLost).await;
    s.refused(id(1), step(1, "b", json!("late")), &Refusal::LeaseLost).await;
    assert_eq!(s.store.step(id(1), "a").await.unwrap().unwrap().output, Some(json!("first")));
    assert_eq!(s.store.step(id(1), "b").await.unwrap(), None);
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 1);
}

pub(super) async fn a_step_saved_twice_by_one_attempt_is_booked_once(s: Subject) {
    s.running(job(1)).await;
    let first = s.apply(id(1), step(1, "a", json!(1))).await.unwrap();
    s.advance(1);
    assert_eq!(s.apply(id(1), step(1, "a", json!(1))).await.unwrap(), first);
    let change = || coolant_core::store::JobChange::new(id(1), step(1, "b", json!(2)));
    s.apply_all(vec![change(), change()]).await;
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 2);
    assert_eq!(s.record(id(1)).await.job.usage.calls, 2);
}

pub(super) async fn a_later_attempt_may_replace_a_step(s: Subject) {
    s.running(job(1)).await;
    s.apply(id(1), step(1, "a", json!(1))).await.unwrap();
    s.done(id(1), release(1)).await;
    s.claim_one().await;
    s.apply(id(1), step(2, "a", json!(2))).await.unwrap();
    let kept = s.store.step(id(1), "a").await.unwrap().unwrap();
    assert_eq!((kept.output, kept.attempt), (Some(json!(2)), 2));
    assert_eq!(s.store.steps(id(1)).await.unwrap().len(), 1);
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 2, "both were paid");
}

pub(super) async fn steps_survive_a_reopening(s: Subject) {
    s.running(job_with(1, |spec| spec.policy.max_attempts = 1)).await;
    s.apply(id(1), step(1, "a", json!(1))).await.unwrap();
    s.done(id(1), fail(1, NETWORK)).await;
    s.done(id(1), Event::Reopen { force: true }).await;
    assert_eq!(s.claim_one().await.steps, [("a".to_owned(), json!(1))].into());
}

pub(super) async fn every_paid_call_has_a_ledger_row(s: Subject) {
    s.running(job(1)).await;
    let two = Event::SaveStep {
        token: token(1),
        name: "embed".into(),
        output: json!(0),
        usage: vec![paid(1), paid(2)],
    };
    s.apply(id(1), two).await.unwrap();
    s.advance(1);
    let unpriced = coolant_core::money::Usage { cost: None, upstream: None, model: None, ..paid(0) };
    let usage = vec![paid(4), unpriced.clone()];
    s.done(id(1), Event::Fail { token: token(1), failure: failure(NETWORK), jitter: 0.0, usage }).await;
    let ledger = s.store.ledger(id(1)).await.unwrap();
    let usages: Vec<_> = ledger.iter().map(|entry| entry.usage.clone()).collect();
    assert_eq!(usages, [paid(1), paid(2), paid(4), unpriced]);
    let steps: Vec<_> = ledger.iter().map(|entry| entry.step.as_deref()).collect();
    assert_eq!(steps, [Some("embed"), Some("embed"), None, None]);
    assert!(ledger.iter().all(|entry| (entry.job_id, entry.attempt) == (Some(id(1)), 1)));
    assert_eq!((ledger[0].tenant.as_str(), ledger[3].at), ("default", s.now()));
    let totals = UsageTotals {
        calls: 4,
        input_tokens: 40,
        output_tokens: 8,
        cost: coolant_core::money::Money::from_nanos(7),
        wasted: coolant_core::money::Money::from_nanos(4),
    };
    assert_eq!(s.record(id(1)).await.job.usage, totals);
    assert_eq!(s.store.attempts(id(1)).await.unwrap()[0].usage, totals);
    assert!(s.store.ledger(id(9)).await.unwrap().is_empty());
}

pub(super) async fn attempts_are_the_history_of_a_job(s: Subject) {
    s.running(job(1)).await;
    let started = s.now();
    s.advance(1);
    s.done(id(1), fail(1, NETWORK)).await;
    s.advance(5);
    s.claim_one().await;
    s.apply(id(1), step(2, "a", json!(1))).await.unwrap();
    s.done(id(1), release(2)).await;
    let worker = coolant_core::store::ClaimRequest { worker: "it's \"me\"".into(), ..request(1) };
    s.claim_with(worker).await;
    let attempts = s.store.attempts(id(1)).await.unwrap();
    let summary: Vec<_> = attempts.iter().map(|attempt| (attempt.number, attempt.outcome)).collect();
    assert_eq!(summary, [(1, Some(Outcome::Failed)), (2, Some(Outcome::Released)), (3, None)]);
    assert_eq!((attempts[0].started_at, attempts[0].ended_at), (started, Some(started.plus(secs(1)))));
    assert_eq!((attempts[1].usage.calls, attempts[0].usage.calls), (1, 0));
    assert_eq!((attempts[2].worker.as_str(), attempts[2].ended_at), ("it's \"me\"", None));
    assert!(s.store.attempts(id(9)).await.unwrap().is_empty());
}

pub(super) async fn a_step_begins_the_wait_of_a_job_anew(s: Subject) {
    s.running(job(1)).await;
    let job = s.done(id(1), defer(1, 60)).await;
    assert_eq!(job.deferred_since, Some(s.now()));
    s.advance(60);
    s.claim_one().await;
    s.apply(id(1), step(2, "a", json!(1))).await.unwrap();
    let job = s.done(id(1), defer(2, 60)).await;
    assert_eq!((job.deferred_since, job.counters.deferrals), (Some(s.now()), 2), "it has moved on since");
}
