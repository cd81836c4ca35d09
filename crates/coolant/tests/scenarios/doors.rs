//! Doors: while a job cools down, whoever asks for it in whatever way is told the same instant.

use serde_json::{Value, json};

use crate::api::{Api, number, text};
use crate::client::Call;
use crate::provider::{Provider, Reply};
use crate::world::World;

/// Asks at every door that has one for a job in this state, and compares what they say.
async fn compare_doors(world: &World, api: &Api, work: &Value, id: &str) {
    let job = api.job(id).await;
    let (at, first) = (text(&job["retry"]["at"]), number(&job["retry"]["in_seconds"]));
    assert!(first > 0.0);
    let mut said = vec![first];

    let retry = api.0.post(format!("/jobs/{id}/retry"), json!({})).await;
    let header = retry.header("retry-after").map(str::to_owned);
    let refused = retry.expect(429);
    assert_eq!(refused["code"], "COOLING_DOWN");
    let left = number(&refused["retry_after_seconds"]);
    assert_eq!(header, Some(format!("{}", left.ceil())), "whole seconds, rounded up");
    said.push(left);

    for if_failed in ["return", "retry"] {
        let mut work = work.clone();
        work["if_failed"] = json!(if_failed);
        let submitted = api.submit(&work).await;
        let header = submitted.header("retry-after").map(str::to_owned);
        let submitted = submitted.expect(200);
        assert_eq!((&submitted["job_id"], &submitted["retry"]["at"]), (&json!(id), &json!(at)));
        let left = number(&submitted["retry"]["in_seconds"]);
        assert_eq!(header, Some(format!("{}", left.ceil())));
        said.push(left);
    }

    api.finds_nothing("w").await;
    let explained = api.0.get(format!("/jobs/{id}/explain")).await.expect(200);
    let reason = &explained["reasons"][0];
    assert_eq!((&reason["reason"], &reason["until"]), (&json!("cooling"), &json!(at)));

    // The command is a door like the others: 75 says that it may pass later.
    let retried = world.command(&["jobs", "retry", id]).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&retried.stderr);
    assert_eq!(retried.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("retry possible in"), "{stderr}");

    assert!(said.is_sorted_by(|a, b| a >= b), "time goes one way: {said:?}");
    // They were asked one after the other, and each says what is left at its moment.
    assert!(first - said[said.len() - 1] < 20.0, "{said:?}");
    assert_eq!(api.job(id).await["retry"]["at"], at, "asking moves nothing");
}

pub(crate) async fn every_door_of_a_failed_job_says_the_same_seconds(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let work = json!({"job_type": "PAID", "idempotency_key": "k", "max_attempts": 1});
    let id = api.create(work.clone()).await;
    let claim = api.claim("w").await;
    let failed = api.fail(&claim, "BROKE", "handler_error").await;
    assert_eq!(failed["status"], "FAILED");
    let left = number(&failed["retry"]["in_seconds"]);
    assert!((299.0..=300.0).contains(&left), "the default cooldown is 5 min: {left}");
    compare_doors(world, api, &work, &id).await;

    let at = &api.job(&id).await["retry"]["at"];
    let letter = api.0.get(format!("/dlq/{id}")).await.expect(200);
    assert_eq!((&letter["retry"]["at"], &letter["retry"]["automatic"]), (at, &json!(false)));
    let plan = api.0.post("/dlq/redrive", json!({"dry_run": false})).await.expect(202);
    assert_eq!((&plan["matched"], &plan["redriven"]), (&json!(1), &json!(0)));
    let (reason, message) = (text(&plan["skipped"][0]["reason"]), text(&letter["retry"]["message"]));
    // "5 min" within the first second, "4 min 59 s" and so on after it.
    for said in [&message, reason.strip_prefix("cooling down; ").unwrap()] {
        let left = said.strip_prefix("retry possible in ").unwrap();
        assert!(left == "5 min" || left.starts_with("4 min "), "{said}");
    }
    assert_eq!(api.history(&id).await, ["w: failed, BROKE"]);
}

pub(crate) async fn every_door_of_a_job_between_two_tries_says_the_same_seconds(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let work = json!({"job_type": "PAID", "idempotency_key": "k", "retry_delays_seconds": [60]});
    let id = api.create(work.clone()).await;
    let claim = api.claim("w").await;
    let failed = api.fail(&claim, "BROKE", "handler_error").await;
    assert_eq!((&failed["status"], &failed["retry"]["automatic"]), (&json!("PENDING"), &json!(true)));
    let left = number(&failed["retry"]["in_seconds"]);
    assert!((59.0..=72.0).contains(&left), "60 s and up to a fifth more: {left}");
    compare_doors(world, api, &work, &id).await;
    assert_eq!(api.job(&id).await["phase"], "cooling");
    assert_eq!(api.history(&id).await, ["w: failed, BROKE"]);
}

pub(crate) async fn an_operator_passes_the_cooldown_on_record(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(json!({"job_type": "PAID", "max_attempts": 1})).await;
    let claim = api.claim("w").await;
    api.fail(&claim, "BROKE", "handler_error").await;
    let forced = json!({"force": true, "reason": "the provider says it is mended"});
    let reopened = api.0.post(format!("/jobs/{id}/retry"), forced).await.expect(202);
    assert_eq!((&reopened["status"], &reopened["retry"]), (&json!("PENDING"), &json!(null)));
    let claim = api.claim("w").await;
    assert_eq!(claim.id, id);
    api.succeed(&claim, json!(null)).await;
    let audit = api.items("/audit").await;
    let entry = (&audit[0]["action"], &audit[0]["target"], &audit[0]["reason"]);
    assert_eq!(entry, (&json!("job.retry.forced"), &json!(id), &json!("the provider says it is mended")));
    assert_eq!(api.stat("dlq_message_count").await, 0.0);
}

pub(crate) async fn twenty_presses_of_retry_make_one_paid_call(world: &World) {
    let provider = Provider::start();
    let busy = r#"{"error": {"message": "overloaded", "type": "overloaded_error"}}"#;
    provider.plan([Reply::Refuse(503, vec![("Retry-After", "4".into())], busy.into())]);
    let base_url = provider.base_url();
    let embedder = [("COOLANT_EMBEDDING_BASE_URL", base_url.as_str()), ("COOLANT_EMBEDDING_MODEL", "fake-1")];
    let server = world.serve_working(&embedder).await;
    let api = &server.api;

    let document = Call::new("PUT", "/documents/d").header("Content-Type", "text/plain");
    api.0.send(document.body("a short text that makes one call")).await;
    let index = async || api.0.post("/documents/d/index", json!({})).await;
    let id = text(&index().await.expect(202)["job_id"]);
    tokio::task::spawn_blocking({
        let provider = provider.clone();
        move || provider.wait_refused(1)
    })
    .await
    .unwrap();

    // The user sees that nothing moves, and presses everything there is.
    for press in 0..20 {
        let answer = match press % 2 {
            0 => api.0.post(format!("/jobs/{id}/retry"), json!({})).await,
            _ => index().await,
        };
        assert!([200, 409, 429].contains(&answer.status), "{}: {}", answer.status, answer.json());
        if answer.status == 200 {
            assert_eq!(answer.json()["job_id"], json!(id));
        }
    }
    let job = api.until_status(&id, "SUCCEEDED").await;
    assert_eq!((&job["attempt_count"], &job["deferred_count"]), (&json!(1), &json!(1)));
    assert_eq!((provider.refused(), provider.calls()), (1, 1), "calls refused and calls paid");
    assert_eq!(job["usage"]["calls"], 1);
    // Pressed once more: it is done, and stays so.
    assert_eq!(api.0.post(format!("/jobs/{id}/retry"), json!({})).await.expect(409)["code"], "JOB_SUCCEEDED");
    assert_eq!(index().await.expect(200)["job_id"], json!(id));
    assert_eq!(provider.calls(), 1);
}
