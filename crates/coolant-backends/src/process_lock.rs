//! The lock of a process with workers: held as long as it lives, freed by its death, whoever kills it.
//!
//! On PostgreSQL it is an advisory lock of a session that does nothing else; the server frees it when the
//! connection ends. Beside SQLite it is a lock on a small file; the system frees it with the process. A stopped
//! process keeps either.
//!
//! A database in memory belongs to one process, and dies with it: there would be nothing to hold, and this
//! store opens none.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use coolant_core::process::{ProcessId, ProcessLock};
use coolant_core::store::{StoreError, StoreResult};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

use crate::conn::{Conn, unavailable};
use crate::postgres;
use crate::postgres::Purpose;

/// How long the server may take for a connection and its lock.
const LONGEST_TRY: Duration = Duration::from_secs(5);
/// First and longest pause before a lost lock is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Makes the numbers of these locks differ from those of lock keys, which come from texts too.
const SALT: i64 = 7071;

/// Whether nobody holds the lock of that process, on the connection of a transaction. On PostgreSQL nobody
/// can take it before the transaction ends.
pub(crate) async fn is_free(conn: &mut Conn, path: Option<&Path>, id: ProcessId) -> StoreResult<bool> {
    match path {
        Some(path) => is_file_free(path, id),
        None => {
            let text = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, $2))";
            let params = [id.to_string().into(), SALT.into()];
            let taken = conn.query(text, &params).await?.pop().map_or(Ok(0), |mut row| row.int())?;
            Ok(taken == 1)
        }
    }
}

// ---- SQLite ----

struct FileLock {
    path: PathBuf,
    /// Closing it frees the lock.
    _file: File,
}

/// Makes the file of a process beside the database, and locks it.
pub(crate) fn on_file(database: &Path, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>> {
    let path = file_of(database, id);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(unavailable)?;
    match file.try_lock() {
        Ok(()) => Ok(Box::new(FileLock { path, _file: file })),
        Err(TryLockError::WouldBlock) => Err(held_already(id)),
        Err(TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

fn file_of(database: &Path, id: ProcessId) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(format!("-process-{id}"));
    name.into()
}

fn held_already(id: ProcessId) -> StoreError {
    StoreError::Broken(format!("process `{id}` has its lock already"))
}

/// A file that is not there was never made, or was removed by a process that left.
fn is_file_free(database: &Path, id: ProcessId) -> StoreResult<bool> {
    let file = match File::open(file_of(database, id)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(unavailable(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(unavailable(error)),
    }
}

/// Removes the file of a process that is gone. Before its row: a row without a file is buried again, but
/// nobody would ever look for a file without a row.
pub(crate) fn remove_file(database: &Path, id: ProcessId) {
    if let Err(error) = std::fs::remove_file(file_of(database, id))
        && error.kind() != ErrorKind::NotFound
    {
        tracing::debug!(%error, "the file of a process that is gone could not be removed");
    }
}

#[async_trait]
impl ProcessLock for FileLock {
    async fn free(self: Box<Self>) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the file of this process could not be removed");
        }
    }
}

// ---- PostgreSQL ----

struct ServerLock {
    leave: oneshot::Sender<()>,
    keeping: JoinHandle<()>,
}

/// A session that holds the lock.
struct Session {
    client: Client,
    /// Drives the connection; ends with it, and ends it when dropped.
    driver: JoinSet<()>,
}

const KEY: &str = "hashtextextended($1, $2)";

/// Takes the lock over a connection of its own, and takes it again whenever that breaks.
pub(crate) async fn on_server(url: String, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>> {
    let session = connect(&url, id).await?;
    let (leave, asked) = oneshot::channel();
    let keeping = tokio::spawn(async move { keep(&url, id, session, asked).await });
    Ok(Box::new(ServerLock { leave, keeping }))
}

/// Ends when it is asked to, or when nobody could ask any more.
async fn keep(url: &str, id: ProcessId, mut session: Session, mut leave: oneshot::Receiver<()>) {
    loop {
        tokio::select! {
            _ = session.driver.join_next() => {}
            asked = &mut leave => {
                if asked.is_ok() {
                    session.unlock(id).await;
                }
                return;
            }
        }
        tracing::debug!(process.id = %id, "the connection that holds this process's lock is lost");
        session = tokio::select! {
            session = connect_again(url, id) => session,
            _ = &mut leave => return,
        };
    }
}

async fn connect_again(url: &str, id: ProcessId) -> Session {
    let mut pause = AGAIN.0;
    loop {
        match connect(url, id).await {
            Ok(session) => return session,
            Err(error) => tracing::debug!(%error, process.id = %id, "this process's lock is not to be had"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

async fn connect(url: &str, id: ProcessId) -> StoreResult<Session> {
    let connecting = async {
        let config = postgres::config(url, Purpose::ProcessLock)?;
        let (client, connection) = config.connect(NoTls).await.map_err(postgres::error)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        let text = format!("SELECT pg_try_advisory_lock({KEY})");
        let row = client.query_one(&text, &[&id.to_string(), &SALT]).await.map_err(postgres::error)?;
        match row.try_get(0).map_err(postgres::error)? {
            true => Ok(Session { client, driver }),
            // The server has not noticed yet that our last connection is gone; or somebody looks at the lock.
            false => Err(held_already(id)),
        }
    };
    timeout(LONGEST_TRY, connecting).await.map_err(unavailable)?
}

impl Session {
    async fn unlock(&self, id: ProcessId) {
        let text = format!("SELECT pg_advisory_unlock({KEY})");
        let _ = self.client.query_one(&text, &[&id.to_string(), &SALT]).await;
    }
}

#[async_trait]
impl ProcessLock for ServerLock {
    async fn free(self: Box<Self>) {
        let Self { leave, keeping } = *self;
        if leave.send(()).is_ok() {
            let _ = timeout(LONGEST_TRY, keeping).await;
        }
    }
}
