//! The sweep: what time ends, with nobody asking for jobs.

use coolant_core::failure::FailureClass;
use coolant_core::job::{JobState, Status};
use coolant_core::lifecycle::Event;
use coolant_core::store::NewJob;

use super::Subject;
use super::kit::*;

async fn code(s: &Subject, n: u32) -> String {
    s.record(id(n)).await.job.last_error.map_or_else(String::new, |failure| failure.code)
}

pub(super) async fn the_sweep_ends_what_time_has_ended(s: Subject) {
    let end = s.now().plus(secs(40));
    s.submit(job_with(1, |spec| spec.expires_at = Some(end))).await;
    s.done(id(1), Event::Cancel).await;
    s.done(id(1), Event::Reopen { force: false }).await;
    s.claim_one().await;
    s.done(id(1), release(1)).await;
    let expiring = |n| job_with(n, |spec| spec.expires_at = Some(end));
    let never_starts = NewJob { start: coolant_core::store::Start::After(secs(1000)), ..expiring(2) };
    s.running(job_with(3, |spec| spec.policy.max_attempts = 1)).await;
    s.running(job_with(4, |spec| spec.policy.timeout = secs(40))).await;
    s.running(job(5)).await;
    s.done(id(5), Event::Cancel).await;
    s.running(job_with(6, |spec| spec.policy.max_wait = secs(40))).await;
    let told = failure(FailureClass::Overloaded).with_upstream(Some("openai/gpt".into()));
    let told = told.with_retry_after(Some(secs(1000)));
    s.done(id(6), Event::Fail { token: token(1), failure: told, jitter: 0.0, usage: Vec::new() }).await;
    s.submit(never_starts).await;
    // Job 1 was claimed on the way as well; it has to be pending to expire.
    if s.record(id(1)).await.job.status() == Status::Running {
        s.done(id(1), release(2)).await;
    }
    s.advance(29);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.advance(11);
    assert_eq!(s.store.sweep(100).await.unwrap(), 6);
    assert_eq!(code(&s, 1).await, "EXPIRED");
    assert_eq!(code(&s, 2).await, "EXPIRED");
    assert_eq!(code(&s, 3).await, "WORKER_LOST");
    assert_eq!(code(&s, 4).await, "TIMED_OUT");
    assert!(matches!(s.record(id(4)).await.job.state, JobState::Pending { .. }), "a timeout is retried");
    assert_eq!(s.record(id(5)).await.job.status(), Status::Cancelled);
    assert_eq!(code(&s, 6).await, "LLM_OVERLOADED");
    for n in [1, 2, 3, 6] {
        assert_eq!(s.record(id(n)).await.job.status(), Status::Failed);
    }
    assert_eq!(s.store.sweep(100).await.unwrap(), 0, "once is enough");
    assert!(s.store.attempts(id(4)).await.unwrap()[0].ended_at.is_some());
}

pub(super) async fn the_sweep_leaves_alone_what_may_still_run(s: Subject) {
    s.running(job(1)).await;
    s.submit(job(2)).await;
    s.running(job(3)).await;
    s.done(id(3), succeed(1)).await;
    let before = s.store.jobs(&[id(1), id(2), id(3)]).await.unwrap();
    s.advance(300);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    assert_eq!(s.store.jobs(&[id(1), id(2), id(3)]).await.unwrap(), before);
    // A lost job with attempts left is still its worker's, should it come back.
    s.done(id(1), succeed(1)).await;
}

pub(super) async fn the_sweep_keeps_to_its_limit(s: Subject) {
    let end = s.now().plus(secs(1));
    s.submit_all((1..=10).map(|n| job_with(n, |spec| spec.expires_at = Some(end))).collect()).await;
    s.advance(1);
    assert_eq!(s.store.sweep(4).await.unwrap(), 4);
    assert_eq!(s.store.sweep(4).await.unwrap(), 4);
    assert_eq!(s.store.sweep(4).await.unwrap(), 2);
    assert_eq!(s.store.sweep(4).await.unwrap(), 0);
}
