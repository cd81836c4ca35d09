//! Hints between the processes on one store. Here the processes are handles, which share nothing but the
//! database.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Address, Hints, Options, SqlStore};
use coolant_core::lifecycle::Event;
use coolant_core::store::{JobChange, NewJob, Start, Store};
use futures::StreamExt;
use support::database::Database;
use support::jobs::{claim_of, job, submitted};
use support::on_postgres;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls, Notification};

/// A wait that ends here is a failure.
const TOO_LONG: Duration = Duration::from_secs(20);
/// No hint comes so late after what it tells of. Only cases that must hear nothing wait for it.
const LATE: Duration = Duration::from_millis(300);

/// Runs a case with two stores on one database.
fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Arc<SqlStore>, &Database)) {
    on_postgres(Options::default(), async |store, database| {
        let twin = SqlStore::open(&database.address(), Options::default()).await.unwrap();
        case(store, twin, database).await;
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
const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                         AND application_name = 'coolant' AND query IN ('LISTEN coolant_jobs', 'NOTIFY coolant_jobs')";

#[test]
fn another_process_hears_of_jobs_that_became_claimable_and_of_ends_but_not_of_heartbeats() {
    with(async |store, twin, _| {
        let mut hints = twin.hints();
        // The first one says that it listens now.
        assert!(heard(&mut hints).await);
        let id = submitted(&store, job()).await;
        assert!(heard(&mut hints).await);
        store.submit(vec![NewJob { start: Start::After(Duration::from_secs(3600)), ..job() }]).await.unwrap();
        let token = store.claim(claim_of(1)).await.unwrap()[0].lease.token;
        store.apply(vec![JobChange::new(id, Event::Renew { token, progress: None })]).await.unwrap();
        assert!(is_quiet(&mut hints).await);
        store.apply(vec![JobChange::new(id, Event::Release { token })]).await.unwrap();
        assert!(heard(&mut hints).await);
    });
}

#[test]
fn a_process_does_not_hear_itself() {
    with(async |store, _, _| {
        let mut hints = store.hints();
        assert!(heard(&mut hints).await);
        store.submit(vec![job()]).await.unwrap();
        assert!(is_quiet(&mut hints).await);
    });
}

#[test]
fn a_batch_is_one_hint_from_a_connection_that_does_nothing_else() {
    with(async |store, _, database| {
        let mut hearing = overhear(database).await;
        let raw = database.connect().await;
        store.submit((0..500).map(|_| job()).collect()).await.unwrap();
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
    });
}

#[test]
fn many_submits_at_once_are_few_hints() {
    with(async |store, _, database| {
        let mut hearing = overhear(database).await;
        let began = std::time::Instant::now();
        let submits = (0..200).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.submit(vec![job()]).await.unwrap() })
        });
        for submit in submits.collect::<Vec<_>>() {
            submit.await.unwrap();
        }
        tokio::time::sleep(LATE).await;
        let most = began.elapsed().as_millis() / 20 + 2;
        let hints = std::iter::from_fn(|| hearing.try_recv().ok()).count();
        assert!((1..=most).contains(&(hints as u128)), "{hints} hints, {most} at most");
    });
}

#[test]
fn a_submit_in_sql_notifies_only_if_asked_to() {
    with(async |_, _, database| {
        let mut hearing = overhear(database).await;
        let raw = database.connect().await;
        raw.say("SELECT * FROM coolant.submit('T')").await;
        raw.say("SELECT * FROM coolant.submit('T', notify => true)").await;
        assert_eq!(next(&mut hearing).await.payload(), "");
        tokio::time::sleep(LATE).await;
        assert!(hearing.try_recv().is_err());
    });
}

#[test]
fn a_killed_connection_is_made_again_and_hears_again() {
    with(async |store, twin, database| {
        let raw = database.connect().await;
        let mut hints = twin.hints();
        assert!(heard(&mut hints).await);
        raw.until_count(LISTENING, 1).await;
        let killed = LISTENING.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(raw.number(&killed).await, 1);
        // What may have been missed is worth a look.
        assert!(heard(&mut hints).await);
        raw.until_count(LISTENING, 1).await;
        store.submit(vec![job()]).await.unwrap();
        assert!(heard(&mut hints).await);
    });
}

#[test]
fn a_store_that_nobody_needs_hints_of_opens_no_connection_for_them() {
    with(async |store, _, database| {
        let raw = database.connect().await;
        store.jobs(&[]).await.unwrap();
        tokio::time::sleep(LATE).await;
        assert_eq!(raw.number(LISTENING).await, 0);
    });
}

#[test]
fn hints_end_with_their_store() {
    with(async |store, twin, _| {
        let mut hints = twin.hints();
        assert!(heard(&mut hints).await);
        drop((store, twin));
        let ended = async { while hints.next().await {} };
        tokio::time::timeout(TOO_LONG, ended).await.unwrap();
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
            store.submit(vec![job()]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(heard(&mut hints).await);
    writing.abort();
    drop(twin);
    let ended = async { while hints.next().await {} };
    tokio::time::timeout(TOO_LONG, ended).await.unwrap();
}
