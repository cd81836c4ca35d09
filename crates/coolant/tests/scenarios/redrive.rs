//! Redrive: puts dead letters back at a pace, and nothing twice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::{Api, SOON, text, until};
use crate::world::World;

/// A job in the dead-letter queue whose cooldown is over.
async fn dead_letter(api: &Api, mut work: Value) -> String {
    work["max_attempts"] = json!(1);
    work["cooldown_seconds"] = json!(0.2);
    let id = api.create(work).await;
    let claim = api.claim("w").await;
    assert_eq!(claim.id, id);
    api.fail(&claim, "BROKE", "handler_error").await;
    api.until_cooled(&id).await;
    id
}

/// What a redrive skipped, as `job: reason`.
fn skipped(redrive: &Value) -> Vec<(String, String)> {
    let skipped = redrive["skipped"].as_array().unwrap().iter();
    let mut skipped: Vec<_> = skipped.map(|skip| (text(&skip["job_id"]), text(&skip["reason"]))).collect();
    skipped.sort();
    skipped
}

async fn progress(api: &Api, redrive: &str) -> Value {
    api.0.get(format!("/dlq/redrives/{redrive}")).await.expect(200)
}

pub(crate) async fn s12_a_redrive_moves_the_newest_twin_and_the_free_ones_once(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let job = |lock: Value| json!({"job_type": "PAID", "lock_key": lock});
    let older_twin = dead_letter(api, job(json!("twins"))).await;
    let newer_twin = dead_letter(api, job(json!("twins"))).await;
    let with_live = dead_letter(api, job(json!("lived"))).await;
    let free = dead_letter(api, job(json!("free"))).await;
    let without_lock = dead_letter(api, job(json!(null))).await;
    let live = api.create(job(json!("lived"))).await;
    let moved = [newer_twin, free, without_lock];

    let dry = api.0.post("/dlq/redrive", json!({})).await.expect(200);
    assert_eq!((&dry["matched"], &dry["redriven"], &dry["redrive_id"]), (&json!(5), &json!(3), &json!(null)));
    assert_eq!(api.stat("dlq_message_count").await, 5.0, "a dry run moves nothing");

    let started = Instant::now();
    let request = json!({"dry_run": false, "per_second": 1, "reason": "mended"});
    let first = api.0.post("/dlq/redrive", request.clone()).await.expect(202);
    let id = text(&first["redrive_id"]);
    let done = until(SOON, async || Some(progress(api, &id).await).filter(|r| r["state"] == "done")).await;
    // One goes at once, then one a second; both ends are seen up to a look of the server later.
    assert!(started.elapsed() > Duration::from_millis(1700), "too fast: {:?}", started.elapsed());
    assert_eq!((&done["redriven"], &done["left"]), (&json!(3), &json!(0)));
    let mut expected = vec![
        (older_twin.clone(), "a newer job has the same lock key".to_owned()),
        (with_live.clone(), "a live job has the same lock key".to_owned()),
    ];
    expected.sort();
    assert_eq!(skipped(&done), expected);
    for id in &moved {
        let job = api.job(id).await;
        assert_eq!(
            (&job["status"], &job["attempt_count"]),
            (&json!("PENDING"), &json!(1)),
            "its history stays"
        );
        assert_eq!(api.history(id).await, ["w: failed, BROKE"]);
    }
    for id in [&older_twin, &with_live] {
        assert_eq!(api.job(id).await["status"], "FAILED");
    }
    assert_eq!(api.job(&live).await["attempt_count"], 0);
    assert_eq!(api.items("/audit").await.len(), 3, "each job put back is on record");

    let second = api.0.post("/dlq/redrive", request).await.expect(202);
    assert_eq!((&second["state"], &second["matched"]), (&json!("done"), &json!(2)));
    assert_eq!((&second["redriven"], &second["left"]), (&json!(0), &json!(0)));
    assert_eq!(skipped(&second).len(), 2, "{second}");
    assert_eq!(api.stat("dlq_message_count").await, 2.0);
}

pub(crate) async fn s12_a_redrive_goes_on_after_a_crash(world: &World) {
    let server = world.serve().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(dead_letter(&server.api, json!({"job_type": "PAID"})).await);
    }
    let request = json!({"dry_run": false, "per_second": 2});
    let redrive = text(&server.api.0.post("/dlq/redrive", request).await.expect(202)["redrive_id"]);
    let begun = async || Some(progress(&server.api, &redrive).await).filter(|r| r["redriven"] != 0);
    let before = until(SOON, begun).await;
    server.kill().await;
    assert_ne!(before["state"], "done");

    let server = world.serve().await;
    let api = &server.api;
    let done = async || Some(progress(api, &redrive).await).filter(|r| r["state"] == "done");
    let done = until(SOON, done).await;
    assert_eq!((&done["redriven"], &done["left"]), (&json!(4), &json!(0)));
    assert_eq!(skipped(&done), []);
    let claims = api.claims("w", json!({"max": 10})).await;
    assert_eq!(claims.len(), 4, "each is there once");
    for id in &ids {
        assert_eq!(api.job(id).await["attempt_count"], 2);
    }
}
