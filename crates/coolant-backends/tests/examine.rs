//! What an examination finds, and that its advice helps.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::time::Duration;

use coolant_backends::{Address, Condition, Finding, Options, SqlStore, Tolerance};
use support::database::Database;

async fn found(store: &SqlStore, what: &str, tolerance: Tolerance) -> Finding {
    let findings = store.examine_beyond(tolerance).await.unwrap();
    findings.into_iter().find(|finding| finding.what == what).unwrap()
}

async fn seen(store: &SqlStore, what: &str) -> Finding {
    found(store, what, Tolerance::default()).await
}

/// The statement in backquotes that follows `run`.
fn advised(finding: &Finding) -> String {
    let (_, rest) = finding.detail.split_once("run `").unwrap();
    rest.split_once('`').unwrap().0.to_owned()
}

#[tokio::test]
async fn a_missing_index_is_named_and_the_advice_brings_it_back() {
    let Some(database) = Database::create().await else { return };
    let store = SqlStore::open(&database.address(), Options::default()).await.unwrap();
    let raw = database.connect().await;
    let finding = seen(&store, "indexes").await;
    assert_eq!(finding.condition, Condition::Good, "{}", finding.detail);
    raw.say("DROP INDEX coolant.jobs_waiting").await;
    let finding = seen(&store, "indexes").await;
    assert_eq!(finding.condition, Condition::Bad);
    assert!(finding.detail.contains("`jobs_waiting`: run"), "{}", finding.detail);
    raw.say(&advised(&finding)).await;
    assert_eq!(seen(&store, "indexes").await.condition, Condition::Good);
    raw.say("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'coolant.jobs_waiting'::regclass")
        .await;
    assert_eq!(
        seen(&store, "indexes").await.condition,
        Condition::Bad,
        "one that nobody uses is as good as none"
    );
    drop(store);
    database.drop_it().await;
}

#[tokio::test]
async fn a_missing_index_of_a_file_is_named_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coolant.db");
    let store = SqlStore::open(&Address::Sqlite(path.clone()), Options::default()).await.unwrap();
    assert_eq!(seen(&store, "indexes").await.condition, Condition::Good);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("DROP INDEX jobs_waiting").unwrap();
    let finding = seen(&store, "indexes").await;
    assert_eq!(finding.condition, Condition::Bad);
    raw.execute_batch(&advised(&finding)).unwrap();
    assert_eq!(seen(&store, "indexes").await.condition, Condition::Good);
}

#[tokio::test]
async fn a_transaction_that_stays_open_is_named_by_its_process() {
    let Some(database) = Database::create().await else { return };
    let store = SqlStore::open(&database.address(), Options::default()).await.unwrap();
    let raw = database.connect().await;
    let pid = raw.number("SELECT pg_backend_pid()::bigint").await;
    raw.say("SET application_name = 'report'; BEGIN; SELECT 1").await;
    assert_eq!(seen(&store, "transactions").await.condition, Condition::Good, "it has only just begun");
    let strict = Tolerance { open_transaction: Duration::ZERO, ..Tolerance::default() };
    let finding = found(&store, "transactions", strict).await;
    assert_eq!(finding.condition, Condition::Warning);
    let named = format!("pid {pid} of report, idle in transaction");
    assert!(finding.detail.contains(&named), "{}", finding.detail);
    raw.say("COMMIT").await;
    assert!(!found(&store, "transactions", strict).await.detail.contains(&named));
    drop(store);
    database.drop_it().await;
}

#[tokio::test]
async fn a_table_full_of_dead_rows_is_named() {
    let Some(database) = Database::create().await else { return };
    let store = SqlStore::open(&database.address(), Options::default()).await.unwrap();
    let raw = database.connect().await;
    let strict = Tolerance { dead_rows: 50, ..Tolerance::default() };
    raw.say(
        "ALTER TABLE coolant.claimers SET (autovacuum_enabled = off); \
         INSERT INTO coolant.claimers SELECT 'q', n::text, 0 FROM generate_series(1, 100) AS n; \
         DELETE FROM coolant.claimers WHERE queue = 'q'; SELECT pg_stat_force_next_flush()",
    )
    .await;
    raw.until("SELECT n_dead_tup >= 100 FROM pg_stat_user_tables WHERE relname = 'claimers'").await;
    let finding = found(&store, "dead rows", strict).await;
    assert_eq!(finding.condition, Condition::Warning);
    assert!(finding.detail.contains("`claimers` has 100 beside"), "{}", finding.detail);
    assert_eq!(seen(&store, "dead rows").await.condition, Condition::Good, "so few do no harm");
    raw.say("VACUUM coolant.claimers").await;
    raw.until("SELECT n_dead_tup = 0 FROM pg_stat_user_tables WHERE relname = 'claimers'").await;
    assert_eq!(found(&store, "dead rows", strict).await.condition, Condition::Good);
    drop(store);
    database.drop_it().await;
}
