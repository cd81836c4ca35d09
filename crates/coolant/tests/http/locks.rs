//! Leaky locks over HTTP: what each answer says, to the field, and what hostile requests get.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Answer, Call};
use crate::support::server::Server;

async fn acquire(server: &Server, key: &str, holder: &str) -> Answer {
    let body = json!({"ttl_seconds": 300, "holder": holder});
    server.client.post(format!("/locks/{key}/acquire"), body).await
}

async fn acquired(server: &Server, key: &str) -> i64 {
    acquire(server, key, "me@host:1").await.expect(200)["token"].as_i64().unwrap()
}

async fn say(server: &Server, key: &str, call: &str, body: Value) -> Answer {
    server.client.post(format!("/locks/{key}/{call}"), body).await
}

#[tokio::test]
async fn a_held_lock_says_who_has_it_and_for_how_long() {
    let server = Server::start_without_housekeeping().await;
    let given = acquire(&server, "a", "me@host:1").await.expect(200);
    assert_eq!(given, json!({"token": 1, "expires_at": "2025-11-29T12:05:00.000Z"}));
    server.clock.advance(Duration::from_millis(48_500));
    let refused = acquire(&server, "a", "you").await;
    assert_eq!(refused.header("retry-after"), Some("252"));
    assert_eq!(
        refused.expect(423),
        json!({
            "type": "urn:coolant:problem:LOCK_HELD", "title": "Locked", "status": 423, "code": "LOCK_HELD",
            "detail": "`me@host:1` holds the lock for another 4 min 12 s",
            "state": "held", "holder": "me@host:1", "reason": null, "retry_after_seconds": 251.5,
        })
    );
    let seen = server.client.get("/locks/a").await.expect(200);
    assert_eq!(
        seen,
        json!({"key": "a", "state": "held", "holder": "me@host:1", "reason": null,
               "until": "2025-11-29T12:05:00.000Z", "retry_after_seconds": 251.5})
    );
    server.clock.advance(Duration::from_secs(252));
    assert_eq!(acquired(&server, "a").await, 2, "nobody gave it back, and its time ended");
}

#[tokio::test]
async fn a_failure_leaves_the_lock_cooling_and_a_success_frees_it() {
    let server = Server::start_without_housekeeping().await;
    let token = acquired(&server, "a").await;
    server.clock.advance(Duration::from_secs(100));
    let failed = say(&server, "a", "fail", json!({"token": token, "reason": "exit status 3"})).await;
    assert_eq!(failed.expect(200)["state"], "cooling");
    let refused = acquire(&server, "a", "you").await;
    assert_eq!(refused.header("retry-after"), Some("200"));
    assert_eq!(
        refused.expect(423),
        json!({
            "type": "urn:coolant:problem:LOCK_COOLING", "title": "Locked", "status": 423,
            "code": "LOCK_COOLING",
            "detail": "the lock cools down for another 3 min 20 s after `me@host:1` failed: exit status 3",
            "state": "cooling", "holder": "me@host:1", "reason": "exit status 3", "retry_after_seconds": 200.0,
        })
    );
    server.clock.advance(Duration::from_secs(200));
    let token = acquired(&server, "a").await;
    let renewed = say(&server, "a", "renew", json!({"token": token, "ttl_seconds": 600})).await.expect(200);
    assert_eq!(renewed, json!({"token": token, "expires_at": "2025-11-29T12:15:00.000Z"}));
    let freed = json!({"key": "a", "state": "free", "holder": null, "reason": null, "until": null,
                       "retry_after_seconds": null});
    for _ in 0..2 {
        assert_eq!(say(&server, "a", "succeed", json!({"token": token})).await.expect(200), freed);
    }
    assert_eq!(server.client.get("/locks/a").await.expect(200), freed);
    let token = acquired(&server, "a").await;
    let own = json!({"token": token, "reason": "no", "cooldown_seconds": 7.5});
    assert_eq!(say(&server, "a", "fail", own).await.expect(200)["retry_after_seconds"], 7.5);
}

#[tokio::test]
async fn a_closed_lock_says_no_seconds_and_an_operator_opens_it_on_record() {
    let server = Server::start_without_housekeeping().await;
    let token = acquired(&server, "a%2Fb").await;
    let body = json!({"token": token, "reason": "the file is gone", "permanent": true});
    assert_eq!(say(&server, "a%2Fb", "fail", body).await.expect(200)["state"], "closed");
    server.clock.advance(Duration::from_secs(30 * 86_400));
    let refused = acquire(&server, "a%2Fb", "you").await;
    assert_eq!(refused.header("retry-after"), None);
    let refused = refused.expect(423);
    assert_eq!((&refused["code"], &refused["state"]), (&json!("LOCK_CLOSED"), &json!("closed")));
    assert_eq!(refused.get("retry_after_seconds"), None);
    server.client.delete("/locks/a%2Fb?reason=it%20is%20back").await.expect(204);
    assert_eq!(server.client.get("/locks/a%2Fb").await.expect(200)["state"], "free");
    let audit = server.client.get("/audit").await.expect(200)["items"][0].clone();
    let told = (&audit["action"], &audit["target"], &audit["reason"], &audit["actor"]);
    assert_eq!(told, (&json!("lock.opened"), &json!("a/b"), &json!("it is back"), &json!("local")));
    let stale = say(&server, "a%2Fb", "renew", json!({"token": token, "ttl_seconds": 1})).await;
    let stale = stale.expect(409);
    assert_eq!((&stale["code"], stale.get("state")), (&json!("LEASE_LOST"), None));
}

#[tokio::test]
async fn a_hostile_request_is_answered_exactly_and_changes_nothing() {
    let server = Server::start_without_housekeeping().await;
    let token = acquired(&server, "a").await;
    let before = server.client.get("/locks/a").await.expect(200);
    let long = "x".repeat(513);
    let cases = [
        ("a", "acquire", r#"{"holder":"x"}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":0}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":-1}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":604801}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":1e400}"#, 400, "INVALID_JSON", ""),
        ("a", "acquire", r#"{"ttl_seconds":"5m"}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":5,"ttl_seconds":6}"#, 400, "INVALID_FIELD", "ttl_seconds"),
        ("a", "acquire", r#"{"ttl_seconds":5,"holder":""}"#, 400, "INVALID_FIELD", "holder"),
        ("a", "acquire", r#"{"ttl_seconds":5,"holder":"a\nb"}"#, 400, "INVALID_FIELD", "holder"),
        ("a", "acquire", r#"{"ttl_seconds":5,"ttl":6}"#, 400, "UNKNOWN_FIELD", "ttl"),
        ("a", "acquire", "[300]", 400, "INVALID_FIELD", "body"),
        ("a%0Ab", "acquire", r#"{"ttl_seconds":5}"#, 400, "INVALID_FIELD", "key"),
        ("coolant:x", "acquire", r#"{"ttl_seconds":5}"#, 400, "INVALID_FIELD", "key"),
        (&long, "acquire", r#"{"ttl_seconds":5}"#, 400, "INVALID_FIELD", "key"),
        ("a", "renew", r#"{"token":1.5,"ttl_seconds":5}"#, 400, "INVALID_FIELD", "token"),
        ("a", "renew", r#"{"token":"1","ttl_seconds":5}"#, 400, "INVALID_FIELD", "token"),
        ("a", "renew", r#"{"token":9223372036854775808,"ttl_seconds":5}"#, 400, "INVALID_FIELD", "token"),
        ("a", "renew", r#"{"token":2,"ttl_seconds":5}"#, 409, "LEASE_LOST", ""),
        ("a", "renew", r#"{"token":-1,"ttl_seconds":5}"#, 409, "LEASE_LOST", ""),
        ("a", "succeed", r#"{}"#, 400, "INVALID_FIELD", "token"),
        ("a", "succeed", r#"{"token":0}"#, 409, "LEASE_LOST", ""),
        ("nobody", "succeed", r#"{"token":1}"#, 409, "LEASE_LOST", ""),
        ("a", "fail", r#"{"token":1}"#, 400, "INVALID_FIELD", "reason"),
        ("a", "fail", r#"{"token":1,"reason":""}"#, 400, "INVALID_FIELD", "reason"),
        ("a", "fail", r#"{"token":7,"reason":"x"}"#, 409, "LEASE_LOST", ""),
        (
            "a",
            "fail",
            r#"{"token":1,"reason":"x","cooldown_seconds":-1}"#,
            400,
            "INVALID_FIELD",
            "cooldown_seconds",
        ),
        (
            "a",
            "fail",
            r#"{"token":1,"reason":"x","cooldown_seconds":5,"permanent":true}"#,
            400,
            "INVALID_FIELD",
            "cooldown_seconds",
        ),
        ("a", "open", r#"{}"#, 404, "NOT_FOUND", ""),
    ];
    for (key, call, body, status, code, field) in cases {
        let path = format!("/locks/{key}/{call}");
        let answer = server.client.send(Call::new("POST", path.clone()).json_text(body)).await;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let problem = answer.expect(status);
        let told = (problem["code"].as_str(), problem["field"].as_str().unwrap_or(""));
        assert_eq!(told, (Some(code), field), "{path} {body}: {said}");
    }
    for (call, status) in [
        (Call::new("POST", "/locks/a/succeed").body(format!(r#"{{"token":{token}}}"#)), 415),
        (Call::new("DELETE", "/locks/a?force=1"), 400),
        (Call::new("DELETE", "/locks/a?reason="), 400),
        (Call::new("DELETE", "/locks/a").header("Origin", "http://evil.example"), 403),
        (Call::new("PUT", "/locks/a"), 405),
        (Call::new("GET", "/locks/"), 404),
    ] {
        server.client.send(call).await.expect(status);
    }
    assert_eq!(server.client.get("/locks/a").await.expect(200), before);
    assert_eq!(server.client.get("/locks/nobody").await.expect(200)["state"], "free");
    assert_eq!(server.client.get("/audit").await.expect(200)["items"], json!([]));
}
