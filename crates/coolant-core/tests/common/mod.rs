//! Jobs and events for tests, with as little said as a test needs.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{Job, JobId, JobSpec, JobState, LeaseToken, Policy};
use coolant_core::lifecycle::{Answer, Event, Refusal, Transition, on};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{JobType, LockKey, Queue, Tenant};
use coolant_core::store::{IfFailed, NewJob, Start};
use coolant_core::time::Timestamp;
use serde_json::{Value, json};

pub const fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn id(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

pub fn spec() -> JobSpec {
    JobSpec {
        job_type: JobType::parse("TEST").unwrap(),
        queue: Queue::default(),
        tenant: Tenant::default(),
        idempotency_key: None,
        lock_key: None,
        upstreams: Vec::new(),
        priority: 0,
        tags: BTreeMap::new(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".into(),
        expires_at: None,
        policy: Policy::default(),
    }
}

pub fn new_job(n: u128, spec: JobSpec) -> NewJob {
    NewJob {
        id: id(n),
        spec: Arc::new(spec),
        payload: json!({ "n": 1 }),
        start: Start::Now,
        if_failed: IfFailed::Return,
    }
}

/// A job submitted at second 0.
pub fn job_with(change: impl FnOnce(&mut JobSpec)) -> Job {
    let mut spec = spec();
    change(&mut spec);
    new_job(1, spec).first(at(0))
}

pub fn job() -> Job {
    job_with(|_| {})
}

pub fn locked(spec: &mut JobSpec) {
    spec.lock_key = Some(LockKey::parse("L").unwrap());
}

pub fn token(n: i64) -> LeaseToken {
    LeaseToken(n)
}

pub fn claim() -> Event {
    Event::Claim { worker: "w".into(), lease: None }
}

pub fn renew(n: i64) -> Event {
    Event::Renew { token: token(n), progress: None }
}

pub fn step(n: i64, name: &str, cost: i64) -> Event {
    Event::SaveStep { token: token(n), name: name.into(), output: json!(name), usage: vec![paid(cost)] }
}

pub fn succeed(n: i64) -> Event {
    Event::Succeed { token: token(n), result: Value::Null, usage: Vec::new() }
}

pub fn fail_as(n: i64, failure: Failure) -> Event {
    Event::Fail { token: token(n), failure, jitter: 0.0, usage: Vec::new() }
}

pub fn fail(n: i64, class: FailureClass) -> Event {
    fail_as(n, failure(class))
}

pub fn failure(class: FailureClass) -> Failure {
    Failure::new(class, format!("LLM_{}", class.code_suffix()), "did not work")
}

pub fn of_upstream(class: FailureClass) -> Failure {
    failure(class).with_upstream(Some("openai/gpt".into()))
}

pub fn defer(n: i64, wait: u64) -> Event {
    Event::Defer { token: token(n), wait: secs(wait), reason: "closed".into(), usage: Vec::new() }
}

pub fn release(n: i64) -> Event {
    Event::Release { token: token(n) }
}

pub fn reopen() -> Event {
    Event::Reopen { force: false }
}

pub fn forced() -> Event {
    Event::Reopen { force: true }
}

pub fn paid(nanos: i64) -> Usage {
    Usage { cost: Some(Money::from_nanos(nanos)), ..Usage::default() }
}

/// What happens to one job, told in the order of time.
#[derive(Clone)]
pub struct Story {
    pub job: Job,
    pub last: Transition,
}

impl Story {
    pub fn of(job: Job) -> Self {
        Self { last: Transition { job: job.clone(), ended: None, answer: Answer::Already }, job }
    }

    /// The event is taken.
    #[track_caller]
    pub fn then(mut self, seconds: i64, event: &Event) -> Self {
        self.last = on(&self.job, event, at(seconds)).unwrap_or_else(|refusal| {
            panic!("{event:?} at {seconds} s was refused: {refusal:?}; the job: {:?}", self.job)
        });
        self.job = self.last.job.clone();
        self
    }

    /// The event is taken and answered like this.
    #[track_caller]
    pub fn answered(self, seconds: i64, event: &Event, answer: &Answer) -> Self {
        let story = self.then(seconds, event);
        assert_eq!(&story.last.answer, answer);
        story
    }

    /// The event is refused, and changes nothing.
    #[track_caller]
    pub fn refused(self, seconds: i64, event: &Event, refusal: &Refusal) -> Self {
        assert_eq!(on(&self.job, event, at(seconds)).as_ref(), Err(refusal));
        self
    }

    #[track_caller]
    pub fn pending_until(self, seconds: i64) -> Self {
        assert_eq!(self.job.visible_at(), Some(at(seconds)));
        assert!(matches!(self.job.state, JobState::Pending { .. }), "{:?}", self.job.state);
        self
    }

    #[track_caller]
    pub fn failed_as(self, code: &str) -> Self {
        assert!(matches!(self.job.state, JobState::Failed { .. }), "{:?}", self.job.state);
        assert_eq!(self.job.last_error.as_ref().map(|failure| failure.code.as_str()), Some(code));
        self
    }
}
