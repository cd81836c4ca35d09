//! `/openapi.json` is what the server really does: every call that it describes is made, well and badly, and
//! every answer is held against its description.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::client::{Answer, Call};
use crate::support::schema::{check, resolved};
use crate::support::server::Server;

/// Every described call, as `GET /jobs/{job_id}`.
fn operations(api: &Value) -> Vec<(String, String)> {
    let paths = api["paths"].as_object().unwrap();
    let calls = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
    });
    calls.collect()
}

/// Says in what an answer differs from its description.
fn differs(api: &Value, method: &str, path: &str, answer: &Answer) -> Option<String> {
    let responses = &api["paths"][path][method.to_lowercase()]["responses"];
    let status = answer.status.to_string();
    let class = format!("{}XX", &status[..1]);
    let found = [&status, &class].into_iter().find_map(|name| responses.get(name));
    let Some(described) = found else { return Some(format!("{status} is not described")) };
    let content = resolved(api, described)["content"].as_object();
    let kind = answer.header("content-type").unwrap_or("");
    let Some(content) = content else {
        return (!answer.body.is_empty()).then(|| "a body is not described".to_owned());
    };
    let Some(media) = content.get(kind) else { return Some(format!("`{kind}` is not described")) };
    if !kind.ends_with("json") {
        return None;
    }
    check(api, &media["schema"], &answer.json()).err()
}

#[tokio::test]
async fn a_call_that_names_nothing_is_answered_as_described() {
    let server = Server::start().await;
    let api = server.client.get("/openapi.json").await.expect(200);
    let operations = operations(&api);
    assert!(operations.len() >= 35, "{}", operations.len());
    for (method, path) in operations {
        let unknown = path
            .replace("{job_id}", "0198f3c2-0000-7000-8000-000000000000")
            .replace("{redrive_id}", "0198f3c2-0000-7000-8000-000000000000")
            .replace("{permit_id}", "0198f3c2-0000-7000-8000-000000000000")
            .replace("{tenant}", "none")
            .replace("{name}", "none")
            .replace("{key}", "none")
            .replace("{id}", "none");
        for body in ["{}", "{", r#"{"no_such_field":1}"#] {
            let call = match method.as_str() {
                "GET" | "DELETE" => Call::new(&method, unknown.clone()),
                _ => Call::new(&method, unknown.clone()).json_text(body),
            };
            let answer = server.client.send(call).await;
            let differs = differs(&api, &method, &path, &answer);
            assert_eq!(differs, None, "{method} {path} {body}: {}", String::from_utf8_lossy(&answer.body));
        }
    }
}

/// A call that was made: its method, the path as described, its answer.
type Made = (&'static str, &'static str, Answer);

/// A well-made call of every operation, in an order in which each finds what it needs.
async fn well_made(server: &Server) -> Vec<Made> {
    let (mut made, retried, dead) = jobs_and_work(server).await;
    made.extend(dead_letters(server, &retried, &dead).await);
    let client = server.client;
    let put = Call::new("PUT", "/documents/d").body("text");
    made.push(("PUT", "/documents/{id}", client.send(put).await));
    let index = Call::new("POST", "/documents/d/index");
    made.push(("POST", "/documents/{id}/index", client.send(index).await));
    made.push(("GET", "/documents/{id}", client.get("/documents/d").await));
    made.push(("GET", "/documents", client.get("/documents").await));
    made.push(("DELETE", "/documents/{id}", client.delete("/documents/d").await));
    made.push(("GET", "/search", client.get("/search?q=a").await));
    made.extend(schedules(server).await);
    made.extend(locks(server).await);
    made.push(("GET", "/ledger", client.get("/ledger?limit=1").await));
    made.push(("GET", "/ledger/summary", client.get("/ledger/summary?by=day").await));
    made.extend(upstreams(server).await);
    for path in ["/healthz", "/readyz", "/stats", "/audit", "/openapi.json"] {
        made.push(("GET", path, client.get(path).await));
    }
    made
}

/// The calls about upstreams and permits.
async fn upstreams(server: &Server) -> Vec<Made> {
    let client = server.client;
    let mut made = Vec::new();
    let set =
        json!({"max_concurrent": 1, "requests_per_second": 5, "budget_usd_per_day": 1.5, "credential": "k"});
    made.push(("PUT", "/upstreams/{name}", client.put("/upstreams/a%2Fb", set).await));
    made.push(("GET", "/upstreams/{name}", client.get("/upstreams/a%2Fb").await));
    let ask = json!({"estimated_tokens": 10, "estimated_cost_usd": 0.5});
    let permits = "/upstreams/a%2Fb/permits";
    made.push(("POST", "/upstreams/{name}/permits", client.post(permits, ask).await));
    let path = format!("/permits/{}/settle", made.last().unwrap().2.json()["permit_id"].as_str().unwrap());
    let refused =
        json!({"outcome": "error", "http": {"status": 429, "headers": {"retry-after": "5"}, "body": ""}});
    made.push(("POST", "/permits/{permit_id}/settle", client.post(path, refused).await));
    assert_eq!(made.last().unwrap().2.json()["closed"]["what"], "upstream");
    made.push(("GET", "/upstreams", client.get("/upstreams").await));
    let close = json!({"seconds": 60, "reason": "maintenance"});
    made.push(("POST", "/upstreams/{name}/close", client.post("/upstreams/a%2Fb/close", close).await));
    made.push(("POST", "/upstreams/{name}/open", client.post("/upstreams/a%2Fb/open", json!({})).await));
    let limits = json!({"tokens_per_minute": 1000});
    made.push(("PUT", "/tenants/{tenant}", client.put("/tenants/t", limits).await));
    made.push(("GET", "/tenants/{tenant}", client.get("/tenants/t").await));
    made
}

/// The calls about jobs and work, and two dead-lettered jobs.
async fn jobs_and_work(server: &Server) -> (Vec<Made>, String, String) {
    let client = server.client;
    let mut made = Vec::new();
    let retried = server.dead_letter(json!({"job_type": "T", "idempotency_key": "a"})).await;
    let dead = server.dead_letter(json!({"job_type": "T", "tags": {"a": "b"}})).await;
    server.clock.advance(std::time::Duration::from_secs(301));
    let cancelled = server.submit(json!({"job_type": "T", "delay_seconds": 60})).await;
    let deferred = server.submit(json!({"job_type": "T", "lock_key": "l", "upstreams": ["u"]})).await;

    made.push((
        "POST",
        "/jobs",
        client.post("/jobs", json!({"job_type": "T", "idempotency_key": "a"})).await,
    ));
    made.push((
        "POST",
        "/jobs/batch",
        client.post("/jobs/batch", json!({"jobs": [{"job_type": "T"}, 1]})).await,
    ));
    made.push(("GET", "/jobs", client.get("/jobs?limit=2").await));
    made.push(("POST", "/work/claim", client.post("/work/claim", json!({"worker": "w"})).await));
    let token = made.last().unwrap().2.json()["jobs"][0]["lease_token"].clone();
    let beat = json!({"worker": "w", "leases": [{"job_id": deferred, "lease_token": token}]});
    made.push(("POST", "/work/heartbeat", client.post("/work/heartbeat", beat).await));
    let step = json!({"lease_token": token, "output": {"a": [1]}});
    let path = format!("/work/jobs/{deferred}/steps/s");
    made.push(("PUT", "/work/jobs/{job_id}/steps/{name}", client.put(path, step).await));
    let defer = json!({"lease_token": token, "seconds": 5, "reason": "later"});
    let path = |call: &str| format!("/work/jobs/{deferred}/{call}");
    made.push(("POST", "/work/jobs/{job_id}/defer", client.post(path("defer"), defer).await));

    let get = async |id: &str, rest: &str| client.get(format!("/jobs/{id}{rest}")).await;
    made.push(("GET", "/jobs/{job_id}", get(&dead, "?wait=1").await));
    made.push(("GET", "/jobs/{job_id}/attempts", get(&dead, "/attempts").await));
    made.push(("GET", "/jobs/{job_id}/events", get(&dead, "/events").await));
    made.push(("GET", "/jobs/{job_id}/steps", get(&deferred, "/steps").await));
    made.push(("GET", "/jobs/{job_id}/steps/{name}", get(&deferred, "/steps/s").await));
    made.push(("GET", "/jobs/{job_id}/explain", get(&deferred, "/explain").await));
    made.push((
        "POST",
        "/jobs/{job_id}/cancel",
        client.post(format!("/jobs/{cancelled}/cancel"), json!({})).await,
    ));

    for call in ["release", "fail", "succeed"] {
        let (id, token) = server.claim().await;
        let body = match call {
            "fail" => json!({"lease_token": token, "error": {"code": "X", "message": "m"}}),
            _ => json!({"lease_token": token}),
        };
        let template = match call {
            "release" => "/work/jobs/{job_id}/release",
            "fail" => "/work/jobs/{job_id}/fail",
            _ => "/work/jobs/{job_id}/succeed",
        };
        made.push(("POST", template, client.post(format!("/work/jobs/{id}/{call}"), body).await));
        server.submit(json!({"job_type": "T"})).await;
    }
    let (id, token) = server.claim().await;
    let settle = json!({"settlements": [{"job_id": id, "lease_token": token, "outcome": "succeed"}, {}]});
    made.push(("POST", "/work/settle", client.post("/work/settle", settle).await));

    (made, retried, dead)
}

/// The calls about dead letters.
async fn dead_letters(server: &Server, retried: &str, dead: &str) -> Vec<Made> {
    let client = server.client;
    let mut made = Vec::new();
    made.push(("GET", "/dlq", client.get("/dlq").await));
    made.push(("GET", "/dlq/groups", client.get("/dlq/groups").await));
    made.push(("GET", "/dlq/{job_id}", client.get(format!("/dlq/{dead}")).await));
    made.push(("POST", "/dlq/redrive", client.post("/dlq/redrive", json!({})).await));
    let redrive = json!({"dry_run": false, "filter": {"tag": "a:b"}});
    let begun = client.post("/dlq/redrive", redrive).await;
    let path = format!("/dlq/redrives/{}", begun.json()["redrive_id"].as_str().unwrap());
    made.push(("POST", "/dlq/redrive", begun));
    made.push(("GET", "/dlq/redrives/{redrive_id}", client.get(path.clone()).await));
    made.push(("DELETE", "/dlq/redrives/{redrive_id}", client.delete(path).await));
    made.push((
        "POST",
        "/jobs/{job_id}/retry",
        client.post(format!("/jobs/{retried}/retry"), json!({})).await,
    ));
    let again = server.dead_letter(json!({"job_type": "T", "priority": 10})).await;
    let note = json!({"note": "not needed"});
    made.push(("POST", "/dlq/{job_id}/discard", client.post(format!("/dlq/{again}/discard"), note).await));
    made
}

/// The calls about schedules.
async fn schedules(server: &Server) -> Vec<Made> {
    let client = server.client;
    let mut made = Vec::new();
    let body = json!({"cron": "0 3 * * *", "job": {"job_type": "T", "payload": {"a": 1}, "lock_key": "l"}});
    made.push(("PUT", "/schedules/{name}", client.put("/schedules/s", body.clone()).await));
    made.push(("PUT", "/schedules/{name}", client.put("/schedules/s", body).await));
    made.push(("GET", "/schedules/{name}", client.get("/schedules/s").await));
    made.push(("GET", "/schedules", client.get("/schedules?limit=1").await));
    for (call, path) in [
        ("run", "/schedules/{name}/run"),
        ("pause", "/schedules/{name}/pause"),
        ("resume", "/schedules/{name}/resume"),
    ] {
        made.push(("POST", path, client.post(format!("/schedules/s/{call}"), json!({})).await));
    }
    made.push(("DELETE", "/schedules/{name}", client.delete("/schedules/s").await));
    made
}

/// The calls about locks.
async fn locks(server: &Server) -> Vec<Made> {
    let client = server.client;
    let mut made = Vec::new();
    let acquire = json!({"ttl_seconds": 60, "holder": "me"});
    made.push(("POST", "/locks/{key}/acquire", client.post("/locks/l/acquire", acquire.clone()).await));
    let token = made[0].2.json()["token"].clone();
    let renew = json!({"token": token, "ttl_seconds": 60});
    made.push(("POST", "/locks/{key}/renew", client.post("/locks/l/renew", renew).await));
    made.push(("GET", "/locks/{key}", client.get("/locks/l").await));
    let succeed = json!({"token": token});
    made.push(("POST", "/locks/{key}/succeed", client.post("/locks/l/succeed", succeed).await));
    made.push(("GET", "/locks/{key}", client.get("/locks/l").await));
    let token = client.post("/locks/l/acquire", acquire).await.json()["token"].clone();
    let fail = json!({"token": token, "reason": "no", "permanent": true});
    made.push(("POST", "/locks/{key}/fail", client.post("/locks/l/fail", fail).await));
    made.push(("DELETE", "/locks/{key}", client.delete("/locks/l?reason=known").await));
    made
}

#[tokio::test]
async fn a_well_made_call_is_answered_as_described() {
    let server = Server::start().await;
    let api = server.client.get("/openapi.json").await.expect(200);
    let made = well_made(&server).await;
    for (method, path, answer) in &made {
        let body = String::from_utf8_lossy(&answer.body);
        assert!((200..300).contains(&answer.status), "{method} {path}: {body}");
        assert_eq!(differs(&api, method, path, answer), None, "{method} {path}: {body}");
    }
    let made: BTreeSet<_> = made.into_iter().map(|(m, p, _)| (m.to_owned(), p.to_owned())).collect();
    let described: BTreeSet<_> = operations(&api).into_iter().collect();
    assert_eq!(made, described);
}

#[tokio::test]
async fn a_description_says_of_every_body_that_it_takes_no_other_fields() {
    let api = serde_json::to_value(coolant::http::openapi()).unwrap();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if schema.is_null() {
                continue;
            }
            let one_of =
                schema["oneOf"].as_array().and_then(|parts| parts.iter().find(|p| p["$ref"].is_string()));
            let schema = resolved(&api, one_of.unwrap_or(schema));
            assert_eq!(schema["additionalProperties"], false, "{method} {path}: {schema}");
        }
    }
}
