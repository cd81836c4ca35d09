//! Two servers and two workers on one PostgreSQL, any of which is killed again and again, PostgreSQL too.
//! `scripts/soak` runs it for as long as it is told; a short run belongs to the tests.
//!
//! A job is a document of one paid call, so that calls are counted by job. At the end:
//! - nothing that was accepted is lost;
//! - no success that was seen ran again;
//! - paid calls exceed jobs by one for each kill at most: each worker has one call under way.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::client::{Answer, Call, parse};
use crate::own_postgres::OwnPostgres;
use crate::provider::Provider;
use crate::world::{World, run};

/// How long the test runs if nobody says otherwise.
const SHORT: u64 = 20;
/// Pause between two kills, in milliseconds.
const PAUSE: std::ops::Range<u64> = 1_500..5_000;
/// Pause between two submits.
const SUBMIT_EVERY: Duration = Duration::from_millis(300);
/// After the last kill everything has to end within this time.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

const VICTIMS: [&str; 5] = ["serve 1", "serve 2", "work 1", "work 2", "postgres"];

#[test]
fn heavy_postgres_restart_soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds = number("COOLANT_SOAK_SECONDS").unwrap_or(SHORT);
    let seed = number("COOLANT_SOAK_SEED").unwrap_or_else(rand::random::<u64>);
    println!("soak: {seconds} s, seed {seed}");
    run(async {
        let Some(postgres) = OwnPostgres::start().await else { return };
        Soak::set(postgres).await.run(Duration::from_secs(seconds), StdRng::seed_from_u64(seed)).await;
    });
}

struct Soak {
    postgres: OwnPostgres,
    world: World,
    provider: Provider,
    addresses: [SocketAddr; 2],
    processes: Vec<Child>,
    kills: HashMap<&'static str, usize>,
}

/// What the clients of the soak know.
#[derive(Default)]
struct Book {
    /// Accepted jobs.
    accepted: Vec<String>,
    /// Attempts of jobs that were seen to have succeeded.
    succeeded: HashMap<String, usize>,
    /// Answers that had to be asked for again.
    again: usize,
}

impl Soak {
    async fn set(postgres: OwnPostgres) -> Self {
        let world = postgres.world().await;
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut soak = Self {
            postgres,
            world,
            provider: Provider::start(),
            addresses: [free(), free()],
            processes: Vec::new(),
            kills: HashMap::new(),
        };
        for n in 0..4 {
            let process = soak.command(n).spawn().unwrap();
            soak.processes.push(process);
        }
        soak
    }

    /// How the n-th process is started, and started again.
    fn command(&self, n: usize) -> Command {
        let mut command = match n {
            0 | 1 => self.world.command(&["serve", "--no-work", "--listen", &self.addresses[n].to_string()]),
            _ => self.world.command(&["work", "--concurrency", "1"]),
        };
        command.env("COOLANT_EMBEDDING_BASE_URL", self.provider.base_url());
        command.env("COOLANT_EMBEDDING_MODEL", "fake-1");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    async fn run(mut self, span: Duration, mut rng: StdRng) {
        let (book, over) = (Arc::new(Mutex::new(Book::default())), Arc::new(AtomicBool::new(false)));
        let client = tokio::spawn(submit_on_and_on(self.addresses, Arc::clone(&book), Arc::clone(&over)));
        let watching = tokio::spawn(watch(self.addresses, Arc::clone(&book), Arc::clone(&over)));
        let end = Instant::now() + span;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(rng.random_range(PAUSE))).await;
            let n = rng.random_range(0..VICTIMS.len());
            self.kill(n).await;
        }
        over.store(true, Ordering::SeqCst);
        client.await.unwrap();
        let settling = Instant::now();
        self.until_all_ended(&book).await;
        let settled = settling.elapsed();
        watching.await.unwrap();
        self.check(&book, settled).await;
    }

    async fn kill(&mut self, n: usize) {
        *self.kills.entry(VICTIMS[n]).or_default() += 1;
        if n == 4 {
            self.postgres.stop("KILL");
            self.postgres.start_again().await;
        } else {
            self.processes[n].kill().await.unwrap();
            self.processes[n] = self.command(n).spawn().unwrap();
        }
    }

    async fn until_all_ended(&self, book: &Mutex<Book>) {
        let deadline = Instant::now() + SETTLES_WITHIN;
        let ids = book.lock().await.accepted.clone();
        for id in ids {
            loop {
                let job = get(self.addresses[0], &format!("/jobs/{id}")).await;
                if job
                    .as_ref()
                    .is_some_and(|job| ["SUCCEEDED", "FAILED"].iter().any(|end| job["status"] == *end))
                {
                    break;
                }
                assert!(Instant::now() < deadline, "{job:?} after {SETTLES_WITHIN:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn check(&self, book: &Mutex<Book>, settled: Duration) {
        let book = book.lock().await;
        let (mut lost, mut dead, mut attempts) = (0, Vec::new(), 0);
        for id in &book.accepted {
            let history = get(self.addresses[1], &format!("/jobs/{id}/attempts")).await.expect("a server");
            let outcomes: Vec<_> =
                history["items"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
            let job = get(self.addresses[1], &format!("/jobs/{id}")).await.expect("a server");
            attempts += outcomes.len();
            lost += outcomes.iter().filter(|outcome| ***outcome == "lost").count();
            let successes = outcomes.iter().filter(|outcome| ***outcome == "succeeded").count();
            match job["status"].as_str() {
                Some("SUCCEEDED") => {
                    assert_eq!(successes, 1, "{history}");
                    assert_eq!(
                        outcomes.last().unwrap().as_str(),
                        Some("succeeded"),
                        "nothing follows: {history}"
                    );
                }
                _ => dead.push(job.to_string()),
            }
            if let Some(seen) = book.succeeded.get(id) {
                assert_eq!(outcomes.len(), *seen, "a success that was seen ran again: {history}");
            }
        }
        let (jobs, kills) = (book.accepted.len(), self.kills.values().sum::<usize>());
        let (paid, distinct) = (self.provider.paid(), self.provider.distinct());
        println!("{:<28}{:>8}", "kill -9", kills);
        VICTIMS.iter().for_each(|name| println!("  {name:<26}{:>8}", self.kills.get(name).unwrap_or(&0)));
        println!("{:<28}{jobs:>8}", "jobs accepted");
        println!("{:<28}{:>8}", "  succeeded", jobs - dead.len());
        println!("{:<28}{:>8}", "  dead letters", dead.len());
        println!("{:<28}{attempts:>8}", "attempts");
        println!("{:<28}{lost:>8}", "  lost with their worker");
        println!("{:<28}{:>8}", "calls repeated by clients", book.again);
        println!("{:<28}{paid:>8}", "paid calls");
        println!("{:<28}{:>8}", "  paid again", paid - distinct);
        println!("{:<28}{:>8.1}", "seconds to settle", settled.as_secs_f64());
        assert!(dead.is_empty(), "{dead:#?}");
        assert_eq!(distinct, jobs, "each job has its paid call");
        assert!(paid <= jobs + kills, "{paid} paid calls for {jobs} jobs and {kills} kills");
    }
}

/// A client that submits until it is over, and repeats what was not answered until it is.
async fn submit_on_and_on(addresses: [SocketAddr; 2], book: Arc<Mutex<Book>>, over: Arc<AtomicBool>) {
    let mut n = 0;
    while !over.load(Ordering::SeqCst) {
        let name = format!("document-{n}");
        let text = format!("{name} speaks of machines that cool");
        let put =
            Call::new("PUT", format!("/documents/{name}")).header("Content-Type", "text/markdown").body(text);
        until_taken(&put, &[200, 201], addresses, n, &book).await;
        let index = Call::new("POST", format!("/documents/{name}/index")).json_text("{}");
        let job = until_taken(&index, &[200, 202], addresses, n, &book).await;
        book.lock().await.accepted.push(job["job_id"].as_str().unwrap().to_owned());
        n += 1;
        tokio::time::sleep(SUBMIT_EVERY).await;
    }
}

/// Sends a call to one server and then to the other, until one of them has taken it.
async fn until_taken(
    call: &Call,
    taken: &[u16],
    addresses: [SocketAddr; 2],
    first: usize,
    book: &Mutex<Book>,
) -> Value {
    let deadline = Instant::now() + SETTLES_WITHIN;
    for turn in first.. {
        match send(addresses[turn % 2], call).await {
            Some(answer) if taken.contains(&answer.status) => return answer.json(),
            // No answer at all, or one that says to come again.
            Some(answer) if answer.status != 503 && answer.status != 0 => {
                panic!("{} {}: {}", call.path, answer.status, answer.json())
            }
            _ => {}
        }
        book.lock().await.again += 1;
        assert!(Instant::now() < deadline, "{} was never taken", call.path);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    unreachable!("there is always another turn")
}

/// Notes how many attempts a job had when it was seen to have succeeded.
async fn watch(addresses: [SocketAddr; 2], book: Arc<Mutex<Book>>, over: Arc<AtomicBool>) {
    let mut next = 0;
    while !over.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let Some(id) = book.lock().await.accepted.get(next).cloned() else { continue };
        let Some(job) = get(addresses[next % 2], &format!("/jobs/{id}")).await else { continue };
        if job["status"] == "SUCCEEDED"
            && let Some(history) = get(addresses[next % 2], &format!("/jobs/{id}/attempts")).await
        {
            let attempts = history["items"].as_array().unwrap().len();
            book.lock().await.succeeded.insert(id, attempts);
            next += 1;
        }
    }
}

async fn get(address: SocketAddr, path: &str) -> Option<Value> {
    send(address, &Call::new("GET", path))
        .await
        .filter(|answer| answer.status == 200)
        .map(|answer| answer.json())
}

/// An answer, from a server that may be gone at any moment.
async fn send(address: SocketAddr, call: &Call) -> Option<Answer> {
    let answered = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(&call.bytes(&address.to_string())).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        Some(parse(&answer))
    };
    tokio::time::timeout(Duration::from_secs(60), answered).await.ok().flatten()
}
