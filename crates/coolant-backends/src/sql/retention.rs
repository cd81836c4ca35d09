//! Forgetting what was kept long enough, a few rows at a time.

use std::time::Duration;

use coolant_core::retention::{Retention, before};
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::lines;

const ID: Columns<'_> = &[("id", Kind::Text)];

/// Forgets so many jobs at most, then so many paid calls, counts and lines. Gives how many jobs and calls those were.
pub(crate) async fn forget(
    conn: &mut Conn,
    keep: &Retention,
    limit: u32,
    now: Timestamp,
) -> StoreResult<u64> {
    let mut forgotten = 0;
    for (kept, which) in [
        (
            keep.finished,
            "(status IN ('SUCCEEDED', 'CANCELLED') OR (status = 'FAILED' AND reopen = 'discarded'))",
        ),
        (keep.dead_letters, "status = 'FAILED' AND reopen <> 'discarded'"),
    ] {
        if let Some(kept) = kept {
            forgotten += forget_jobs(conn, which, kept, limit, now).await?;
        }
    }
    if let Some(kept) = keep.ledger {
        let text =
            "DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE at <= $1 ORDER BY at LIMIT $2)";
        forgotten += conn.execute(text, &[at(kept, now), i64::from(limit).into()]).await?;
    }
    if let Some(kept) = keep.finished {
        forget_counts(conn, kept, limit, now).await?;
    }
    // Not with every piece of a long history.
    if forgotten < u64::from(limit) {
        lines::forget(conn, limit, now).await?;
    }
    Ok(forgotten)
}

fn at(kept: Duration, now: Timestamp) -> Value {
    before(kept, now).as_millis().into()
}

/// Passes over those that others have in hand, and looks at each again as they left it: one that is being
/// reopened stays.
async fn forget_jobs(
    conn: &mut Conn,
    which: &str,
    kept: Duration,
    limit: u32,
    now: Timestamp,
) -> StoreResult<u64> {
    let text = format!(
        "SELECT id FROM jobs WHERE finished_at <= $1 AND {which} ORDER BY finished_at LIMIT $2 {{skip}}"
    );
    let rows = conn.query(&text, &[at(kept, now), i64::from(limit).into()]).await?;
    let ids: StoreResult<Vec<Vec<Value>>> =
        rows.into_iter().map(|mut row| Ok(vec![row.text()?.into()])).collect();
    let ids = ids?;
    for (table, column) in [
        ("steps", "job_id"),
        ("attempts", "job_id"),
        ("job_results", "job_id"),
        ("jobs", "id"),
        ("job_specs", "job_id"),
    ] {
        let text = format!("DELETE FROM {table} WHERE {column} IN (SELECT r.id FROM {{rows}})");
        conn.execute_rows(&text, &[], ID, ids.clone()).await?;
    }
    Ok(ids.len() as u64)
}

/// Counts by the minute, and who asked for jobs, of a time of which nothing else is kept.
async fn forget_counts(conn: &mut Conn, kept: Duration, limit: u32, now: Timestamp) -> StoreResult<()> {
    let then = before(kept, now).as_millis();
    let text = "DELETE FROM counters WHERE minute IN (SELECT minute FROM counters WHERE minute < $1 \
                ORDER BY minute LIMIT $2)";
    conn.execute(text, &[then.div_euclid(60_000).into(), i64::from(limit).into()]).await?;
    conn.execute("DELETE FROM claimers WHERE asked_at < $1", &[then.into()]).await?;
    Ok(())
}
