//! What workers send and get.

use std::collections::BTreeMap;

use coolant_core::evidence::Evidence;
use coolant_core::job::LeaseToken;
use coolant_core::store::Claimed;
use coolant_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::job::{JobView, ProgressView, RetryView};
use super::named::{ClassName, Named, StatusName};
use super::object;
use super::time::Time;
use crate::engine::JobAt;
use crate::engine::classify::ErrorReport;
use crate::engine::work::{BeatState, Claim, Settled, Settlement, UsageReport};
use crate::http::problem::Problem;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ClaimRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    /// A label, not an identity.
    worker: String,
    /// `["default"]` if left out.
    queues: Option<Vec<String>>,
    /// Any if left out or empty.
    job_types: Option<Vec<String>>,
    /// 1 to 1000; 1 if left out.
    max: Option<i64>,
    /// 0 to 60: how long to wait for a first job.
    wait_seconds: Option<f64>,
    /// 0.5 to 3600; each job's own if left out.
    lease_seconds: Option<f64>,
}

impl From<ClaimBody> for Claim {
    fn from(body: ClaimBody) -> Self {
        Self {
            worker: body.worker,
            queues: body.queues.unwrap_or_default(),
            job_types: body.job_types.unwrap_or_default(),
            max: body.max,
            wait_seconds: body.wait_seconds,
            lease_seconds: body.lease_seconds,
        }
    }
}

/// Claimed jobs; none when the wait is over.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ClaimAnswer {
    pub(crate) jobs: Vec<ClaimedView>,
}

/// A job and the right to run it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClaimedJob)]
pub(crate) struct ClaimedView {
    job: JobView,
    lease_token: i64,
    lease_expires_at: Time,
    /// What earlier attempts finished, by name.
    steps: BTreeMap<String, Value>,
}

impl ClaimedView {
    pub(crate) fn of(claimed: &Claimed, now: Timestamp) -> Self {
        Self {
            job: JobAt { record: claimed.record.clone(), now, blocked: false }.into(),
            lease_token: claimed.lease.token.0,
            lease_expires_at: Time(claimed.lease.until),
            steps: claimed.steps.clone(),
        }
    }
}

/// Leases to be renewed.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = HeartbeatRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    /// A label, not an identity.
    pub(crate) worker: String,
    /// 1000 at most.
    #[serde(deserialize_with = "object::many")]
    pub(crate) leases: Vec<LeaseBody>,
}

/// One lease.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LeaseRenewal)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseBody {
    #[schema(format = Uuid)]
    pub(crate) job_id: String,
    pub(crate) lease_token: i64,
    #[serde(default, deserialize_with = "object::maybe")]
    pub(crate) progress: Option<ProgressView>,
}

/// An answer to each lease, in the order asked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeartbeatAnswer {
    pub(crate) leases: Vec<LeaseView>,
}

/// What became of one lease.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LeaseState)]
pub(crate) struct LeaseView {
    pub(crate) job_id: Uuid,
    pub(crate) state: HeldState,
    /// Null unless it is held.
    pub(crate) lease_expires_at: Option<Time>,
}

/// Whether a lease is still good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeldState {
    /// Go on.
    Held,
    /// Stop: it is somebody else's by now, or has ended.
    Lost,
    /// Stop: somebody cancelled the job.
    Cancelled,
}

impl LeaseView {
    pub(crate) fn of(job_id: Uuid, state: BeatState) -> Self {
        let (state, until) = match state {
            BeatState::Held(until) => (HeldState::Held, Some(until)),
            BeatState::Lost => (HeldState::Lost, None),
            BeatState::Cancelled => (HeldState::Cancelled, None),
        };
        Self { job_id, state, lease_expires_at: until.map(Time) }
    }
}

/// A paid call. A count that is left out is read from `reported`, or unknown.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Usage)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageBody {
    upstream: Option<String>,
    /// If the upstream's name does not begin with it.
    provider: Option<String>,
    /// The one that answered.
    model: Option<String>,
    /// If the upstream's name does not say it.
    asked_model: Option<String>,
    /// All of them, cached ones too.
    input_tokens: Option<i64>,
    /// Of `input_tokens`.
    cached_tokens: Option<i64>,
    /// Of `input_tokens`.
    cache_write_tokens: Option<i64>,
    /// All of them, reasoning too.
    output_tokens: Option<i64>,
    /// Of `output_tokens`.
    reasoning_tokens: Option<i64>,
    /// Goes before any price list.
    cost_usd: Option<f64>,
    /// Whether the tokens are a guess.
    #[serde(default)]
    estimated: bool,
    /// `ok`, or the failure class of an answer that was of no use.
    outcome: Option<String>,
    /// The name of the key that paid, never the key.
    credential: Option<String>,
    /// The `usage` of the provider's answer, 4 KiB at most.
    #[schema(value_type = Option<Object>)]
    reported: Option<Value>,
}

impl From<UsageBody> for UsageReport {
    fn from(body: UsageBody) -> Self {
        Self {
            upstream: body.upstream,
            provider: body.provider,
            model: body.model,
            asked_model: body.asked_model,
            input_tokens: body.input_tokens,
            cached_tokens: body.cached_tokens,
            cache_write_tokens: body.cache_write_tokens,
            output_tokens: body.output_tokens,
            reasoning_tokens: body.reasoning_tokens,
            cost_usd: body.cost_usd,
            estimated: body.estimated,
            outcome: body.outcome,
            credential: body.credential,
            reported: body.reported,
        }
    }
}

/// A finished step.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SaveStepRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepBody {
    pub(crate) lease_token: i64,
    /// 1 MiB of JSON at most.
    #[serde(default)]
    pub(crate) output: Value,
    /// The paid call that made it.
    #[serde(default, deserialize_with = "object::maybe")]
    pub(crate) usage: Option<UsageBody>,
}

/// A kept step.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepAnswer {
    pub(crate) name: String,
    pub(crate) lease_expires_at: Time,
}

/// The work is done.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SucceedRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct SucceedBody {
    pub(crate) lease_token: i64,
    /// 1 MiB of JSON at most.
    #[serde(default)]
    pub(crate) result: Value,
    #[serde(default, deserialize_with = "object::maybe")]
    pub(crate) usage: Option<UsageBody>,
}

/// The work failed.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = FailRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailBody {
    pub(crate) lease_token: i64,
    #[serde(deserialize_with = "object::one")]
    pub(crate) error: ErrorBody,
    #[serde(default, deserialize_with = "object::maybe")]
    pub(crate) usage: Option<UsageBody>,
}

/// What went wrong.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReportedError)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorBody {
    /// The worker's own code; may be left out where there is `http` or `class`.
    code: Option<String>,
    /// For people; cut after 8 KiB.
    #[serde(default)]
    message: String,
    /// If the worker knows it, it counts.
    #[schema(value_type = Option<ClassName>)]
    class: Option<String>,
    /// What the paid call left behind; Coolant reads the class from it.
    #[serde(default, deserialize_with = "object::maybe")]
    http: Option<EvidenceBody>,
    retry_after_seconds: Option<f64>,
}

/// What a paid call left behind.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Evidence)]
#[serde(deny_unknown_fields)]
pub(crate) struct EvidenceBody {
    upstream: Option<String>,
    /// Null: no answer came.
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Text or any JSON.
    #[serde(default)]
    body: Value,
}

impl From<EvidenceBody> for Evidence {
    fn from(EvidenceBody { status, headers, body, .. }: EvidenceBody) -> Self {
        let headers = headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
        Self { status, headers, body }
    }
}

impl From<ErrorBody> for ErrorReport {
    fn from(error: ErrorBody) -> Self {
        let upstream = error.http.as_ref().and_then(|http| http.upstream.clone());
        let http = error.http.map(Evidence::from);
        Self {
            code: error.code,
            message: error.message,
            class: error.class,
            http,
            upstream,
            retry_after_seconds: error.retry_after_seconds,
        }
    }
}

/// Not now.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = DeferRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeferBody {
    pub(crate) lease_token: i64,
    /// 0 to 30 days.
    pub(crate) seconds: f64,
    pub(crate) reason: String,
}

/// Given back.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ReleaseRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {
    pub(crate) lease_token: i64,
}

/// What became of an attempt that ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettledView {
    job_id: Uuid,
    status: StatusName,
    /// Of the newest failure; null after a success.
    class: Option<ClassName>,
    /// When the job is tried again; null where no retry can come.
    retry: Option<RetryView>,
    /// Whether the same end had been acknowledged before.
    repeated: bool,
}

impl From<Settled> for SettledView {
    fn from(Settled { job, repeated, now }: Settled) -> Self {
        Self {
            job_id: job.id.0,
            status: Named(job.status()),
            class: coolant_core::store::last_class(&job).map(Named),
            retry: RetryView::of(&job, now),
            repeated,
        }
    }
}

/// Many attempts that end.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SettleRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleBody {
    /// 1000 at most. Each is read by itself, so that one that cannot be read spoils no other.
    #[schema(value_type = Vec<SettlementBody>)]
    pub(crate) settlements: Vec<Value>,
}

/// One attempt that ends: with `result`, with `error`, or with `seconds` and `reason`, by its `outcome`.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = Settlement)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettlementBody {
    #[schema(format = Uuid)]
    pub(crate) job_id: String,
    pub(crate) lease_token: i64,
    outcome: SettleOutcome,
    result: Option<Value>,
    #[serde(default, deserialize_with = "object::maybe")]
    error: Option<ErrorBody>,
    seconds: Option<f64>,
    reason: Option<String>,
    #[serde(default, deserialize_with = "object::maybe")]
    usage: Option<UsageBody>,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SettleOutcome {
    Succeed,
    Fail,
    Defer,
    Release,
}

impl SettlementBody {
    pub(crate) fn read(self) -> Result<(LeaseToken, Settlement), Problem> {
        let needed = |field: &str| {
            let code = crate::http::problem::Code::Engine(crate::engine::Code::InvalidField);
            Problem::new(code, format!("`{field}` is needed for this outcome")).of_field(field)
        };
        let usage = self.usage.map(Into::into);
        let settlement = match self.outcome {
            SettleOutcome::Succeed => Settlement::Succeed { result: self.result.unwrap_or_default(), usage },
            SettleOutcome::Fail => {
                Settlement::Fail { error: self.error.ok_or_else(|| needed("error"))?.into(), usage }
            }
            SettleOutcome::Defer => Settlement::Defer {
                seconds: self.seconds.ok_or_else(|| needed("seconds"))?,
                reason: self.reason.ok_or_else(|| needed("reason"))?,
            },
            SettleOutcome::Release => Settlement::Release,
        };
        Ok((LeaseToken(self.lease_token), settlement))
    }
}

/// An answer to each settlement, in the order asked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleAnswer {
    pub(crate) results: Vec<SettleResult>,
}

/// What became of one settlement. With an `error` nothing changed, and the rest is null.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SettleResult {
    job_id: Option<Uuid>,
    status: Option<StatusName>,
    class: Option<ClassName>,
    retry: Option<RetryView>,
    repeated: Option<bool>,
    error: Option<Problem>,
}

impl SettleResult {
    pub(crate) fn of(job_id: Option<Uuid>, settled: Result<Settled, Problem>) -> Self {
        match settled.map(SettledView::from) {
            Ok(SettledView { job_id, status, class, retry, repeated }) => Self {
                job_id: Some(job_id),
                status: Some(status),
                class,
                retry,
                repeated: Some(repeated),
                error: None,
            },
            Err(problem) => Self { job_id, error: Some(problem), ..Self::default() },
        }
    }
}
