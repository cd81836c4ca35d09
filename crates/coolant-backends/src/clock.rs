//! The store's clock.
//!
//! PostgreSQL has one of its own, which all processes share. The processes of one machine that share a
//! SQLite file share the time since boot instead, with an offset that the file keeps: somebody who sets the
//! machine's clock moves no lease.

use std::sync::Arc;

use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::Timestamp;

use crate::conn::{Conn, Dialect};

/// A clock that a test moves.
pub type TestClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the store's time is read from.
#[derive(Clone)]
pub(crate) enum StoreClock {
    Test(TestClock),
    /// Milliseconds from the machine's boot to the time that the file counts.
    SinceBoot {
        offset_ms: i64,
    },
    Database,
}

impl StoreClock {
    /// The time now.
    pub(crate) async fn now(&self, conn: &mut Conn) -> StoreResult<Timestamp> {
        match self {
            Self::Test(_) | Self::SinceBoot { .. } => Ok(self.here()),
            Self::Database => {
                let text = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
                let row = conn.query(text, &[]).await?.pop();
                let mut row = row.ok_or_else(|| StoreError::Broken("the database tells no time".into()))?;
                Ok(Timestamp::from_millis(row.int()?))
            }
        }
    }

    /// Opens a transaction that will write, and gives the time in it.
    pub(crate) async fn begin(&self, conn: &mut Conn) -> StoreResult<Timestamp> {
        match (self, conn) {
            (Self::Database, Conn::Postgres(client)) => {
                Ok(Timestamp::from_millis(crate::postgres::begin_at_now(client).await?))
            }
            (_, conn) => {
                conn.begin().await?;
                self.now(conn).await
            }
        }
    }

    /// A time that costs no question to a database and only goes forwards: for how long ago something was in
    /// this process. It is the store's own only where the store's clock is at hand.
    pub(crate) fn here(&self) -> Timestamp {
        match self {
            Self::Test(clock) => clock(),
            Self::SinceBoot { offset_ms } => Timestamp::from_millis(since_boot_ms() + offset_ms),
            Self::Database => Timestamp::from_millis(since_boot_ms()),
        }
    }

    /// The clock of a migrated store that a writer has open.
    pub(crate) async fn of(conn: &mut Conn) -> StoreResult<Self> {
        match conn.dialect() {
            Dialect::Postgres => Ok(Self::Database),
            Dialect::Sqlite => {
                conn.begin().await?;
                let offset_ms = agree_on_offset(conn).await;
                conn.commit().await?;
                Ok(Self::SinceBoot { offset_ms: offset_ms? })
            }
        }
    }
}

/// The offset that the first process since boot wrote down, or this one's if it is the first. Time never
/// goes back behind what the file has seen.
async fn agree_on_offset(conn: &mut Conn) -> StoreResult<i64> {
    let boot = boot_id();
    let text = "SELECT offset_ms FROM clock WHERE boot_id = $1";
    if let Some(mut row) = conn.query(text, &[boot.as_str().into()]).await?.pop() {
        return row.int();
    }
    let text = "SELECT max(coalesce((SELECT max(updated_at) FROM jobs), 0), \
                coalesce((SELECT max(ended_at) FROM attempts), 0))";
    let seen = conn.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    let offset_ms = wall_ms().max(seen) - since_boot_ms();
    conn.execute("DELETE FROM clock", &[]).await?;
    let params = [boot.into(), offset_ms.into()];
    conn.execute("INSERT INTO clock (boot_id, offset_ms) VALUES ($1, $2)", &params).await?;
    Ok(offset_ms)
}

/// What the machine's own clock says, in milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    Timestamp::from(std::time::SystemTime::now()).as_millis()
}

/// Milliseconds since boot, sleep included.
fn since_boot_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// A name for this boot. Without one every open of the file is a boot of its own.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| uuid::Uuid::now_v7().to_string(), |id| id.trim().to_owned())
}
