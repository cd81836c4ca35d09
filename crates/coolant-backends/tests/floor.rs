//! Claims on PostgreSQL begin where the pending jobs of a line begin, and still find one that lies before.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore, conformance};
use coolant_core::job::{JobId, JobSpec, Policy};
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::{ClaimRequest, IfFailed, NewJob, Start, Store};
use support::Database;
use uuid::Uuid;

async fn submitted(store: &SqlStore) -> JobId {
    let id = JobId(Uuid::now_v7());
    let spec = JobSpec {
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
    let spec = Arc::new(spec);
    let payload = serde_json::json!({});
    let new = NewJob { id, spec, payload, start: Start::Now, if_failed: IfFailed::Return };
    store.submit(vec![new]).await.unwrap();
    id
}

async fn claimed(store: &SqlStore, max: u32) -> Vec<JobId> {
    let (worker, queues) = ("w".into(), vec![Queue::default()]);
    let request = ClaimRequest { worker, queues, job_types: Vec::new(), max, lease: None, process: None };
    store.claim(request).await.unwrap().into_iter().map(|claimed| claimed.record.job.id).collect()
}

#[test]
fn a_job_that_was_committed_very_late_is_claimed_all_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let clock = conformance::clock();
        let options = Options { clock: Some(clock.reader()), lanes: 1, ..Options::default() };
        let store = SqlStore::open(&database.address(), options).await.unwrap();
        let (first, second) = (submitted(&store).await, submitted(&store).await);
        clock.advance(Duration::from_secs(60));
        assert_eq!(claimed(&store, 1).await, [first]);
        // As a transaction leaves it that looked at the clock a minute ago and commits only now.
        let late = submitted(&store).await;
        let raw = database.connect().await;
        raw.say(&format!("UPDATE jobs SET due_at = due_at - 61000 WHERE id = '{late}'")).await;
        assert_eq!(claimed(&store, 10).await, [second]);
        clock.advance(Duration::from_secs(5));
        assert_eq!(claimed(&store, 10).await, [late]);
        database.drop_it().await;
    });
}
