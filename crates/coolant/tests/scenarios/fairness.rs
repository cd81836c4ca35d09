//! Tenants that share a queue.

use std::collections::HashSet;

use serde_json::json;

use crate::api::{Api, text};
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
