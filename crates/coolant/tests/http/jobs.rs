//! A job's life over HTTP: submit, claim, settle, retry, cancel, explain, and what waits for it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::support::client::{Call, parse};
use crate::support::server::Server;

#[tokio::test]
async fn a_job_runs_from_submit_to_result() {
    let server = Server::start().await;
    let call = Call::new("POST", "/jobs")
        .header("Idempotency-Key", "문서:1")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .json(&json!({"job_type": "T", "payload": {"a": 1}, "tags": {"team": "search"}}));
    let first = server.client.send(call.clone()).await;
    assert_eq!(first.status, 202);
    let job = first.json();
    let id = job["job_id"].as_str().unwrap();
    assert_eq!(first.header("location"), Some(format!("/jobs/{id}").as_str()));
    assert!(first.header("traceparent").unwrap().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    assert_eq!(job["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&job["status"], &job["phase"]), (&json!("PENDING"), &json!("waiting")));
    assert_eq!(job["created_at"], "2025-11-29T12:00:00.000Z");

    let again = server.client.send(call).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.json()["job_id"], id);

    let (claimed, token) = server.claim().await;
    assert_eq!(claimed, id);
    let usage = json!({"model": "m", "input_tokens": 10, "output_tokens": 2, "cost_usd": 0.0021});
    let step = json!({"lease_token": token, "output": [1, 2], "usage": usage});
    server.client.put(format!("/work/jobs/{id}/steps/a%2Fb"), step).await.expect(200);
    let beat = json!({"worker": "w", "leases": [
        {"job_id": id, "lease_token": token, "progress": {"done": 1, "total": 2}},
        {"job_id": id, "lease_token": token + 1},
    ]});
    let beat = server.client.post("/work/heartbeat", beat).await.expect(200);
    assert_eq!(beat["leases"][0]["state"], "held");
    assert_eq!(beat["leases"][0]["lease_expires_at"], "2025-11-29T12:00:30.000Z");
    assert_eq!(beat["leases"][1]["state"], "lost");
    let done = json!({"lease_token": token, "result": {"ok": true}});
    let settled = server.client.post(format!("/work/jobs/{id}/succeed"), done.clone()).await.expect(200);
    assert_eq!((&settled["status"], &settled["repeated"]), (&json!("SUCCEEDED"), &json!(false)));
    let settled = server.client.post(format!("/work/jobs/{id}/succeed"), done).await.expect(200);
    assert_eq!(settled["repeated"], true);

    let job = server.client.get(format!("/jobs/{id}?wait=60")).await.expect(200);
    assert_eq!((&job["result"], &job["usage"]["cost_usd"]), (&json!({"ok": true}), &json!(0.0021)));
    let step = server.client.get(format!("/jobs/{id}/steps/a%2Fb")).await.expect(200);
    assert_eq!((&step["output"], &step["attempt"]), (&json!([1, 2]), &json!(1)));
    let attempts = server.client.get(format!("/jobs/{id}/attempts")).await.expect(200);
    assert_eq!(attempts["items"][0]["outcome"], "succeeded");
    let found = server.client.get("/jobs?tag=team:search&status=SUCCEEDED").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn every_door_is_closed_until_the_same_instant_while_a_failure_cools() {
    let server = Server::start().await;
    let body = json!({"job_type": "T", "idempotency_key": "k", "cooldown_seconds": 252.1});
    let id = server.dead_letter(body.clone()).await;
    let mut body = body;
    body["if_failed"] = json!("retry");
    body["max_attempts"] = json!(1);

    let retry = server.client.post(format!("/jobs/{id}/retry"), json!({})).await;
    assert_eq!((retry.status, retry.header("retry-after")), (429, Some("253")));
    let problem = retry.json();
    assert_eq!((&problem["code"], &problem["retry_after_seconds"]), (&json!("COOLING_DOWN"), &json!(252.1)));
    let submit = server.client.post("/jobs", body.clone()).await;
    assert_eq!((submit.status, submit.header("retry-after")), (200, Some("253")));
    assert_eq!(submit.json()["retry"]["message"], "retry possible in 4 min 13 s");
    let redrive = server.client.post("/dlq/redrive", json!({"dry_run": false})).await.expect(202);
    assert_eq!((&redrive["matched"], &redrive["left"]), (&json!(1), &json!(0)));
    assert_eq!(redrive["skipped"][0]["reason"], "cooling down; retry possible in 4 min 13 s");
    let explained = server.client.get(format!("/jobs/{id}/explain")).await.expect(200);
    assert_eq!(explained["reasons"][0]["reason"], "cooling");
    assert_eq!(server.client.get("/stats").await.expect(200)["blocked_calls"], 3);

    server.clock.advance(Duration::from_millis(252_100));
    let submit = server.client.post("/jobs", body).await.expect(202);
    assert_eq!((&submit["job_id"], &submit["status"]), (&json!(id), &json!("PENDING")));
    let again = server.client.post(format!("/jobs/{id}/retry"), json!({})).await.expect(409);
    assert_eq!(again["code"], "JOB_NOT_ENDED");
}

#[tokio::test]
async fn a_permanent_failure_is_reopened_by_force_with_a_reason_alone() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T", "upstreams": ["u"]})).await;
    let (_, token) = server.claim().await;
    let error = json!({"code": "DOCUMENT_ENCRYPTED", "class": "invalid_document"});
    let failed = json!({"lease_token": token, "error": error});
    let failed = server.client.post(format!("/work/jobs/{id}/fail"), failed).await.expect(200);
    assert_eq!(failed["class"], "invalid_document");
    assert_eq!((&failed["status"], &failed["retry"]), (&json!("FAILED"), &Value::Null));
    let retry = server.client.post(format!("/jobs/{id}/retry"), json!({})).await.expect(409);
    assert_eq!(retry["code"], "PERMANENT_FAILURE");
    let retry = server.client.post(format!("/jobs/{id}/retry"), json!({"force": true})).await.expect(400);
    assert_eq!(retry["field"], "reason");
    let forced = json!({"force": true, "reason": "the file was replaced"});
    server.client.post(format!("/jobs/{id}/retry"), forced).await.expect(202);
    let audit = server.client.get("/audit").await.expect(200);
    assert_eq!(audit["items"][0]["action"], "job.retry.forced");
    assert_eq!(audit["items"][0]["reason"], "the file was replaced");
}

#[tokio::test]
async fn a_rate_limit_defers_the_job_that_names_its_upstream() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T", "upstreams": ["openai/m"]})).await;
    let (_, token) = server.claim().await;
    let http = json!({"status": 429, "headers": {"Retry-After": "5"}, "body": "slow down"});
    let failed = json!({"lease_token": token, "error": {"http": http}});
    let failed = server.client.post(format!("/work/jobs/{id}/fail"), failed).await.expect(200);
    assert_eq!((&failed["status"], &failed["class"]), (&json!("PENDING"), &json!("rate_limited")));
    let job = server.client.get(format!("/jobs/{id}")).await.expect(200);
    assert_eq!((&job["phase"], &job["attempt_count"]), (&json!("blocked"), &json!(0)));
    assert_eq!(job["last_error_code"], "LLM_RATE_LIMIT");
    let explained = server.client.get(format!("/jobs/{id}/explain")).await.expect(200);
    assert_eq!(explained["reasons"][0]["reason"], "upstream_closed");
    assert_eq!(explained["reasons"][0]["until"], explained["earliest_at"]);
}

#[tokio::test]
async fn a_stale_token_changes_nothing_and_is_told_why() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T", "lease_seconds": 2})).await;
    let (_, first) = server.claim().await;
    server.clock.advance(Duration::from_secs(3));
    let (_, second) = server.claim().await;
    assert!(second > first);
    for (path, rest) in [
        ("succeed", json!({"result": "stale"})),
        ("fail", json!({"error": {"code": "X"}})),
        ("defer", json!({"seconds": 1, "reason": "later"})),
        ("release", json!({})),
    ] {
        let mut body = rest;
        body["lease_token"] = json!(first);
        let refused = server.client.post(format!("/work/jobs/{id}/{path}"), body).await.expect(409);
        assert_eq!(refused["code"], "LEASE_LOST", "{path}");
    }
    let step = json!({"lease_token": first, "output": 1});
    let refused = server.client.put(format!("/work/jobs/{id}/steps/s"), step).await.expect(409);
    assert_eq!(refused["code"], "LEASE_LOST");
    let settle = json!({"settlements": [
        {"job_id": id, "lease_token": first, "outcome": "succeed", "result": "stale"},
        {"job_id": id, "lease_token": second, "outcome": "succeed", "result": "good"},
        {"job_id": id, "outcome": "succeed"},
        {"job_id": id, "lease_token": second, "outcome": "defer"},
    ]});
    let settled = server.client.post("/work/settle", settle).await.expect(200);
    assert_eq!(settled["results"][0]["error"]["code"], "LEASE_LOST");
    assert_eq!(settled["results"][1]["status"], "SUCCEEDED");
    assert_eq!(settled["results"][2]["error"]["field"], "settlements[2].lease_token");
    assert_eq!(settled["results"][3]["error"]["field"], "seconds");
    let job = server.client.get(format!("/jobs/{id}")).await.expect(200);
    assert_eq!(job["result"], "good");
}

#[tokio::test]
async fn a_cancelled_run_learns_it_at_its_next_beat_and_its_success_is_refused() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T"})).await;
    let (_, token) = server.claim().await;
    let job = server.client.post(format!("/jobs/{id}/cancel"), json!({})).await.expect(202);
    assert_eq!((&job["status"], &job["cancel_requested"]), (&json!("RUNNING"), &json!(true)));
    let usage = json!({"cost_usd": 0.5});
    let done = json!({"lease_token": token, "result": 1, "usage": usage});
    let refused = server.client.post(format!("/work/jobs/{id}/succeed"), done).await.expect(409);
    assert_eq!(refused["code"], "LEASE_LOST");
    assert!(refused["detail"].as_str().unwrap().contains("cancelled"));
    let job = server.client.send(Call::new("POST", format!("/jobs/{id}/cancel"))).await.expect(200);
    assert_eq!((&job["status"], &job["usage"]["cost_usd"]), (&json!("CANCELLED"), &json!(0.5)));
}

#[tokio::test]
async fn one_bad_item_of_a_batch_spoils_no_other() {
    let server = Server::start().await;
    let batch = json!({"jobs": [
        {"job_type": "T", "idempotency_key": "a"},
        {"job_type": "T", "idempotency_key": "a"},
        {"job_type": "T", "idempotency_key": "a", "payload": {"x": 1}},
        {"job_type": "T", "priority": 11},
        {"job_type": "T", "colour": "red"},
        7,
        {"job_type": "LLM_CALL"},
    ]});
    let answer = server.client.post("/jobs/batch", batch).await.expect(200);
    let outcomes: Vec<_> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["outcome"].clone(), r["error"]["code"].clone()))
        .collect();
    let expected = [
        ("created", Value::Null),
        ("existing", Value::Null),
        ("conflict", json!("IDEMPOTENCY_KEY_REUSED")),
        ("invalid", json!("INVALID_FIELD")),
        ("invalid", json!("UNKNOWN_FIELD")),
        ("invalid", json!("INVALID_FIELD")),
        ("invalid", json!("INVALID_PAYLOAD")),
    ];
    assert_eq!(outcomes, expected.map(|(outcome, code)| (json!(outcome), code)));
    assert_eq!(answer["results"][2]["error"]["fields"], json!(["payload.x"]));
    assert_eq!(answer["results"][4]["error"]["field"], "jobs[4].colour");
    let jobs = server.client.get("/jobs").await.expect(200);
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_list_is_read_page_by_page_and_misses_nothing() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(server.submit(json!({"job_type": "T"})).await);
    }
    ids.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.client.get(format!("/jobs?limit=2{cursor}")).await.expect(200);
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|j| j["job_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn a_claim_waits_for_a_job_and_a_reader_for_its_end() {
    let server = Server::start().await;
    let client = server.client;
    let claim = json!({"worker": "w", "wait_seconds": 20});
    let claim = tokio::spawn(async move { client.post("/work/claim", claim).await.expect(200) });
    let id = server.submit(json!({"job_type": "T"})).await;
    let claimed = tokio::time::timeout(Duration::from_secs(5), claim).await.unwrap().unwrap();
    assert_eq!(claimed["jobs"][0]["job"]["job_id"], id);
    let path = format!("/jobs/{id}?wait=20");
    let waiting = tokio::spawn(async move { client.get(path).await.expect(200) });
    let done = json!({"lease_token": claimed["jobs"][0]["lease_token"], "result": 1});
    server.client.post(format!("/work/jobs/{id}/succeed"), done).await.expect(200);
    let job = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    assert_eq!(job["status"], "SUCCEEDED");
}

#[tokio::test]
async fn a_claim_whose_client_went_away_takes_no_job() {
    let server = Server::start().await;
    let claim = Call::new("POST", "/work/claim").json(&json!({"worker": "gone", "wait_seconds": 20}));
    let stream = server.client.open(&claim.bytes("localhost")).await;
    while server.store.claims() == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    let id = server.submit(json!({"job_type": "T"})).await;
    let claim = json!({"worker": "here", "wait_seconds": 20});
    let claimed = server.client.post("/work/claim", claim).await.expect(200);
    assert_eq!(claimed["jobs"][0]["job"]["job_id"], id);
    assert_eq!(claimed["jobs"][0]["job"]["attempt_count"], 1);
}

#[tokio::test]
async fn a_watcher_sees_the_last_state_and_goes_on_where_it_was() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T"})).await;
    let watch = Call::new("GET", format!("/jobs/{id}/events"));
    let mut stream = server.client.open(&watch.bytes("localhost")).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("PENDING") {
        stream.read_buf(&mut seen).await.unwrap();
    }
    let (_, token) = server.claim().await;
    let done = json!({"lease_token": token, "result": 1});
    server.client.post(format!("/work/jobs/{id}/succeed"), done).await.expect(200);
    stream.read_to_end(&mut seen).await.unwrap();
    let answer = parse(&seen);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains("SUCCEEDED") && text.trim_end().ends_with("data: {}"), "{text}");
    let last = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();

    let resumed = server.client.send(watch.header("Last-Event-ID", last)).await;
    let text = String::from_utf8(resumed.body).unwrap();
    assert!(text.contains("event: end") && !text.contains("event: job"), "{text}");
}

#[tokio::test]
async fn long_polls_and_streams_end_at_once_when_the_server_does() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T", "delay_seconds": 3600})).await;
    let client = server.client;
    let (claim, path) = (json!({"worker": "w", "wait_seconds": 60}), format!("/jobs/{id}?wait=60"));
    let claim = tokio::spawn(async move { client.post("/work/claim", claim).await });
    let get = tokio::spawn(async move { client.get(path).await });
    let events = tokio::spawn(async move { client.get(format!("/jobs/{id}/events")).await });
    while server.store.claims() == 0 || server.store.reads() < 3 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    assert_eq!(claim.await.unwrap().expect(200), json!({"jobs": []}));
    assert_eq!(get.await.unwrap().expect(200)["status"], "PENDING");
    assert_eq!(events.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_waiting_job_says_everything_that_holds_it_up() {
    let server = Server::start().await;
    let reasons = async |id: &str| {
        let explained = server.client.get(format!("/jobs/{id}/explain")).await.expect(200);
        let reasons = explained["reasons"].as_array().unwrap().iter();
        (
            reasons.map(|r| r["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            explained["earliest_at"].clone(),
        )
    };
    let holder = server.submit(json!({"job_type": "T", "lock_key": "l", "lease_seconds": 10})).await;
    assert_eq!(reasons(&holder).await, (vec!["no_worker".into()], json!("2025-11-29T12:00:00.000Z")));
    let (_, token) = server.claim().await;
    assert_eq!(reasons(&holder).await, (vec![], Value::Null));

    let scheduled = server.submit(json!({"job_type": "T", "delay_seconds": 60, "lock_key": "l"})).await;
    let expected = vec!["scheduled".to_owned(), "lock_held".to_owned()];
    assert_eq!(reasons(&scheduled).await, (expected, json!("2025-11-29T12:01:00.000Z")));
    let held = server.submit(json!({"job_type": "T", "lock_key": "l"})).await;
    assert_eq!(reasons(&held).await, (vec!["lock_held".into()], json!("2025-11-29T12:00:10.000Z")));
    let behind = server.submit(json!({"job_type": "T"})).await;
    assert_eq!(reasons(&behind).await.0, ["behind_in_queue"]);

    // The final failure of a job cools its lock key with it.
    let fail = json!({"lease_token": token, "error": {"code": "X"}});
    server.client.post(format!("/work/jobs/{holder}/fail"), fail).await.expect(200);
    let (why, until) = reasons(&held).await;
    assert_eq!(why, ["lock_held"]);
    assert!(until.as_str().unwrap() >= "2025-11-29T12:00:05.000Z");
}

#[tokio::test]
async fn money_that_was_not_spent_again_is_counted() {
    let server = Server::start().await;
    let body = json!({"job_type": "T", "idempotency_key": "k", "lease_seconds": 1});
    let id = server.submit(body.clone()).await;
    let (_, token) = server.claim().await;
    let step = json!({"lease_token": token, "output": 1, "usage": {"cost_usd": 0.5}});
    server.client.put(format!("/work/jobs/{id}/steps/s"), step).await.expect(200);
    server.clock.advance(Duration::from_secs(2));
    let claimed = server.client.post("/work/claim", json!({"worker": "w2"})).await.expect(200);
    assert_eq!(claimed["jobs"][0]["steps"], json!({"s": 1}));
    assert_eq!(server.client.get("/stats").await.expect(200)["saved_usd"], 0.5);
    let done = json!({"lease_token": token + 1, "usage": {"cost_usd": 0.25}});
    server.client.post(format!("/work/jobs/{id}/succeed"), done).await.expect(200);
    server.client.post("/jobs", body).await.expect(200);
    let stats = server.client.get("/stats").await.expect(200);
    assert_eq!((&stats["saved_usd"], &stats["duplicate_request_count"]), (&json!(1.25), &json!(1)));
}
