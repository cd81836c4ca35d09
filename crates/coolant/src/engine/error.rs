//! Errors of the engine: one variant for each thing a caller can do about it, each with a stable code.
//!
//! Elsewhere: the HTTP status of a code (`http::problem`).

use std::sync::Arc;
use std::time::Duration;

use coolant_core::job::JobId;
use coolant_core::lifecycle::Refusal;
use coolant_core::lock::{LockAt, LockState};
use coolant_core::names::InvalidName;
use coolant_core::say::{Language, Sentence};
use coolant_core::store::StoreError;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Denial, Denied};

use crate::language;

/// What an engine call gives.
pub type EngineResult<T> = Result<T, EngineError>;

/// Why a call was refused or could not be done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// A value is outside what its field takes.
    #[error("`{field}` {reason}")]
    InvalidField {
        /// Which, as the caller spells it.
        field: String,
        /// What it takes.
        reason: String,
    },
    /// The payload is not what its job type takes.
    #[error("`{field}` {reason}")]
    InvalidPayload {
        /// Which part of it: `payload.messages[0].role`.
        field: String,
        /// What it takes.
        reason: String,
    },
    /// Larger than the store keeps.
    #[error("`{what}` has {bytes} bytes; at most {max} are allowed")]
    TooLarge {
        /// What.
        what: String,
        /// Its size.
        bytes: usize,
        /// The largest allowed.
        max: usize,
    },
    /// The key belongs to a job with other parameters.
    #[error("the idempotency key belongs to job {job_id}, which differs in {}", .fields.join(", "))]
    KeyReused {
        /// The key's job.
        job_id: JobId,
        /// Where the two differ.
        fields: Vec<String>,
    },
    /// No such job, or not the caller's.
    #[error("there is no job `{id}`")]
    JobNotFound {
        /// What was asked for.
        id: JobId,
    },
    /// The job exists, but is not in the dead-letter queue.
    #[error("job `{id}` is not in the dead-letter queue")]
    NotDeadLettered {
        /// What was asked for.
        id: JobId,
    },
    /// The job has no finished step of that name.
    #[error("the job has no finished step of that name")]
    StepNotFound,
    /// No such document, or not that version of it.
    #[error("there is no such document or version")]
    DocumentNotFound,
    /// No such redrive.
    #[error("there is no redrive `{id}`")]
    RedriveNotFound {
        /// What was asked for.
        id: JobId,
    },
    /// No such schedule.
    #[error("there is no such schedule")]
    ScheduleNotFound,
    /// Nothing is known of the upstream.
    #[error("there is no such upstream")]
    UpstreamNotFound,
    /// No limits were set for the tenant, or it is not the caller's.
    #[error("there is no such tenant with limits")]
    TenantNotFound,
    /// No such permit, or not the caller's.
    #[error("there is no such permit")]
    PermitNotFound,
    /// A paid call may not begin.
    #[error("{}", .0.reason)]
    Denied(Denied),
    /// The cooldown after a failure still runs.
    #[error("{}", Sentence::JobCools(*.left).say(Language::English))]
    CoolingDown {
        /// The job.
        job_id: JobId,
        /// Its end.
        until: Timestamp,
        /// Until then.
        left: Duration,
    },
    /// The same work would fail again.
    #[error("the failure is permanent; submit the work under a new key, or force the retry with a reason")]
    PermanentFailure,
    /// It is waiting or running.
    #[error("the job has not ended")]
    JobNotEnded,
    /// There is nothing left to cancel or discard.
    #[error("the job has ended")]
    JobEnded,
    /// There is nothing to do again.
    #[error("the job succeeded; its result is kept")]
    JobSucceeded,
    /// The caller's lease token is not, or no longer, the job's.
    #[error("the lease is lost: {}", .0.as_str())]
    LeaseLost(LeaseLoss),
    /// The lock is not free.
    #[error("{}", .0.sentence().say(Language::English))]
    Locked(Box<LockAt>),
    /// The search cannot be done at the moment.
    #[error("{}", Sentence::SearchAway { reason: reason.clone() }.say(Language::English))]
    SearchUnavailable {
        /// Why.
        reason: String,
        /// When to try again, where known.
        retry_after: Option<Duration>,
    },
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseLoss {
    /// A newer claim exists, or the attempt has ended.
    Superseded,
    /// The job was cancelled.
    Cancelled,
    /// The attempt was over its time limit.
    TimedOut,
    /// Of a lock: its time ended, or somebody opened it.
    Lock,
}

impl LeaseLoss {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "the attempt was superseded or has ended",
            Self::Cancelled => "the job was cancelled",
            Self::TimedOut => "the attempt ran longer than its `timeout_seconds`",
            Self::Lock => "the lock's time ended or somebody opened it, and it may have another holder",
        }
    }
}

/// The stable name of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Code {
    InvalidField,
    InvalidPayload,
    PayloadTooLarge,
    IdempotencyKeyReused,
    JobNotFound,
    NotDeadLettered,
    StepNotFound,
    DocumentNotFound,
    RedriveNotFound,
    ScheduleNotFound,
    UpstreamNotFound,
    TenantNotFound,
    PermitNotFound,
    UpstreamClosed,
    RateLimited,
    ConcurrencyLimited,
    BudgetExhausted,
    PaidCallLimit,
    EstimateAboveLimit,
    CoolingDown,
    PermanentFailure,
    JobNotEnded,
    JobEnded,
    JobSucceeded,
    LeaseLost,
    LockHeld,
    LockCooling,
    LockClosed,
    SearchUnavailable,
    StoreUnavailable,
    StoreFull,
    StoreNotMigrated,
    Internal,
}

impl Code {
    /// `COOLING_DOWN` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidField => "INVALID_FIELD",
            Self::InvalidPayload => "INVALID_PAYLOAD",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::JobNotFound => "JOB_NOT_FOUND",
            Self::NotDeadLettered => "NOT_DEAD_LETTERED",
            Self::StepNotFound => "STEP_NOT_FOUND",
            Self::DocumentNotFound => "DOCUMENT_NOT_FOUND",
            Self::RedriveNotFound => "REDRIVE_NOT_FOUND",
            Self::ScheduleNotFound => "SCHEDULE_NOT_FOUND",
            Self::UpstreamNotFound => "UPSTREAM_NOT_FOUND",
            Self::TenantNotFound => "TENANT_NOT_FOUND",
            Self::PermitNotFound => "PERMIT_NOT_FOUND",
            Self::UpstreamClosed => Denial::UpstreamClosed.as_str(),
            Self::RateLimited => Denial::RateLimited.as_str(),
            Self::ConcurrencyLimited => Denial::ConcurrencyLimited.as_str(),
            Self::BudgetExhausted => Denial::BudgetExhausted.as_str(),
            Self::PaidCallLimit => Denial::PaidCallLimit.as_str(),
            Self::EstimateAboveLimit => Denial::AboveLimit.as_str(),
            Self::CoolingDown => "COOLING_DOWN",
            Self::PermanentFailure => "PERMANENT_FAILURE",
            Self::JobNotEnded => "JOB_NOT_ENDED",
            Self::JobEnded => "JOB_ENDED",
            Self::JobSucceeded => "JOB_SUCCEEDED",
            Self::LeaseLost => "LEASE_LOST",
            Self::LockHeld => "LOCK_HELD",
            Self::LockCooling => "LOCK_COOLING",
            Self::LockClosed => "LOCK_CLOSED",
            Self::SearchUnavailable => "SEARCH_UNAVAILABLE",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::StoreFull => "STORE_FULL",
            Self::StoreNotMigrated => "STORE_NOT_MIGRATED",
            Self::Internal => "INTERNAL",
        }
    }
}

impl EngineError {
    /// A value outside what its field takes.
    #[must_use]
    pub fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidField { field: field.into(), reason: reason.into() }
    }

    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidField { .. } => Code::InvalidField,
            Self::InvalidPayload { .. } => Code::InvalidPayload,
            Self::TooLarge { .. } => Code::PayloadTooLarge,
            Self::KeyReused { .. } => Code::IdempotencyKeyReused,
            Self::JobNotFound { .. } => Code::JobNotFound,
            Self::NotDeadLettered { .. } => Code::NotDeadLettered,
            Self::StepNotFound => Code::StepNotFound,
            Self::DocumentNotFound => Code::DocumentNotFound,
            Self::RedriveNotFound { .. } => Code::RedriveNotFound,
            Self::ScheduleNotFound => Code::ScheduleNotFound,
            Self::UpstreamNotFound => Code::UpstreamNotFound,
            Self::TenantNotFound => Code::TenantNotFound,
            Self::PermitNotFound => Code::PermitNotFound,
            Self::Denied(denied) => match denied.denial {
                Denial::UpstreamClosed => Code::UpstreamClosed,
                Denial::RateLimited => Code::RateLimited,
                Denial::ConcurrencyLimited => Code::ConcurrencyLimited,
                Denial::BudgetExhausted => Code::BudgetExhausted,
                Denial::PaidCallLimit => Code::PaidCallLimit,
                Denial::AboveLimit => Code::EstimateAboveLimit,
            },
            Self::CoolingDown { .. } => Code::CoolingDown,
            Self::PermanentFailure => Code::PermanentFailure,
            Self::JobNotEnded => Code::JobNotEnded,
            Self::JobEnded => Code::JobEnded,
            Self::JobSucceeded => Code::JobSucceeded,
            Self::LeaseLost(_) => Code::LeaseLost,
            Self::Locked(lock) => match lock.state {
                LockState::Closed { .. } => Code::LockClosed,
                LockState::Cooling { .. } => Code::LockCooling,
                LockState::Held { .. } | LockState::Free => Code::LockHeld,
            },
            Self::SearchUnavailable { .. } => Code::SearchUnavailable,
            Self::Store(StoreError::Unavailable(_)) => Code::StoreUnavailable,
            Self::Store(StoreError::Full(_)) => Code::StoreFull,
            Self::Store(StoreError::NotMigrated(_)) => Code::StoreNotMigrated,
            Self::Store(StoreError::Broken(_)) => Code::Internal,
        }
    }

    /// When the same call may pass, where waiting helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::CoolingDown { left, .. } => Some(*left),
            Self::Denied(denied) => denied.retry_after,
            Self::Locked(lock) => lock.left(),
            Self::SearchUnavailable { retry_after, .. } => *retry_after,
            Self::Store(error) if error.is_retryable() => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// What somebody is told who has to wait; `None` for an error that waiting does not help, which is told
    /// in English to everybody, as it is written in the log.
    #[must_use]
    pub fn sentence(&self) -> Option<Sentence> {
        match self {
            Self::CoolingDown { left, .. } => Some(Sentence::JobCools(*left)),
            Self::Denied(denied) => Some(Sentence::NoPermit {
                denial: denied.denial,
                left: denied.retry_after,
                reason: denied.reason.clone(),
            }),
            Self::Locked(lock) => Some(lock.sentence()),
            Self::SearchUnavailable { reason, .. } => Some(Sentence::SearchAway { reason: reason.clone() }),
            Self::Store(error) if error.is_retryable() => Some(Sentence::StoreAway),
            _ => None,
        }
    }

    /// The error in the language of whoever is answered.
    #[must_use]
    pub fn said(&self) -> String {
        self.sentence().map_or_else(|| self.to_string(), |sentence| sentence.say(language::current()))
    }

    /// The field at fault, where there is one.
    #[must_use]
    pub fn field_name(&self) -> Option<&str> {
        match self {
            Self::InvalidField { field, .. } | Self::InvalidPayload { field, .. } => Some(field),
            Self::TooLarge { what, .. } => Some(what),
            _ => None,
        }
    }

    /// What a refusal of the lifecycle means to a caller.
    #[must_use]
    pub fn refused(refusal: &Refusal, job_id: JobId, now: Timestamp) -> Self {
        match *refusal {
            Refusal::NotVisible { visible_at: until } | Refusal::CoolingDown { until } => {
                Self::CoolingDown { job_id, until, left: until.since(now) }
            }
            Refusal::LeaseLost => Self::LeaseLost(LeaseLoss::Superseded),
            Refusal::LeaseLostByCancel => Self::LeaseLost(LeaseLoss::Cancelled),
            Refusal::Ended => Self::JobEnded,
            Refusal::NotEnded => Self::JobNotEnded,
            Refusal::Succeeded => Self::JobSucceeded,
            Refusal::Permanent => Self::PermanentFailure,
            Refusal::NotFound => Self::JobNotFound { id: job_id },
            Refusal::Busy => StoreError::Unavailable(Arc::new(refusal.clone())).into(),
        }
    }
}

impl From<InvalidName> for EngineError {
    fn from(error: InvalidName) -> Self {
        let (InvalidName::Empty { field }
        | InvalidName::TooLong { field, .. }
        | InvalidName::Control { field, .. }) = error;
        let text = error.to_string();
        // The message names the field first; here it is apart.
        let reason = text.trim_start_matches(&format!("`{field}` ")).to_owned();
        Self::field(field, reason)
    }
}
