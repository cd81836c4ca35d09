//! Schedules: a job template and the instants, called ticks, at each of which it becomes a job.
//!
//! Always true:
//! - a tick makes one job at most: the schedule moves past it in the transaction that takes the job, and
//!   the job's key names the tick;
//! - a schedule never goes back: its next tick lies after every tick that made a job, whatever clocks do;
//! - catching up is bounded, however long nobody looked.
//!
//! Elsewhere: which instants a cron expression names, since that needs the rules of time zones; that is
//! [`Ticks`], as a value.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobId, JobSpec, Policy};
use crate::names::{IdempotencyKey, JobType, LockKey, Queue, ScheduleName, Tenant, Upstream};
use crate::store::{IfFailed, NewJob, Start, StoreResult};
use crate::time::Timestamp;

/// How late a tick may be looked at and still count as on time: no catch-up policy drops it. Longer than
/// the pause between two looks of a busy process, shorter than an outage that somebody would notice.
pub const ON_TIME: Duration = Duration::from_secs(10);
/// Most ticks that become jobs in one go: the newest ones. Whatever is older is dropped.
pub const MAX_CATCH_UP: usize = 100;
/// The label that tells the jobs of a schedule from others.
pub const TAG: &str = "schedule";

/// Work that comes again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its own from its creation on: made again under the same name, it is another one.
    pub id: JobId,
    /// On whose behalf its jobs run. Names are unique within a tenant.
    pub tenant: Tenant,
    /// The caller's name for it.
    pub name: ScheduleName,
    /// Five fields (minute, hour, day, month, weekday), or six with the second first.
    pub cron: String,
    /// An IANA name, in whose clock the expression is read.
    pub time_zone: String,
    /// What each tick becomes.
    pub template: JobTemplate,
    /// What happens to ticks that nobody looked at in time.
    pub catch_up: CatchUp,
    /// Whether it rests. Ticks of a rest are not missed: they do not exist.
    pub paused: bool,
    /// The tick to come; `None` while it is paused.
    pub next_at: Option<Timestamp>,
    /// The newest tick that became a job.
    pub last_at: Option<Timestamp>,
    /// When it was first set.
    pub created_at: Timestamp,
    /// When somebody last set, paused or resumed it.
    pub updated_at: Timestamp,
    /// Grows with every save.
    pub version: i64,
}

/// What happens to ticks that nobody looked at in time: every process was down, or the store away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are dropped.
    Skip,
    /// The newest of them becomes a job, unless one that is on time does.
    #[default]
    Latest,
    /// All of them become jobs: the newest [`MAX_CATCH_UP`].
    All,
}

/// What each tick becomes: a job without a key and a start of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobTemplate {
    /// Which handler runs it.
    pub job_type: JobType,
    /// What the handler gets.
    pub payload: Value,
    /// Its line.
    pub queue: Queue,
    /// Jobs with this name run one at a time.
    pub lock_key: Option<LockKey>,
    /// Paid services it uses.
    pub upstreams: Vec<Upstream>,
    /// -10 to 10; higher goes first.
    pub priority: i8,
    /// Labels for filters.
    pub tags: BTreeMap<String, String>,
    /// How long after its tick's submit it may start.
    pub delay: Duration,
    /// Limits and waits.
    pub policy: Policy,
}

impl JobTemplate {
    /// The template behind a job that was checked as a submit.
    #[must_use]
    pub fn of(job: NewJob) -> Self {
        let spec = Arc::unwrap_or_clone(job.spec);
        Self {
            job_type: spec.job_type,
            payload: job.payload,
            queue: spec.queue,
            lock_key: spec.lock_key,
            upstreams: spec.upstreams,
            priority: spec.priority,
            tags: spec.tags,
            delay: if let Start::After(delay) = job.start { delay } else { Duration::ZERO },
            policy: spec.policy,
        }
    }
}

/// A job's name in the store and its trace: what a job is given that no rule can make up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its id, if it is new.
    pub id: JobId,
    /// W3C trace id.
    pub trace_id: String,
}

/// The instants that an expression names: whole seconds, in ascending order, for ever.
pub trait Ticks {
    /// The first one after that instant.
    fn after(&self, at: Timestamp) -> Option<Timestamp>;

    /// The last one at that instant or before it.
    fn at_or_before(&self, at: Timestamp) -> Option<Timestamp>;
}

/// What there is to do about a schedule that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Ticks that become jobs, oldest first.
    pub run: Vec<Timestamp>,
    /// Whether older ticks were dropped.
    pub dropped: bool,
    /// The tick to come.
    pub next_at: Option<Timestamp>,
}

impl Schedule {
    /// The job of a tick, or of a run by hand, under that key.
    #[must_use]
    pub fn job(&self, key: Option<IdempotencyKey>, identity: Identity) -> NewJob {
        let template = self.template.clone();
        let mut tags = template.tags;
        tags.entry(TAG.into()).or_insert_with(|| self.name.to_string());
        let spec = JobSpec {
            job_type: template.job_type,
            queue: template.queue,
            tenant: self.tenant.clone(),
            idempotency_key: key,
            lock_key: template.lock_key,
            upstreams: template.upstreams,
            priority: template.priority,
            tags,
            trace_id: identity.trace_id,
            expires_at: None,
            policy: template.policy,
        };
        NewJob {
            id: identity.id,
            spec: Arc::new(spec),
            payload: template.payload,
            start: if template.delay.is_zero() { Start::Now } else { Start::After(template.delay) },
            if_failed: IfFailed::Return,
        }
    }

    /// What there is to do at `now`; nothing if its tick is still to come, or it is paused.
    ///
    /// The ticks are walked from now back to the one that was to come, so that the cost does not grow with
    /// the time that nobody looked.
    #[must_use]
    pub fn plan(&self, now: Timestamp, ticks: &impl Ticks) -> Option<Plan> {
        let first = self.next_at.filter(|first| *first <= now && !self.paused)?;
        let mut run = Vec::new();
        let mut dropped = false;
        let mut tick = ticks.at_or_before(now);
        while let Some(at) = tick.filter(|at| *at >= first) {
            let on_time = now.since(at) <= ON_TIME;
            let goes = match self.catch_up {
                CatchUp::Skip => on_time,
                CatchUp::Latest => on_time || run.is_empty(),
                CatchUp::All => true,
            };
            if !goes || run.len() == MAX_CATCH_UP {
                dropped = true;
                break;
            }
            run.push(at);
            tick = ticks.at_or_before(Timestamp::from_millis(at.as_millis() - 1));
        }
        run.reverse();
        Some(Plan { run, dropped, next_at: ticks.after(now) })
    }

    /// The first tick of a schedule that begins, goes on after a rest, or got another expression: never one
    /// that may have made a job, also when the clock went back since.
    #[must_use]
    pub fn first_tick(&self, now: Timestamp, ticks: &impl Ticks) -> Option<Timestamp> {
        if self.paused {
            return None;
        }
        ticks.after(self.last_at.map_or(now, |last| last.max(now)))
    }

    /// The schedule after a plan was carried out.
    #[must_use]
    pub fn after(self, plan: &Plan) -> Self {
        let last_at = plan.run.last().copied().max(self.last_at);
        Self { last_at, next_at: plan.next_at, ..self }
    }
}

/// Keeps schedules; a part of every store.
#[async_trait]
pub trait ScheduleStore: Send + Sync + 'static {
    /// Saves a schedule if it is still the one that was read, by `id` and version (version 0: there is none
    /// of its name yet), and takes these jobs as `Store::submit` does: both or neither, in one transaction.
    /// It is kept with a version one higher. Gives whether it was saved.
    ///
    /// A job whose key is taken is left as it is and counted nowhere: nobody asked twice.
    async fn save_schedule(&self, schedule: Schedule, jobs: Vec<NewJob>) -> StoreResult<bool>;

    /// The schedule of that name.
    async fn schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<Option<Schedule>>;

    /// Schedules by name, from after that one on.
    async fn schedules(
        &self,
        tenant: &Tenant,
        after: Option<&ScheduleName>,
        limit: u32,
    ) -> StoreResult<Vec<Schedule>>;

    /// Removes a schedule; its jobs stay. Gives whether there was one.
    async fn delete_schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<bool>;

    /// Schedules of all tenants whose tick has come by the store's time, the earliest first.
    async fn due_schedules(&self, limit: u32) -> StoreResult<Vec<Schedule>>;
}
