//! Submits: a key is one job, whatever happens at the same moment.
//!
//! The unique key of `job_specs` decides who came first. Everybody else reads what the first one left.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::fingerprint::Fingerprint;
use coolant_core::job::{Job, JobId, JobRecord, JobSpec, JobState, Reopen, Status};
use coolant_core::lifecycle::{Event, on};
use coolant_core::names::{IdempotencyKey, Tenant};
use coolant_core::store::{Counter, IfFailed, NewJob, StoreResult, SubmitOutcome, Submitted};
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Kind, unavailable};
use crate::sql::codec::encode_spec;
use crate::sql::counters::Tally;
use crate::sql::waiting::Line;
use crate::sql::{jobs, lines};

/// What a job is found by: its key, or its id if it has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Key(Tenant, IdempotencyKey),
    Id(JobId),
}

impl Name {
    fn of(id: JobId, spec: &JobSpec) -> Self {
        match &spec.idempotency_key {
            Some(key) => Self::Key(spec.tenant.clone(), key.clone()),
            None => Self::Id(id),
        }
    }
}

const KEY: Columns<'_> = &[("tenant", Kind::Text), ("k", Kind::Text)];

/// Takes jobs and answers each in its place.
pub(crate) async fn submit(
    conn: &mut Conn,
    new: &[&NewJob],
    now: Timestamp,
    tally: &mut Tally,
) -> StoreResult<Vec<Submitted>> {
    let created = insert_new(conn, new, now).await?;
    let mut existing = load_existing(conn, new, &created).await?;
    let reopened = reopen_failed(conn, new, &mut existing, now).await?;
    let mut first_reopening = reopened.clone();
    new.iter()
        .map(|new| {
            if created.contains(&new.id) {
                let record = JobRecord { job: new.first(now), payload: new.payload.clone(), result: None };
                return Ok(Submitted { outcome: SubmitOutcome::Created, record });
            }
            let record =
                existing.get(&Name::of(new.id, &new.spec)).ok_or_else(|| unavailable(BeingForgotten))?;
            let outcome = if !is_same_work(new, record) {
                SubmitOutcome::Conflict
            } else if record.job.id == new.id {
                // The same submit, come again after a lost answer.
                SubmitOutcome::Created
            } else if first_reopening.remove(&record.job.id) {
                SubmitOutcome::Reopened
            } else {
                SubmitOutcome::Existing
            };
            let counter = match outcome {
                SubmitOutcome::Conflict => Some(Counter::Conflicts),
                SubmitOutcome::Existing => Some(Counter::Duplicates),
                SubmitOutcome::Created | SubmitOutcome::Reopened => None,
            };
            let is_cooling =
                matches!(record.job.state, JobState::Failed { reopen: Reopen::From(at), .. } if at > now);
            let blocked =
                outcome == SubmitOutcome::Existing && new.if_failed == IfFailed::Retry && is_cooling;
            if let Some(counter) = counter {
                tally.add(counter, &record.job.spec.queue, 1);
            }
            if blocked {
                tally.block(&record.job);
            }
            Ok(Submitted { outcome, record: record.clone() })
        })
        .collect()
}

/// The key was taken when this submit came, and free a moment later: its job was just forgotten. The next try
/// makes a new one.
#[derive(Debug, thiserror::Error)]
#[error("the job of a key is being forgotten")]
struct BeingForgotten;

fn is_same_work(new: &NewJob, record: &JobRecord) -> bool {
    Fingerprint::of(&new.spec.job_type, &new.payload)
        == Fingerprint::of(&record.job.spec.job_type, &record.payload)
}

/// Adds the jobs whose key is free; the first of a batch stands for its key.
async fn insert_new(conn: &mut Conn, new: &[&NewJob], now: Timestamp) -> StoreResult<BTreeSet<JobId>> {
    let mut firsts: BTreeMap<Name, &NewJob> = BTreeMap::new();
    for new in new {
        firsts.entry(Name::of(new.id, &new.spec)).or_insert(new);
    }
    // In the order of their names, so that two writers of the same keys cannot wait for each other.
    let candidates: Vec<&NewJob> = firsts.into_values().collect();
    let rows: StoreResult<Vec<_>> = candidates.iter().map(|new| encode_spec(new)).collect();
    let created = jobs::insert_specs(conn, rows?).await?;
    let firsts: Vec<Job> =
        candidates.iter().filter(|new| created.contains(&new.id)).map(|new| new.first(now)).collect();
    jobs::insert(conn, &firsts).await?;
    lines::note(conn, firsts.iter().map(Line::of).collect()).await?;
    Ok(created)
}

/// The jobs of names that were taken.
async fn load_existing(
    conn: &mut Conn,
    new: &[&NewJob],
    created: &BTreeSet<JobId>,
) -> StoreResult<BTreeMap<Name, JobRecord>> {
    let taken: BTreeSet<Name> =
        new.iter().filter(|new| !created.contains(&new.id)).map(|new| Name::of(new.id, &new.spec)).collect();
    let mut keys = Vec::new();
    let mut ids = Vec::new();
    for name in &taken {
        match name {
            Name::Key(tenant, key) => keys.push(vec![tenant.as_str().into(), key.as_str().into()]),
            Name::Id(id) => ids.push(*id),
        }
    }
    let mut found: Vec<JobRecord> = jobs::records(conn, &ids).await?.into_values().collect();
    let text = format!(
        "SELECT {} FROM {} JOIN {{rows}} ON s.tenant = r.tenant AND s.idempotency_key = r.k",
        jobs::record_columns(),
        jobs::RECORD_TABLES
    );
    for mut row in conn.query_rows(&text, &[], KEY, keys).await? {
        found.push(jobs::record(&mut row)?);
    }
    Ok(found.into_iter().map(|record| (Name::of(record.job.id, &record.job.spec), record)).collect())
}

/// Reopens failed jobs that a submit asks to retry and whose cooldown is over. Gives which.
async fn reopen_failed(
    conn: &mut Conn,
    new: &[&NewJob],
    existing: &mut BTreeMap<Name, JobRecord>,
    now: Timestamp,
) -> StoreResult<BTreeSet<JobId>> {
    let wanted: BTreeSet<JobId> = new
        .iter()
        .filter(|new| new.if_failed == IfFailed::Retry)
        .filter_map(|new| {
            let record = existing.get(&Name::of(new.id, &new.spec))?;
            let again = record.job.id != new.id && is_same_work(new, record);
            (again && record.job.status() == Status::Failed).then_some(record.job.id)
        })
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeSet::new());
    }
    let locked = jobs::load_locked(conn, &wanted).await?;
    if locked.len() < wanted.len() {
        return Err(unavailable(BeingForgotten));
    }
    let mut saves = Vec::new();
    for (_, job) in locked {
        let was = job.version;
        let fresh = match on(&job, &Event::Reopen { force: false }, now) {
            // Cancelled jobs come back by an explicit retry alone.
            Ok(transition) if job.status() == Status::Failed => {
                saves.push((transition.job.clone(), was));
                transition.job
            }
            _ => job,
        };
        if let Some(record) = existing.values_mut().find(|record| record.job.id == fresh.id) {
            record.job = fresh;
        }
    }
    jobs::save(conn, &saves).await?;
    lines::note(conn, saves.iter().map(|(job, _)| Line::of(job)).collect()).await?;
    Ok(saves.into_iter().map(|(job, _)| job.id).collect())
}
