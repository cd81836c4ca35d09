//! The death of a worker process: seen within seconds, and not confused with one that stands still.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use coolant_core::job::JobState;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::Client;
use crate::database::Database;
use crate::kit::{Running, Site, postgres_url};
use crate::provider::Provider;

const JOBS: usize = 50;
/// What a paid call takes.
const OWN_TIME: Duration = Duration::from_secs(2);
/// Within this time a death is seen and its jobs are started again.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// Longer than anything here takes.
const TOO_LONG: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_the_jobs_of_a_killed_process_go_on_within_seconds() {
    fifty_jobs_go_on_elsewhere(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_postgres_the_jobs_of_a_killed_process_go_on_within_seconds() {
    let Some(database) = Database::create().await else { return };
    fifty_jobs_go_on_elsewhere(Some(postgres_url(&database))).await;
    database.drop_it().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_keeps_its_job_until_the_lease_ends() {
    a_sleeper_is_left_to_its_lease(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_stopped_process_keeps_its_job_until_the_lease_ends() {
    let Some(database) = Database::create().await else { return };
    a_sleeper_is_left_to_its_lease(Some(postgres_url(&database))).await;
    database.drop_it().await;
}

struct Scene {
    site: Site,
    provider: Provider,
    client: Client,
    server: Running,
}

impl Scene {
    async fn set(store: Option<String>) -> Self {
        let provider = Provider::start();
        // Room for the calls of all jobs at once.
        let site = Site::paying(&provider, 64).store(store);
        site.run(["migrate"]).await.expect(0);
        let (server, client) = site.serve(&["--no-work"]).await;
        Self { site, provider, client, server }
    }

    async fn worker(&self) -> Running {
        let mut worker = self.site.start(["work", "--concurrency", "50", "--log", "info"]);
        worker.says_on_stdout("coolant works").await;
        worker
    }

    /// A document of one paid call, and a job that indexes it; gives the job's id.
    async fn submit(&self, name: &str, lease_seconds: u64) -> String {
        let document = format!("{name} speaks of machines that cool");
        let put = crate::client::Call::new("PUT", format!("/documents/{name}")).header("X-Filename", "d.md");
        let put = put.header("Content-Type", "text/markdown").body(document);
        assert_eq!(self.client.send(put).await.expect(201)["version"], 1);
        let job = json!({"job_type": "DOCUMENT_INDEX", "lease_seconds": lease_seconds,
            "payload": {"document_id": name, "version": 1}});
        let job = self.client.post("/jobs", job).await.expect(202);
        job["job_id"].as_str().unwrap().to_owned()
    }

    async fn submit_all(&self, name: &str) -> Vec<String> {
        let mut ids = Vec::new();
        for at in 0..JOBS {
            ids.push(self.submit(&format!("{name}{at}"), 30).await);
        }
        ids
    }

    async fn until_succeeded(&self, ids: &[String]) {
        for id in ids {
            let deadline = Instant::now() + TOO_LONG;
            loop {
                let job = self.client.get(format!("/jobs/{id}?wait=20")).await.expect(200);
                match job["status"].as_str().unwrap() {
                    "SUCCEEDED" => break,
                    "PENDING" | "RUNNING" if Instant::now() < deadline => {}
                    _ => panic!("{job:#}"),
                }
            }
        }
    }

    async fn attempts(&self, id: &str) -> Vec<Value> {
        let found = self.client.get(format!("/jobs/{id}/attempts")).await.expect(200);
        found["items"].as_array().unwrap().clone()
    }

    /// The end of the lease under which a job runs.
    async fn lease_end(&self, id: &str) -> jiff::Timestamp {
        let store = self.site.open_store().await;
        let record = store.jobs(&[id.parse().unwrap()]).await.unwrap().remove(0).unwrap();
        let JobState::Running { lease, .. } = record.job.state else { panic!("{record:?}") };
        jiff::Timestamp::from_millisecond(lease.until.as_millis()).unwrap()
    }

    /// Stops a process as a debugger does. On SQLite at a moment when it does not write: whoever is stopped in
    /// the middle of a write holds the file for everybody until it goes on.
    fn stop(&self, process: &Running) {
        let file = self.site.path().join("coolant-data/coolant.db");
        let ours = file.exists().then(|| {
            let ours = rusqlite::Connection::open(file).unwrap();
            ours.busy_timeout(TOO_LONG).unwrap();
            ours.execute_batch("BEGIN IMMEDIATE").unwrap();
            ours
        });
        process.signal(Signal::STOP);
        process.until_stopped();
        drop(ours);
    }

    async fn outcomes(&self, id: &str) -> Vec<String> {
        let outcome = |attempt: &Value| attempt["outcome"].as_str().unwrap_or("running").to_owned();
        self.attempts(id).await.iter().map(outcome).collect()
    }

    fn wait_paid(&self, calls: usize) {
        assert!(tokio::task::block_in_place(|| self.provider.wait_paid(calls, || false)));
    }
}

async fn fifty_jobs_go_on_elsewhere(store: Option<String>) {
    let scene = Scene::set(store).await;
    let provider = &scene.provider;
    provider.takes(OWN_TIME);
    // What fifty such jobs take on this machine at this hour, with nobody killed.
    let survivor = scene.worker().await;
    let began = Instant::now();
    let ids = scene.submit_all("warm").await;
    scene.until_succeeded(&ids).await;
    let own_time = began.elapsed();

    survivor.signal(Signal::STOP);
    let victim = scene.worker().await;
    provider.hold_from(JOBS + 1);
    let ids = scene.submit_all("book").await;
    scene.wait_paid(2 * JOBS);
    for id in &ids {
        assert_eq!(scene.outcomes(id).await, ["running"]);
    }
    survivor.signal(Signal::CONT);
    victim.kill();
    let killed = Instant::now();
    provider.release();
    scene.until_succeeded(&ids).await;
    let took = killed.elapsed();
    println!("done {took:?} after the kill; undisturbed they took {own_time:?}");
    assert!(took < SEEN_WITHIN + own_time, "{took:?} after the kill, undisturbed {own_time:?}");

    let mut starts: HashMap<String, usize> = HashMap::new();
    for input in provider.paid_since(JOBS) {
        *starts.entry(input).or_default() += 1;
    }
    assert_eq!((starts.len(), starts.values().max()), (JOBS, Some(&2)), "{starts:?}");
    for id in &ids {
        assert_eq!(scene.outcomes(id).await, ["lost", "succeeded"]);
    }
    victim.end().await;
    leaves(&scene, survivor).await;
}

/// The last process shuts down. It leaves nothing behind that others would have to find out, and nothing is left
/// of those that died.
async fn leaves(scene: &Scene, worker: Running) {
    worker.signal(Signal::TERM);
    let ran = worker.end().await.expect(0);
    assert!(ran.stderr.contains("stopped"), "{ran:#?}");
    let files = || {
        let files = std::fs::read_dir(scene.site.path().join("coolant-data")).into_iter().flatten();
        files.map(|file| file.unwrap().file_name().into_string().unwrap())
    };
    let deadline = Instant::now() + TOO_LONG;
    while files().any(|name| name.contains("-process-")) {
        assert!(Instant::now() < deadline, "{:?}", files().collect::<Vec<_>>());
        // The server buries who died last, as soon as it has watched for long enough.
        scene.client.get("/readyz").await.expect(200);
    }
    scene.server.kill();
}

async fn a_sleeper_is_left_to_its_lease(store: Option<String>) {
    const LEASE: u64 = 9;
    let scene = Scene::set(store).await;
    let provider = &scene.provider;
    provider.hold_from(1);
    let sleeper = scene.worker().await;
    let id = scene.submit("book", LEASE).await;
    scene.wait_paid(1);
    scene.stop(&sleeper);
    let end = scene.lease_end(&id).await;
    let other = scene.worker().await;
    scene.wait_paid(2);
    assert_eq!(scene.outcomes(&id).await, ["lost", "running"]);
    // By the store's clock, however late the last beat was: a death would have ended the lease before.
    let again = scene.attempts(&id).await[1]["started_at"].as_str().unwrap().to_owned();
    let again: jiff::Timestamp = again.parse().unwrap();
    assert!(again >= end, "{again}, and the lease ends at {end}");

    // It wakes, gets its answer, and is refused: the job is somebody else's.
    let mut sleeper = sleeper;
    sleeper.signal(Signal::CONT);
    sleeper.says("lease_lost").await;
    assert_eq!(scene.outcomes(&id).await, ["lost", "running"]);
    provider.release();
    scene.until_succeeded(std::slice::from_ref(&id)).await;
    assert_eq!(scene.outcomes(&id).await, ["lost", "succeeded"]);
    sleeper.kill();
    leaves(&scene, other).await;
}
