//! How soon an idle worker of another process starts a job, by the door that the job comes in by.
//!
//! `cargo run --release --example pickup -- postgres://…` (an empty database), or a `sqlite:` path.

use std::time::{Duration, Instant};

use coolant::{Context, Coolant, Handler, HandlerError, async_trait};
use coolant_backends::{Address, SqlStore};
use serde_json::{Value, json};
use tokio::sync::mpsc;

struct Start(mpsc::UnboundedSender<Instant>);

#[async_trait]
impl Handler for Start {
    type Payload = Value;
    type Output = Value;

    fn job_type(&self) -> &str {
        "START"
    }

    async fn run(&self, _: &Context, payload: Value) -> Result<Value, HandlerError> {
        let _ = self.0.send(Instant::now());
        Ok(payload)
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).ok_or("give the store's address")?;
    SqlStore::migrate(&Address::parse(&store)?).await?;
    let (working, submitting) = (Coolant::open(&store).await?, Coolant::open(&store).await?);
    let (sender, mut started) = mpsc::unbounded_channel();
    // As often as a worker polls that has been idle for a while.
    let worker = working.worker().handler(Start(sender)).poll(Duration::from_secs(1), Duration::from_secs(1));
    let running = working.start(worker)?;
    println!(
        "{:<44} {:>5} {:>10} {:>10} {:>10}",
        "from the submit's call to the handler's start", "jobs", "p50", "p99", "longest"
    );

    let mut times = Vec::new();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let began = Instant::now();
        submitting.submit("START", &json!({})).await?;
        times.push(started.recv().await.ok_or("the worker ended")?.duration_since(began));
    }
    show("submit by another process", times);

    if store.starts_with("postgres") {
        let (sql, connection) = tokio_postgres::connect(&store, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let plain = "SELECT * FROM coolant.submit('START')";
        let doors = [
            ("coolant.submit, notify => true", "SELECT * FROM coolant.submit('START', notify => true)", 200),
            ("coolant.submit, then NOTIFY by itself", plain, 200),
            ("coolant.submit", plain, 100),
        ];
        for (door, statement, jobs) in doors {
            let mut times = Vec::new();
            for i in 0..jobs {
                // Not always as long, so that no submit keeps step with the poll.
                tokio::time::sleep(Duration::from_millis(100 + i * 37 % 200)).await;
                let began = Instant::now();
                sql.batch_execute(statement).await?;
                if door.contains("then") {
                    sql.batch_execute("NOTIFY coolant_jobs").await?;
                }
                times.push(started.recv().await.ok_or("the worker ended")?.duration_since(began));
            }
            show(door, times);
        }
    }
    running.stop().await?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "its output is what it is for")]
fn show(door: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| {
        format!("{:.1} ms", times[(times.len() * part / 100).min(times.len() - 1)].as_secs_f64() * 1e3)
    };
    println!("{door:<44} {:>5} {:>10} {:>10} {:>10}", times.len(), at(50), at(99), at(100));
}
