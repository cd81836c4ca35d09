//! Claims on PostgreSQL begin where the pending jobs of a line begin, and still find one that lies before.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore, conformance};
use coolant_core::job::JobId;
use coolant_core::model::ManualClock;
use coolant_core::names::Tenant;
use coolant_core::store::{NewJob, Start, Store};
use support::database::{Database, Raw};
use support::jobs::{claimed, job, job_with, submitted, succeed};
use support::on_postgres;

/// Runs a case with a store of one lane whose clock the test moves.
fn with(case: impl AsyncFnOnce(Arc<SqlStore>, &Arc<ManualClock>, &Database)) {
    let clock = conformance::clock();
    on_postgres(options(&clock), async |store, database| case(store, &clock, database).await);
}

fn options(clock: &Arc<ManualClock>) -> Options {
    Options { clock: Some(clock.reader()), lanes: 1, ..Options::default() }
}

async fn submitted_by(store: &SqlStore, tenant: &str) -> JobId {
    submitted(store, job_with(|spec| spec.tenant = Tenant::parse(tenant).unwrap())).await
}

#[test]
fn a_job_that_was_committed_very_late_is_claimed_all_the_same() {
    with(async |store, clock, database| {
        let (first, second) = (submitted(&store, job()).await, submitted(&store, job()).await);
        clock.advance(Duration::from_secs(60));
        assert_eq!(claimed(&store, 1).await, [first]);
        // As a transaction leaves it that looked at the clock a minute ago and commits only now.
        let late = submitted(&store, job()).await;
        let raw = database.connect().await;
        raw.say(&format!("UPDATE jobs SET due_at = due_at - 61000 WHERE id = '{late}'")).await;
        assert_eq!(claimed(&store, 10).await, [second]);
        clock.advance(Duration::from_secs(5));
        assert_eq!(claimed(&store, 10).await, [late]);
    });
}

#[test]
fn tenants_that_come_between_those_that_are_known_are_found_at_once() {
    with(async |store, clock, _| {
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
    });
}

/// Entries that were read of the indexes by which claims look.
const READ: &str = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes \
                    WHERE indexrelname IN ('jobs_waiting', 'jobs_delayed')";

/// Ends a store, and with it its connections, which then have told the server all that they read.
async fn closed(store: Arc<SqlStore>, raw: &Raw) {
    drop(store);
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'coolant'";
    raw.until(gone).await;
}

#[test]
fn a_claim_walks_over_nothing_that_was_claimed_before() {
    with(async |store, clock, database| {
        let (raw, pinned) = (database.connect().await, database.connect().await);
        // No entry of a claimed job can be cleared away while somebody's snapshot is open.
        raw.say("ALTER TABLE jobs SET (autovacuum_enabled = off)").await;
        pinned.say("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM jobs").await;
        let after = |ms| NewJob { start: Start::After(Duration::from_millis(ms)), ..job() };
        store.submit((0..3000).map(after).collect()).await.unwrap();
        clock.advance(Duration::from_secs(60));
        for _ in 0..29 {
            let done = claimed(&store, 100).await.into_iter().map(succeed);
            assert!(store.apply(done.collect()).await.unwrap().iter().all(Result::is_ok));
        }
        closed(store, &raw).await;
        let before = raw.number(READ).await;
        let store = SqlStore::open(&database.address(), options(clock)).await.unwrap();
        for _ in 0..50 {
            assert_eq!(claimed(&store, 1).await.len(), 1);
        }
        closed(store, &raw).await;
        // The first claim looks from the first entry on, the others begin behind those that were claimed.
        let entries = raw.number(READ).await - before;
        assert!(entries < 10_000, "{entries} entries of the index for 50 claims behind 2900 others");
    });
}

#[test]
fn a_delayed_job_that_somebody_had_in_hand_for_long_is_claimed_once_it_is_let_go() {
    with(async |store, clock, database| {
        let delayed = NewJob { start: Start::After(Duration::from_secs(1)), ..job() };
        let id = submitted(&store, delayed).await;
        let first = submitted(&store, job()).await;
        assert_eq!(claimed(&store, 1).await, [first]);
        clock.advance(Duration::from_secs(60));
        // As a claim has it in hand that puts many such jobs among the waiting ones.
        let other = database.connect().await;
        other.say(&format!("BEGIN; UPDATE jobs SET delayed = 0 WHERE id = '{id}'")).await;
        assert_eq!(claimed(&store, 10).await, [first], "its lease ran out");
        other.say("COMMIT").await;
        assert_eq!(claimed(&store, 10).await, [id]);
    });
}

#[test]
fn a_claim_passes_over_delayed_jobs_that_others_have_in_hand() {
    with(async |store, clock, database| {
        let after = |ms| NewJob { start: Start::After(Duration::from_millis(ms)), ..job() };
        let jobs: Vec<_> = (0..60).map(|n| after(1000 + n)).collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        store.submit(jobs).await.unwrap();
        clock.advance(Duration::from_secs(2));
        let other = database.connect().await;
        let held =
            "BEGIN; SELECT FROM jobs WHERE id IN (SELECT id FROM jobs ORDER BY due_at LIMIT 50) FOR UPDATE";
        other.say(held).await;
        assert_eq!(claimed(&store, 3).await, ids[50..53]);
        other.say("COMMIT").await;
        assert_eq!(claimed(&store, 1).await, ids[..1]);
    });
}

#[test]
fn a_claim_asks_no_tenant_whose_jobs_are_all_for_later() {
    with(async |store, clock, database| {
        let raw = database.connect().await;
        let later = |n| {
            let job = job_with(|spec| spec.tenant = Tenant::parse(format!("t{n}")).unwrap());
            NewJob { start: Start::After(Duration::from_secs(3600)), ..job }
        };
        store.submit((0..2000).map(later).collect()).await.unwrap();
        let due = submitted_by(&store, "z").await;
        closed(store, &raw).await;
        let before = raw.number(READ).await;
        let store = SqlStore::open(&database.address(), options(clock)).await.unwrap();
        assert_eq!(claimed(&store, 10).await, [due]);
        for _ in 0..20 {
            assert_eq!(claimed(&store, 1).await, []);
        }
        closed(store, &raw).await;
        let entries = raw.number(READ).await - before;
        assert!(entries < 1000, "{entries} entries of the indexes for 21 claims beside 2000 tenants");
    });
}
