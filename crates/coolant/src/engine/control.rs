//! Control: retry, cancel, discard. The doors through which a person changes a job.

use coolant_core::job::JobId;
use coolant_core::lifecycle::{Answer, Event};
use coolant_core::store::{Applied, AuditEntry, JobChange, StoreError};
use coolant_core::time::Timestamp;

use super::submit::text;
use super::{Caller, Engine, EngineError, EngineResult, JobAt};

/// A change that a person asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// The job after it.
    pub job: JobAt,
    /// Whether it was so already.
    pub already: bool,
}

impl Engine {
    /// Reopens a failed or cancelled job. `force` passes a cooldown and a permanent failure; it needs a
    /// reason and is audited.
    ///
    /// # Errors
    /// If the job is not there, not ended, succeeded, cooling or failed for good.
    pub async fn retry(
        &self,
        caller: &Caller,
        id: JobId,
        force: bool,
        reason: Option<&str>,
    ) -> EngineResult<Changed> {
        let audit = match (force, reason) {
            (false, _) => None,
            (true, Some(reason)) => Some(audit(caller, "job.retry.forced", id, checked_reason(reason)?)),
            (true, None) => return Err(EngineError::field("reason", "is needed with `force`")),
        };
        self.change(caller, JobChange { job_id: id, event: Event::Reopen { force }, audit }).await
    }

    /// Ends a job: at once if it waits, at its worker's next beat if it runs.
    ///
    /// # Errors
    /// If the job is not there or has ended otherwise.
    pub async fn cancel(&self, caller: &Caller, id: JobId) -> EngineResult<Changed> {
        self.change(caller, JobChange::new(id, Event::Cancel)).await
    }

    /// Takes a failed job out of the dead-letter queue for good. Audited.
    ///
    /// # Errors
    /// If the job is not there or has not failed.
    pub async fn discard(&self, caller: &Caller, id: JobId, note: Option<&str>) -> EngineResult<Changed> {
        let note = note.map(checked_reason).transpose()?.unwrap_or_default();
        let audit = Some(audit(caller, "job.discarded", id, note));
        self.change(caller, JobChange { job_id: id, event: Event::Discard, audit }).await
    }

    async fn change(&self, caller: &Caller, change: JobChange) -> EngineResult<Changed> {
        let id = change.job_id;
        let mut record = self.visible(caller, id).await?;
        let applied = self.apply_one(change).await?;
        record.job = applied.job;
        let job = self.at_now(record).await?;
        Ok(Changed { job, already: applied.answer == Answer::Already })
    }

    /// Makes one change and wakes whoever waits for it.
    pub(super) async fn apply_one(&self, change: JobChange) -> EngineResult<Applied> {
        let id = change.job_id;
        let answer = self.parts.store.apply(vec![change]).await?.pop();
        let answer =
            answer.ok_or_else(|| StoreError::Broken("a change was left without an answer".into()))?;
        match answer {
            Ok(applied) => {
                self.parts.bell.ring();
                Ok(applied)
            }
            Err(refusal) => Err(EngineError::refused(&refusal, id, self.parts.store.now().await?)),
        }
    }
}

/// Why somebody did something, as they say: 1 to 1000 bytes on one line.
pub(super) fn checked_reason(reason: &str) -> EngineResult<String> {
    text("reason", reason, 1..=1000)?;
    Ok(reason.to_owned())
}

pub(super) fn audit(caller: &Caller, action: &str, target: JobId, reason: String) -> AuditEntry {
    AuditEntry {
        // The store sets its own time.
        at: Timestamp::default(),
        actor: caller.actor.clone(),
        action: action.to_owned(),
        target: target.to_string(),
        reason,
    }
}
