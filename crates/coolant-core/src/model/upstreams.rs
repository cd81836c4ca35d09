//! Upstreams and permits over maps.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::{ModelStore, State};
use crate::job::{Job, JobState};
use crate::lifecycle::{self, Event, Refusal};
use crate::money::Usage;
use crate::names::{Tenant, Upstream};
use crate::store::{AuditEntry, Counter, JobChange, StoreResult};
use crate::time::Timestamp;
use crate::upstream::{
    Breaker, Control, Denial, Denied, Desk, Limits, Live, NoPermit, PERMIT_LIFE, Permit, PermitId,
    PermitRequest, PermitSettlement, Report, SettledPermit, Spending, Starter, TenantNow, TenantRecord,
    UpstreamNow, UpstreamSettings, UpstreamStore, Verdict,
};

/// Upstreams and what hangs on them.
#[derive(Default)]
pub(super) struct Upstreams {
    pub(super) desk: Desk,
    permits: BTreeMap<PermitId, Kept>,
}

/// A permit that was given.
struct Kept {
    spending: Spending,
    expires_at: Timestamp,
    is_settled: bool,
}

impl State {
    fn holds(&self, kept: &Kept, now: Timestamp) -> bool {
        !kept.is_settled && self.lives(kept.spending.starter(), now)
    }

    /// Whether an attempt or a permit still holds.
    fn lives(&self, starter: Starter, now: Timestamp) -> bool {
        match starter {
            Starter::Job { id, token } => self.rows.get(&id).is_some_and(|row| {
                matches!(&row.job().state, JobState::Running { lease, .. }
                    if lease.token == token && lease.until > now)
            }),
            Starter::Permit(id) => {
                let kept = self.upstreams.permits.get(&id);
                kept.is_some_and(|kept| !kept.is_settled && kept.expires_at > now)
            }
        }
    }

    /// Brings what is derived up to date: what is in flight, and which probers live.
    pub(super) fn look_around(&mut self, now: Timestamp) {
        let live = |held: &dyn Fn(&Spending) -> bool| {
            let kept = self.upstreams.permits.values().filter(|kept| held(&kept.spending));
            kept.filter(|kept| self.holds(kept, now))
                .fold(Live::default(), |all, it| all.with(it.spending.tokens, it.spending.cost))
        };
        let desk = &self.upstreams.desk;
        let upstreams: Vec<_> =
            desk.upstreams.keys().map(|name| (name.clone(), live(&|it| it.upstream == *name))).collect();
        let tenants: Vec<_> =
            desk.tenants.keys().map(|name| (name.clone(), live(&|it| it.tenant == *name))).collect();
        let breakers =
            desk.upstreams.values().map(|upstream| &upstream.breaker).chain(desk.credentials.values());
        let living: BTreeSet<_> =
            breakers.filter_map(Breaker::prober).filter(|prober| self.lives(*prober, now)).collect();
        let desk = &mut self.upstreams.desk;
        desk.settle_down(now);
        desk.living = living;
        for (name, live) in upstreams {
            desk.upstreams.entry(name).or_default().live = live;
        }
        for (name, live) in tenants {
            desk.tenants.entry(name).or_default().live = live;
        }
    }

    /// What an attempt's end tells the upstreams.
    pub(super) fn tell_upstreams(&mut self, job: &Job, event: &Event, now: Timestamp) {
        match event {
            Event::Fail { token, failure, .. } => {
                let name = failure.upstream.clone().and_then(|name| Upstream::parse(name).ok());
                if let Some(name) = name {
                    let report = Report::of_attempt(failure, job.id, *token);
                    self.upstreams.desk.report(&name, &report, now);
                }
            }
            Event::Succeed { token, .. } => {
                let by = Starter::Job { id: job.id, token: *token };
                self.upstreams.desk.succeeded(&job.spec.upstreams, by, now);
            }
            _ => {}
        }
    }

    /// Settles the permits that an event's calls name, and leaves of the calls what is still to be booked.
    pub(super) fn settle_with(&mut self, event: &mut Event, now: Timestamp) {
        let Some(calls) = event.usage_mut() else { return };
        calls.retain(|call| {
            let Some(kept) = call.permit.and_then(|id| self.upstreams.permits.get_mut(&id)) else {
                return true;
            };
            if kept.is_settled {
                return false;
            }
            kept.is_settled = true;
            let verdict = Verdict::Ok { room: call.room.clone() };
            let settlement = PermitSettlement { id: kept.spending.id, verdict, usage: call.clone() };
            self.upstreams.desk.settle(&kept.spending, &settlement, now);
            true
        });
    }

    fn acquire(&mut self, request: &PermitRequest, now: Timestamp) -> Result<Permit, NoPermit> {
        if let Some(kept) = self.upstreams.permits.get(&request.id) {
            return Ok(Permit { id: request.id, expires_at: kept.expires_at });
        }
        let mut call = Spending::of(request);
        let (mut expires_at, mut claimed_at) = (now.plus(PERMIT_LIFE), None);
        if let Some((id, token)) = request.job {
            let row = self.rows.get(&id).ok_or(NoPermit::Refused(Refusal::NotFound))?;
            let job = row.job();
            let lease = lifecycle::paying_lease(job, token).map_err(NoPermit::Refused)?;
            call.tenant = job.spec.tenant.clone();
            expires_at = lease.until;
            claimed_at = job.spec.upstreams.contains(&request.upstream).then_some(lease.started_at);
            let out = self.upstreams.permits.values().filter(|kept| {
                kept.spending.job.is_some_and(|(owner, _)| owner == id) && self.holds(kept, now)
            });
            let calls = job.usage.calls.saturating_add(i64::try_from(out.count()).unwrap_or(i64::MAX));
            Denied::paid_call_limit(job, calls).map_or(Ok(()), |denied| Err(NoPermit::Denied(denied)))?;
        }
        self.look_around(now);
        self.upstreams.desk.acquire(&call, claimed_at, now).map_err(NoPermit::Denied)?;
        self.upstreams.permits.insert(call.id, Kept { spending: call, expires_at, is_settled: false });
        Ok(Permit { id: request.id, expires_at })
    }

    fn settle_permit(&mut self, settlement: &PermitSettlement, now: Timestamp) -> Option<SettledPermit> {
        let kept = self.upstreams.permits.get_mut(&settlement.id)?;
        if std::mem::replace(&mut kept.is_settled, true) {
            return Some(SettledPermit { class: settlement.class(), closed: None, repeated: true });
        }
        let call = kept.spending.clone();
        let closed = self.upstreams.desk.settle(&call, settlement, now);
        if settlement.is_paid() {
            self.book_call(&call, settlement.usage.clone(), now);
        }
        Some(SettledPermit { class: settlement.class(), closed, repeated: false })
    }

    fn book_call(&mut self, call: &Spending, usage: Usage, now: Timestamp) {
        let usage = Usage { upstream: Some(call.upstream.clone().into()), ..usage.booked() };
        match call.job {
            Some((id, token)) => {
                let event = Event::Pay { token, step: call.step.clone(), usage: vec![usage] };
                // A job that is there no more has nobody to book it for.
                let _ = self.apply(JobChange::new(id, event), now);
            }
            None => self.book_loose(call.loose(usage), now),
        }
    }

    fn upstream_now(&self, name: &Upstream, now: Timestamp) -> UpstreamNow {
        let record = self.upstreams.desk.upstreams.get(name).cloned().unwrap_or_default();
        let credential = record.settings.credential.clone().map(|name| {
            let breaker = self.upstreams.desk.credentials.get(&name).cloned().unwrap_or_default();
            (name, breaker)
        });
        UpstreamNow {
            name: name.clone(),
            settings: record.settings,
            breaker: record.breaker,
            credential,
            meter: record.meter,
            live: record.live,
            now,
        }
    }
}

#[async_trait]
impl UpstreamStore for ModelStore {
    async fn set_upstream(&self, name: &Upstream, settings: UpstreamSettings) -> StoreResult<UpstreamNow> {
        let (now, mut state) = (self.now(), self.state());
        if let Some(credential) = &settings.credential {
            state.upstreams.desk.credentials.entry(credential.clone()).or_default();
        }
        state.upstreams.desk.upstreams.entry(name.clone()).or_default().settings = settings;
        state.look_around(now);
        Ok(state.upstream_now(name, now))
    }

    async fn upstreams(&self, names: Option<&[Upstream]>) -> StoreResult<Vec<UpstreamNow>> {
        let (now, mut state) = (self.now(), self.state());
        state.look_around(now);
        let known: Vec<Upstream> = state.upstreams.desk.upstreams.keys().cloned().collect();
        let asked = known.iter().filter(|name| names.is_none_or(|names| names.contains(name)));
        Ok(asked.map(|name| state.upstream_now(name, now)).collect())
    }

    async fn control_upstream(
        &self,
        name: &Upstream,
        control: Control,
        audit: AuditEntry,
    ) -> StoreResult<UpstreamNow> {
        let (now, mut state) = (self.now(), self.state());
        state.upstreams.desk.control(name, &control, now);
        state.audit.push(AuditEntry { at: now, ..audit });
        state.look_around(now);
        Ok(state.upstream_now(name, now))
    }

    async fn set_tenant(&self, tenant: &Tenant, limits: Limits) -> StoreResult<TenantNow> {
        let (now, mut state) = (self.now(), self.state());
        state.upstreams.desk.tenants.entry(tenant.clone()).or_default().limits = limits;
        state.look_around(now);
        let record = &state.upstreams.desk.tenants[tenant];
        Ok(tenant_now(tenant, record, now))
    }

    async fn tenant(&self, tenant: &Tenant) -> StoreResult<Option<TenantNow>> {
        let (now, mut state) = (self.now(), self.state());
        state.look_around(now);
        Ok(state.upstreams.desk.tenants.get(tenant).map(|record| tenant_now(tenant, record, now)))
    }

    async fn acquire_permits(
        &self,
        requests: Vec<PermitRequest>,
    ) -> StoreResult<Vec<Result<Permit, NoPermit>>> {
        let (now, mut state) = (self.now(), self.state());
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let queue = request.job.and_then(|(id, _)| state.rows.get(&id));
            let queue = queue.map(|row| row.job().spec.queue.clone()).unwrap_or_default();
            let answer = state.acquire(&request, now);
            if matches!(&answer, Err(NoPermit::Denied(denied)) if denied.denial == Denial::UpstreamClosed) {
                state.count(Counter::BlockedStarts, queue, 1, now);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn permit(&self, id: PermitId) -> StoreResult<Option<Spending>> {
        Ok(self.state().upstreams.permits.get(&id).map(|kept| kept.spending.clone()))
    }

    async fn settle_permits(
        &self,
        settlements: Vec<PermitSettlement>,
    ) -> StoreResult<Vec<Option<SettledPermit>>> {
        let (now, mut state) = (self.now(), self.state());
        Ok(settlements.iter().map(|settlement| state.settle_permit(settlement, now)).collect())
    }

    async fn breakers_stir(&self) -> StoreResult<bool> {
        let (now, mut state) = (self.now(), self.state());
        state.look_around(now);
        Ok(state.upstreams.desk.stirs(now))
    }
}

fn tenant_now(tenant: &Tenant, record: &TenantRecord, now: Timestamp) -> TenantNow {
    let TenantRecord { limits, meter, live } = record.clone();
    TenantNow { tenant: tenant.clone(), limits, meter, live, now }
}
