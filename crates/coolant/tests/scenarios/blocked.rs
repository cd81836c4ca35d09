//! Jobs whose instant has come and that may not start: what they show, and how long they wait.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::{Api, SOON, text, until};
use crate::world::World;

const PHASES: [&str; 9] = [
    "waiting",
    "scheduled",
    "running",
    "cooling",
    "blocked",
    "succeeded",
    "dead_lettered",
    "discarded",
    "cancelled",
];

async fn close(api: &Api, upstream: &str) {
    let body = json!({"seconds": 3600, "reason": "maintenance"});
    api.0.post(format!("/upstreams/{upstream}/close"), body).await.expect(200);
}

pub(crate) async fn a_job_that_nobody_may_claim_waits_no_longer_than_it_said(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    let work = |upstream: &str| json!({"job_type": "T", "upstreams": [upstream], "max_wait_seconds": 1});
    close(api, "u").await;
    let stays = api.create(json!({"job_type": "T", "upstreams": ["u"]})).await;
    let ends = api.create(work("u")).await;
    let failed = api.until_status(&ends, "FAILED").await;
    assert_eq!((&failed["phase"], &failed["attempt_count"]), (&json!("dead_lettered"), &json!(0)));
    assert_eq!(
        (&failed["last_error_code"], &failed["retry"]["automatic"]),
        (&json!("UPSTREAM_CLOSED"), &json!(false))
    );
    assert!(api.items(format!("/jobs/{ends}/attempts")).await.is_empty());
    assert_eq!(api.items("/dlq").await.len(), 1);

    // Closed by its provider, and the money spent.
    let reporter = api.create(json!({"job_type": "T", "upstreams": ["v"]})).await;
    let claim = api.claim("w").await;
    assert_eq!(claim.id, reporter);
    let http =
        json!({"upstream": "v", "status": 529, "headers": {"Retry-After": "600"}, "body": "overloaded"});
    api.report(&claim, "fail", json!({"error": {"http": http}})).await.expect(200);
    api.0.put("/upstreams/m", json!({"budget_usd_per_day": 1.0})).await.expect(200);
    let permit = api.0.post("/upstreams/m/permits", json!({})).await.expect(200);
    let settle = format!("/permits/{}/settle", text(&permit["permit_id"]));
    api.0.post(settle, json!({"outcome": "ok", "usage": {"cost_usd": 1.0}})).await.expect(200);
    for (upstream, code, class) in
        [("v", "LLM_OVERLOADED", "overloaded"), ("m", "BUDGET_EXHAUSTED", "quota_exhausted")]
    {
        let id = api.create(work(upstream)).await;
        let failed = api.until_status(&id, "FAILED").await;
        let error = (&failed["last_error_code"], &failed["last_error_class"]);
        assert_eq!(error, (&json!(code), &json!(class)));
    }
    assert_eq!(api.job(&stays).await["phase"], "blocked");
    api.finds_nothing("w").await;
}

/// One job at least of every phase, and of every reason to be blocked.
async fn jobs_of_all_kinds(api: &Api) {
    let job = |more: Value| {
        let mut job = json!({"job_type": "T", "retry_delays_seconds": [600], "max_attempts": 2});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let once = || job(json!({"max_attempts": 1}));
    for _ in 0..2 {
        api.create(once()).await;
        let claim = api.claim("w").await;
        api.fail(&claim, "BROKE", "handler_error").await;
        if api.items("/dlq").await.len() == 2 {
            api.0.post(format!("/dlq/{}/discard", claim.id), json!({"note": "of no use"})).await.expect(200);
        }
    }
    api.create(job(json!({}))).await;
    let claim = api.claim("w").await;
    api.fail(&claim, "BROKE", "handler_error").await;
    api.create(job(json!({}))).await;
    let claim = api.claim("w").await;
    api.report(&claim, "defer", json!({"seconds": 600, "reason": "RATE_LIMITED"})).await.expect(200);
    api.create(job(json!({}))).await;
    let claim = api.claim("w").await;
    api.succeed(&claim, json!(1)).await;
    api.create(job(json!({"lock_key": "L"}))).await;
    api.claims("w", json!({"lease_seconds": 600})).await.pop().expect("it runs on");
    let cancelled = api.create(job(json!({}))).await;
    api.0.post(format!("/jobs/{cancelled}/cancel"), json!({})).await.expect(202);

    close(api, "u").await;
    for limited in ["/upstreams/m", "/tenants/poor"] {
        api.0.put(limited, json!({"budget_usd_per_day": 0.0})).await.expect(200);
    }
    for more in [
        json!({}),
        json!({"delay_seconds": 600}),
        json!({"upstreams": ["u"]}),
        json!({"upstreams": ["v", "u"]}),
        json!({"upstreams": ["m"]}),
        json!({"upstreams": ["v"]}),
        json!({"upstreams": ["v"], "tenant": "poor"}),
        json!({"tenant": "poor"}),
        json!({"lock_key": "L"}),
        json!({"lock_key": "L", "tenant": "poor"}),
        json!({"upstreams": ["u"], "delay_seconds": 600}),
    ] {
        api.create(job(more)).await;
    }
}

fn ids(jobs: &[Value]) -> BTreeSet<String> {
    jobs.iter().map(|job| text(&job["job_id"])).collect()
}

pub(crate) async fn the_phase_that_a_job_shows_is_the_phase_that_finds_it(world: &World) {
    let server = world.serve().await;
    let api = &server.api;
    jobs_of_all_kinds(api).await;
    let all = api.items("/jobs?limit=100").await;
    assert_eq!(all.len(), 18);
    for phase in PHASES {
        let showing: Vec<Value> = all.iter().filter(|job| job["phase"] == phase).cloned().collect();
        assert!(!showing.is_empty(), "no job shows {phase}");
        let found = api.items(format!("/jobs?phase={phase}&limit=100")).await;
        assert_eq!(ids(&found), ids(&showing), "{phase}");
        assert!(found.iter().all(|job| job["phase"] == phase), "{phase} on its page");
        for job in &showing {
            assert_eq!(api.job(&text(&job["job_id"])).await["phase"], phase, "{phase} alone");
        }
        let listed = world.command(&["jobs", "list", "--phase", phase, "--json"]).output().await.unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(ids(listed["items"].as_array().unwrap()), ids(&showing), "{phase} by command");
    }
    let blocked = api.items("/jobs?phase=blocked&limit=100").await;
    assert_eq!(blocked.len(), 6, "put back, `u` twice, `m`, the tenant, and the lock key");
    for job in &blocked {
        let why = api.0.get(format!("/jobs/{}/explain", text(&job["job_id"]))).await.expect(200);
        let reason = text(&why["reasons"][0]["reason"]);
        assert!(
            ["rate_limited", "upstream_closed", "budget", "lock_held"].contains(&reason.as_str()),
            "{why}"
        );
    }
    // Shown at the submit already.
    let submitted = api.submit(&json!({"job_type": "T", "upstreams": ["u"]})).await.expect(202);
    assert_eq!(submitted["phase"], "blocked");
    // What opens lets its jobs wait for their turn.
    api.0.post("/upstreams/u/open", json!({})).await.expect(200);
    let left = until(SOON, async || {
        Some(api.items("/jobs?phase=blocked&limit=100").await).filter(|left| left.len() < 6)
    });
    assert_eq!(left.await.len(), 4);
}
