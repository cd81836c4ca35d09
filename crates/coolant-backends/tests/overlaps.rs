//! Races on PostgreSQL, forced: one transaction is held open while the store works, and ends when the test
//! says so. No case waits for luck; whether the store waits for a lock, the server itself tells.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore};
use coolant_core::job::{JobId, JobSpec, LeaseToken, Policy, Status};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::Money;
use coolant_core::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{
    AuditEntry, ClaimRequest, IfFailed, JobChange, NewJob, Start, Store, StoreError, SubmitOutcome,
};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Control, Limits, PermitId, PermitRequest, UpstreamSettings, UpstreamStore};
use serde_json::json;
use support::{Database, Raw};
use uuid::Uuid;

fn job(key: &str, lock_key: Option<&str>) -> NewJob {
    NewJob {
        id: JobId(Uuid::now_v7()),
        spec: Arc::new(JobSpec {
            job_type: JobType::parse("T").unwrap(),
            queue: Queue::default(),
            tenant: Tenant::default(),
            idempotency_key: Some(IdempotencyKey::parse(key).unwrap()),
            lock_key: lock_key.map(|key| LockKey::parse(key).unwrap()),
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
    }
}

fn any(max: u32) -> ClaimRequest {
    let (worker, queues) = ("w".into(), vec![Queue::default()]);
    ClaimRequest { worker, queues, job_types: Vec::new(), max, lease: None, process: None }
}

/// Runs a case with a store and a connection of the test's own.
fn with<F>(case: impl FnOnce(Arc<SqlStore>, Raw) -> F)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let store = SqlStore::open(&database.address(), Options::default()).await.unwrap();
        case(store, database.connect().await).await;
        database.drop_it().await;
    });
}

async fn submitted(store: &SqlStore, job: NewJob) -> JobId {
    let id = job.id;
    assert_eq!(store.submit(vec![job]).await.unwrap()[0].outcome, SubmitOutcome::Created);
    id
}

#[test]
fn a_claim_passes_over_a_job_that_another_transaction_has() {
    with(|store, raw| async move {
        let (a, b) = (submitted(&store, job("a", None)).await, submitted(&store, job("b", None)).await);
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{a}' FOR UPDATE")).await;
        let claimed = store.claim(any(10)).await.unwrap();
        assert_eq!(claimed.iter().map(|claimed| claimed.record.job.id).collect::<Vec<_>>(), [b]);
        raw.say("ROLLBACK").await;
        assert_eq!(store.claim(any(10)).await.unwrap()[0].record.job.id, a);
    });
}

#[test]
fn a_submit_waits_for_one_of_its_key_and_takes_what_it_left() {
    with(|store, raw| async move {
        // Another submit of key `k`, so far uncommitted: the same to the unique index as a row of its own.
        let first = submitted(&store, job("other", None)).await;
        let take = format!("BEGIN; UPDATE job_specs SET idempotency_key = 'k' WHERE job_id = '{first}'");
        raw.say(&take).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.submit(vec![job("k", None)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let answer = waiting.await.unwrap().unwrap().remove(0);
        assert_eq!((answer.outcome, answer.record.job.id), (SubmitOutcome::Existing, first));
    });
}

#[test]
fn a_submit_whose_rival_gives_up_is_the_first() {
    with(|store, raw| async move {
        let other = submitted(&store, job("other", None)).await;
        raw.say(&format!("BEGIN; UPDATE job_specs SET idempotency_key = 'k' WHERE job_id = '{other}'")).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.submit(vec![job("k", None)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("ROLLBACK").await;
        assert_eq!(waiting.await.unwrap().unwrap()[0].outcome, SubmitOutcome::Created);
    });
}

#[test]
fn a_change_is_decided_from_the_job_as_the_other_transaction_left_it() {
    with(|store, raw| async move {
        let id = submitted(&store, job("a", None)).await;
        store.claim(any(1)).await.unwrap();
        let cancel =
            format!("BEGIN; UPDATE jobs SET cancel_requested = 1, version = version + 1 WHERE id = '{id}'");
        raw.say(&cancel).await;
        let success = Event::Succeed { token: LeaseToken(1), result: json!(1), usage: Vec::new() };
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.apply(vec![JobChange::new(id, success)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let applied = waiting.await.unwrap().unwrap().remove(0).unwrap();
        assert_eq!((applied.answer, applied.job.status()), (Answer::Cancelled, Status::Cancelled));
    });
}

#[test]
fn a_token_that_was_overtaken_while_it_waited_is_refused() {
    with(|store, raw| async move {
        let id = submitted(&store, job("a", None)).await;
        store.claim(any(1)).await.unwrap();
        raw.say(&format!("BEGIN; UPDATE jobs SET claims = 2, version = version + 1 WHERE id = '{id}'")).await;
        let late = Event::Release { token: LeaseToken(1) };
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.apply(vec![JobChange::new(id, late)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        assert_eq!(waiting.await.unwrap().unwrap()[0], Err(Refusal::LeaseLost));
    });
}

#[test]
fn two_jobs_of_a_lock_key_are_not_claimed_by_overlapping_transactions() {
    with(|store, raw| async move {
        submitted(&store, job("a", Some("l"))).await;
        let other = submitted(&store, job("b", Some("m"))).await;
        // As a claim of another process would: it holds the key's advisory lock until it commits.
        raw.say("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('default' || chr(31) || 'l', 7070))")
            .await;
        let claimed = store.claim(any(10)).await.unwrap();
        assert_eq!(claimed.iter().map(|claimed| claimed.record.job.id).collect::<Vec<_>>(), [other]);
        raw.say("ROLLBACK").await;
        assert_eq!(store.claim(any(10)).await.unwrap().len(), 1);
    });
}

fn ask(n: u128) -> PermitRequest {
    PermitRequest {
        id: PermitId(Uuid::from_u128(n)),
        upstream: Upstream::parse("u").unwrap(),
        job: None,
        tenant: Tenant::default(),
        step: None,
        tokens: 0,
        cost: Money::default(),
    }
}

/// Permits asked for while another transaction holds the upstream wait for it, and count what it has left.
#[test]
fn a_permit_counts_what_an_overlapping_transaction_has_given() {
    with(|store, raw| async move {
        let limits = Limits { max_concurrent: Some(2), ..Limits::default() };
        let settings = UpstreamSettings { limits, credential: None };
        store.set_upstream(&Upstream::parse("u").unwrap(), settings).await.unwrap();
        raw.say(
            "BEGIN; SELECT 1 FROM upstreams WHERE name = 'u' FOR UPDATE; \
             INSERT INTO permits (id, upstream, tenant, tokens, cost_nanos, acquired_at, expires_at) \
             VALUES ('00000000-0000-7000-8000-000000000001', 'u', 'default', 0, 0, 0, 9000000000000)",
        )
        .await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.acquire_permits(vec![ask(7), ask(8), ask(9)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let answers = waiting.await.unwrap().unwrap();
        assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false]);
    });
}

/// Two claims of one probe: the second waits for the first, and finds it under way.
#[test]
fn a_claim_finds_the_probe_that_an_overlapping_transaction_began() {
    with(|store, raw| async move {
        let upstreams = vec![Upstream::parse("u").unwrap()];
        for key in ["a", "b"] {
            let mut new = job(key, None);
            Arc::make_mut(&mut new.spec).upstreams.clone_from(&upstreams);
            submitted(&store, new).await;
        }
        let audit = AuditEntry {
            at: Timestamp::default(),
            actor: "test".into(),
            action: "upstream.closed".into(),
            target: "u".into(),
            reason: String::new(),
        };
        let close = Control::Close { wait: Duration::ZERO, reason: "now".into() };
        store.control_upstream(&upstreams[0], close, audit).await.unwrap();
        // As another process's claim would: its permit is the probe.
        raw.say(
            "BEGIN; INSERT INTO permits (id, upstream, tenant, tokens, cost_nanos, acquired_at, expires_at) \
             VALUES ('00000000-0000-7000-8000-000000000001', 'u', 'default', 0, 0, 0, 9000000000000); \
             UPDATE upstreams SET breaker = jsonb_build_object('state', jsonb_build_object('probing', \
             jsonb_build_object('by', jsonb_build_object('permit', '00000000-0000-7000-8000-000000000001'), \
             'closure', breaker::jsonb -> 'state' -> 'closed')), 'closed_since', 0)::text WHERE name = 'u'",
        )
        .await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.claim(any(10)).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        assert_eq!(waiting.await.unwrap().unwrap(), []);
    });
}

#[test]
fn a_connection_cut_in_the_middle_costs_an_error_and_no_truth() {
    with(|store, raw| async move {
        let id = submitted(&store, job("a", None)).await;
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{id}' FOR UPDATE")).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.apply(vec![JobChange::new(id, Event::Cancel)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .await;
        raw.say("ROLLBACK").await;
        let outcome = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
        // The lane may have repeated it on another connection; a refusal or a broken store it must not be.
        assert!(matches!(outcome, Ok(_) | Err(StoreError::Unavailable(_))), "{outcome:?}");
        let again = store.apply(vec![JobChange::new(id, Event::Cancel)]).await.unwrap().remove(0).unwrap();
        assert_eq!(again.job.status(), Status::Cancelled);
        assert_eq!(store.submit(vec![job("b", None)]).await.unwrap()[0].outcome, SubmitOutcome::Created);
    });
}
