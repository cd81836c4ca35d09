//! Permits: leave to make one paid call, and what is told when it is over.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::room::Room;
use crate::failure::{Failure, FailureClass};
use crate::job::{JobId, LeaseToken};
use crate::ledger::LooseCall;
use crate::money::{Money, Usage};
use crate::names::{JobType, Queue, Tenant, Upstream};
use crate::time::Timestamp;

/// The largest estimate that is told from larger ones: so many permits hold at no time that their sum does not fit
/// any store's whole numbers.
pub const MOST_TOKENS: u64 = 1_000_000_000_000;

/// A permit's name: a UUID of version 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PermitId(pub Uuid);

impl std::fmt::Display for PermitId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for PermitId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::parse_str(text).map(Self)
    }
}

/// What a caller wants to pay for.
#[derive(Debug, Clone, PartialEq)]
pub struct PermitRequest {
    /// The permit's name, if it is given; asking again with it after a lost answer takes nothing twice.
    pub id: PermitId,
    /// From whom.
    pub upstream: Upstream,
    /// The attempt that it is for.
    pub job: Option<(JobId, LeaseToken)>,
    /// On whose behalf, where there is no job to say so.
    pub tenant: Tenant,
    /// The step that the call makes.
    pub step: Option<String>,
    /// Tokens in and out, at most.
    pub tokens: u64,
    /// What it may cost.
    pub cost: Money,
}

/// Leave to make one paid call.
#[derive(Debug, Clone, PartialEq)]
pub struct Permit {
    /// Its name.
    pub id: PermitId,
    /// When its reservation ends, unless the job's lease is renewed.
    pub expires_at: Timestamp,
}

/// How a paid call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// With a usable answer.
    Ok {
        /// What its provider said is left for others.
        room: Room,
    },
    /// With a failure.
    Failed(Failure),
    /// Before the upstream can have had it: nothing to pay.
    NotSent(Failure),
    /// Broken off on this side: it says nothing of the upstream, and nobody knows whether it is on the bill.
    CutShort,
}

/// What is told about a call when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct PermitSettlement {
    /// Which.
    pub id: PermitId,
    /// How it ended.
    pub verdict: Verdict,
    /// What it used.
    pub usage: Usage,
}

impl PermitSettlement {
    /// The class of the failure, if it was one.
    #[must_use]
    pub const fn class(&self) -> Option<FailureClass> {
        match &self.verdict {
            Verdict::Ok { .. } | Verdict::CutShort => None,
            Verdict::Failed(failure) | Verdict::NotSent(failure) => Some(failure.class),
        }
    }

    /// What its provider said is left, if it said anything.
    #[must_use]
    pub fn room(&self) -> Option<&Room> {
        match &self.verdict {
            Verdict::Ok { room } => Some(room).filter(|room| !room.is_empty()),
            _ => None,
        }
    }

    /// Whether the call belongs into the ledger: it was answered, used something, or broke off so late that
    /// it may be on the bill. A refusal costs nothing.
    #[must_use]
    pub fn is_paid(&self) -> bool {
        let used = self.usage.input_tokens > 0
            || self.usage.output_tokens > 0
            || self.usage.cost.is_some_and(|cost| cost > Money::default());
        match &self.verdict {
            Verdict::Ok { .. } | Verdict::CutShort => true,
            Verdict::NotSent(_) => false,
            Verdict::Failed(failure) => used || failure.class.may_be_billed(),
        }
    }
}

/// What a settle did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledPermit {
    /// The class of the failure, if it was one.
    pub class: Option<FailureClass>,
    /// What is closed now by this report, and until when.
    pub closed: Option<(ClosedWhat, Timestamp)>,
    /// It had been settled before; nothing changed.
    pub repeated: bool,
}

/// What a report has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedWhat {
    /// The upstream.
    Upstream,
    /// All that is paid with the same key.
    Credential,
}

/// A permit as a store keeps it, for what its settle has to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Spending {
    /// Its name.
    pub id: PermitId,
    /// Whom the call is made to.
    pub upstream: Upstream,
    /// On whose behalf.
    pub tenant: Tenant,
    /// The attempt that it is for.
    pub job: Option<(JobId, LeaseToken)>,
    /// The step that the call makes.
    pub step: Option<String>,
    /// Tokens that were estimated; [`MOST_TOKENS`] at most.
    pub tokens: u64,
    /// Money that was reserved.
    pub cost: Money,
}

impl Spending {
    /// What a request asks to spend.
    #[must_use]
    pub fn of(request: &PermitRequest) -> Self {
        let PermitRequest { id, upstream, job, tenant, step, tokens, cost } = request.clone();
        Self { id, upstream, tenant, job, step, tokens: tokens.min(MOST_TOKENS), cost }
    }

    /// Such a call that belongs to no job, for the ledger: under the permit's own name. What it is for, its step
    /// says, if it has one.
    #[must_use]
    pub fn loose(&self, usage: Usage) -> LooseCall {
        let (id, tenant) = (self.id.0, self.tenant.clone());
        let purpose = self.step.as_deref().and_then(|step| JobType::parse(step).ok());
        let job_type = purpose.unwrap_or_else(JobType::none);
        LooseCall { id, tenant, queue: Queue::default(), job_type, usage }
    }

    /// By whom its upstream knows it.
    #[must_use]
    pub const fn starter(&self) -> super::Starter {
        match self.job {
            Some((id, token)) => super::Starter::Job { id, token },
            None => super::Starter::Permit(self.id),
        }
    }
}
