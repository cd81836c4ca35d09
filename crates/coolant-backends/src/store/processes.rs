//! Processes with workers, in the SQL store.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use coolant_core::process::{Burial, Process, ProcessId, ProcessLock, ProcessStore};
use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::Timestamp;
use futures::FutureExt;
use tokio::time::timeout;

use super::{Readers, SqlStore};
use crate::clock::StoreClock;
use crate::conn::{Conn, unavailable};
use crate::sql::processes;
use crate::{Address, postgres, process_lock};

/// How long a renewal may take: shorter than it takes for a row to become stale, so that there is another try.
const LONGEST_RENEWAL: Duration = Duration::from_millis(1200);

impl SqlStore {
    /// The file of the database, if it is one.
    fn path(&self) -> Option<PathBuf> {
        match &self.address {
            Address::Sqlite(path) => Some(path.clone()),
            Address::Postgres(_) => None,
        }
    }
}

/// On a connection that waits behind nobody's lock and no long group. One that does not answer is given up,
/// and with it those that idle: after an outage they are likely to be as silent.
async fn renew_on_server(
    readers: deadpool_postgres::Pool,
    clock: StoreClock,
    id: ProcessId,
) -> StoreResult<()> {
    let renewing = async {
        let mut conn = Conn::Postgres(readers.get().await.map_err(postgres::pool_error)?);
        let renewed = timeout(LONGEST_RENEWAL, async {
            let now = clock.now(&mut conn).await?;
            processes::renew(&mut conn, id, now).await
        });
        let renewed = renewed.await.map_err(unavailable).flatten();
        if matches!(renewed, Err(StoreError::Unavailable(_)))
            && let Conn::Postgres(client) = conn
        {
            drop(deadpool_postgres::Object::take(client));
            readers.retain(|_, _| false);
        }
        renewed
    };
    timeout(2 * LONGEST_RENEWAL, renewing).await.map_err(unavailable).flatten()
}

#[async_trait]
impl ProcessStore for SqlStore {
    async fn renew_process(&self, id: ProcessId) -> StoreResult<()> {
        match &self.readers {
            Readers::Files { .. } => {
                self.write(move |conn, now| processes::renew(conn, id, now).boxed()).await
            }
            Readers::Pool(pool) => {
                let renewing = renew_on_server(pool.clone(), self.clock.clone(), id);
                let renewed = self.runtime.spawn(renewing).await;
                renewed.map_err(|error| StoreError::Broken(error.to_string()))?
            }
        }
    }

    async fn lock_process(&self, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>> {
        let locked = match self.address.clone() {
            Address::Sqlite(path) => {
                self.runtime.spawn_blocking(move || process_lock::on_file(&path, id)).await
            }
            Address::Postgres(url) => self.runtime.spawn(process_lock::on_server(url, id)).await,
        };
        locked.map_err(|error| StoreError::Broken(error.to_string()))?
    }

    async fn processes(&self) -> StoreResult<(Timestamp, Vec<Process>)> {
        let clock = self.clock.clone();
        self.read(move |conn| {
            async move { Ok((clock.now(conn).await?, processes::all(conn).await?)) }.boxed()
        })
        .await
    }

    async fn bury_process(&self, process: Process, limit: u32) -> StoreResult<Burial> {
        let path = self.path();
        let buried = self
            .write(move |conn, now| {
                let path = path.clone();
                async move {
                    if !process_lock::is_free(conn, path.as_deref(), process.id).await? {
                        return Ok(Burial::Lives);
                    }
                    let buried = processes::bury(conn, &process, limit, now).await?;
                    if let (Burial::Done { .. }, Some(path)) = (buried, &path) {
                        process_lock::remove_file(path, process.id);
                    }
                    Ok(buried)
                }
                .boxed()
            })
            .await?;
        if matches!(buried, Burial::Begun { ended: 1.. } | Burial::Done { ended: 1.. }) {
            self.hints.tell();
        }
        Ok(buried)
    }

    async fn forget_process(&self, id: ProcessId) -> StoreResult<()> {
        self.write(move |conn, _| processes::forget(conn, id).boxed()).await
    }
}
