//! Schedules over HTTP: set, looked at, paused, run by hand, removed; and what is refused.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::server::Server;

// The server's clock stands at 2025-11-29T12:00:00Z, a Saturday, until it is moved.

fn nightly() -> Value {
    json!({"cron": "0 3 * * *", "time_zone": "asia/seoul", "job": {"job_type": "T", "payload": {"a": 1}}})
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_schedule_is_set_shown_and_removed() {
    let server = Server::start_without_housekeeping().await;
    let client = server.client;
    let set = client.put("/schedules/nightly", nightly()).await.expect(201);
    assert_eq!((&set["name"], &set["tenant"]), (&json!("nightly"), &json!("default")));
    assert_eq!((&set["time_zone"], &set["catch_up"]), (&json!("Asia/Seoul"), &json!("latest")));
    assert_eq!((&set["paused"], &set["last_at"]), (&json!(false), &Value::Null));
    assert_eq!((&set["job"]["job_type"], &set["job"]["payload"]), (&json!("T"), &json!({"a": 1})));
    assert_eq!((&set["job"]["queue"], &set["job"]["max_attempts"]), (&json!("default"), &json!(4)));
    let days = [29, 30].map(|day| format!("2025-11-{day}T18:00:00.000Z"));
    let more = [1, 2, 3].map(|day| format!("2025-12-0{day}T18:00:00.000Z"));
    assert_eq!(texts(&set["next_ticks"]), [&days[..], &more[..]].concat());
    assert_eq!(set["next_at"], set["next_ticks"][0]);
    assert_eq!(client.get("/schedules/nightly").await.expect(200), set);

    let again = client.put("/schedules/nightly", nightly()).await.expect(200);
    assert_eq!((&again["created_at"], &again["next_at"]), (&set["created_at"], &set["next_at"]));
    client.delete("/schedules/nightly").await.expect(204);
    for answer in [client.get("/schedules/nightly").await, client.delete("/schedules/nightly").await] {
        assert_eq!(answer.expect(404)["code"], "SCHEDULE_NOT_FOUND");
    }
    for call in ["pause", "resume", "run"] {
        let answer = client.post(format!("/schedules/nightly/{call}"), json!({})).await;
        assert_eq!(answer.expect(404)["code"], "SCHEDULE_NOT_FOUND");
    }
}

#[tokio::test]
async fn schedules_are_listed_by_name_page_by_page() {
    let server = Server::start_without_housekeeping().await;
    for name in ["c", "a", "b"] {
        server.client.put(format!("/schedules/{name}"), nightly()).await.expect(201);
    }
    let names = |page: &Value| {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = server.client.get("/schedules?limit=2").await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.client.get(format!("/schedules?limit=2&cursor={cursor}")).await.expect(200);
    assert_eq!((names(&second), &second["next_cursor"]), (vec!["c".to_owned()], &Value::Null));
    assert_eq!(server.client.get("/schedules?cursor=x").await.expect(400)["code"], "INVALID_CURSOR");
}

#[tokio::test]
async fn each_tick_becomes_a_job_that_names_it() {
    let server = Server::start().await;
    let body = json!({"cron": "*/10 * * * * *", "job": {"job_type": "T", "tags": {"team": "a"}, "priority": 2,
        "delay_seconds": 1, "lease_seconds": 60, "max_attempts": 2}});
    server.client.put("/schedules/often", body).await.expect(201);
    server.clock.advance(Duration::from_secs(10));
    let job = loop {
        let jobs = server.client.get("/jobs?tag=schedule:often").await.expect(200);
        if let Some(job) = jobs["items"].as_array().unwrap().first() {
            break job.clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(job["idempotency_key"], "schedule:often:2025-11-29T12:00:10Z");
    assert_eq!((&job["phase"], &job["max_attempts"]), (&json!("scheduled"), &json!(2)));
    assert_eq!(job["tags"], json!({"team": "a", "schedule": "often"}));
    let after = server.client.get("/schedules/often").await.expect(200);
    assert_eq!(after["last_at"], "2025-11-29T12:00:10.000Z");
    assert_eq!(after["next_at"], "2025-11-29T12:00:20.000Z");
}

#[tokio::test]
async fn a_schedule_rests_until_it_is_resumed_or_set() {
    let server = Server::start_without_housekeeping().await;
    let client = server.client;
    let mut resting = nightly();
    resting["paused"] = json!(true);
    let set = client.put("/schedules/s", resting).await.expect(201);
    assert_eq!(
        (&set["paused"], &set["next_at"], &set["next_ticks"]),
        (&json!(true), &Value::Null, &json!([]))
    );
    let resumed = client.send(Call::new("POST", "/schedules/s/resume")).await.expect(200);
    assert_eq!(
        (&resumed["paused"], &resumed["next_at"]),
        (&json!(false), &json!("2025-11-29T18:00:00.000Z"))
    );
    server.clock.advance(Duration::from_secs(60));
    let again = client.post("/schedules/s/resume", json!({})).await.expect(200);
    assert_eq!(again, resumed, "again is no change");
    let paused = client.post("/schedules/s/pause", json!({})).await.expect(200);
    assert_eq!((&paused["paused"], &paused["next_at"]), (&json!(true), &Value::Null));
    let set = client.put("/schedules/s", nightly()).await.expect(200);
    assert_eq!((&set["paused"], &set["next_ticks"].as_array().unwrap().len()), (&json!(false), &5));
}

#[tokio::test]
async fn a_run_by_hand_is_one_job_a_key_also_while_the_schedule_rests() {
    let server = Server::start_without_housekeeping().await;
    let client = server.client;
    client.put("/schedules/s", nightly()).await.expect(201);
    client.post("/schedules/s/pause", json!({})).await.expect(200);
    let run = || Call::new("POST", "/schedules/s/run").header("Idempotency-Key", "by-ada");
    let first = client.send(run()).await;
    assert_eq!(first.header("location").map(|at| at.starts_with("/jobs/")), Some(true));
    let first = first.expect(202);
    assert_eq!(first["idempotency_key"], "schedule:s:run:by-ada");
    assert_eq!((&first["payload"], &first["tags"]["schedule"]), (&json!({"a": 1}), &json!("s")));
    assert_eq!(client.send(run()).await.expect(200)["job_id"], first["job_id"]);
    let other = client.send(Call::new("POST", "/schedules/s/run")).await.expect(202);
    assert_ne!(other["job_id"], first["job_id"]);
    let after = client.get("/schedules/s").await.expect(200);
    assert_eq!((&after["last_at"], &after["paused"]), (&Value::Null, &json!(true)));
}

#[tokio::test]
async fn tenants_share_no_schedules() {
    let server = Server::start_without_housekeeping().await;
    let client = server.client;
    let of = |method: &str, tenant: &str| Call::new(method, "/schedules/s").header("X-Tenant", tenant);
    client.send(of("PUT", "acme").json(&nightly())).await.expect(201);
    client.get("/schedules/s").await.expect(404);
    client.put("/schedules/s", nightly()).await.expect(201);
    let kept = client.send(of("GET", "acme")).await.expect(200);
    assert_eq!(kept["tenant"], "acme");
    let run = Call::new("POST", "/schedules/s/run").header("X-Tenant", "acme");
    assert_eq!(client.send(run).await.expect(202)["tenant"], "acme");
    let mut foreign = nightly();
    foreign["job"]["tenant"] = json!("acme");
    let refused = client.put("/schedules/s", foreign.clone()).await.expect(400);
    assert_eq!(refused["field"], "job.tenant");
    client.send(of("PUT", "acme").json(&foreign)).await.expect(200);
}

#[tokio::test]
async fn what_is_wrong_is_named_and_changes_nothing() {
    let server = Server::start_without_housekeeping().await;
    let client = server.client;
    client.put("/schedules/s", nightly()).await.expect(201);
    let before = client.get("/schedules/s").await.expect(200);
    let with = |path: &[&str], value: Value| {
        let mut body = nightly();
        *path.iter().fold(&mut body, |body, name| &mut body[*name]) = value;
        body
    };
    let without = |name: &str| {
        let mut body = nightly();
        body.as_object_mut().unwrap().remove(name);
        body
    };
    let cases = [
        (with(&["cron"], json!("61 * * * *")), 400, "INVALID_FIELD", "cron"),
        (with(&["cron"], json!("0 0 30 2 *")), 400, "INVALID_FIELD", "cron"),
        (with(&["cron"], json!(5)), 400, "INVALID_FIELD", "cron"),
        (without("cron"), 400, "INVALID_FIELD", "cron"),
        (with(&["time_zone"], json!("Mars/Olympus")), 400, "INVALID_FIELD", "time_zone"),
        (with(&["catch_up"], json!("some")), 400, "INVALID_FIELD", "catch_up"),
        (with(&["every"], json!("day")), 400, "UNKNOWN_FIELD", "every"),
        (without("job"), 400, "INVALID_FIELD", "job"),
        (with(&["job"], json!(["T"])), 400, "INVALID_FIELD", "job"),
        (with(&["job", "run_at"], json!("2026-01-01T00:00:00Z")), 400, "UNKNOWN_FIELD", "job.run_at"),
        (with(&["job", "idempotency_key"], json!("k")), 400, "UNKNOWN_FIELD", "job.idempotency_key"),
        (with(&["job", "job_type"], json!("")), 400, "INVALID_FIELD", "job.job_type"),
        (with(&["job", "priority"], json!(11)), 400, "INVALID_FIELD", "job.priority"),
        (with(&["job", "lease_seconds"], json!(0.1)), 400, "INVALID_FIELD", "job.lease_seconds"),
        (with(&["job", "payload"], json!("x".repeat(1_100_000))), 413, "PAYLOAD_TOO_LARGE", "job.payload"),
    ];
    for (body, status, code, field) in cases {
        let said = body.to_string().chars().take(200).collect::<String>();
        let problem = client.put("/schedules/s", body).await.expect(status);
        assert_eq!((&problem["code"], &problem["field"]), (&json!(code), &json!(field)), "{said}: {problem}");
    }
    // A built-in type's payload is checked as at a submit.
    let index = with(&["job"], json!({"job_type": "DOCUMENT_INDEX", "payload": {"no": 1}}));
    let problem = client.put("/schedules/s", index).await.expect(422);
    assert_eq!(problem["code"], "INVALID_PAYLOAD");
    assert!(problem["field"].as_str().unwrap().starts_with("job.payload"), "{problem}");
    for name in ["a:b", &"x".repeat(129), "a%0Ab"] {
        assert_eq!(client.put(format!("/schedules/{name}"), nightly()).await.expect(400)["field"], "name");
    }
    assert_eq!(client.get("/schedules/s").await.expect(200), before);
    assert_eq!(client.get("/schedules").await.expect(200)["items"].as_array().unwrap().len(), 1);
}
