//! Waiting for what became of a job.

use std::time::Duration;

use coolant_core::failure::Failure;
use coolant_core::job::{JobId, JobRecord, JobState};
use coolant_core::store::{StoreError, SubmitOutcome};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Coolant;

/// The shortest and the longest time between two looks at a job.
const LOOKS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A clock has no instant for every wait that can be asked for.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365);

/// A job in the store, by its id.
#[derive(Clone)]
pub struct JobHandle {
    coolant: Coolant,
    id: JobId,
    outcome: Option<SubmitOutcome>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The job is in the dead-letter queue.
    #[error("the job failed: {}: {}", .0.code, .0.message)]
    Failed(Box<Failure>),
    /// Somebody cancelled it.
    #[error("the job was cancelled")]
    Cancelled,
    /// It has not ended yet. Ask again; the job goes on.
    #[error("the job has not ended yet")]
    NotYet,
    /// There is no such job.
    #[error("there is no such job")]
    NotFound,
    /// The result is of another type.
    #[error("the result does not read as what was asked for")]
    Type(#[source] serde_json::Error),
    /// The store did not answer.
    #[error("could not read the job")]
    Store(#[from] StoreError),
}

impl JobHandle {
    pub(super) fn new(coolant: Coolant, id: JobId, outcome: Option<SubmitOutcome>) -> Self {
        Self { coolant, id, outcome }
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// How the submit found its key, if this came from one.
    #[must_use]
    pub fn outcome(&self) -> Option<SubmitOutcome> {
        self.outcome
    }

    /// The job as it is now.
    ///
    /// # Errors
    /// The store's, or that there is no such job.
    pub async fn record(&self) -> Result<JobRecord, ResultError> {
        let mut jobs = self.coolant.store.jobs(&[self.id]).await?;
        jobs.pop().flatten().ok_or(ResultError::NotFound)
    }

    /// Waits for the job to end, `longest` at most, and reads its result.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn result<T: DeserializeOwned>(&self, longest: Duration) -> Result<T, ResultError> {
        let end = Instant::now() + longest.min(FOR_EVER);
        let mut bell = self.coolant.bell.listen();
        let mut pause = LOOKS.0;
        loop {
            let outlook = match self.record().await {
                Ok(record) => outcome(record).unwrap_or(Err(ResultError::NotYet)),
                Err(error) => Err(error),
            };
            let left = end.saturating_duration_since(Instant::now());
            match outlook {
                Err(error) if error.may_pass() && !left.is_zero() => bell.rung(pause.min(left)).await,
                outlook => return T::deserialize(outlook?).map_err(ResultError::Type),
            }
            pause = (pause * 2).min(LOOKS.1);
        }
    }
}

impl ResultError {
    /// Whether the next look may find something else.
    fn may_pass(&self) -> bool {
        match self {
            Self::NotYet => true,
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// What became of the job; `None` while it has not ended.
fn outcome(record: JobRecord) -> Option<Result<serde_json::Value, ResultError>> {
    match record.job.state {
        JobState::Pending { .. } | JobState::Running { .. } => None,
        JobState::Succeeded { .. } => Some(Ok(record.result.unwrap_or_default())),
        JobState::Cancelled { .. } => Some(Err(ResultError::Cancelled)),
        JobState::Failed { .. } => {
            let no_reason = || {
                let class = coolant_core::failure::FailureClass::HandlerError;
                Failure::new(class, "HANDLER_ERROR", "no reason was kept")
            };
            Some(Err(ResultError::Failed(Box::new(record.job.last_error.unwrap_or_else(no_reason)))))
        }
    }
}
