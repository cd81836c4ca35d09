//! Upstreams and their permits with as little said as a case needs.

use std::ops::Range;
use std::sync::Arc;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::JobSpec;
use coolant_core::lifecycle::Event;
use coolant_core::money::{Money, Usage};
use coolant_core::names::Upstream;
use coolant_core::store::Store;
use coolant_core::upstream::{
    Denial, Limits, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement, Room, SettledPermit,
    UpstreamNow, UpstreamSettings, Verdict,
};
use uuid::Uuid;

use super::Subject;
use super::kit::{failure, id, job_with, secs, tenant, token};

pub(super) fn upstream(name: &str) -> Upstream {
    Upstream::parse(name).unwrap()
}

pub(super) fn of(name: &'static str) -> impl Fn(&mut JobSpec) {
    move |spec| spec.upstreams = vec![upstream(name)]
}

pub(super) fn usd(dollars: f64) -> Money {
    Money::from_usd(dollars).unwrap()
}

pub(super) fn permit(n: u32) -> PermitId {
    PermitId(Uuid::from_u128(0x0190_0000_0000_7000_9000_0000_0000_0000 | u128::from(n)))
}

/// Asks number `n` for a call of `u`.
pub(super) fn ask(n: u32, job: Option<u32>, cost: f64) -> PermitRequest {
    PermitRequest {
        id: permit(n),
        upstream: upstream("u"),
        job: job.map(|n| (id(n), token(1))),
        tenant: tenant("default"),
        step: None,
        tokens: 0,
        cost: usd(cost),
    }
}

pub(super) fn ok(n: u32, cost: f64) -> PermitSettlement {
    let usage = Usage { cost: Some(usd(cost)), input_tokens: 7, ..Usage::default() };
    PermitSettlement { id: permit(n), verdict: Verdict::Ok { room: Room::default() }, usage }
}

pub(super) fn failed(n: u32, class: FailureClass) -> PermitSettlement {
    let verdict = Verdict::Failed(failure(class));
    PermitSettlement { id: permit(n), verdict, usage: Usage::default() }
}

/// The end of an attempt at `u`, whose answer stated that wait.
pub(super) fn refused_by(n: i64, name: &str, class: FailureClass, wait: Option<u64>) -> Event {
    let failure = Failure { upstream: Some(name.into()), retry_after: wait.map(secs), ..failure(class) };
    Event::Fail { token: token(n), failure, jitter: 0.0, usage: Vec::new() }
}

pub(super) fn limits(change: impl FnOnce(&mut Limits)) -> UpstreamSettings {
    let mut limits = Limits::default();
    change(&mut limits);
    UpstreamSettings { limits, credential: None }
}

pub(super) async fn acquire(store: &Arc<dyn Store>, request: PermitRequest) -> Result<Permit, NoPermit> {
    store.acquire_permits(vec![request]).await.unwrap().pop().unwrap()
}

pub(super) fn denial(answer: &Result<Permit, NoPermit>) -> Option<Denial> {
    match answer {
        Err(NoPermit::Denied(denied)) => Some(denied.denial),
        _ => None,
    }
}

impl Subject {
    pub(super) async fn set(&self, settings: UpstreamSettings) -> UpstreamNow {
        self.store.set_upstream(&upstream("u"), settings).await.unwrap()
    }

    pub(super) async fn upstream(&self, name: &str) -> UpstreamNow {
        self.twin.upstreams(Some(&[upstream(name)])).await.unwrap().pop().expect("it is known")
    }

    pub(super) async fn permit(&self, request: PermitRequest) -> Result<Permit, NoPermit> {
        acquire(&self.store, request).await
    }

    pub(super) async fn settle(&self, settlement: PermitSettlement) -> Option<SettledPermit> {
        self.store.settle_permits(vec![settlement]).await.unwrap().pop().unwrap()
    }

    /// Jobs `from..to` that name `u`.
    pub(super) async fn jobs_of_u(&self, numbers: Range<u32>) {
        self.submit_all(numbers.map(|n| job_with(n, of("u"))).collect()).await;
    }

    /// Closes `u` by the failure of job 1.
    pub(super) async fn close_u(&self, wait: u64) {
        self.jobs_of_u(1..2).await;
        self.claim_one().await;
        self.done(id(1), refused_by(1, "u", FailureClass::RateLimited, Some(wait))).await;
    }
}
