//! Idempotency keys: the same work is the same job, whatever became of it and however often it is asked for.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Api, SOON, number, text, until};
use crate::client::{Answer, Call};
use crate::world::World;

/// What became of a submit: the status, the job's id, and its status.
fn outcome(answer: &Answer) -> (u16, String, String) {
    let status = answer.status;
    assert!(status == 200 || status == 202, "{status}: {}", answer.json());
    let job = answer.json();
    (status, text(&job["job_id"]), text(&job["status"]))
}

pub(crate) async fn s06_a_storm_of_retries_starts_one_execution(world: &World) {
    let work = json!({"job_type": "PAID", "idempotency_key": "k", "payload": {"n": 1}, "max_attempts": 2,
        "retry_delays_seconds": [0], "cooldown_seconds": 5, "if_failed": "retry"});
    let server = world.serve().await;
    let id = server.api.create(work.clone()).await;
    for _ in 0..2 {
        let claim = server.api.claim("w").await;
        server.api.fail(&claim, "BROKE", "handler_error").await;
    }
    let cooling = server.api.submit(&work).await;
    assert!(cooling.header("retry-after").is_some_and(|seconds| ("1"..="5").contains(&seconds)));
    let retry = &cooling.json()["retry"];
    let left = number(&retry["in_seconds"]);
    assert!(left > 0.0 && left <= 5.0, "{left}");
    server.kill().await;

    let server = world.serve().await;
    let api = &server.api;
    let client = async || {
        let mut answers = Vec::new();
        let mut pace = tokio::time::interval(Duration::from_millis(500));
        // Every client goes on until it is told of an execution, as people press a button.
        while answers.last().is_none_or(|(_, _, status)| status == "FAILED") {
            pace.tick().await;
            answers.push(outcome(&api.submit(&work).await));
            assert!(answers.len() < 60, "still nothing after 30 s");
        }
        answers
    };
    let clients = futures::future::join_all((0..10).map(|_| client())).await;
    let answers: Vec<_> = clients.into_iter().flatten().collect();
    let before = answers.iter().filter(|(.., status)| status == "FAILED").count();
    assert!(before >= 10, "they submitted before its end too: {before}");
    assert!(answers.iter().all(|(_, job, _)| *job == id), "always the same job");
    assert_eq!(answers.iter().filter(|(status, ..)| *status == 202).count(), 1, "one of them reopens it");

    let claim = api.claim("w").await;
    let started = text(&api.items(format!("/jobs/{id}/attempts")).await[2]["started_at"]);
    assert!(started >= text(&retry["at"]), "{started} lies within the cooldown");
    api.finds_nothing("w").await;
    api.succeed(&claim, json!({"paid": "once"})).await;
    for _ in 0..3 {
        let again = api.submit(&work).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.expect(200)["result"], json!({"paid": "once"}));
    }
    api.finds_nothing("w").await;
    let history = ["w: failed, BROKE", "w: failed, BROKE", "w: succeeded"];
    assert_eq!(api.history(&id).await, history);
}

pub(crate) async fn s07_a_permanent_failure_waits_for_a_new_key_or_an_operator(world: &World) {
    let work = |version: u32| {
        json!({"job_type": "PAID", "idempotency_key": format!("doc:v{version}"), "payload": {"version": version},
            "cooldown_seconds": 0, "if_failed": "retry"})
    };
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(work(1)).await;
    let claim = api.claim("w").await;
    let failed = api.fail(&claim, "DOCUMENT_ENCRYPTED", "invalid_document").await;
    assert_eq!((&failed["status"], &failed["retry"]), (&json!("FAILED"), &json!(null)));

    let same = api.submit(&work(1)).await;
    assert_eq!(same.header("retry-after"), None);
    let same = same.expect(200);
    assert_eq!((&same["job_id"], &same["status"]), (&json!(id), &json!("FAILED")));
    assert_eq!((&same["last_error_class"], &same["retry"]), (&json!("invalid_document"), &json!(null)));
    let refused = api.0.post(format!("/jobs/{id}/retry"), json!({})).await.expect(409);
    assert_eq!(refused["code"], "PERMANENT_FAILURE");
    assert_eq!(refused["retry_after_seconds"], json!(null));
    api.finds_nothing("w").await;

    let new = api.create(work(2)).await;
    assert_ne!(new, id);
    let claim = api.claim("w").await;
    assert_eq!(claim.id, new);
    api.succeed(&claim, json!(null)).await;

    let retry = format!("/jobs/{id}/retry");
    api.0.post(&retry, json!({"force": true})).await.expect(400);
    assert!(api.items("/audit").await.is_empty());
    api.0.post(&retry, json!({"force": true, "reason": "the password came by mail"})).await.expect(202);
    let claim = api.claim("w").await;
    assert_eq!(claim.id, id);
    api.finds_nothing("w").await;
    api.succeed(&claim, json!(null)).await;
    let audit = api.items("/audit").await;
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!((&audit[0]["action"], &audit[0]["target"]), (&json!("job.retry.forced"), &json!(id)));
    assert_eq!(audit[0]["reason"], "the password came by mail");
    assert_eq!(api.history(&id).await, ["w: failed, DOCUMENT_ENCRYPTED", "w: succeeded"]);
}

pub(crate) async fn s09_a_key_is_the_same_work_for_one_tenant(world: &World) {
    let work = |tenant: &str, payload: &str| {
        let payload: Value = serde_json::from_str(payload).unwrap();
        json!({"job_type": "PAID", "idempotency_key": "k", "tenant": tenant, "payload": payload})
    };
    let server = world.serve().await;
    let api = &server.api;
    let id = api.create(work("a", r#"{"n": 1, "deep": {"x": [1, 2], "y": null}}"#)).await;
    let claim = api.claim("w").await;
    api.succeed(&claim, json!("of a")).await;
    let before = api.job(&id).await;

    let other = api.submit(&work("a", r#"{"n": 2, "deep": {"x": [1, 2], "y": null}}"#)).await.expect(422);
    assert_eq!(other["code"], "IDEMPOTENCY_KEY_REUSED");
    assert_eq!((&other["fields"], &other["job_id"]), (&json!(["payload.n"]), &json!(id)));
    let mut other_type = work("a", r#"{"n": 1, "deep": {"x": [1, 2], "y": null}}"#);
    other_type["job_type"] = json!("OTHER");
    api.submit(&other_type).await.expect(422);
    assert_eq!(api.job(&id).await, before, "a refused submit changes nothing");
    assert_eq!(api.items("/jobs").await.len(), 1, "a refused submit makes nothing");
    assert_eq!(api.stat("conflict_count").await, 2.0);

    // The same by meaning, written otherwise. As text: a JSON library may write numbers its own way.
    let reordered = r#"{"payload": {"deep": {"y": null, "x": [1.0, 2e0]}, "n": 1.0},
        "tenant": "a", "idempotency_key": "k", "job_type": "PAID"}"#;
    let same = api.0.send(Call::new("POST", "/jobs").json_text(reordered)).await;
    assert_eq!(same.header("idempotent-replayed"), Some("true"));
    assert_eq!(same.expect(200)["result"], "of a");

    let foreign = api.submit(&work("b", r#"{"n": 3}"#)).await.expect(202);
    assert_ne!(foreign["job_id"], id);
    assert_eq!((&foreign["result"], &foreign["attempt_count"]), (&json!(null), &json!(0)));
    assert_eq!(api.items("/jobs?tenant=b").await.len(), 1);
    assert_eq!(api.stat("conflict_count").await, 2.0);
}

pub(crate) async fn s10_a_hundred_submits_at_once_on_two_servers_make_one_job(world: &World) {
    let servers = [world.serve().await, world.serve().await];
    let work = json!({"job_type": "PAID", "idempotency_key": "k", "payload": {"n": 1}});
    let submits = (0..100).map(|i| {
        let (api, work) = (servers[i % 2].api, work.clone());
        // Tasks of their own, so that they really run side by side.
        tokio::spawn(async move { outcome(&api.submit(&work).await) })
    });
    let answers = futures::future::join_all(submits.collect::<Vec<_>>()).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let ids: HashSet<_> = answers.iter().map(|(_, id, _)| id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(answers.iter().filter(|(status, ..)| *status == 202).count(), 1, "one made it");
    for server in &servers {
        assert_eq!(server.api.stat("duplicate_request_count").await, 99.0);
        assert_eq!(server.api.stat("conflict_count").await, 0.0);
    }
    let claim = servers[0].api.claim("w").await;
    servers[1].api.finds_nothing("w").await;
    servers[1].api.succeed(&claim, json!(null)).await;
    assert_eq!(servers[0].api.history(&claim.id).await, ["w: succeeded"]);
}

pub(crate) async fn s10_a_hundred_equal_submits_in_one_batch_make_one_job(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let work = json!({"job_type": "PAID", "idempotency_key": "k"});
    let answer = api.0.post("/jobs/batch", json!({"jobs": vec![work; 100]})).await.expect(200);
    let results = answer["results"].as_array().unwrap();
    let of = |outcome: &str| results.iter().filter(|result| result["outcome"] == outcome).count();
    assert_eq!((results.len(), of("created"), of("existing")), (100, 1, 99));
    let ids: HashSet<_> = results.iter().map(|result| result["job"]["job_id"].to_string()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(api.stat("duplicate_request_count").await, 99.0);
    assert_eq!(api.claims("w", json!({"max": 100})).await.len(), 1);
}

pub(crate) async fn s11_a_submit_whose_answer_was_lost_is_found_again(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    // Cut at once, whether the submit was committed by then or not; and cut when it surely was.
    for (key, is_committed) in [("cut-at-once", false), ("cut-after-the-commit", true)] {
        let work = json!({"job_type": "PAID", "idempotency_key": key});
        let call = Call::new("POST", "/jobs").json(&work).bytes(&api.0.address.to_string());
        let connection = api.0.open(&call).await;
        let mut kept = None;
        if is_committed {
            kept = Some(until(SOON, async || find(api, key).await).await);
        }
        drop(connection);
        let retried = api.submit(&work).await;
        assert!(retried.status == 202 || retried.status == 200, "{}", retried.json());
        assert!(!is_committed || retried.status == 200, "it was there already");
        let job = retried.json();
        assert_eq!(job["status"], "PENDING");
        if let Some(kept) = kept {
            assert_eq!(job["job_id"], kept);
        }
        let claim = api.claim("w").await;
        assert_eq!(job["job_id"], claim.id);
        // The cut submit may come through only now; it finds its job too.
        api.succeed(&claim, json!(null)).await;
        assert_eq!(api.submit(&work).await.expect(200)["status"], "SUCCEEDED");
        api.finds_nothing("w").await;
        assert_eq!(api.items(format!("/jobs?idempotency_key={key}")).await.len(), 1);
    }
}

async fn find(api: &Api, key: &str) -> Option<Value> {
    api.items(format!("/jobs?idempotency_key={key}")).await.first().map(|job| job["job_id"].clone())
}
