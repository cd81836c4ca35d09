//! The contract of a store of upstreams.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Breaker, Denied, Limits, Live, Meter, Permit, PermitId, PermitRequest, PermitSettlement, SettledPermit,
    Spending, UpstreamSettings,
};
use crate::lifecycle::Refusal;
use crate::names::{Credential, Tenant, Upstream};
use crate::store::{AuditEntry, StoreResult};
use crate::time::Timestamp;

/// An upstream as it is at an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamNow {
    /// Its name.
    pub name: Upstream,
    /// What an operator said about it.
    pub settings: UpstreamSettings,
    /// Whether it is open.
    pub breaker: Breaker,
    /// Whether its credential is.
    pub credential: Option<(Credential, Breaker)>,
    /// What is used of its limits.
    pub meter: Meter,
    /// What is in flight.
    pub live: Live,
    /// The store's time.
    pub now: Timestamp,
}

impl UpstreamNow {
    /// Its own breaker, or its credential's if that is closed, or closed for longer.
    #[must_use]
    pub fn narrower_breaker(&self) -> &Breaker {
        let until = |breaker: &Breaker| breaker.closure().map(|closure| closure.until);
        match &self.credential {
            Some((_, breaker)) if until(breaker) > until(&self.breaker) => breaker,
            _ => &self.breaker,
        }
    }

    /// Whether no job that names it may be claimed, but for a probe.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.narrower_breaker().closure().is_some()
    }
}

/// A tenant's limits as they are at an instant.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantNow {
    /// Its name.
    pub tenant: Tenant,
    /// How much it may use, over all upstreams.
    pub limits: Limits,
    /// What is used of them.
    pub meter: Meter,
    /// What is in flight.
    pub live: Live,
    /// The store's time.
    pub now: Timestamp,
}

/// What an operator does to an upstream by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Closes it for so long; a closure that lasts longer stays.
    Close {
        /// How long.
        wait: Duration,
        /// Why, for people.
        reason: String,
    },
    /// Opens it, and its credential.
    Open,
}

/// Why there is no permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPermit {
    /// The call may not begin.
    Denied(Denied),
    /// The attempt that it is for has lost its lease, or there is no such job.
    Refused(Refusal),
}

/// Keeps upstreams, permits and limits; a part of every store.
///
/// An upstream that nobody set is there as soon as something is told about it, open and without limits.
///
/// With `Store::apply` go, in one transaction: a failure that names an upstream (`Failure::upstream`) closes
/// it as [`Breaker::report`] says; the success of a job opens what it was the probe of; a call in a change's
/// usage that names a permit settles it. With `Store::claim`: a job is passed over while an upstream that it
/// names is closed or has spent its budget, or its tenant has; a claim that a breaker lets through one by one
/// (probe, ramp) is counted there.
#[async_trait]
pub trait UpstreamStore: Send + Sync + 'static {
    /// Sets what an operator says about an upstream. What is used and closed stays.
    async fn set_upstream(&self, name: &Upstream, settings: UpstreamSettings) -> StoreResult<UpstreamNow>;

    /// Those upstreams, or all; by name. One that nothing is known of is left out.
    async fn upstreams(&self, names: Option<&[Upstream]>) -> StoreResult<Vec<UpstreamNow>>;

    /// Closes or opens one by hand, and writes the audit entry.
    async fn control_upstream(
        &self,
        name: &Upstream,
        control: Control,
        audit: AuditEntry,
    ) -> StoreResult<UpstreamNow>;

    /// Sets a tenant's limits.
    async fn set_tenant(&self, tenant: &Tenant, limits: Limits) -> StoreResult<TenantNow>;

    /// A tenant's limits, if any were set.
    async fn tenant(&self, tenant: &Tenant) -> StoreResult<Option<TenantNow>>;

    /// Gives leave for paid calls; answers each in its place. However many ask at once, no limit is passed.
    /// Asking again under the same id gives the same permit and takes nothing.
    ///
    /// What a closure refuses counts as `Counter::BlockedStarts` in the job's queue, or the default one.
    async fn acquire_permits(
        &self,
        requests: Vec<PermitRequest>,
    ) -> StoreResult<Vec<Result<Permit, NoPermit>>>;

    /// What a permit was given for.
    async fn permit(&self, id: PermitId) -> StoreResult<Option<Spending>>;

    /// Takes the ends of paid calls; answers each in its place, `None` if there is no such permit. Settling
    /// again changes nothing. A late one, whose lease is lost, is booked all the same: it is paid.
    ///
    /// With it go, in one transaction: the ledger's row if the call was paid for
    /// (`PermitSettlement::is_paid`), the job's totals, what was spent, what closes or opens by it.
    async fn settle_permits(
        &self,
        settlements: Vec<PermitSettlement>,
    ) -> StoreResult<Vec<Option<SettledPermit>>>;

    /// Whether a breaker may let through now what it did not before, with nobody else having changed anything: a
    /// probe is due, or a ramp goes on. Then waiting workers are worth waking.
    async fn breakers_stir(&self) -> StoreResult<bool>;
}
