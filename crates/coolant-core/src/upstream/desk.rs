//! The desk: upstreams, credentials and tenants as they are in hand, and everything that is done to them. A
//! store puts on it what it has locked, lets it decide, and keeps what it left.

use std::collections::{BTreeMap, BTreeSet};

use super::admit::{Ask, Denied, Live, Party, admit, close, settle};
use super::blockage::Blockage;
use super::breaker::{Allowance, Breaker, Closure, Report, Starter};
use super::limits::{Limits, UpstreamSettings};
use super::meter::{Meter, end_of_day};
use super::permit::{ClosedWhat, PermitSettlement, Spending};
use super::store::Control;
use crate::names::{Credential, Tenant, Upstream};
use crate::time::Timestamp;

/// An upstream in hand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UpstreamRecord {
    /// What an operator said about it.
    pub settings: UpstreamSettings,
    /// Whether it is open.
    pub breaker: Breaker,
    /// What is used of its limits.
    pub meter: Meter,
    /// What is in flight.
    pub live: Live,
}

impl UpstreamRecord {
    /// Whether a claim has to look at it.
    #[must_use]
    pub fn needs_care(&self, now: Timestamp) -> bool {
        self.breaker.needs_care() || self.meter.is_exhausted(&self.settings.limits, now)
    }
}

/// A tenant's limits in hand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantRecord {
    /// How much it may use, over all upstreams.
    pub limits: Limits,
    /// What is used of them.
    pub meter: Meter,
    /// What is in flight.
    pub live: Live,
}

/// All that is in hand. What is not on it counts as open and without limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Desk {
    /// Upstreams by name.
    pub upstreams: BTreeMap<Upstream, UpstreamRecord>,
    /// The breakers of credentials.
    pub credentials: BTreeMap<Credential, Breaker>,
    /// Tenants that have limits.
    pub tenants: BTreeMap<Tenant, TenantRecord>,
    /// Probers whose lease or permit still holds.
    pub living: BTreeSet<Starter>,
}

impl Desk {
    /// Lets a call begin, or says why not; then nothing is taken. `claimed_at`: when the attempt began, if its
    /// job names the upstream.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn acquire(
        &mut self,
        call: &Spending,
        claimed_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Denied> {
        let Self { upstreams, credentials, tenants, living } = self;
        let upstream = upstreams.entry(call.upstream.clone()).or_default();
        let lives = |breaker: &Breaker| breaker.prober().is_some_and(|prober| living.contains(&prober));
        let mut breakers = vec![(lives(&upstream.breaker), &mut upstream.breaker)];
        if let Some(name) = &upstream.settings.credential {
            let breaker = credentials.entry(name.clone()).or_default();
            breakers.push((lives(breaker), breaker));
        }
        let mut breakers: Vec<_> = breakers.into_iter().map(|(lives, breaker)| (breaker, lives)).collect();
        let tenant = tenants.get_mut(&call.tenant);
        let mut parties =
            parties(call, (&upstream.settings.limits, &mut upstream.meter, upstream.live), tenant);
        let ask = Ask { starter: call.starter(), claimed_at, tokens: call.tokens, cost: call.cost };
        admit(&mut breakers, &mut parties, &ask, now)?;
        upstream.live = upstream.live.with(call.tokens, call.cost);
        if let Some(tenant) = tenants.get_mut(&call.tenant) {
            tenant.live = tenant.live.with(call.tokens, call.cost);
        }
        living.insert(call.starter());
        Ok(())
    }

    /// Takes the end of a call. Gives what is closed by it, and until when.
    pub fn settle(
        &mut self,
        call: &Spending,
        settlement: &PermitSettlement,
        now: Timestamp,
    ) -> Option<(ClosedWhat, Timestamp)> {
        let upstream = self.upstreams.entry(call.upstream.clone()).or_default();
        let name = upstream.settings.credential.clone();
        let credential = name.map(|name| self.credentials.entry(name).or_default());
        let tenant = self.tenants.get_mut(&call.tenant);
        let mut parties =
            parties(call, (&upstream.settings.limits, &mut upstream.meter, upstream.live), tenant);
        settle(call, settlement, &mut upstream.breaker, credential, &mut parties, now)
    }

    /// Hears of a failed attempt. Gives what is closed by it, and until when.
    pub fn report(
        &mut self,
        name: &Upstream,
        report: &Report,
        now: Timestamp,
    ) -> Option<(ClosedWhat, Timestamp)> {
        let upstream = self.upstreams.entry(name.clone()).or_default();
        let credential = upstream.settings.credential.clone();
        let credential = credential.map(|name| self.credentials.entry(name).or_default());
        close(&mut upstream.breaker, credential, report, now)
    }

    /// Hears of a job that went well, and names these.
    pub fn succeeded(&mut self, names: &[Upstream], by: Starter, now: Timestamp) {
        self.each_breaker(names, |breaker| {
            breaker.succeed(by, now);
        });
    }

    /// How many jobs of that tenant that name these upstreams may be claimed.
    #[must_use]
    pub fn allowance(&self, names: &[Upstream], tenant: &Tenant, now: Timestamp) -> Allowance {
        if names.is_empty() {
            return Allowance::Any;
        }
        let tenant = self.tenants.get(tenant).is_some_and(|it| it.meter.is_exhausted(&it.limits, now));
        let known = names.iter().filter_map(|name| self.upstreams.get(name));
        known.fold(money(tenant, now), |all, upstream| all.and(self.allowance_of(upstream, now)))
    }

    /// How many jobs that name it each upstream on the desk lets through, whoever's they are.
    pub fn allowances(&self, now: Timestamp) -> impl Iterator<Item = (&Upstream, Allowance)> {
        self.upstreams.iter().map(move |(name, upstream)| (name, self.allowance_of(upstream, now)))
    }

    fn allowance_of(&self, upstream: &UpstreamRecord, now: Timestamp) -> Allowance {
        let lives = |breaker: &Breaker| breaker.prober().is_some_and(|prober| self.living.contains(&prober));
        let of = |breaker: &Breaker| breaker.allowance(lives(breaker), now);
        let credential = upstream.settings.credential.as_ref().and_then(|it| self.credentials.get(it));
        of(&upstream.breaker)
            .and(credential.map_or(Allowance::Any, of))
            .and(money(upstream.meter.is_exhausted(&upstream.settings.limits, now), now))
    }

    /// The upstreams on the desk that let no job start, each with what has done so for the longest.
    #[must_use]
    pub fn blocked_upstreams(&self, now: Timestamp) -> BTreeMap<&Upstream, Blockage> {
        let blocked = |(name, upstream)| Some((name, self.blockage_of(name, upstream, now)?));
        self.upstreams.iter().filter_map(blocked).collect()
    }

    fn blockage_of(&self, name: &Upstream, upstream: &UpstreamRecord, now: Timestamp) -> Option<Blockage> {
        let UpstreamRecord { settings, breaker, meter, .. } = upstream;
        let credential = settings.credential.as_ref().and_then(|it| self.credentials.get(it));
        let closed = std::iter::once(breaker)
            .chain(credential)
            .filter_map(|breaker| Blockage::by_breaker(name, breaker, now));
        let spent = Blockage::by_budget(&format!("upstream `{name}`"), meter, &settings.limits, now);
        closed.chain(spent).min_by_key(|blockage| blockage.since)
    }

    /// The tenants on the desk that let none of their jobs that name an upstream start.
    #[must_use]
    pub fn blocked_tenants(&self, now: Timestamp) -> BTreeMap<&Tenant, Blockage> {
        let blocked = |(name, tenant): (_, &TenantRecord)| {
            let whose = format!("tenant `{name}`");
            Some((name, Blockage::by_budget(&whose, &tenant.meter, &tenant.limits, now)?))
        };
        self.tenants.iter().filter_map(blocked).collect()
    }

    /// Notes what time alone has changed.
    pub fn settle_down(&mut self, now: Timestamp) {
        for upstream in self.upstreams.values_mut() {
            upstream.breaker.settle_down(now);
            upstream.meter.notice(&upstream.settings.limits, now);
        }
        self.credentials.values_mut().for_each(|breaker| breaker.settle_down(now));
        self.tenants.values_mut().for_each(|tenant| tenant.meter.notice(&tenant.limits, now));
    }

    /// A job that names these upstreams was claimed.
    pub fn start(&mut self, names: &[Upstream], by: Starter, now: Timestamp) {
        self.each_breaker(names, |breaker| breaker.start(by, now));
        self.living.insert(by);
    }

    /// Whether a breaker may let through now what it did not before, with nobody else having changed anything.
    #[must_use]
    pub fn stirs(&self, now: Timestamp) -> bool {
        let stirs = |breaker: &Breaker| {
            let lives = breaker.prober().is_some_and(|prober| self.living.contains(&prober));
            matches!(breaker.allowance(lives, now), Allowance::AtMost(_))
        };
        self.upstreams.values().map(|upstream| &upstream.breaker).chain(self.credentials.values()).any(stirs)
    }

    /// Does what an operator says.
    pub fn control(&mut self, name: &Upstream, control: &Control, now: Timestamp) {
        match control {
            Control::Close { wait, reason } => {
                let closure = Closure {
                    until: now.plus(*wait),
                    stated_until: None,
                    class: None,
                    code: "UPSTREAM_CLOSED".into(),
                    reason: reason.clone(),
                };
                self.upstreams.entry(name.clone()).or_default().breaker.close(closure, now);
            }
            Control::Open => {
                self.upstreams.entry(name.clone()).or_default();
                self.each_breaker(std::slice::from_ref(name), |breaker| {
                    breaker.reopen(now);
                });
            }
        }
    }

    /// The breakers that these upstreams stand behind, each once: their own and those of their credentials.
    fn each_breaker(&mut self, names: &[Upstream], mut touch: impl FnMut(&mut Breaker)) {
        let mut credentials = BTreeSet::new();
        for name in names.iter().collect::<BTreeSet<_>>() {
            let Some(upstream) = self.upstreams.get_mut(name) else { continue };
            credentials.extend(upstream.settings.credential.clone());
            touch(&mut upstream.breaker);
        }
        for name in credentials {
            if let Some(breaker) = self.credentials.get_mut(&name) {
                touch(breaker);
            }
        }
    }
}

/// What a budget lets through.
const fn money(is_exhausted: bool, now: Timestamp) -> Allowance {
    if is_exhausted { Allowance::Nothing(Some(end_of_day(now))) } else { Allowance::Any }
}

fn parties<'a>(
    call: &Spending,
    upstream: (&'a Limits, &'a mut Meter, Live),
    tenant: Option<&'a mut TenantRecord>,
) -> Vec<Party<'a>> {
    let (limits, meter, live) = upstream;
    let tenant = tenant.map(|TenantRecord { limits, meter, live }| Party {
        name: format!("tenant `{}`", call.tenant),
        limits,
        meter,
        live: *live,
    });
    let upstream = Party { name: format!("upstream `{}`", call.upstream), limits, meter, live };
    std::iter::once(upstream).chain(tenant).collect()
}
