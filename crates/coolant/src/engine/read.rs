//! Read: jobs, their history, and waiting for their end.

use std::time::Duration;

use coolant_core::job::{Attempt, JobId, Step};
use coolant_core::names::{Queue, StepName};
use coolant_core::store::{AuditEntry, JobFilter, Page, Stats};
use coolant_core::time::Timestamp;
use coolant_core::view::Phase;
use futures::Stream;

use super::submit::{seconds, tenant_of, whole};
use super::{Caller, Engine, EngineError, EngineResult, JobAt};

/// Longest that a call waits for something to happen.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a waiting call looks by itself: another process rings no bell here.
pub(super) const POLL: Duration = Duration::from_millis(500);
/// Longest that one reader of a job's changes is served; it goes on where it was.
const LONGEST_WATCH: Duration = Duration::from_secs(3600);

/// A page of jobs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsPage {
    /// The jobs.
    pub items: Vec<JobAt>,
    /// Where the next page begins, if there may be one.
    pub next: Option<JobId>,
}

/// A change of a job, or the end of its changes.
#[derive(Debug, Clone, PartialEq)]
pub enum JobEvent {
    /// It is like this now.
    Changed(Box<JobAt>),
    /// It has ended; nothing follows.
    Ended {
        /// Its last version.
        version: i64,
    },
}

impl Engine {
    /// One job.
    ///
    /// # Errors
    /// If there is none that the caller may see.
    pub async fn job(&self, caller: &Caller, id: JobId) -> EngineResult<JobAt> {
        let record = self.visible(caller, id).await?;
        self.at_now(record).await
    }

    /// One job, once it has ended or the wait is over. Dropping the call stops the wait.
    ///
    /// # Errors
    /// As for [`Self::job`], or a wait of more than [`LONGEST_WAIT`].
    pub async fn wait(&self, caller: &Caller, id: JobId, wait_seconds: Option<f64>) -> EngineResult<JobAt> {
        let wait = seconds("wait", wait_seconds, Duration::ZERO..=LONGEST_WAIT)?.unwrap_or_default();
        let end = tokio::time::Instant::now() + wait;
        let mut bell = self.parts.bell.listen();
        loop {
            let record = self.visible(caller, id).await?;
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            if record.job.status().has_ended() || left.is_zero() {
                return self.at_now(record).await;
            }
            bell.rung(left.min(POLL)).await;
        }
    }

    /// A page of jobs.
    ///
    /// # Errors
    /// If the limit is out of bounds.
    pub async fn jobs(
        &self,
        caller: &Caller,
        mut filter: JobFilter,
        limit: Option<i64>,
        before: Option<JobId>,
    ) -> EngineResult<JobsPage> {
        let limit = page_limit(limit)?;
        if caller.tenant.is_some() || filter.tenant.is_some() {
            filter.tenant = Some(tenant_of(caller, filter.tenant.as_deref())?.into());
        }
        // One more than asked for tells whether another page follows.
        let page = Page { limit: limit + 1, before };
        let mut records = self.parts.store.list(&filter, page).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = records.last().filter(|_| more).map(|record| record.job.id);
        let now = self.parts.store.now().await?;
        // A page of one phase shows what it was found by, whatever has opened or closed since.
        let blocked = filter.phase == Some(Phase::Blocked);
        let at = |record| JobAt { record, now, blocked };
        let mut items: Vec<JobAt> = records.into_iter().map(at).collect();
        if filter.phase.is_none() {
            self.mark_blocked(&mut items).await?;
        }
        Ok(JobsPage { items, next })
    }

    /// Every attempt of a job, oldest first.
    ///
    /// # Errors
    /// As for [`Self::job`].
    pub async fn attempts(&self, caller: &Caller, id: JobId) -> EngineResult<Vec<Attempt>> {
        self.visible(caller, id).await?;
        Ok(self.parts.store.attempts(id).await?)
    }

    /// The finished steps of a job, without their outputs.
    ///
    /// # Errors
    /// As for [`Self::job`].
    pub async fn steps(&self, caller: &Caller, id: JobId) -> EngineResult<Vec<Step>> {
        self.visible(caller, id).await?;
        Ok(self.parts.store.steps(id).await?)
    }

    /// One finished step with its output.
    ///
    /// # Errors
    /// As for [`Self::job`], and if the job has no such step.
    pub async fn step(&self, caller: &Caller, id: JobId, name: &str) -> EngineResult<Step> {
        let name = StepName::parse(name)?;
        self.visible(caller, id).await?;
        self.parts.store.step(id, name.as_str()).await?.ok_or(EngineError::StepNotFound)
    }

    /// The job at every change after that version, then its end. Fast changes may be merged; the last
    /// state always comes.
    ///
    /// # Errors
    /// As for [`Self::job`].
    pub async fn changes(
        &self,
        caller: &Caller,
        id: JobId,
        after: Option<i64>,
    ) -> EngineResult<impl Stream<Item = JobEvent> + Send + use<>> {
        self.visible(caller, id).await?;
        let watch = Watch {
            engine: self.clone(),
            caller: caller.clone(),
            id,
            seen: after.unwrap_or(0),
            ended: false,
            bell: self.parts.bell.listen(),
            end: tokio::time::Instant::now() + LONGEST_WATCH,
        };
        Ok(futures::stream::unfold(watch, |mut watch| async move {
            let event = watch.next().await?;
            Some((event, watch))
        }))
    }

    /// The metrics of one queue or of all.
    ///
    /// # Errors
    /// If the queue is no name, or the window is out of bounds.
    pub async fn stats(&self, queue: Option<&str>, window_seconds: Option<f64>) -> EngineResult<Stats> {
        let queue = queue.map(Queue::parse).transpose()?;
        let range = Duration::from_secs(1)..=Duration::from_secs(31 * 86_400);
        let window = seconds("window_seconds", window_seconds, range)?.unwrap_or(Duration::from_secs(3600));
        Ok(self.parts.store.stats(queue.as_ref(), window).await?)
    }

    /// The newest entries of the audit trail.
    ///
    /// # Errors
    /// If the limit is out of bounds.
    pub async fn audit(&self, limit: Option<i64>) -> EngineResult<Vec<AuditEntry>> {
        Ok(self.parts.store.audit(page_limit(limit)?).await?)
    }

    /// The store's time.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn now(&self) -> EngineResult<Timestamp> {
        Ok(self.parts.store.now().await?)
    }

    /// Whether the store answers and is migrated.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn ready(&self) -> EngineResult<()> {
        Ok(self.parts.store.ready().await?)
    }
}

/// The size of a page: 1 to 500, 50 by default.
pub(super) fn page_limit(limit: Option<i64>) -> EngineResult<u32> {
    Ok(whole("limit", limit, 1..=500)?.unwrap_or(50))
}

/// One reader of a job's changes.
struct Watch {
    engine: Engine,
    caller: Caller,
    id: JobId,
    seen: i64,
    ended: bool,
    bell: crate::bell::Listener,
    end: tokio::time::Instant,
}

impl Watch {
    async fn next(&mut self) -> Option<JobEvent> {
        while !self.ended && tokio::time::Instant::now() < self.end {
            match self.engine.job(&self.caller, self.id).await {
                Ok(job) if job.record.job.version > self.seen => {
                    self.seen = job.record.job.version;
                    return Some(JobEvent::Changed(Box::new(job)));
                }
                Ok(job) if job.record.job.status().has_ended() => {
                    self.ended = true;
                    return Some(JobEvent::Ended { version: job.record.job.version });
                }
                Err(EngineError::JobNotFound { .. }) => return None,
                // A store that is away for a moment ends no watch: the reader would only come back at once.
                Ok(_) | Err(_) => self.bell.rung(POLL).await,
            }
        }
        None
    }
}
