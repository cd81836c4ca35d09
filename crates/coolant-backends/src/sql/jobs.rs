//! Reading jobs, saving them, and what belongs to them: attempts, steps, results.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Attempt, Job, JobId, JobRecord, Step};
use coolant_core::money::{Money, UsageTotals};
use coolant_core::names::{IdempotencyKey, Tenant};
use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::Timestamp;
use serde_json::Value as Json;

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::{
    FIXED_COLUMNS, JOB_COLUMNS, SPEC_COLUMNS, decode, from_json, from_maybe_json, job_columns, job_id,
    maybe_at, outcome,
};

const ID: Columns<'_> = &[("id", Kind::Text)];

fn id_rows<'a>(ids: impl IntoIterator<Item = &'a JobId>) -> Vec<Vec<Value>> {
    ids.into_iter().map(|id| vec![id.to_string().into()]).collect()
}

/// Jobs to be changed, their rows locked in the order of their ids, so that two writers cannot wait for
/// each other.
pub(crate) async fn load_locked(conn: &mut Conn, ids: &BTreeSet<JobId>) -> StoreResult<BTreeMap<JobId, Job>> {
    // Who waited for a lock gets the row as it was left: PostgreSQL reads it again.
    load_with(conn, ids, "ORDER BY j.id {lock_jobs}").await
}

/// The same without waiting: those that another transaction holds are left out.
pub(crate) async fn load_unheld(conn: &mut Conn, ids: &BTreeSet<JobId>) -> StoreResult<BTreeMap<JobId, Job>> {
    load_with(conn, ids, "{skip_jobs}").await
}

/// Jobs as they are, locked by nobody.
pub(crate) async fn load(conn: &mut Conn, ids: &BTreeSet<JobId>) -> StoreResult<BTreeMap<JobId, Job>> {
    load_with(conn, ids, "").await
}

async fn load_with(
    conn: &mut Conn,
    ids: &BTreeSet<JobId>,
    locking: &str,
) -> StoreResult<BTreeMap<JobId, Job>> {
    let text = format!(
        "SELECT {}, s.idempotency_key, s.spec FROM {{rows}} \
         JOIN jobs j ON j.id = r.id JOIN job_specs s ON s.job_id = j.id {locking}",
        job_columns("j.")
    );
    let rows = conn.query_rows(&text, &[], ID, id_rows(ids)).await?;
    rows.into_iter()
        .map(|mut row| {
            let job = decode(&mut row)?;
            Ok((job.id, job))
        })
        .collect()
}

/// Saves changed jobs, each if it is still at the version before.
pub(crate) async fn save(conn: &mut Conn, jobs: &[(Job, i64)]) -> StoreResult<()> {
    let changing = &JOB_COLUMNS[FIXED_COLUMNS..];
    let set: Vec<_> = changing.iter().map(|(column, _)| format!("{column} = r.{column}")).collect();
    let mut columns = vec![("id", Kind::Text), ("was", Kind::Int)];
    columns.extend_from_slice(changing);
    let text = format!(
        "UPDATE jobs SET {} {{from_rows}} WHERE jobs.id = r.id AND jobs.version = r.was",
        set.join(", ")
    );
    let mut rows = Vec::with_capacity(jobs.len());
    for (job, was) in jobs {
        let mut row: Vec<Value> = vec![job.id.to_string().into(), (*was).into()];
        row.extend(crate::sql::codec::encode(job)?.into_iter().skip(FIXED_COLUMNS));
        rows.push(row);
    }
    let saved = conn.execute_rows(&text, &[], &columns, rows).await?;
    if saved != jobs.len() as u64 {
        return Err(StoreError::Broken(format!(
            "{saved} of {} jobs were still as they were read",
            jobs.len()
        )));
    }
    Ok(())
}

/// Adds rows of new jobs, whose specs are there already.
pub(crate) async fn insert(conn: &mut Conn, jobs: &[Job]) -> StoreResult<()> {
    let names: Vec<_> = JOB_COLUMNS.iter().map(|(column, _)| *column).collect();
    let names = names.join(", ");
    let text = format!("INSERT INTO jobs ({names}) SELECT {names} FROM {{rows}}");
    let rows: StoreResult<Vec<_>> = jobs.iter().map(crate::sql::codec::encode).collect();
    conn.execute_rows(&text, &[], JOB_COLUMNS, rows?).await?;
    Ok(())
}

/// Adds specs; gives the ids of those whose key was free.
pub(crate) async fn insert_specs(conn: &mut Conn, rows: Vec<Vec<Value>>) -> StoreResult<BTreeSet<JobId>> {
    let names: Vec<_> = SPEC_COLUMNS.iter().map(|(column, _)| *column).collect();
    let names = names.join(", ");
    let text = format!(
        "INSERT INTO job_specs ({names}) SELECT {names} FROM {{rows}} WHERE true \
         ON CONFLICT DO NOTHING RETURNING job_id"
    );
    let rows = conn.query_rows(&text, &[], SPEC_COLUMNS, rows).await?;
    rows.into_iter().map(|mut row| job_id(&row.text()?)).collect()
}

/// The columns that [`record`] reads.
pub(crate) fn record_columns() -> String {
    format!("{}, s.idempotency_key, s.spec, s.payload, x.result", job_columns("j."))
}

/// The tables that [`record_columns`] come from.
pub(crate) const RECORD_TABLES: &str =
    "jobs j JOIN job_specs s ON s.job_id = j.id LEFT JOIN job_results x ON x.job_id = j.id";

pub(crate) fn record(row: &mut Row) -> StoreResult<JobRecord> {
    let job = decode(row)?;
    let payload = from_json(&row.text()?)?;
    let result = from_maybe_json(row.maybe_text()?)?;
    Ok(JobRecord { job, payload, result })
}

/// Jobs with payload and result, by id.
pub(crate) async fn records<'a>(
    conn: &mut Conn,
    ids: impl IntoIterator<Item = &'a JobId>,
) -> StoreResult<BTreeMap<JobId, JobRecord>> {
    // The rows first: SQLite would keep them in a table of its own otherwise.
    let text =
        format!("SELECT {} FROM {{rows}} CROSS JOIN {RECORD_TABLES} WHERE r.id = j.id", record_columns());
    let rows = conn.query_rows(&text, &[], ID, id_rows(ids)).await?;
    rows.into_iter()
        .map(|mut row| {
            let record = record(&mut row)?;
            Ok((record.job.id, record))
        })
        .collect()
}

/// The job of a key.
pub(crate) async fn by_key(
    conn: &mut Conn,
    tenant: &Tenant,
    key: &IdempotencyKey,
) -> StoreResult<Option<JobRecord>> {
    let text = format!(
        "SELECT {} FROM {RECORD_TABLES} WHERE s.tenant = $1 AND s.idempotency_key = $2",
        record_columns()
    );
    let mut rows = conn.query(&text, &[tenant.as_str().into(), key.as_str().into()]).await?;
    rows.pop().map(|mut row| record(&mut row)).transpose()
}

pub(crate) async fn attempts(conn: &mut Conn, id: JobId) -> StoreResult<Vec<Attempt>> {
    let text = "SELECT number, worker, began_at, ended_at, outcome, error, calls, input_tokens, output_tokens, \
                cost_nanos, wasted_nanos FROM attempts WHERE job_id = $1 ORDER BY number";
    let rows = conn.query(text, &[id.to_string().into()]).await?;
    rows.into_iter()
        .map(|mut row| {
            Ok(Attempt {
                number: row.int()?,
                worker: row.text()?,
                started_at: Timestamp::from_millis(row.int()?),
                ended_at: maybe_at(&mut row)?,
                outcome: row.maybe_text()?.map(|name| outcome(&name)).transpose()?,
                error: from_maybe_json(row.maybe_text()?)?,
                usage: UsageTotals {
                    calls: row.int()?,
                    input_tokens: row.int()?,
                    output_tokens: row.int()?,
                    cost: Money::from_nanos(row.int()?),
                    wasted: Money::from_nanos(row.int()?),
                },
            })
        })
        .collect()
}

pub(crate) async fn steps(conn: &mut Conn, id: JobId) -> StoreResult<Vec<Step>> {
    let text = "SELECT name, bytes, finished_at, attempt, NULL FROM steps WHERE job_id = $1 \
                ORDER BY finished_at, name";
    let rows = conn.query(text, &[id.to_string().into()]).await?;
    rows.into_iter().map(|mut row| step_row(&mut row)).collect()
}

pub(crate) async fn step(conn: &mut Conn, id: JobId, name: &str) -> StoreResult<Option<Step>> {
    let text = "SELECT name, bytes, finished_at, attempt, output FROM steps WHERE job_id = $1 AND name = $2";
    let mut rows = conn.query(text, &[id.to_string().into(), name.into()]).await?;
    rows.pop().map(|mut row| step_row(&mut row)).transpose()
}

fn step_row(row: &mut Row) -> StoreResult<Step> {
    Ok(Step {
        name: row.text()?,
        bytes: u64::try_from(row.int()?).unwrap_or_default(),
        finished_at: Timestamp::from_millis(row.int()?),
        attempt: row.int()?,
        output: from_maybe_json(row.maybe_text()?)?,
    })
}

/// The outputs of finished steps, by job and name.
pub(crate) async fn step_outputs(
    conn: &mut Conn,
    ids: &[JobId],
) -> StoreResult<BTreeMap<JobId, BTreeMap<String, Json>>> {
    let text = "SELECT t.job_id, t.name, t.output FROM {rows} JOIN steps t ON t.job_id = r.id";
    let rows = conn.query_rows(text, &[], ID, id_rows(ids)).await?;
    let mut found: BTreeMap<JobId, BTreeMap<String, Json>> = BTreeMap::new();
    for mut row in rows {
        let id = job_id(&row.text()?)?;
        found.entry(id).or_default().insert(row.text()?, from_json(&row.text()?)?);
    }
    Ok(found)
}
