//! Tenants that share a queue.

use std::collections::HashSet;

use serde_json::json;

use crate::api::{Api, Claim, number, text};
use crate::client::Answer;
use crate::world::World;

/// Submits jobs of a tenant.
async fn queue_up(api: &Api, tenant: &str, jobs: usize) {
    let job = json!({"job_type": "PAID", "tenant": tenant, "priority": if tenant == "a" { 10 } else { 0 }});
    for left in (0..jobs).step_by(1000).map(|done| (jobs - done).min(1000)) {
        let answer = api.0.post("/jobs/batch", json!({"jobs": vec![&job; left]})).await.expect(200);
        assert!(answer["results"].as_array().unwrap().iter().all(|result| result["outcome"] == "created"));
    }
}

/// The tenants of the jobs that a worker with that many free slots gets.
async fn claimed(api: &Api, worker: &str, slots: usize) -> Vec<String> {
    let claims = api.claims(worker, json!({"max": slots})).await;
    claims.iter().map(|claim| text(&claim.body["job"]["tenant"])).collect()
}

pub(crate) async fn s14_ten_jobs_of_a_tenant_start_within_twenty_claims_beside_ten_thousand(world: &World) {
    let servers = [world.serve().await, world.serve().await];
    let workers = [(&servers[0].api, "w0"), (&servers[1].api, "w1")];
    queue_up(workers[0].0, "a", 10_000).await;
    // One alone uses all slots of both workers.
    for (api, worker) in workers {
        assert_eq!(claimed(api, worker, 5).await, ["a"; 5]);
    }
    queue_up(workers[1].0, "b", 10).await;
    let (mut started, mut of_b) = (0, 0);
    // Slots come free one by one and in pieces, on one worker more than on the other.
    for (worker, slots) in [(0, 1), (1, 3), (0, 2), (0, 5), (1, 1), (1, 1), (0, 4), (0, 3)] {
        let tenants = claimed(workers[worker].0, workers[worker].1, slots).await;
        started += tenants.len();
        of_b += tenants.iter().filter(|tenant| *tenant == "b").count();
    }
    assert_eq!((started, of_b), (20, 10), "all of them within the next 20");
    for (api, worker) in workers {
        assert_eq!(claimed(api, worker, 5).await, ["a"; 5], "and then one is alone again");
    }
    assert_eq!(workers[0].0.stat("queue_depth").await, 10_010.0 - 40.0);
}

pub(crate) async fn s14_a_job_without_a_tenant_is_a_tenant_of_its_own(world: &World) {
    let server = world.serve().await;
    queue_up(&server.api, "a", 30).await;
    queue_up(&server.api, "b", 30).await;
    for _ in 0..30 {
        server.api.create(json!({"job_type": "PAID"})).await;
    }
    for _ in 0..10 {
        let tenants: HashSet<String> = claimed(&server.api, "w", 3).await.into_iter().collect();
        assert_eq!(tenants, ["a", "b", "default"].map(str::to_owned).into());
    }
}

pub(crate) async fn the_jobs_that_go_first_are_counted_as_tenants_take_turns(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    queue_up(api, "a", 50).await;
    let mut of_b = Vec::new();
    for priority in [0, 0, 1] {
        of_b.push(api.create(json!({"job_type": "PAID", "tenant": "b", "priority": priority})).await);
    }
    let ahead = async |id: &str| {
        let explained = api.0.get(format!("/jobs/{id}/explain")).await.expect(200);
        let reasons = explained["reasons"].as_array().unwrap().clone();
        let behind = reasons.iter().find(|reason| reason["reason"] == "behind_in_queue");
        behind.map_or_else(String::new, |reason| text(&reason["message"]))
    };
    let counted = |count: u32| format!("jobs ahead of it in queue `default`: {count}");
    assert_eq!(ahead(&of_b[2]).await, counted(1), "a turn of the other tenant");
    assert_eq!(ahead(&of_b[1]).await, counted(5), "two of its own, and three turns of the other");
}

/// Asks for leave to make a claimed job's call.
async fn permit(api: &Api, claim: &Claim) -> Answer {
    let body = json!({"job_id": claim.id, "lease_token": claim.token, "estimated_cost_usd": 0.5});
    api.0.post("/upstreams/u/permits", body).await
}

/// Settles it and ends the job.
async fn pay(api: &Api, claim: &Claim, permit: Answer) {
    let path = format!("/permits/{}/settle", text(&permit.expect(200)["permit_id"]));
    api.0.post(path, json!({"outcome": "ok", "usage": {"cost_usd": 0.5}})).await.expect(200);
    api.succeed(claim, json!(1)).await;
}

async fn paying(api: &Api, tenant: Option<&str>, jobs: usize) {
    let mut job = json!({"job_type": "PAID", "upstreams": ["u"]});
    if let Some(tenant) = tenant {
        job["tenant"] = json!(tenant);
    }
    api.0.post("/jobs/batch", json!({"jobs": vec![job; jobs]})).await.expect(200);
}

pub(crate) async fn s14_the_exhausted_rate_of_a_tenant_delays_no_other(world: &World) {
    let servers = [world.serve().await, world.serve().await];
    let apis = [&servers[0].api, &servers[1].api];
    // One call, and the next in an hour or so.
    apis[0].0.put("/tenants/a", json!({"requests_per_minute": 1})).await.expect(200);
    paying(apis[0], Some("a"), 500).await;
    let first = apis[1].claim("w1").await;
    let given = permit(apis[1], &first).await;
    pay(apis[1], &first, given).await;
    paying(apis[1], Some("b"), 10).await;
    let (mut of_b, mut put_back) = (0, Vec::new());
    for turn in 0..20 {
        let (api, worker) = (apis[turn % 2], ["w0", "w1"][turn % 2]);
        let claim = api.claims(worker, json!({})).await.pop().expect("a job");
        let answer = permit(api, &claim).await;
        if claim.body["job"]["tenant"] == "b" {
            pay(api, &claim, answer).await;
            of_b += 1;
        } else {
            let denied = answer.expect(429);
            assert_eq!(denied["code"], "RATE_LIMITED");
            let wait = number(&denied["retry_after_seconds"]);
            assert!((1.0..=60.0).contains(&wait), "{wait}");
            let body = json!({"seconds": 600, "reason": "RATE_LIMITED: the tenant's"});
            api.report(&claim, "defer", body).await.expect(200);
            put_back.push(claim.id);
        }
    }
    assert_eq!(of_b, 10, "each of them at its first try, within the next 20 claims");
    let job = apis[0].job(&put_back[0]).await;
    assert_eq!((&job["phase"], &job["attempt_count"]), (&json!("blocked"), &json!(0)));
    let why = apis[0].0.get(format!("/jobs/{}/explain", put_back[0])).await.expect(200);
    assert_eq!(why["reasons"][0]["reason"], "rate_limited");
}

pub(crate) async fn s14_a_job_without_a_tenant_spends_nobodys_budget(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    for tenant in ["a", "b"] {
        api.0.put(format!("/tenants/{tenant}"), json!({"budget_usd_per_day": 1.0})).await.expect(200);
    }
    let budget = async |tenant: &str| {
        let shown = api.0.get(format!("/tenants/{tenant}")).await.expect(200);
        (number(&shown["spent_today_usd"]), number(&shown["reserved_usd"]))
    };
    paying(api, None, 3).await;
    for _ in 0..3 {
        let claim = api.claim("w").await;
        let given = permit(api, &claim).await;
        assert_eq!((budget("a").await, budget("b").await), ((0.0, 0.0), (0.0, 0.0)));
        pay(api, &claim, given).await;
    }
    assert_eq!((budget("a").await, budget("b").await), ((0.0, 0.0), (0.0, 0.0)));
    // And the other way round: what `a` has spent stops `a` alone.
    paying(api, Some("a"), 3).await;
    for _ in 0..2 {
        let claim = api.claim("w").await;
        let given = permit(api, &claim).await;
        assert_eq!(budget("a").await.1, 0.5);
        pay(api, &claim, given).await;
    }
    assert_eq!(budget("a").await, (1.0, 0.0));
    api.finds_nothing("w").await;
    for tenant in [None, Some("b")] {
        paying(api, tenant, 1).await;
        let claim = api.claim("w").await;
        assert_eq!(claim.body["job"]["tenant"], tenant.unwrap_or("default"));
        let given = permit(api, &claim).await;
        pay(api, &claim, given).await;
    }
    assert_eq!(budget("b").await, (0.5, 0.0));
}
