//! Races on PostgreSQL, forced: one transaction is held open while the store works, and ends when the test
//! says so. No case waits for luck; whether the store waits for a lock, the server itself tells.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore};
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobId, LeaseToken, Policy, Status};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::Money;
use coolant_core::names::{LockKey, Tenant, Upstream};
use coolant_core::retention::Retention;
use coolant_core::store::{AuditEntry, IfFailed, JobChange, NewJob, Store, StoreError, SubmitOutcome};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Control, Limits, PermitId, PermitRequest, UpstreamSettings, UpstreamStore};
use serde_json::json;
use support::beside_another;
use support::database::{Raw, WAITING};
use support::jobs::{claim_of, claimed, job_with, keyed, submitted, succeed};
use uuid::Uuid;

fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Raw)) {
    beside_another(Options::default(), case);
}

fn locked(key: &str) -> NewJob {
    job_with(|spec| spec.lock_key = Some(LockKey::parse(key).unwrap()))
}

#[test]
fn a_claim_passes_over_a_job_that_another_transaction_has() {
    with(async |store, raw| {
        let (a, b) = (submitted(&store, keyed("a")).await, submitted(&store, keyed("b")).await);
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{a}' FOR UPDATE")).await;
        assert_eq!(claimed(&store, 10).await, [b]);
        raw.say("ROLLBACK").await;
        assert_eq!(claimed(&store, 10).await, [a]);
    });
}

#[test]
fn a_submit_waits_for_one_of_its_key_and_takes_what_it_left() {
    with(async |store, raw| {
        // Another submit of key `k`, so far uncommitted: the same to the unique index as a row of its own.
        let first = submitted(&store, keyed("other")).await;
        let take = format!("BEGIN; UPDATE job_specs SET idempotency_key = 'k' WHERE job_id = '{first}'");
        raw.say(&take).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.submit(vec![keyed("k")]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let answer = waiting.await.unwrap().unwrap().remove(0);
        assert_eq!((answer.outcome, answer.record.job.id), (SubmitOutcome::Existing, first));
    });
}

#[test]
fn a_submit_whose_rival_gives_up_is_the_first() {
    with(async |store, raw| {
        let other = submitted(&store, keyed("other")).await;
        raw.say(&format!("BEGIN; UPDATE job_specs SET idempotency_key = 'k' WHERE job_id = '{other}'")).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.submit(vec![keyed("k")]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("ROLLBACK").await;
        assert_eq!(waiting.await.unwrap().unwrap()[0].outcome, SubmitOutcome::Created);
    });
}

#[test]
fn a_change_is_decided_from_the_job_as_the_other_transaction_left_it() {
    with(async |store, raw| {
        let id = submitted(&store, keyed("a")).await;
        store.claim(claim_of(1)).await.unwrap();
        let cancel =
            format!("BEGIN; UPDATE jobs SET cancel_requested = 1, version = version + 1 WHERE id = '{id}'");
        raw.say(&cancel).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.apply(vec![succeed(id)]).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let applied = waiting.await.unwrap().unwrap().remove(0).unwrap();
        assert_eq!((applied.answer, applied.job.status()), (Answer::Cancelled, Status::Cancelled));
    });
}

#[test]
fn a_token_that_was_overtaken_while_it_waited_is_refused() {
    with(async |store, raw| {
        let id = submitted(&store, keyed("a")).await;
        store.claim(claim_of(1)).await.unwrap();
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
    with(async |store, raw| {
        submitted(&store, locked("l")).await;
        let other = submitted(&store, locked("m")).await;
        // As a claim of another process would: it holds the key's advisory lock until it commits.
        raw.say("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('default' || chr(31) || 'l', 7070))")
            .await;
        assert_eq!(claimed(&store, 10).await, [other]);
        raw.say("ROLLBACK").await;
        assert_eq!(claimed(&store, 10).await.len(), 1);
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
    with(async |store, raw| {
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
    with(async |store, raw| {
        let upstreams = vec![Upstream::parse("u").unwrap()];
        for _ in 0..2 {
            submitted(&store, job_with(|spec| spec.upstreams.clone_from(&upstreams))).await;
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
            async move { store.claim(claim_of(10)).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        assert_eq!(waiting.await.unwrap().unwrap(), []);
    });
}

#[test]
fn a_connection_cut_in_the_middle_costs_an_error_and_no_truth() {
    with(async |store, raw| {
        let id = submitted(&store, keyed("a")).await;
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
        assert_eq!(store.submit(vec![keyed("b")]).await.unwrap()[0].outcome, SubmitOutcome::Created);
    });
}

/// A job of key `k` that ended so long ago that it is to be forgotten.
async fn over(store: &SqlStore, raw: &Raw, end: impl FnOnce(JobId) -> JobChange) -> JobId {
    let policy = Policy { max_attempts: 1, cooldown: Duration::ZERO, ..Policy::default() };
    let mut new = keyed("k");
    Arc::make_mut(&mut new.spec).policy = policy;
    let id = submitted(store, new).await;
    assert_eq!(claimed(store, 1).await, [id]);
    store.apply(vec![end(id)]).await.unwrap()[0].as_ref().unwrap();
    raw.say(&format!("UPDATE jobs SET finished_at = 0 WHERE id = '{id}'")).await;
    id
}

#[test]
fn a_submit_waits_for_its_keys_job_to_be_forgotten_and_makes_a_new_one() {
    with(async |store, raw| {
        for (end, expected) in [("ROLLBACK", SubmitOutcome::Existing), ("COMMIT", SubmitOutcome::Created)] {
            let first = match end {
                "ROLLBACK" => over(&store, &raw, succeed).await,
                _ => store.submit(vec![keyed("k")]).await.unwrap()[0].record.job.id,
            };
            // As another process in the middle of forgetting it.
            raw.say(&format!("BEGIN; DELETE FROM jobs WHERE id = '{first}'")).await;
            raw.say(&format!("DELETE FROM job_specs WHERE job_id = '{first}'")).await;
            let waiting = tokio::spawn({
                let store = Arc::clone(&store);
                async move { store.submit(vec![keyed("k")]).await }
            });
            raw.until_somebody_waits().await;
            raw.say(end).await;
            let answer = waiting.await.unwrap().unwrap().remove(0);
            assert_eq!((answer.outcome, answer.record.job.id == first), (expected, end == "ROLLBACK"));
            assert!(store.jobs(&[answer.record.job.id]).await.unwrap()[0].is_some());
        }
    });
}

/// Forgets, and stops in the middle: the job's row is taken, the rest waits until the other transaction ends.
async fn forgetting(store: &Arc<SqlStore>, raw: &Raw) -> tokio::task::JoinHandle<Result<u64, StoreError>> {
    raw.say("BEGIN; SELECT 1 FROM attempts FOR UPDATE").await;
    let store = Arc::clone(store);
    let keep = Retention { dead_letters: Some(Duration::from_secs(60)), ..Retention::default() };
    let forgetting = tokio::spawn(async move { store.forget(&keep, 10).await });
    raw.until_somebody_waits().await;
    forgetting
}

#[test]
fn a_submit_beside_the_forgetting_of_its_job_is_answered_with_that_job_or_makes_one_that_stays() {
    with(async |store, raw| {
        let old = over(&store, &raw, succeed).await;
        let forgetting = forgetting(&store, &raw).await;
        let beside = store.submit(vec![keyed("k")]).await.unwrap().remove(0);
        assert_eq!((beside.outcome, beside.record.job.id), (SubmitOutcome::Existing, old));
        assert_eq!(beside.record.result, Some(json!(1)));
        raw.say("COMMIT").await;
        assert_eq!(forgetting.await.unwrap().unwrap(), 1);
        let new = submitted(&store, keyed("k")).await;
        assert_eq!(store.forget(&Retention::default(), 10).await.unwrap(), 0);
        assert_eq!(claimed(&store, 10).await, [new]);
    });
}

#[test]
fn a_dead_letter_that_is_being_forgotten_is_not_reopened_but_made_anew() {
    with(async |store, raw| {
        let old = over(&store, &raw, |id| {
            let failure = Failure::new(FailureClass::Network, "LLM_NETWORK", "reset");
            let event = Event::Fail { token: LeaseToken(1), failure, jitter: 0.0, usage: Vec::new() };
            JobChange::new(id, event)
        })
        .await;
        let forgetting = forgetting(&store, &raw).await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.submit(vec![NewJob { if_failed: IfFailed::Retry, ..keyed("k") }]).await }
        });
        raw.until_count(WAITING, 2).await;
        raw.say("COMMIT").await;
        assert_eq!(forgetting.await.unwrap().unwrap(), 1);
        let answer = waiting.await.unwrap().unwrap().remove(0);
        assert_eq!(answer.outcome, SubmitOutcome::Created);
        assert_ne!(answer.record.job.id, old);
        assert_eq!(claimed(&store, 10).await, [answer.record.job.id]);
    });
}

/// A store whose one line has rested for long.
async fn rested(store: &SqlStore, raw: &Raw) {
    over(store, raw, succeed).await;
    raw.say("UPDATE lines SET resting_since = 0").await;
}

const LINES: &str = "SELECT count(*) FROM lines";

#[test]
fn a_line_that_is_dropped_while_a_job_comes_is_there_for_the_job() {
    with(async |store, raw| {
        rested(&store, &raw).await;
        // As another process that is dropping it.
        raw.say("BEGIN; DELETE FROM lines").await;
        let waiting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { submitted(&store, keyed("new")).await }
        });
        raw.until_somebody_waits().await;
        raw.say("COMMIT").await;
        let id = waiting.await.unwrap();
        assert_eq!(claimed(&store, 10).await, [id]);
    });
}

/// Looks for lines to drop while a job comes, whose submit began like this and has not committed yet.
fn drops_no_line_beside(submit: &str) {
    with(async |store, raw| {
        rested(&store, &raw).await;
        raw.say(&format!("BEGIN; {submit}; SELECT coolant.submit('T')")).await;
        store.forget(&Retention::default(), 100).await.unwrap();
        raw.say("COMMIT").await;
        assert_eq!(claimed(&store, 10).await.len(), 1);
    });
}

#[test]
fn a_line_whose_mark_a_submit_takes_away_is_not_dropped() {
    drops_no_line_beside("UPDATE lines SET resting_since = NULL");
}

#[test]
fn a_submit_in_sql_is_claimed_although_its_line_is_dropped_at_that_moment() {
    drops_no_line_beside("SELECT 1");
}

#[test]
fn a_line_that_rested_for_long_is_dropped() {
    with(async |store, raw| {
        rested(&store, &raw).await;
        assert_eq!(raw.number(LINES).await, 1);
        store.forget(&Retention::default(), 100).await.unwrap();
        assert_eq!(raw.number(LINES).await, 0);
        submitted(&store, keyed("new")).await;
        raw.say("UPDATE lines SET resting_since = 0").await;
        store.forget(&Retention::default(), 100).await.unwrap();
        assert_eq!(raw.number(LINES).await, 1, "a job waits in it");
    });
}
