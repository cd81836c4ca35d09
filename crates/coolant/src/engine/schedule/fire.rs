//! Ticks become jobs.
//!
//! Every process looks; whoever is first moves the schedule past the tick and submits its job in one
//! transaction, and the others find it moved. The job's key names the tick, so that a schedule made again
//! under its old name, or put back by a restored backup, makes no second job of a tick either.

use std::collections::HashSet;
use std::sync::Arc;

use coolant_core::job::JobId;
use coolant_core::names::IdempotencyKey;
use coolant_core::schedule::{Identity, Schedule};
use coolant_core::store::{NewJob, Store};
use coolant_core::time::Timestamp;

use super::CronTicks;
use crate::bell::Bell;
use crate::engine::submit::new_trace_id;
use crate::engine::{EngineError, EngineResult, new_id};

/// Schedules looked at in one go; as long as there are that many, the next go follows at once.
const LIMIT: u32 = 100;

/// Schedules that this process cannot carry out, so that each is reported once.
pub type Troubles = HashSet<JobId>;

/// Submits the jobs of all ticks that have come. Any process may call it, also several at once.
///
/// # Errors
/// If the store is away; the next call goes on.
pub async fn fire_due(store: &Arc<dyn Store>, bell: &Bell, troubles: &mut Troubles) -> EngineResult<()> {
    loop {
        let due = store.due_schedules(LIMIT).await?;
        if due.is_empty() {
            return Ok(());
        }
        let now = store.now().await?;
        let looked_at = due.len();
        let mut moved = 0;
        for schedule in due {
            let (id, name) = (schedule.id, schedule.name.clone());
            match fire(store, schedule, now).await {
                Ok(jobs) => {
                    moved += 1;
                    if jobs > 0 {
                        bell.ring();
                    }
                    troubles.remove(&id);
                }
                Err(EngineError::Store(error)) if error.is_retryable() => return Err(error.into()),
                // It must not keep the others from their ticks.
                Err(error) if troubles.insert(id) => {
                    tracing::error!(schedule = %name, %error, "a schedule cannot be carried out");
                }
                Err(_) => {}
            }
        }
        if looked_at < LIMIT as usize || moved == 0 {
            return Ok(());
        }
    }
}

/// Does what is due of one schedule. Gives how many jobs that made.
async fn fire(store: &Arc<dyn Store>, schedule: Schedule, now: Timestamp) -> EngineResult<usize> {
    let ticks = CronTicks::parse(&schedule.cron, &schedule.time_zone)?;
    let Some(plan) = schedule.plan(now, &ticks) else { return Ok(0) };
    let jobs: Vec<NewJob> = plan.run.iter().map(|tick| job(&schedule, *tick)).collect::<EngineResult<_>>()?;
    let made = jobs.len();
    let name = schedule.name.clone();
    // Not saved: another process did the same, or somebody changed the schedule; the next look shows.
    if !store.save_schedule(schedule.after(&plan), jobs).await? {
        return Ok(0);
    }
    if plan.dropped {
        tracing::warn!(schedule = %name, jobs = made, "ticks that nobody looked at in time were dropped");
    }
    Ok(made)
}

fn job(schedule: &Schedule, tick: Timestamp) -> EngineResult<NewJob> {
    let key = IdempotencyKey::parse(format!("schedule:{}:{}", schedule.name, rfc3339(tick)))?;
    Ok(schedule.job(Some(key), Identity { id: new_id(), trace_id: new_trace_id() }))
}

/// A tick as its job's key says it: `2026-11-29T12:00:00Z`.
fn rfc3339(tick: Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(tick.as_millis()).unwrap_or(jiff::Timestamp::MAX);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
