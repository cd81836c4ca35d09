//! Workers that crash, stall and repeat themselves, clients that insist, a network that loses and doubles
//! messages, and a clock that jumps. All of it from one seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobId, JobSpec, LeaseToken, Policy};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::model::ManualClock;
use coolant_core::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant, Upstream};
use coolant_core::store::{
    Applied, ClaimRequest, Claimed, IfFailed, JobChange, NewJob, Start, Store, Submitted,
};
use coolant_core::time::Timestamp;
use futures::FutureExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::calls::UPSTREAMS;
use super::checks::Checks;
use super::common::{paid, secs};

const STEPS: [&str; 3] = ["parse", "embed", "publish"];
const CLASSES: [FailureClass; 8] = [
    FailureClass::Network,
    FailureClass::Timeout,
    FailureClass::InvalidOutput,
    FailureClass::HandlerError,
    FailureClass::InvalidRequest,
    FailureClass::RateLimited,
    FailureClass::Overloaded,
    FailureClass::Auth,
];

/// A worker and what it holds, rightly or not.
#[derive(Default)]
struct Worker {
    works: Vec<Work>,
    stalled_until: Timestamp,
}

pub struct Work {
    pub job_id: JobId,
    pub token: LeaseToken,
    pub left: Vec<&'static str>,
    /// Whom it pays.
    pub upstreams: Vec<Upstream>,
    /// What it has to say and nobody has confirmed yet.
    outbox: Option<Event>,
}

/// The simulated world.
pub struct World {
    pub rng: StdRng,
    pub clock: Arc<ManualClock>,
    pub store: Arc<dyn Store>,
    pub checks: Checks,
    workers: Vec<Worker>,
    late: Vec<JobChange>,
    submits: BTreeMap<u128, NewJob>,
}

/// A future of a store that never waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the store under simulation answers at once")
}

impl World {
    pub fn new(seed: u64, clock: Arc<ManualClock>, store: Arc<dyn Store>) -> Self {
        let mut world = Self {
            rng: StdRng::seed_from_u64(seed),
            clock,
            store,
            checks: Checks::default(),
            workers: (0..5).map(|_| Worker::default()).collect(),
            late: Vec::new(),
            submits: BTreeMap::new(),
        };
        world.checks.clock(world.clock.now());
        world.set_limits();
        world
    }

    /// Faults for so many moves, then none until everything has ended.
    pub fn run(&mut self, moves: u32) {
        for _ in 0..moves {
            self.one_move();
            if !self.checks.violations.is_empty() {
                return;
            }
        }
        self.settle_down();
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn one_move(&mut self) {
        match self.rng.random_range(0..100) {
            0..8 => self.move_clock(),
            8..18 => self.submit(),
            18..24 => self.client_change(),
            24..27 => self.sweep(),
            27..32 => self.deliver_late(),
            32..35 => self.crash(),
            35..37 => self.stall(),
            37..43 => self.at_an_upstream(),
            _ => self.work(),
        }
    }

    fn move_clock(&mut self) {
        let now = self.clock.now();
        match self.rng.random_range(0..10) {
            0 => self.clock.set(Timestamp::from_millis(now.as_millis() - self.rng.random_range(0..1500))),
            1 => self.clock.advance(secs(self.rng.random_range(30..300))),
            _ => self.clock.advance(secs(self.rng.random_range(0..8))),
        }
        self.checks.clock(self.clock.now());
    }

    fn submit(&mut self) {
        let known = self.submits.keys().copied().collect::<Vec<_>>();
        let new = match known.choose(&mut self.rng).filter(|_| self.submits.len() > 25) {
            // The same submit once more, as after a lost answer, or the same key from somebody else.
            Some(n) => NewJob {
                id: if self.chance(50) { JobId(uuid::Uuid::from_u128(*n)) } else { self.fresh_id() },
                if_failed: if self.chance(50) { IfFailed::Retry } else { IfFailed::Return },
                ..self.submits[n].clone()
            },
            None => {
                let new = self.new_job();
                self.submits.insert(new.id.0.as_u128(), new.clone());
                new
            }
        };
        let keyed = new.spec.idempotency_key.is_some();
        let new = match keyed && self.chance(10) {
            true => NewJob { id: self.fresh_id(), payload: json!("something else"), ..new },
            false => new,
        };
        let times = if self.chance(20) { 2 } else { 1 };
        let answers = at_once(self.store.submit(vec![new.clone(); times])).unwrap_or_default();
        answers.iter().for_each(|answer| self.saw_submit(&new, answer));
    }

    fn saw_submit(&mut self, new: &NewJob, answer: &Submitted) {
        self.checks.submitted(new, answer, self.clock.now());
    }

    fn fresh_id(&mut self) -> JobId {
        JobId(uuid::Uuid::from_u128(self.rng.random()))
    }

    fn new_job(&mut self) -> NewJob {
        let policy = Policy {
            max_attempts: self.rng.random_range(1..5),
            retry_delays: vec![secs(1), secs(5), secs(20)],
            cooldown: secs(self.rng.random_range(5..60)),
            lease: secs(self.rng.random_range(5..30)),
            timeout: secs(self.rng.random_range(60..200)),
            max_wait: secs(self.rng.random_range(100..5000)),
            max_lost: self.rng.random_range(1..4),
            max_releases: self.rng.random_range(2..6),
            max_paid_calls: None,
        };
        let pick = |rng: &mut StdRng, names: &[&'static str]| *names.choose(rng).unwrap();
        let rng = &mut self.rng;
        let spec = JobSpec {
            job_type: JobType::parse(pick(rng, &["A", "B"])).unwrap(),
            queue: Queue::parse(pick(rng, &["fast", "slow"])).unwrap(),
            tenant: Tenant::parse(pick(rng, &["t1", "t2"])).unwrap(),
            idempotency_key: rng
                .random_bool(0.8)
                .then(|| IdempotencyKey::parse(format!("k{}", rng.random_range(0..12))).unwrap()),
            lock_key: rng.random_bool(0.5).then(|| LockKey::parse(pick(rng, &["L1", "L2"])).unwrap()),
            upstreams: UPSTREAMS
                .into_iter()
                .filter(|_| rng.random_bool(0.4))
                .map(|name| Upstream::parse(name).unwrap())
                .collect(),
            priority: rng.random_range(-1..2),
            expires_at: rng.random_bool(0.1).then(|| self.clock.now().plus(secs(rng.random_range(10..500)))),
            policy,
            ..super::common::spec()
        };
        let start =
            if rng.random_bool(0.3) { Start::After(secs(rng.random_range(0..30))) } else { Start::Now };
        // One key always means the same parameters, unless a submit is meant to be refused.
        let payload = json!({ "key": spec.idempotency_key.as_ref().map(IdempotencyKey::as_str) });
        let job_type = JobType::parse("A").unwrap();
        let spec = if spec.idempotency_key.is_some() { JobSpec { job_type, ..spec } } else { spec };
        NewJob { id: self.fresh_id(), spec: Arc::new(spec), payload, start, if_failed: IfFailed::Return }
    }

    fn client_change(&mut self) {
        let Some(id) = self.checks.ids().choose(&mut self.rng).copied() else { return };
        let event = match self.rng.random_range(0..10) {
            0..2 => Event::Cancel,
            2 => Event::Discard,
            3 => Event::Reopen { force: true },
            _ => Event::Reopen { force: false },
        };
        self.tell(JobChange::new(id, event));
    }

    fn sweep(&mut self) {
        let limit = self.rng.random_range(1..50);
        let _ = at_once(self.store.sweep(limit));
    }

    /// A change on its way through a bad network. `None`: the sender hears nothing.
    fn tell(&mut self, change: JobChange) -> Option<Result<Applied, Refusal>> {
        match self.rng.random_range(0..100) {
            0..5 => None,
            5..10 => {
                let _ = self.apply(&change);
                None
            }
            10..15 => {
                self.late.push(change);
                None
            }
            15..25 => {
                let first = self.apply(&change);
                let second = self.apply(&change);
                Some(if self.chance(50) { first } else { second })
            }
            _ => Some(self.apply(&change)),
        }
    }

    fn apply(&mut self, change: &JobChange) -> Result<Applied, Refusal> {
        let answers = at_once(self.store.apply(vec![change.clone()])).unwrap_or_default();
        let answer = answers.into_iter().next().unwrap_or(Err(Refusal::NotFound));
        self.checks.applied(change, &answer, self.clock.now());
        answer
    }

    fn deliver_late(&mut self) {
        if !self.late.is_empty() {
            let index = self.rng.random_range(0..self.late.len());
            let change = self.late.swap_remove(index);
            let _ = self.apply(&change);
        }
    }

    fn crash(&mut self) {
        let index = self.rng.random_range(0..self.workers.len());
        let worker = std::mem::take(&mut self.workers[index]);
        worker.works.iter().for_each(|work| self.dropped(work));
        if self.chance(50) {
            worker.works.iter().for_each(|work| self.thought_dead(work));
        }
    }

    /// Somebody noticed that the worker died, or believes so.
    fn thought_dead(&mut self, work: &Work) {
        self.tell(JobChange::new(work.job_id, Event::HolderDied { token: work.token }));
    }

    /// What a worker paid for and will not keep.
    fn dropped(&mut self, work: &Work) {
        if let Some(Event::SaveStep { name, .. }) = &work.outbox {
            self.checks.interrupted(work.job_id, name);
        }
    }

    fn stall(&mut self) {
        let index = self.rng.random_range(0..self.workers.len());
        self.workers[index].stalled_until = self.clock.now().plus(secs(self.rng.random_range(5..200)));
        if self.chance(20) {
            let works = std::mem::take(&mut self.workers[index].works);
            works.iter().for_each(|work| self.thought_dead(work));
            self.workers[index].works = works;
        }
    }

    fn work(&mut self) {
        let index = self.rng.random_range(0..self.workers.len());
        if self.workers[index].stalled_until > self.clock.now() {
            return;
        }
        let held = self.workers[index].works.len();
        if held == 0 || (held < 4 && self.chance(20)) {
            return self.claim(index);
        }
        let which = self.rng.random_range(0..held);
        let work = self.workers[index].works.swap_remove(which);
        if let Some(work) = self.one_act(work) {
            self.workers[index].works.push(work);
        }
    }

    fn claim(&mut self, index: usize) {
        let names: &[&str] = if self.chance(50) { &["fast", "slow"] } else { &["fast"] };
        let types: &[&str] = if self.chance(50) { &["A", "B"] } else { &[] };
        let request = ClaimRequest {
            worker: format!("w{index}"),
            queues: names.iter().map(|name| Queue::parse(*name).unwrap()).collect(),
            job_types: types.iter().map(|name| JobType::parse(*name).unwrap()).collect(),
            max: self.rng.random_range(1..4),
            lease: self.rng.random_bool(0.2).then(|| secs(3)),
            process: None,
        };
        let answers = self.send_claim(&request);
        // An answer that gets lost leaves jobs with a worker that knows nothing of them.
        if !self.chance(5) {
            self.workers[index].works.extend(answers.iter().map(Work::of));
        }
    }

    fn send_claim(&mut self, request: &ClaimRequest) -> Vec<Claimed> {
        let answers = at_once(self.store.claim(request.clone())).unwrap_or_default();
        let now = self.clock.now();
        if answers.len() > request.max as usize {
            self.checks.violations.push(format!("{} jobs for a claim of {}", answers.len(), request.max));
        }
        answers.iter().for_each(|answer| self.checks.claimed(request, answer, now));
        answers
    }

    /// One act of a worker on one job; gives the work back unless it is over.
    fn one_act(&mut self, mut work: Work) -> Option<Work> {
        let Some(event) = work.outbox.clone() else {
            return self.next_act(work);
        };
        let settles = !matches!(event, Event::SaveStep { .. });
        match self.tell(JobChange::new(work.job_id, event)) {
            None => Some(work),
            Some(Ok(Applied { answer: Answer::Held { .. }, .. })) => {
                work.outbox = None;
                Some(work)
            }
            Some(Ok(_)) if settles => None,
            Some(_) => {
                self.dropped(&work);
                None
            }
        }
    }

    fn next_act(&mut self, mut work: Work) -> Option<Work> {
        let token = work.token;
        let event = match self.rng.random_range(0..100) {
            0..30 => {
                let beat = JobChange::new(work.job_id, Event::Renew { token, progress: None });
                return match self.tell(beat) {
                    None | Some(Ok(Applied { answer: Answer::Held { .. }, .. })) => Some(work),
                    Some(_) => None,
                };
            }
            30..42 => Event::Fail {
                token,
                failure: self.failure(),
                jitter: self.rng.random(),
                usage: vec![paid(1)],
            },
            42..46 => Event::Defer {
                token,
                wait: secs(self.rng.random_range(1..100)),
                reason: "closed".into(),
                usage: Vec::new(),
            },
            46..50 => Event::Release { token },
            _ => match work.left.pop() {
                Some(step) => self.make_step(&mut work, step, false),
                None => Event::Succeed { token, result: json!(token.0), usage: vec![paid(1)] },
            },
        };
        work.outbox = Some(event);
        Some(work)
    }

    pub fn failure(&mut self) -> Failure {
        let class = *CLASSES.choose(&mut self.rng).unwrap();
        let stated = self.rng.random_bool(0.3).then(|| secs(self.rng.random_range(1..100)));
        let names = ["u", "v", "openai/gpt"];
        let upstream = self.rng.random_bool(0.5).then(|| names.choose(&mut self.rng).unwrap().to_string());
        Failure::new(class, "CODE", "message").with_retry_after(stated).with_upstream(upstream)
    }

    /// No more faults: healthy workers finish what is there, and everything has to end.
    fn settle_down(&mut self) {
        while !self.late.is_empty() {
            self.deliver_late();
        }
        for worker in std::mem::take(&mut self.workers) {
            worker.works.iter().for_each(|work| self.dropped(work));
        }
        for _ in 0..300 {
            self.healthy_round();
            let records = at_once(self.store.jobs(&self.checks.ids())).unwrap_or_default();
            if records.iter().flatten().all(|record| record.job.status().has_ended()) {
                break;
            }
        }
        for id in self.checks.ids() {
            let record = at_once(self.store.jobs(&[id])).unwrap_or_default().pop().flatten();
            let ledger = at_once(self.store.ledger(id)).unwrap_or_default();
            self.checks.at_the_end(id, record.as_ref(), &ledger);
            if let Some(record) = record {
                let attempts = at_once(self.store.attempts(id)).unwrap_or_default();
                let steps = at_once(self.store.steps(id)).unwrap_or_default();
                self.checks.waste_at_the_end(&record, &ledger, &attempts, &steps);
            }
        }
        self.look_at_upstreams();
    }

    fn healthy_round(&mut self) {
        let _ = at_once(self.store.sweep(1000));
        let request = ClaimRequest {
            worker: "healthy".into(),
            queues: ["fast", "slow"].map(|name| Queue::parse(name).unwrap()).to_vec(),
            job_types: Vec::new(),
            max: 1000,
            lease: None,
            process: None,
        };
        for claimed in self.send_claim(&request) {
            let mut work = Work::of(&claimed);
            let mut is_put_back = false;
            while !is_put_back && let Some(step) = work.left.pop() {
                let event = self.make_step(&mut work, step, true);
                is_put_back = matches!(event, Event::Defer { .. });
                let _ = self.apply(&JobChange::new(work.job_id, event));
            }
            if is_put_back {
                continue;
            }
            let result = json!(work.token.0);
            let done = Event::Succeed { token: work.token, result, usage: Vec::new() };
            let _ = self.apply(&JobChange::new(work.job_id, done));
        }
        self.clock.advance(secs(600));
        self.checks.clock(self.clock.now());
    }
}

impl Work {
    fn of(claimed: &Claimed) -> Self {
        let left = STEPS.into_iter().rev().filter(|step| !claimed.steps.contains_key(*step)).collect();
        let upstreams = claimed.record.job.spec.upstreams.clone();
        Self { job_id: claimed.record.job.id, token: claimed.lease.token, left, upstreams, outbox: None }
    }
}
