//! Changes: read the jobs, let `lifecycle` decide, save what it decided, all in one transaction.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Job, JobId};
use coolant_core::lifecycle::{Event, Refusal, bars, needs_lock, on};
use coolant_core::money::Money;
use coolant_core::store::{Applied, AuditEntry, JobChange, StoreResult};
use coolant_core::time::Timestamp;

use crate::conn::{Conn, Kind, Value};
use crate::sql::counters::Tally;
use crate::sql::effects::{Effects, Saved, Wasted};
use crate::sql::stats::sum;
use crate::sql::upstreams::Dealings;
use crate::sql::{claim, jobs, permits};

/// Makes changes and answers each in its place; changes of one job in the order given. What they have to tell
/// upstreams is left in the dealings.
pub(crate) async fn apply(
    conn: &mut Conn,
    changes: &[&JobChange],
    now: Timestamp,
    tally: &mut Tally,
    dealings: &mut Dealings,
) -> StoreResult<Vec<Result<Applied, Refusal>>> {
    let named = changes.iter().flat_map(|change| change.event.usage()).filter_map(|call| call.permit);
    let mut taken = permits::take(conn, &named.collect(), now).await?;
    let InHand { jobs: mut found, held } = take_in_hand(conn, changes).await?;
    let mut saved = steps_of_changes(conn, changes).await?;
    let mut effects = Effects::default();
    let mut answers = Vec::with_capacity(changes.len());
    let mut ends = BTreeMap::new();
    for JobChange { job_id, event, audit } in changes {
        let Some(job) = found.get(job_id) else {
            answers.push(Err(if held.contains(job_id) { Refusal::Busy } else { Refusal::NotFound }));
            continue;
        };
        let event = &*with_its_permits(event, &mut taken, dealings);
        let barred = is_barred(conn, job, event, &found, now).await?;
        let decision = if barred { Err(Refusal::LeaseLost) } else { on(job, event, now) };
        match decision {
            Ok(transition) if is_repeated_step(*job_id, event, &saved) => {
                answers.push(Ok(Applied { job: job.clone(), answer: transition.answer }));
                pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
            }
            Ok(mut transition) => {
                effects.supersede(*job_id, event, &mut saved, &mut transition);
                effects.add(job, event, &transition, now)?;
                if transition.ended.is_some() {
                    ends.insert(*job_id, answers.len());
                }
                if transition.job.version == job.version {
                    pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
                } else {
                    effects.carry(event, &transition, now)?;
                    effects.audit.extend(audit.clone().map(|audit| AuditEntry { at: now, ..audit }));
                    dealings.hear(&transition.job, event);
                    found.insert(*job_id, transition.job.clone());
                }
                answers.push(Ok(Applied { job: transition.job, answer: transition.answer }));
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::CoolingDown { .. }) {
                    tally.block(job);
                }
                answers.push(Err(refusal));
                pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
            }
        }
    }
    tell_waste(&mut answers, &ends, &effects.save(conn).await?);
    Ok(answers)
}

/// The jobs that changes are about.
struct InHand {
    /// Locked until the transaction ends.
    jobs: BTreeMap<JobId, Job>,
    /// Those that others hold and that only beats want.
    held: BTreeSet<JobId>,
}

/// Locks jobs that are to be changed. Only beats wait for nobody: one job that somebody holds for long would
/// cost all the others of a worker their leases.
async fn take_in_hand(conn: &mut Conn, changes: &[&JobChange]) -> StoreResult<InHand> {
    let (beats, others): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| matches!(change.event, Event::Renew { .. }));
    let ids = |changes: Vec<&&JobChange>| changes.into_iter().map(|change| change.job_id).collect();
    let others: BTreeSet<JobId> = ids(others);
    let beats: BTreeSet<JobId> = &ids(beats) - &others;
    // What waits goes first: nobody may wait who holds what others wait for in the order of the ids.
    let mut jobs = jobs::load_locked(conn, &others).await?;
    jobs.extend(jobs::load_unheld(conn, &beats).await?);
    let missing: BTreeSet<JobId> = beats.into_iter().filter(|id| !jobs.contains_key(id)).collect();
    let held = jobs::load(conn, &missing).await?.into_keys().collect();
    Ok(InHand { jobs, held })
}

/// Adds what is known to be wasted only when all is written to the answers from those on by which attempts ended.
fn tell_waste(answers: &mut [Result<Applied, Refusal>], ends: &BTreeMap<JobId, usize>, wasted: &Wasted) {
    for (id, cost) in wasted {
        let since = ends.get(id).copied().unwrap_or(answers.len());
        let of_job = answers[since..].iter_mut().flatten().filter(|applied| applied.job.id == *id);
        of_job.for_each(|applied| applied.job.usage.wasted = applied.job.usage.wasted.plus(*cost));
    }
}

/// The event with those of its calls that are still to be booked.
fn with_its_permits<'e>(
    event: &'e Event,
    taken: &mut permits::Taken,
    dealings: &mut Dealings,
) -> Cow<'e, Event> {
    if event.usage().iter().all(|call| call.permit.is_none()) {
        return Cow::Borrowed(event);
    }
    let mut event = event.clone();
    permits::settle_with(&mut event, taken, dealings);
    Cow::Owned(event)
}

/// A change that is not made may carry calls whose permits were settled by it just now.
fn pay_all_the_same(
    effects: &mut Effects,
    found: &mut BTreeMap<JobId, Job>,
    id: JobId,
    event: &Event,
    now: Timestamp,
) -> StoreResult<()> {
    let Some((token, step, usage)) = event.paid_under_permits() else { return Ok(()) };
    let Some(job) = found.get(&id) else { return Ok(()) };
    let pay = Event::Pay { token, step, usage };
    if let Ok(transition) = on(job, &pay, now) {
        effects.add(job, &pay, &transition, now)?;
        effects.carry(&pay, &transition, now)?;
        found.insert(id, transition.job);
    }
    Ok(())
}

/// Whether another job has taken the lock key that an event needs: one of those in hand, which the database
/// does not know as they are now, or any other.
async fn is_barred(
    conn: &mut Conn,
    job: &Job,
    event: &Event,
    in_hand: &BTreeMap<JobId, Job>,
    now: Timestamp,
) -> StoreResult<bool> {
    if !needs_lock(job, event, now) {
        return Ok(false);
    }
    let by_one_in_hand = in_hand.values().any(|other| bars(other, job, event, now).is_some());
    Ok(by_one_in_hand || !claim::has_lock_key(conn, job, now).await?)
}

/// A worker that repeats a step whose answer it missed has paid once: the second report changes nothing.
fn is_repeated_step(id: JobId, event: &Event, saved: &Saved) -> bool {
    matches!(event, Event::SaveStep { token, name, .. }
        if saved.get(&(id, name.clone())).is_some_and(|(attempt, _)| *attempt == token.0))
}

/// Steps that these changes would save and that are there already.
async fn steps_of_changes(conn: &mut Conn, changes: &[&JobChange]) -> StoreResult<Saved> {
    let rows: Vec<Vec<Value>> = changes
        .iter()
        .filter_map(|change| match &change.event {
            Event::SaveStep { name, .. } => {
                Some(vec![change.job_id.to_string().into(), name.as_str().into()])
            }
            _ => None,
        })
        .collect();
    let columns = &[("id", Kind::Text), ("name", Kind::Text)];
    let text = format!(
        "SELECT t.job_id, t.name, t.attempt, (SELECT {} FROM ledger l WHERE l.job_id = t.job_id \
         AND l.step = t.name AND l.wasted = 0) FROM {{rows}} JOIN steps t ON t.job_id = r.id AND t.name = r.name",
        sum("l.cost_nanos")
    );
    let rows = conn.query_rows(&text, &[], columns, rows).await?;
    rows.into_iter()
        .map(|mut row| {
            let step = (crate::sql::codec::job_id(&row.text()?)?, row.text()?);
            Ok((step, (row.int()?, Money::from_nanos(row.int()?))))
        })
        .collect()
}

/// Ends what time has ended; gives how many jobs that were. What others hold is for another sweep.
pub(crate) async fn sweep(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<u32> {
    let text = "SELECT id FROM jobs WHERE gives_up_at <= $1 ORDER BY gives_up_at LIMIT $2 {skip}";
    let rows = conn.query(text, &[now.as_millis().into(), i64::from(limit).into()]).await?;
    let ids: StoreResult<BTreeSet<JobId>> =
        rows.into_iter().map(|mut row| crate::sql::codec::job_id(&row.text()?)).collect();
    let mut effects = Effects::default();
    let mut ended = 0;
    for (_, job) in jobs::load_locked(conn, &ids?).await? {
        if let Ok(transition) = on(&job, &Event::Sweep, now)
            && transition.job.version != job.version
        {
            effects.add(&job, &Event::Sweep, &transition, now)?;
            ended += 1;
        }
    }
    effects.save(conn).await?;
    Ok(ended)
}
