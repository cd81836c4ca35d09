//! Processes with workers: their rows, and the leases of those that died.

use std::collections::BTreeMap;

use coolant_core::job::{JobId, LeaseToken};
use coolant_core::lifecycle::{Event, on};
use coolant_core::process::{Burial, Process, ProcessId};
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;

use crate::conn::{Conn, Value};
use crate::sql::codec::{broken, job_id};
use crate::sql::effects::Effects;
use crate::sql::jobs;

/// Writes down that a process lives.
pub(crate) async fn renew(conn: &mut Conn, id: ProcessId, now: Timestamp) -> StoreResult<()> {
    let text = "INSERT INTO processes (id, renewed_at) VALUES ($1, $2) \
                ON CONFLICT (id) DO UPDATE SET renewed_at = excluded.renewed_at";
    conn.execute(text, &[id.to_string().into(), now.as_millis().into()]).await?;
    Ok(())
}

/// All rows.
pub(crate) async fn all(conn: &mut Conn) -> StoreResult<Vec<Process>> {
    let rows = conn.query("SELECT id, renewed_at FROM processes ORDER BY id", &[]).await?;
    rows.into_iter()
        .map(|mut row| {
            let id = row.text()?.parse().map_err(broken)?;
            Ok(Process { id, renewed_at: Timestamp::from_millis(row.int()?) })
        })
        .collect()
}

/// Removes its row.
pub(crate) async fn forget(conn: &mut Conn, id: ProcessId) -> StoreResult<()> {
    conn.execute("DELETE FROM processes WHERE id = $1", &[id.to_string().into()]).await?;
    Ok(())
}

/// Ends leases of a process whose lock is free, if it has not renewed its row since.
pub(crate) async fn bury(
    conn: &mut Conn,
    process: &Process,
    limit: u32,
    now: Timestamp,
) -> StoreResult<Burial> {
    let id: Value = process.id.to_string().into();
    let text = "SELECT renewed_at FROM processes WHERE id = $1 {lock}";
    let renewed_at = conn.query(text, std::slice::from_ref(&id)).await?.pop();
    let renewed_at = renewed_at.map(|mut row| row.int()).transpose()?;
    if renewed_at.is_some_and(|at| at != process.renewed_at.as_millis()) {
        return Ok(Burial::Lives);
    }
    let ended = end_leases(conn, &id, limit, now).await?;
    if live_leases(conn, &id, now).await? > 0 {
        return Ok(Burial::Begun { ended });
    }
    forget(conn, process.id).await?;
    Ok(Burial::Done { ended })
}

/// Leases of process `$1` that run on after `$2`. There are as many running jobs as there are slots of
/// workers, and each is asked for the process of its newest attempt.
const LIVE: &str = "FROM jobs j WHERE j.status = 'RUNNING' AND j.lease_until > $2 AND EXISTS (SELECT 1 \
                    FROM attempts a WHERE a.job_id = j.id AND a.number = j.claims AND a.process = $1)";

/// Passes over jobs that others are changing at this moment: their turn comes at the next look.
async fn end_leases(conn: &mut Conn, id: &Value, limit: u32, now: Timestamp) -> StoreResult<u32> {
    let text = format!("SELECT j.id, j.claims {LIVE} LIMIT $3 {{skip}}");
    let params = [id.clone(), now.as_millis().into(), i64::from(limit).into()];
    let rows = conn.query(&text, &params).await?;
    let tokens: StoreResult<BTreeMap<JobId, LeaseToken>> =
        rows.into_iter().map(|mut row| Ok((job_id(&row.text()?)?, LeaseToken(row.int()?)))).collect();
    let tokens = tokens?;
    let mut effects = Effects::default();
    let mut ended = 0;
    for (id, job) in jobs::load_locked(conn, &tokens.keys().copied().collect()).await? {
        if let Some(&token) = tokens.get(&id)
            && let event = (Event::HolderDied { token })
            && let Ok(transition) = on(&job, &event, now)
            && transition.job.version != job.version
        {
            effects.add(&job, &event, &transition, now)?;
            ended += 1;
        }
    }
    effects.save(conn).await?;
    Ok(ended)
}

async fn live_leases(conn: &mut Conn, id: &Value, now: Timestamp) -> StoreResult<i64> {
    let text = format!("SELECT count(*) {LIVE}");
    let params = [id.clone(), now.as_millis().into()];
    conn.query(&text, &params).await?.pop().map_or(Ok(0), |mut row| row.int())
}
