//! Changes: each decided by the lifecycle, made whole or not at all.

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobState, Outcome, Progress, Reopen, Status, Wait};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::store::{AuditEntry, JobChange, NewJob};
use futures::future::join_all;
use serde_json::json;

use super::Subject;
use super::kit::*;

fn once(n: u32) -> NewJob {
    job_with(n, |spec| spec.policy.max_attempts = 1)
}

pub(super) async fn a_beat_moves_the_lease_and_carries_the_progress(s: Subject) {
    s.running(job(1)).await;
    s.advance(20);
    let progress = Progress { done: 3, total: Some(9), unit: Some("쪽".into()), message: None };
    let beat = Event::Renew { token: token(1), progress: Some(progress.clone()) };
    let applied = s.apply(id(1), beat).await.unwrap();
    assert_eq!(applied.answer, Answer::Held { until: s.now().plus(secs(30)) });
    assert_eq!((applied.job.progress.as_ref(), applied.job.version), (Some(&progress), 3));
    s.advance(29);
    assert!(s.claim(1).await.is_empty());
    // A beat without news keeps the last; a late one is as good.
    s.advance(100);
    s.apply(id(1), renew(1)).await.unwrap();
    assert_eq!(s.record(id(1)).await.job.progress, Some(progress));
}

pub(super) async fn every_change_is_answered_in_its_place(s: Subject) {
    s.running(job(1)).await;
    s.running(job(2)).await;
    let answers = s
        .apply_all(vec![
            JobChange::new(id(1), renew(9)),
            JobChange::new(id(99), Event::Cancel),
            JobChange::new(id(2), succeed(1)),
            JobChange::new(id(1), succeed(1)),
        ])
        .await;
    assert_eq!(answers[0], Err(Refusal::LeaseLost));
    assert_eq!(answers[1], Err(Refusal::NotFound));
    assert_eq!(answers[2].as_ref().unwrap().job.id, id(2));
    assert_eq!(answers[3].as_ref().unwrap().job, s.record(id(1)).await.job);
    assert!(s.apply_all(Vec::new()).await.is_empty());
}

pub(super) async fn changes_of_one_job_are_made_in_the_order_given(s: Subject) {
    s.running(job(1)).await;
    let change = |event| JobChange::new(id(1), event);
    let answers = s
        .apply_all(vec![
            change(step(1, "a", json!(1))),
            change(step(1, "b", json!(2))),
            change(renew(1)),
            change(succeed(1)),
            change(succeed(1)),
            change(renew(1)),
        ])
        .await;
    let versions: Vec<_> = answers.iter().map(|answer| answer.as_ref().map(|a| a.job.version)).collect();
    let lost = Refusal::LeaseLost;
    assert_eq!(versions, [Ok(3), Ok(4), Ok(5), Ok(6), Ok(6), Err(&lost)]);
    assert_eq!(answers[4].as_ref().unwrap().answer, Answer::Already);
    assert_eq!(s.store.steps(id(1)).await.unwrap().len(), 2);
    assert_eq!(s.record(id(1)).await.job.version, 6);
}

pub(super) async fn a_stale_token_is_refused_and_changes_nothing(s: Subject) {
    s.running(job(1)).await;
    s.advance(30);
    assert_eq!(s.claim_one().await.lease.token, token(2));
    for event in [
        renew(1),
        step(1, "a", json!(1)),
        succeed(1),
        fail(1, NETWORK),
        defer(1, 5),
        release(1),
        renew(3),
        succeed(0),
    ] {
        s.refused(id(1), event, &Refusal::LeaseLost).await;
    }
    assert!(s.store.steps(id(1)).await.unwrap().is_empty());
    assert!(s.store.ledger(id(1)).await.unwrap().is_empty());
    s.done(id(1), succeed(2)).await;
    assert_eq!(s.record(id(1)).await.result, Some(json!({ "by": 2 })));
    let outcomes: Vec<_> =
        s.store.attempts(id(1)).await.unwrap().into_iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Lost), Some(Outcome::Succeeded)]);
}

pub(super) async fn a_repeated_settle_is_answered_alike_and_booked_once(s: Subject) {
    let usage = || vec![paid(7)];
    let ends = [
        Event::Succeed { token: token(1), result: json!(1), usage: usage() },
        Event::Fail { token: token(1), failure: failure(NETWORK), jitter: 0.5, usage: usage() },
        Event::Defer { token: token(1), wait: secs(60), reason: "closed".into(), usage: usage() },
        release(1),
    ];
    for (n, end) in (1..).zip(ends) {
        s.running(job(n)).await;
        let first = s.done(id(n), end.clone()).await;
        s.advance(1);
        let again = s.apply(id(n), end.clone()).await.unwrap();
        assert_eq!((again.answer, again.job), (Answer::Already, first));
        let booked = usize::from(!matches!(end, Event::Release { .. }));
        assert_eq!(s.store.ledger(id(n)).await.unwrap().len(), booked);
        let _ = s.apply(id(n), Event::Cancel).await;
    }
}

pub(super) async fn of_simultaneous_settles_one_is_done(s: Subject) {
    s.running(job(1)).await;
    let settles = (0..20).map(|n| {
        let store = if n % 2 == 0 { &s.store } else { &s.twin };
        let event = if n % 4 < 2 { succeed(1) } else { fail(1, NETWORK) };
        store.apply(vec![JobChange::new(id(1), event)])
    });
    let answers: Vec<_> = join_all(settles).await.into_iter().flat_map(Result::unwrap).collect();
    let done = answers.iter().flatten().filter(|applied| applied.answer == Answer::Done).count();
    assert_eq!(done, 1);
    let refused = answers.iter().filter(|answer| matches!(answer, Err(Refusal::LeaseLost))).count();
    assert_eq!(refused, 10, "the other end is no repetition of this one");
    assert_eq!(s.record(id(1)).await.job.version, 3);
}

pub(super) async fn a_success_is_final_and_keeps_its_result(s: Subject) {
    s.running(job(1)).await;
    s.advance(2);
    let job = s.done(id(1), succeed(1)).await;
    assert_eq!((job.state, job.finished_at), (JobState::Succeeded { at: s.now() }, Some(s.now())));
    s.refused(id(1), Event::Cancel, &Refusal::Ended).await;
    s.refused(id(1), reopen(), &Refusal::Succeeded).await;
    s.refused(id(1), Event::Reopen { force: true }, &Refusal::Succeeded).await;
    s.advance(100_000);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    assert!(s.claim(1).await.is_empty());
    assert_eq!(s.record(id(1)).await.result, Some(json!({ "by": 1 })));
    // JSON null is a result as well.
    s.running(super::kit::job(2)).await;
    s.done(id(2), Event::Succeed { token: token(1), result: json!(null), usage: Vec::new() }).await;
    assert_eq!(s.record(id(2)).await.result, Some(json!(null)));
}

pub(super) async fn a_late_success_raises_a_buried_job(s: Subject) {
    s.running(once(1)).await;
    s.advance(30);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.record(id(1)).await.job.status(), Status::Failed);
    s.done(id(1), succeed(1)).await;
    let record = s.record(id(1)).await;
    assert_eq!((record.job.status(), record.result), (Status::Succeeded, Some(json!({ "by": 1 }))));
    let attempts = s.store.attempts(id(1)).await.unwrap();
    assert_eq!((attempts[0].outcome, &attempts[0].error), (Some(Outcome::Succeeded), &None));
    assert_eq!(s.stats().await.dlq_message_count, 0);
}

pub(super) async fn a_failure_is_kept_with_its_wait(s: Subject) {
    s.running(job(1)).await;
    let failure = Failure {
        final_: false,
        ..failure(FailureClass::Overloaded).with_retry_after(Some(std::time::Duration::from_millis(61_001)))
    };
    let event = Event::Fail { token: token(1), failure: failure.clone(), jitter: 0.5, usage: Vec::new() };
    let job = s.done(id(1), event).await;
    assert_eq!(job, s.record(id(1)).await.job);
    assert_eq!(job.last_error, Some(failure.clone()));
    assert!(job.visible_at().unwrap() >= s.now().plus(std::time::Duration::from_millis(67_101)));
    assert!(matches!(job.state, JobState::Pending { wait: Wait::Cooling, .. }));
    let attempt = s.store.attempts(id(1)).await.unwrap().remove(0);
    assert_eq!((attempt.outcome, attempt.error), (Some(Outcome::Failed), Some(failure)));
    s.running(once(2)).await;
    s.done(id(2), fail(1, NETWORK)).await;
    let reopen = Reopen::From(s.now().plus(secs(300)));
    assert_eq!(s.record(id(2)).await.job.state, JobState::Failed { at: s.now(), reopen });
}

pub(super) async fn a_deferral_and_a_release_use_up_no_attempt(s: Subject) {
    s.running(once(1)).await;
    let job = s.done(id(1), defer(1, 60)).await;
    let wait = Wait::Deferred { reason: "closed".into() };
    assert_eq!(job.state, JobState::Pending { visible_at: s.now().plus(secs(60)), wait });
    assert_eq!((job.deferred_since, job.counters.deferrals), (Some(s.now()), 1));
    s.advance(60);
    assert_eq!(s.claim_one().await.lease.token, token(2));
    let job = s.done(id(1), release(2)).await;
    assert_eq!((job.counters.tries, job.counters.executions, job.counters.releases), (0, 0, 1));
    assert_eq!(job, s.record(id(1)).await.job);
    assert_eq!(s.claim_one().await.lease.token, token(3), "claimable at once");
}

pub(super) async fn a_cancel_ends_a_pending_job_and_tells_the_worker_of_a_running_one(s: Subject) {
    s.submit(job(1)).await;
    s.done(id(1), Event::Cancel).await;
    assert_eq!(s.apply(id(1), Event::Cancel).await.unwrap().answer, Answer::Already);
    assert!(s.claim(1).await.is_empty());
    s.running(job(2)).await;
    let job = s.done(id(2), Event::Cancel).await;
    assert!(matches!(job.state, JobState::Running { cancel_requested: true, .. }));
    assert_eq!(s.record(id(2)).await.job, job);
    let applied = s.apply(id(2), renew(1)).await.unwrap();
    assert_eq!((applied.answer, applied.job.status()), (Answer::Cancelled, Status::Cancelled));
    s.refused(id(2), succeed(1), &Refusal::LeaseLostByCancel).await;
    assert_eq!(s.store.attempts(id(2)).await.unwrap()[0].outcome, Some(Outcome::Cancelled));
    s.done(id(2), reopen()).await;
    assert_eq!(s.claim_one().await.lease.token, token(2));
}

pub(super) async fn a_success_after_a_cancel_keeps_its_cost(s: Subject) {
    s.running(job(1)).await;
    s.done(id(1), Event::Cancel).await;
    let success = Event::Succeed { token: token(1), result: json!(1), usage: vec![paid(7)] };
    assert_eq!(s.apply(id(1), success).await.unwrap().answer, Answer::Cancelled);
    let record = s.record(id(1)).await;
    assert_eq!((record.job.status(), record.result), (Status::Cancelled, None));
    assert_eq!((record.job.usage.cost.as_nanos(), record.job.usage.wasted.as_nanos()), (7, 7));
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 1);
}

pub(super) async fn a_dead_letter_is_reopened_or_discarded(s: Subject) {
    s.running(once(1)).await;
    s.done(id(1), fail(1, NETWORK)).await;
    let until = s.now().plus(secs(300));
    s.refused(id(1), reopen(), &Refusal::CoolingDown { until }).await;
    s.advance(300);
    let job = s.done(id(1), reopen()).await;
    assert_eq!((job.counters.tries, job.counters.claims, job.finished_at), (0, 1, None));
    assert_eq!(s.claim_one().await.lease.token, token(2));
    s.done(id(1), fail(2, FailureClass::ContentFiltered)).await;
    s.refused(id(1), reopen(), &Refusal::Permanent).await;
    let job = s.done(id(1), Event::Discard).await;
    assert!(matches!(job.state, JobState::Failed { reopen: Reopen::Discarded, .. }));
    assert_eq!(s.record(id(1)).await.job, job);
    s.refused(id(1), Event::Reopen { force: true }, &Refusal::Permanent).await;
}

pub(super) async fn the_audit_is_written_with_the_change_or_not_at_all(s: Subject) {
    let audited = |event, reason: &str| JobChange {
        audit: Some(AuditEntry {
            at: coolant_core::time::Timestamp::from_millis(5),
            actor: "ops".into(),
            action: "job.retry.forced".into(),
            target: id(1).to_string(),
            reason: reason.into(),
        }),
        ..JobChange::new(id(1), event)
    };
    s.running(once(1)).await;
    s.done(id(1), fail(1, NETWORK)).await;
    s.advance(1);
    let answers = s
        .apply_all(vec![
            audited(reopen(), "refused"),
            audited(Event::Reopen { force: true }, "it's urgent"),
            audited(Event::Cancel, "cancelled"),
            audited(Event::Cancel, "was so already"),
        ])
        .await;
    assert_eq!(answers[3].as_ref().unwrap().answer, Answer::Already);
    let audit = s.store.audit(10).await.unwrap();
    let reasons: Vec<_> = audit.iter().map(|entry| entry.reason.as_str()).collect();
    assert_eq!(reasons, ["cancelled", "it's urgent"]);
    assert_eq!((audit[1].at, audit[1].actor.as_str()), (s.now(), "ops"), "the store sets the time");
    assert_eq!((audit[1].action.as_str(), &audit[1].target), ("job.retry.forced", &id(1).to_string()));
}
