//! Steps: what an attempt finished is not paid for again.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::api::{Api, Claim, number};
use crate::client::Answer;
use crate::world::World;

const CHUNKS: usize = 100;

/// Keeps a chunk's vector, with the paid call that made it.
async fn checkpoint(api: &Api, claim: &Claim, chunk: usize) -> Answer {
    let usage = json!({"upstream": "fake/embed", "model": "embed", "input_tokens": 10, "cost_usd": 0.001});
    let body = json!({"lease_token": claim.token, "output": {"chunk": chunk}, "usage": usage});
    api.0.put(format!("/work/jobs/{}/steps/chunk-{chunk:03}", claim.id), body).await
}

/// Two decimal numbers that say the same amount of money.
fn assert_usd(value: &Value, expected: f64) {
    assert!((number(value) - expected).abs() < 1e-9, "{value} is not {expected}");
}

pub(crate) async fn s17_a_second_worker_goes_on_at_chunk_61(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let work = json!({"job_type": "INDEX", "idempotency_key": "doc:v1:p1", "payload": {"chunks": CHUNKS}});
    let id = api.create(work.clone()).await;
    // Long enough for its sixty writes on a busy machine.
    let dying = api.claims("a", json!({"lease_seconds": 8})).await.remove(0);
    for chunk in 1..=60 {
        checkpoint(api, &dying, chunk).await.expect(200);
    }
    // It dies here: no beat follows, and the claim below waits for the end of its lease.
    let next = api.claim("b").await;
    assert_eq!(next.id, id);
    let late = checkpoint(api, &dying, 61).await.expect(409);
    assert_eq!(late["code"], "LEASE_LOST");

    let done: HashSet<&String> = next.body["steps"].as_object().unwrap().keys().collect();
    assert_eq!(done.len(), 60, "the claim says which are done");
    assert_eq!(next.body["steps"]["chunk-060"], json!({"chunk": 60}), "and what they gave");
    let missing: Vec<usize> = (1..=CHUNKS).filter(|n| !done.contains(&format!("chunk-{n:03}"))).collect();
    assert_eq!(missing, (61..=CHUNKS).collect::<Vec<_>>());
    for chunk in &missing {
        checkpoint(api, &next, *chunk).await.expect(200);
    }
    api.succeed(&next, json!({"chunks": CHUNKS})).await;

    let steps = api.items(format!("/jobs/{id}/steps")).await;
    let of = |attempt: u32| steps.iter().filter(|step| step["attempt"] == attempt).count();
    assert_eq!((steps.len(), of(1), of(2)), (CHUNKS, 60, 40));
    let names: HashSet<String> = steps.iter().map(|step| step["name"].to_string()).collect();
    assert_eq!(names.len(), CHUNKS, "no chunk is there twice");
    let one = api.0.get(format!("/jobs/{id}/steps/chunk-061")).await.expect(200);
    assert_eq!((&one["output"], &one["attempt"]), (&json!({"chunk": 61}), &json!(2)));

    let job = api.job(&id).await;
    assert_eq!((&job["usage"]["calls"], &job["usage"]["input_tokens"]), (&json!(100), &json!(1000)));
    assert_usd(&job["usage"]["cost_usd"], 0.1);
    assert_usd(&job["usage"]["wasted_cost_usd"], 0.0);
    let again = api.submit(&work).await.expect(200);
    assert_eq!((&again["status"], &again["usage"]), (&json!("SUCCEEDED"), &job["usage"]));
    api.finds_nothing("b").await;
    assert_eq!(api.stat("paid_calls").await, 100.0);
    let stats = api.0.get("/stats").await.expect(200);
    assert_usd(&stats["spent_usd"], 0.1);
    assert_eq!(api.history(&id).await, ["a: lost, WORKER_LOST", "b: succeeded"]);
}
