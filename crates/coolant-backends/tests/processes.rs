//! Processes on PostgreSQL, and the locks by which their death is seen: lost, taken again, looked at.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coolant_backends::{Options, SqlStore};
use coolant_core::job::{JobId, JobSpec, LeaseToken, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::process::{Burial, Process, ProcessId, ProcessStore};
use coolant_core::store::{ClaimRequest, IfFailed, JobChange, NewJob, Start, Store};
use serde_json::json;
use support::{Database, Raw};
use uuid::Uuid;

/// Longer than anything here takes.
const TOO_LONG: Duration = Duration::from_secs(30);

const ID: ProcessId = ProcessId(Uuid::from_u128(1));

/// Sessions of this database that hold an advisory lock, other than those of migrations.
const HOLDERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

fn with<F>(case: impl FnOnce(Arc<SqlStore>, Raw) -> F)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let store =
            SqlStore::open(&database.address(), Options { lanes: 1, ..Options::default() }).await.unwrap();
        case(store, database.connect().await).await;
        database.drop_it().await;
    });
}

async fn until(raw: &Raw, question: &str, answer: i64) {
    let deadline = Instant::now() + TOO_LONG;
    while raw.number(question).await != answer {
        assert!(Instant::now() < deadline, "never {answer}: {question}");
        tokio::task::yield_now().await;
    }
}

/// Jobs that the process has claimed.
async fn claimed(store: &SqlStore, jobs: usize) -> Vec<JobId> {
    let new = |_| NewJob {
        id: JobId(Uuid::now_v7()),
        spec: Arc::new(JobSpec {
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
        }),
        payload: json!({}),
        start: Start::Now,
        if_failed: IfFailed::Return,
    };
    store.submit((0..jobs).map(new).collect()).await.unwrap();
    let claimed = store.claim(request(Some(ID))).await.unwrap();
    assert_eq!(claimed.len(), jobs);
    claimed.iter().map(|claimed| claimed.record.job.id).collect()
}

fn request(process: Option<ProcessId>) -> ClaimRequest {
    let (worker, queues) = ("w".into(), vec![Queue::default()]);
    ClaimRequest { worker, queues, job_types: Vec::new(), max: 100, lease: None, process }
}

async fn row(store: &SqlStore) -> Process {
    store.processes().await.unwrap().1[0]
}

#[test]
fn a_lock_whose_connection_breaks_is_taken_again() {
    with(|store, raw| async move {
        store.renew_process(ID).await.unwrap();
        let lock = store.lock_process(ID).await.unwrap();
        claimed(&store, 1).await;
        let holder = "SELECT pid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted \
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        for _ in 0..3 {
            let pid = raw.number(holder).await;
            raw.say(&format!("SELECT pg_terminate_backend({pid})")).await;
            until(&raw, &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), 0).await;
            until(&raw, HOLDERS, 1).await;
        }
        let stale = row(&store).await;
        assert_eq!(store.bury_process(stale, 10).await.unwrap(), Burial::Lives);
        // Dropped without a word, as by a crash.
        drop(lock);
        until(&raw, HOLDERS, 0).await;
        assert_eq!(store.bury_process(stale, 10).await.unwrap(), Burial::Done { ended: 1 });
    });
}

#[test]
fn who_looks_at_a_lock_does_not_keep_its_owner_from_it() {
    with(|store, raw| async move {
        raw.say("BEGIN").await;
        let look = format!("SELECT pg_try_advisory_xact_lock(hashtextextended('{ID}', 7071))::text");
        assert_eq!(raw.ask(&look).await, "true");
        assert!(store.lock_process(ID).await.is_err(), "not while somebody looks");
        raw.say("ROLLBACK").await;
        store.lock_process(ID).await.unwrap().free().await;
        until(&raw, HOLDERS, 0).await;
    });
}

#[test]
fn a_burial_passes_over_a_job_that_another_transaction_has_and_comes_back_for_it() {
    with(|store, raw| async move {
        store.renew_process(ID).await.unwrap();
        let ids = claimed(&store, 3).await;
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{}' FOR UPDATE", ids[1])).await;
        let process = row(&store).await;
        assert_eq!(store.bury_process(process, 10).await.unwrap(), Burial::Begun { ended: 2 });
        assert_eq!(store.bury_process(process, 10).await.unwrap(), Burial::Begun { ended: 0 });
        assert_eq!(store.claim(request(None)).await.unwrap().len(), 2);
        raw.say("ROLLBACK").await;
        assert_eq!(store.bury_process(process, 10).await.unwrap(), Burial::Done { ended: 1 });
        assert_eq!(store.claim(request(None)).await.unwrap()[0].record.job.id, ids[1]);
    });
}

#[test]
fn a_process_renews_its_row_also_while_its_lane_waits() {
    with(|store, raw| async move {
        store.renew_process(ID).await.unwrap();
        let id = claimed(&store, 1).await[0];
        raw.say("BEGIN; SELECT 1 FROM jobs FOR UPDATE").await;
        let event = Event::Renew { token: LeaseToken(1), progress: None };
        let beating = Arc::clone(&store);
        let beat = tokio::spawn(async move { beating.apply(vec![JobChange::new(id, event)]).await });
        raw.until_somebody_waits().await;
        let before = row(&store).await.renewed_at;
        while row(&store).await.renewed_at == before {
            store.renew_process(ID).await.unwrap();
        }
        assert!(!beat.is_finished(), "the one lane waits all the time");
        raw.say("ROLLBACK").await;
        beat.await.unwrap().unwrap()[0].as_ref().unwrap();
    });
}
