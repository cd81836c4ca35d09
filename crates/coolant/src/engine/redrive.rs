//! Redrive: puts dead-lettered jobs back, at a pace, from whichever process is alive.
//!
//! Always true:
//! - a job is put back by `Event::Reopen` alone, so a redrive passes no door that a person could not;
//! - of jobs that share a lock key only the newest goes, and none while such a job lives;
//! - a redrive is saved before it starts and after every step, so it goes on where it was after a crash.
//!
//! Elsewhere: who calls [`Engine::advance_redrives`] (`housekeeping`).

use std::collections::{HashMap, HashSet};

use coolant_core::job::{Job, JobId, JobState, Reopen, Status};
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::money::Money;
use coolant_core::names::{Queue, Tenant};
use coolant_core::say::{Language, Sentence};
use coolant_core::store::{JobChange, JobFilter, Page, Redrive, RedriveState, Skipped};
use coolant_core::time::Timestamp;

use super::control::{audit, checked_reason};
use super::submit::whole;
use super::{Caller, Engine, EngineError, EngineResult, new_id};

/// Most jobs of one redrive.
const MAX_REDRIVE: i64 = 10_000;
/// Matches that are looked at; a redrive of more is repeated.
const MAX_LOOKED_AT: usize = 50_000;
/// Skipped jobs that are listed.
const MAX_SKIPPED: usize = 1000;
/// Most jobs put back in one step.
const MAX_STEP: usize = 100;

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct RedriveRequest {
    /// Which jobs.
    pub filter: JobFilter,
    /// This many at most, 1 to 10 000; 100 if `None`.
    pub limit: Option<i64>,
    /// Jobs a second, above 0 to 1000; 5 if `None`.
    pub per_second: Option<f64>,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Past cooldowns and permanent failures.
    pub force: bool,
    /// Why; needed with `force`.
    pub reason: Option<String>,
}

/// What a redrive will do, or has begun to.
#[derive(Debug, Clone, PartialEq)]
pub struct RedrivePlan {
    /// The redrive; not saved if it was a dry run.
    pub redrive: Redrive,
    /// What running the jobs again may cost: the mean so far of the matched jobs, for each that goes.
    pub estimated_cost: Money,
}

/// The pace of each running redrive, as one process keeps it from when it first saw the redrive.
///
/// Every process counts what all of them did, so together they keep the rate of one; and a redrive that
/// slept through a restart is not made up for in one burst.
pub type Paces = HashMap<JobId, Pace>;

/// What the pace of a redrive is counted from.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    since: Timestamp,
    left: usize,
    /// A redrive that nobody has touched yet starts at once.
    head_start: usize,
}

impl Pace {
    fn of(redrive: &Redrive, now: Timestamp) -> Self {
        Self { since: now, left: redrive.left.len(), head_start: usize::from(redrive.version <= 1) }
    }

    /// How many more are due by now.
    fn due(&self, redrive: &Redrive, now: Timestamp) -> usize {
        let elapsed = now.since(self.since).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturates"
        )]
        let allowed = (elapsed * redrive.per_second) as usize + self.head_start;
        let done = self.left.saturating_sub(redrive.left.len());
        allowed.saturating_sub(done).min(MAX_STEP)
    }
}

impl Engine {
    /// Plans a redrive and, unless it is a dry run, starts it.
    ///
    /// # Errors
    /// If something about it is out of bounds, or a force has no reason.
    pub async fn redrive(&self, caller: &Caller, request: RedriveRequest) -> EngineResult<RedrivePlan> {
        let limit: u32 = whole("limit", request.limit, 1..=MAX_REDRIVE)?.unwrap_or(100);
        let per_second = request.per_second.unwrap_or(5.0);
        if !(0.001..=1000.0).contains(&per_second) {
            return Err(EngineError::field("per_second", "takes 0.001 to 1000"));
        }
        let reason = match request.reason.as_deref().filter(|reason| !reason.is_empty()) {
            Some(reason) => checked_reason(reason)?,
            None if request.force => return Err(EngineError::field("reason", "is needed with `force`")),
            None => String::new(),
        };
        let filter = self.dead_filter(caller, request.filter)?;
        let now = self.parts.store.now().await?;
        let chosen = self.choose(&filter, limit as usize, request.force, now).await?;
        let estimated_cost = chosen.mean_cost(chosen.go.len());
        let redrive = Redrive {
            id: new_id(),
            filter,
            limit,
            per_second,
            force: request.force,
            reason,
            actor: caller.actor.clone(),
            state: if chosen.go.is_empty() { RedriveState::Done } else { RedriveState::Running },
            matched: u32::try_from(chosen.matched).unwrap_or(u32::MAX),
            left: chosen.go,
            redriven: 0,
            skipped: chosen.skipped,
            created_at: now,
            version: 0,
        };
        if !request.dry_run {
            self.parts.store.save_redrive(redrive.clone()).await?;
            self.count_cooling(chosen.cooling).await;
            self.parts.bell.ring();
        }
        Ok(RedrivePlan { redrive, estimated_cost })
    }

    /// Looks through all matches, newest first, and says of each whether it goes.
    async fn choose(
        &self,
        filter: &JobFilter,
        limit: usize,
        force: bool,
        now: Timestamp,
    ) -> EngineResult<Chosen> {
        let mut chosen = Chosen::default();
        let mut page = Page { limit: 500, before: None };
        loop {
            let records = self.parts.store.list(filter, page).await?;
            let jobs: Vec<Job> = records.into_iter().map(|record| record.job).collect();
            let live = self.live_lock_keys(&jobs).await?;
            for job in &jobs {
                chosen.look_at(job, &live, limit, force, now);
            }
            match jobs.last() {
                Some(last) if jobs.len() == 500 && chosen.matched < MAX_LOOKED_AT => {
                    page.before = Some(last.id);
                }
                _ => return Ok(chosen),
            }
        }
    }

    async fn live_lock_keys(&self, jobs: &[Job]) -> EngineResult<HashSet<(Tenant, String)>> {
        let keys: Vec<_> = jobs.iter().filter_map(lock_of).collect();
        if keys.is_empty() {
            return Ok(HashSet::new());
        }
        Ok(self.parts.store.live_lock_keys(&keys).await?.into_iter().collect())
    }

    /// A redrive and how far it is.
    ///
    /// # Errors
    /// If there is none.
    pub async fn redrive_progress(&self, caller: &Caller, id: JobId) -> EngineResult<Redrive> {
        let found = self.parts.store.redrive(id).await?;
        let own = |redrive: &Redrive| match (&caller.tenant, &redrive.filter.tenant) {
            (None, _) => true,
            (Some(own), Some(tenant)) => own.as_str() == tenant,
            (Some(_), None) => false,
        };
        found.filter(own).ok_or(EngineError::RedriveNotFound { id })
    }

    /// Stops a redrive; what was put back stays so.
    ///
    /// # Errors
    /// If there is none.
    pub async fn stop_redrive(&self, caller: &Caller, id: JobId) -> EngineResult<Redrive> {
        loop {
            let mut redrive = self.redrive_progress(caller, id).await?;
            if redrive.state != RedriveState::Running {
                return Ok(redrive);
            }
            redrive.state = RedriveState::Stopped;
            if self.parts.store.save_redrive(redrive.clone()).await? {
                return Ok(redrive);
            }
            // Somebody advanced it in between; each of them makes it shorter, so this ends.
        }
    }

    /// Puts back the jobs of all running redrives that are due by now. Any process may call it, also
    /// several at once.
    ///
    /// # Errors
    /// If the store does not answer; the next call goes on.
    pub async fn advance_redrives(&self, paces: &mut Paces) -> EngineResult<()> {
        let running = self.parts.store.running_redrives().await?;
        paces.retain(|id, _| running.iter().any(|redrive| redrive.id == *id));
        for redrive in running {
            let now = self.parts.store.now().await?;
            let due = paces.entry(redrive.id).or_insert_with(|| Pace::of(&redrive, now)).due(&redrive, now);
            if due > 0 || redrive.left.is_empty() {
                self.advance(redrive, due, now).await?;
            }
        }
        Ok(())
    }

    async fn advance(&self, mut redrive: Redrive, due: usize, now: Timestamp) -> EngineResult<()> {
        let step: Vec<JobId> = redrive.left.drain(..due.min(redrive.left.len())).collect();
        let mut jobs = self.found(&step).await?;
        // A live twin may have come since the plan; a job that runs again already is its own live twin.
        let live = self.live_lock_keys(&jobs).await?;
        if !live.is_empty() {
            // Another process may be at the same step: what it put back before this look is live by now, and no
            // twin of its own.
            jobs = self.found(&step).await?;
        }
        let mut changes = Vec::new();
        for job in &jobs {
            let is_failed = job.status() == Status::Failed;
            if is_failed && lock_of(job).is_some_and(|key| live.contains(&key)) {
                skip(&mut redrive.skipped, job.id, LIVE_TWIN);
            } else {
                changes.push(self.reopening(&redrive, job.id));
            }
        }
        let ids: Vec<JobId> = changes.iter().map(|change| change.job_id).collect();
        let answers = if changes.is_empty() { Vec::new() } else { self.parts.store.apply(changes).await? };
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                // It was failed when the redrive began, so a job that lives now has been put back: by this
                // redrive before a crash, by another process at the same time, or by a person.
                Ok(_) | Err(Refusal::NotEnded | Refusal::Succeeded) => redrive.redriven += 1,
                Err(refusal) => skip(&mut redrive.skipped, id, &refusal_reason(&refusal, now)),
            }
        }
        if redrive.left.is_empty() {
            redrive.state = RedriveState::Done;
        }
        // Not saved: somebody else did the same step, and counted it.
        self.parts.store.save_redrive(redrive).await?;
        self.parts.bell.ring();
        Ok(())
    }

    async fn found(&self, ids: &[JobId]) -> EngineResult<Vec<Job>> {
        let records = self.parts.store.jobs(ids).await?;
        Ok(records.into_iter().flatten().map(|record| record.job).collect())
    }

    fn reopening(&self, redrive: &Redrive, id: JobId) -> JobChange {
        let action = if redrive.force { "job.redrive.forced" } else { "job.redrive" };
        let caller = Caller { actor: redrive.actor.clone(), tenant: None };
        let audit = Some(audit(&caller, action, id, redrive.reason.clone()));
        JobChange { job_id: id, event: Event::Reopen { force: redrive.force }, audit }
    }
}

const LIVE_TWIN: &str = "a live job has the same lock key";
const OLDER_TWIN: &str = "a newer job has the same lock key";

fn lock_of(job: &Job) -> Option<(Tenant, String)> {
    job.spec.lock_key.as_ref().map(|key| (job.spec.tenant.clone(), key.as_str().to_owned()))
}

fn skip(skipped: &mut Vec<Skipped>, job_id: JobId, reason: &str) {
    if skipped.len() < MAX_SKIPPED {
        skipped.push(Skipped { job_id, reason: reason.to_owned() });
    }
}

fn refusal_reason(refusal: &Refusal, now: Timestamp) -> String {
    match refusal {
        Refusal::CoolingDown { until } => cooling_reason(*until, now),
        Refusal::Permanent => PERMANENT.to_owned(),
        other => other.to_string(),
    }
}

const PERMANENT: &str = "the failure is permanent";

fn cooling_reason(until: Timestamp, now: Timestamp) -> String {
    // It is kept, for whoever reads it later.
    Sentence::CoolsStill(until.since(now)).say(Language::English)
}

/// What was decided about the matches so far.
#[derive(Default)]
struct Chosen {
    matched: usize,
    cost: Money,
    go: Vec<JobId>,
    skipped: Vec<Skipped>,
    /// The queues of those that cool.
    cooling: Vec<(Queue, Money)>,
    seen_locks: HashSet<(Tenant, String)>,
}

impl Chosen {
    fn look_at(
        &mut self,
        job: &Job,
        live: &HashSet<(Tenant, String)>,
        limit: usize,
        force: bool,
        now: Timestamp,
    ) {
        self.matched += 1;
        self.cost = self.cost.plus(job.usage.cost);
        if let Some(lock) = lock_of(job) {
            let is_live = live.contains(&lock);
            if !self.seen_locks.insert(lock) {
                return skip(&mut self.skipped, job.id, OLDER_TWIN);
            }
            if is_live {
                return skip(&mut self.skipped, job.id, LIVE_TWIN);
            }
        }
        match job.state {
            JobState::Failed { reopen: Reopen::From(until), .. } if until > now && !force => {
                skip(&mut self.skipped, job.id, &cooling_reason(until, now));
                self.cooling.push((job.spec.queue.clone(), job.mean_cost()));
            }
            JobState::Failed { reopen: Reopen::OnlyForced, .. } if !force => {
                skip(&mut self.skipped, job.id, PERMANENT);
            }
            _ if self.go.len() < limit => self.go.push(job.id),
            _ => {}
        }
    }

    fn mean_cost(&self, jobs: usize) -> Money {
        let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mean = self.cost.as_nanos() / of(self.matched).max(1);
        Money::from_nanos(mean.saturating_mul(of(jobs)))
    }
}
