//! Requests that no well-meaning client sends. Each has its exact answer, and none changes anything.

use serde_json::json;

use crate::support::client::{Call, parse};
use crate::support::memory::Fault;
use crate::support::server::Server;

/// An id that no job has.
const NOBODY: &str = "/jobs/0198f3c2-0000-7000-8000-000000000000";

#[derive(Clone)]
struct Case {
    call: Call,
    status: u16,
    code: &'static str,
    field: &'static str,
}

impl Case {
    fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.call = self.call.header(name, value);
        self
    }

    /// What it is answered: status, code and the field at fault.
    fn gives(mut self, status: u16, code: &'static str, field: &'static str) -> Self {
        (self.status, self.code, self.field) = (status, code, field);
        self
    }
}

fn call(call: Call) -> Case {
    Case { call, status: 0, code: "", field: "" }
}

fn get(path: &str) -> Case {
    call(Call::new("GET", path))
}

fn post(path: &str, body: impl Into<Vec<u8>>) -> Case {
    call(Call::new("POST", path).json_text(body))
}

fn put(path: &str, body: impl Into<Vec<u8>>) -> Case {
    call(Call::new("PUT", path).json_text(body))
}

/// A submit with one more field.
fn submit(field: &str) -> Case {
    post("/jobs", format!(r#"{{"job_type":"T",{field}}}"#))
}

fn work(path: &str, body: &str) -> Case {
    post(&format!("/work{NOBODY}/{path}"), body)
}

#[rustfmt::skip]
fn urls_and_methods() -> Vec<Case> {
    vec![
        get("/nothing").gives(404, "NOT_FOUND", ""),
        get("/jobs/").gives(404, "NOT_FOUND", ""),
        get("//jobs").gives(404, "NOT_FOUND", ""),
        get("/jobs/../healthz").gives(404, "NOT_FOUND", ""),
        get("/JOBS").gives(404, "NOT_FOUND", ""),
        call(Call::new("DELETE", "/jobs")).gives(405, "METHOD_NOT_ALLOWED", ""),
        call(Call::new("OPTIONS", "/jobs")).gives(405, "METHOD_NOT_ALLOWED", ""),
        call(Call::new("PATCH", NOBODY)).gives(405, "METHOD_NOT_ALLOWED", ""),
        call(Call::new("BREW", "/jobs")).gives(405, "METHOD_NOT_ALLOWED", ""),
        call(Call::new("GET", "/work/claim")).gives(405, "METHOD_NOT_ALLOWED", ""),
        get("/jobs/%").gives(400, "INVALID_URL", ""),
        get("/jobs/%zz").gives(400, "INVALID_URL", ""),
        get("/jobs?queue=%f").gives(400, "INVALID_URL", ""),
        get("/jobs?queue=%ff").gives(400, "INVALID_URL", ""),
        get("/documents/a%00b").gives(400, "INVALID_URL", ""),
        get("/jobs/1").gives(400, "INVALID_ID", "job_id"),
        get("/jobs/0198f3c2000070008000000000000000").gives(400, "INVALID_ID", "job_id"),
        get("/jobs/%7B0198f3c2-0000-7000-8000-000000000000%7D").gives(400, "INVALID_ID", "job_id"),
        get("/jobs/%27%3B%20DROP%20TABLE%20jobs").gives(400, "INVALID_ID", "job_id"),
        get("/dlq/redrives/x").gives(400, "INVALID_ID", "redrive_id"),
        get(NOBODY).gives(404, "JOB_NOT_FOUND", ""),
        get("/documents/none").gives(404, "DOCUMENT_NOT_FOUND", ""),
        get("/dlq/redrives/0198f3c2-0000-7000-8000-000000000000").gives(404, "REDRIVE_NOT_FOUND", ""),
        get("/jobs?limit=0").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?limit=501").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?limit=-1").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?limit=ten").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?limit=99999999999999999999").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?limit=1&limit=2").gives(400, "INVALID_FIELD", "limit"),
        get("/jobs?state=FAILED").gives(400, "UNKNOWN_FIELD", "state"),
        get("/jobs?status=failed").gives(400, "INVALID_FIELD", "status"),
        get("/jobs?phase=").gives(400, "INVALID_FIELD", "phase"),
        get("/jobs?tag=team").gives(400, "INVALID_FIELD", "tag"),
        get("/jobs?created_after=yesterday").gives(400, "INVALID_FIELD", "created_after"),
        get("/jobs?cursor=..%2F..").gives(400, "INVALID_CURSOR", "cursor"),
        get("/documents?cursor=0").gives(400, "INVALID_CURSOR", "cursor"),
        get("/dlq?status=PENDING").gives(400, "INVALID_FIELD", "status"),
        get("/healthz?x=1").gives(400, "UNKNOWN_FIELD", "x"),
        get("/stats?window_seconds=NaN").gives(400, "INVALID_FIELD", "window_seconds"),
        get("/stats?window_seconds=0").gives(400, "INVALID_FIELD", "window_seconds"),
        get("/ledger?day=2026-02-30").gives(400, "INVALID_FIELD", "day"),
        get("/ledger?day=today").gives(400, "INVALID_FIELD", "day"),
        get("/ledger?job_id=1").gives(400, "INVALID_ID", "job_id"),
        get("/ledger?tenant=").gives(400, "INVALID_FIELD", "tenant"),
        get("/ledger?upstream=").gives(400, "INVALID_FIELD", "upstream"),
        get("/ledger?limit=501").gives(400, "INVALID_FIELD", "limit"),
        get("/ledger?cursor=1").gives(400, "INVALID_CURSOR", "cursor"),
        get("/ledger?cursor=-1-0198f3c2000070008000000000000000").gives(400, "INVALID_CURSOR", "cursor"),
        get("/ledger?queue=q").gives(400, "UNKNOWN_FIELD", "queue"),
        get("/ledger/summary").gives(400, "INVALID_FIELD", "by"),
        get("/ledger/summary?by=model").gives(400, "INVALID_FIELD", "by"),
        get("/ledger/summary?by=day&cursor=1").gives(400, "UNKNOWN_FIELD", "cursor"),
        get("/search").gives(400, "INVALID_FIELD", "q"),
        get("/search?q=%20").gives(400, "INVALID_FIELD", "q"),
        get("/search?q=a&k=0").gives(400, "INVALID_FIELD", "k"),
        get("/search?q=a&mode=magic").gives(400, "INVALID_FIELD", "mode"),
        get(&format!("{NOBODY}?wait=61")).gives(400, "INVALID_FIELD", "wait"),
        get(&format!("{NOBODY}?wait=inf")).gives(400, "INVALID_FIELD", "wait"),
        get(&format!("{NOBODY}?wait=-1")).gives(400, "INVALID_FIELD", "wait"),
    ]
}

#[rustfmt::skip]
fn headers() -> Vec<Case> {
    let job = || post("/jobs", r#"{"job_type":"T"}"#);
    let plain = |kind: &str| call(Call::new("POST", "/jobs").header("Content-Type", kind).body(r#"{"job_type":"T"}"#));
    let mut many = get("/healthz").gives(431, "TOO_MANY_HEADERS", "");
    for i in 0..150 {
        many = many.header(&format!("X-{i}"), "1");
    }
    vec![
        many,
        job().header("Host", "evil.example").gives(403, "FOREIGN_HOST", "Host"),
        get("/jobs").header("Host", "evil.example:7070").gives(403, "FOREIGN_HOST", "Host"),
        get("/jobs").header("Host", "localhost.evil.example").gives(403, "FOREIGN_HOST", "Host"),
        job().header("Origin", "https://evil.example").gives(403, "FOREIGN_ORIGIN", "Origin"),
        job().header("Origin", "http://localhost:1").gives(403, "FOREIGN_ORIGIN", "Origin"),
        job().header("Origin", "null").gives(403, "FOREIGN_ORIGIN", "Origin"),
        plain("text/plain").gives(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"),
        plain("application/x-www-form-urlencoded").gives(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"),
        plain("application/jsonp").gives(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"),
        call(Call::new("POST", "/jobs").body(r#"{"job_type":"T"}"#)).gives(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"),
        call(Call::new("POST", format!("{NOBODY}/cancel")).body("{}")).gives(415, "UNSUPPORTED_MEDIA_TYPE", "Content-Type"),
        job().header("Idempotency-Key", "a").header("Idempotency-Key", "a").gives(400, "INVALID_HEADER", "Idempotency-Key"),
        job().header("Idempotency-Key", b"\xff").gives(400, "INVALID_HEADER", "Idempotency-Key"),
        job().header("Idempotency-Key", "k".repeat(513)).gives(400, "INVALID_FIELD", "idempotency_key"),
        job().header("Idempotency-Key", "").gives(400, "INVALID_FIELD", "idempotency_key"),
        submit(r#""idempotency_key":"b""#).header("Idempotency-Key", "a").gives(400, "IDEMPOTENCY_KEY_MISMATCH", "idempotency_key"),
        post("/jobs/batch", r#"{"jobs":[]}"#).header("Idempotency-Key", "a").gives(400, "INVALID_HEADER", "Idempotency-Key"),
        get(&format!("{NOBODY}/events")).header("Last-Event-ID", "x").gives(400, "INVALID_HEADER", "Last-Event-ID"),
        get(&format!("{NOBODY}/events")).header("Last-Event-ID", "-1").gives(400, "INVALID_HEADER", "Last-Event-ID"),
        get("/documents").header("X-Tenant", "").gives(400, "INVALID_FIELD", "X-Tenant"),
        post("/jobs", "").header("Content-Length", "8388609").gives(413, "BODY_TOO_LARGE", ""),
        put("/documents/d", "").header("Content-Length", "67108865").gives(413, "BODY_TOO_LARGE", ""),
    ]
}

#[rustfmt::skip]
fn bodies() -> Vec<Case> {
    let deep = format!(r#"{{"job_type":"T","payload":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let large = format!(r#"{{"job_type":"T","payload":"{}"}}"#, "x".repeat(1024 * 1024));
    let huge = format!(r#"{{"job_type":"T","payload":"{}"}}"#, "x".repeat(8 * 1024 * 1024));
    let tags: Vec<String> = (0..65).map(|i| format!(r#""t{i}":"""#)).collect();
    vec![
        post("/jobs", "").gives(400, "INVALID_JSON", ""),
        post("/jobs", "{").gives(400, "INVALID_JSON", ""),
        post("/jobs", r#"{"job_type":"T"} x"#).gives(400, "INVALID_JSON", ""),
        post("/jobs", r#"{"job_type":"T",}"#).gives(400, "INVALID_JSON", ""),
        post("/jobs", b"{\"job_type\":\"\xff\"}").gives(400, "INVALID_JSON", ""),
        post("/jobs", r#"{"job_type":"\ud800"}"#).gives(400, "INVALID_JSON", ""),
        post("/jobs", deep).gives(400, "INVALID_JSON", ""),
        submit(r#""payload":1e999"#).gives(400, "INVALID_JSON", ""),
        submit(r#""payload":NaN"#).gives(400, "INVALID_JSON", ""),
        post("/jobs", huge).gives(413, "BODY_TOO_LARGE", ""),
        post("/jobs", large).gives(413, "PAYLOAD_TOO_LARGE", "payload"),
        post("/jobs", "[]").gives(400, "INVALID_FIELD", "body"),
        post("/jobs", r#"["T"]"#).gives(400, "INVALID_FIELD", "body"),
        post("/jobs", "null").gives(400, "INVALID_FIELD", "body"),
        post("/jobs", "{}").gives(400, "INVALID_FIELD", "job_type"),
        post("/jobs", r#"{"job_type":""}"#).gives(400, "INVALID_FIELD", "job_type"),
        post("/jobs", r#"{"job_type":7}"#).gives(400, "INVALID_FIELD", "job_type"),
        post("/jobs", r#"{"job_type":"a\u0000b"}"#).gives(400, "INVALID_FIELD", "job_type"),
        post("/jobs", r#"{"job_type":"T","job_type":"T"}"#).gives(400, "INVALID_FIELD", "job_type"),
        submit(r#""colour":"red""#).gives(400, "UNKNOWN_FIELD", "colour"),
        submit(r#""Payload":{}"#).gives(400, "UNKNOWN_FIELD", "Payload"),
        submit(r#""queue":"a\nb""#).gives(400, "INVALID_FIELD", "queue"),
        submit(&format!(r#""queue":"{}""#, "q".repeat(129))).gives(400, "INVALID_FIELD", "queue"),
        submit(&format!(r#""idempotency_key":"{}""#, "k".repeat(513))).gives(400, "INVALID_FIELD", "idempotency_key"),
        submit(r#""priority":11"#).gives(400, "INVALID_FIELD", "priority"),
        submit(r#""priority":0.5"#).gives(400, "INVALID_FIELD", "priority"),
        submit(r#""priority":"high""#).gives(400, "INVALID_FIELD", "priority"),
        submit(r#""priority":99999999999999999999"#).gives(400, "INVALID_FIELD", "priority"),
        submit(r#""max_attempts":0"#).gives(400, "INVALID_FIELD", "max_attempts"),
        submit(r#""max_attempts":101"#).gives(400, "INVALID_FIELD", "max_attempts"),
        submit(r#""delay_seconds":-1"#).gives(400, "INVALID_FIELD", "delay_seconds"),
        submit(r#""delay_seconds":1e300"#).gives(400, "INVALID_FIELD", "delay_seconds"),
        submit(r#""delay_seconds":1,"run_at":"2026-01-01T00:00:00Z""#).gives(400, "INVALID_FIELD", "delay_seconds"),
        submit(r#""run_at":1764417600"#).gives(400, "INVALID_FIELD", "run_at"),
        submit(r#""run_at":"2026-01-01""#).gives(400, "INVALID_FIELD", "run_at"),
        submit(r#""lease_seconds":0.4"#).gives(400, "INVALID_FIELD", "lease_seconds"),
        submit(r#""lease_seconds":3601"#).gives(400, "INVALID_FIELD", "lease_seconds"),
        submit(r#""retry_delays_seconds":[1,-1]"#).gives(400, "INVALID_FIELD", "retry_delays_seconds[1]"),
        submit(r#""retry_delays_seconds":[1,"2"]"#).gives(400, "INVALID_FIELD", "retry_delays_seconds[1]"),
        submit(r#""cooldown_seconds":-0.001"#).gives(400, "INVALID_FIELD", "cooldown_seconds"),
        submit(r#""timeout_seconds":0"#).gives(400, "INVALID_FIELD", "timeout_seconds"),
        submit(r#""max_paid_calls":-1"#).gives(400, "INVALID_FIELD", "max_paid_calls"),
        submit(r#""upstreams":["a",""]"#).gives(400, "INVALID_FIELD", "upstreams[1]"),
        submit(r#""upstreams":"a""#).gives(400, "INVALID_FIELD", "upstreams"),
        submit(&format!(r#""tags":{{{}}}"#, tags.join(","))).gives(400, "INVALID_FIELD", "tags"),
        submit(r#""tags":{"a":1}"#).gives(400, "INVALID_FIELD", "tags.a"),
        submit(r#""if_failed":"panic""#).gives(400, "INVALID_FIELD", "if_failed"),
        submit(r#""idempotency_key":"taken","payload":{"b":2}"#).gives(422, "IDEMPOTENCY_KEY_REUSED", ""),
        post("/jobs", r#"{"job_type":"LLM_CALL"}"#).gives(422, "INVALID_PAYLOAD", "payload.prompt"),
        post("/jobs", r#"{"job_type":"LLM_CALL","payload":{"messages":[{"role":"me"}]}}"#).gives(422, "INVALID_PAYLOAD", "payload.messages[0].role"),
        post("/jobs", r#"{"job_type":"DOCUMENT_INDEX","payload":{"document_id":"d"}}"#).gives(422, "INVALID_PAYLOAD", "payload.version"),
        post("/jobs/batch", r#"{"jobs":{}}"#).gives(400, "INVALID_FIELD", "jobs"),
        post("/jobs/batch", format!(r#"{{"jobs":[{}1]}}"#, "1,".repeat(1000))).gives(400, "INVALID_FIELD", "jobs"),
        post(&format!("{NOBODY}/retry"), r#"{"force":"yes"}"#).gives(400, "INVALID_FIELD", "force"),
        post(&format!("{NOBODY}/retry"), "{}").gives(404, "JOB_NOT_FOUND", ""),
        post(&format!("{NOBODY}/cancel"), r#"{"now":true}"#).gives(400, "UNKNOWN_FIELD", "now"),
        post("/dlq/redrive", r#"{"filter":{"status":"FAILED"}}"#).gives(400, "UNKNOWN_FIELD", "filter.status"),
        post("/dlq/redrive", r#"{"per_second":0}"#).gives(400, "INVALID_FIELD", "per_second"),
        post("/dlq/redrive", r#"{"limit":10001}"#).gives(400, "INVALID_FIELD", "limit"),
        post("/dlq/redrive", r#"{"force":true}"#).gives(400, "INVALID_FIELD", "reason"),
        post("/documents/none/index", "{}").gives(404, "DOCUMENT_NOT_FOUND", ""),
        post("/documents/none/index", r#"{"pipeline":"fast"}"#).gives(400, "INVALID_FIELD", "pipeline"),
        put(&format!("/documents/{}", "d".repeat(385)), "x").gives(400, "INVALID_FIELD", "document_id"),
        put("/documents/a%0Ab", "x").gives(400, "INVALID_FIELD", "document_id"),
    ]
}

#[rustfmt::skip]
fn workers() -> Vec<Case> {
    let large = format!(r#"{{"lease_token":1,"result":"{}"}}"#, "x".repeat(1024 * 1024));
    vec![
        post("/work/claim", "{}").gives(400, "INVALID_FIELD", "worker"),
        post("/work/claim", r#"{"worker":""}"#).gives(400, "INVALID_FIELD", "worker"),
        post("/work/claim", r#"{"worker":"w","max":0}"#).gives(400, "INVALID_FIELD", "max"),
        post("/work/claim", r#"{"worker":"w","max":1001}"#).gives(400, "INVALID_FIELD", "max"),
        post("/work/claim", r#"{"worker":"w","wait_seconds":61}"#).gives(400, "INVALID_FIELD", "wait_seconds"),
        post("/work/claim", r#"{"worker":"w","lease_seconds":0}"#).gives(400, "INVALID_FIELD", "lease_seconds"),
        post("/work/claim", r#"{"worker":"w","queues":[""]}"#).gives(400, "INVALID_FIELD", "queue"),
        post("/work/heartbeat", r#"{"worker":"w","leases":[{"job_id":"x","lease_token":1}]}"#).gives(400, "INVALID_ID", "leases[0].job_id"),
        post("/work/heartbeat", r#"{"worker":"w","leases":[{"job_id":"x"}]}"#).gives(400, "INVALID_FIELD", "leases[0].lease_token"),
        work("succeed", r#"{"lease_token":1}"#).gives(404, "JOB_NOT_FOUND", ""),
        work("succeed", r#"{"lease_token":"1"}"#).gives(400, "INVALID_FIELD", "lease_token"),
        work("succeed", r#"{"lease_token":1,"usage":{"cost_usd":-1}}"#).gives(400, "INVALID_FIELD", "usage.cost_usd"),
        work("succeed", r#"{"lease_token":1,"usage":{"input_tokens":-1}}"#).gives(400, "INVALID_FIELD", "usage.input_tokens"),
        work("succeed", &large).gives(413, "PAYLOAD_TOO_LARGE", "result"),
        work("fail", r#"{"lease_token":1}"#).gives(400, "INVALID_FIELD", "error"),
        work("fail", r#"{"lease_token":1,"error":["X"]}"#).gives(400, "INVALID_FIELD", "error"),
        work("succeed", r#"{"lease_token":1,"usage":["u"]}"#).gives(400, "INVALID_FIELD", "usage"),
        work("fail", r#"{"lease_token":1,"error":{}}"#).gives(400, "INVALID_FIELD", "error.code"),
        work("fail", r#"{"lease_token":1,"error":{"code":"X","class":"odd"}}"#).gives(400, "INVALID_FIELD", "error.class"),
        work("fail", r#"{"lease_token":1,"error":{"http":{"status":99999}}}"#).gives(400, "INVALID_FIELD", "error.http.status"),
        work("fail", r#"{"lease_token":1,"error":{"code":"X","retry_after_seconds":-5}}"#).gives(400, "INVALID_FIELD", "error.retry_after_seconds"),
        work("defer", r#"{"lease_token":1,"seconds":-1,"reason":"r"}"#).gives(400, "INVALID_FIELD", "seconds"),
        work("defer", r#"{"lease_token":1,"seconds":1}"#).gives(400, "INVALID_FIELD", "reason"),
        work("release", r#"{"lease_token":1,"extra":1}"#).gives(400, "UNKNOWN_FIELD", "extra"),
        put(&format!("/work{NOBODY}/steps/{}", "s".repeat(129)), r#"{"lease_token":1}"#).gives(400, "INVALID_FIELD", "step"),
        put(&format!("/work{NOBODY}/steps/s"), r#"{"lease_token":1}"#).gives(404, "JOB_NOT_FOUND", ""),
        post("/work/settle", r#"{"settlements":1}"#).gives(400, "INVALID_FIELD", "settlements"),
    ]
}

#[tokio::test]
async fn every_hostile_request_has_its_exact_answer_and_changes_nothing() {
    let server = Server::start().await;
    server.dead_letter(json!({"job_type": "T", "idempotency_key": "taken"})).await;
    server.client.send(Call::new("PUT", "/documents/kept").body("text")).await.expect(201);
    let before = server.snapshot().await;
    let cases = [urls_and_methods(), headers(), bodies(), workers()].concat();
    assert!(cases.len() >= 60);
    let mut wrong = Vec::new();
    for Case { call, status, code, field } in cases {
        let answer = server.client.send(call.clone()).await;
        let said = answer.json();
        let shown: String = String::from_utf8_lossy(&call.bytes("h")).chars().take(300).collect();
        let got = (answer.status, said["code"].as_str().unwrap_or("-"), said["field"].as_str().unwrap_or(""));
        if got != (status, code, field) {
            wrong.push(format!("{got:?}, not {:?}: {shown}\n{said}", (status, code, field)));
            continue;
        }
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown}");
        assert_eq!(
            (said["status"].as_u64(), answer.header("allow").is_some()),
            (Some(u64::from(status)), status == 405)
        );
        assert!(said["title"].is_string() && said["detail"].is_string() && said["type"].is_string());
        assert!(answer.header("traceparent").is_some(), "{shown}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(server.snapshot().await, before);
}

#[tokio::test]
async fn a_request_that_is_no_http_ends_without_harm() {
    let server = Server::start().await;
    for bytes in [
        &b"\x16\x03\x01\x00\xa5\x01\x00\x00"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut stream = server.client.open(bytes).await;
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let mut said = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut said).await;
        assert!(matches!(parse(&said).status, 0 | 400..=431), "{}", String::from_utf8_lossy(&said));
    }
    server.client.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn a_head_is_answered_like_a_get_without_its_body() {
    let server = Server::start().await;
    let head = server.client.send(Call::new("HEAD", "/healthz")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let head = server.client.send(Call::new("HEAD", "/nothing")).await;
    assert_eq!((head.status, head.body.len()), (404, 0));
}

#[tokio::test]
async fn a_store_that_fails_is_told_apart_and_nothing_is_accepted() {
    let server = Server::start().await;
    let submit = Call::new("POST", "/jobs").json(&json!({"job_type": "T"}));
    for (fault, status, code, retry_after) in [
        (Fault::Away, 503, "STORE_UNAVAILABLE", Some("1")),
        (Fault::Full, 507, "STORE_FULL", None),
        (Fault::Broken, 500, "INTERNAL", None),
        (Fault::Panic, 500, "INTERNAL", None),
    ] {
        server.store.fail(fault);
        let refused = server.client.send(submit.clone()).await;
        assert_eq!((refused.status, refused.header("retry-after")), (status, retry_after), "{fault:?}");
        assert_eq!(refused.json()["code"], code);
        assert!(!refused.json()["detail"].as_str().unwrap().contains("secret"));
        let claim = json!({"worker": "w", "wait_seconds": 5});
        assert_eq!(server.client.post("/work/claim", claim).await.status, status, "{fault:?}");
        assert_eq!(server.client.get("/readyz").await.status, status, "{fault:?}");
        assert_eq!(server.client.get("/healthz").await.status, 200, "{fault:?}");
    }
    server.store.fail(Fault::None);
    server.client.get("/readyz").await.expect(200);
    let jobs = server.client.get("/jobs").await.expect(200);
    assert_eq!(jobs["items"], json!([]));
}

#[tokio::test]
async fn a_browser_page_served_by_this_server_may_call_it() {
    let server = Server::start().await;
    let host = server.client.address.to_string();
    let own = Call::new("POST", "/jobs").header("Origin", format!("http://{host}"));
    server.client.send(own.json(&json!({"job_type": "T"}))).await.expect(202);
    let named = Call::new("GET", "/jobs").header("Host", "LOCALHOST:7070");
    server.client.send(named).await.expect(200);
}
