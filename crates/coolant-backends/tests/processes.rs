//! Processes on PostgreSQL, and the locks by which their death is seen: lost, taken again, looked at.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;

use coolant_backends::{Options, SqlStore};
use coolant_core::job::JobId;
use coolant_core::process::{Burial, Process, ProcessId, ProcessStore};
use coolant_core::store::{ClaimRequest, Store};
use support::beside_another;
use support::database::Raw;
use support::jobs::{claim_of, job, succeed};
use uuid::Uuid;

const ID: ProcessId = ProcessId(Uuid::from_u128(1));

/// Sessions of this database that hold an advisory lock, other than those of migrations.
const HOLDERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Raw)) {
    beside_another(Options { lanes: 1, ..Options::default() }, case);
}

/// Jobs that the process has claimed.
async fn claimed(store: &SqlStore, jobs: usize) -> Vec<JobId> {
    store.submit((0..jobs).map(|_| job()).collect()).await.unwrap();
    let claimed = store.claim(request(Some(ID))).await.unwrap();
    assert_eq!(claimed.len(), jobs);
    claimed.iter().map(|claimed| claimed.record.job.id).collect()
}

fn request(process: Option<ProcessId>) -> ClaimRequest {
    ClaimRequest { process, ..claim_of(100) }
}

async fn row(store: &SqlStore) -> Process {
    store.processes().await.unwrap().1[0]
}

#[test]
fn a_lock_whose_connection_breaks_is_taken_again() {
    with(async |store, raw| {
        store.renew_process(ID).await.unwrap();
        let lock = store.lock_process(ID).await.unwrap();
        claimed(&store, 1).await;
        let holder = "SELECT pid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted \
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        for _ in 0..3 {
            let pid = raw.number(holder).await;
            raw.say(&format!("SELECT pg_terminate_backend({pid})")).await;
            raw.until_count(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"), 0).await;
            raw.until_count(HOLDERS, 1).await;
        }
        let stale = row(&store).await;
        assert_eq!(store.bury_process(stale, 10).await.unwrap(), Burial::Lives);
        // Dropped without a word, as by a crash.
        drop(lock);
        raw.until_count(HOLDERS, 0).await;
        assert_eq!(store.bury_process(stale, 10).await.unwrap(), Burial::Done { ended: 1 });
    });
}

#[test]
fn who_looks_at_a_lock_does_not_keep_its_owner_from_it() {
    with(async |store, raw| {
        raw.say("BEGIN").await;
        let look = format!("SELECT pg_try_advisory_xact_lock(hashtextextended('{ID}', 7071))::text");
        assert_eq!(raw.ask(&look).await, "true");
        assert!(store.lock_process(ID).await.is_err(), "not while somebody looks");
        raw.say("ROLLBACK").await;
        store.lock_process(ID).await.unwrap().free().await;
        raw.until_count(HOLDERS, 0).await;
    });
}

#[test]
fn a_burial_passes_over_a_job_that_another_transaction_has_and_comes_back_for_it() {
    with(async |store, raw| {
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
    with(async |store, raw| {
        store.renew_process(ID).await.unwrap();
        let id = claimed(&store, 1).await[0];
        raw.say("BEGIN; SELECT 1 FROM jobs FOR UPDATE").await;
        let settling = Arc::clone(&store);
        let settle = tokio::spawn(async move { settling.apply(vec![succeed(id)]).await });
        raw.until_somebody_waits().await;
        let before = row(&store).await.renewed_at;
        while row(&store).await.renewed_at == before {
            store.renew_process(ID).await.unwrap();
        }
        assert!(!settle.is_finished(), "the one lane waits all the time");
        raw.say("ROLLBACK").await;
        settle.await.unwrap().unwrap()[0].as_ref().unwrap();
    });
}
