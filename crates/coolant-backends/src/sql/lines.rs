//! Lines that claims look at: written down with their first job, dropped when they have rested for long.
//!
//! A submit looks whether its line is there and writes nothing if so, since all submits of a line would write
//! the same row. Whoever drops a line does not see a submit that has just looked. So a line is marked first,
//! and dropped only a week later, if it has rested since. A submit that finds the mark takes it away; it waits
//! for somebody who is dropping the row, or is waited for.
//!
//! Always true: the line of a pending or running job is there. (Unless its submit was open for a week.)

use std::collections::BTreeSet;
use std::time::Duration;

use coolant_core::store::StoreResult;
use coolant_core::time::{Timestamp, millis_up};

use crate::conn::{Conn, Dialect};
use crate::sql::waiting::{LINE, Line};

/// How long a line rests before it is dropped: longer than older processes, which do not write down the line of
/// a job that they reopen, work beside newer ones.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Writes down lines that were not there, or rested.
pub(crate) async fn note(conn: &mut Conn, lines: BTreeSet<Line>) -> StoreResult<()> {
    let key = match conn.dialect() {
        Dialect::Sqlite => "queue, job_type, priority, gate",
        Dialect::Postgres => "queue, job_type, priority, gate, writer",
    };
    // Asked first: a conflicting insert costs a write even where it does nothing.
    let text = format!(
        "INSERT INTO lines (queue, job_type, gate, priority) SELECT queue, job_type, gate, priority \
         FROM {{rows}} WHERE NOT EXISTS (SELECT 1 FROM lines l WHERE l.queue = r.queue \
         AND l.job_type = r.job_type AND l.priority = r.priority AND l.gate = r.gate \
         AND l.resting_since IS NULL) ON CONFLICT ({key}) DO UPDATE SET resting_since = NULL"
    );
    conn.execute_rows(&text, &[], &LINE, lines.iter().map(|line| line.values().into()).collect()).await?;
    Ok(())
}

/// Marks lines in which nothing waits or runs, and drops those that were marked long ago: so many at most.
pub(crate) async fn forget(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<()> {
    let without = |condition: &str| {
        format!(
            "NOT EXISTS (SELECT 1 FROM jobs j WHERE {condition} AND j.queue = lines.queue \
             AND j.job_type = lines.job_type AND j.gate = lines.gate AND j.priority = lines.priority)"
        )
    };
    let conditions = [
        "j.status = 'PENDING' AND j.delayed = 0",
        "j.status = 'PENDING' AND j.delayed = 1",
        "j.status = 'RUNNING'",
    ];
    let rests = conditions.map(without).join(" AND ");
    let text = format!("UPDATE lines SET resting_since = $1 WHERE resting_since IS NULL AND {rests}");
    conn.execute(&text, &[now.as_millis().into()]).await?;
    let row = match conn.dialect() {
        Dialect::Sqlite => "rowid",
        Dialect::Postgres => "ctid",
    };
    let text = format!(
        "DELETE FROM lines WHERE {row} IN (SELECT {row} FROM lines WHERE resting_since <= $1 AND {rests} \
         LIMIT $2 {{skip}})"
    );
    let long_ago = now.as_millis().saturating_sub(millis_up(KEPT));
    conn.execute(&text, &[long_ago.into(), i64::from(limit).into()]).await?;
    Ok(())
}
