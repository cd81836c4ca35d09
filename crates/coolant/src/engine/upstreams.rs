//! Upstreams, permits and budgets: what users ask of them. What is let through, `coolant_core::upstream` says.

use std::time::Duration;

use coolant_core::evidence;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobId, LeaseToken};
use coolant_core::money::Money;
use coolant_core::names::{Credential, StepName, Tenant, Upstream};
use coolant_core::store::{AuditEntry, StoreError};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Limits, NoPermit, Per, Permit, PermitId, PermitRequest, PermitSettlement, Rate, Room,
    SettledPermit, TenantNow, UpstreamNow, UpstreamSettings, Verdict,
};
use uuid::Uuid;

use super::bill::UsageReport;
use super::classify::{ErrorReport, classify};
use super::control::checked_reason;
use super::submit::{seconds, whole};
use super::{Caller, Engine, EngineError, EngineResult};

/// How long an upstream may be closed by hand.
const CLOSE_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
/// The largest rate, concurrency and estimate of tokens.
const MOST: i64 = 1_000_000_000;
/// The largest budget and estimate of money, in dollars.
const MOST_USD: f64 = 1e6;

/// Limits as an operator writes them. `None` is no limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LimitsRequest {
    /// Calls in flight.
    pub max_concurrent: Option<i64>,
    /// Calls begun in a minute.
    pub requests_per_minute: Option<i64>,
    /// Or in a second.
    pub requests_per_second: Option<i64>,
    /// Tokens in and out in a minute.
    pub tokens_per_minute: Option<i64>,
    /// Dollars a day, by UTC.
    pub budget_usd_per_day: Option<f64>,
}

/// A paid call that somebody wants to make.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PermitAsk {
    /// The attempt it is for.
    pub job: Option<(JobId, LeaseToken)>,
    /// The step it makes.
    pub step: Option<String>,
    /// Tokens in and out, at most.
    pub estimated_tokens: Option<i64>,
    /// Dollars, at most.
    pub estimated_cost_usd: Option<f64>,
}

/// How a paid call ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallReport {
    /// With a usable answer.
    pub ok: bool,
    /// What it left behind.
    pub error: ErrorReport,
    /// What it used.
    pub usage: Option<UsageReport>,
}

impl Engine {
    /// All upstreams that anything is known of, by name.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn upstreams(&self) -> EngineResult<Vec<UpstreamNow>> {
        Ok(self.parts.store.upstreams(None).await?)
    }

    /// One upstream.
    ///
    /// # Errors
    /// If nothing is known of it.
    pub async fn upstream(&self, name: &str) -> EngineResult<UpstreamNow> {
        let name = Upstream::parse(name)?;
        let found = self.parts.store.upstreams(Some(&[name])).await?.pop();
        found.ok_or(EngineError::UpstreamNotFound)
    }

    /// Sets an upstream's limits, all of them, and its credential.
    ///
    /// # Errors
    /// If one is out of bounds.
    pub async fn set_upstream(
        &self,
        name: &str,
        limits: LimitsRequest,
        credential: Option<String>,
    ) -> EngineResult<UpstreamNow> {
        let name = Upstream::parse(name)?;
        let settings = UpstreamSettings {
            limits: checked(&limits)?,
            credential: credential.map(Credential::parse).transpose()?,
        };
        let set = self.parts.store.set_upstream(&name, settings).await?;
        // A larger limit may let somebody go on.
        self.parts.bell.ring();
        Ok(set)
    }

    /// Closes one by hand. Audited.
    ///
    /// # Errors
    /// If the seconds or the reason are out of bounds.
    pub async fn close_upstream(
        &self,
        caller: &Caller,
        name: &str,
        wait: f64,
        reason: &str,
    ) -> EngineResult<UpstreamNow> {
        let wait = seconds("seconds", Some(wait), CLOSE_RANGE)?.unwrap_or_default();
        let control = Control::Close { wait, reason: checked_reason(reason)? };
        self.control(caller, name, control, "upstream.closed", reason).await
    }

    /// Opens one by hand, and its credential. Audited.
    ///
    /// # Errors
    /// If the reason is out of bounds.
    pub async fn open_upstream(
        &self,
        caller: &Caller,
        name: &str,
        reason: Option<&str>,
    ) -> EngineResult<UpstreamNow> {
        let reason = reason.map(checked_reason).transpose()?.unwrap_or_default();
        self.control(caller, name, Control::Open, "upstream.opened", &reason).await
    }

    async fn control(
        &self,
        caller: &Caller,
        name: &str,
        control: Control,
        action: &str,
        reason: &str,
    ) -> EngineResult<UpstreamNow> {
        let name = Upstream::parse(name)?;
        let audit = AuditEntry {
            // The store sets its own time.
            at: Timestamp::default(),
            actor: caller.actor.clone(),
            action: action.to_owned(),
            target: name.to_string(),
            reason: reason.to_owned(),
        };
        let now = self.parts.store.control_upstream(&name, control, audit).await?;
        self.parts.bell.ring();
        Ok(now)
    }

    /// Sets a tenant's limits, over all upstreams.
    ///
    /// # Errors
    /// If one is out of bounds, or the caller is bound to another tenant.
    pub async fn set_tenant(
        &self,
        caller: &Caller,
        tenant: &str,
        limits: LimitsRequest,
    ) -> EngineResult<TenantNow> {
        let tenant = Tenant::parse(tenant)?;
        if !caller.sees(&tenant) {
            return Err(EngineError::TenantNotFound);
        }
        let set = self.parts.store.set_tenant(&tenant, checked(&limits)?).await?;
        self.parts.bell.ring();
        Ok(set)
    }

    /// A tenant's limits.
    ///
    /// # Errors
    /// If none were set.
    pub async fn tenant(&self, caller: &Caller, tenant: &str) -> EngineResult<TenantNow> {
        let tenant = Tenant::parse(tenant)?;
        let found = self.parts.store.tenant(&tenant).await?;
        found.filter(|found| caller.sees(&found.tenant)).ok_or(EngineError::TenantNotFound)
    }

    /// Leave to make one paid call.
    ///
    /// # Errors
    /// [`EngineError::Denied`] with when to ask again; that the lease is lost; what is out of bounds.
    pub async fn permit(&self, caller: &Caller, upstream: &str, ask: PermitAsk) -> EngineResult<Permit> {
        if let Some((id, _)) = ask.job
            && caller.tenant.is_some()
        {
            self.visible(caller, id).await?;
        }
        let tokens = whole::<u64>("estimated_tokens", ask.estimated_tokens, 0..=MOST)?;
        let request = PermitRequest {
            id: PermitId(Uuid::now_v7()),
            upstream: Upstream::parse(upstream)?,
            job: ask.job,
            tenant: caller.own_tenant(),
            step: ask.step.map(StepName::parse).transpose()?.map(String::from),
            tokens: tokens.unwrap_or_default(),
            cost: dollars("estimated_cost_usd", ask.estimated_cost_usd)?.unwrap_or_default(),
        };
        let answer = self.parts.store.acquire_permits(vec![request]).await?.pop();
        match answer.ok_or_else(|| unanswered("a request for a permit"))? {
            Ok(permit) => Ok(permit),
            Err(NoPermit::Denied(denied)) => Err(EngineError::Denied(denied)),
            Err(NoPermit::Refused(refusal)) => {
                let id = ask.job.map_or_else(super::new_id, |(id, _)| id);
                Err(EngineError::refused(&refusal, id, self.parts.store.now().await?))
            }
        }
    }

    /// Takes the end of a paid call.
    ///
    /// # Errors
    /// If there is no such permit, or something in the report is out of bounds.
    pub async fn settle_permit(
        &self,
        caller: &Caller,
        id: PermitId,
        report: CallReport,
    ) -> EngineResult<SettledPermit> {
        let call = self.parts.store.permit(id).await?.filter(|call| caller.sees(&call.tenant));
        let call = call.ok_or(EngineError::PermitNotFound)?;
        let now = self.parts.store.now().await?;
        let used = report.usage.unwrap_or_default();
        let used = UsageReport { upstream: Some(call.upstream.to_string()), ..used };
        let mut usage = self.paid(Some(used), now)?.pop().unwrap_or_default();
        let verdict = match report.ok {
            true => Verdict::Ok { room: room(report.error.http.as_ref(), now) },
            false => Verdict::Failed(failure(report.error, &call.upstream, now)?),
        };
        if let Verdict::Failed(failure) = &verdict {
            usage.failed.get_or_insert(failure.class);
        }
        self.settle_call(PermitSettlement { id, verdict, usage }).await
    }

    async fn settle_call(&self, settlement: PermitSettlement) -> EngineResult<SettledPermit> {
        let answer = self.parts.store.settle_permits(vec![settlement]).await?.pop();
        let settled = answer.ok_or_else(|| unanswered("a settle"))?.ok_or(EngineError::PermitNotFound)?;
        // Room for the next call, or an upstream that has opened.
        self.parts.bell.ring();
        Ok(settled)
    }
}

/// Whether an upstream's money of today is spent.
pub(super) fn is_exhausted(upstream: &UpstreamNow) -> bool {
    upstream.meter.is_exhausted(&upstream.settings.limits, upstream.now)
}

fn unanswered(what: &str) -> EngineError {
    StoreError::Broken(format!("{what} was left without an answer")).into()
}

/// What an answer says is left of its provider's limits.
fn room(http: Option<&evidence::Evidence>, now: Timestamp) -> Room {
    http.map(|http| evidence::room(http, Some(now.into()))).unwrap_or_default()
}

fn failure(mut error: ErrorReport, upstream: &Upstream, now: Timestamp) -> EngineResult<Failure> {
    error.upstream = Some(upstream.to_string());
    if error.http.is_none() && error.class.is_none() {
        error.class = Some(FailureClass::HandlerError.as_str().to_owned());
    }
    classify(&error, now)
}

fn checked(limits: &LimitsRequest) -> EngineResult<Limits> {
    let rate = |field, amount, per| -> EngineResult<Option<Rate>> {
        Ok(whole::<u32>(field, amount, 1..=MOST)?.map(|amount| Rate { amount, per }))
    };
    let per_minute = rate("requests_per_minute", limits.requests_per_minute, Per::Minute)?;
    let per_second = rate("requests_per_second", limits.requests_per_second, Per::Second)?;
    if per_minute.is_some() && per_second.is_some() {
        let reason = "is not taken together with `requests_per_minute`";
        return Err(EngineError::field("requests_per_second", reason));
    }
    Ok(Limits {
        max_concurrent: whole::<u32>("max_concurrent", limits.max_concurrent, 0..=MOST)?,
        requests: per_minute.or(per_second),
        tokens: rate("tokens_per_minute", limits.tokens_per_minute, Per::Minute)?,
        budget_per_day: dollars("budget_usd_per_day", limits.budget_usd_per_day)?,
    })
}

fn dollars(field: &str, usd: Option<f64>) -> EngineResult<Option<Money>> {
    let Some(usd) = usd else { return Ok(None) };
    let money = Money::from_usd(usd).filter(|_| usd <= MOST_USD);
    money.map(Some).ok_or_else(|| EngineError::field(field, format!("takes 0 to {MOST_USD} dollars")))
}
