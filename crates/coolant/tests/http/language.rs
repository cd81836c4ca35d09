//! What people are told over HTTP comes in the language that they ask for; what programs read never changes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Answer, Call};
use crate::support::memory::Fault;
use crate::support::server::Server;

async fn call(server: &Server, call: Call, language: &str) -> Answer {
    server.client.send(call.header("Accept-Language", language)).await
}

async fn get(server: &Server, path: &str, language: &str) -> Answer {
    call(server, Call::new("GET", path), language).await
}

/// What the answer says of its language.
fn told(answer: &Answer) -> [Option<&str>; 2] {
    [answer.header("content-language"), answer.header("vary")]
}

const KOREAN: [Option<&str>; 2] = [Some("ko"), Some("Accept-Language")];
const ENGLISH: [Option<&str>; 2] = [Some("en"), Some("Accept-Language")];

/// An answer without what is for people.
fn for_programs(answer: &Answer) -> Value {
    let mut body = answer.json();
    for name in ["title", "detail"] {
        body.as_object_mut().unwrap().remove(name);
    }
    body
}

#[tokio::test]
async fn a_cooldown_is_told_in_the_language_asked_for() {
    let server = Server::start_without_housekeeping().await;
    let id = server.dead_letter(json!({"job_type": "T"})).await;
    server.clock.advance(Duration::from_millis(48_900));

    let korean = get(&server, &format!("/jobs/{id}"), "ko-KR,ko;q=0.9,en;q=0.8").await;
    assert_eq!(told(&korean), KOREAN);
    assert_eq!(korean.json()["retry"]["message"], "4분 12초 후 다시 시도할 수 있습니다");
    for language in ["en", "fr", "*", "ko;q=0", "\u{FF}", ";;;,q=1", ""] {
        let english = get(&server, &format!("/jobs/{id}"), language).await;
        assert_eq!(told(&english), ENGLISH, "{language}");
        assert_eq!(english.json()["retry"]["message"], "retry possible in 4 min 12 s", "{language}");
    }

    let retry = |language| {
        let retry = Call::new("POST", format!("/jobs/{id}/retry")).json(&json!({}));
        call(&server, retry, language)
    };
    let (korean, english) = (retry("ko").await, retry("en").await);
    assert_eq!((korean.status, told(&korean), told(&english)), (429, KOREAN, ENGLISH));
    assert_eq!(for_programs(&korean), for_programs(&english), "codes, fields and seconds are the same");
    assert_eq!(korean.header("retry-after"), english.header("retry-after"));
    let body = korean.json();
    assert_eq!(body["title"], "요청이 너무 많음");
    assert_eq!(
        body["detail"],
        "실패한 작업의 대기 시간이 남아 있습니다. 4분 12초 후 다시 시도할 수 있습니다"
    );
    assert_eq!(
        (&body["code"], &body["type"]),
        (&json!("COOLING_DOWN"), &json!("urn:coolant:problem:COOLING_DOWN"))
    );
    assert_eq!(english.json()["title"], "Too Many Requests");

    let explained = get(&server, &format!("/jobs/{id}/explain"), "ko").await.expect(200);
    assert_eq!(explained["reasons"][0]["reason"], "cooling");
    let message = &explained["reasons"][0]["message"];
    assert_eq!(message, "실패했으며, 대기 시간이 끝나기 전에는 다시 시도할 수 없습니다");
    let events = get(&server, &format!("/jobs/{id}/events"), "ko").await;
    assert!(String::from_utf8_lossy(&events.body).contains("4분 12초 후"), "also in a stream");
}

#[tokio::test]
async fn a_waiting_job_is_explained_in_the_language_asked_for() {
    let server = Server::start_without_housekeeping().await;
    server.submit(json!({"job_type": "T"})).await;
    let id = server.submit(json!({"job_type": "T"})).await;
    let explained = get(&server, &format!("/jobs/{id}/explain"), "ko").await.expect(200);
    let messages: Vec<_> =
        explained["reasons"].as_array().unwrap().iter().map(|r| r["message"].clone()).collect();
    assert_eq!(
        messages,
        [
            "큐 `default`에서 먼저 실행될 작업: 1개",
            "최근 30초 동안 큐 `default`에서 `T` 작업을 요청한 워커가 없습니다"
        ]
    );
    let explained = get(&server, &format!("/jobs/{id}/explain"), "en").await.expect(200);
    assert_eq!(explained["reasons"][0]["message"], "jobs ahead of it in queue `default`: 1");
}

#[tokio::test]
async fn a_lock_is_told_in_the_language_asked_for() {
    let server = Server::start_without_housekeeping().await;
    let acquire = || Call::new("POST", "/locks/a/acquire").json(&json!({"ttl_seconds": 300, "holder": "나"}));
    call(&server, acquire(), "ko").await.expect(200);
    let korean = call(&server, acquire(), "ko").await;
    assert_eq!((korean.status, told(&korean)), (423, KOREAN));
    assert_eq!(korean.json()["title"], "잠겨 있음");
    assert_eq!(korean.json()["detail"], "`나`에서 잠금을 사용 중입니다. 갱신하지 않으면 5분 후 풀립니다");
    let english = call(&server, acquire(), "en").await;
    assert_eq!(for_programs(&korean), for_programs(&english));
    assert_eq!(english.json()["detail"], "`나` holds the lock for another 5 min");
}

#[tokio::test]
async fn a_store_that_is_away_is_told_in_the_language_asked_for() {
    let server = Server::start_without_housekeeping().await;
    server.store.fail(Fault::Away);
    let korean = get(&server, "/readyz", "ko").await;
    assert_eq!((korean.status, told(&korean)), (503, KOREAN));
    assert_eq!(korean.json()["title"], "일시적으로 사용할 수 없음");
    assert_eq!(korean.json()["detail"], "지금은 저장소를 사용할 수 없습니다");
}

#[tokio::test]
async fn an_error_that_waiting_does_not_help_is_english_and_says_so() {
    let server = Server::start_without_housekeeping().await;
    for path in ["/jobs/1", "/nothing", "/jobs?limit=0"] {
        let answer = get(&server, path, "ko").await;
        assert_eq!(told(&answer), ENGLISH, "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().is_ascii(), "{path}");
    }
    // Several headers are one list.
    let both =
        Call::new("GET", "/healthz").header("Accept-Language", "fr").header("Accept-Language", "ko;q=0.1");
    assert_eq!(told(&server.client.send(both).await), KOREAN);
}
