//! Submitting a job from the same process.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use coolant_core::job::{JobId, Policy};
use coolant_core::names::Tenant;
use coolant_core::store::{IfFailed, NewJob, Start, StoreError, SubmitOutcome};
use serde_json::Value;

use super::{Coolant, JobHandle};
use crate::engine::submit::{SubmitRequest, new_job};

/// A job to be submitted. Await it to submit it.
#[must_use = "a job is submitted when it is awaited"]
pub struct Submit<'a> {
    coolant: &'a Coolant,
    job_type: String,
    payload: Result<Value, serde_json::Error>,
    key: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    lock_key: Option<String>,
    upstreams: Vec<String>,
    priority: i8,
    tags: BTreeMap<String, String>,
    policy: Policy,
    start: Start,
    if_failed: IfFailed,
}

/// Why a job was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The payload is no JSON.
    #[error("the payload cannot be written as JSON")]
    Payload(#[source] serde_json::Error),
    /// A name, a number or the payload's size is outside what is allowed; says which, and what is.
    #[error("{0}")]
    OutOfBounds(String),
    /// The key belongs to a job with another type or payload; nothing changed.
    #[error("the key belongs to job `{job_id}`, which has other parameters")]
    KeyReused {
        /// The key's job.
        job_id: JobId,
    },
    /// The store did not take it. Submitting it again with the same key is safe.
    #[error("could not submit the job")]
    Store(#[from] StoreError),
}

impl<'a> Submit<'a> {
    pub(super) fn new(
        coolant: &'a Coolant,
        job_type: String,
        payload: Result<Value, serde_json::Error>,
    ) -> Self {
        Self {
            coolant,
            job_type,
            payload,
            key: None,
            queue: None,
            tenant: None,
            lock_key: None,
            upstreams: Vec::new(),
            priority: 0,
            tags: BTreeMap::new(),
            policy: Policy::default(),
            start: Start::Now,
            if_failed: IfFailed::Return,
        }
    }

    /// Your name for this piece of work: submitting it again gives the same job.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The line it waits in; `default` if never set.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// On whose behalf; `default` if never set.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Jobs with the same lock key run one at a time.
    pub fn lock_key(mut self, lock_key: impl Into<String>) -> Self {
        self.lock_key = Some(lock_key.into());
        self
    }

    /// A paid service it uses; may be called for each.
    pub fn upstream(mut self, upstream: impl Into<String>) -> Self {
        self.upstreams.push(upstream.into());
        self
    }

    /// -10 to 10; higher goes first.
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// A label for filters.
    pub fn tag(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(name.into(), value.into());
        self
    }

    /// Attempts, waits and limits.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// When it may start; at once if never set.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// What to do if its key failed before; gives that job if never set.
    pub fn if_failed(mut self, if_failed: IfFailed) -> Self {
        self.if_failed = if_failed;
        self
    }

    async fn send(self) -> Result<JobHandle, SubmitError> {
        let coolant = self.coolant.clone();
        let job = self.checked()?;
        let mut answers = coolant.store.submit(vec![job]).await?;
        let Some(submitted) = answers.pop() else {
            return Err(StoreError::Broken("one submit, and no answer to it".into()).into());
        };
        let job_id = submitted.record.job.id;
        if submitted.outcome == SubmitOutcome::Conflict {
            return Err(SubmitError::KeyReused { job_id });
        }
        coolant.bell.ring();
        Ok(JobHandle::new(coolant, job_id, Some(submitted.outcome)))
    }

    fn checked(self) -> Result<NewJob, SubmitError> {
        let payload = self.payload.map_err(SubmitError::Payload)?;
        let seconds = |span: Duration| Some(span.as_secs_f64());
        let policy = self.policy;
        let request = SubmitRequest {
            job_type: self.job_type,
            payload: Some(payload),
            queue: self.queue,
            idempotency_key: self.key,
            lock_key: self.lock_key,
            upstreams: self.upstreams,
            priority: Some(self.priority.into()),
            max_attempts: Some(policy.max_attempts.into()),
            retry_delays_seconds: Some(policy.retry_delays.iter().map(Duration::as_secs_f64).collect()),
            cooldown_seconds: seconds(policy.cooldown),
            lease_seconds: seconds(policy.lease),
            timeout_seconds: seconds(policy.timeout),
            max_wait_seconds: seconds(policy.max_wait),
            max_lost: Some(policy.max_lost.into()),
            max_releases: Some(policy.max_releases.into()),
            max_paid_calls: policy.max_paid_calls.map(Into::into),
            tags: self.tags,
            if_failed: self.if_failed,
            ..SubmitRequest::default()
        };
        let out_of_bounds = |error: &dyn std::fmt::Display| SubmitError::OutOfBounds(error.to_string());
        let tenant = self.tenant.map(Tenant::parse).transpose().map_err(|error| out_of_bounds(&error))?;
        let job = new_job(tenant.unwrap_or_default(), request, |_, _| Ok(()));
        Ok(NewJob { start: self.start, ..job.map_err(|error| out_of_bounds(&error))? })
    }
}

impl<'a> IntoFuture for Submit<'a> {
    type Output = Result<JobHandle, SubmitError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
