//! `coolant.submit` on PostgreSQL: the same job, bounds and answers as over the store, inside the caller's own
//! transaction. (What the engine refuses and SQL refuses is compared in the tests of `coolant`.)

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore};
use coolant_core::fingerprint::same_meaning;
use coolant_core::job::{JobId, JobRecord, JobSpec, JobState, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::money::{Money, Usage};
use coolant_core::names::{LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{JobChange, NewJob, Start, Store, StoreError, SubmitOutcome, Submitted};
use coolant_core::time::Timestamp;
use serde_json::{Value, json};
use support::database::{Database, Raw};
use support::jobs::{claim_of, keyed};
use support::on_postgres;
use uuid::Uuid;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn job(key: &str, payload: &str) -> NewJob {
    let mut new = keyed(key);
    Arc::make_mut(&mut new.spec).trace_id = TRACE.into();
    NewJob { payload: serde_json::from_str(payload).unwrap(), ..new }
}

/// Runs a case with a store and a connection of an application's own.
fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Raw, &Database)) {
    on_postgres(Options::default(), async |store, database| {
        case(store, database.connect().await, database).await;
    });
}

async fn submit_one(store: &SqlStore, job: NewJob) -> Submitted {
    store.submit(vec![job]).await.unwrap().remove(0)
}

/// `SELECT` of a submit with those arguments.
fn call(arguments: &str) -> String {
    format!("SELECT job_id || ' ' || outcome FROM coolant.submit({arguments})")
}

fn with_payload(key: &str, payload: &str) -> String {
    call(&format!("'T', idempotency_key => '{key}', payload => '{payload}'"))
}

/// The job and the outcome of a submit in SQL.
async fn say(raw: &Raw, statement: &str) -> (JobId, String) {
    let answer = raw.ask(statement).await;
    let (id, outcome) = answer.split_once(' ').unwrap();
    (id.parse().unwrap(), outcome.to_owned())
}

async fn record(store: &SqlStore, id: JobId) -> JobRecord {
    store.jobs(&[id]).await.unwrap().remove(0).unwrap()
}

async fn duplicates(raw: &Raw) -> String {
    raw.ask("SELECT coalesce(sum(value), 0)::text FROM counters WHERE name = 'duplicates'").await
}

#[test]
fn a_caller_that_rolls_back_leaves_nothing() {
    with(async |store, raw, _| {
        say(&raw, &with_payload("k", "{}")).await;
        raw.say("BEGIN").await;
        say(&raw, &with_payload("k", "{}")).await;
        say(&raw, &call("'NEW_TYPE', queue => 'new', idempotency_key => 'l'")).await;
        raw.say("ROLLBACK").await;
        assert_eq!(duplicates(&raw).await, "0");
        let lines = "SELECT count(*)::text FROM lines WHERE queue = 'new'";
        assert_eq!(raw.ask(lines).await, "0");
        assert_eq!(raw.ask("SELECT count(*)::text FROM job_specs").await, "1");
        assert_eq!(store.claim(claim_of(100)).await.unwrap().len(), 1);
    });
}

#[test]
fn defaults_and_every_field_read_back_as_a_submit_over_the_store_leaves_them() {
    with(async |store, raw, _| {
        let trace = format!("trace_id => '{TRACE}'");
        let (plain, _) = say(&raw, &call(&format!("'T', idempotency_key => 'a', {trace}"))).await;
        let (full, outcome) = say(
            &raw,
            &call(&format!(
                "'T', '{{\"b\": [1.5, \"한\\n\"]}}', 'k', queue => 'q', tenant => 't', lock_key => 'l', \
                 priority => -3, run_at => '2999-01-01T00:00:00.0001Z', max_attempts => 7, \
                 retry_delays_seconds => ARRAY[1, 0.0015], cooldown_seconds => 0, lease_seconds => 0.5, \
                 timeout_seconds => 2592000, max_wait_seconds => 12.345678901, max_lost => 9, \
                 expires_at => '2999-01-02T00:00:00Z', max_paid_calls => 0, upstreams => ARRAY['c', 'a/b', 'c'], \
                 tags => '{{\"team\": \"search\", \"empty\": \"\"}}', {trace}"
            )),
        )
        .await;
        assert_eq!(outcome, "created");
        let mut expected = job("k", r#"{"b": [1.5, "한\n"]}"#);
        let plain_spec = JobSpec {
            idempotency_key: job("a", "{}").spec.idempotency_key.clone(),
            ..(*expected.spec).clone()
        };
        let run_at = Timestamp::from_millis(32_472_144_000_001);
        expected.start = Start::At(run_at);
        expected.spec = Arc::new(JobSpec {
            queue: Queue::parse("q").unwrap(),
            tenant: Tenant::parse("t").unwrap(),
            lock_key: Some(LockKey::parse("l").unwrap()),
            upstreams: ["c", "a/b"].map(|name| Upstream::parse(name).unwrap()).to_vec(),
            priority: -3,
            tags: [("team".to_owned(), "search".to_owned()), ("empty".to_owned(), String::new())].into(),
            expires_at: Some(Timestamp::from_millis(32_472_230_400_000)),
            policy: Policy {
                max_attempts: 7,
                retry_delays: vec![Duration::from_secs(1), Duration::from_micros(1500)],
                cooldown: Duration::ZERO,
                lease: Duration::from_millis(500),
                timeout: Duration::from_secs(2_592_000),
                max_wait: Duration::from_nanos(12_345_678_901),
                max_lost: 9,
                max_paid_calls: Some(0),
                ..Policy::default()
            },
            ..(*expected.spec).clone()
        });
        let found = record(&store, full).await;
        assert_eq!(found.payload, expected.payload);
        let own = JobRecord { job: expected.first(found.job.created_at), ..found.clone() };
        assert_eq!(found.job, coolant_core::job::Job { id: full, ..own.job });
        let plain = record(&store, plain).await;
        assert_eq!((&*plain.job.spec, plain.payload), (&plain_spec, json!({})));
        // What a query looks into beside: the columns that the store fills for the same job.
        raw.say("UPDATE job_specs SET idempotency_key = 'sql' WHERE idempotency_key = 'k'").await;
        submit_one(&store, expected).await;
        let kinds = "SELECT count(DISTINCT (to_jsonb(j) - '{id,created_at,updated_at}'::text[]))::text FROM jobs j WHERE queue = 'q'";
        assert_eq!(raw.ask(kinds).await, "1");
    });
}

#[test]
fn ids_are_uuids_of_version_7_in_the_order_of_the_submits() {
    with(async |_, raw, _| {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(say(&raw, &call("'T'")).await.0);
        }
        assert!(ids.is_sorted());
        assert!(
            ids.iter().all(|id| id.0.get_version_num() == 7 && id.0.get_variant() == uuid::Variant::RFC4122)
        );
    });
}

#[test]
fn a_key_is_one_job_whichever_door_it_came_by() {
    with(async |store, raw, _| {
        let (first, _) = say(&raw, &with_payload("sql", r#"{"a": 1, "b": 2.0}"#)).await;
        let answer = submit_one(&store, job("sql", r#"{"b": 2, "a": 1.0}"#)).await;
        assert_eq!((answer.outcome, answer.record.job.id), (SubmitOutcome::Existing, first));
        let other = submit_one(&store, job("http", r#"{"a": 1e0}"#)).await;
        let (again, outcome) = say(&raw, &with_payload("http", r#"{"a": 1}"#)).await;
        assert_eq!((again, outcome.as_str()), (other.record.job.id, "existing"));
        assert_eq!(duplicates(&raw).await, "2");
        let refused = raw.refused(&with_payload("http", r#"{"a": 2, "c": null}"#)).await;
        assert_eq!((refused.state.as_str(), refused.column.as_str()), ("CL422", "idempotency_key"));
        assert!(refused.message.starts_with("IDEMPOTENCY_KEY_REUSED: "), "{}", refused.message);
        assert_eq!(refused.detail, format!("Job {again} differs in payload.a, payload.c."));
        let refused = raw.refused(&call("'OTHER', '{\"a\": 1}', 'http'")).await;
        assert_eq!(refused.detail, format!("Job {again} differs in job_type."));
        // A key belongs to a tenant.
        let (_, outcome) = say(&raw, &call("'OTHER', idempotency_key => 'http', tenant => 't'")).await;
        assert_eq!(outcome, "created");
    });
}

#[test]
fn work_that_a_submit_finds_done_counts_as_money_saved() {
    with(async |store, raw, _| {
        let (id, _) = say(&raw, &with_payload("k", "{}")).await;
        let token = store.claim(claim_of(100)).await.unwrap()[0].lease.token;
        let cost = Money::from_nanos(1_500);
        let usage = Usage { input_tokens: 1, output_tokens: 1, cost: Some(cost), ..Usage::default() };
        let success = Event::Succeed { token, result: json!(1), usage: vec![usage] };
        store.apply(vec![JobChange::new(id, success)]).await.unwrap()[0].as_ref().unwrap();
        for _ in 0..2 {
            assert_eq!(say(&raw, &with_payload("k", "{}")).await, (id, "existing".into()));
        }
        let saved = "SELECT sum(value)::text FROM counters WHERE name = 'saved_nanos'";
        assert_eq!((raw.ask(saved).await.as_str(), duplicates(&raw).await.as_str()), ("3000", "2"));
    });
}

#[test]
fn both_doors_agree_on_what_payloads_mean() {
    let texts = [
        "0",
        "-0.0",
        "1",
        "1.0",
        "1e0",
        "0.1",
        "0.1000000000000000055511151231257827",
        "0.10000000000000001",
        "9007199254740992",
        "9007199254740993",
        "9007199254740992.0",
        "9007199254740993.0",
        "18446744073709551615",
        "18446744073709551616",
        "1.8446744073709552e19",
        "-9223372036854775808",
        "-9223372036854775809",
        "1e20",
        "100000000000000000000",
        "100000000000000000001",
        "123456789.123456789",
        "123456789.12345679",
        "1e-400",
        "5e-324",
        "2.5e-324",
        "1.7976931348623157e308",
        "12345678901234567.5",
        "12345678901234568",
        "\"1\"",
        "\"a\\u0000b\"",
        "\"a\\\\u0000b\"",
        "\"\\ud83d\\ude00\"",
        "\"😀\"",
        "null",
        "[]",
        "{}",
        r#"{"a": 1, "a": 2}"#,
        r#"{"a": 2}"#,
        r#"{"b": 1, "a": [1, {"c": 12345678901234567890}]}"#,
        r#"{"a": [1.0, {"c": 12345678901234567890}], "b": 1}"#,
    ];
    with(async |store, raw, _| {
        let is_nul = |text: &str| text.contains("a\\u0000");
        for (i, kept) in texts.iter().enumerate() {
            submit_one(&store, job(&format!("h{i}"), kept)).await;
            let as_sql = kept.replace("\\u0000", "\\u0001");
            say(&raw, &with_payload(&format!("s{i}"), if is_nul(kept) { &as_sql } else { kept })).await;
            for asked in texts.iter().filter(|text| !is_nul(text)) {
                let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                let same = same_meaning(&value(kept), &value(asked));
                let over_sql = raw.try_ask(&with_payload(&format!("h{i}"), asked)).await;
                assert_eq!(
                    over_sql.is_ok(),
                    same,
                    "{kept} over the store, then {asked} in SQL: {over_sql:?}"
                );
                if !is_nul(kept) {
                    let outcome = submit_one(&store, job(&format!("s{i}"), asked)).await.outcome;
                    assert_eq!(
                        outcome == SubmitOutcome::Existing,
                        same,
                        "{kept} in SQL, then {asked} over the store"
                    );
                }
            }
        }
    });
}

#[test]
fn submits_of_a_key_that_overlap_wait_for_the_first_and_take_what_it_left() {
    with(async |store, raw, _| {
        for (end, expected) in [("COMMIT", SubmitOutcome::Existing), ("ROLLBACK", SubmitOutcome::Created)] {
            raw.say("BEGIN").await;
            let (first, _) = say(&raw, &with_payload(end, "{}")).await;
            let waiting = tokio::spawn({
                let store = Arc::clone(&store);
                async move { submit_one(&store, job(end, "{}")).await }
            });
            raw.until_somebody_waits().await;
            raw.say(end).await;
            let answer = waiting.await.unwrap();
            assert_eq!(answer.outcome, expected);
            assert_eq!(answer.record.job.id == first, end == "COMMIT");
        }
    });
}

#[test]
fn a_submit_in_sql_waits_for_one_over_the_store_and_takes_what_it_left() {
    with(async |store, raw, database| {
        // As a lane in the middle of its group: the key taken, nothing committed.
        let other = database.connect().await;
        for (end, expected) in [("COMMIT", "existing"), ("ROLLBACK", "created")] {
            let first = submit_one(&store, job(&format!("was {end}"), "{}")).await.record.job.id;
            other
                .say(&format!(
                    "BEGIN; UPDATE job_specs SET idempotency_key = '{end}' WHERE job_id = '{first}'"
                ))
                .await;
            let (answer, ()) = tokio::join!(say_of(&raw, with_payload(end, "{}")), async {
                other.until_somebody_waits().await;
                other.say(end).await;
            });
            assert_eq!(answer.1, expected);
            assert_eq!(answer.0 == first, end == "COMMIT");
        }
    });
}

async fn say_of(raw: &Raw, statement: String) -> (JobId, String) {
    say(raw, &statement).await
}

#[test]
fn a_caller_that_keeps_its_transaction_open_holds_up_nobody_else() {
    with(async |store, raw, database| {
        raw.say("BEGIN").await;
        say(&raw, &with_payload("held", "{}")).await;
        say(&raw, &with_payload("held", "{}")).await;
        // Another key of the same line, which was never seen before, and another session that counts.
        submit_one(&store, job("free", "{}")).await;
        let other = database.connect().await;
        assert_eq!(say(&other, &with_payload("free", "{}")).await.1, "existing");
        // The held key itself is refused in a while, to be tried again, and spoils no other.
        let (held, beside) =
            tokio::join!(store.submit(vec![job("held", "{}")]), store.submit(vec![job("b", "{}")]));
        assert!(matches!(held, Err(StoreError::Unavailable(_))), "{held:?}");
        assert_eq!(beside.unwrap()[0].outcome, SubmitOutcome::Created);
        raw.say("COMMIT").await;
        assert_eq!(submit_one(&store, job("held", "{}")).await.outcome, SubmitOutcome::Existing);
        assert_eq!(store.claim(claim_of(100)).await.unwrap().len(), 3);
    });
}

#[test]
fn a_caller_in_one_snapshot_is_told_to_try_again() {
    with(async |store, raw, _| {
        raw.say("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
        submit_one(&store, job("k", "{}")).await;
        assert_eq!(raw.refused(&with_payload("k", "{}")).await.state, "40001");
    });
}

#[test]
fn a_delay_and_a_start_in_the_past_count_from_the_stores_clock() {
    with(async |store, raw, _| {
        let due = |record: &JobRecord| match record.job.state {
            JobState::Pending { visible_at, .. } => visible_at.since(record.job.created_at),
            _ => Duration::MAX,
        };
        let (delayed, _) = say(&raw, &call("'T', delay_seconds => 1.0001")).await;
        assert_eq!(due(&record(&store, delayed).await), Duration::from_millis(1001));
        let (past, _) = say(&raw, &call("'T', run_at => '1999-01-01Z'")).await;
        assert_eq!(due(&record(&store, past).await), Duration::ZERO);
        let now = store.now().await.unwrap();
        assert!(now.since(record(&store, past).await.job.created_at) < Duration::from_secs(60));
    });
}

#[test]
fn an_application_needs_no_other_right_and_cannot_lead_the_function_astray() {
    with(async |store, raw, database| {
        let role = format!("r{}", Uuid::now_v7().simple());
        raw.say(&format!("CREATE ROLE {role}; SET ROLE {role}")).await;
        assert_eq!(raw.refused(&call("'T'")).await.state, "42501");
        raw.say(&format!(
            "RESET ROLE; GRANT USAGE ON SCHEMA coolant TO {role}; GRANT EXECUTE ON FUNCTION coolant.submit TO {role}; \
             GRANT TEMPORARY ON DATABASE {} TO {role}; SET ROLE {role}", database.name()
        ))
        .await;
        assert_eq!(raw.refused("SELECT id FROM coolant.jobs").await.state, "42501");
        assert_eq!(raw.refused("SELECT coolant.submit_id()").await.state, "42501");
        raw.say(
            "CREATE TEMP TABLE job_specs (job_id text, tenant text, idempotency_key text, spec text, payload text); \
             SET search_path = pg_temp, public; SET standard_conforming_strings = off; SET extra_float_digits = 0",
        )
        .await;
        let (id, outcome) = say(&raw, &with_payload("k", "[0.1, 123456789.123456789]")).await;
        assert_eq!(
            (outcome.as_str(), record(&store, id).await.payload),
            ("created", serde_json::from_str("[0.1, 123456789.123456789]").unwrap())
        );
        assert_eq!(say(&raw, &with_payload("k", "[1e-1, 123456789.12345679]")).await.1, "existing");
        raw.say(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")).await;
    });
}

#[test]
fn psycopg_submits_in_its_own_transactions() {
    let Ok(python) = std::env::var("COOLANT_TEST_PYTHON") else {
        println!("skipped: psycopg (COOLANT_TEST_PYTHON names no Python; `scripts/test` makes one)");
        return;
    };
    with(async |_, _, database| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql_submit.py");
        let ran = std::process::Command::new(python).arg(script).arg(database.url()).output().unwrap();
        let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!((said.trim(), &*wrong), ("ok", ""));
    });
}
