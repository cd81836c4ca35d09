//! The API in the test's own process, over stores in memory, on a port of its own.

use std::sync::Arc;
use std::time::Duration;

use coolant::engine::{Engine, housekeeping};
use coolant::http::{HttpConfig, router, serve};
use coolant_core::job::JobId;
use coolant_core::model::{Clock, ManualClock, ModelStore};
use coolant_core::retention::Retention;
use coolant_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::Client;
use super::memory::{FaultyStore, engine_over};

/// A running server.
pub struct Server {
    /// Talks to it.
    pub client: Client,
    /// The engine behind it.
    pub engine: Engine,
    /// Its store, which can be made to fail.
    pub store: Arc<FaultyStore>,
    /// Its time, which stands unless moved.
    pub clock: Arc<ManualClock>,
    stop: Option<oneshot::Sender<()>>,
    /// Ends when it has ended.
    pub ended: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Server {
    /// A server on a clock that the test moves.
    pub async fn start() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_764_417_600_000));
        let mut server = Self::over(clock.reader(), clock).await;
        server.keeper = Some(tokio::spawn(housekeeping::run(server.engine.clone(), Retention::default())));
        server
    }

    /// The same with nobody who sweeps or redrives, for tests that do it themselves.
    pub async fn start_without_housekeeping() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(1_764_417_600_000));
        Self::over(clock.reader(), clock).await
    }

    async fn over(time: Clock, clock: Arc<ManualClock>) -> Self {
        let store = Arc::new(FaultyStore::new(Arc::new(ModelStore::new(time))));
        let engine = engine_over(store.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client { address: listener.local_addr().unwrap() };
        let (stop, stopped) = oneshot::channel();
        let router = router(engine.clone(), HttpConfig::default());
        let ended = tokio::spawn(serve(listener, router, async move {
            let _ = stopped.await;
        }));
        Self { client, engine, store, clock, stop: Some(stop), ended: Some(ended), keeper: None }
    }

    /// Tells it to end, and waits until it has.
    pub async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        let ended = self.ended.take().unwrap();
        tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it ends in time").unwrap();
    }

    /// Submits a job; gives its id.
    pub async fn submit(&self, body: Value) -> String {
        let job = self.client.post("/jobs", body).await.expect(202);
        job["job_id"].as_str().unwrap().to_owned()
    }

    /// Claims one job of any type; gives its id and token.
    pub async fn claim(&self) -> (String, i64) {
        let claimed = self.client.post("/work/claim", json!({"worker": "w"})).await.expect(200);
        let job = &claimed["jobs"][0];
        let id = job["job"]["job_id"].as_str().unwrap_or_else(|| panic!("no job: {claimed}"));
        (id.to_owned(), job["lease_token"].as_i64().unwrap())
    }

    /// Submits a job and fails it for good after its first try.
    pub async fn dead_letter(&self, mut body: Value) -> String {
        body["max_attempts"] = json!(1);
        let id = self.submit(body).await;
        let (claimed, token) = self.claim().await;
        assert_eq!(id, claimed);
        let error = json!({"code": "BROKE", "message": "it broke after 3 s"});
        let failed = json!({"lease_token": token, "error": error, "usage": {"cost_usd": 0.25}});
        self.client.post(format!("/work/jobs/{id}/fail"), failed).await.expect(200);
        id
    }

    /// Everything that a refused call must not change.
    pub async fn snapshot(&self) -> Value {
        let jobs = self.client.get("/jobs?limit=500").await.expect(200);
        let documents = self.client.get("/documents").await.expect(200);
        let audit = self.client.get("/audit").await.expect(200);
        let mut steps = Vec::new();
        for job in jobs["items"].as_array().unwrap() {
            let id = job["job_id"].as_str().unwrap();
            steps.push(self.client.get(format!("/jobs/{id}/attempts")).await.expect(200));
            steps.push(self.client.get(format!("/jobs/{id}/steps")).await.expect(200));
        }
        json!([jobs, documents, audit, steps])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// An id as the store has it.
pub fn id(text: &str) -> JobId {
    text.parse().unwrap()
}
