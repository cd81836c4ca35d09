//! Leases: who may run a job, until when, and what becomes of workers that die, stall or leave.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{Api, Claim, SOON, text, until};
use crate::world::World;

pub(crate) async fn s01_a_zombie_cannot_overwrite_the_newer_result(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(json!({"job_type": "SLOW", "lease_seconds": 2})).await;
    let zombie = api.claim("a").await;
    assert!(api.claims("b", json!({})).await.is_empty(), "the lease still runs");
    let current = api.claim("b").await;
    assert_eq!((&current.id, current.token > zombie.token), (&id, true));

    let before = api.job(&id).await;
    let refused = api.report(&zombie, "succeed", json!({"result": "of a"})).await.expect(409);
    assert_eq!(refused["code"], "LEASE_LOST");
    assert!(text(&refused["detail"]).contains("superseded"), "{refused}");
    assert_eq!(api.job(&id).await, before, "a refused success changes nothing");
    api.succeed(&current, json!("of b")).await;
    api.report(&zombie, "succeed", json!({"result": "of a"})).await.expect(409);

    let job = api.job(&id).await;
    assert_eq!((&job["status"], &job["result"]), (&json!("SUCCEEDED"), &json!("of b")));
    assert_eq!(api.history(&id).await, ["a: lost, WORKER_LOST", "b: succeeded"]);
    // The metrics have no counter of successes yet; the jobs that succeeded are counted instead.
    assert_eq!(api.items("/jobs?status=SUCCEEDED").await.len(), 1);
    assert_eq!(api.stat("job_failure_rate").await, 0.0);
}

pub(crate) async fn s02_a_dead_workers_job_comes_back_although_its_name_lives_on(world: &World) {
    let lease = Duration::from_secs(2);
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(json!({"job_type": "J"})).await;
    let asked = Instant::now();
    let request = json!({"job_types": ["J"], "lease_seconds": lease.as_secs()});
    assert_eq!(api.claims("stable", request).await.len(), 1);
    // The process dies here without a word. Its successor has the same name and other work.
    api.create(json!({"job_type": "OTHER"})).await;
    let other = api.claims("stable", json!({"job_types": ["OTHER"], "lease_seconds": 2})).await.remove(0);

    let ask = async |worker: &str| {
        until(SOON, async || {
            assert_eq!(api.beat("stable", &other).await, "held");
            let ended = api.job(&id).await["status"] == "SUCCEEDED";
            let claims = api.claims(worker, json!({"job_types": ["J"], "lease_seconds": 30})).await;
            (ended || !claims.is_empty()).then_some((claims, asked.elapsed()))
        })
        .await
    };
    let finish = async |(claims, waited): (Vec<Claim>, Duration)| {
        for claim in &claims {
            assert!(waited >= lease, "claimed again after {waited:?}");
            // One lease and one sweep interval of a second; the rest is what a busy machine takes to answer.
            assert!(waited < lease + Duration::from_secs(4), "claimed again after {waited:?}");
            api.succeed(claim, json!(null)).await;
        }
        claims.len()
    };
    let (first, second) =
        tokio::join!(async { finish(ask("stable").await).await }, async { finish(ask("b").await).await });
    assert_eq!(first + second, 1, "one of them has it");
    let attempts = api.items(format!("/jobs/{id}/attempts")).await;
    assert_eq!((attempts.len(), &attempts[1]["number"]), (2, &json!(2)));
    assert_eq!(attempts[0]["outcome"], "lost");
    assert_eq!(api.job(&id).await["attempt_count"], 2);
}

pub(crate) async fn s03_a_job_of_ten_leases_runs_once_beside_an_idle_worker(world: &World) {
    let server = world.serve().await;
    let api = server.api;
    let at_once = api.create(json!({"job_type": "LONG", "lease_seconds": LEASE.as_secs_f64()})).await;
    // Due only after several leases: a lease must not stand for the wait until the start.
    let delay = 5.0;
    let later = json!({"job_type": "LONG", "lease_seconds": LEASE.as_secs_f64(), "delay_seconds": delay});
    let later = api.create(later).await;
    assert_eq!(api.job(&later).await["phase"], "scheduled");

    let jobs = [at_once, later.clone()];
    // Both ask all the time, also while they work: what could be handed out twice would be.
    tokio::join!(work_until_ended(api, "a", &jobs), work_until_ended(api, "b", &jobs));
    for id in &jobs {
        let job = api.job(id).await;
        assert_eq!((&job["status"], &job["attempt_count"]), (&json!("SUCCEEDED"), &json!(1)));
        let history = api.history(id).await;
        assert!(history == ["a: succeeded"] || history == ["b: succeeded"], "{history:?}");
    }
    let job = api.job(&later).await;
    let waited = seconds_between(&job["created_at"], &job["started_at"]);
    assert!(waited >= delay, "handed out after {waited} s");
}

const LEASE: Duration = Duration::from_secs(2);

/// A worker that takes whatever comes and asks on, until the jobs have ended.
async fn work_until_ended(api: Api, worker: &'static str, jobs: &[String]) {
    let mut working = JoinSet::new();
    let ended = async || {
        for id in jobs {
            if api.job(id).await["status"] != "SUCCEEDED" {
                return false;
            }
        }
        true
    };
    while !ended().await {
        for claim in api.claims(worker, json!({"wait_seconds": 1})).await {
            working.spawn(async move {
                work_for_ten_leases(api, worker, &claim).await;
            });
        }
    }
    while let Some(done) = working.join_next().await {
        done.unwrap();
    }
}

async fn work_for_ten_leases(api: Api, worker: &str, claim: &Claim) {
    let end = Instant::now() + 10 * LEASE;
    let mut beats = tokio::time::interval(LEASE / 3);
    while Instant::now() < end {
        beats.tick().await;
        assert_eq!(api.beat(worker, claim).await, "held");
    }
    api.succeed(claim, json!(null)).await;
}

fn seconds_between(from: &Value, to: &Value) -> f64 {
    let at = |time: &Value| text(time).parse::<jiff::Timestamp>().unwrap();
    at(to).duration_since(at(from)).as_secs_f64()
}

pub(crate) async fn s04_a_job_that_kills_every_worker_ends_after_three_claims(world: &World) {
    let mut server = world.serve().await;
    // Out of attempts, and with attempts left but its third worker lost.
    let of_three = server.api.create(json!({"job_type": "KILLER", "max_attempts": 3})).await;
    let of_ten = server.api.create(json!({"job_type": "KILLER", "max_attempts": 10})).await;
    for round in 1..=3 {
        let mut claimed = HashSet::new();
        while claimed.len() < 2 {
            let request = json!({"max": 2, "lease_seconds": 2, "wait_seconds": 10});
            let claims = server.api.claims("dies", request).await;
            assert!(!claims.is_empty(), "nothing to claim in round {round}");
            for claim in claims {
                assert!(claimed.insert(claim.id.clone()), "two claims of a job within a lease");
                assert_eq!(claim.token, round);
            }
        }
        if round == 2 {
            server.kill().await;
            server = world.serve().await;
        }
    }
    for id in [&of_three, &of_ten] {
        let job = server.api.until_status(id, "FAILED").await;
        assert_eq!(job["phase"], "dead_lettered");
        assert_eq!((&job["last_error_code"], &job["attempt_count"]), (&json!("WORKER_LOST"), &json!(3)));
        assert_eq!(job["lost_count"], 3);
    }
    server.kill().await;
    let server = world.serve().await;
    let api = &server.api;
    // No webhooks yet, so that "one alert" is: one dead letter for each job, and the metrics say two.
    assert_eq!(api.items("/dlq").await.len(), 2);
    assert_eq!(api.stat("dlq_message_count").await, 2.0);
    let fourth = api.claims("dies", json!({"max": 2, "wait_seconds": 4})).await;
    assert!(fourth.is_empty(), "{fourth:?}");
    for id in [&of_three, &of_ten] {
        assert_eq!(api.history(id).await, ["dies: lost, WORKER_LOST"; 3]);
    }
}

pub(crate) async fn s05_jobs_given_back_at_a_shutdown_are_as_before(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let mut ids = HashSet::new();
    for _ in 0..3 {
        ids.insert(api.create(json!({"job_type": "DEPLOYED_OVER"})).await);
    }
    let held = api.claims("old", json!({"max": 3})).await;
    assert_eq!(held.len(), 3);
    for claim in &held {
        api.report(claim, "release", json!({})).await.expect(200);
        let job = api.job(&claim.id).await;
        assert_eq!((&job["status"], &job["phase"]), (&json!("PENDING"), &json!("waiting")));
        assert_eq!((&job["attempt_count"], &job["released_count"]), (&json!(0), &json!(1)));
        assert_eq!((&job["last_error_code"], &job["retry"]), (&json!(null), &json!(null)));
    }
    let again = api.claims("new", json!({"max": 3})).await;
    assert_eq!(again.iter().map(|claim| claim.id.clone()).collect::<HashSet<_>>(), ids, "claimable at once");
    for claim in &again {
        assert_eq!(claim.body["job"]["attempt_count"], 1);
        api.report(&held[0], "succeed", json!({})).await.expect(409);
        api.succeed(claim, json!(null)).await;
        assert_eq!(api.history(&claim.id).await, ["old: released", "new: succeeded"]);
    }
    assert_eq!(api.stat("retry_count").await, 0.0);
}

pub(crate) async fn s05_a_job_given_back_fifty_times_is_a_dead_letter(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(json!({"job_type": "HOT_POTATO"})).await;
    for given_back in 1..=50 {
        let claim = api.claims("leaves", json!({})).await.pop().expect("claimable at once");
        api.report(&claim, "release", json!({})).await.expect(200);
        assert_eq!(api.job(&id).await["released_count"], given_back);
    }
    api.finds_nothing("leaves").await;
    let job = api.job(&id).await;
    assert_eq!((&job["status"], &job["last_error_code"]), (&json!("FAILED"), &json!("RELEASE_LIMIT")));
    assert_eq!((&job["attempt_count"], &job["lost_count"]), (&json!(0), &json!(0)));
    assert_eq!(api.items("/dlq").await[0]["job_id"], id);
    assert_eq!(api.history(&id).await, ["leaves: released"; 50]);
}
