//! The metrics and the counters behind them.

use std::sync::Arc;

use coolant_core::failure::FailureClass;
use coolant_core::lifecycle::Event;
use coolant_core::store::Counter;
use serde_json::json;

use super::Subject;
use super::kit::*;

/// A success after 2 s, a dead letter after 10 s, a retry, two waiting jobs, one of them in another queue.
async fn some_history(s: &Subject) {
    s.submit_all(vec![keyed(1, "k"), job(2), job(3)]).await;
    assert_eq!(s.claim(3).await.len(), 3);
    s.apply(id(1), step(1, "a", json!(1))).await.unwrap();
    s.advance(2);
    s.done(id(1), succeed(1)).await;
    s.done(id(3), fail(1, NETWORK)).await;
    s.advance(8);
    let usage = vec![paid(70)];
    let failure = failure(FailureClass::InvalidRequest);
    s.done(id(2), Event::Fail { token: token(1), failure, jitter: 0.0, usage }).await;
    assert_eq!(s.claim_one().await.lease.token, token(2));
    s.submit(keyed(4, "k")).await;
    let mut elsewhere = job(5);
    Arc::make_mut(&mut elsewhere.spec).queue = queue("other");
    s.submit_all(vec![job(6), elsewhere]).await;
}

pub(super) async fn the_metrics_count_what_happened(s: Subject) {
    some_history(&s).await;
    let stats = s.stats().await;
    assert_eq!((stats.queue_depth, stats.dlq_message_count), (2, 1));
    assert_eq!((stats.retry_count, stats.duplicate_request_count), (1, 1));
    assert_eq!(stats.job_failure_rate, 0.5);
    assert_eq!(stats.job_duration_p95, Some(secs(10)));
    assert_eq!((stats.paid_calls, stats.spent.as_nanos(), stats.wasted.as_nanos()), (2, 75, 70));
    s.done(id(2), Event::Discard).await;
    s.done(id(6), Event::Cancel).await;
    let stats = s.stats().await;
    assert_eq!((stats.dlq_message_count, stats.queue_depth), (0, 1));
    assert_eq!(stats.job_failure_rate, 1.0 / 3.0, "a cancelled job ended, too");
    s.submit(job(7)).await;
    assert_eq!(s.claim_one().await.lease.token, token(1));
    s.done(id(7), Event::Release { token: token(1) }).await;
    assert_eq!(s.claim_one().await.lease.token, token(2));
    assert_eq!(s.stats().await.retry_count, 1, "what was given back was not tried");
}

pub(super) async fn the_metrics_of_a_queue_are_its_own(s: Subject) {
    some_history(&s).await;
    let of = async |name| s.store.stats(Some(&queue(name)), secs(3600)).await.unwrap();
    let (default, other) = (of("default").await, of("other").await);
    assert_eq!((default.queue_depth, default.paid_calls, default.duplicate_request_count), (1, 2, 1));
    assert_eq!((other.queue_depth, other.paid_calls, other.dlq_message_count), (1, 0, 0));
    assert_eq!((other.job_duration_p95, other.job_failure_rate), (None, 0.0));
    assert_eq!(of("nowhere").await, coolant_core::store::Stats::default());
}

pub(super) async fn the_metrics_forget_what_is_older_than_the_window(s: Subject) {
    some_history(&s).await;
    s.advance(4000);
    let stats = s.stats().await;
    assert_eq!((stats.queue_depth, stats.dlq_message_count), (2, 1), "what is there is there");
    assert_eq!((stats.retry_count, stats.duplicate_request_count, stats.paid_calls), (0, 0, 0));
    assert_eq!((stats.job_duration_p95, stats.job_failure_rate), (None, 0.0));
    assert_eq!((stats.spent.as_nanos(), stats.wasted.as_nanos()), (0, 0));
}

pub(super) async fn counters_add_up(s: Subject) {
    let q = || queue("default");
    s.store.count(vec![(Counter::BlockedStarts, q(), 2), (Counter::SavedByKeys, q(), 1_000)]).await.unwrap();
    s.twin
        .count(vec![(Counter::BlockedStarts, q(), 3), (Counter::BlockedStarts, queue("other"), 7)])
        .await
        .unwrap();
    let saved = [(Counter::SavedBySteps, 20), (Counter::SavedByContent, 3), (Counter::SavedByCooldowns, 7)];
    s.store.count(saved.map(|(counter, nanos)| (counter, q(), nanos)).to_vec()).await.unwrap();
    s.store.count(vec![(Counter::Duplicates, q(), 1), (Counter::Duplicates, q(), 1)]).await.unwrap();
    s.store.count(Vec::new()).await.unwrap();
    let all = s.stats().await;
    assert_eq!(
        (all.blocked_calls, all.saved.total().as_nanos(), all.duplicate_request_count),
        (12, 1_023, 2)
    );
    assert_eq!((all.saved.by_keys.as_nanos(), all.saved.by_steps.as_nanos()), (1_000, 20));
    assert_eq!((all.saved.by_content.as_nanos(), all.saved.by_cooldowns.as_nanos()), (3, 7));
    let own = s.store.stats(Some(&q()), secs(3600)).await.unwrap();
    assert_eq!(own.blocked_calls, 5);
}
