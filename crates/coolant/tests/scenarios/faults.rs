//! Faults between Coolant and PostgreSQL, each at a chosen point: a cut, silence, no room for a connection, a
//! session that ends, a table that somebody holds. What was accepted is there, what was refused can be repeated,
//! and everything flows again by itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::api::{Api, Claim, text, until};
use crate::client::Answer;
use crate::own_postgres::OwnPostgres;
use crate::way::{Cut, Way};
use crate::world::run;

/// After it the way is free again for so long, everything flows.
const RECOVERY: Duration = Duration::from_secs(10);

/// Refused for now, and told when to come again.
#[track_caller]
fn is_sent_away(answer: &Answer) {
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (503, &json!("STORE_UNAVAILABLE")),
        "{}",
        answer.json()
    );
    let seconds = answer.header("retry-after").expect("when to come again");
    assert!(seconds.parse::<u32>().unwrap() >= 1);
}

/// A payload that makes every answer with it large.
fn large(n: usize) -> Value {
    json!({"n": n, "text": "x".repeat(300_000)})
}

#[test]
fn postgres_restart_a_connection_cut_at_any_point_costs_a_repetition_and_nothing_else() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        postgres.world().await;
        let way = Way::to(&postgres).await;
        let server = way.world().serve().await;
        let api = &server.api;
        for (n, cut) in Cut::ALL.into_iter().enumerate() {
            let job_type = format!("CUT_{n}");
            let work = json!({"job_type": job_type, "idempotency_key": format!("k{n}"), "payload": large(n),
                "lease_seconds": 2});
            let asked = json!({"job_types": [job_type], "max": 10});

            way.cut(&job_type, cut);
            // The server asks the store again by itself, and meets its own job where there is one.
            let id = text(&api.submit(&work).await.expect(202)["job_id"]);
            assert!(way.was_cut(), "{cut:?} of a submit");
            assert_eq!(api.items(format!("/jobs?job_type={job_type}")).await.len(), 1);

            way.cut(&id, cut);
            let claim = claim(api, &asked, cut).await;
            assert!(way.was_cut(), "{cut:?} of a claim");
            assert_eq!(claim.id, id);

            way.cut(&id, cut);
            api.succeed(&claim, json!({"of": claim.token})).await;
            assert!(way.was_cut(), "{cut:?} of a success");
            let job = api.job(&id).await;
            assert_eq!((&job["status"], &job["result"]), (&json!("SUCCEEDED"), &json!({"of": claim.token})));
            let lost = vec!["w: lost, WORKER_LOST"; usize::try_from(claim.token - 1).unwrap()];
            assert_eq!(api.history(&id).await, [lost, vec!["w: succeeded"]].concat());
            assert!(api.claims("w", asked).await.is_empty(), "nothing runs twice");
        }
        assert_eq!(api.stat("conflict_count").await, 0.0);
        assert_eq!(api.stat("duplicate_request_count").await, 0.0);
    });
}

/// The one job. A claim that was committed and whose answer was lost has to run out first.
async fn claim(api: &Api, asked: &Value, cut: Cut) -> Claim {
    let mut claims = api.claims("w", asked.clone()).await;
    if claims.is_empty() {
        assert_eq!(cut, Cut::AfterCommit, "no answer was lost");
        let waiting = json!({"job_types": asked["job_types"], "wait_seconds": 20});
        claims = api.claims("w", waiting).await;
        assert_eq!(claims[0].token, 2);
    }
    assert_eq!(claims.len(), 1);
    claims.remove(0)
}

#[test]
fn postgres_restart_a_silent_server_keeps_nobody_waiting_for_ever() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        postgres.world().await;
        let way = Way::to(&postgres).await;
        let server = way.world().serve().await;
        let api = server.api;
        api.create(json!({"job_type": "HELD", "lease_seconds": 300})).await;
        let held = api.claim("w").await;

        way.be_silent(true);
        let began = Instant::now();
        let job = |n: usize| json!({"job_type": "SILENT", "idempotency_key": format!("k{n}")});
        let submits: Vec<_> =
            (0..8).map(|n| tokio::spawn(async move { api.submit(&job(n)).await })).collect();
        let claim = json!({"worker": "w", "job_types": ["SILENT"], "wait_seconds": 1});
        let claim = tokio::spawn(async move { api.0.post("/work/claim", claim).await });
        let read = tokio::spawn(async move { api.0.get("/jobs").await });
        let red = async || (api.0.get("/readyz").await.status == 503).then_some(());
        until(RECOVERY, red).await;
        assert_eq!(api.0.get("/healthz").await.status, 200, "the process lives");
        for answer in submits {
            is_sent_away(&answer.await.unwrap());
        }
        is_sent_away(&claim.await.unwrap());
        is_sent_away(&read.await.unwrap());
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(45), "they waited {waited:?}");

        way.be_silent(false);
        flows_again(&api, 8, &held).await;
    });
}

/// Within the time of recovery submits of these jobs, the beat of a lease, and claims are answered.
async fn flows_again(api: &Api, jobs: usize, held: &Claim) {
    let deadline = Instant::now() + RECOVERY;
    let ready = async || (api.0.get("/readyz").await.status == 200).then_some(());
    until(RECOVERY, ready).await;
    let mut ids = Vec::new();
    for n in 0..jobs {
        let job = json!({"job_type": "SILENT", "idempotency_key": format!("k{n}")});
        let accepted = until(RECOVERY, async || {
            let answer = api.submit(&job).await;
            matches!(answer.status, 200 | 202).then(|| text(&answer.json()["job_id"]))
        });
        ids.push(accepted.await);
    }
    assert_eq!(api.beat("w", held).await, "held");
    let mut claimed = Vec::new();
    while claimed.len() < jobs {
        let claims = api.claims("w", json!({"job_types": ["SILENT"], "max": 100, "wait_seconds": 5})).await;
        for claim in claims {
            api.succeed(&claim, json!(null)).await;
            claimed.push(claim.id);
        }
        assert!(Instant::now() < deadline, "{} of {jobs} after {RECOVERY:?}", claimed.len());
    }
    ids.sort_unstable();
    claimed.sort_unstable();
    assert_eq!(claimed, ids, "each job once");
    api.succeed(held, json!(null)).await;
}

#[test]
fn postgres_restart_a_server_without_room_for_a_connection_is_waited_for() {
    run(async {
        let Some(mut postgres) = OwnPostgres::start().await else { return };
        let world = postgres.world().await;
        postgres.say("ALTER SYSTEM SET max_connections = 20").await;
        postgres.stop("INT");
        postgres.start_again().await;
        let server = world.serve().await;
        let api = server.api;
        api.create(json!({"job_type": "HELD", "lease_seconds": 300})).await;
        let held = api.claim("w").await;
        // Others take every connection there is, also those that Coolant had.
        let (first, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut others = Vec::new();
        let is_away = async |api: Api| api.submit(&json!({"job_type": "NO_ROOM"})).await.status == 503;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            while let Ok((other, connection)) = tokio_postgres::connect(&postgres.url(), NoTls).await {
                tokio::spawn(connection);
                others.push(other);
            }
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE application_name = 'coolant' AND backend_type = 'client backend'";
            if first.query(end, &[]).await.unwrap().is_empty() && is_away(api).await {
                break;
            }
            assert!(Instant::now() < deadline);
        }
        let began = Instant::now();
        let job = json!({"job_type": "SILENT", "idempotency_key": "k0"});
        is_sent_away(&api.submit(&job).await);
        is_sent_away(&api.0.get("/readyz").await);
        is_sent_away(&api.0.post("/work/claim", json!({"worker": "w"})).await);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        drop((first, others));
        let ready = async || (api.0.get("/readyz").await.status == 200).then_some(());
        until(RECOVERY, ready).await;
        // What was refused while there was no room was not accepted by half.
        assert!(api.items("/jobs?job_type=NO_ROOM").await.is_empty());
        flows_again(&api, 2, &held).await;
    });
}

#[test]
fn postgres_restart_a_table_that_somebody_holds_is_waited_for_with_an_end() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        let world = postgres.world().await;
        let server = world.serve().await;
        let api = server.api;
        api.create(json!({"job_type": "HELD", "lease_seconds": 300})).await;
        let held = api.claim("w").await;
        let (other, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute("BEGIN; LOCK TABLE coolant.jobs IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let began = Instant::now();
        let job = |n: usize| json!({"job_type": "SILENT", "idempotency_key": format!("k{n}")});
        let submits: Vec<_> =
            (0..8).map(|n| tokio::spawn(async move { api.submit(&job(n)).await })).collect();
        for answer in submits {
            is_sent_away(&answer.await.unwrap());
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(15), "they waited {waited:?}");
        other.batch_execute("ROLLBACK").await.unwrap();
        flows_again(&api, 8, &held).await;
    });
}
