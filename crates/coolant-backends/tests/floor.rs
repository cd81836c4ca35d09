//! Claims on PostgreSQL begin where the pending jobs of a line begin, and still find one that lies before.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore, conformance};
use coolant_core::job::{JobId, JobSpec, LeaseToken, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::{ClaimRequest, IfFailed, JobChange, NewJob, Start, Store};
use support::Database;
use uuid::Uuid;

async fn submitted(store: &SqlStore) -> JobId {
    submitted_by(store, "default").await
}

async fn submitted_by(store: &SqlStore, tenant: &str) -> JobId {
    let new = new_job(tenant);
    let id = new.id;
    store.submit(vec![new]).await.unwrap();
    id
}

fn new_job(tenant: &str) -> NewJob {
    let spec = JobSpec {
        job_type: JobType::parse("T").unwrap(),
        queue: Queue::default(),
        tenant: Tenant::parse(tenant).unwrap(),
        idempotency_key: None,
        lock_key: None,
        upstreams: Vec::new(),
        priority: 0,
        tags: [].into(),
        trace_id: "0".repeat(32),
        expires_at: None,
        policy: Policy::default(),
    };
    let payload = serde_json::json!({});
    let (id, spec) = (JobId(Uuid::now_v7()), Arc::new(spec));
    NewJob { id, spec, payload, start: Start::Now, if_failed: IfFailed::Return }
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

#[test]
fn tenants_that_come_between_those_that_are_known_are_found_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let clock = conformance::clock();
        let options = Options { clock: Some(clock.reader()), lanes: 1, ..Options::default() };
        let store = SqlStore::open(&database.address(), options).await.unwrap();
        let mut waiting = Vec::new();
        for tenant in ["b", "d", "Z", "\u{e4}"] {
            waiting.push(submitted_by(&store, tenant).await);
        }
        let mut found = claimed(&store, 10).await;
        found.sort_unstable();
        assert_eq!(found, waiting);
        // Before, between and behind, and again of one that is known and had nothing left.
        for tenant in ["a", "c", "b", "e", "\u{1f600}", "A"] {
            let id = submitted_by(&store, tenant).await;
            assert_eq!(claimed(&store, 10).await, [id], "{tenant}");
            clock.advance(Duration::from_millis(700));
        }
        clock.advance(Duration::from_secs(700));
        let id = submitted_by(&store, "c").await;
        assert!(claimed(&store, 20).await.contains(&id), "beside those whose leases ran out");
        database.drop_it().await;
    });
}

/// Ends a store, and with it its connections, which then have told the server all that they read.
async fn closed(store: Arc<SqlStore>, raw: &support::Raw) {
    drop(store);
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'coolant'";
    raw.until(gone).await;
}

#[test]
fn a_claim_walks_over_nothing_that_was_claimed_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let clock = conformance::clock();
        let open = async || {
            let options = Options { clock: Some(clock.reader()), lanes: 1, ..Options::default() };
            SqlStore::open(&database.address(), options).await.unwrap()
        };
        let (store, raw, pinned) = (open().await, database.connect().await, database.connect().await);
        // No entry of a claimed job can be cleared away while somebody's snapshot is open.
        raw.say("ALTER TABLE jobs SET (autovacuum_enabled = off)").await;
        pinned.say("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM jobs").await;
        let after = |ms| NewJob { start: Start::After(Duration::from_millis(ms)), ..new_job("default") };
        store.submit((0..3000).map(after).collect()).await.unwrap();
        clock.advance(Duration::from_secs(60));
        for _ in 0..29 {
            let done = claimed(&store, 100).await.into_iter().map(|id| {
                let (result, usage) = (serde_json::Value::Null, Vec::new());
                JobChange::new(id, Event::Succeed { token: LeaseToken(1), result, usage })
            });
            assert!(store.apply(done.collect()).await.unwrap().iter().all(Result::is_ok));
        }
        closed(store, &raw).await;
        let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'jobs_waiting'";
        let before = raw.number(read).await;
        let store = open().await;
        for _ in 0..50 {
            assert_eq!(claimed(&store, 1).await.len(), 1);
        }
        closed(store, &raw).await;
        // The first claim looks from the first entry on, the others begin behind those that were claimed.
        let entries = raw.number(read).await - before;
        assert!(entries < 10_000, "{entries} entries of the index for 50 claims behind 2900 others");
        database.drop_it().await;
    });
}
