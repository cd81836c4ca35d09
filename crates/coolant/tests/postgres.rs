//! Two processes' worth of the product on one PostgreSQL: they wake each other, and `coolant.submit` refuses
//! what the engine refuses.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use coolant::engine::Caller;
use coolant::engine::submit::SubmitRequest;
use coolant::engine::work::{Beat, BeatState, Claim};
use coolant::{Context, Coolant, Handler, HandlerError, async_trait};
use coolant_backends::{Address, SqlStore};
use coolant_core::job::Policy;
use coolant_core::store::Claimed;
use serde_json::{Value, json};
use support::memory::engine_over;
use tokio::sync::watch;
use tokio_postgres::{Client, NoTls};

const TOO_LONG: Duration = Duration::from_secs(20);
/// A worker that polls so seldom finds a job only because it was told.
const HOUR: Duration = Duration::from_secs(3600);

struct Echo;

#[async_trait]
impl Handler for Echo {
    type Payload = Value;
    type Output = Value;

    fn job_type(&self) -> &str {
        "ECHO"
    }

    async fn run(&self, _: &Context, payload: Value) -> Result<Value, HandlerError> {
        Ok(payload)
    }
}

/// Runs until it is let go.
struct Holds(watch::Receiver<bool>);

#[async_trait]
impl Handler for Holds {
    type Payload = Value;
    type Output = Value;

    fn job_type(&self) -> &str {
        "HOLDS"
    }

    async fn run(&self, _: &Context, payload: Value) -> Result<Value, HandlerError> {
        let _ = self.0.clone().wait_for(|go| *go).await;
        Ok(payload)
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs a case on a migrated database of its own.
fn with<F: Future<Output = ()>>(case: impl FnOnce(String) -> F) {
    let Ok(server) = std::env::var("COOLANT_TEST_POSTGRES") else {
        println!("skipped: postgres (COOLANT_TEST_POSTGRES names no server; `scripts/test` starts one)");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let name = format!("t{}", uuid::Uuid::now_v7().simple());
        let of_server = connect(&server).await;
        of_server.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        SqlStore::migrate(&Address::Postgres(url.clone())).await.unwrap();
        case(url).await;
        of_server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
    });
}

/// A worker that has found nothing and now sleeps for an hour.
async fn idle_worker(url: &str) -> (Coolant, coolant::embedded::Running) {
    let coolant = Coolant::open(url).await.unwrap();
    let worker = coolant.worker().handler(Echo).poll(HOUR, HOUR);
    let running = coolant.start(worker).unwrap();
    let listens = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND query = 'LISTEN coolant_jobs'";
    let claimed = "SELECT count(*) FROM coolant.claimers";
    let raw = connect(url).await;
    for question in [listens, claimed] {
        while raw.query_one(question, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // The claim that asked, and the one for the ring at the start of listening, are over.
    tokio::time::sleep(Duration::from_millis(300)).await;
    (coolant, running)
}

#[test]
fn a_worker_of_another_process_wakes_for_a_submit_and_its_end_wakes_who_waits() {
    with(|url| async move {
        let (_working, running) = idle_worker(&url).await;
        let submitting = Coolant::open(&url).await.unwrap();
        for _ in 0..3 {
            let job = submitting.submit("ECHO", &json!(7)).await.unwrap();
            assert_eq!(job.result::<Value>(TOO_LONG).await.unwrap(), json!(7));
        }
        running.stop().await.unwrap();
    });
}

#[test]
fn a_submit_in_sql_wakes_a_worker_if_it_is_asked_to_or_a_wake_follows_it() {
    with(|url| async move {
        let (working, running) = idle_worker(&url).await;
        let raw = connect(&url).await;
        let submits = [
            "SELECT job_id FROM coolant.submit('ECHO', '1', notify => true)",
            "SELECT job_id FROM coolant.submit('ECHO', '1')",
        ];
        for submit in submits {
            let id: String = raw.query_one(submit, &[]).await.unwrap().get(0);
            if !submit.contains("notify") {
                raw.batch_execute("NOTIFY coolant_jobs").await.unwrap();
            }
            let job = working.job(id.parse().unwrap());
            assert_eq!(job.result::<Value>(TOO_LONG).await.unwrap(), json!(1));
        }
        running.stop().await.unwrap();
    });
}

/// The end of each lease, by job.
async fn lease_ends(raw: &Client) -> BTreeMap<String, i64> {
    let text = "SELECT id, lease_until FROM coolant.jobs WHERE status = 'RUNNING'";
    let rows = raw.query(text, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Somebody's open transaction, which holds the row of a job.
async fn hold(url: &str, id: &str) -> Client {
    let holder = connect(url).await;
    let text = format!("BEGIN; SELECT 1 FROM coolant.jobs WHERE id = '{id}' FOR UPDATE");
    holder.batch_execute(&text).await.unwrap();
    holder
}

#[test]
fn a_row_that_somebody_holds_costs_no_lease_of_a_worker() {
    const JOBS: usize = 5;
    with(|url| async move {
        let (go, gone) = watch::channel(false);
        let coolant = Coolant::open(&url).await.unwrap();
        let policy = Policy { lease: Duration::from_secs(9), ..Policy::default() };
        let mut jobs = Vec::new();
        for n in 0..JOBS {
            jobs.push(coolant.submit("HOLDS", &n).policy(policy.clone()).await.unwrap());
        }
        let worker = coolant.worker().handler(Holds(gone.clone())).concurrency(JOBS);
        let working = coolant.start(worker).unwrap();
        let raw = connect(&url).await;
        let ends = async |are_so: &dyn Fn(&BTreeMap<String, i64>) -> bool| {
            let deadline = Instant::now() + TOO_LONG;
            loop {
                let ends = lease_ends(&raw).await;
                if are_so(&ends) {
                    return ends;
                }
                assert!(Instant::now() < deadline, "{ends:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let first = ends(&|ends| ends.len() == JOBS).await;
        let held = jobs[0].id().to_string();
        // Whatever is lost now, somebody else takes at once.
        let other = Coolant::open(&url).await.unwrap();
        let poll = Duration::from_millis(50);
        let waiting = other.start(other.worker().handler(Holds(gone)).poll(poll, poll)).unwrap();

        let holder = hold(&url, &held).await;
        // Two beats of all others, by when two thirds of the held one's lease are over.
        let moved = |ends: &BTreeMap<String, i64>| {
            let others = first.iter().filter(|(id, _)| **id != held);
            others.into_iter().all(|(id, end)| ends[id] > end + 4000)
        };
        let before = ends(&moved).await;
        assert_eq!(before[&held], first[&held], "nobody could renew it");
        holder.batch_execute("COMMIT").await.unwrap();
        ends(&|ends| ends[&held] > first[&held]).await;

        go.send_replace(true);
        for job in jobs {
            job.result::<Value>(TOO_LONG).await.unwrap();
            let attempts = coolant.store().attempts(job.id()).await.unwrap();
            assert_eq!(attempts.len(), 1, "no lease was lost: {attempts:?}");
        }
        working.stop().await.unwrap();
        waiting.stop().await.unwrap();
    });
}

#[test]
fn a_heartbeat_over_http_renews_what_nobody_holds_and_says_until_when_the_rest_is_held() {
    with(|url| async move {
        let engine = engine_over(Coolant::open(&url).await.unwrap().store().clone());
        for _ in 0..3 {
            let job = SubmitRequest { job_type: "T".into(), ..SubmitRequest::default() };
            engine.submit(&Caller::local(), job).await.unwrap();
        }
        let claim = Claim { worker: "w".into(), max: Some(3), ..Claim::default() };
        let claimed = engine.claim(claim).await.unwrap().take();
        let beat = async || {
            let beat = |claimed: &Claimed| Beat {
                job_id: claimed.record.job.id,
                token: claimed.lease.token,
                progress: None,
            };
            let states = engine.heartbeat("w", claimed.iter().map(beat).collect()).await.unwrap();
            let until = |(_, state)| match state {
                BeatState::Held(until) => until,
                state => panic!("{state:?}"),
            };
            states.into_iter().map(until).collect::<Vec<_>>()
        };
        let first = beat().await;
        let holder = hold(&url, &claimed[1].record.job.id.to_string()).await;
        let second = beat().await;
        assert!(second[0] > first[0] && second[2] > first[2], "{first:?}, {second:?}");
        assert_eq!(second[1], first[1], "held as long as it was");
        holder.batch_execute("COMMIT").await.unwrap();
        let third = beat().await;
        assert!(third.iter().zip(&second).all(|(third, second)| third > second), "{second:?}, {third:?}");
    });
}

/// A submit, and the same in SQL.
type Pair = (SubmitRequest, &'static str);

fn refused() -> Vec<Pair> {
    let base = || SubmitRequest { job_type: "T".into(), ..SubmitRequest::default() };
    let keyed = |key: &str| SubmitRequest { idempotency_key: Some(key.into()), ..base() };
    let delays = |delays: &[f64]| SubmitRequest { retry_delays_seconds: Some(delays.to_vec()), ..base() };
    let tags = |name: String, value: String| SubmitRequest { tags: [(name, value)].into(), ..base() };
    let many_tags = (0..65).map(|i| (format!("t{i}"), String::new())).collect();
    let now = Some(coolant_core::time::Timestamp::from_millis(0));
    vec![
        (SubmitRequest { job_type: String::new(), ..base() }, "''"),
        (SubmitRequest { job_type: "x".repeat(129), ..base() }, "repeat('x', 129)"),
        (SubmitRequest { job_type: "한".repeat(43), ..base() }, "repeat('한', 43)"),
        (SubmitRequest { job_type: "a\nb".into(), ..base() }, r"E'a\nb'"),
        (SubmitRequest { queue: Some("\u{85}".into()), ..base() }, "'T', queue => chr(133)"),
        (SubmitRequest { queue: Some(String::new()), ..base() }, "'T', queue => ''"),
        (SubmitRequest { tenant: Some("\u{7f}".into()), ..base() }, "'T', tenant => chr(127)"),
        (keyed(""), "'T', idempotency_key => ''"),
        (keyed(&"k".repeat(513)), "'T', idempotency_key => repeat('k', 513)"),
        (SubmitRequest { lock_key: Some("l".repeat(513)), ..base() }, "'T', lock_key => repeat('l', 513)"),
        (SubmitRequest { priority: Some(11), ..base() }, "'T', priority => 11"),
        (SubmitRequest { priority: Some(-11), ..base() }, "'T', priority => -11"),
        (SubmitRequest { delay_seconds: Some(-0.1), ..base() }, "'T', delay_seconds => -0.1"),
        (SubmitRequest { delay_seconds: Some(3.2e7), ..base() }, "'T', delay_seconds => 3.2e7"),
        (SubmitRequest { delay_seconds: Some(f64::NAN), ..base() }, "'T', delay_seconds => 'NaN'"),
        (
            SubmitRequest { delay_seconds: Some(1.0), run_at: now, ..base() },
            "'T', delay_seconds => 1, run_at => '1970-01-01Z'",
        ),
        (SubmitRequest { max_attempts: Some(0), ..base() }, "'T', max_attempts => 0"),
        (SubmitRequest { max_attempts: Some(101), ..base() }, "'T', max_attempts => 101"),
        (delays(&[0.0; 101]), "'T', retry_delays_seconds => array_fill(0::float8, ARRAY[101])"),
        (delays(&[1.0, -1.0]), "'T', retry_delays_seconds => ARRAY[1, -1]"),
        (SubmitRequest { cooldown_seconds: Some(2_592_001.0), ..base() }, "'T', cooldown_seconds => 2592001"),
        (SubmitRequest { lease_seconds: Some(0.4), ..base() }, "'T', lease_seconds => 0.4"),
        (SubmitRequest { lease_seconds: Some(3601.0), ..base() }, "'T', lease_seconds => 3601"),
        (SubmitRequest { timeout_seconds: Some(0.09), ..base() }, "'T', timeout_seconds => 0.09"),
        (SubmitRequest { max_wait_seconds: Some(f64::INFINITY), ..base() }, "'T', max_wait_seconds => 'inf'"),
        (SubmitRequest { max_lost: Some(0), ..base() }, "'T', max_lost => 0"),
        (SubmitRequest { max_paid_calls: Some(1_000_001), ..base() }, "'T', max_paid_calls => 1000001"),
        (
            SubmitRequest { upstreams: (0..17).map(|i| i.to_string()).collect(), ..base() },
            "'T', upstreams => ARRAY(SELECT i::text FROM generate_series(0, 16) i)",
        ),
        (
            SubmitRequest { upstreams: vec!["a".into(), String::new()], ..base() },
            "'T', upstreams => ARRAY['a', '']",
        ),
        (
            SubmitRequest { tags: many_tags, ..base() },
            "'T', tags => (SELECT jsonb_object_agg('t' || i, '') FROM generate_series(1, 65) i)",
        ),
        (tags(String::new(), String::new()), r#"'T', tags => '{"": ""}'"#),
        (tags("a".into(), "v".repeat(513)), "'T', tags => jsonb_build_object('a', repeat('v', 513))"),
        (
            SubmitRequest { payload: Some(json!("x".repeat(1_048_575))), ..base() },
            "'T', to_jsonb(repeat('x', 1048575))",
        ),
        (
            SubmitRequest { payload: Some(json!(vec!["\"\\ "; 131_072])), ..base() },
            "'T', to_jsonb(array_fill($t$\"\\ $t$::text, ARRAY[131072]))",
        ),
    ]
}

fn accepted() -> Vec<Pair> {
    let base = || SubmitRequest { job_type: "T".into(), ..SubmitRequest::default() };
    vec![
        (base(), "'T'"),
        (SubmitRequest { job_type: "한".repeat(42), ..base() }, "repeat('한', 42)"),
        (
            SubmitRequest { idempotency_key: Some("k".repeat(512)), ..base() },
            "'T', idempotency_key => repeat('k', 512)",
        ),
        (SubmitRequest { delay_seconds: Some(31_622_400.0), ..base() }, "'T', delay_seconds => 31622400"),
        (SubmitRequest { retry_delays_seconds: Some(vec![]), ..base() }, "'T', retry_delays_seconds => '{}'"),
        (
            SubmitRequest { cooldown_seconds: Some(0.1), lease_seconds: Some(3600.0), ..base() },
            "'T', cooldown_seconds => 0.1, lease_seconds => 3600",
        ),
        (
            SubmitRequest { tags: [("a".to_owned(), "v".repeat(512))].into(), ..base() },
            "'T', tags => jsonb_build_object('a', repeat('v', 512))",
        ),
        (
            SubmitRequest { payload: Some(json!("x".repeat(1_048_574))), ..base() },
            "'T', to_jsonb(repeat('x', 1048574))",
        ),
        (
            // A mebibyte without the spaces that PostgreSQL writes, and some that count.
            SubmitRequest { payload: Some(json!(vec!["\"\\ "; 131_071])), ..base() },
            "'T', to_jsonb(array_fill($t$\"\\ $t$::text, ARRAY[131071]))",
        ),
    ]
}

#[test]
fn sql_takes_what_the_engine_takes_and_refuses_what_it_refuses_by_the_same_name() {
    with(|url| async move {
        let store = Coolant::open(&url).await.unwrap().store().clone();
        let engine = engine_over(store.clone());
        let raw = connect(&url).await;
        for (request, in_sql) in refused() {
            let Err(error) = engine.submit(&Caller::local(), request).await else {
                panic!("the engine takes {in_sql}")
            };
            let statement = format!("SELECT job_id FROM coolant.submit({in_sql})");
            let refused = raw.query_one(&statement, &[]).await.expect_err(in_sql);
            let refused = refused.as_db_error().unwrap_or_else(|| panic!("{in_sql}: {refused}"));
            assert_eq!(refused.column(), error.field_name(), "{in_sql}");
            let code = error.code().as_str();
            assert!(refused.message().starts_with(&format!("{code}: ")), "{in_sql}: {refused}, not {code}");
        }
        for (mut request, in_sql) in accepted() {
            request.trace_id = Some("0af7651916cd43dd8448eb211c80319c".into());
            let statement = format!(
                "SELECT job_id FROM coolant.submit({in_sql}, trace_id => '0af7651916cd43dd8448eb211c80319c')"
            );
            let id: String = raw.query_one(&statement, &[]).await.expect(in_sql).get(0);
            let by_sql = store.jobs(&[id.parse().unwrap()]).await.unwrap().remove(0).unwrap();
            raw.execute("UPDATE coolant.job_specs SET idempotency_key = NULL", &[]).await.unwrap();
            let by_engine = engine.submit(&Caller::local(), request).await.unwrap().job.record;
            let key = by_engine.job.spec.idempotency_key.clone();
            let spec = coolant_core::job::JobSpec { idempotency_key: key, ..(*by_sql.job.spec).clone() };
            assert_eq!(spec, *by_engine.job.spec, "{in_sql}");
            assert!(by_sql.payload == by_engine.payload, "{in_sql}");
        }
    });
}
