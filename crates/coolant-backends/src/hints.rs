//! Hints: that something in the store changed, told to the other processes on it.
//!
//! A hint is never the truth: whoever hears one looks into the store, and whoever misses one finds out at its
//! next poll. PostgreSQL carries them as notifications, SQLite's other processes are seen by the number of
//! their commits.
//!
//! Always true:
//! - no transaction that does something else sends one: a `NOTIFY` makes commits wait for each other;
//! - a process sends one for all that it changed since the last, and never sooner than [`GAP`] after it;
//! - nobody waits for a hint to be sent.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use coolant_core::job::Job;
use coolant_core::lifecycle::Answer;
use coolant_core::store::{Applied, StoreResult, SubmitOutcome, Submitted};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_postgres::{AsyncMessage, Connection, NoTls};

use crate::batch::Response;
use crate::conn::unavailable;
use crate::postgres::Purpose;
use crate::{postgres, sqlite};

/// The channel of PostgreSQL that carries hints.
const CHANNEL: &str = "coolant_jobs";
/// The shortest time between two hints of one process.
const GAP: Duration = Duration::from_millis(20);
/// How often a file is asked whether others have written. Asking reads a few bytes of shared memory.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// First and longest pause before a lost connection is tried again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A server that takes longer for a hint is away.
const LONGEST_SEND: Duration = Duration::from_secs(5);

/// Hears that others changed the store.
#[derive(Debug)]
pub struct Hints(watch::Receiver<u64>);

impl Hints {
    /// Returns at the next hint, or once there can be none any more: then with `false`.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// A store's end of hints: takes what its lanes have done, gives what others say.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Something is to be told.
    news: Notify,
    /// Somebody wants to hear.
    wanted: Notify,
    heard: watch::Sender<u64>,
}

impl Wire {
    pub(crate) fn new() -> Arc<Self> {
        let (news, wanted) = (Notify::new(), Notify::new());
        Arc::new(Self { news, wanted, heard: watch::channel(0).0 })
    }

    pub(crate) fn listen(&self) -> Hints {
        let hints = Hints(self.heard.subscribe());
        self.wanted.notify_one();
        hints
    }

    /// What a group of writes has committed, if it is anything that others may wait for.
    pub(crate) fn committed(&self, responses: &[Response]) {
        if responses.iter().any(is_news) {
            self.tell();
        }
    }

    /// Something is committed that others may wait for.
    pub(crate) fn tell(&self) {
        self.news.notify_one();
    }

    fn ring(&self) {
        self.heard.send_modify(|hints| *hints = hints.wrapping_add(1));
    }
}

/// Whether it made a job claimable or ended one. A claim and a heartbeat concern nobody else.
fn is_news(response: &Response) -> bool {
    match response {
        Response::Submitted(answers) => answers.iter().any(|Submitted { outcome, record }| {
            matches!(outcome, SubmitOutcome::Created | SubmitOutcome::Reopened) && is_due(&record.job)
        }),
        Response::Applied(answers) => answers
            .iter()
            .flatten()
            .any(|Applied { answer, .. }| matches!(answer, Answer::Done | Answer::Cancelled | Answer::Ended)),
        Response::Swept(ended) => *ended > 0,
        Response::Claimed(_) | Response::Permits(_) | Response::SettledPermits(_) | Response::Done(_) => {
            false
        }
    }
}

fn is_due(job: &Job) -> bool {
    job.visible_at().is_some_and(|at| at <= job.updated_at)
}

/// Ends the task when the store is dropped.
#[derive(Debug)]
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends and hears hints over a connection of its own, which is made when it is first needed.
pub(crate) fn on_server(url: String, wire: Arc<Wire>) -> Task {
    let task = tokio::spawn(async move {
        tokio::select! {
            () = wire.wanted.notified() => {}
            () = wire.news.notified() => wire.news.notify_one(),
        }
        let mut pause = RECONNECT.0;
        loop {
            let began = Instant::now();
            let Err(error) = connected(&url, &wire).await;
            tracing::debug!(%error, "the connection for hints is lost; polling finds what they would tell");
            if began.elapsed() > RECONNECT.1 {
                pause = RECONNECT.0;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    });
    Task(task.abort_handle())
}

/// Keeps one connection until it breaks.
async fn connected(url: &str, wire: &Arc<Wire>) -> StoreResult<Infallible> {
    let config = postgres::config(url, Purpose::Hint)?;
    let (client, connection) = config.connect(NoTls).await.map_err(postgres::error)?;
    let own = Arc::new(AtomicI32::new(0));
    // Both end with this call, however it ends.
    let mut hearing = JoinSet::new();
    hearing.spawn(hear(connection, Arc::clone(&own), Arc::clone(wire)));
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(postgres::error)?;
    own.store(row.try_get(0).map_err(postgres::error)?, Ordering::Relaxed);
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(postgres::error)?;
    // What was said meanwhile is lost.
    wire.ring();
    loop {
        tokio::select! {
            () = wire.news.notified() => {}
            _ = hearing.join_next() => return Err(unavailable(Ended)),
        }
        let sent = timeout(LONGEST_SEND, client.batch_execute(&format!("NOTIFY {CHANNEL}"))).await;
        if !matches!(sent, Ok(Ok(()))) {
            wire.news.notify_one();
            return Err(unavailable(Ended));
        }
        tokio::time::sleep(GAP).await;
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection ended")]
struct Ended;

/// Drives a connection, and rings for what others say over it.
async fn hear<S, T>(mut connection: Connection<S, T>, own: Arc<AtomicI32>, wire: Arc<Wire>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = futures::future::poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(hint) = message
            && hint.process_id() != own.load(Ordering::Relaxed)
        {
            wire.ring();
        }
    }
}

/// Watches a file that other processes may write to, once somebody listens, until the store is dropped.
pub(crate) fn on_file(path: PathBuf, wire: &Arc<Wire>) -> Task {
    let watched = Arc::downgrade(wire);
    let wire = Arc::clone(wire);
    let task = tokio::spawn(async move {
        wire.wanted.notified().await;
        drop(wire);
        // A thread of its own: a file may make its reader wait.
        let watching = std::thread::Builder::new().name("coolant-hints".into());
        if let Err(error) = watching.spawn(move || watch_file(&path, &watched)) {
            tracing::debug!(%error, "other processes are found by polling alone");
        }
    });
    Task(task.abort_handle())
}

fn watch_file(path: &Path, wire: &Weak<Wire>) {
    let mut reader = None;
    let mut last = None;
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(wire) = wire.upgrade() else { return };
        match commits(path, &mut reader) {
            Ok(seen) => {
                // The writer of this process is another connection as well, and is heard like the others.
                if last.replace(seen).is_some_and(|last| last != seen) {
                    wire.ring();
                }
            }
            Err(_) => reader = None,
        }
    }
}

/// A number that changes with every commit of another connection.
fn commits(path: &Path, reader: &mut Option<rusqlite::Connection>) -> StoreResult<i64> {
    let reader = match reader {
        Some(reader) => reader,
        None => reader.insert(sqlite::open_reader(path)?),
    };
    reader.query_row("PRAGMA data_version", [], |row| row.get(0)).map_err(sqlite::error)
}
