//! Schedules: read and saved whole, by the version they were read with.

use coolant_core::names::{ScheduleName, Tenant};
use coolant_core::schedule::Schedule;
use coolant_core::store::{NewJob, StoreResult};
use coolant_core::time::Timestamp;

use crate::conn::{Conn, Value};
use crate::sql::codec::{from_json, to_json};
use crate::sql::counters::Tally;
use crate::sql::submit;

/// Saves a schedule if nobody else has since it was read, and takes its jobs. Gives whether it did.
pub(crate) async fn save(
    conn: &mut Conn,
    schedule: &Schedule,
    jobs: &[NewJob],
    now: Timestamp,
) -> StoreResult<bool> {
    let next = Schedule { version: schedule.version + 1, ..schedule.clone() };
    let mut params: Vec<Value> = vec![
        schedule.tenant.as_str().into(),
        schedule.name.as_str().into(),
        schedule.id.to_string().into(),
        schedule.next_at.map(Timestamp::as_millis).into(),
        to_json(&next)?.into(),
        next.version.into(),
    ];
    let text = if schedule.version == 0 {
        "INSERT INTO schedules (tenant, name, id, next_at, record, version) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (tenant, name) DO NOTHING"
    } else {
        params.push(schedule.version.into());
        "UPDATE schedules SET next_at = $4, record = $5, version = $6 \
         WHERE tenant = $1 AND name = $2 AND id = $3 AND version = $7"
    };
    if conn.execute(text, &params).await? == 0 {
        return Ok(false);
    }
    let jobs: Vec<&NewJob> = jobs.iter().collect();
    // Thrown away: a tick whose key is taken is no duplicate that somebody sent.
    let mut tally = Tally::default();
    submit::submit(conn, &jobs, now, &mut tally).await?;
    Ok(true)
}

pub(crate) async fn one(
    conn: &mut Conn,
    tenant: &Tenant,
    name: &ScheduleName,
) -> StoreResult<Option<Schedule>> {
    let text = "SELECT record FROM schedules WHERE tenant = $1 AND name = $2";
    let rows = conn.query(text, &[tenant.as_str().into(), name.as_str().into()]).await?;
    rows.into_iter().next().map(|mut row| from_json(&row.text()?)).transpose()
}

pub(crate) async fn list(
    conn: &mut Conn,
    tenant: &Tenant,
    after: Option<&ScheduleName>,
    limit: u32,
) -> StoreResult<Vec<Schedule>> {
    let text = "SELECT record FROM schedules WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3";
    let after = after.map_or("", ScheduleName::as_str);
    let rows = conn.query(text, &[tenant.as_str().into(), after.into(), i64::from(limit).into()]).await?;
    rows.into_iter().map(|mut row| from_json(&row.text()?)).collect()
}

pub(crate) async fn delete(conn: &mut Conn, tenant: &Tenant, name: &ScheduleName) -> StoreResult<bool> {
    let text = "DELETE FROM schedules WHERE tenant = $1 AND name = $2";
    Ok(conn.execute(text, &[tenant.as_str().into(), name.as_str().into()]).await? == 1)
}

pub(crate) async fn due(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<Vec<Schedule>> {
    let text = "SELECT record FROM schedules WHERE next_at <= $1 ORDER BY next_at LIMIT $2";
    let rows = conn.query(text, &[now.as_millis().into(), i64::from(limit).into()]).await?;
    rows.into_iter().map(|mut row| from_json(&row.text()?)).collect()
}
