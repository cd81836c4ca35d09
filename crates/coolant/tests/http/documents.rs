//! Documents over HTTP, and what slow or vanishing clients do to the server.

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::client::{Call, parse};
use crate::support::server::{Server, id};

#[tokio::test]
async fn the_same_bytes_make_no_new_version_and_are_indexed_once() {
    let server = Server::start().await;
    let put = |text: &str| {
        Call::new("PUT", "/documents/%EB%AC%B8%EC%84%9C%2F1").header("X-Filename", "문서.txt").body(text)
    };
    let first = server.client.send(put("one")).await.expect(201);
    assert_eq!((&first["document_id"], &first["version"]), (&json!("문서/1"), &json!(1)));
    let same = server.client.send(put("one")).await.expect(200);
    assert_eq!((&same["version"], &same["new_version"]), (&json!(1), &json!(false)));
    let path = "/documents/%EB%AC%B8%EC%84%9C%2F1/index";
    let job = server.client.send(Call::new("POST", path)).await.expect(202);
    assert_eq!(job["idempotency_key"], "문서/1:v1:test-1");
    assert_eq!(job["payload"], json!({"document_id": "문서/1", "version": 1, "pipeline": "default"}));
    let again = server.client.post(path, json!({"version": 1})).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));

    let second = server.client.send(put("two")).await.expect(200);
    assert_eq!((&second["version"], &second["new_version"]), (&json!(2), &json!(true)));
    let shown = server.client.get("/documents/%EB%AC%B8%EC%84%9C%2F1").await.expect(200);
    assert_eq!((&shown["versions"][0]["version"], &shown["last_job"]), (&json!(2), &json!(null)));
    assert_eq!(shown["versions"][0]["filename"], "문서.txt");
    let missing = server.client.post(path, json!({"version": 3})).await.expect(404);
    assert_eq!(missing["code"], "DOCUMENT_NOT_FOUND");
    server.client.delete("/documents/%EB%AC%B8%EC%84%9C%2F1").await.expect(204);
    server.client.delete("/documents/%EB%AC%B8%EC%84%9C%2F1").await.expect(404);
}

#[tokio::test]
async fn a_tenant_sees_its_own_documents_alone() {
    let server = Server::start().await;
    let put = Call::new("PUT", "/documents/d").header("X-Tenant", "acme").body("text");
    server.client.send(put).await.expect(201);
    server.client.get("/documents/d").await.expect(404);
    server.client.send(Call::new("GET", "/documents/d").header("X-Tenant", "acme")).await.expect(200);
    let hits = server.client.get("/search?q=a%20question&tenant=acme").await.expect(200);
    assert_eq!(hits["hits"][0]["text"], "acme a question");
    let mixed = Call::new("GET", "/search?q=a&tenant=acme").header("X-Tenant", "other");
    server.client.send(mixed).await.expect(400);
}

#[tokio::test]
async fn documents_are_listed_page_by_page_by_name() {
    let server = Server::start().await;
    for name in ["c", "a", "b"] {
        server.client.send(Call::new("PUT", format!("/documents/{name}")).body("x")).await.expect(201);
    }
    let first = server.client.get("/documents?limit=2").await.expect(200);
    assert_eq!(
        (&first["items"][0]["document_id"], &first["items"][1]["document_id"]),
        (&json!("a"), &json!("b"))
    );
    let next = first["next_cursor"].as_str().unwrap();
    let second = server.client.get(format!("/documents?limit=2&cursor={next}")).await.expect(200);
    assert_eq!((&second["items"][0]["document_id"], &second["next_cursor"]), (&json!("c"), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_given_up() {
    let server = Server::start_without_housekeeping().await;
    for head in [
        "POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        "PUT /documents/d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
    ] {
        let mut stream = server.client.open(head.as_bytes()).await;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        let answer = parse(&said);
        assert_eq!((answer.status, answer.json()["code"].as_str()), (408, Some("REQUEST_TIMEOUT")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    let server = Server::start_without_housekeeping().await;
    let mut stream = server.client.open(b"GET / HTTP/1.1\r\n").await;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert!(matches!(parse(&said).status, 0 | 408), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn claimed_jobs_that_nobody_takes_go_back_at_once() {
    let server = Server::start().await;
    let job = server.submit(json!({"job_type": "T"})).await;
    let claim = coolant::engine::work::Claim { worker: "w".into(), ..Default::default() };
    drop(server.engine.claim(claim).await.unwrap());
    let claimed =
        server.client.post("/work/claim", json!({"worker": "w2", "wait_seconds": 5})).await.expect(200);
    let again = &claimed["jobs"][0]["job"];
    assert_eq!(again["job_id"], job);
    assert_eq!((&again["released_count"], &again["attempt_count"]), (&json!(1), &json!(1)));
    let attempts = server.engine.attempts(&coolant::engine::Caller::local(), id(&job)).await.unwrap();
    assert_eq!(attempts.len(), 2);
}
