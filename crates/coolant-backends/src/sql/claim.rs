//! Claims: the one place where SQL chooses jobs. What becomes of the chosen ones, `lifecycle` decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coolant_core::gate::{Allowance, Gate, Gates};
use coolant_core::job::{Job, JobId, JobSpec, Status};
use coolant_core::lifecycle::{Answer, Event, on};
use coolant_core::names::{JobType, Queue};
use coolant_core::store::{ClaimRequest, Claimed, StoreResult};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{self, Desk, Starter};

use crate::conn::{Conn, Dialect, Value};
use crate::sql::apply::Effects;
use crate::sql::codec::job_id;
use crate::sql::floor::Floors;
use crate::sql::jobs;

/// A job whose instant has come, its row locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Higher priority first: the order of the fields is the order of the claim.
    negated_priority: i64,
    visible_at: i64,
    id: JobId,
    lock: Option<(String, String)>,
    gate: Gate,
}

/// Jobs of one queue, type, gate and priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line {
    pub(crate) queue: String,
    pub(crate) job_type: String,
    pub(crate) gate: Gate,
    pub(crate) priority: i64,
}

impl Line {
    /// The line that a job waits in.
    pub(crate) fn of(job: &Job) -> Self {
        let JobSpec { queue, job_type, upstreams, priority, .. } = &*job.spec;
        Self {
            queue: queue.to_string(),
            job_type: job_type.to_string(),
            gate: Gate::of(upstreams),
            priority: i64::from(*priority),
        }
    }
}

/// Rounds of a claim at most: a candidate that turns out to have ended makes room for another.
const ROUNDS: u32 = 10;

/// Gives jobs to a worker.
pub(crate) async fn claim(
    conn: &mut Conn,
    request: &ClaimRequest,
    now: Timestamp,
    floors: &mut Floors,
    desk: &mut Desk,
) -> StoreResult<Vec<Claimed>> {
    let mut claimed: Vec<Claimed> = Vec::new();
    for _ in 0..ROUNDS {
        let left = request.max.saturating_sub(u32::try_from(claimed.len()).unwrap_or(u32::MAX));
        let request = ClaimRequest { max: left, ..request.clone() };
        let (considered, round) = claim_round(conn, &request, now, floors, desk).await?;
        let was_full = round.len() == considered || considered < left as usize;
        claimed.extend(round);
        if was_full {
            break;
        }
    }
    give_steps(conn, &mut claimed).await?;
    Ok(claimed)
}

/// Gives how many candidates there were, and those of them that were claimed.
async fn claim_round(
    conn: &mut Conn,
    request: &ClaimRequest,
    now: Timestamp,
    floors: &mut Floors,
    desk: &mut Desk,
) -> StoreResult<(usize, Vec<Claimed>)> {
    let candidates = choose(conn, request, now, floors, &gates(desk, now)).await?;
    let considered = candidates.len();
    let chosen = one_of_each_lock_key(conn, candidates, now).await?;
    let mut effects = Effects::default();
    let mut claimed = Vec::with_capacity(chosen.len());
    let mut records = jobs::records(conn, chosen.iter().map(|candidate| &candidate.id)).await?;
    for Candidate { id, .. } in &chosen {
        let Some(mut record) = records.remove(id) else { continue };
        let spec = Arc::clone(&record.job.spec);
        if desk.allowance(&spec.upstreams, &spec.tenant, now).of(1) == 0 {
            continue;
        }
        let event = Event::Claim { worker: request.worker.clone(), lease: request.lease };
        let Ok(transition) = on(&record.job, &event, now) else { continue };
        effects.add(&record.job, &transition, now)?;
        record.job = transition.job;
        if let Answer::Claimed(lease) = transition.answer {
            effects.begin(&record.job, request, now);
            desk.start(&spec.upstreams, Starter::Job { id: *id, token: lease.token }, now);
            claimed.push(Claimed { record, lease, steps: BTreeMap::new() });
        }
    }
    effects.save(conn).await?;
    Ok((considered, claimed))
}

/// What a claim may give out of each gate: the one place that knows.
fn gates(desk: &Desk, now: Timestamp) -> Gates {
    let mut gates = Gates::default();
    for (name, allowance) in desk.allowances(now) {
        if allowance != upstream::Allowance::Any {
            gates.limit(name, allowance.of(u32::MAX));
        }
    }
    gates
}

/// A first claim has no steps to get back; only later ones ask for them.
async fn give_steps(conn: &mut Conn, claimed: &mut [Claimed]) -> StoreResult<()> {
    let again: Vec<JobId> = claimed
        .iter()
        .filter(|claimed| claimed.lease.token.0 > 1)
        .map(|claimed| claimed.record.job.id)
        .collect();
    let mut steps = jobs::step_outputs(conn, &again).await?;
    for claimed in claimed {
        claimed.steps = steps.remove(&claimed.record.job.id).unwrap_or_default();
    }
    Ok(())
}

async fn choose(
    conn: &mut Conn,
    request: &ClaimRequest,
    now: Timestamp,
    floors: &mut Floors,
    gates: &Gates,
) -> StoreResult<Vec<Candidate>> {
    let max = request.max as usize;
    let mut found: Vec<Candidate> = Vec::new();
    let mut lines = lines(conn, request).await?;
    lines.retain(|line| gates.allowance(&line.gate) != Allowance::None);
    let mut searched: BTreeSet<(&str, &str, &Gate)> = BTreeSet::new();
    for line in &lines {
        if searched.insert((&line.queue, &line.job_type, &line.gate)) {
            found.extend(expired(conn, line, request.max, now).await?);
        }
    }
    // From the highest priority down, and no further than there is room for. An expired lease of the same
    // priority does not count yet: a pending job may have come due before it.
    for of_one_priority in lines.chunk_by(|a, b| a.priority == b.priority) {
        let better = |found: &Candidate| found.negated_priority < -of_one_priority[0].priority;
        if found.iter().filter(|candidate| better(candidate)).count() >= max {
            break;
        }
        for line in of_one_priority {
            let floor = floors.of(conn, line, now).await?;
            found.extend(due(conn, line, request.max, now, floor).await?);
        }
    }
    found.sort_unstable();
    found.truncate(max);
    Ok(found)
}

/// The lines a request asks for, highest priority first.
async fn lines(conn: &mut Conn, request: &ClaimRequest) -> StoreResult<Vec<Line>> {
    let queues: BTreeSet<&str> = request.queues.iter().map(Queue::as_str).collect();
    let types: BTreeSet<&str> = request.job_types.iter().map(JobType::as_str).collect();
    // On PostgreSQL a line that several sessions saw first stands there once for each.
    let text = "SELECT DISTINCT queue, job_type, gate, priority FROM lines \
                ORDER BY priority DESC, queue, job_type, gate";
    let mut lines = Vec::new();
    for mut row in conn.query(text, &[]).await? {
        let line = Line {
            queue: row.text()?,
            job_type: row.text()?,
            gate: Gate::from_stored(row.text()?),
            priority: row.int()?,
        };
        if queues.contains(line.queue.as_str())
            && (types.is_empty() || types.contains(line.job_type.as_str()))
        {
            lines.push(line);
        }
    }
    Ok(lines)
}

/// Another job holds the lock key.
const NOT_HELD: &str = "(j.lock_key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs h WHERE h.tenant = j.tenant \
                        AND h.lock_key = j.lock_key AND h.lock_until > $3 AND h.id <> j.id))";

/// Pending jobs of a line whose instant has come.
async fn due(
    conn: &mut Conn,
    line: &Line,
    max: u32,
    now: Timestamp,
    floor: i64,
) -> StoreResult<Vec<Candidate>> {
    let text = format!(
        "SELECT j.id, j.due_at, j.priority, j.tenant, j.lock_key FROM jobs j WHERE j.status = 'PENDING' \
         AND j.queue = $1 AND j.job_type = $2 AND j.due_at <= $3 AND j.gate = $4 AND j.priority = $5 \
         AND j.due_at >= $6 AND {NOT_HELD} ORDER BY j.due_at, j.id LIMIT $7 {{skip}}"
    );
    candidates(conn, &text, line, max, now, &[line.priority.into(), floor.into()]).await
}

/// Running jobs of a line's queue and type whose lease has run out.
async fn expired(conn: &mut Conn, line: &Line, max: u32, now: Timestamp) -> StoreResult<Vec<Candidate>> {
    let text = format!(
        "SELECT j.id, j.lease_until, j.priority, j.tenant, j.lock_key FROM jobs j WHERE j.status = 'RUNNING' \
         AND j.queue = $1 AND j.job_type = $2 AND j.lease_until <= $3 AND j.gate = $4 AND {NOT_HELD} \
         ORDER BY j.priority DESC, j.lease_until, j.id LIMIT $5 {{skip}}"
    );
    candidates(conn, &text, line, max, now, &[]).await
}

async fn candidates(
    conn: &mut Conn,
    text: &str,
    line: &Line,
    max: u32,
    now: Timestamp,
    more: &[Value],
) -> StoreResult<Vec<Candidate>> {
    let mut params: Vec<Value> =
        vec![line.queue.as_str().into(), line.job_type.as_str().into(), now.as_millis().into()];
    params.push(line.gate.as_str().into());
    params.extend_from_slice(more);
    params.push(i64::from(max).into());
    let rows = conn.query(text, &params).await?;
    rows.into_iter()
        .map(|mut row| {
            let id = job_id(&row.text()?)?;
            let visible_at = row.int()?;
            let negated_priority = -row.int()?;
            let tenant = row.text()?;
            let lock = row.maybe_text()?.map(|key| (tenant, key));
            Ok(Candidate { negated_priority, visible_at, id, lock, gate: line.gate.clone() })
        })
        .collect()
}

/// Leaves one candidate of each lock key, and of those only what nobody else is claiming at this moment.
async fn one_of_each_lock_key(
    conn: &mut Conn,
    chosen: Vec<Candidate>,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let mut seen = BTreeSet::new();
    let mut left = Vec::with_capacity(chosen.len());
    for candidate in chosen {
        let Some(lock) = candidate.lock.clone() else {
            left.push(candidate);
            continue;
        };
        if seen.insert(lock.clone()) && is_mine(conn, &candidate.id, &lock, now).await? {
            left.push(candidate);
        }
    }
    Ok(left)
}

/// Two claims of two jobs of one lock key lock different rows. On PostgreSQL, where they can overlap, they
/// meet at an advisory lock, and the second looks again at what the first has left.
async fn is_mine(
    conn: &mut Conn,
    id: &JobId,
    (tenant, key): &(String, String),
    now: Timestamp,
) -> StoreResult<bool> {
    if conn.dialect() == Dialect::Postgres {
        let text = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 7070))";
        let name: Value = format!("{tenant}\u{1f}{key}").into();
        let taken = conn.query(text, &[name]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
        if taken == 0 {
            return Ok(false);
        }
    }
    let text = "SELECT count(*) FROM jobs h WHERE h.tenant = $1 AND h.lock_key = $2 AND h.lock_until > $3 \
                AND h.id <> $4";
    let params: [Value; 4] =
        [tenant.as_str().into(), key.as_str().into(), now.as_millis().into(), id.to_string().into()];
    let held = conn.query(text, &params).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    Ok(held == 0)
}

/// Whether no other job holds this job's lock key, and none can take it before the transaction ends.
pub(crate) async fn has_lock_key(conn: &mut Conn, job: &Job, now: Timestamp) -> StoreResult<bool> {
    match &job.spec.lock_key {
        None => Ok(true),
        Some(key) => {
            let lock = (job.spec.tenant.to_string(), key.to_string());
            is_mine(conn, &job.id, &lock, now).await
        }
    }
}

/// How many pending jobs of its queue have come due and stand before this one, counted to 10 000.
pub(crate) async fn ahead_of(conn: &mut Conn, job: &Job, now: Timestamp) -> StoreResult<i64> {
    let Some(visible_at) = job.visible_at() else { return Ok(0) };
    if job.status() != Status::Pending {
        return Ok(0);
    }
    let text = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE status = 'PENDING' AND queue = $1 \
                AND due_at <= $5 AND (priority > $2 OR (priority = $2 AND (due_at < $3 \
                OR (due_at = $3 AND id < $4)))) LIMIT 10000) AS ahead";
    let params: [Value; 5] = [
        job.spec.queue.as_str().into(),
        i64::from(job.spec.priority).into(),
        visible_at.as_millis().into(),
        job.id.to_string().into(),
        now.as_millis().into(),
    ];
    conn.query(text, &params).await?.pop().map_or(Ok(0), |mut row| row.int())
}
