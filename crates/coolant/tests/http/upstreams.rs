//! Upstreams, permits and tenants' limits over HTTP: what is answered to whom, and with which seconds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::server::Server;

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{}", answer.json());
}

async fn permit(server: &Server, body: Value) -> Answer {
    server.client.post("/upstreams/u/permits", body).await
}

async fn settle(server: &Server, permit: &Answer, body: Value) -> Answer {
    let id = permit.json()["permit_id"].as_str().unwrap().to_owned();
    server.client.post(format!("/permits/{id}/settle"), body).await
}

#[tokio::test]
async fn what_is_set_is_shown_and_null_is_no_limit() {
    let server = Server::start_without_housekeeping().await;
    refused(&server.client.get("/upstreams/openai%2Fgpt").await, 404, "UPSTREAM_NOT_FOUND");
    let set = json!({"max_concurrent": 3, "requests_per_minute": 600, "budget_usd_per_day": 2.5, "credential": "main"});
    let shown = server.client.put("/upstreams/openai%2Fgpt", set).await.expect(200);
    assert_eq!(shown["name"], "openai/gpt");
    assert_eq!((&shown["state"], &shown["closed_until"]), (&json!("open"), &Value::Null));
    assert_eq!(shown["limits"]["requests_per_minute"], 600);
    assert_eq!(shown["limits"]["tokens_per_minute"], Value::Null);
    assert_eq!((&shown["credential"], &shown["spent_today_usd"]), (&json!("main"), &json!(0.0)));
    let shown =
        server.client.put("/upstreams/openai%2Fgpt", json!({"max_concurrent": null})).await.expect(200);
    assert_eq!(shown["limits"]["max_concurrent"], Value::Null);
    let all = server.client.get("/upstreams").await.expect(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let tenant = server.client.put("/tenants/a%2Fb", json!({"budget_usd_per_day": 1})).await.expect(200);
    assert_eq!((&tenant["tenant"], &tenant["limits"]["budget_usd_per_day"]), (&json!("a/b"), &json!(1.0)));
    refused(&server.client.get("/tenants/none").await, 404, "TENANT_NOT_FOUND");
}

#[tokio::test]
async fn hostile_requests_are_refused_and_change_nothing() {
    let server = Server::start_without_housekeeping().await;
    let put = async |body: Value| server.client.put("/upstreams/u", body).await;
    refused(&put(json!({"max_concurrent": -1})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"requests_per_minute": 0})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"budget_usd_per_day": -0.1})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"budget_usd_per_day": 1e300})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"requests_per_minute": 1, "requests_per_second": 1})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"credential": "a\u{0}b"})).await, 400, "INVALID_FIELD");
    refused(&put(json!({"key": "sk-1"})).await, 400, "UNKNOWN_FIELD");
    let long = format!("/upstreams/{}", "x".repeat(129));
    refused(&server.client.put(long, json!({})).await, 400, "INVALID_FIELD");
    let close = async |body: Value| server.client.post("/upstreams/u/close", body).await;
    refused(&close(json!({"seconds": -1, "reason": "x"})).await, 400, "INVALID_FIELD");
    refused(&close(json!({"seconds": 1e18, "reason": "x"})).await, 400, "INVALID_FIELD");
    refused(&close(json!({"seconds": 5, "reason": ""})).await, 400, "INVALID_FIELD");
    refused(&permit(&server, json!({"estimated_tokens": -1})).await, 400, "INVALID_FIELD");
    refused(
        &permit(&server, json!({"job_id": "0198f3c2-0000-7000-8000-000000000000"})).await,
        400,
        "INVALID_FIELD",
    );
    let no_job = json!({"job_id": "0198f3c2-0000-7000-8000-000000000000", "lease_token": 1});
    refused(&permit(&server, no_job).await, 404, "JOB_NOT_FOUND");
    let none = "/permits/0198f3c2-0000-7000-8000-000000000000/settle";
    refused(&server.client.post(none, json!({"outcome": "ok"})).await, 404, "PERMIT_NOT_FOUND");
    refused(&server.client.post("/permits/x/settle", json!({"outcome": "ok"})).await, 400, "INVALID_ID");
    assert_eq!(server.client.get("/upstreams").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn every_refusal_of_a_permit_says_when_to_come_back() {
    let server = Server::start_without_housekeeping().await;
    let limits = json!({"max_concurrent": 1, "tokens_per_minute": 600, "budget_usd_per_day": 1});
    server.client.put("/upstreams/u", limits).await.expect(200);
    let held = permit(&server, json!({"estimated_cost_usd": 0.6})).await;
    held.clone().expect(200);
    refused(&permit(&server, json!({})).await, 429, "CONCURRENCY_LIMITED");
    let no_money = permit(&server, json!({"estimated_cost_usd": 0.6})).await;
    refused(&no_money, 429, "BUDGET_EXHAUSTED");
    assert_eq!(no_money.header("retry-after"), Some("1"));
    refused(&permit(&server, json!({"estimated_cost_usd": 1.5})).await, 422, "ESTIMATE_ABOVE_LIMIT");
    refused(&permit(&server, json!({"estimated_tokens": 601})).await, 422, "ESTIMATE_ABOVE_LIMIT");
    let settled =
        settle(&server, &held, json!({"outcome": "ok", "usage": {"cost_usd": 0.1, "input_tokens": 60}}))
            .await;
    assert_eq!((&settled.json()["class"], &settled.json()["repeated"]), (&Value::Null, &json!(false)));
    let again = settle(&server, &held, json!({"outcome": "ok"})).await.expect(200);
    assert_eq!(again["repeated"], true);
    // The burst of a minute's 600 tokens was 60, and all of it is used.
    let rate = permit(&server, json!({"estimated_tokens": 10})).await;
    refused(&rate, 429, "RATE_LIMITED");
    assert_eq!(rate.json()["retry_after_seconds"], json!(1.0));
    server.clock.advance(Duration::from_secs(1));
    let second = permit(&server, json!({"estimated_tokens": 10})).await;
    second.clone().expect(200);
    let http =
        json!({"status": 429, "headers": {"Retry-After": "7"}, "body": {"error": {"message": "slow down"}}});
    let closed = settle(&server, &second, json!({"outcome": "error", "http": http})).await.expect(200);
    assert_eq!((&closed["class"], &closed["closed"]["what"]), (&json!("rate_limited"), &json!("upstream")));
    let refusal = permit(&server, json!({})).await;
    refused(&refusal, 429, "UPSTREAM_CLOSED");
    assert_eq!(refusal.header("retry-after"), Some("7"));
    let shown = server.client.get("/upstreams/u").await.expect(200);
    assert_eq!((&shown["state"], &shown["spent_today_usd"]), (&json!("closed"), &json!(0.1)));
    assert_eq!(server.client.get("/stats").await.expect(200)["blocked_calls"], 1);
    assert_eq!(server.client.get("/stats").await.expect(200)["paid_calls"], 1, "a refusal is no paid call");
}

#[tokio::test]
async fn what_an_answers_headers_say_is_left_holds_for_the_next_permits() {
    let server = Server::start_without_housekeeping().await;
    let first = permit(&server, json!({"estimated_tokens": 5000})).await;
    let headers = json!({"X-RateLimit-Remaining-Tokens": "100", "x-ratelimit-reset-tokens": "10m"});
    let http = json!({"status": 200, "headers": headers, "body": {"choices": []}});
    settle(&server, &first, json!({"outcome": "ok", "http": http})).await.expect(200);
    let large = permit(&server, json!({"estimated_tokens": 101})).await;
    refused(&large, 429, "RATE_LIMITED");
    let wait = large.json()["retry_after_seconds"].as_f64().unwrap();
    assert!((500.0..=600.0).contains(&wait), "{wait}");
    assert!(large.json()["detail"].as_str().unwrap().contains("tokens left: 100, in flight: 0, needed: 101"));
    permit(&server, json!({"estimated_tokens": 100})).await.expect(200);
    refused(&permit(&server, json!({"estimated_tokens": 1})).await, 429, "RATE_LIMITED");
}

#[tokio::test]
async fn jobs_of_a_closed_upstream_are_blocked_and_say_why() {
    let server = Server::start_without_housekeeping().await;
    let waiting = server.submit(json!({"job_type": "T", "upstreams": ["u"]})).await;
    server
        .client
        .post("/upstreams/u/close", json!({"seconds": 60, "reason": "maintenance"}))
        .await
        .expect(200);
    let claimed = server.client.post("/work/claim", json!({"worker": "w", "max": 5})).await.expect(200);
    assert_eq!(claimed["jobs"], json!([]));
    let job = server.client.get(format!("/jobs/{waiting}")).await.expect(200);
    assert_eq!((&job["phase"], &job["attempt_count"]), (&json!("blocked"), &json!(0)));
    let why = server.client.get(format!("/jobs/{waiting}/explain")).await.expect(200);
    assert_eq!((&why["phase"], &why["reasons"][0]["reason"]), (&json!("blocked"), &json!("upstream_closed")));
    assert_eq!(why["reasons"][0]["until"], why["earliest_at"]);
    let listed = server.client.get("/jobs").await.expect(200);
    assert_eq!(listed["items"][0]["phase"], "blocked");
    // By hand it is open again, and in the audit trail.
    server.client.post("/upstreams/u/open", json!({"reason": "done"})).await.expect(200);
    assert_eq!(server.claim().await.0, waiting);
    let audit = server.client.get("/audit").await.expect(200);
    let actions: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, [json!("upstream.opened"), json!("upstream.closed")]);
}

#[tokio::test]
async fn a_job_that_may_make_one_paid_call_is_refused_the_second_and_ends_for_good() {
    let server = Server::start_without_housekeeping().await;
    server.submit(json!({"job_type": "T", "max_paid_calls": 1})).await;
    let (id, token) = server.claim().await;
    let ask = json!({"job_id": id, "lease_token": token});
    let first = permit(&server, ask.clone()).await;
    first.clone().expect(200);
    refused(&permit(&server, ask.clone()).await, 429, "PAID_CALL_LIMIT");
    settle(&server, &first, json!({"outcome": "ok", "usage": {"cost_usd": 0.1}})).await.expect(200);
    let second = permit(&server, ask).await;
    refused(&second, 429, "PAID_CALL_LIMIT");
    assert_eq!(second.header("retry-after"), None, "waiting does not help");
    let fail = json!({"lease_token": token, "error": {"code": "PAID_CALL_LIMIT", "message": "no more"}});
    server.client.post(format!("/work/jobs/{id}/fail"), fail).await.expect(200);
    let job = server.client.get(format!("/jobs/{id}")).await.expect(200);
    assert_eq!((&job["status"], &job["retry"]), (&json!("FAILED"), &Value::Null));
    assert_eq!(job["usage"]["calls"], 1);
    refused(&server.client.post(format!("/jobs/{id}/retry"), json!({})).await, 409, "PERMANENT_FAILURE");
}
