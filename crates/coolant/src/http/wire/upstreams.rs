//! Upstreams, permits and limits as users see them.

use coolant_core::job::LeaseToken;
use coolant_core::money::Money;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    BreakerState, ClosedWhat, Limits, Live, Meter, Per, Permit, PermitId, SettledPermit, TenantNow,
    UpstreamNow,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::named::{ClassName, Named};
use super::object;
use super::time::Time;
use super::work::{EvidenceBody, UsageBody};
use crate::engine::classify::ErrorReport;
use crate::engine::upstreams::{CallReport, LimitsRequest, PermitAsk};
use crate::http::problem::{Code, Problem, job_id};

/// Limits that hold over all processes. Null or left out: no limit.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = LimitsRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsBody {
    /// Calls in flight.
    max_concurrent: Option<i64>,
    /// Calls begun; a tenth of them, at least 1, at once.
    requests_per_minute: Option<i64>,
    /// The same by the second, in place of `requests_per_minute`.
    requests_per_second: Option<i64>,
    /// Tokens in and out together.
    tokens_per_minute: Option<i64>,
    /// Days are UTC.
    budget_usd_per_day: Option<f64>,
}

impl From<LimitsBody> for LimitsRequest {
    fn from(body: LimitsBody) -> Self {
        Self {
            max_concurrent: body.max_concurrent,
            requests_per_minute: body.requests_per_minute,
            requests_per_second: body.requests_per_second,
            tokens_per_minute: body.tokens_per_minute,
            budget_usd_per_day: body.budget_usd_per_day,
        }
    }
}

/// What an operator says about an upstream. Null or left out: no limit.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UpstreamRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamBody {
    /// Calls in flight.
    max_concurrent: Option<i64>,
    /// Calls begun; a tenth of them, at least 1, at once.
    requests_per_minute: Option<i64>,
    /// The same by the second, in place of `requests_per_minute`.
    requests_per_second: Option<i64>,
    /// Tokens in and out together.
    tokens_per_minute: Option<i64>,
    /// Days are UTC.
    budget_usd_per_day: Option<f64>,
    /// The name of the key that it is paid with, never the key: upstreams of one credential close together
    /// when it is refused or has no money.
    credential: Option<String>,
}

impl UpstreamBody {
    pub(crate) fn read(self) -> (LimitsRequest, Option<String>) {
        let limits = LimitsRequest {
            max_concurrent: self.max_concurrent,
            requests_per_minute: self.requests_per_minute,
            requests_per_second: self.requests_per_second,
            tokens_per_minute: self.tokens_per_minute,
            budget_usd_per_day: self.budget_usd_per_day,
        };
        (limits, self.credential)
    }
}

/// Closed by hand.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = CloseUpstreamRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloseBody {
    /// 0.001 to 2592000. Then one probe goes.
    pub(crate) seconds: f64,
    /// For people and the audit trail: 1 to 1000 bytes on one line.
    pub(crate) reason: String,
}

/// Opened by hand.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = OpenUpstreamRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenBody {
    /// For the audit trail: 1000 bytes at most.
    pub(crate) reason: Option<String>,
}

/// A paid call that somebody wants to make.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PermitRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermitBody {
    /// The job that it is for, with its `lease_token`.
    #[schema(format = Uuid)]
    job_id: Option<String>,
    lease_token: Option<i64>,
    /// The step that it makes.
    step: Option<String>,
    /// Tokens in and out, at most; 0 if left out.
    estimated_tokens: Option<i64>,
    /// At most. A budget reserves it.
    estimated_cost_usd: Option<f64>,
}

impl PermitBody {
    pub(crate) fn read(self) -> Result<PermitAsk, Problem> {
        let missing = |field: &str| {
            let code = Code::Engine(crate::engine::Code::InvalidField);
            Problem::new(code, format!("`{field}` is needed with the other of `job_id` and `lease_token`"))
                .of_field(field)
        };
        let job = match (&self.job_id, self.lease_token) {
            (None, None) => None,
            (Some(id), Some(token)) => Some((job_id("job_id", id)?, LeaseToken(token))),
            (Some(_), None) => return Err(missing("lease_token")),
            (None, Some(_)) => return Err(missing("job_id")),
        };
        Ok(PermitAsk {
            job,
            step: self.step,
            estimated_tokens: self.estimated_tokens,
            estimated_cost_usd: self.estimated_cost_usd,
        })
    }
}

/// Leave to make one paid call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Permit)]
pub(crate) struct PermitView {
    permit_id: Uuid,
    /// When what it reserves comes back, unless the job's lease is renewed.
    expires_at: Time,
}

impl From<Permit> for PermitView {
    fn from(permit: Permit) -> Self {
        Self { permit_id: permit.id.0, expires_at: Time(permit.expires_at) }
    }
}

/// How a paid call ended.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SettlePermitRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettlePermitBody {
    outcome: CallOutcome,
    /// What it left behind. Of an error Coolant reads the class from it; of an answer that went well, how much
    /// its headers say is left.
    #[serde(default, deserialize_with = "object::maybe")]
    http: Option<EvidenceBody>,
    #[serde(default, deserialize_with = "object::maybe")]
    usage: Option<UsageBody>,
}

/// Whether a call went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallOutcome {
    Ok,
    Error,
}

impl From<SettlePermitBody> for CallReport {
    fn from(body: SettlePermitBody) -> Self {
        Self {
            ok: body.outcome == CallOutcome::Ok,
            error: ErrorReport { http: body.http.map(Into::into), ..ErrorReport::default() },
            usage: body.usage.map(Into::into),
        }
    }
}

/// What a settle did.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SettledPermit)]
pub(crate) struct SettledPermitView {
    permit_id: Uuid,
    /// Of the error; null if it went well.
    class: Option<ClassName>,
    /// What is closed now, if anything is.
    closed: Option<ClosedView>,
    /// Whether it had been settled before.
    repeated: bool,
}

/// What a report has closed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Closed)]
pub(crate) struct ClosedView {
    what: ClosedName,
    until: Time,
}

/// The upstream, or all that is paid with the same key.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClosedName {
    Upstream,
    Credential,
}

impl SettledPermitView {
    pub(crate) fn of(id: PermitId, settled: &SettledPermit) -> Self {
        let closed = settled.closed.map(|(what, until)| ClosedView {
            what: match what {
                ClosedWhat::Upstream => ClosedName::Upstream,
                ClosedWhat::Credential => ClosedName::Credential,
            },
            until: Time(until),
        });
        Self { permit_id: id.0, class: settled.class.map(Named), closed, repeated: settled.repeated }
    }
}

/// Limits as they are set; null is no limit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limits)]
pub(crate) struct LimitsView {
    max_concurrent: Option<u32>,
    requests_per_minute: Option<u32>,
    requests_per_second: Option<u32>,
    tokens_per_minute: Option<u32>,
    budget_usd_per_day: Option<f64>,
}

impl From<&Limits> for LimitsView {
    fn from(limits: &Limits) -> Self {
        let requests = |per| limits.requests.filter(|rate| rate.per == per).map(|rate| rate.amount);
        Self {
            max_concurrent: limits.max_concurrent,
            requests_per_minute: requests(Per::Minute),
            requests_per_second: requests(Per::Second),
            tokens_per_minute: limits.tokens.map(|rate| rate.amount),
            budget_usd_per_day: limits.budget_per_day.map(Money::as_usd),
        }
    }
}

/// What is used of limits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LimitsUsed)]
pub(crate) struct UsedView {
    /// Calls that hold a permit.
    in_flight: u32,
    /// Calls begun since the minute began.
    requests_this_minute: u64,
    /// Their tokens, estimated until they are settled.
    tokens_this_minute: u64,
    /// By settled calls, since the day began (UTC).
    spent_today_usd: f64,
    /// By calls in flight.
    reserved_usd: f64,
}

impl UsedView {
    fn of(meter: &Meter, live: Live, now: Timestamp) -> Self {
        let (requests_this_minute, tokens_this_minute) = meter.used_this_minute(now);
        Self {
            in_flight: live.permits,
            requests_this_minute,
            tokens_this_minute,
            spent_today_usd: meter.spent_today(now).as_usd(),
            reserved_usd: live.reserved.as_usd(),
        }
    }
}

/// Whether an upstream is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamStateName {
    Open,
    Closed,
    Probing,
}

impl UpstreamStateName {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Probing => "probing",
        }
    }
}

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Upstream)]
pub(crate) struct UpstreamView {
    pub(crate) name: String,
    pub(crate) state: UpstreamStateName,
    /// When the probe goes, or the later end that was stated; null while it is open.
    pub(crate) closed_until: Option<Time>,
    /// Why it is closed.
    pub(crate) reason: Option<String>,
    /// The class of the failure that closed it; null if an operator did.
    class: Option<ClassName>,
    /// Whether a person has to act: pay, renew a key, ask for access.
    pub(crate) needs_operator: bool,
    /// It has just opened, and lets only a few start in each second.
    ramping_up: bool,
    credential: Option<String>,
    limits: LimitsView,
    #[serde(flatten)]
    used: UsedView,
}

impl From<UpstreamNow> for UpstreamView {
    fn from(upstream: UpstreamNow) -> Self {
        let breaker = upstream.narrower_breaker();
        let closure = breaker.closure();
        Self {
            state: match &breaker.state {
                BreakerState::Open | BreakerState::Ramp { .. } => UpstreamStateName::Open,
                BreakerState::Closed(_) => UpstreamStateName::Closed,
                BreakerState::Probing { .. } => UpstreamStateName::Probing,
            },
            closed_until: closure.map(|closure| Time(closure.shown_until())),
            reason: closure.map(|closure| closure.reason.clone()),
            class: closure.and_then(|closure| closure.class).map(Named),
            needs_operator: closure.is_some_and(coolant_core::upstream::Closure::needs_operator),
            ramping_up: matches!(breaker.state, BreakerState::Ramp { .. }),
            credential: upstream.settings.credential.as_ref().map(ToString::to_string),
            limits: (&upstream.settings.limits).into(),
            used: UsedView::of(&upstream.meter, upstream.live, upstream.now),
            name: upstream.name.into(),
        }
    }
}

impl UpstreamView {
    /// What it has in flight and spent, for a table.
    pub(crate) const fn in_flight_and_spent(&self) -> (u32, f64) {
        (self.used.in_flight, self.used.spent_today_usd)
    }
}

/// A tenant with limits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    tenant: String,
    limits: LimitsView,
    #[serde(flatten)]
    used: UsedView,
}

impl From<TenantNow> for TenantView {
    fn from(TenantNow { tenant, limits, meter, live, now }: TenantNow) -> Self {
        Self { tenant: tenant.into(), limits: (&limits).into(), used: UsedView::of(&meter, live, now) }
    }
}
