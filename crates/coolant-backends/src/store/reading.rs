//! Reading: each call on a connection of its own, in one snapshot, beside whatever is written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::SqlStore;
use crate::conn::{Conn, unavailable};
use crate::{postgres, sqlite};

/// What is read by.
pub(super) enum Readers {
    Files { path: PathBuf, idle: Arc<Mutex<Vec<rusqlite::Connection>>> },
    Pool(deadpool_postgres::Pool),
}

/// Reading connections kept open to a file.
const IDLE_READERS: usize = 4;
/// How long a server may take for what is read, and to say whether it is ready.
const LONGEST_READ: Duration = Duration::from_secs(30);
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(5);

impl SqlStore {
    /// Reads in one snapshot, on a connection of its own.
    pub(super) async fn read<T, F>(&self, read: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
    {
        self.read_within(LONGEST_READ, read).await
    }

    /// The same for what depends on the time.
    pub(super) async fn read_now<T, F>(&self, read: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn, Timestamp) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
    {
        let clock = self.clock.clone();
        self.read(move |conn| {
            async move {
                let now = clock.now(conn).await?;
                read(conn, now).await
            }
            .boxed()
        })
        .await
    }

    /// The same as [`Self::read`] of a server that has to answer by then.
    pub(super) async fn read_within<T, F>(&self, limit: Duration, read: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, StoreResult<T>> + Send + 'static,
    {
        let task = match &self.readers {
            Readers::Files { path, idle } => {
                let (path, idle) = (path.clone(), Arc::clone(idle));
                self.runtime.spawn_blocking(move || {
                    let mut conn = Conn::Sqlite(take_reader(&path, &idle)?);
                    let outcome = futures::executor::block_on(in_snapshot(&mut conn, read));
                    if let Conn::Sqlite(conn) = conn {
                        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                        if conn.is_autocommit() && idle.len() < IDLE_READERS {
                            idle.push(conn);
                        }
                    }
                    outcome
                })
            }
            Readers::Pool(pool) => {
                let pool = pool.clone();
                self.runtime.spawn(async move {
                    let mut conn = Conn::Postgres(pool.get().await.map_err(postgres::pool_error)?);
                    let reading = tokio::time::timeout(limit, in_snapshot(&mut conn, read)).await;
                    let is_silent = reading.is_err();
                    let outcome = reading.map_err(unavailable).flatten();
                    let is_away = matches!(outcome, Err(StoreError::Unavailable(_)));
                    if outcome.is_err()
                        && (is_away || !conn.rollback().await)
                        && let Conn::Postgres(client) = conn
                    {
                        drop(deadpool_postgres::Object::take(client));
                    }
                    if is_silent {
                        // Those that idle lead to the same server.
                        pool.retain(|_, _| false);
                    }
                    outcome
                })
            }
        };
        task.await.map_err(|error| StoreError::Broken(error.to_string()))?
    }
}

fn take_reader(path: &Path, idle: &Mutex<Vec<rusqlite::Connection>>) -> StoreResult<rusqlite::Connection> {
    let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    kept.map_or_else(|| sqlite::open_reader(path), Ok)
}

async fn in_snapshot<T, F>(conn: &mut Conn, read: F) -> StoreResult<T>
where
    F: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, StoreResult<T>> + Send,
{
    conn.begin_snapshot().await?;
    let value = read(conn).await;
    match value {
        Ok(value) => conn.commit().await.map(|()| value),
        Err(error) => {
            conn.rollback().await;
            Err(error)
        }
    }
}
