//! Paid calls in the simulated world: workers that ask for leave, upstreams that fail, operators that close and
//! open, and callers that die in between.

use std::time::Duration;

use coolant_core::failure::Failure;
use coolant_core::lifecycle::Event;
use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::AuditEntry;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Left, Limits, NoPermit, Per, PermitId, PermitRequest, PermitSettlement, Rate, Room,
    UpstreamSettings, Verdict,
};
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use super::common::{paid, secs};
use super::world::{Work, World, at_once};

/// Those that jobs name.
pub const UPSTREAMS: [&str; 2] = ["u", "v"];

/// An entry of the audit trail that says nothing.
pub fn nobody() -> AuditEntry {
    let nothing = String::new;
    AuditEntry {
        at: Timestamp::default(),
        actor: nothing(),
        action: nothing(),
        target: nothing(),
        reason: nothing(),
    }
}

impl World {
    /// Upstreams with limits of all kinds, or none.
    pub fn set_limits(&mut self) {
        for name in UPSTREAMS {
            let name = Upstream::parse(name).unwrap();
            let rng = &mut self.rng;
            let limits = Limits {
                max_concurrent: rng.random_bool(0.7).then(|| rng.random_range(1..3)),
                requests: rng
                    .random_bool(0.5)
                    .then(|| Rate { amount: rng.random_range(10..60), per: Per::Minute }),
                tokens: None,
                budget_per_day: rng.random_bool(0.5).then(|| Money::from_nanos(rng.random_range(5..60))),
            };
            let settings = UpstreamSettings { limits: limits.clone(), credential: None };
            let _ = at_once(self.store.set_upstream(&name, settings));
            self.checks.limited(&name, limits);
        }
    }

    pub fn any_upstream(&mut self) -> Upstream {
        Upstream::parse(*UPSTREAMS.choose(&mut self.rng).unwrap()).unwrap()
    }

    pub fn at_an_upstream(&mut self) {
        match self.rng.random_range(0..10) {
            0 => self.operate(),
            1..4 => self.call_of_nobody(),
            _ => self.look_at_upstreams(),
        }
    }

    fn operate(&mut self) {
        let name = self.any_upstream();
        let control = match self.chance(50) {
            true => Control::Open,
            false => Control::Close { wait: secs(self.rng.random_range(1..200)), reason: "by hand".into() },
        };
        let _ = at_once(self.store.control_upstream(&name, control.clone(), nobody()));
        self.checks.controlled(&name, &control, self.clock.now());
    }

    pub fn look_at_upstreams(&mut self) {
        let upstreams = at_once(self.store.upstreams(None)).unwrap_or_default();
        self.checks.looked(&upstreams);
    }

    /// A call that belongs to no job; its caller may die before it ends.
    fn call_of_nobody(&mut self) {
        let upstream = self.any_upstream();
        if let Ok(permit) = self.ask(&upstream, None, None)
            && self.chance(60)
        {
            let room = self.room();
            self.settle(permit, Verdict::Ok { room });
        }
    }

    /// What an answer says is left, if it says anything. Not all providers are right about it.
    fn room(&mut self) -> Room {
        let mut left = |most| {
            let amount = self.rng.random_range(0..most);
            let is_stated = self.rng.random_bool(0.15);
            is_stated
                .then(|| Left { amount, reset_in: secs(self.rng.random_range(1..30)) })
                .into_iter()
                .collect()
        };
        Room { requests: left(4), tokens: left(200) }
    }

    /// Asks for leave to make a call, whose answer may be that there is none for now.
    fn ask(
        &mut self,
        upstream: &Upstream,
        work: Option<&Work>,
        step: Option<&str>,
    ) -> Result<PermitId, NoPermit> {
        let request = PermitRequest {
            id: PermitId(uuid::Uuid::from_u128(self.rng.random())),
            upstream: upstream.clone(),
            job: work.map(|work| (work.job_id, work.token)),
            tenant: Tenant::default(),
            step: step.map(str::to_owned),
            tokens: self.rng.random_range(1..100),
            cost: Money::from_nanos(self.rng.random_range(1..4)),
        };
        let answers = at_once(self.store.acquire_permits(vec![request.clone()])).unwrap_or_default();
        let answer = answers.into_iter().next().unwrap();
        if let Ok(permit) = &answer {
            self.checks.granted(&request, permit, self.clock.now());
        }
        answer.map(|permit| permit.id)
    }

    /// Tells the end of a call, once or twice. What it costs is no more than was reserved.
    fn settle(&mut self, id: PermitId, verdict: Verdict) {
        let settlement = PermitSettlement { id, verdict, usage: paid(1) };
        for _ in 0..if self.chance(20) { 2 } else { 1 } {
            let _ = at_once(self.store.settle_permits(vec![settlement.clone()]));
            self.checks.settled(&settlement, self.clock.now());
        }
    }

    /// Makes a step, by a paid call if the job names an upstream. What the worker says next.
    pub fn make_step(&mut self, work: &mut Work, step: &'static str, is_healthy: bool) -> Event {
        let Some(upstream) = work.upstreams.choose(&mut self.rng).cloned() else {
            return self.saves(work, step, vec![paid(1)]);
        };
        match self.ask(&upstream, Some(work), Some(step)) {
            Ok(permit) if is_healthy => {
                self.saves(work, step, vec![Usage { permit: Some(permit), ..paid(1) }])
            }
            Ok(permit) => self.call(work, step, &upstream, permit),
            Err(refused) => {
                work.left.push(step);
                let wait = match &refused {
                    NoPermit::Denied(denied) => denied.retry_after,
                    NoPermit::Refused(_) => None,
                };
                let wait = wait.unwrap_or(Duration::from_secs(1));
                Event::Defer { token: work.token, wait, reason: format!("{refused:?}"), usage: Vec::new() }
            }
        }
    }

    fn call(&mut self, work: &mut Work, step: &'static str, upstream: &Upstream, permit: PermitId) -> Event {
        match self.rng.random_range(0..100) {
            0..40 => {
                let room = self.room();
                self.saves(work, step, vec![Usage { permit: Some(permit), room, ..paid(1) }])
            }
            40..65 => {
                let room = self.room();
                self.settle(permit, Verdict::Ok { room });
                self.saves(work, step, Vec::new())
            }
            65..90 => {
                let failure = Failure { upstream: Some(upstream.to_string()), ..self.failure() };
                if self.chance(70) {
                    self.settle(permit, Verdict::Failed(failure.clone()));
                }
                work.left.push(step);
                Event::Fail { token: work.token, failure, jitter: 0.5, usage: Vec::new() }
            }
            // Nobody hears how it ended.
            _ => {
                work.left.push(step);
                Event::Release { token: work.token }
            }
        }
    }

    fn saves(&mut self, work: &Work, step: &str, usage: Vec<Usage>) -> Event {
        self.checks.paid(work.job_id, step);
        let output = json!([step, work.token.0]);
        Event::SaveStep { token: work.token, name: step.into(), output, usage }
    }
}
