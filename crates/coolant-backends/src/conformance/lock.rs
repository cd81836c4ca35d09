//! Lock keys: jobs that share one run one at a time and share the cooldown.

use std::sync::Arc;

use coolant_core::failure::FailureClass;
use coolant_core::job::JobId;
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::store::NewJob;
use futures::future::join_all;

use super::Subject;
use super::kit::*;

async fn claimed(s: &Subject) -> Vec<JobId> {
    claimed_ids(&s.claim(10).await)
}

fn one_attempt(mut job: NewJob) -> NewJob {
    Arc::make_mut(&mut job.spec).policy.max_attempts = 1;
    job
}

pub(super) async fn one_job_of_a_lock_key_runs_at_a_time(s: Subject) {
    s.submit_all(vec![locked(1, "L"), locked(2, "L"), locked(3, "M"), job(4)]).await;
    assert_eq!(claimed(&s).await, [1, 3, 4].map(id), "also within one call");
    assert!(claimed(&s).await.is_empty());
    s.done(id(1), succeed(1)).await;
    assert_eq!(claimed(&s).await, [id(2)]);
    // A lost worker frees it as well: whose turn it is goes by the instant.
    s.submit(locked(5, "L")).await;
    s.advance(30);
    assert!(claimed(&s).await.starts_with(&[id(5)]));
    assert!(!claimed(&s).await.contains(&id(2)));
}

pub(super) async fn simultaneous_claims_give_out_a_lock_key_once(s: Subject) {
    s.submit_all((1..=20).map(|n| locked(n, "L")).collect()).await;
    let claims = (0..20).map(|n| if n % 2 == 0 { &s.store } else { &s.twin }.claim(request(3)));
    let claimed: Vec<_> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(claimed.len() <= 1, "{:?} run at once", claimed_ids(&claimed));
    assert_eq!(claimed.len() + s.claim(10).await.len(), 1);
}

pub(super) async fn a_lock_key_shares_the_cooldown(s: Subject) {
    s.submit(locked(1, "L")).await;
    assert_eq!(claimed(&s).await, [id(1)]);
    s.submit(locked(2, "L")).await;
    s.done(id(1), fail(1, NETWORK)).await;
    s.advance(4);
    assert!(claimed(&s).await.is_empty(), "one that cools holds the others");
    s.advance(1);
    assert_eq!(claimed(&s).await, [id(2)], "older by its instant");
    s.done(id(2), succeed(1)).await;
    s.done(id(1), Event::Cancel).await;

    // After the last failure of a retryable class: the whole cooldown.
    s.submit_all(vec![one_attempt(locked(3, "M")), locked(4, "M")]).await;
    assert_eq!(claimed(&s).await, [id(3)]);
    s.done(id(3), fail(1, NETWORK)).await;
    s.advance(299);
    assert!(claimed(&s).await.is_empty());
    s.advance(1);
    assert_eq!(claimed(&s).await, [id(4)]);
}

pub(super) async fn what_frees_a_lock_key_frees_it_at_once(s: Subject) {
    let ends = [
        ("success", succeed(1)),
        ("permanent", fail(1, FailureClass::InvalidRequest)),
        ("release", release(1)),
        ("deferral", defer(1, 60)),
    ];
    for (n, (key, end)) in (1..).step_by(2).zip(ends) {
        s.submit_all(vec![locked(n, key), locked(n + 1, key)]).await;
        assert_eq!(claimed(&s).await, [id(n)]);
        s.done(id(n), end).await;
        let next = claimed(&s).await;
        // A released job is claimable again, by an instant that is not older than the other's.
        assert!(next == [id(n + 1)] || next == [id(n)] && key == "release", "{key}: {next:?}");
        for id in [id(n), id(n + 1)] {
            let _ = s.apply(id, Event::Cancel).await;
            let _ = s.apply(id, renew(1)).await;
            let _ = s.apply(id, renew(2)).await;
        }
    }
    s.submit_all(vec![locked(20, "cancel"), locked(21, "cancel")]).await;
    assert_eq!(claimed(&s).await, [id(20)]);
    s.done(id(20), Event::Cancel).await;
    assert!(claimed(&s).await.is_empty(), "its worker has not stopped yet");
    assert_eq!(s.apply(id(20), renew(1)).await.unwrap().answer, Answer::Cancelled);
    assert_eq!(claimed(&s).await, [id(21)]);
    // WORKER_LOST.
    s.submit(one_attempt(locked(30, "lost"))).await;
    assert_eq!(claimed(&s).await, [id(30)]);
    s.advance(30);
    s.store.sweep(100).await.unwrap();
    s.submit(locked(31, "lost")).await;
    assert!(claimed(&s).await.contains(&id(31)));
}

pub(super) async fn tenants_share_no_lock_keys(s: Subject) {
    let mut other = locked(2, "L");
    Arc::make_mut(&mut other.spec).tenant = tenant("other");
    s.submit_all(vec![locked(1, "L"), other]).await;
    assert_eq!(claimed(&s).await, [id(1), id(2)]);
}

pub(super) async fn a_late_beat_does_not_bring_a_taken_lock_key_back(s: Subject) {
    s.running(locked(1, "L")).await;
    s.advance(31);
    // Nobody took it: a late beat is as good as one in time.
    assert!(matches!(s.apply(id(1), renew(1)).await.unwrap().answer, Answer::Held { .. }));
    s.submit(job_with(2, |spec| {
        spec.lock_key = locked(1, "L").spec.lock_key.clone();
        spec.priority = 1;
    }))
    .await;
    s.advance(30);
    assert_eq!(claimed(&s).await, [id(2)]);
    s.refused(id(1), renew(1), &Refusal::LeaseLost).await;
    assert!(matches!(s.apply(id(2), renew(1)).await.unwrap().answer, Answer::Held { .. }));
    // What is paid for is kept all the same.
    s.apply(id(1), step(1, "a", 1.into())).await.unwrap();
    s.done(id(1), succeed(1)).await;
}

pub(super) async fn of_late_beats_in_one_call_one_gets_the_lock_key(s: Subject) {
    s.submit_all(vec![locked(1, "L"), locked(2, "L")]).await;
    assert_eq!(claimed(&s).await, [id(1)]);
    s.advance(30);
    assert_eq!(claimed(&s).await, [id(2)]);
    s.advance(30);
    // Both leases ran out, as when the store was away; both beats come back in one call.
    let beats = [id(2), id(1)].map(|id| coolant_core::store::JobChange::new(id, renew(1)));
    let answers = s.apply_all(beats.to_vec()).await;
    assert!(matches!(answers[0].as_ref().unwrap().answer, Answer::Held { .. }));
    assert_eq!(answers[1], Err(Refusal::LeaseLost));
}

pub(super) async fn live_lock_keys_are_those_of_pending_and_running_jobs(s: Subject) {
    s.submit_all(vec![locked(1, "done"), locked(2, "running")]).await;
    assert_eq!(claimed(&s).await, [id(1), id(2)]);
    s.done(id(1), succeed(1)).await;
    let mut foreign = locked(3, "foreign");
    Arc::make_mut(&mut foreign.spec).tenant = tenant("other");
    s.submit_all(vec![locked(4, "pending"), locked(5, "pending"), foreign, locked(6, "not asked for")]).await;
    let keys = ["done", "running", "pending", "foreign", "unknown", "it's \"odd\""];
    let asked: Vec<_> = keys.iter().map(|key| (tenant("default"), (*key).to_owned())).collect();
    let mut live = s.store.live_lock_keys(&asked).await.unwrap();
    live.sort();
    let expected = ["pending", "running"].map(|key| (tenant("default"), key.to_owned()));
    assert_eq!(live, expected);
    assert!(s.store.live_lock_keys(&[]).await.unwrap().is_empty());
}
