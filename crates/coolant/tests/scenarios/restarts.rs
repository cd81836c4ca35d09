//! Restarts: a server that is killed has forgotten nothing that it acknowledged.

use std::collections::HashSet;

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::api::text;
use crate::client::{Call, parse};
use crate::world::World;

pub(crate) async fn s13_a_killed_server_loses_no_accepted_job(world: &World) {
    let server = world.serve().await;
    let running = server.api.create(json!({"job_type": "LONG", "lease_seconds": 60})).await;
    let claim = server.api.claim("w").await;
    let body = json!({"lease_token": claim.token, "output": 1});
    server.api.0.put(format!("/work/jobs/{running}/steps/half"), body).await.expect(200);

    // A stream of submits; in the middle of it, with some of them on their way, the server dies.
    let mut accepted = HashSet::new();
    for n in 0..20 {
        let work = json!({"job_type": "PAID", "idempotency_key": format!("k{n}")});
        accepted.insert(server.api.create(work).await);
    }
    let mut open = Vec::new();
    for n in 20..60 {
        let work = json!({"job_type": "PAID", "idempotency_key": format!("k{n}")});
        let call = Call::new("POST", "/jobs").json(&work);
        open.push(server.api.0.open(&call.bytes(&server.api.0.address.to_string())).await);
    }
    server.kill().await;
    for mut connection in open {
        let mut answer = Vec::new();
        // A connection that the kill cut off ends in an error; what came before it counts.
        let _ = connection.read_to_end(&mut answer).await;
        let answer = parse(&answer);
        if answer.status == 202 && !answer.json().is_null() {
            accepted.insert(text(&answer.json()["job_id"]));
        }
    }

    let server = world.serve().await;
    let api = &server.api;
    assert_eq!(api.beat("w", &claim).await, "held", "its worker never noticed");
    for id in &accepted {
        assert_eq!(api.job(id).await["status"], "PENDING");
    }
    // Whoever got no answer asks again, and finds the job or makes it.
    let mut all = HashSet::new();
    for n in 0..60 {
        let work = json!({"job_type": "PAID", "idempotency_key": format!("k{n}")});
        let answer = api.submit(&work).await;
        assert!(answer.status == 200 || answer.status == 202, "{}", answer.json());
        all.insert(text(&answer.json()["job_id"]));
    }
    assert!(accepted.is_subset(&all), "what was accepted keeps its id");
    let claims = api.claims("w", json!({"max": 100})).await;
    assert_eq!(claims.len(), 60, "each is handed out once");
    api.succeed(&claim, json!("done")).await;
    assert_eq!(api.history(&running).await, ["w: succeeded"]);
    assert_eq!(api.items(format!("/jobs/{running}/steps")).await.len(), 1);
}
