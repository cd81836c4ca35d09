//! Where a claim begins to look in a line of jobs.
//!
//! PostgreSQL's index keeps the entry of a claimed job until a vacuum clears it, and those entries lie before
//! all jobs that still wait: a claim that began at the start of its line would walk over every job claimed
//! since. So a lane remembers for each line the earliest instant of any pending job, and begins there.
//!
//! Always true:
//! - at the time it was looked up, no pending job of the line, locked or not, lay below its floor;
//! - a floor lies `MARGIN` in the past, so a job that is committed later can lie below it only if its
//!   transaction took longer than that. Such a job is found when the floor is looked up again.
//!
//! SQLite removes entries at once and has no floors.

use std::collections::HashMap;
use std::time::Duration;

use coolant_core::store::StoreResult;
use coolant_core::time::{Timestamp, millis_up};

use crate::conn::{Conn, Dialect, Value};
use crate::sql::claim::Line;

/// How long a transaction may take from its first look at the clock to its commit.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a floor is kept.
const KEPT: Duration = Duration::from_secs(5);

struct Floor {
    due_at: i64,
    looked_up: Timestamp,
}

/// The floors that a lane knows.
#[derive(Default)]
pub(crate) struct Floors(HashMap<Line, Floor>);

impl Floors {
    /// The floor of a line: no pending job is due before it.
    pub(crate) async fn of(&mut self, conn: &mut Conn, line: &Line, now: Timestamp) -> StoreResult<i64> {
        if conn.dialect() == Dialect::Sqlite {
            return Ok(i64::MIN);
        }
        // A clock that was set back makes every floor worthless.
        let fresh = |floor: &&Floor| (floor.looked_up..floor.looked_up.plus(KEPT)).contains(&now);
        if let Some(floor) = self.0.get(line).filter(fresh) {
            return Ok(floor.due_at);
        }
        let highest = now.as_millis().saturating_sub(millis_up(MARGIN));
        let due_at = earliest(conn, line).await?.map_or(highest, |earliest| earliest.min(highest));
        self.0.insert(line.clone(), Floor { due_at, looked_up: now });
        Ok(due_at)
    }

    /// Forgets them all: after a rollback, jobs that this lane had claimed are pending again.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

async fn earliest(conn: &mut Conn, line: &Line) -> StoreResult<Option<i64>> {
    let text = "SELECT due_at FROM jobs WHERE status = 'PENDING' AND queue = $1 AND job_type = $2 \
                AND gate = $3 AND priority = $4 ORDER BY due_at LIMIT 1";
    let params: [Value; 4] = [
        line.queue.as_str().into(),
        line.job_type.as_str().into(),
        line.gate.as_str().into(),
        line.priority.into(),
    ];
    conn.query(text, &params).await?.pop().map(|mut row| row.int()).transpose()
}
