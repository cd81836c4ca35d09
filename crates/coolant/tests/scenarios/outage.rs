//! Outages of PostgreSQL, on a server of the test's own: stopped, failed over, cut in the middle of a commit.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Api, Claim, text, until};
use crate::client::Call;
use crate::own_postgres::OwnPostgres;
use crate::way::{Cut, Way};
use crate::world::{Server, World, on_sqlite, run};

/// After it the store may have been back for so long before everything flows again.
const RECOVERY: Duration = Duration::from_secs(10);

fn work(n: usize) -> Value {
    json!({"job_type": "PAID", "idempotency_key": format!("k{n}"), "payload": {"n": n}})
}

/// What goes on when the store goes away: two servers, jobs that run and one that waits.
struct Scene {
    servers: [Server; 2],
    running: Vec<Claim>,
    accepted: Vec<String>,
}

impl Scene {
    async fn set(world: &World) -> Self {
        let servers = [world.serve().await, world.serve().await];
        let mut running = Vec::new();
        for server in &servers {
            server.api.create(json!({"job_type": "LONG", "lease_seconds": 120})).await;
            running.push(server.api.claim("w").await);
        }
        let accepted = vec![servers[0].api.create(work(0)).await];
        Self { servers, running, accepted }
    }

    fn api(&self, n: usize) -> &Api {
        &self.servers[n % 2].api
    }

    /// Every call during the outage says that it could not be done and when to try again.
    async fn everything_is_refused(&self) {
        for (n, claim) in self.running.iter().enumerate() {
            let api = self.api(n);
            let lease = json!({"job_id": claim.id, "lease_token": claim.token});
            let calls = [
                Call::new("GET", "/readyz"),
                Call::new("POST", "/jobs").json(&work(1)),
                Call::new("POST", "/work/claim").json(&json!({"worker": "w", "wait_seconds": 1})),
                Call::new("POST", "/work/heartbeat").json(&json!({"worker": "w", "leases": [lease]})),
                Call::new("POST", format!("/work/jobs/{}/succeed", claim.id))
                    .json(&json!({"lease_token": claim.token, "result": "of the outage"})),
            ];
            for call in calls {
                let path = call.path.clone();
                let answer = api.0.send(call).await;
                let said = answer.json();
                assert_eq!(
                    (answer.status, &said["code"]),
                    (503, &json!("STORE_UNAVAILABLE")),
                    "{path}: {said}"
                );
                let seconds = answer.header("retry-after").unwrap_or_else(|| panic!("{path}: {said}"));
                assert!(seconds.parse::<u32>().unwrap() >= 1);
            }
            assert_eq!(api.0.get("/healthz").await.status, 200, "the process lives");
        }
    }

    /// Submits until the deadline; what is accepted has to be there for ever.
    async fn keep_submitting(&mut self, first: usize, until: Instant) -> usize {
        let mut n = first;
        while Instant::now() < until {
            let answer = self.api(n).submit(&work(n)).await;
            match answer.status {
                200 | 202 => self.accepted.push(text(&answer.json()["job_id"])),
                503 => assert!(answer.header("retry-after").is_some()),
                _ => panic!("{}: {}", answer.status, answer.json()),
            }
            n += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        n
    }

    /// Without anybody restarting anything.
    async fn everything_flows(&self) {
        for (n, claim) in self.running.iter().enumerate() {
            let api = self.api(n);
            let ready = async || (api.0.get("/readyz").await.status == 200).then_some(());
            until(RECOVERY, ready).await;
            let beat = async || {
                let lease = json!({"job_id": claim.id, "lease_token": claim.token});
                let answer = api.0.post("/work/heartbeat", json!({"worker": "w", "leases": [lease]})).await;
                (answer.status == 200).then(|| text(&answer.json()["leases"][0]["state"]))
            };
            assert_eq!(until(RECOVERY, beat).await, "held");
        }
    }

    /// Nothing that was accepted is lost, and the outage made nothing run twice.
    async fn nothing_is_lost(&self, submits: usize) {
        for n in 0..submits {
            let answer = self.api(n).submit(&work(n)).await;
            assert!(answer.status == 200 || answer.status == 202, "{}", answer.json());
        }
        for (n, claim) in self.running.iter().enumerate() {
            // A success that was refused during the outage is repeated.
            self.api(n).succeed(claim, json!("of the outage")).await;
            assert_eq!(self.api(n + 1).history(&claim.id).await, ["w: succeeded"]);
        }
        let mut finished = 0;
        loop {
            let api = self.api(finished);
            let claims = api.claims("w", json!({"max": 50})).await;
            if claims.is_empty() {
                break;
            }
            for claim in &claims {
                api.succeed(claim, json!(null)).await;
                finished += 1;
            }
        }
        assert_eq!(finished, submits);
        for id in &self.accepted {
            assert_eq!(self.api(0).job(id).await["status"], "SUCCEEDED");
            assert_eq!(self.api(1).history(id).await, ["w: succeeded"]);
        }
    }
}

fn outage(signal: &'static str) {
    run(async {
        let Some(mut postgres) = OwnPostgres::start().await else { return };
        let world = postgres.world().await;
        let mut scene = Scene::set(&world).await;
        // Somebody waits for a job when the store goes away: an error or nothing, and never a hang.
        let api = *scene.api(0);
        let request = json!({"worker": "waits", "wait_seconds": 20, "job_types": ["NONE"]});
        let waiting = tokio::spawn(async move { api.0.post("/work/claim", request).await.status });
        postgres.stop(signal);
        scene.everything_is_refused().await;
        assert_eq!(waiting.await.unwrap(), 503);
        let submits = scene.keep_submitting(1, Instant::now() + Duration::from_secs(5)).await;
        postgres.start_again().await;
        scene.everything_flows().await;
        let end = Instant::now() + Duration::from_secs(1);
        let submits = scene.keep_submitting(submits, end).await;
        assert!(scene.accepted.len() > 1, "submits flow again");
        scene.nothing_is_lost(submits).await;
    });
}

#[test]
fn postgres_restart_s13_a_stopped_store_costs_waiting_and_nothing_else() {
    outage("INT");
}

#[test]
fn postgres_restart_s13_a_crashed_store_costs_waiting_and_nothing_else() {
    outage("QUIT");
}

#[test]
fn postgres_restart_s13_a_failover_leaves_nobody_on_the_old_read_only_server() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        let world = postgres.world().await;
        let mut scene = Scene::set(&world).await;
        // From here on every connection that was open is read-only for good, as to a demoted server, and
        // every new one may write.
        postgres
            .say(
                "ALTER SYSTEM SET default_transaction_read_only = on; \
                 ALTER ROLE postgres SET default_transaction_read_only = off; SELECT pg_reload_conf()",
            )
            .await;
        let submits = scene.keep_submitting(1, Instant::now() + Duration::from_secs(3)).await;
        scene.everything_flows().await;
        for n in submits..submits + 20 {
            // All connections are found to be old sooner or later, and none is asked twice.
            let accepted = until(RECOVERY, async || {
                let answer = scene.api(n).submit(&work(n)).await;
                (answer.status == 202 || answer.status == 200).then(|| text(&answer.json()["job_id"]))
            });
            scene.accepted.push(accepted.await);
        }
        scene.nothing_is_lost(submits + 20).await;
    });
}

#[test]
fn postgres_restart_s13_a_store_that_takes_no_writes_is_not_ready() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        let world = postgres.world().await;
        let mut scene = Scene::set(&world).await;
        postgres.say("ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()").await;
        // Reading would go on for ever; the sweep finds out that nothing can be written.
        for server in &scene.servers {
            let red = async || (server.api.0.get("/readyz").await.status == 503).then_some(());
            until(RECOVERY, red).await;
        }
        scene.everything_is_refused().await;
        postgres.say("ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()").await;
        scene.everything_flows().await;
        let submits = scene.keep_submitting(1, Instant::now() + Duration::from_secs(1)).await;
        scene.nothing_is_lost(submits).await;
    });
}

#[test]
fn s13_a_locked_sqlite_file_costs_waiting_and_nothing_else() {
    on_sqlite(async |world| {
        let server = world.serve().await;
        let api = server.api;
        let claim_of = async |n: usize| (api.create(work(n)).await, api.claim("w").await);
        let (running, claim) = claim_of(0).await;
        // Another process holds the file, as a tool that copies it does.
        let other = rusqlite::Connection::open(world.store.strip_prefix("sqlite:").unwrap()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let submit = tokio::spawn(async move { api.submit(&work(1)).await });
        // Reading goes on, and shows that nothing is accepted.
        assert_eq!(api.items("/jobs").await.len(), 1);
        let refused = submit.await.unwrap();
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.expect(503)["code"], "STORE_UNAVAILABLE");

        let submit = tokio::spawn(async move { api.submit(&work(1)).await });
        assert_eq!(api.items("/jobs").await.len(), 1);
        other.execute_batch("ROLLBACK").unwrap();
        submit.await.unwrap().expect(202);
        assert_eq!(api.beat("w", &claim).await, "held");
        api.succeed(&claim, json!(null)).await;
        assert_eq!(api.history(&running).await, ["w: succeeded"]);
    });
}

#[test]
fn postgres_restart_s11_a_submit_whose_commit_was_never_acknowledged_is_one_job() {
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        postgres.world().await;
        let way = Way::to(&postgres).await;
        let server = way.world().serve().await;
        let api = &server.api;
        for work in
            [json!({"job_type": "WITH_KEY", "idempotency_key": "k"}), json!({"job_type": "WITHOUT_KEY"})]
        {
            let job_type = text(&work["job_type"]);
            way.cut(&job_type, Cut::AfterCommit);
            // The server asks the store again by itself, and meets its own job.
            let id = text(&api.submit(&work).await.expect(202)["job_id"]);
            assert!(way.was_cut(), "the answer of the store was lost");
            let jobs = api.items(format!("/jobs?job_type={job_type}")).await;
            assert_eq!((jobs.len(), &jobs[0]["job_id"]), (1, &json!(id)));
            if work["idempotency_key"] != json!(null) {
                assert_eq!(api.submit(&work).await.expect(200)["job_id"], id, "never a conflict with itself");
            }
            assert_eq!(api.claim("w").await.id, id);
            api.finds_nothing("w").await;
        }
        assert_eq!(api.stat("conflict_count").await, 0.0);
    });
}
