//! Hints between the processes on one store. Here the processes are handles, which share nothing but the
//! database.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Address, Hints, Options, SqlStore};
use coolant_core::job::{JobId, JobSpec, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::{ClaimRequest, IfFailed, JobChange, NewJob, Start, Store};
use futures::StreamExt;
use serde_json::json;
use support::{Database, Raw};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls, Notification};
use uuid::Uuid;

/// A wait that ends here is a failure.
const TOO_LONG: Duration = Duration::from_secs(20);
/// No hint comes so late after what it tells of. Only cases that must hear nothing wait for it.
const LATE: Duration = Duration::from_millis(300);

fn job(start: Start) -> NewJob {
    let spec = JobSpec {
        job_type: JobType::parse("T").unwrap(),
        queue: Queue::default(),
        tenant: Tenant::default(),
        idempotency_key: None,
        lock_key: None,
        upstreams: Vec::new(),
        priority: 0,
        tags: [].into(),
        trace_id: "0".repeat(32),
        expires_at: None,
        policy: Policy::default(),
    };
    let (id, payload, if_failed) = (JobId(Uuid::now_v7()), json!({}), IfFailed::Return);
    NewJob { id, spec: Arc::new(spec), payload, start, if_failed }
}

fn any() -> ClaimRequest {
    let (worker, queues) = ("w".into(), vec![Queue::default()]);
    ClaimRequest { worker, queues, job_types: Vec::new(), max: 1, lease: None, process: None }
}

/// Runs a case with two stores on one database.
fn with<F>(case: impl FnOnce(Arc<SqlStore>, Arc<SqlStore>, Database) -> F)
where
    F: Future<Output = Database>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = Database::create().await else { return };
        let store = SqlStore::open(&database.address(), Options::default()).await.unwrap();
        let twin = SqlStore::open(&database.address(), Options::default()).await.unwrap();
        case(store, twin, database).await.drop_it().await;
    });
}

async fn heard(hints: &mut Hints) -> bool {
    tokio::time::timeout(TOO_LONG, hints.next()).await.unwrap()
}

async fn is_quiet(hints: &mut Hints) -> bool {
    tokio::time::timeout(LATE, hints.next()).await.is_err()
}

/// Everything that is said on the channel, from now on.
async fn overhear(database: &Database) -> mpsc::UnboundedReceiver<Notification> {
    let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    let (said, hearing) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = said.send(notification);
            }
        }
    });
    client.batch_execute("LISTEN coolant_jobs").await.unwrap();
    // Dropping the client would end the connection.
    std::mem::forget(client);
    hearing
}

async fn next(hearing: &mut mpsc::UnboundedReceiver<Notification>) -> Notification {
    tokio::time::timeout(TOO_LONG, hearing.recv()).await.unwrap().unwrap()
}

/// How many connections of stores listen.
const LISTENING: &str = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() \
                         AND application_name = 'coolant' AND query IN ('LISTEN coolant_jobs', 'NOTIFY coolant_jobs')";

async fn until(raw: &Raw, question: &str, answer: &str) {
    let waiting = async {
        while raw.ask(question).await != answer {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TOO_LONG, waiting).await.unwrap();
}

#[test]
fn another_process_hears_of_jobs_that_became_claimable_and_of_ends_but_not_of_heartbeats() {
    with(|store, twin, database| async move {
        let mut hints = twin.hints();
        // The first one says that it listens now.
        assert!(heard(&mut hints).await);
        let new = job(Start::Now);
        let id = new.id;
        store.submit(vec![new]).await.unwrap();
        assert!(heard(&mut hints).await);
        store.submit(vec![job(Start::After(Duration::from_secs(3600)))]).await.unwrap();
        let token = store.claim(any()).await.unwrap()[0].lease.token;
        store.apply(vec![JobChange::new(id, Event::Renew { token, progress: None })]).await.unwrap();
        assert!(is_quiet(&mut hints).await);
        store.apply(vec![JobChange::new(id, Event::Release { token })]).await.unwrap();
        assert!(heard(&mut hints).await);
        database
    });
}

#[test]
fn a_process_does_not_hear_itself() {
    with(|store, _, database| async move {
        let mut hints = store.hints();
        assert!(heard(&mut hints).await);
        store.submit(vec![job(Start::Now)]).await.unwrap();
        assert!(is_quiet(&mut hints).await);
        database
    });
}

#[test]
fn a_batch_is_one_hint_from_a_connection_that_does_nothing_else() {
    with(|store, _, database| async move {
        let mut hearing = overhear(&database).await;
        let raw = database.connect().await;
        store.submit((0..500).map(|_| job(Start::Now)).collect()).await.unwrap();
        let hint = next(&mut hearing).await;
        assert_eq!(hint.payload(), "");
        // Its session has said nothing in a transaction with anything else: this was its last statement, and
        // the sessions that committed the jobs are others.
        let sender = format!("SELECT query FROM pg_stat_activity WHERE pid = {}", hint.process_id());
        assert_eq!(raw.ask(&sender).await, "NOTIFY coolant_jobs");
        let writers = "SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE datname = current_database() \
                       AND application_name = 'coolant' AND query = 'COMMIT'";
        assert_eq!(raw.ask(writers).await, "true");
        tokio::time::sleep(LATE).await;
        assert!(hearing.try_recv().is_err());
        database
    });
}

#[test]
fn many_submits_at_once_are_few_hints() {
    with(|store, _, database| async move {
        let mut hearing = overhear(&database).await;
        let began = std::time::Instant::now();
        let submits = (0..200).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.submit(vec![job(Start::Now)]).await.unwrap() })
        });
        for submit in submits.collect::<Vec<_>>() {
            submit.await.unwrap();
        }
        tokio::time::sleep(LATE).await;
        let most = began.elapsed().as_millis() / 20 + 2;
        let hints = std::iter::from_fn(|| hearing.try_recv().ok()).count();
        assert!((1..=most).contains(&(hints as u128)), "{hints} hints, {most} at most");
        database
    });
}

#[test]
fn a_submit_in_sql_notifies_only_if_asked_to() {
    with(|_, _, database| async move {
        let mut hearing = overhear(&database).await;
        let raw = database.connect().await;
        raw.say("SELECT * FROM coolant.submit('T')").await;
        raw.say("SELECT * FROM coolant.submit('T', notify => true)").await;
        assert_eq!(next(&mut hearing).await.payload(), "");
        tokio::time::sleep(LATE).await;
        assert!(hearing.try_recv().is_err());
        database
    });
}

#[test]
fn a_killed_connection_is_made_again_and_hears_again() {
    with(|store, twin, database| async move {
        let raw = database.connect().await;
        let mut hints = twin.hints();
        assert!(heard(&mut hints).await);
        until(&raw, LISTENING, "1").await;
        let killed = LISTENING.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(raw.ask(&killed).await, "1");
        // What may have been missed is worth a look.
        assert!(heard(&mut hints).await);
        until(&raw, LISTENING, "1").await;
        store.submit(vec![job(Start::Now)]).await.unwrap();
        assert!(heard(&mut hints).await);
        database
    });
}

#[test]
fn a_store_that_nobody_needs_hints_of_opens_no_connection_for_them() {
    with(|store, _, database| async move {
        let raw = database.connect().await;
        store.jobs(&[]).await.unwrap();
        tokio::time::sleep(LATE).await;
        assert_eq!(raw.ask(LISTENING).await, "0");
        database
    });
}

#[test]
fn hints_end_with_their_store() {
    with(|store, twin, database| async move {
        let mut hints = twin.hints();
        assert!(heard(&mut hints).await);
        drop((store, twin));
        let ended = async { while hints.next().await {} };
        tokio::time::timeout(TOO_LONG, ended).await.unwrap();
        database
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_on_one_file_see_each_others_commits() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Sqlite(folder.path().join("store.db"));
    let store = SqlStore::open(&address, Options::default()).await.unwrap();
    let twin = SqlStore::open(&address, Options::default()).await.unwrap();
    let mut hints = twin.hints();
    // The watch begins a moment after it is asked for: what is written until then is not news to it.
    let writing = tokio::spawn(async move {
        loop {
            store.submit(vec![job(Start::Now)]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(heard(&mut hints).await);
    writing.abort();
    drop(twin);
    let ended = async { while hints.next().await {} };
    tokio::time::timeout(TOO_LONG, ended).await.unwrap();
}
