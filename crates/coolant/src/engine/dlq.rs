//! The dead-letter queue: failed jobs, looked at one by one or by what failed alike.
//!
//! Elsewhere: putting many back (`redrive`), one back or out (`control`).

use coolant_core::job::{Attempt, JobId, JobState, Reopen};
use coolant_core::store::{DlqGroup, JobFilter};
use coolant_core::view::Phase;

use super::read::JobsPage;
use super::submit::tenant_of;
use super::{Caller, Engine, EngineError, EngineResult, JobAt};

/// A dead-lettered job with its history.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// The job.
    pub job: JobAt,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

impl Engine {
    /// A page of the dead-letter queue, newest jobs first.
    ///
    /// # Errors
    /// If the limit is out of bounds.
    pub async fn dead_letters(
        &self,
        caller: &Caller,
        filter: JobFilter,
        limit: Option<i64>,
        before: Option<JobId>,
    ) -> EngineResult<JobsPage> {
        self.jobs(caller, dead(filter), limit, before).await
    }

    /// The dead-letter queue by what failed alike, most first.
    ///
    /// # Errors
    /// If the tenant asked for is not the caller's.
    pub async fn dlq_groups(&self, caller: &Caller, filter: JobFilter) -> EngineResult<Vec<DlqGroup>> {
        let filter = self.dead_filter(caller, filter)?;
        Ok(self.parts.store.dlq_groups(&filter).await?)
    }

    /// One dead-lettered job with its attempts.
    ///
    /// # Errors
    /// If there is no such job for this caller, or it is not in the dead-letter queue.
    pub async fn dead_letter(&self, caller: &Caller, id: JobId) -> EngineResult<DeadLetter> {
        let job = self.job(caller, id).await?;
        match job.record.job.state {
            JobState::Failed { reopen: Reopen::Discarded, .. } => Err(EngineError::NotDeadLettered { id }),
            JobState::Failed { .. } => Ok(DeadLetter { job, attempts: self.parts.store.attempts(id).await? }),
            _ => Err(EngineError::NotDeadLettered { id }),
        }
    }

    /// The filter as it may be asked by this caller.
    pub(super) fn dead_filter(&self, caller: &Caller, mut filter: JobFilter) -> EngineResult<JobFilter> {
        if caller.tenant.is_some() || filter.tenant.is_some() {
            filter.tenant = Some(tenant_of(caller, filter.tenant.as_deref())?.into());
        }
        Ok(dead(filter))
    }
}

fn dead(filter: JobFilter) -> JobFilter {
    JobFilter { status: None, phase: Some(Phase::DeadLettered), ..filter }
}
