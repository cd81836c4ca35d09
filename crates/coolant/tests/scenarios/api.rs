//! The API as its users call it, with what all scenarios need of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Client};

/// How long anything may take that has no narrower limit in its scenario.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Speaks to one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Api(pub(crate) Client);

/// A claimed job.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// Which.
    pub(crate) id: String,
    /// The right to run it.
    pub(crate) token: i64,
    /// As the worker got it.
    pub(crate) body: Value,
}

impl Api {
    /// Submits a job.
    pub(crate) async fn submit(&self, body: &Value) -> Answer {
        self.0.post("/jobs", body.clone()).await
    }

    /// Submits a job that is new; gives its id.
    pub(crate) async fn create(&self, body: Value) -> String {
        text(&self.submit(&body).await.expect(202)["job_id"])
    }

    /// A job.
    pub(crate) async fn job(&self, id: &str) -> Value {
        self.0.get(format!("/jobs/{id}")).await.expect(200)
    }

    /// The items of a list.
    pub(crate) async fn items(&self, path: impl Into<String>) -> Vec<Value> {
        self.0.get(path).await.expect(200)["items"].as_array().unwrap().clone()
    }

    /// The attempts of a job, each as `worker: outcome, error code`.
    pub(crate) async fn history(&self, id: &str) -> Vec<String> {
        let say = |attempt: &Value| {
            let outcome = attempt["outcome"].as_str().unwrap_or("running");
            let code = attempt["error"]["code"].as_str().map(|code| format!(", {code}"));
            format!("{}: {outcome}{}", text(&attempt["worker"]), code.unwrap_or_default())
        };
        self.items(format!("/jobs/{id}/attempts")).await.iter().map(say).collect()
    }

    /// One number of the metrics.
    pub(crate) async fn stat(&self, name: &str) -> f64 {
        let stats = self.0.get("/stats").await.expect(200);
        stats[name].as_f64().unwrap_or_else(|| panic!("{name} in {stats}"))
    }

    /// Asks for jobs: a claim's body without the worker's name.
    pub(crate) async fn claims(&self, worker: &str, mut request: Value) -> Vec<Claim> {
        request["worker"] = json!(worker);
        let answer = self.0.post("/work/claim", request).await.expect(200);
        let claim = |body: &Value| Claim {
            id: text(&body["job"]["job_id"]),
            token: body["lease_token"].as_i64().unwrap(),
            body: body.clone(),
        };
        answer["jobs"].as_array().unwrap().iter().map(claim).collect()
    }

    /// Waits until a job can be claimed, and claims it.
    pub(crate) async fn claim(&self, worker: &str) -> Claim {
        let mut claims = self.claims(worker, json!({"wait_seconds": 30})).await;
        claims.pop().expect("a job to claim")
    }

    /// There is nothing to claim now.
    pub(crate) async fn finds_nothing(&self, worker: &str) {
        let claims = self.claims(worker, json!({"max": 100})).await;
        assert!(claims.is_empty(), "{claims:?}");
    }

    /// Reports on a claim: `succeed`, `fail`, `release`, with the call's body besides the token.
    pub(crate) async fn report(&self, claim: &Claim, verb: &str, mut body: Value) -> Answer {
        body["lease_token"] = json!(claim.token);
        self.0.post(format!("/work/jobs/{}/{verb}", claim.id), body).await
    }

    /// Ends a claim well.
    pub(crate) async fn succeed(&self, claim: &Claim, result: Value) {
        self.report(claim, "succeed", json!({"result": result})).await.expect(200);
    }

    /// Ends a claim with an error of a class; gives the answer.
    pub(crate) async fn fail(&self, claim: &Claim, code: &str, class: &str) -> Value {
        let error = json!({"code": code, "message": "as the scenario has it", "class": class});
        self.report(claim, "fail", json!({"error": error})).await.expect(200)
    }

    /// Renews a lease; says what became of it: `held`, `lost`, `cancelled`.
    pub(crate) async fn beat(&self, worker: &str, claim: &Claim) -> String {
        let lease = json!({"job_id": claim.id, "lease_token": claim.token});
        let body = json!({"worker": worker, "leases": [lease]});
        let answer = self.0.post("/work/heartbeat", body).await.expect(200);
        text(&answer["leases"][0]["state"])
    }

    /// Waits until the job has that status.
    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        until(SOON, async || Some(self.job(id).await).filter(|job| job["status"] == status)).await
    }

    /// Waits until the cooldown of a failed job is over.
    pub(crate) async fn until_cooled(&self, id: &str) {
        until(SOON, async || (self.job(id).await["retry"]["in_seconds"] == 0.0).then_some(())).await;
    }
}

/// Asks again and again until there is an answer; fails after the deadline.
#[track_caller]
pub(crate) fn until<T>(deadline: Duration, ask: impl AsyncFn() -> Option<T>) -> impl Future<Output = T> {
    let asked_by = std::panic::Location::caller();
    async move {
        let end = Instant::now() + deadline;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(Instant::now() < end, "not within {deadline:?}, as {asked_by} expects");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A text of an answer.
#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// A number of an answer.
#[track_caller]
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}
