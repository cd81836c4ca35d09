//! What operators do and leave behind: redrives and the audit trail.

use coolant_core::job::JobId;
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::{AuditEntry, Redrive, RedriveState, StoreResult};
use coolant_core::time::Timestamp;
use uuid::Uuid;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::codec::{from_json, maybe_at, name, to_json};

const AUDIT: Columns<'_> = &[
    ("id", Kind::Text),
    ("at", Kind::Int),
    ("actor", Kind::Text),
    ("action", Kind::Text),
    ("target", Kind::Text),
    ("reason", Kind::Text),
];

pub(crate) async fn write_audit(conn: &mut Conn, entries: Vec<AuditEntry>) -> StoreResult<()> {
    let rows = entries
        .into_iter()
        .map(|entry| {
            vec![
                Uuid::now_v7().to_string().into(),
                entry.at.as_millis().into(),
                entry.actor.into(),
                entry.action.into(),
                entry.target.into(),
                entry.reason.into(),
            ]
        })
        .collect();
    let text = "INSERT INTO audit (id, at, actor, action, target, reason) \
                SELECT id, at, actor, action, target, reason FROM {rows}";
    conn.execute_rows(text, &[], AUDIT, rows).await?;
    Ok(())
}

pub(crate) async fn audit(conn: &mut Conn, limit: u32) -> StoreResult<Vec<AuditEntry>> {
    let text = "SELECT at, actor, action, target, reason FROM audit ORDER BY id DESC LIMIT $1";
    let rows = conn.query(text, &[i64::from(limit).into()]).await?;
    rows.into_iter()
        .map(|mut row| {
            Ok(AuditEntry {
                at: Timestamp::from_millis(row.int()?),
                actor: row.text()?,
                action: row.text()?,
                target: row.text()?,
                reason: row.text()?,
            })
        })
        .collect()
}

const fn state_name(state: RedriveState) -> &'static str {
    match state {
        RedriveState::Running => "running",
        RedriveState::Done => "done",
        RedriveState::Stopped => "stopped",
    }
}

/// Saves a redrive if nobody else has since it was read. Gives whether it did.
pub(crate) async fn save_redrive(conn: &mut Conn, redrive: &Redrive) -> StoreResult<bool> {
    let next = Redrive { version: redrive.version + 1, ..redrive.clone() };
    let mut params: Vec<Value> = vec![
        redrive.id.to_string().into(),
        state_name(redrive.state).into(),
        to_json(&next)?.into(),
        next.version.into(),
    ];
    let text = if redrive.version == 0 {
        "INSERT INTO redrives (id, state, record, version) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING"
    } else {
        params.push(redrive.version.into());
        "UPDATE redrives SET state = $2, record = $3, version = $4 WHERE id = $1 AND version = $5"
    };
    Ok(conn.execute(text, &params).await? == 1)
}

pub(crate) async fn redrive(conn: &mut Conn, id: JobId) -> StoreResult<Option<Redrive>> {
    let rows = conn.query("SELECT record FROM redrives WHERE id = $1", &[id.to_string().into()]).await?;
    rows.into_iter().next().map(|mut row| from_json(&row.text()?)).transpose()
}

pub(crate) async fn running_redrives(conn: &mut Conn) -> StoreResult<Vec<Redrive>> {
    let rows = conn.query("SELECT record FROM redrives WHERE state = 'running' ORDER BY id", &[]).await?;
    rows.into_iter().map(|mut row| from_json(&row.text()?)).collect()
}

const LOCK_KEY: Columns<'_> = &[("tenant", Kind::Text), ("k", Kind::Text)];

/// Which of these lock keys a live job has.
pub(crate) async fn live_lock_keys(
    conn: &mut Conn,
    keys: &[(Tenant, String)],
) -> StoreResult<Vec<(Tenant, String)>> {
    let rows = keys.iter().map(|(tenant, key)| vec![tenant.as_str().into(), key.as_str().into()]).collect();
    let text = "SELECT DISTINCT j.tenant, j.lock_key FROM {rows} JOIN jobs j ON j.tenant = r.tenant \
                AND j.lock_key = r.k WHERE j.lock_key IS NOT NULL AND j.finished_at IS NULL";
    let rows = conn.query_rows(text, &[], LOCK_KEY, rows).await?;
    rows.into_iter().map(|mut row| Ok((name(Tenant::parse(row.text()?))?, row.text()?))).collect()
}

const CLAIMER: Columns<'_> = &[("queue", Kind::Text), ("job_type", Kind::Text)];

/// Writes down that a worker asks for these; an empty type stands for any.
pub(crate) async fn note_claimers(
    conn: &mut Conn,
    pairs: &[(String, String)],
    now: Timestamp,
) -> StoreResult<()> {
    // A row that somebody holds says much the same already: nobody's claim waits for it.
    let find = "SELECT 1 FROM claimers WHERE queue = $1 AND job_type = $2 {skip}";
    let (mut known, mut new) = (Vec::new(), Vec::new());
    for (queue, job_type) in pairs {
        let row: Vec<Value> = vec![queue.as_str().into(), job_type.as_str().into()];
        let found = !conn.query(find, &row).await?.is_empty();
        if found { known.push(row) } else { new.push(row) }
    }
    let now = [now.as_millis().into()];
    let text = "UPDATE claimers SET asked_at = $1 {from_rows} \
                WHERE claimers.queue = r.queue AND claimers.job_type = r.job_type";
    conn.execute_rows(text, &now, CLAIMER, known).await?;
    let text = "INSERT INTO claimers (queue, job_type, asked_at) SELECT queue, job_type, $1 FROM {rows} \
                WHERE true ON CONFLICT DO NOTHING";
    conn.execute_rows(text, &now, CLAIMER, new).await?;
    Ok(())
}

pub(crate) async fn last_claim_asked(
    conn: &mut Conn,
    queue: &Queue,
    job_type: &JobType,
) -> StoreResult<Option<Timestamp>> {
    let text = "SELECT max(asked_at) FROM claimers WHERE queue = $1 AND (job_type = $2 OR job_type = '')";
    let mut rows = conn.query(text, &[queue.as_str().into(), job_type.as_str().into()]).await?;
    rows.pop().map_or(Ok(None), |mut row| maybe_at(&mut row))
}
