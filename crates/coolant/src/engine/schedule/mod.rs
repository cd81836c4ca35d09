//! Schedules: work that comes again and again, one job for each tick of a cron expression.
//!
//! Elsewhere: what is due and what is caught up (`coolant_core::schedule`); when it is looked at
//! (`housekeeping`).

mod cron;
mod fire;

use coolant_core::names::{IdempotencyKey, ScheduleName, Tenant};
use coolant_core::schedule::{CatchUp, Identity, JobTemplate, Schedule, Ticks};
use coolant_core::time::Timestamp;

pub use cron::CronTicks;
pub use fire::{Troubles, fire_due};

use super::read::page_limit;
use super::submit::{SubmitAnswer, SubmitRequest, new_trace_id};
use super::{Caller, Engine, EngineError, EngineResult, new_id};

/// Ticks to come that are shown.
const SHOWN_TICKS: usize = 5;

/// A schedule as somebody sets it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScheduleRequest {
    /// The cron expression.
    pub cron: String,
    /// An IANA name; UTC if `None`.
    pub time_zone: Option<String>,
    /// What each tick submits: without a key, a start or an end of its own.
    pub job: SubmitRequest,
    /// What happens to ticks that nobody looked at in time.
    pub catch_up: CatchUp,
    /// Whether it rests.
    pub paused: bool,
}

/// A schedule as it is, and its next ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleNow {
    /// The schedule.
    pub schedule: Schedule,
    /// The ticks to come, five at most; none while it is paused.
    pub next: Vec<Timestamp>,
}

/// A page of schedules.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulePage {
    /// By name.
    pub items: Vec<ScheduleNow>,
    /// After which name the next page begins, if there is one.
    pub next: Option<ScheduleName>,
}

impl Engine {
    /// Sets a schedule, new or not. Gives whether it is new.
    ///
    /// A changed one keeps its tick to come if expression and time zone are the same; else it begins with
    /// the first tick from now on.
    ///
    /// # Errors
    /// What is wrong with it: the same as for a submit, its fields under `job`.
    pub async fn put_schedule(
        &self,
        caller: &Caller,
        name: &str,
        request: ScheduleRequest,
    ) -> EngineResult<(bool, ScheduleNow)> {
        let name = new_name(name)?;
        let tenant = caller.own_tenant();
        let zone = request.time_zone.as_deref().unwrap_or("UTC");
        let ticks = CronTicks::parse(&request.cron, zone)?;
        let time_zone = cron::zone_name(zone)?;
        let template = self.template(&tenant, request.job)?;
        loop {
            let now = self.parts.store.now().await?;
            let kept = self.parts.store.schedule(&tenant, &name).await?;
            let is_new = kept.is_none();
            let set = Schedule {
                id: kept.as_ref().map_or_else(new_id, |kept| kept.id),
                tenant: tenant.clone(),
                name: name.clone(),
                cron: request.cron.trim().to_owned(),
                time_zone: time_zone.clone(),
                template: template.clone(),
                catch_up: request.catch_up,
                paused: request.paused,
                next_at: None,
                last_at: kept.as_ref().and_then(|kept| kept.last_at),
                created_at: kept.as_ref().map_or(now, |kept| kept.created_at),
                updated_at: now,
                version: kept.as_ref().map_or(0, |kept| kept.version),
            };
            let next_at = match kept {
                Some(kept) if goes_on(&kept, &set) => kept.next_at,
                _ => first_tick(&set, now, &ticks)?,
            };
            let set = Schedule { next_at, ..set };
            if self.parts.store.save_schedule(set.clone(), Vec::new()).await? {
                return Ok((is_new, with_ticks(set, &ticks)));
            }
            // Somebody else was faster, which cannot go on: ticks are a second apart at least.
        }
    }

    /// What a submit of that tenant would become, without what belongs to one submit alone.
    fn template(&self, tenant: &Tenant, job: SubmitRequest) -> EngineResult<JobTemplate> {
        let own = [
            ("job.idempotency_key", job.idempotency_key.is_some()),
            ("job.run_at", job.run_at.is_some()),
            ("job.expires_at", job.expires_at.is_some()),
        ];
        if let Some((field, _)) = own.iter().find(|(_, is_given)| *is_given) {
            return Err(EngineError::field(*field, "belongs to one job, and a schedule makes many"));
        }
        if job.tenant.as_deref().is_some_and(|asked| asked != tenant.as_str()) {
            return Err(EngineError::field("job.tenant", "is not the tenant of this schedule"));
        }
        let owner = Caller { actor: String::new(), tenant: Some(tenant.clone()) };
        self.checked(&owner, job).map(JobTemplate::of).map_err(within_job)
    }

    /// A schedule and its next ticks.
    ///
    /// # Errors
    /// If there is none.
    pub async fn schedule(&self, caller: &Caller, name: &str) -> EngineResult<ScheduleNow> {
        let schedule = self.kept_schedule(caller, name).await?;
        Ok(now_of(schedule))
    }

    /// A page of schedules, by name.
    ///
    /// # Errors
    /// If `limit` is out of bounds.
    pub async fn schedules(
        &self,
        caller: &Caller,
        limit: Option<i64>,
        after: Option<ScheduleName>,
    ) -> EngineResult<SchedulePage> {
        let limit = page_limit(limit)?;
        let tenant = caller.own_tenant();
        let mut found = self.parts.store.schedules(&tenant, after.as_ref(), limit + 1).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|last| last.name.clone());
        Ok(SchedulePage { items: found.into_iter().map(now_of).collect(), next })
    }

    /// Removes a schedule; the jobs that it made stay.
    ///
    /// # Errors
    /// If there is none.
    pub async fn delete_schedule(&self, caller: &Caller, name: &str) -> EngineResult<()> {
        let name = known_name(name)?;
        match self.parts.store.delete_schedule(&caller.own_tenant(), &name).await? {
            true => Ok(()),
            false => Err(EngineError::ScheduleNotFound),
        }
    }

    /// Lets a schedule rest, or ends its rest; ticks in between never were. Again is no change.
    ///
    /// # Errors
    /// If there is none.
    pub async fn pause_schedule(
        &self,
        caller: &Caller,
        name: &str,
        paused: bool,
    ) -> EngineResult<ScheduleNow> {
        loop {
            let kept = self.kept_schedule(caller, name).await?;
            if kept.paused == paused {
                return Ok(now_of(kept));
            }
            let now = self.parts.store.now().await?;
            let ticks = CronTicks::parse(&kept.cron, &kept.time_zone)?;
            let mut set = Schedule { paused, updated_at: now, ..kept };
            set.next_at = first_tick(&set, now, &ticks)?;
            if self.parts.store.save_schedule(set.clone(), Vec::new()).await? {
                return Ok(with_ticks(set, &ticks));
            }
            // Somebody else was faster, which cannot go on: ticks are a second apart at least.
        }
    }

    /// Submits the job of a schedule now, also while it is paused. Its ticks come as they would have.
    ///
    /// # Errors
    /// If there is no such schedule, or the key is too long.
    pub async fn run_schedule(
        &self,
        caller: &Caller,
        name: &str,
        key: Option<&str>,
        trace_id: Option<String>,
    ) -> EngineResult<SubmitAnswer> {
        let schedule = self.kept_schedule(caller, name).await?;
        let id = new_id();
        let run = key.map_or_else(|| id.to_string(), ToOwned::to_owned);
        let key = IdempotencyKey::parse(format!("schedule:{}:run:{run}", schedule.name))?;
        let identity = Identity { id, trace_id: trace_id.unwrap_or_else(new_trace_id) };
        self.submit_checked(schedule.job(Some(key), identity)).await
    }

    async fn kept_schedule(&self, caller: &Caller, name: &str) -> EngineResult<Schedule> {
        let found = self.parts.store.schedule(&caller.own_tenant(), &known_name(name)?).await?;
        found.ok_or(EngineError::ScheduleNotFound)
    }
}

/// A name for a schedule. A colon parts the name from the tick in the keys of its jobs.
fn new_name(name: &str) -> EngineResult<ScheduleName> {
    match name.contains(':') {
        true => Err(EngineError::field("name", "must not hold a colon")),
        false => Ok(ScheduleName::parse(name)?),
    }
}

/// A name that a schedule may have; no other has one.
fn known_name(name: &str) -> EngineResult<ScheduleName> {
    ScheduleName::parse(name).map_err(|_| EngineError::ScheduleNotFound)
}

/// Whether a schedule's tick to come stays what it is.
fn goes_on(kept: &Schedule, set: &Schedule) -> bool {
    (&kept.cron, &kept.time_zone, kept.paused) == (&set.cron, &set.time_zone, set.paused)
}

/// The tick with which a schedule begins.
fn first_tick(schedule: &Schedule, now: Timestamp, ticks: &CronTicks) -> EngineResult<Option<Timestamp>> {
    let first = schedule.first_tick(now, ticks);
    if first.is_none() && ticks.after(now).is_none() {
        return Err(EngineError::field("cron", "names an instant that never comes"));
    }
    Ok(first)
}

/// Errors of a submit, named as they stand in a schedule.
fn within_job(error: EngineError) -> EngineError {
    let within = |field: String| format!("job.{field}");
    match error {
        EngineError::InvalidField { field, reason } => {
            EngineError::InvalidField { field: within(field), reason }
        }
        EngineError::InvalidPayload { field, reason } => {
            EngineError::InvalidPayload { field: within(field), reason }
        }
        EngineError::TooLarge { what, bytes, max } => {
            EngineError::TooLarge { what: within(what), bytes, max }
        }
        other => other,
    }
}

/// A schedule with its ticks to come; none if this program cannot read its expression or time zone.
fn now_of(schedule: Schedule) -> ScheduleNow {
    match CronTicks::parse(&schedule.cron, &schedule.time_zone) {
        Ok(ticks) => with_ticks(schedule, &ticks),
        Err(_) => ScheduleNow { schedule, next: Vec::new() },
    }
}

fn with_ticks(schedule: Schedule, ticks: &CronTicks) -> ScheduleNow {
    let next = std::iter::successors(schedule.next_at, |at| ticks.after(*at)).take(SHOWN_TICKS).collect();
    ScheduleNow { schedule, next }
}
