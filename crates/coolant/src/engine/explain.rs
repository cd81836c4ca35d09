//! Explain: why a job is not running now, and when it can start at the earliest.

use std::time::Duration;

use coolant_core::job::{Job, JobId, JobState, Reopen, Status, Wait};
use coolant_core::lifecycle::{Event, bars};
use coolant_core::say::Sentence;
use coolant_core::store::{JobFilter, Page};
use coolant_core::time::Timestamp;
use coolant_core::upstream::Denial;
use coolant_core::view::Phase;

use super::upstreams::is_exhausted;
use super::{Caller, Engine, EngineResult, JobAt};

/// A worker that has not asked for so long is taken for gone: all of them ask every few seconds.
const WORKER_GONE: Duration = Duration::from_secs(30);
/// Jobs of a tenant that are looked at for the holder of a lock key, newest first, of each phase in which
/// a job may hold one.
const HOLDERS_LOOKED_AT: u32 = 200;

/// Why a job is not running now.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The job.
    pub job: JobAt,
    /// Everything that holds it up; empty if nothing does.
    pub reasons: Vec<Reason>,
    /// Before this it cannot start; `None` if that is not known, or it has ended.
    pub earliest_at: Option<Timestamp>,
}

/// One thing that holds a job up.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// What.
    pub kind: ReasonKind,
    /// Until when, where known.
    pub until: Option<Timestamp>,
    /// For people.
    pub detail: Sentence,
}

/// What holds a job up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonKind {
    /// The wait after a failure.
    Cooling,
    /// A paid service that it uses is closed.
    UpstreamClosed,
    /// A paid service that it uses has used up its rate.
    RateLimited,
    /// A paid service that it uses has as many calls in flight as it may.
    Concurrency,
    /// The money of today is spent, or reserved by calls in flight.
    Budget,
    /// Another job with its lock key runs, or cools down.
    LockHeld,
    /// Its submitter asked for a later start.
    Scheduled,
    /// Others go first.
    BehindInQueue,
    /// Nobody asks for jobs of its type in its queue.
    NoWorker,
}

impl Engine {
    /// Why a job is not running now.
    ///
    /// # Errors
    /// If there is no such job for this caller.
    pub async fn explain(&self, caller: &Caller, id: JobId) -> EngineResult<Explanation> {
        let job = self.job(caller, id).await?;
        let mut reasons: Vec<Reason> = own_reason(&job.record.job, job.now).into_iter().collect();
        let pending = job.record.job.status() == Status::Pending;
        if pending {
            for reason in self.upstreams_closed(&job.record.job).await? {
                // What the job was told when it was put back is said better by what holds now.
                reasons.retain(|own| own.kind != reason.kind || own.until > reason.until);
                if reasons.iter().all(|own| own.kind != reason.kind) {
                    reasons.push(reason);
                }
            }
            reasons.extend(self.lock_held(&job.record.job, job.now).await?);
            reasons.extend(self.behind_in_queue(&job.record.job, job.now).await?);
            reasons.extend(self.no_worker(&job.record.job, job.now).await?);
        }
        let latest = reasons.iter().filter_map(|reason| reason.until).max();
        let earliest_at = pending.then(|| latest.unwrap_or(job.now).max(job.now));
        Ok(Explanation { job, reasons, earliest_at })
    }

    /// Which of its upstreams, or its tenant, let no job start.
    async fn upstreams_closed(&self, job: &Job) -> EngineResult<Vec<Reason>> {
        if job.spec.upstreams.is_empty() {
            return Ok(Vec::new());
        }
        let upstreams = self.parts.store.upstreams(Some(&job.spec.upstreams)).await?;
        let closed = upstreams.iter().filter_map(|upstream| {
            let closure = upstream.narrower_breaker().closure()?;
            Some(Reason {
                kind: ReasonKind::UpstreamClosed,
                until: Some(closure.shown_until()),
                detail: Sentence::UpstreamClosed {
                    name: upstream.name.to_string(),
                    reason: closure.reason.clone(),
                },
            })
        });
        let spent = upstreams.iter().filter(|upstream| is_exhausted(upstream)).map(|upstream| {
            out_of_money(Sentence::UpstreamOutOfMoney { name: upstream.name.to_string() }, upstream.now)
        });
        let tenant = self.parts.store.tenant(&job.spec.tenant).await?;
        let tenant = tenant.filter(|tenant| tenant.meter.is_exhausted(&tenant.limits, tenant.now));
        let tenant =
            tenant.map(|it| out_of_money(Sentence::TenantOutOfMoney { name: it.tenant.to_string() }, it.now));
        let mut reasons: Vec<Reason> = closed.chain(spent).chain(tenant).collect();
        // Of each kind the one that holds longest.
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.until));
        Ok(reasons)
    }

    async fn lock_held(&self, job: &Job, now: Timestamp) -> EngineResult<Option<Reason>> {
        if job.spec.lock_key.is_none() {
            return Ok(None);
        }
        let claim = Event::Claim { worker: String::new(), lease: None };
        let page = Page { limit: HOLDERS_LOOKED_AT, before: None };
        for phase in [Phase::Running, Phase::Cooling, Phase::DeadLettered] {
            let tenant = Some(job.spec.tenant.clone().into());
            let filter = JobFilter { phase: Some(phase), tenant, ..JobFilter::default() };
            let others = self.parts.store.list(&filter, page).await?;
            let holder =
                others.iter().find_map(|other| Some((&other.job, bars(&other.job, job, &claim, now)?)));
            if let Some((holder, until)) = holder {
                let detail = Sentence::LockKeyHeld { job: holder.id.to_string() };
                return Ok(Some(Reason { kind: ReasonKind::LockHeld, until: Some(until), detail }));
            }
        }
        Ok(None)
    }

    async fn behind_in_queue(&self, job: &Job, now: Timestamp) -> EngineResult<Option<Reason>> {
        if job.visible_at().is_some_and(|at| at > now) {
            return Ok(None);
        }
        let ahead = self.parts.store.ahead_of(job).await?;
        Ok((ahead > 0).then(|| Reason {
            kind: ReasonKind::BehindInQueue,
            until: None,
            detail: Sentence::JobsAhead { count: ahead, queue: job.spec.queue.to_string() },
        }))
    }

    async fn no_worker(&self, job: &Job, now: Timestamp) -> EngineResult<Option<Reason>> {
        let asked = self.parts.store.last_claim_asked(&job.spec.queue, &job.spec.job_type).await?;
        if asked.is_some_and(|at| now.since(at) <= WORKER_GONE) {
            return Ok(None);
        }
        let (job_type, queue) = (job.spec.job_type.to_string(), job.spec.queue.to_string());
        let detail = Sentence::NoWorker { job_type, queue, since: WORKER_GONE };
        Ok(Some(Reason { kind: ReasonKind::NoWorker, until: None, detail }))
    }
}

/// What the job itself waits for.
fn own_reason(job: &Job, now: Timestamp) -> Option<Reason> {
    let (kind, until, detail) = match &job.state {
        JobState::Pending { visible_at, wait } if *visible_at > now => match wait {
            Wait::Start => (ReasonKind::Scheduled, *visible_at, Sentence::StartsLater),
            Wait::Cooling => (ReasonKind::Cooling, *visible_at, Sentence::WaitsAfterFailure),
            Wait::Deferred { reason } => {
                (deferred_for(reason), *visible_at, Sentence::Theirs(reason.clone()))
            }
        },
        JobState::Failed { reopen: Reopen::From(at), .. } if *at > now => {
            (ReasonKind::Cooling, *at, Sentence::FailedAndCools)
        }
        _ => return None,
    };
    Some(Reason { kind, until: Some(until), detail })
}

const fn out_of_money(detail: Sentence, now: Timestamp) -> Reason {
    let until = Some(coolant_core::upstream::end_of_day(now));
    Reason { kind: ReasonKind::Budget, until, detail }
}

/// A worker that puts a job back because it got no permit names the refusal's code first.
fn deferred_for(reason: &str) -> ReasonKind {
    match Denial::named_in(reason) {
        Some(Denial::RateLimited) => ReasonKind::RateLimited,
        Some(Denial::ConcurrencyLimited) => ReasonKind::Concurrency,
        Some(Denial::BudgetExhausted) => ReasonKind::Budget,
        _ => ReasonKind::UpstreamClosed,
    }
}
