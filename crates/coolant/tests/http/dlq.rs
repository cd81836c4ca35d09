//! The dead-letter queue over HTTP: looking, grouping, putting back, throwing away.

use std::time::Duration;

use coolant::engine::redrive::Paces;
use coolant_core::lifecycle::Event;
use coolant_core::store::JobChange;
use serde_json::{Value, json};

use crate::support::server::Server;

/// A redrive for real, once done.
async fn redrive(server: &Server, body: Value) -> Value {
    let mut body = body;
    body["dry_run"] = json!(false);
    let begun = server.client.post("/dlq/redrive", body).await.expect(202);
    let path = format!("/dlq/redrives/{}", begun["redrive_id"].as_str().unwrap());
    loop {
        let progress = server.client.get(path.clone()).await.expect(200);
        if progress["state"] != "running" {
            return progress;
        }
        server.clock.advance(Duration::from_millis(50));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn skipped(redrive: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let skipped = redrive["skipped"].as_array().unwrap();
    skipped.iter().map(|one| (text(&one["job_id"]), text(&one["reason"]))).collect()
}

#[tokio::test]
async fn a_redrive_puts_back_the_newest_of_twins_and_nothing_that_lives() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for lock in ["twin", "twin", "a", "b", "c"] {
        ids.push(server.dead_letter(json!({"job_type": "T", "lock_key": lock, "cooldown_seconds": 0})).await);
    }
    server.submit(json!({"job_type": "T", "lock_key": "c", "delay_seconds": 3600})).await;
    let dry = server.client.post("/dlq/redrive", json!({})).await.expect(200);
    assert_eq!((&dry["redrive_id"], &dry["dry_run"]), (&Value::Null, &json!(true)));
    assert_eq!((&dry["matched"], &dry["redriven"]), (&json!(5), &json!(3)));
    assert_eq!(dry["estimated_cost_usd"], 0.75);
    assert_eq!(server.client.get("/stats").await.expect(200)["dlq_message_count"], 5);

    let done = redrive(&server, json!({"per_second": 100})).await;
    assert_eq!((&done["redriven"], &done["left"], &done["state"]), (&json!(3), &json!(0), &json!("done")));
    let expected = [
        (ids[4].clone(), "a live job has the same lock key".to_owned()),
        (ids[0].clone(), "a newer job has the same lock key".to_owned()),
    ];
    assert_eq!(skipped(&done), expected);
    let attempts = server.client.get(format!("/jobs/{}/attempts", ids[1])).await.expect(200);
    assert_eq!(attempts["items"].as_array().unwrap().len(), 1, "the history is kept");

    let again = redrive(&server, json!({"per_second": 100})).await;
    assert_eq!((&again["matched"], &again["redriven"]), (&json!(2), &json!(0)));
    assert_eq!(skipped(&again).len(), 2);
    let audit = server.client.get("/audit").await.expect(200);
    assert_eq!(audit["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_redrive_skips_what_cools_or_failed_for_good_unless_forced() {
    let server = Server::start().await;
    server.dead_letter(json!({"job_type": "T", "cooldown_seconds": 60})).await;
    server.submit(json!({"job_type": "T"})).await;
    let (id, token) = server.claim().await;
    let fail = json!({"lease_token": token, "error": {"code": "X", "class": "not_found"}});
    server.client.post(format!("/work/jobs/{id}/fail"), fail).await.expect(200);

    let done = redrive(&server, json!({})).await;
    let reasons: Vec<_> = skipped(&done).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons, ["the failure is permanent", "cooling down; retry possible in 1 min"]);
    let forced = redrive(&server, json!({"force": true, "reason": "fixed", "per_second": 100})).await;
    assert_eq!((&forced["redriven"], &forced["skipped"]), (&json!(2), &json!([])));
    let audit = server.client.get("/audit").await.expect(200);
    assert_eq!(audit["items"][0]["action"], "job.redrive.forced");
}

#[tokio::test]
async fn processes_that_redrive_together_keep_the_rate_of_one_and_go_on_after_a_restart() {
    let server = Server::start_without_housekeeping().await;
    for _ in 0..8 {
        server.dead_letter(json!({"job_type": "T", "cooldown_seconds": 0})).await;
    }
    let begun = json!({"dry_run": false, "per_second": 2});
    let begun = server.client.post("/dlq/redrive", begun).await.expect(202);
    let path = format!("/dlq/redrives/{}", begun["redrive_id"].as_str().unwrap());
    let redriven = async || server.client.get(path.clone()).await.expect(200)["redriven"].as_u64().unwrap();

    let (mut first, mut second) = (Paces::new(), Paces::new());
    let mut counts = Vec::new();
    for _ in 0..4 {
        server.engine.advance_redrives(&mut first).await.unwrap();
        server.engine.advance_redrives(&mut second).await.unwrap();
        counts.push(redriven().await);
        server.clock.advance(Duration::from_millis(500));
    }
    assert_eq!(counts, [1, 2, 3, 4]);

    // An hour of nobody being there is not made up for at once.
    server.clock.advance(Duration::from_secs(3600));
    let mut restarted = Paces::new();
    server.engine.advance_redrives(&mut restarted).await.unwrap();
    assert_eq!(redriven().await, 4);
    server.clock.advance(Duration::from_millis(500));
    server.engine.advance_redrives(&mut restarted).await.unwrap();
    assert_eq!(redriven().await, 5);
    server.clock.advance(Duration::from_millis(1500));
    server.engine.advance_redrives(&mut restarted).await.unwrap();
    assert_eq!(redriven().await, 8);
    assert_eq!(server.client.get(path.clone()).await.expect(200)["state"], "done");
}

#[tokio::test]
async fn a_job_that_another_process_puts_back_meanwhile_is_no_twin_of_its_own() {
    let server = Server::start_without_housekeeping().await;
    let id = server.dead_letter(json!({"job_type": "T", "lock_key": "l", "cooldown_seconds": 0})).await;
    let begun = server.client.post("/dlq/redrive", json!({"dry_run": false})).await.expect(202);
    // The other one is at the same step, and has not said so yet.
    let reopened = JobChange::new(id.parse().unwrap(), Event::Reopen { force: false });
    server.store.slip_in("live_lock_keys", reopened);
    server.engine.advance_redrives(&mut Paces::new()).await.unwrap();
    let path = format!("/dlq/redrives/{}", begun["redrive_id"].as_str().unwrap());
    let done = server.client.get(path).await.expect(200);
    assert_eq!(
        (&done["state"], &done["redriven"], &done["skipped"]),
        (&json!("done"), &json!(1), &json!([]))
    );
}

#[tokio::test]
async fn a_stopped_redrive_leaves_the_rest_where_it_was() {
    let server = Server::start_without_housekeeping().await;
    for _ in 0..3 {
        server.dead_letter(json!({"job_type": "T", "cooldown_seconds": 0})).await;
    }
    let begun = server.client.post("/dlq/redrive", json!({"dry_run": false})).await.expect(202);
    server.engine.advance_redrives(&mut Paces::new()).await.unwrap();
    let path = format!("/dlq/redrives/{}", begun["redrive_id"].as_str().unwrap());
    let stopped = server.client.delete(path.clone()).await.expect(200);
    assert_eq!(
        (&stopped["state"], &stopped["redriven"], &stopped["left"]),
        (&json!("stopped"), &json!(1), &json!(2))
    );
    server.clock.advance(Duration::from_secs(60));
    server.engine.advance_redrives(&mut Paces::new()).await.unwrap();
    assert_eq!(server.client.get(path).await.expect(200)["redriven"], 1);
    assert_eq!(server.client.get("/stats").await.expect(200)["dlq_message_count"], 2);
}

#[tokio::test]
async fn dead_letters_are_grouped_by_what_failed_alike_and_discarded_for_good() {
    let server = Server::start().await;
    let first = server.dead_letter(json!({"job_type": "T"})).await;
    let second = server.dead_letter(json!({"job_type": "T"})).await;
    let groups = server.client.get("/dlq/groups").await.expect(200);
    let group = &groups["items"][0];
    assert_eq!((&group["count"], &group["message"]), (&json!(2), &json!("it broke after # s")));
    assert_eq!(group["cost_usd"], 0.5);
    let record = server.client.get(format!("/dlq/{first}")).await.expect(200);
    assert_eq!((&record["last_error_code"], &record["usage"]["cost_usd"]), (&json!("BROKE"), &json!(0.25)));
    assert_eq!(record["attempts"][0]["outcome"], "failed");

    let discard = json!({"note": "not needed any more"});
    let job = server.client.post(format!("/dlq/{first}/discard"), discard).await.expect(200);
    assert_eq!((&job["status"], &job["phase"]), (&json!("FAILED"), &json!("discarded")));
    let gone = server.client.get(format!("/dlq/{first}")).await.expect(404);
    assert_eq!(gone["code"], "NOT_DEAD_LETTERED");
    let left = server.client.get("/dlq").await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["job_id"], second);
    let retry = server.client.post(format!("/jobs/{first}/retry"), json!({})).await.expect(409);
    assert_eq!(retry["code"], "PERMANENT_FAILURE");
}

#[tokio::test]
async fn a_job_out_of_attempts_ends_with_nobody_polling() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T", "max_attempts": 1, "lease_seconds": 1})).await;
    server.claim().await;
    server.clock.advance(Duration::from_secs(2));
    let job = server.client.get(format!("/jobs/{id}?wait=5")).await.expect(200);
    assert_eq!((&job["status"], &job["last_error_code"]), (&json!("FAILED"), &json!("WORKER_LOST")));
}
