//! Jobs and calls with as little said as a case needs.

use std::sync::Arc;

use coolant_backends::SqlStore;
use coolant_core::job::{JobId, JobSpec, LeaseToken, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::names::{IdempotencyKey, JobType, Queue, Tenant};
use coolant_core::store::{ClaimRequest, IfFailed, JobChange, NewJob, Start, Store, SubmitOutcome};
use serde_json::json;
use uuid::Uuid;

/// A job of the default queue, without a key.
pub(crate) fn job() -> NewJob {
    job_with(|_| {})
}

pub(crate) fn keyed(key: &str) -> NewJob {
    job_with(|spec| spec.idempotency_key = Some(IdempotencyKey::parse(key).unwrap()))
}

pub(crate) fn job_with(change: impl FnOnce(&mut JobSpec)) -> NewJob {
    let mut spec = JobSpec {
        job_type: JobType::parse("T").unwrap(),
        queue: Queue::default(),
        tenant: Tenant::default(),
        idempotency_key: None,
        lock_key: None,
        upstreams: Vec::new(),
        priority: 0,
        tags: [].into(),
        trace_id: "0".repeat(32),
        expires_at: None,
        policy: Policy::default(),
    };
    change(&mut spec);
    let (id, spec, payload) = (JobId(Uuid::now_v7()), Arc::new(spec), json!({}));
    NewJob { id, spec, payload, start: Start::Now, if_failed: IfFailed::Return }
}

/// Submits a job that was not there before.
pub(crate) async fn submitted(store: &SqlStore, job: NewJob) -> JobId {
    let id = job.id;
    assert_eq!(store.submit(vec![job]).await.unwrap()[0].outcome, SubmitOutcome::Created);
    id
}

/// A claim of jobs of any type of the default queue.
pub(crate) fn claim_of(max: u32) -> ClaimRequest {
    let (worker, queues) = ("w".into(), vec![Queue::default()]);
    ClaimRequest { worker, queues, job_types: Vec::new(), max, lease: None, process: None }
}

pub(crate) async fn claimed(store: &SqlStore, max: u32) -> Vec<JobId> {
    let claimed = store.claim(claim_of(max)).await.unwrap();
    claimed.into_iter().map(|claimed| claimed.record.job.id).collect()
}

/// The success of a job's first claim.
pub(crate) fn succeed(id: JobId) -> JobChange {
    JobChange::new(id, Event::Succeed { token: LeaseToken(1), result: json!(1), usage: Vec::new() })
}
