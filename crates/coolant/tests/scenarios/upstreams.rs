//! Upstreams: closures, rates and budgets that hold for every worker on every server.

use serde_json::{Value, json};

use crate::api::{Api, Claim, SOON, number, text, until};
use crate::client::Answer;
use crate::world::World;

/// Submits `count` jobs; gives their ids.
async fn submit(api: &Api, count: usize, job: &Value) -> Vec<String> {
    let jobs: Vec<_> = (0..count).map(|_| job.clone()).collect();
    let answer = api.0.post("/jobs/batch", json!({"jobs": jobs})).await.expect(200);
    answer["results"].as_array().unwrap().iter().map(|result| text(&result["job"]["job_id"])).collect()
}

async fn permit(api: &Api, upstream: &str, body: Value) -> Answer {
    api.0.post(format!("/upstreams/{upstream}/permits"), body).await
}

async fn settle_ok(api: &Api, permit: &Value, usd: f64) {
    let path = format!("/permits/{}/settle", text(&permit["permit_id"]));
    api.0.post(path, json!({"outcome": "ok", "usage": {"cost_usd": usd}})).await.expect(200);
}

fn code(answer: &Answer) -> String {
    text(&answer.json()["code"])
}

pub(crate) async fn s08_a_closed_upstream_holds_its_jobs_and_no_others(world: &World) {
    let (one, two) = (world.serve().await, world.serve().await);
    let (api, other) = (&one.api, &two.api);
    let of_u = submit(api, 50, &json!({"job_type": "T", "upstreams": ["u"]})).await;
    submit(api, 10, &json!({"job_type": "T", "upstreams": ["v"]})).await;

    let reporter = api.claim("w").await;
    let http = json!({"upstream": "u", "status": 429, "headers": {"Retry-After": "5"}, "body": "slow down"});
    api.report(&reporter, "fail", json!({"error": {"http": http}})).await.expect(200);
    let closed_until = text(&api.0.get("/upstreams/u").await.expect(200)["closed_until"]);
    let flowing = other.claims("w", json!({"max": 100})).await;
    assert_eq!(flowing.len(), 10);
    assert!(flowing.iter().all(|claim| claim.body["job"]["upstreams"] == json!(["v"])));

    let waiting = of_u.iter().find(|id| **id != reporter.id).unwrap();
    let job = other.job(waiting).await;
    assert_eq!((&job["phase"], &job["attempt_count"]), (&json!("blocked"), &json!(0)));
    let why = other.0.get(format!("/jobs/{waiting}/explain")).await.expect(200);
    assert_eq!(why["reasons"][0]["reason"], "upstream_closed");
    assert_eq!(text(&why["reasons"][0]["until"]), closed_until);
    let job = other.job(&reporter.id).await;
    assert_eq!((&job["attempt_count"], &job["deferred_count"]), (&json!(0), &json!(1)));

    // Four workers poll without pause: one of them gets one job, at the deadline and not before.
    let polls = (0..4).map(|n| {
        let api = if n % 2 == 0 { api } else { other };
        async move { api.claims(&format!("w{n}"), json!({"max": 4, "wait_seconds": 8})).await }
    });
    let mut probes: Vec<Claim> = futures::future::join_all(polls).await.into_iter().flatten().collect();
    assert_eq!(probes.len(), 1, "{probes:?}");
    let probe = probes.pop().unwrap();
    assert!(text(&probe.body["job"]["started_at"]) >= closed_until);
    assert_eq!(api.0.get("/upstreams/u").await.expect(200)["state"], "probing");
    api.succeed(&probe, json!(1)).await;

    // Its success lets the rest go, few at first.
    let mut started = other.claims("w", json!({"max": 100})).await;
    assert!(started.len() <= 3, "{} at once", started.len());
    while started.len() < 49 {
        let more = other.claims("w", json!({"max": 100, "wait_seconds": 10})).await;
        assert!(!more.is_empty(), "{} of 49 after 10 s", started.len());
        started.extend(more);
    }
    for claim in &started {
        api.succeed(claim, json!(1)).await;
    }
    assert_eq!(api.items("/jobs?status=SUCCEEDED&limit=100").await.len(), 50);
}

pub(crate) async fn s15_no_second_holds_more_starts_than_the_rate_and_its_burst(world: &World) {
    let (one, two) = (world.serve().await, world.serve().await);
    one.api.0.put("/upstreams/u", json!({"requests_per_second": 10})).await.expect(200);
    let jobs = submit(&one.api, 100, &json!({"job_type": "T", "upstreams": ["u"]})).await;
    for id in jobs.iter().step_by(2) {
        one.api.0.post(format!("/jobs/{id}/cancel"), json!({})).await.expect(202);
    }
    let worker = async |api: &Api, name: &str| {
        let mut starts = Vec::new();
        while let Some(claim) = api.claims(name, json!({})).await.pop() {
            let given = until(SOON, async || {
                let answer = permit(api, "u", json!({})).await;
                (answer.status == 200).then(|| answer.json()).or_else(|| {
                    assert_eq!(code(&answer), "RATE_LIMITED");
                    None
                })
            })
            .await;
            // Such a permit lives for two minutes from its start.
            starts.push(text(&given["expires_at"]));
            settle_ok(api, &given, 0.0).await;
            api.succeed(&claim, json!(1)).await;
        }
        starts
    };
    let workers = ["a", "b", "c", "d"].map(|name| {
        let api = if name < "c" { &one.api } else { &two.api };
        worker(api, name)
    });
    let mut starts: Vec<_> = futures::future::join_all(workers).await.into_iter().flatten().collect();
    assert_eq!(starts.len(), 50, "each job that was not cancelled, once");
    starts.sort_unstable();
    let millis: Vec<i64> = starts.iter().map(|at| millis_of_hour(at)).collect();
    for (i, from) in millis.iter().enumerate() {
        let within = millis[i..].iter().filter(|at| (*at - from).rem_euclid(3_600_000) < 1000).count();
        assert!(within <= 11, "{within} starts in a second");
    }
}

/// Milliseconds into its hour of an RFC 3339 instant with milliseconds.
fn millis_of_hour(at: &str) -> i64 {
    let part = |range: std::ops::Range<usize>| at[range].parse::<i64>().unwrap();
    part(14..16) * 60_000 + part(17..19) * 1000 + part(20..23)
}

pub(crate) async fn s16_a_budget_is_not_overspent_and_a_dead_workers_part_comes_back(world: &World) {
    let (one, two) = (world.serve().await, world.serve().await);
    one.api.0.put("/tenants/t", json!({"budget_usd_per_day": 1.0})).await.expect(200);
    let jobs = submit(&one.api, 10, &json!({"job_type": "T", "tenant": "t", "upstreams": ["u"]})).await;
    let ask = async |api: &Api, claim: &Claim| {
        let body = json!({"job_id": claim.id, "lease_token": claim.token, "estimated_cost_usd": 0.4});
        permit(api, "u", body).await
    };
    let defer = async |api: &Api, claim: &Claim, seconds: f64| {
        let body = json!({"seconds": seconds, "reason": "BUDGET_EXHAUSTED"});
        api.report(claim, "defer", body).await.expect(200);
    };
    // Ten workers claim and ask at once.
    let asking = (0..10).map(|n| {
        let api = if n % 2 == 0 { one.api } else { two.api };
        async move {
            let claim = api.claims("w", json!({"lease_seconds": 4})).await.pop().expect("a job each");
            let answer = ask(&api, &claim).await;
            (claim, answer)
        }
    });
    let answers = futures::future::join_all(asking).await;
    let (given, denied): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, answer)| answer.status == 200);
    assert_eq!(given.len(), 2, "before the first settlement");
    for (n, (claim, answer)) in denied.iter().enumerate() {
        assert_eq!(code(answer), "BUDGET_EXHAUSTED");
        defer(&two.api, claim, if n == 0 { 60.0 } else { 0.1 }).await;
    }
    let why = one.api.0.get(format!("/jobs/{}/explain", denied[0].0.id)).await.expect(200);
    assert_eq!(why["reasons"][0]["reason"], "budget");
    let job = one.api.job(&denied[0].0.id).await;
    assert_eq!((&job["phase"], &job["attempt_count"]), (&json!("blocked"), &json!(0)));

    // One of the two dies; the other, and whoever comes after, settles at 0.10.
    settle_ok(&one.api, &given[0].1.json(), 0.1).await;
    one.api.succeed(&given[0].0, json!(1)).await;
    let mut paid = 1;
    // Its reservation comes back when its lease is over.
    until(SOON, async || (number(&spent(&one.api).await["reserved_usd"]) == 0.0).then_some(())).await;
    while let Some(claim) = two.api.claims("w", json!({"wait_seconds": 5})).await.pop() {
        let answer = ask(&two.api, &claim).await;
        if answer.status != 200 {
            break;
        }
        settle_ok(&two.api, &answer.json(), 0.1).await;
        two.api.succeed(&claim, json!(1)).await;
        paid += 1;
    }
    // 0.7 are spent, and no estimate of 0.4 fits any more.
    assert_eq!(paid, 7);
    let shown = number(&spent(&one.api).await["spent_today_usd"]);
    assert!((shown - 0.7).abs() < 1e-9, "{shown}");
    let booked: f64 =
        one.api.items("/ledger?tenant=t").await.iter().map(|row| number(&row["cost_usd"])).sum();
    assert!((booked - shown).abs() < 1e-9, "{booked} are booked");
    for id in &jobs {
        assert_ne!(one.api.job(id).await["status"], "FAILED");
    }
}

async fn spent(api: &Api) -> Value {
    api.0.get("/tenants/t").await.expect(200)
}
