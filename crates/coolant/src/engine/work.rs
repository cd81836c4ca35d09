//! Work: claim, heartbeat, steps and settling, for workers outside this process.
//!
//! Always true: a claim that nobody takes is given back, not left to run out.

use std::time::Duration;

use coolant_core::job::{JobId, JobState, LeaseToken, Progress};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::names::{JobType, Queue, StepName};
use coolant_core::store::{Applied, ClaimRequest, Claimed, JobChange};
use coolant_core::time::Timestamp;
use serde_json::Value;
use tokio::sync::oneshot;

pub use super::bill::UsageReport;
use super::classify::{ErrorReport, classify};
use super::counts::{self, Resumed};
use super::error::LeaseLoss;
use super::read::{LONGEST_WAIT, POLL};
use super::submit::{check_size, lease, seconds, text, whole};
use super::{Engine, EngineError, EngineResult};

/// Most leases of one heartbeat, settlements of one call, and jobs of one claim.
pub const MAX_ITEMS: usize = 1000;
/// Longest that a worker may put a job back for.
const LONGEST_DEFER: Duration = Duration::from_secs(30 * 86_400);

/// How often a heartbeat tries to renew a lease whose job another transaction holds. Its own steps hold it for
/// milliseconds; whoever holds it for longer is waited for by the next beat.
const RENEWALS: u32 = 5;
const BETWEEN_RENEWALS: Duration = Duration::from_millis(50);

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claim {
    /// Its label.
    pub worker: String,
    /// From these queues; the default one if empty.
    pub queues: Vec<String>,
    /// Of these types; any if empty.
    pub job_types: Vec<String>,
    /// This many at most; 1 if `None`.
    pub max: Option<i64>,
    /// Waits so long for a first job.
    pub wait_seconds: Option<f64>,
    /// For so long at first.
    pub lease_seconds: Option<f64>,
}

/// One lease in a heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub struct Beat {
    /// The job.
    pub job_id: JobId,
    /// The right to run it.
    pub token: LeaseToken,
    /// How far it is, if that changed.
    pub progress: Option<Progress>,
}

/// What a heartbeat brings back about one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatState {
    /// Held until then.
    Held(Timestamp),
    /// Lost: stop.
    Lost,
    /// The job was cancelled: stop.
    Cancelled,
}

/// How an attempt ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// With a result.
    Succeed {
        /// What it gave.
        result: Value,
        /// Its paid call.
        usage: Option<UsageReport>,
    },
    /// With an error.
    Fail {
        /// What went wrong.
        error: ErrorReport,
        /// Its paid call.
        usage: Option<UsageReport>,
    },
    /// Put back for a while.
    Defer {
        /// For how long.
        seconds: f64,
        /// Why.
        reason: String,
    },
    /// Given back at once.
    Release,
}

/// A settled attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The job after it; payload and result are left out.
    pub job: coolant_core::job::Job,
    /// Whether this only repeated what was acknowledged before.
    pub repeated: bool,
    /// The store's time.
    pub now: Timestamp,
}

/// Claimed jobs on their way to a worker. Dropped before [`Self::take`], they are given back.
pub struct Handed {
    engine: Engine,
    jobs: Vec<Claimed>,
    now: Timestamp,
    releases: Vec<JobChange>,
}

impl Handed {
    /// The jobs, and the store's time when they were claimed.
    #[must_use]
    pub fn jobs(&self) -> (&[Claimed], Timestamp) {
        (&self.jobs, self.now)
    }

    /// The worker has them: from here on only their leases count.
    pub fn take(mut self) -> Vec<Claimed> {
        self.releases.clear();
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let releases = std::mem::take(&mut self.releases);
        if releases.is_empty() {
            return;
        }
        let engine = self.engine.clone();
        // Without a runtime the process is ending, and the leases run out by themselves.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tracing::info!(jobs = releases.len(), "nobody took the claimed jobs; they are given back");
                if let Err(error) = engine.parts.store.apply(releases).await {
                    tracing::warn!(%error, "claimed jobs could not be given back; their leases run out");
                }
                engine.parts.bell.ring();
            });
        }
    }
}

impl Engine {
    /// Claims jobs for a worker, waiting for a first one if asked to. Dropping the call stops the wait and
    /// gives back what was claimed meanwhile.
    ///
    /// # Errors
    /// If something about the request is out of bounds, or the store does not answer.
    pub async fn claim(&self, claim: Claim) -> EngineResult<Handed> {
        let wait = seconds("wait_seconds", claim.wait_seconds, Duration::ZERO..=LONGEST_WAIT)?;
        let request = claim_request(claim)?;
        let (taken, mut asked) = oneshot::channel();
        let engine = self.clone();
        // A task of its own, so that the caller can be dropped at any moment without cutting a claim in two.
        tokio::spawn(async move {
            let handed = engine.claim_within(request, wait.unwrap_or_default(), &taken).await;
            let _ = taken.send(handed);
        });
        match (&mut asked).await {
            Ok(handed) => handed,
            Err(_) => Err(coolant_core::store::StoreError::Broken("a claim ended early".into()).into()),
        }
    }

    async fn claim_within(
        &self,
        request: ClaimRequest,
        wait: Duration,
        taken: &oneshot::Sender<EngineResult<Handed>>,
    ) -> EngineResult<Handed> {
        let end = tokio::time::Instant::now() + wait;
        let mut bell = self.parts.bell.listen();
        loop {
            let jobs = self.parts.store.claim(request.clone()).await?;
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            if !jobs.is_empty() || left.is_zero() || taken.is_closed() {
                return self.handed(jobs).await;
            }
            bell.rung(left.min(POLL)).await;
            if taken.is_closed() {
                return self.handed(Vec::new()).await;
            }
        }
    }

    async fn handed(&self, jobs: Vec<Claimed>) -> EngineResult<Handed> {
        let release = |claimed: &Claimed| {
            JobChange::new(claimed.record.job.id, Event::Release { token: claimed.lease.token })
        };
        let releases = jobs.iter().map(release).collect();
        // Made before the next await, so that an error there gives the jobs back as well.
        let mut handed = Handed { engine: self.clone(), jobs, now: Timestamp::default(), releases };
        handed.now = self.parts.store.now().await?;
        counts::count_resumed(self.parts.store.as_ref(), Resumed::among(&handed.jobs)).await;
        Ok(handed)
    }

    /// Renews leases; answers each in its place. One whose job another transaction holds is tried for a moment,
    /// and is then held as long as it was.
    ///
    /// # Errors
    /// If there are too many, something is out of bounds, or the store does not answer.
    pub async fn heartbeat(&self, worker: &str, beats: Vec<Beat>) -> EngineResult<Vec<(JobId, BeatState)>> {
        text("worker", worker, 1..=128)?;
        if beats.len() > MAX_ITEMS {
            return Err(EngineError::field("leases", format!("takes at most {MAX_ITEMS} items")));
        }
        let changes = beats
            .into_iter()
            .enumerate()
            .map(|(i, Beat { job_id, token, progress })| {
                check_progress(i, progress.as_ref())?;
                Ok(JobChange::new(job_id, Event::Renew { token, progress }))
            })
            .collect::<EngineResult<Vec<_>>>()?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.renew(&changes).await?;
        // Renewals wake nobody: with many workers that would be one rush to the store per beat.
        let ended = |answer: &Result<Applied, Refusal>| {
            matches!(answer, Ok(Applied { answer: Answer::Cancelled | Answer::Ended, .. }))
        };
        if answers.iter().any(ended) {
            self.parts.bell.ring();
        }
        let mut states = Vec::with_capacity(answers.len());
        for (change, answer) in changes.iter().zip(answers) {
            let state = match answer {
                Ok(Applied { answer: Answer::Held { until }, .. }) => BeatState::Held(until),
                Ok(Applied { answer: Answer::Cancelled, .. }) | Err(Refusal::LeaseLostByCancel) => {
                    BeatState::Cancelled
                }
                Err(Refusal::Busy) => self.as_it_was(change).await?,
                Ok(_) | Err(_) => BeatState::Lost,
            };
            states.push((change.job_id, state));
        }
        Ok(states)
    }

    /// Renews leases, those that are held up a few times.
    async fn renew(&self, changes: &[JobChange]) -> EngineResult<Vec<Result<Applied, Refusal>>> {
        let mut answers = self.parts.store.apply(changes.to_vec()).await?;
        for _ in 1..RENEWALS {
            let is_busy = |place: &usize| matches!(answers[*place], Err(Refusal::Busy));
            let busy: Vec<usize> = (0..answers.len()).filter(is_busy).collect();
            if busy.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_RENEWALS).await;
            let again = busy.iter().map(|place| changes[*place].clone()).collect();
            for (place, answer) in busy.into_iter().zip(self.parts.store.apply(again).await?) {
                answers[place] = answer;
            }
        }
        Ok(answers)
    }

    /// What can be said of a lease without renewing it.
    async fn as_it_was(&self, change: &JobChange) -> EngineResult<BeatState> {
        let found = self.parts.store.jobs(&[change.job_id]).await?.pop().flatten();
        Ok(match (found.map(|record| record.job.state), &change.event) {
            (Some(JobState::Running { lease, .. }), Event::Renew { token, .. }) if lease.token == *token => {
                BeatState::Held(lease.until)
            }
            _ => BeatState::Lost,
        })
    }

    /// Keeps a finished step under its lease; gives the lease's end.
    ///
    /// # Errors
    /// If the lease is lost, or the output is too large.
    pub async fn save_step(
        &self,
        job_id: JobId,
        token: LeaseToken,
        name: &str,
        output: Value,
        usage: Option<UsageReport>,
    ) -> EngineResult<Timestamp> {
        let name = StepName::parse(name)?.into();
        check_size("output", &output)?;
        let usage = self.paid(usage, self.parts.store.now().await?)?;
        let event = Event::SaveStep { token, name, output, usage };
        match self.apply_one(JobChange::new(job_id, event)).await?.answer {
            Answer::Held { until } => Ok(until),
            _ => Err(EngineError::LeaseLost(LeaseLoss::Superseded)),
        }
    }

    /// Ends attempts under their leases; answers each in its place.
    ///
    /// # Errors
    /// If there are too many, or the store does not answer; then repeating it is safe.
    pub async fn settle(
        &self,
        settlements: Vec<(JobId, LeaseToken, Settlement)>,
    ) -> EngineResult<Vec<EngineResult<Settled>>> {
        if settlements.len() > MAX_ITEMS {
            return Err(EngineError::field("settlements", format!("takes at most {MAX_ITEMS} items")));
        }
        let now = self.parts.store.now().await?;
        let mut checked = Vec::with_capacity(settlements.len());
        for (id, token, settlement) in settlements {
            checked.push(self.settlement_event(id, token, settlement, now).await);
        }
        let changes: Vec<_> = checked.iter().filter_map(|change| change.as_ref().ok().cloned()).collect();
        let mut answers = Vec::new();
        if !changes.is_empty() {
            answers = self.parts.store.apply(changes).await?;
            self.parts.bell.ring();
        }
        let now = self.parts.store.now().await?;
        let mut answers = answers.into_iter();
        Ok(checked
            .into_iter()
            .map(|change| change.and_then(|change| settled(change.job_id, answers.next(), now)))
            .collect())
    }

    async fn settlement_event(
        &self,
        job_id: JobId,
        token: LeaseToken,
        settlement: Settlement,
        now: Timestamp,
    ) -> EngineResult<JobChange> {
        let event = match settlement {
            Settlement::Succeed { result, usage } => {
                check_size("result", &result)?;
                Event::Succeed { token, result, usage: self.paid(usage, now)? }
            }
            Settlement::Fail { error, usage } => {
                let mut failure = classify(&error, now)?;
                // Whose fault it is, if nobody says; a broken call counts only if it is known to be one.
                let is_theirs = failure.class.is_upstreams_fault()
                    || (error.http.is_some() && failure.class.counts_in_a_row());
                if failure.upstream.is_none() && is_theirs {
                    failure.upstream = self.only_upstream(job_id).await?;
                }
                Event::Fail { token, failure, jitter: rand::random(), usage: self.paid(usage, now)? }
            }
            Settlement::Defer { seconds: wait, reason } => {
                let wait = seconds("seconds", Some(wait), Duration::ZERO..=LONGEST_DEFER)?;
                text("reason", &reason, 1..=1000)?;
                Event::Defer { token, wait: wait.unwrap_or_default(), reason, usage: Vec::new() }
            }
            Settlement::Release => Event::Release { token },
        };
        Ok(JobChange::new(job_id, event))
    }

    /// The paid service of a job that names exactly one: whose fault a rate limit is, if nobody says.
    async fn only_upstream(&self, job_id: JobId) -> EngineResult<Option<String>> {
        let found = self.parts.store.jobs(&[job_id]).await?.pop().flatten();
        let Some(record) = found else { return Ok(None) };
        match record.job.spec.upstreams.as_slice() {
            [only] => Ok(Some(only.clone().into())),
            _ => Ok(None),
        }
    }
}

fn settled(job_id: JobId, answer: Option<Result<Applied, Refusal>>, now: Timestamp) -> EngineResult<Settled> {
    let broken = || coolant_core::store::StoreError::Broken("a settlement was left without an answer".into());
    let applied =
        answer.ok_or_else(broken)?.map_err(|refusal| EngineError::refused(&refusal, job_id, now))?;
    match applied.answer {
        Answer::Cancelled => Err(EngineError::LeaseLost(LeaseLoss::Cancelled)),
        Answer::Ended => Err(EngineError::LeaseLost(LeaseLoss::TimedOut)),
        answer => Ok(Settled { job: applied.job, repeated: answer == Answer::Already, now }),
    }
}

fn claim_request(claim: Claim) -> EngineResult<ClaimRequest> {
    text("worker", &claim.worker, 1..=128)?;
    for (field, items) in [("queues", claim.queues.len()), ("job_types", claim.job_types.len())] {
        if items > 100 {
            return Err(EngineError::field(field, "takes at most 100 items"));
        }
    }
    let mut queues = claim.queues.into_iter().map(Queue::parse).collect::<Result<Vec<_>, _>>()?;
    if queues.is_empty() {
        queues.push(Queue::default());
    }
    Ok(ClaimRequest {
        worker: claim.worker,
        queues,
        job_types: claim.job_types.into_iter().map(JobType::parse).collect::<Result<_, _>>()?,
        max: whole("max", claim.max, 1..=1000)?.unwrap_or(1),
        lease: lease(claim.lease_seconds)?,
        process: None,
    })
}

fn check_progress(i: usize, progress: Option<&Progress>) -> EngineResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    let field = |name: &str| format!("leases[{i}].progress.{name}");
    // The numbers are kept as signed ones.
    let fits = |number: u64| i64::try_from(number).is_ok();
    if !fits(progress.done) || !progress.total.is_none_or(fits) {
        return Err(EngineError::field(field("done"), "is too large"));
    }
    text(&field("unit"), progress.unit.as_deref().unwrap_or_default(), 0..=128)?;
    text(&field("message"), progress.message.as_deref().unwrap_or_default(), 0..=1000)
}
