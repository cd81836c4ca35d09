//! Claims: who gets which job, and when.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::job::{JobState, Outcome, Status};
use coolant_core::names::JobType;
use coolant_core::store::{ClaimRequest, NewJob, Start};
use futures::future::join_all;
use serde_json::json;

use super::Subject;
use super::kit::*;

pub(super) async fn of_one_tenant_the_lower_rank_goes_first_then_the_smaller_id(s: Subject) {
    let after = |n, priority, seconds| NewJob {
        start: Start::After(secs(seconds)),
        ..job_with(n, |spec| spec.priority = priority)
    };
    let jobs =
        [after(1, 0, 3), after(2, -10, 0), after(3, 0, 2), after(5, 10, 5), after(4, 0, 2), after(6, 10, 4)];
    s.submit_all(jobs.to_vec()).await;
    s.advance(10);
    let order: Vec<_> =
        claimed_ids(&s.claim(4).await).into_iter().chain(claimed_ids(&s.claim(4).await)).collect();
    assert_eq!(order, [6, 5, 3, 4, 1, 2].map(id));
}

pub(super) async fn a_claim_gives_what_was_asked_for_and_no_more(s: Subject) {
    let of = |n, queue_name: &str, job_type: &str| {
        job_with(n, |spec| {
            spec.queue = queue(queue_name);
            spec.job_type = JobType::parse(job_type).unwrap();
        })
    };
    s.submit_all(vec![of(1, "q", "A"), of(2, "r", "A"), of(3, "q", "B"), of(4, "t", "C"), of(5, "q", "A")])
        .await;
    let ask = |queues: &[&str], types: &[&str], max| ClaimRequest {
        queues: queues.iter().map(|name| queue(name)).collect(),
        job_types: types.iter().map(|name| JobType::parse(*name).unwrap()).collect(),
        ..request(max)
    };
    assert!(s.claim_with(ask(&["other"], &[], 10)).await.is_empty());
    assert!(s.claim_with(ask(&["q"], &["C"], 10)).await.is_empty());
    assert_eq!(claimed_ids(&s.claim_with(ask(&["q"], &["A"], 1)).await), [id(1)]);
    assert_eq!(claimed_ids(&s.claim_with(ask(&["r", "t"], &[], 10)).await), [id(2), id(4)]);
    assert_eq!(claimed_ids(&s.claim_with(ask(&["q", "r"], &["A", "B"], 10)).await), [id(3), id(5)]);
}

pub(super) async fn an_asker_without_queues_gets_nothing(s: Subject) {
    s.submit(job(1)).await;
    assert!(s.claim_with(ClaimRequest { queues: Vec::new(), ..request(10) }).await.is_empty());
}

pub(super) async fn nothing_is_claimed_before_its_instant(s: Subject) {
    s.submit(NewJob { start: Start::After(Duration::from_millis(1500)), ..job(1) }).await;
    s.clock.advance(Duration::from_millis(1499));
    assert!(s.claim(1).await.is_empty());
    s.clock.advance(Duration::from_millis(1));
    let claimed = s.claim_one().await;
    assert_eq!(claimed.lease.started_at, s.now());
    // Nor while somebody has it, nor in the wait after a failure.
    s.advance(29);
    assert!(s.claim(1).await.is_empty());
    s.done(id(1), fail(1, NETWORK)).await;
    s.advance(4);
    assert!(s.claim(1).await.is_empty());
    s.advance(1);
    assert_eq!(s.claim_one().await.lease.token, token(2));
}

pub(super) async fn simultaneous_claims_share_no_job(s: Subject) {
    s.submit_all((1..=50).map(job).collect()).await;
    let claims = (0..20).map(|n| if n % 2 == 0 { &s.store } else { &s.twin }.claim(request(5)));
    let claimed: Vec<_> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
    let mut ids = claimed_ids(&claimed);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), claimed.len(), "no job was given out twice");
    // A claim may pass over what another one holds at that moment, but nothing is lost.
    let rest = claimed_ids(&s.claim(1000).await);
    assert_eq!(ids.len() + rest.len(), 50);
    assert!(claimed.iter().all(|claimed| claimed.lease.token == token(1)));
}

pub(super) async fn the_lease_is_the_claims_or_the_jobs(s: Subject) {
    s.submit_all(vec![job(1), job_with(2, |spec| spec.policy.lease = secs(7)), job(3)]).await;
    let own = s.claim(2).await;
    assert_eq!(own[0].lease.until, s.now().plus(secs(30)));
    assert_eq!((own[1].lease.until, own[1].lease.length), (s.now().plus(secs(7)), secs(7)));
    let asked = s.claim_with(ClaimRequest { lease: Some(secs(90)), ..request(1) }).await;
    let lease = &asked[0].lease;
    assert_eq!((lease.until, lease.deadline), (s.now().plus(secs(90)), s.now().plus(secs(900))));
    assert_eq!((lease.worker.as_str(), lease.token), ("worker", token(1)));
    let JobState::Running { lease: kept, cancel_requested: false } = s.record(id(3)).await.job.state else {
        panic!("the job runs")
    };
    assert_eq!(&kept, lease);
}

pub(super) async fn a_lease_that_ran_out_is_claimed_again_in_its_turn(s: Subject) {
    s.running(job(9)).await;
    s.submit(NewJob { start: Start::After(secs(29)), ..job(1) }).await;
    s.submit(NewJob { start: Start::After(secs(31)), ..job(2) }).await;
    s.advance(40);
    let claimed = s.claim(10).await;
    assert_eq!(claimed_ids(&claimed), [1, 9, 2].map(id), "its instant is the end of its lease");
    let job = &claimed[1].record.job;
    assert_eq!((claimed[1].lease.token, job.counters.lost, job.counters.tries), (token(2), 1, 2));
    let attempts = s.store.attempts(id(9)).await.unwrap();
    assert_eq!(
        attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(),
        [Some(Outcome::Lost), None]
    );
}

pub(super) async fn a_worker_killer_is_dead_lettered_by_the_claim(s: Subject) {
    s.submit(job_with(1, |spec| spec.policy.max_attempts = 100)).await;
    for n in 1..=3 {
        assert_eq!(s.claim_one().await.lease.token, token(n));
        s.advance(30);
    }
    assert!(s.claim(10).await.is_empty());
    let job = s.record(id(1)).await.job;
    assert_eq!((job.status(), job.counters.lost, job.counters.claims), (Status::Failed, 3, 3));
    assert_eq!(job.last_error.unwrap().code, "WORKER_LOST");
    assert!(s.claim(10).await.is_empty(), "there is no fourth claim");
}

pub(super) async fn a_claim_brings_the_record_and_the_finished_steps(s: Subject) {
    let new = NewJob { payload: json!({ "text": "가나다" }), ..job(1) };
    s.running(new.clone()).await;
    s.apply(id(1), step(1, "a", json!([1]))).await.unwrap();
    s.apply(id(1), step(1, "b", json!({ "x": null }))).await.unwrap();
    s.done(id(1), release(1)).await;
    let claimed = s.claim_one().await;
    assert_eq!(claimed.record, s.record(id(1)).await);
    assert_eq!((claimed.record.payload, claimed.record.job.spec), (new.payload, Arc::clone(&new.spec)));
    let steps: Vec<_> = claimed.steps.into_iter().collect();
    assert_eq!(steps, [("a".to_owned(), json!([1])), ("b".to_owned(), json!({ "x": null }))]);
}

pub(super) async fn what_was_asked_for_is_remembered(s: Subject) {
    let job_type = |name| JobType::parse(name).unwrap();
    let asked = async |queue_name, name| {
        s.store.last_claim_asked(&queue(queue_name), &job_type(name)).await.unwrap().is_some()
    };
    assert!(!asked("q", "A").await);
    let request = ClaimRequest { queues: vec![queue("q")], job_types: vec![job_type("A")], ..request(1) };
    s.claim_with(request.clone()).await;
    assert!(asked("q", "A").await);
    assert!(!asked("q", "B").await && !asked("r", "A").await);
    s.claim_with(ClaimRequest { queues: vec![queue("r")], job_types: Vec::new(), ..request }).await;
    assert!(asked("r", "B").await, "one that takes any type asks for each");
    let at = s.store.last_claim_asked(&queue("q"), &job_type("A")).await.unwrap().unwrap();
    assert!(s.now().since(at) <= secs(2) && at <= s.now());
}
