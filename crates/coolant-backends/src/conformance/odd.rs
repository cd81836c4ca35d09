//! Odd texts, great sizes, numbers at their bounds.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{Policy, Progress, Status};
use coolant_core::lifecycle::{Answer, Event};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{ClaimRequest, JobChange, JobFilter, NewJob, SubmitOutcome};
use coolant_core::time::Timestamp;
use serde_json::{Value, json};

use super::Subject;
use super::kit::*;

const ODD: [&str; 8] = [
    "it's",
    "\"quoted\"",
    "'; DROP TABLE jobs; --",
    "$1 ? :name %s {0}",
    "\\ \\\\ \\n \\u0041",
    "한국어 日本語 العربية",
    "👩‍👩‍👧‍👦 e\u{301} \u{feff}\u{200b}\u{202e}",
    "%_*[]^",
];

pub(super) async fn odd_text_comes_back_as_it_was(s: Subject) {
    for (n, text) in (1..).zip(ODD) {
        let mut new = job(n);
        new.payload = json!({ text: [text, "line\nbreak\ttab\r"] });
        let spec = Arc::make_mut(&mut new.spec);
        spec.job_type = JobType::parse(text).unwrap();
        spec.queue = Queue::parse(text).unwrap();
        spec.tenant = Tenant::parse(text).unwrap();
        spec.idempotency_key = Some(IdempotencyKey::parse(text).unwrap());
        spec.lock_key = Some(LockKey::parse(text).unwrap());
        spec.upstreams = vec![Upstream::parse(text).unwrap(), Upstream::parse("a,b").unwrap()];
        spec.tags = [(text.to_owned(), text.to_owned()), (String::new(), String::new())].into();
        s.submit(new.clone()).await;
        let asked = ClaimRequest {
            worker: text.into(),
            queues: vec![Queue::parse(text).unwrap()],
            job_types: vec![JobType::parse(text).unwrap()],
            ..request(9)
        };
        let claimed = s.claim_with(asked).await;
        assert_eq!(claimed_ids(&claimed), [id(n)]);
        assert_eq!((&claimed[0].record.payload, &claimed[0].record.job.spec), (&new.payload, &new.spec));
        assert_eq!(claimed[0].lease.worker, text);
        let found = JobFilter {
            tag: Some((text.into(), text.into())),
            idempotency_key: Some(text.into()),
            queue: Some(text.into()),
            ..JobFilter::default()
        };
        assert_eq!(s.list(found).await, [id(n)]);
        comes_back_through_an_attempt(&s, n, text).await;
    }
}

async fn comes_back_through_an_attempt(s: &Subject, n: u32, text: &str) {
    let progress = Progress { done: 1, total: None, unit: Some(text.into()), message: Some(text.into()) };
    s.apply(id(n), Event::Renew { token: token(1), progress: Some(progress.clone()) }).await.unwrap();
    s.apply(id(n), step(1, text, json!({ text: text }))).await.unwrap();
    let failure = Failure::new(FailureClass::HandlerError, text, format!("{text}\n{text}"));
    let failure = failure.with_upstream(Some(text.into()));
    let usage = vec![Usage { upstream: Some(text.into()), model: Some(text.into()), ..paid(1) }];
    s.done(id(n), Event::Fail { token: token(1), failure: failure.clone(), jitter: 0.0, usage }).await;
    let job = s.record(id(n)).await.job;
    assert_eq!((job.progress, job.last_error), (Some(progress), Some(failure)));
    assert_eq!(s.store.step(id(n), text).await.unwrap().unwrap().output, Some(json!({ text: text })));
    assert_eq!(s.store.ledger(id(n)).await.unwrap()[1].usage.model.as_deref(), Some(text));
    s.done(id(n), Event::Cancel).await;
}

pub(super) async fn a_megabyte_comes_back_as_it_was(s: Subject) {
    let big = || json!({ "text": "가나다\"\\\n".repeat(80_000) });
    s.running(NewJob { payload: big(), ..job(1) }).await;
    assert_eq!(s.record(id(1)).await.payload, big());
    s.apply(id(1), step(1, "a", big())).await.unwrap();
    let kept = s.store.step(id(1), "a").await.unwrap().unwrap();
    assert_eq!((kept.output, kept.bytes), (Some(big()), big().to_string().len() as u64));
    s.done(id(1), Event::Succeed { token: token(1), result: big(), usage: Vec::new() }).await;
    assert_eq!(s.record(id(1)).await.result, Some(big()));
}

pub(super) async fn numbers_at_their_bounds_come_back_as_they_were(s: Subject) {
    let numbers = json!([u64::MAX, i64::MIN, 0.1, 1e308, 5e-324, -0.0, 9_007_199_254_740_993_u64, 1.0, 1]);
    let far = Timestamp::from_millis(253_402_300_799_999);
    let mut new = NewJob { payload: numbers.clone(), ..job(1) };
    let spec = Arc::make_mut(&mut new.spec);
    spec.priority = -10;
    spec.expires_at = Some(far);
    spec.policy = Policy {
        max_attempts: 100,
        retry_delays: vec![Duration::ZERO, Duration::from_millis(1), secs(86_400)],
        cooldown: secs(31_536_000),
        lease: secs(3600),
        timeout: secs(31_536_000),
        max_wait: Duration::from_millis(1),
        max_lost: u32::MAX,
        max_releases: u32::MAX,
        max_paid_calls: Some(u32::MAX),
    };
    s.submit(new.clone()).await;
    let record = s.record(id(1)).await;
    assert_eq!(record.job.spec, new.spec);
    assert_eq!(record.payload.to_string(), numbers.to_string(), "spelled as it was, too");
    s.claim_one().await;
    let huge = Usage {
        input_tokens: i64::MAX,
        output_tokens: i64::MAX,
        cost: Some(Money::from_nanos(i64::MAX)),
        ..paid(0)
    };
    let usage = vec![huge.clone(), huge.clone()];
    s.done(id(1), Event::Succeed { token: token(1), result: numbers, usage }).await;
    let totals = s.record(id(1)).await.job.usage;
    assert_eq!((totals.calls, totals.input_tokens, totals.cost.as_nanos()), (2, i64::MAX, i64::MAX));
    assert_eq!(s.store.ledger(id(1)).await.unwrap()[1].usage, huge);
    assert_eq!(s.stats().await.paid_calls, 2);
}

pub(super) async fn a_thousand_jobs_go_through_at_once(s: Subject) {
    let jobs: Vec<_> = (1..=1000).map(|n| keyed(n, &format!("k{n}"))).collect();
    let answers = s.submit_all(jobs.clone()).await;
    assert!(answers.iter().zip(&jobs).all(|(answer, job)| answer.record.job.id == job.id));
    let again: Vec<_> = (1..=1000).map(|n| keyed(1000 + n, &format!("k{n}"))).collect();
    let answers = s.submit_all(again).await;
    assert!(answers.iter().zip(&jobs).all(|(answer, job)| answer.record.job.id == job.id));
    assert!(answers.iter().all(|answer| answer.outcome == SubmitOutcome::Existing));
    assert_eq!(s.stats().await.queue_depth, 1000);
    let claimed = s.claim(1000).await;
    assert_eq!(claimed_ids(&claimed), jobs.iter().map(|job| job.id).collect::<Vec<_>>());
    let all =
        |event: fn() -> Event| claimed_ids(&claimed).into_iter().map(move |id| JobChange::new(id, event()));
    let beats = s.apply_all(all(|| renew(1)).collect()).await;
    assert!(beats.iter().flatten().all(|beat| matches!(beat.answer, Answer::Held { .. })));
    let steps = s.apply_all(all(|| step(1, "a", Value::Null)).collect()).await;
    assert_eq!(steps.iter().flatten().count(), 1000);
    let settled = s.apply_all(all(|| succeed(1)).collect()).await;
    assert!(settled.iter().flatten().all(|applied| applied.job.status() == Status::Succeeded));
    assert_eq!(s.stats().await.paid_calls, 1000);
    assert_eq!(
        s.list(JobFilter { status: Some(Status::Succeeded), ..JobFilter::default() }).await.len(),
        1000
    );
}
