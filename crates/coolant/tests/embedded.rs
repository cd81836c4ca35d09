//! The crate inside a program: what a submit gives, what a result is, what is refused.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coolant::embedded::{ResultError, SubmitError};
use coolant::worker::{BuildError, RunError, Worker};
use coolant::{Context, Coolant, Handler, HandlerError, Retention, async_trait};
use coolant_core::job::JobId;
use coolant_core::model::{ManualClock, ModelStore};
use coolant_core::store::{Store, SubmitOutcome};
use coolant_core::time::Timestamp;
use serde::{Deserialize, Serialize};

const TOO_LONG: Duration = Duration::from_secs(20);

#[derive(Serialize, Deserialize)]
struct Person {
    name: String,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Greeting {
    text: String,
}

#[derive(Clone, Default)]
struct Greet {
    paid: Arc<AtomicUsize>,
}

#[async_trait]
impl Handler for Greet {
    type Payload = Person;
    type Output = Greeting;

    fn job_type(&self) -> &str {
        "GREET"
    }

    async fn run(&self, ctx: &Context, person: Person) -> Result<Greeting, HandlerError> {
        let text = ctx.step("text", async || {
            self.paid.fetch_add(1, Ordering::SeqCst);
            Ok(format!("Hello, {}!", person.name))
        });
        Ok(Greeting { text: text.await? })
    }
}

fn store() -> Arc<dyn Store> {
    Arc::new(ModelStore::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)).reader()))
}

fn ada() -> Person {
    Person { name: "Ada".into() }
}

#[tokio::test]
async fn the_same_key_is_the_same_job_and_is_paid_once() {
    let coolant = Coolant::with_store(store());
    let greet = Greet::default();
    let running = coolant.start(coolant.worker().handler(greet.clone())).unwrap();

    let first = coolant.submit("GREET", &ada()).key("user:42:v1").await.unwrap();
    let expected = Greeting { text: "Hello, Ada!".into() };
    assert_eq!(first.result::<Greeting>(TOO_LONG).await.unwrap(), expected);
    let again = coolant.submit("GREET", &ada()).key("user:42:v1").await.unwrap();
    assert_eq!(again.result::<Greeting>(TOO_LONG).await.unwrap(), expected);

    assert_eq!(first.id(), again.id());
    assert_eq!(first.outcome(), Some(SubmitOutcome::Created));
    assert_eq!(again.outcome(), Some(SubmitOutcome::Existing));
    assert_eq!(greet.paid.load(Ordering::SeqCst), 1);
    assert_eq!(running.stop().await.unwrap().left, 0);
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused_and_names_its_job() {
    let coolant = Coolant::with_store(store());
    let first = coolant.submit("GREET", &ada()).key("k").await.unwrap();
    let other = Person { name: "Grace".into() };
    match coolant.submit("GREET", &other).key("k").await {
        Err(SubmitError::KeyReused { job_id }) => assert_eq!(job_id, first.id()),
        other => panic!("{:?}", other.map(|job| job.id())),
    }
}

#[tokio::test]
async fn what_cannot_be_a_job_is_refused_before_the_store() {
    let coolant = Coolant::with_store(store());
    let refused = async |submit: coolant::embedded::Submit<'_>| submit.await.err().unwrap().to_string();
    assert_eq!(refused(coolant.submit("", &1)).await, "`job_type` must not be empty");
    assert_eq!(refused(coolant.submit("A", &1).priority(11)).await, "`priority` takes -10 to 10");
    assert_eq!(
        refused(coolant.submit("A", &1).key("a\nb")).await,
        "`idempotency_key` holds a control character (U+000A)"
    );
    let large = "x".repeat(1024 * 1024);
    assert!(refused(coolant.submit("A", &large)).await.starts_with("`payload` has 1048578 bytes"));
}

#[tokio::test]
async fn a_result_that_is_not_there_says_why() {
    let coolant = Coolant::with_store(store());
    let job = coolant.submit("NOBODY", &1).await.unwrap();
    assert!(matches!(job.result::<u8>(Duration::ZERO).await, Err(ResultError::NotYet)));
    let unknown = coolant.job(JobId(uuid::Uuid::now_v7()));
    assert!(matches!(unknown.result::<u8>(TOO_LONG).await, Err(ResultError::NotFound)));
}

#[tokio::test]
async fn a_worker_that_could_never_work_is_not_built() {
    assert!(matches!(Worker::builder(store()).build(), Err(BuildError::NothingToDo)));
    let twice = Worker::builder(store()).handler(Greet::default()).handler(Greet::default());
    assert!(matches!(twice.build(), Err(BuildError::TwoHandlers { .. })));
    let idle = Worker::builder(store()).handler(Greet::default()).concurrency(0);
    assert!(matches!(idle.build(), Err(BuildError::Concurrency { asked: 0 })));
}

#[tokio::test]
async fn what_is_over_is_forgotten_when_its_time_has_come() {
    const DAY: Duration = Duration::from_secs(86_400);
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000));
    let coolant = Coolant::with_store(Arc::new(ModelStore::new(clock.reader())));
    let as_told = coolant.clone().keeping(Retention { finished: Some(DAY), ..Retention::default() });
    for (coolant, kept) in [(coolant, 30 * DAY), (as_told, DAY)] {
        let greet = || coolant.start(coolant.worker().handler(Greet::default())).unwrap();
        let running = greet();
        let job = coolant.submit("GREET", &ada()).key("k").await.unwrap();
        job.result::<Greeting>(TOO_LONG).await.unwrap();
        running.stop().await.unwrap();
        clock.advance(kept);
        let running = greet();
        let forgotten = async {
            while coolant.store().jobs(&[job.id()]).await.unwrap()[0].is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TOO_LONG, forgotten).await.unwrap();
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn dropping_a_running_worker_drains_it() {
    let coolant = Coolant::with_store(store());
    let running = coolant.start(coolant.worker().handler(Greet::default())).unwrap();
    let shutdown = running.shutdown().clone();
    drop(running);
    assert!(shutdown.is_asked());
    // A worker is told of its shutdown also before it first runs.
    let late = Worker::builder(store()).handler(Greet::default()).build().unwrap();
    let drained: Result<_, RunError> = late.run(shutdown).await;
    assert_eq!(drained.unwrap().finished, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_in_a_file_are_paid_once_over_two_runs_of_the_program() {
    const JOBS: usize = 50;
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.db", uuid::Uuid::now_v7()));
    let address = coolant_backends::Address::Sqlite(file.clone());
    let greet = Greet::default();
    for expected in [SubmitOutcome::Created, SubmitOutcome::Existing] {
        let options = coolant_backends::Options::default();
        let coolant = Coolant::with_store(coolant_backends::SqlStore::open(&address, options).await.unwrap());
        let running = coolant.start(coolant.worker().handler(greet.clone()).concurrency(16)).unwrap();
        for n in 0..JOBS {
            let person = Person { name: format!("number {n}") };
            let job = coolant.submit("GREET", &person).key(format!("greet:{n}")).await.unwrap();
            assert_eq!(job.outcome(), Some(expected));
        }
        for n in 0..JOBS {
            let person = Person { name: format!("number {n}") };
            let job = coolant.submit("GREET", &person).key(format!("greet:{n}")).await.unwrap();
            let greeting = job.result::<Greeting>(TOO_LONG).await.unwrap();
            assert_eq!(greeting.text, format!("Hello, number {n}!"));
        }
        assert_eq!(running.stop().await.unwrap().left, 0);
    }
    assert_eq!(greet.paid.load(Ordering::SeqCst), JOBS);
    let _ = std::fs::remove_file(file);
}
