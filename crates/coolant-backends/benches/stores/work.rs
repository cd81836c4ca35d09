//! Jobs for the store: made, queued, run to their end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coolant_backends::SqlStore;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobId, JobSpec, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::money::{Money, Usage};
use coolant_core::names::{IdempotencyKey, JobType, Queue, Tenant};
use coolant_core::store::{
    ClaimRequest, Claimed, IfFailed, JobChange, JobFilter, NewJob, Start, Stats, Store,
};
use serde_json::json;
use uuid::Uuid;

/// Items of a call when many jobs are wanted soon.
const BULK: usize = 1000;
/// Callers that fill the store side by side.
const FILLERS: usize = 4;
/// One job in so many fails for good, so that the dead-letter queue is not empty.
const FAILING: usize = 100;

/// A job as it is submitted: with a key and a payload of about 240 bytes.
pub(crate) fn job() -> NewJob {
    let id = JobId(Uuid::now_v7());
    let spec = JobSpec {
        job_type: JobType::parse("BENCH").unwrap(),
        queue: Queue::default(),
        tenant: Tenant::default(),
        idempotency_key: Some(IdempotencyKey::parse(format!("bench:{id}")).unwrap()),
        lock_key: None,
        upstreams: Vec::new(),
        priority: 0,
        tags: BTreeMap::new(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".into(),
        expires_at: None,
        policy: Policy::default(),
    };
    NewJob {
        id,
        spec: Arc::new(spec),
        payload: json!({ "document": id.to_string(), "text": "x".repeat(180) }),
        start: Start::Now,
        if_failed: IfFailed::Return,
    }
}

pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| job()).collect()
}

pub(crate) fn request(max: usize) -> ClaimRequest {
    ClaimRequest {
        worker: "bench-worker".into(),
        queues: vec![Queue::default()],
        job_types: Vec::new(),
        max: u32::try_from(max).unwrap(),
        lease: None,
        process: None,
    }
}

/// How a claimed job ends: with a small result and one paid call.
pub(crate) fn success(claimed: &Claimed) -> JobChange {
    let usage = Usage {
        upstream: Some("openai/gpt-4.1-mini".into()),
        model: Some("gpt-4.1-mini".into()),
        input_tokens: 1000,
        output_tokens: 100,
        cost: Some(Money::from_nanos(560_000)),
        ..Usage::default()
    };
    let token = claimed.lease.token;
    let event = Event::Succeed { token, result: json!({ "summary": "y".repeat(100) }), usage: vec![usage] };
    JobChange::new(claimed.record.job.id, event)
}

fn failure(claimed: &Claimed) -> JobChange {
    let failure = Failure::new(FailureClass::ContentFiltered, "LLM_CONTENT_FILTERED", "the provider refused");
    let event = Event::Fail { token: claimed.lease.token, failure, jitter: 0.0, usage: Vec::new() };
    JobChange::new(claimed.record.job.id, event)
}

/// Makes changes, all of which have to pass; gives how many.
pub(crate) async fn apply(store: &SqlStore, changes: Vec<JobChange>) -> usize {
    let answers = store.apply(changes).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "a change was refused");
    answers.len()
}

pub(crate) async fn stats(store: &SqlStore) -> Stats {
    store.stats(None, Duration::from_secs(3600)).await.unwrap()
}

/// Submits until so many are pending.
pub(crate) async fn queue_up_to(store: &Arc<SqlStore>, pending: usize) {
    let there = usize::try_from(stats(store).await.queue_depth).unwrap();
    submit(store, pending.saturating_sub(there)).await;
}

/// Submits so many jobs of each of these tenants, to be due after a while.
pub(crate) async fn submit_of_each(store: &SqlStore, tenants: &[Tenant], count: usize, delay: Duration) {
    let all: Vec<&Tenant> = (0..count).flat_map(|_| tenants).collect();
    for some in all.chunks(BULK) {
        let new = some.iter().map(|tenant| {
            let mut job = job();
            Arc::make_mut(&mut job.spec).tenant = (*tenant).clone();
            NewJob { start: Start::After(delay), ..job }
        });
        store.submit(new.collect()).await.unwrap();
    }
}

/// Submits so many.
pub(crate) async fn submit(store: &Arc<SqlStore>, count: usize) {
    let left = Arc::new(AtomicUsize::new(count));
    side_by_side(store, move |store| {
        let left = Arc::clone(&left);
        async move {
            while let Some(size) = take(&left) {
                store.submit(jobs(size)).await.unwrap();
            }
        }
    })
    .await;
}

/// Runs so many jobs from submit to settle, on top of what is there.
pub(crate) async fn finish_up_to(store: &Arc<SqlStore>, count: usize) -> Duration {
    let began = Instant::now();
    let left = Arc::new(AtomicUsize::new(count));
    side_by_side(store, move |store| {
        let left = Arc::clone(&left);
        async move {
            while let Some(size) = take(&left) {
                store.submit(jobs(size)).await.unwrap();
                settle(&store, store.claim(request(size)).await.unwrap()).await;
            }
        }
    })
    .await;
    began.elapsed()
}

/// Ends claimed jobs, one in a hundred badly.
async fn settle(store: &SqlStore, claimed: Vec<Claimed>) {
    let changes = claimed.iter().enumerate();
    let changes = changes.map(|(n, job)| if n % FAILING == 0 { failure(job) } else { success(job) });
    apply(store, changes.collect()).await;
}

fn take(left: &AtomicUsize) -> Option<usize> {
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(BULK)));
    before.ok().filter(|n| *n > 0).map(|n| n.min(BULK))
}

async fn side_by_side<F, Fut>(store: &Arc<SqlStore>, work: F)
where
    F: Fn(Arc<SqlStore>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..FILLERS).map(|_| tokio::spawn(work(Arc::clone(store)))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// A listing of everything.
pub(crate) fn any() -> JobFilter {
    JobFilter::default()
}
