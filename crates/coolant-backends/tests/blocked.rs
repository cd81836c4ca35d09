//! Jobs that wait for what is closed, on real databases: found without reading what else waits, also those of
//! before the schema could.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Address, Options, SqlStore, conformance};
use coolant_core::job::{JobId, Status};
use coolant_core::ledger::{LedgerFilter, LedgerPage, LedgerStore};
use coolant_core::model::ManualClock;
use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::{AuditEntry, NewJob, Store};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Limits, PermitId, PermitRequest, PermitSettlement, Room, UpstreamStore, Verdict,
};
use support::database::{Database, Raw};
use support::jobs::job_with;
use support::{on_postgres, run};
use uuid::Uuid;

fn upstream() -> Upstream {
    Upstream::parse("u").unwrap()
}

/// A job of a tenant that waits for `u` so many seconds at most.
fn patient(tenant: &str, max_wait: u64) -> NewJob {
    job_with(|spec| {
        spec.tenant = Tenant::parse(tenant).unwrap();
        spec.upstreams = vec![upstream()];
        spec.policy.max_wait = Duration::from_secs(max_wait);
    })
}

/// Many jobs that may wait for a day, of two tenants, and then `few` that wait for a minute.
async fn backlog(store: &SqlStore, few: Vec<NewJob>) {
    for _ in 0..5 {
        let many = (0..1000).map(|n| patient(if n % 2 == 0 { "t" } else { "poor" }, 86_400));
        store.submit(many.collect()).await.unwrap();
    }
    store.submit(few).await.unwrap();
}

async fn close(store: &SqlStore) {
    let audit = AuditEntry {
        at: Timestamp::default(),
        actor: "a".into(),
        action: "b".into(),
        target: "u".into(),
        reason: String::new(),
    };
    let control = Control::Close { wait: Duration::from_secs(86_400), reason: "maintenance".into() };
    store.control_upstream(&upstream(), control, audit).await.unwrap();
}

/// Spends the money of the tenant `poor`.
async fn spend(store: &SqlStore) {
    let tenant = Tenant::parse("poor").unwrap();
    let cost = Money::from_usd(1.0);
    let limits = Limits { budget_per_day: cost, ..Limits::default() };
    store.set_tenant(&tenant, limits).await.unwrap();
    let id = PermitId(Uuid::now_v7());
    let cost_unknown = Money::default();
    let (upstream, job, step, tokens) = (upstream(), None, None, 0);
    let request = PermitRequest { id, upstream, job, tenant, step, tokens, cost: cost_unknown };
    store.acquire_permits(vec![request]).await.unwrap()[0].as_ref().unwrap();
    let usage = Usage { cost, ..Usage::default() };
    let settlement = PermitSettlement { id, verdict: Verdict::Ok { room: Room::default() }, usage };
    store.settle_permits(vec![settlement]).await.unwrap();
}

/// Runs a case on a PostgreSQL store of one lane whose clock the test moves.
fn with(case: impl AsyncFnOnce(Arc<SqlStore>, &Arc<ManualClock>, &Database)) {
    let clock = conformance::clock();
    let options = Options { clock: Some(clock.reader()), lanes: 1, ..Options::default() };
    on_postgres(options, async |store, database| case(store, &clock, database).await);
}

/// Entries of an index that were read since [`forget_reads`]; waits until the server has counted any.
async fn entries_read(raw: &Raw, index: &str) -> i64 {
    let of_index = format!("FROM pg_stat_user_indexes WHERE indexrelname = '{index}'");
    raw.until(&format!("SELECT idx_scan > 0 {of_index}")).await;
    raw.number(&format!("SELECT idx_tup_read {of_index}")).await
}

async fn forget_reads(raw: &Raw) {
    raw.say("ANALYZE; SELECT pg_stat_reset()").await;
}

#[test]
fn a_sweep_reads_no_job_that_may_wait_on_for_its_upstream() {
    with(async |store, clock, database| {
        let raw = &database.connect().await;
        backlog(&store, (0..3).map(|_| patient("t", 60)).collect()).await;
        close(&store).await;
        clock.advance(Duration::from_secs(59));
        assert_eq!(store.sweep(100).await.unwrap(), 0);
        clock.advance(Duration::from_secs(1));
        forget_reads(raw).await;
        assert_eq!(store.sweep(100).await.unwrap(), 3);
        let read = entries_read(raw, "jobs_waiting_for_upstream").await;
        assert!(read < 20, "{read} entries read for 3 jobs");
        assert_eq!(
            raw.number("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'jobs'").await,
            0
        );
    });
}

#[test]
fn a_sweep_reads_no_job_that_may_wait_on_for_its_tenants_money() {
    with(async |store, clock, database| {
        let raw = &database.connect().await;
        backlog(&store, vec![patient("poor", 60), patient("t", 60), patient("poor", 60)]).await;
        spend(&store).await;
        clock.advance(Duration::from_secs(60));
        forget_reads(raw).await;
        assert_eq!(store.sweep(100).await.unwrap(), 2);
        let read = entries_read(raw, "jobs_waiting_for_budget").await;
        assert!(read < 20, "{read} entries read for 2 jobs");
        assert_eq!(
            raw.number("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'jobs'").await,
            0
        );
    });
}

#[test]
fn the_ledger_of_an_upstream_is_read_by_its_index() {
    with(async |store, _, database| {
        let raw = &database.connect().await;
        raw.say(
            "INSERT INTO ledger (id, job_id, attempt, tenant, queue, at, upstream, input_tokens, output_tokens) \
             SELECT gen_random_uuid()::text, '', 0, 't', 'q', n, CASE n % 1000 WHEN 0 THEN 'rare' ELSE 'u' END, \
             1, 1 FROM generate_series(1, 20000) AS n",
        )
        .await;
        forget_reads(raw).await;
        let filter = LedgerFilter { upstream: Some("rare".into()), ..LedgerFilter::default() };
        let page = store.ledger_page(&filter, LedgerPage { limit: 10, before: None }).await.unwrap();
        assert_eq!(page.len(), 10);
        let read = entries_read(raw, "ledger_by_upstream").await;
        assert!(read <= 20, "{read} entries read for a page of 10");
    });
}

/// The schema as it was before it knew how long a job waits.
const BEFORE: &str = "DROP INDEX jobs_waiting_for_upstream; DROP INDEX jobs_waiting_for_budget; \
    DROP INDEX ledger_by_upstream; ALTER TABLE jobs DROP COLUMN max_wait_ms; \
    DELETE FROM schema_migrations WHERE name = 'blocked'";

async fn is_given_up_after_an_upgrade(address: &Address, say: impl AsyncFn(&str)) {
    let clock = conformance::clock();
    let options = Options { clock: Some(clock.reader()), ..Options::default() };
    let store = SqlStore::open(address, options.clone()).await.unwrap();
    let jobs = vec![patient("t", 60), patient("t", 86_400), patient("t", 7 * 86_400)];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    store.submit(jobs).await.unwrap();
    close(&store).await;
    drop(store);
    say(BEFORE).await;
    let store = SqlStore::open(address, options).await.unwrap();
    for (seconds, given_up) in [(59, 0), (1, 1), (86_339, 0), (1, 1), (6 * 86_400 - 1, 0), (1, 1)] {
        clock.advance(Duration::from_secs(seconds));
        assert_eq!(store.sweep(100).await.unwrap(), given_up, "after {seconds} s more");
    }
    let records = store.jobs(&ids).await.unwrap();
    assert!(records.iter().flatten().all(|record| record.job.status() == Status::Failed));
}

#[test]
fn jobs_of_before_are_given_up_after_an_upgrade_of_a_file() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coolant.db");
        let say = async |text: &str| {
            let conn = rusqlite::Connection::open(&path).unwrap();
            conn.busy_timeout(Duration::from_secs(10)).unwrap();
            conn.execute_batch(text).unwrap();
        };
        is_given_up_after_an_upgrade(&Address::Sqlite(path.clone()), say).await;
    });
}

#[test]
fn jobs_of_before_are_given_up_after_an_upgrade_of_a_server() {
    with(async |_, _, database| {
        let raw = &database.connect().await;
        let say = async |text: &str| {
            raw.say(&format!("DROP FUNCTION coolant.submit_max_wait(text); {text}")).await;
        };
        is_given_up_after_an_upgrade(&database.address(), say).await;
    });
}
