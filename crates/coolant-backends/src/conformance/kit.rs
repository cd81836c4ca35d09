//! Jobs, events and calls with as little said as a case needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{Job, JobId, JobRecord, JobSpec, LeaseToken, Policy};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{IdempotencyKey, JobType, LockKey, Queue, Tenant};
use coolant_core::store::{
    Applied, ClaimRequest, Claimed, IfFailed, JobChange, JobFilter, NewJob, Page, Start, Stats, Submitted,
};
use coolant_core::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Subject;

/// What fails in most cases: a connection.
pub(super) const NETWORK: FailureClass = FailureClass::Network;

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The id number `n`; a greater number is a newer job.
pub(super) fn id(n: u32) -> JobId {
    JobId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 | u128::from(n)))
}

pub(super) fn spec() -> JobSpec {
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

/// Job number `n`, without a key.
pub(super) fn job(n: u32) -> NewJob {
    job_with(n, |_| {})
}

pub(super) fn job_with(n: u32, change: impl FnOnce(&mut JobSpec)) -> NewJob {
    let mut spec = spec();
    change(&mut spec);
    NewJob {
        id: id(n),
        spec: Arc::new(spec),
        payload: json!({ "a": 1 }),
        start: Start::Now,
        if_failed: IfFailed::Return,
    }
}

pub(super) fn keyed(n: u32, key: &str) -> NewJob {
    job_with(n, |spec| spec.idempotency_key = Some(IdempotencyKey::parse(key).unwrap()))
}

pub(super) fn locked(n: u32, key: &str) -> NewJob {
    job_with(n, |spec| spec.lock_key = Some(LockKey::parse(key).unwrap()))
}

pub(super) fn queue(name: &str) -> Queue {
    Queue::parse(name).unwrap()
}

pub(super) fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

pub(super) fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey::parse(name).unwrap()
}

pub(super) fn request(max: u32) -> ClaimRequest {
    ClaimRequest {
        worker: "worker".into(),
        queues: vec![Queue::default()],
        job_types: Vec::new(),
        max,
        lease: None,
        process: None,
    }
}

pub(super) const fn token(n: i64) -> LeaseToken {
    LeaseToken(n)
}

pub(super) fn renew(n: i64) -> Event {
    Event::Renew { token: token(n), progress: None }
}

pub(super) fn succeed(n: i64) -> Event {
    Event::Succeed { token: token(n), result: json!({ "by": n }), usage: Vec::new() }
}

pub(super) fn failure(class: FailureClass) -> Failure {
    Failure::new(class, format!("LLM_{}", class.code_suffix()), "it did not work")
}

pub(super) fn fail(n: i64, class: FailureClass) -> Event {
    Event::Fail { token: token(n), failure: failure(class), jitter: 0.0, usage: Vec::new() }
}

pub(super) fn defer(n: i64, wait: u64) -> Event {
    Event::Defer { token: token(n), wait: secs(wait), reason: "closed".into(), usage: Vec::new() }
}

pub(super) const fn release(n: i64) -> Event {
    Event::Release { token: token(n) }
}

pub(super) const fn reopen() -> Event {
    Event::Reopen { force: false }
}

pub(super) fn paid(nanos: i64) -> Usage {
    Usage {
        upstream: Some("openai/gpt".into()),
        model: Some("gpt".into()),
        input_tokens: 10,
        output_tokens: 2,
        cost: Some(Money::from_nanos(nanos)),
        ..Usage::default()
    }
}

pub(super) fn step(n: i64, name: &str, output: Value) -> Event {
    Event::SaveStep { token: token(n), name: name.into(), output, usage: vec![paid(5)] }
}

pub(super) fn ids(records: &[JobRecord]) -> Vec<JobId> {
    records.iter().map(|record| record.job.id).collect()
}

pub(super) fn claimed_ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.record.job.id).collect()
}

impl Subject {
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn advance(&self, seconds: u64) {
        self.clock.advance(secs(seconds));
    }

    pub(super) async fn submit(&self, job: NewJob) -> Submitted {
        self.submit_all(vec![job]).await.pop().unwrap()
    }

    pub(super) async fn submit_all(&self, jobs: Vec<NewJob>) -> Vec<Submitted> {
        let asked = jobs.len();
        let answers = self.store.submit(jobs).await.unwrap();
        assert_eq!(answers.len(), asked, "each job has its answer");
        answers
    }

    pub(super) async fn claim(&self, max: u32) -> Vec<Claimed> {
        self.claim_with(request(max)).await
    }

    pub(super) async fn claim_with(&self, request: ClaimRequest) -> Vec<Claimed> {
        let max = request.max as usize;
        let claimed = self.store.claim(request).await.unwrap();
        assert!(claimed.len() <= max, "{} jobs for a claim of {max}", claimed.len());
        claimed
    }

    /// Claims the one job that is due.
    pub(super) async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim(2).await;
        assert_eq!(claimed.len(), 1, "one job is due");
        claimed.pop().unwrap()
    }

    /// Submits a job and claims it.
    pub(super) async fn running(&self, job: NewJob) -> JobId {
        let id = job.id;
        self.submit(job).await;
        let claimed = self.claim(1000).await;
        assert!(claimed_ids(&claimed).contains(&id), "the job is due");
        id
    }

    pub(super) async fn apply(&self, id: JobId, event: Event) -> Result<Applied, Refusal> {
        self.apply_all(vec![JobChange::new(id, event)]).await.pop().unwrap()
    }

    pub(super) async fn apply_all(&self, changes: Vec<JobChange>) -> Vec<Result<Applied, Refusal>> {
        let asked = changes.len();
        let answers = self.store.apply(changes).await.unwrap();
        assert_eq!(answers.len(), asked, "each change has its answer");
        answers
    }

    /// The event is taken and done; the job after it.
    pub(super) async fn done(&self, id: JobId, event: Event) -> Job {
        let applied = self.apply(id, event).await.unwrap();
        assert_eq!(applied.answer, Answer::Done);
        applied.job
    }

    /// The event is refused like this, and changes nothing.
    pub(super) async fn refused(&self, id: JobId, event: Event, refusal: &Refusal) {
        let before = self.store.jobs(&[id]).await.unwrap();
        assert_eq!(self.apply(id, event).await.as_ref(), Err(refusal));
        assert_eq!(self.store.jobs(&[id]).await.unwrap(), before, "a refusal changes nothing");
    }

    pub(super) async fn record(&self, id: JobId) -> JobRecord {
        self.store.jobs(&[id]).await.unwrap().pop().unwrap().expect("the job is there")
    }

    pub(super) async fn list(&self, filter: JobFilter) -> Vec<JobId> {
        ids(&self.store.list(&filter, Page { limit: 1000, before: None }).await.unwrap())
    }

    pub(super) async fn stats(&self) -> Stats {
        self.store.stats(None, secs(3600)).await.unwrap()
    }
}
