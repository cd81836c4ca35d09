//! Jobs: one unit of paid work each, and everything that is known about one.
//!
//! A [`Job`] is narrow on purpose: payload and result travel apart ([`JobRecord`]), so that a heartbeat
//! never moves a megabyte.
//!
//! Elsewhere: how a job changes (`lifecycle`), where jobs are kept (`store`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::failure::Failure;
use crate::money::{Money, UsageTotals};
use crate::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant, Upstream};
use crate::time::Timestamp;

/// A job's name in the store: a UUID of version 7, so that newer ones sort later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

/// A fencing token: grows with every claim of a job, so that a stale worker can be told from the current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub i64);

/// What was asked for. Nothing in here changes after the submit.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Which handler runs it.
    pub job_type: JobType,
    /// Its line.
    pub queue: Queue,
    /// On whose behalf.
    pub tenant: Tenant,
    /// The caller's name for this piece of work.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Jobs with this name run one at a time.
    pub lock_key: Option<LockKey>,
    /// Paid services it uses.
    pub upstreams: Vec<Upstream>,
    /// -10 to 10; higher goes first.
    pub priority: i8,
    /// Labels for filters.
    pub tags: BTreeMap<String, String>,
    /// W3C trace id, 32 hex digits.
    pub trace_id: String,
    /// After this it is no longer worth starting.
    pub expires_at: Option<Timestamp>,
    /// Limits and waits.
    pub policy: Policy,
}

/// How often, how long, how late: all limits of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Executions before the dead-letter queue, 1 to 100.
    pub max_attempts: u32,
    /// Wait after the first failure, the second, and so on; the last one repeats.
    pub retry_delays: Vec<Duration>,
    /// Time after the last failure before a manual retry.
    pub cooldown: Duration,
    /// Lease of a claim that asks for none.
    pub lease: Duration,
    /// Longest run of one attempt.
    pub timeout: Duration,
    /// Longest wait for a closed upstream, over all deferrals.
    pub max_wait: Duration,
    /// Lost workers before the dead-letter queue.
    pub max_lost: u32,
    /// Releases before the dead-letter queue.
    pub max_releases: u32,
    /// Most paid calls it may make.
    pub max_paid_calls: Option<u32>,
}

impl Policy {
    /// Shortest and longest lease.
    pub const LEASE_RANGE: std::ops::RangeInclusive<Duration> =
        Duration::from_millis(500)..=Duration::from_secs(3600);
}

impl Default for Policy {
    /// Four attempts with waits of 5 s, 30 s and 2 min, then a cooldown of 5 min.
    fn default() -> Self {
        Self {
            max_attempts: 4,
            retry_delays: [5, 30, 120].map(Duration::from_secs).to_vec(),
            cooldown: Duration::from_secs(300),
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(900),
            max_wait: Duration::from_secs(86_400),
            max_lost: 3,
            max_releases: 50,
            max_paid_calls: None,
        }
    }
}

/// Where a job stands. Each variant holds what is true in that state and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub enum JobState {
    /// Not claimable before `visible_at`.
    Pending {
        /// The one instant: nobody starts the job before it.
        visible_at: Timestamp,
        /// What it waits for.
        wait: Wait,
    },
    /// Held by one worker until `lease.until`, unless renewed.
    Running {
        /// The right to run it.
        lease: Lease,
        /// Somebody cancelled it; its worker learns it at the next beat.
        cancel_requested: bool,
    },
    /// Done. Nothing leaves this state.
    Succeeded {
        /// When.
        at: Timestamp,
    },
    /// Given up: in the dead-letter queue.
    Failed {
        /// When.
        at: Timestamp,
        /// Who may bring it back, and from when.
        reopen: Reopen,
    },
    /// Ended by a person.
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

/// The name of a state as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Waiting for a worker.
    Pending,
    /// Held by a worker.
    Running,
    /// Done.
    Succeeded,
    /// In the dead-letter queue, or discarded from it.
    Failed,
    /// Ended by a person.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// `PENDING` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Running => "RUNNING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether nothing more happens unless somebody reopens the job.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What a pending job waits for, once its instant lies ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Its turn, or the start that its submitter asked for.
    Start,
    /// The end of the wait after a failure.
    Cooling,
    /// Something outside it, such as a closed upstream.
    Deferred {
        /// Why, for people.
        reason: String,
    },
}

/// The right to run a job until `until`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Grows with every claim.
    pub token: LeaseToken,
    /// When it runs out by itself.
    pub until: Timestamp,
    /// How far a renewal moves `until` on.
    pub length: Duration,
    /// Who holds it; a label, not an identity.
    pub worker: String,
    /// When the attempt began.
    pub started_at: Timestamp,
    /// When the attempt is over its time limit.
    pub deadline: Timestamp,
}

/// Who may bring a failed job back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopen {
    /// Anybody, from that instant on: the end of its cooldown.
    From(Timestamp),
    /// Only an operator by force: the same work would fail again.
    OnlyForced,
    /// Nobody: discarded from the dead-letter queue.
    Discarded,
}

/// Everything that is counted about a job. The counters never mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Claims ever: the newest lease token, and the newest attempt number.
    pub claims: i64,
    /// Claims less releases and deferrals, ever.
    pub executions: u32,
    /// The same since the job was submitted or reopened.
    pub tries: u32,
    /// Attempts whose worker was lost, since then.
    pub lost: u32,
    /// Claims given back at a shutdown, since then.
    pub releases: u32,
    /// Claims put back without using up an attempt, since then.
    pub deferrals: u32,
    /// Timeouts, since then: each may have been billed.
    pub timeouts: u32,
    /// Unusable outputs, since then.
    pub invalid_outputs: u32,
}

/// How far a running job is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Finished pieces.
    pub done: u64,
    /// All pieces, where known.
    pub total: Option<u64>,
    /// What a piece is: `chunks`.
    pub unit: Option<String>,
    /// Anything for people.
    pub message: Option<String>,
}

/// A job as the rules see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What was asked for.
    pub spec: Arc<JobSpec>,
    /// Where it stands.
    pub state: JobState,
    /// What was counted.
    pub counters: Counters,
    /// The newest failure, kept until a success.
    pub last_error: Option<Failure>,
    /// When it first had to wait for an upstream, if it still does.
    pub deferred_since: Option<Timestamp>,
    /// The newest attempt that ended, and how: a repeated settle is answered from this.
    pub last_settled: Option<Settled>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// What its paid calls used.
    pub usage: UsageTotals,
    /// Grows with every change; a save names the version it was decided from.
    pub version: i64,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When its first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl Job {
    /// What one attempt has cost so far, on average.
    #[must_use]
    pub fn mean_cost(&self) -> Money {
        Money::from_nanos(self.usage.cost.as_nanos() / self.counters.claims.max(1))
    }

    /// The name of its state.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self.state {
            JobState::Pending { .. } => Status::Pending,
            JobState::Running { .. } => Status::Running,
            JobState::Succeeded { .. } => Status::Succeeded,
            JobState::Failed { .. } => Status::Failed,
            JobState::Cancelled { .. } => Status::Cancelled,
        }
    }

    /// The one instant before which nobody may start it; `None` once it has ended.
    #[must_use]
    pub const fn visible_at(&self) -> Option<Timestamp> {
        match &self.state {
            JobState::Pending { visible_at, .. } => Some(*visible_at),
            JobState::Running { lease, .. } => Some(lease.until),
            _ => None,
        }
    }
}

/// An attempt that ended, by its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The attempt's token.
    pub token: LeaseToken,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a result.
    Succeeded,
    /// With an error.
    Failed,
    /// Its worker stopped renewing the lease.
    Lost,
    /// Put back without using up an attempt.
    Deferred,
    /// Given back at a shutdown.
    Released,
    /// The job was cancelled under it.
    Cancelled,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Succeeded, Self::Failed, Self::Lost, Self::Deferred, Self::Released, Self::Cancelled];

    /// `succeeded` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Deferred => "deferred",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }
}

/// One claim of a job, for its history.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// 1 for the first; never repeats, also not after a reopening. Equal to its lease token.
    pub number: i64,
    /// Who ran it.
    pub worker: String,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why, if it failed, was lost or deferred.
    pub error: Option<Failure>,
    /// What its paid calls used.
    pub usage: UsageTotals,
}

/// A finished, kept piece of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name, unique in the job.
    pub name: String,
    /// Size of the output as JSON, in bytes.
    pub bytes: u64,
    /// When it was saved.
    pub finished_at: Timestamp,
    /// The attempt that saved it.
    pub attempt: i64,
    /// What it gave; `None` in a listing.
    pub output: Option<Value>,
}

/// A job with everything that was asked and answered.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// The job.
    pub job: Job,
    /// What the handler gets.
    pub payload: Value,
    /// What the handler gave, once it succeeded.
    pub result: Option<Value>,
}
