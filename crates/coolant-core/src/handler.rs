//! Handlers: code that runs jobs of one type, and what it is given to do so.
//!
//! A handler is an ordinary async function with a [`Context`]. What it finishes it keeps as a step; a later
//! attempt gets the output back instead of paying again. A call that costs money goes through
//! [`Context::paid_call`]. It returns an output or an error; the lease, the heartbeats, retries and time limits
//! are the worker's.
//!
//! ```
//! use coolant_core::handler::{Context, Handler, HandlerError};
//!
//! struct Greet;
//!
//! #[async_trait::async_trait]
//! impl Handler for Greet {
//!     type Payload = String;
//!     type Output = String;
//!
//!     fn job_type(&self) -> &str {
//!         "GREET"
//!     }
//!
//!     async fn run(&self, ctx: &Context, name: String) -> Result<String, HandlerError> {
//!         ctx.step("greeting", async || Ok(format!("Hello, {name}!"))).await
//!     }
//! }
//! ```

mod paid_call;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, FailureClass};
use crate::job::{JobId, JobRecord, LeaseToken, Progress};
use crate::lifecycle::Refusal;
use crate::money::Usage;
use crate::store::StoreError;

pub use paid_call::{CallError, Charge, OpenCall, Paid, PaidCall, Payer, Settling};

/// Runs the jobs of one type.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// What a job of this type is given. A payload that does not read as one fails the job for good.
    type Payload: DeserializeOwned + Send;
    /// What it gives.
    type Output: Serialize + Send;

    /// The type: `MY_JOB`.
    fn job_type(&self) -> &str;

    /// Does the work. Dropped at the next await point when the lease is lost, the job is cancelled or
    /// its time is up.
    async fn run(&self, ctx: &Context, payload: Self::Payload) -> Result<Self::Output, HandlerError>;
}

/// Why a handler stopped without an output.
#[derive(Debug)]
pub enum HandlerError {
    /// The work failed.
    Failed(Failure),
    /// Not now; uses up no attempt.
    Defer {
        /// For how long.
        wait: Duration,
        /// Why, for people.
        reason: String,
    },
    /// The job is somebody else's by now, or ended: there is nothing left to report.
    Gone(Refusal),
}

impl HandlerError {
    /// The work failed for a reason of that class.
    #[must_use]
    pub fn failed(class: FailureClass, code: &str, message: impl std::fmt::Display) -> Self {
        Self::Failed(Failure::new(class, code, message.to_string()))
    }
}

impl From<Failure> for HandlerError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Any error is a failure that may pass next time, with the whole chain of causes as its message.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::failed(FailureClass::HandlerError, "HANDLER_ERROR", with_causes(&error))
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        message.push_str(": ");
        message.push_str(&source.to_string());
        cause = source.source();
    }
    message
}

/// What stands behind a context: a worker's lease, or a test's.
#[async_trait]
pub trait Lifeline: Payer {
    /// Keeps a step under the lease, with the paid calls that made it.
    async fn save_step(&self, name: &str, output: &Value, usage: Vec<Usage>) -> Result<(), HandlerError>;

    /// Carries the progress with the next heartbeat.
    fn report(&self, progress: Progress);

    /// Waits before a call of the store is repeated; longer each time, and not past the stop.
    async fn pause(&self);

    /// Time left before the attempt is over its limit.
    fn time_left(&self) -> Duration;

    /// Ends when the job should stop: cancelled, lease lost, time up, or the process shuts down.
    async fn stopped(&self);

    /// Whether it should stop.
    fn is_stopped(&self) -> bool;
}

/// What a handler is given: the job, its finished steps, and its lifeline.
#[derive(Clone)]
pub struct Context {
    record: Arc<JobRecord>,
    token: LeaseToken,
    steps: Arc<BTreeMap<String, Value>>,
    lifeline: Arc<dyn Lifeline>,
}

impl Context {
    /// The context of one attempt.
    #[must_use]
    pub fn new(
        record: Arc<JobRecord>,
        token: LeaseToken,
        steps: BTreeMap<String, Value>,
        lifeline: Arc<dyn Lifeline>,
    ) -> Self {
        Self { record, token, steps: Arc::new(steps), lifeline }
    }

    /// The job.
    #[must_use]
    pub fn record(&self) -> &JobRecord {
        &self.record
    }

    /// The job and the lease that its writes carry.
    #[must_use]
    pub fn lease(&self) -> (JobId, LeaseToken) {
        (self.record.job.id, self.token)
    }

    /// The output of a step that an earlier attempt finished, if it reads as a `T`.
    #[must_use]
    pub fn finished<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.steps.get(name).and_then(|output| T::deserialize(output).ok())
    }

    /// The outputs of all steps that earlier attempts finished, by name.
    #[must_use]
    pub fn finished_steps(&self) -> &BTreeMap<String, Value> {
        &self.steps
    }

    /// Runs `work` unless an earlier attempt finished it, and keeps its output under `name`.
    ///
    /// # Errors
    /// What `work` gave, or that the lease is lost; then the output is not kept.
    pub async fn step<T, F>(&self, name: &str, work: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce() -> Result<T, HandlerError>,
    {
        self.paid_step(name, async || Ok((work().await?, Vec::new()))).await
    }

    /// The same for work that pays outside of [`Self::paid_call`]: the calls are booked in the transaction that keeps
    /// the output, and nobody is asked for leave.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub async fn paid_step<T, F>(&self, name: &str, work: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce() -> Result<(T, Vec<Usage>), HandlerError>,
    {
        if let Some(output) = self.finished(name) {
            return Ok(output);
        }
        let (output, usage) = work().await?;
        self.lifeline.save_step(name, &serde_json::to_value(&output)?, usage).await?;
        Ok(output)
    }

    /// Waits before a call of the store is repeated: a paid output is not thrown away for an outage.
    ///
    /// ```ignore
    /// loop {
    ///     match store.call().await {
    ///         Ok(answer) => break answer,
    ///         Err(error) => ctx.outlast(error).await?,
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The store's error, if no repetition helps or the work should stop.
    pub async fn outlast(&self, error: StoreError) -> Result<(), HandlerError> {
        if !error.is_retryable() || self.is_stopped() {
            return Err(error.into());
        }
        self.lifeline.pause().await;
        Ok(())
    }

    /// Says how far the work is; people see it with the next heartbeat.
    pub fn progress(&self, done: u64, total: Option<u64>, unit: &str) {
        self.lifeline.report(Progress { done, total, unit: Some(unit.to_owned()), message: None });
    }

    /// Time left before the attempt is over its limit.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.lifeline.time_left()
    }

    /// Whether the work should stop. For blocking code; async code is dropped at its next await point.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lifeline.is_stopped()
    }

    /// Ends when the work should stop.
    pub async fn stopped(&self) {
        self.lifeline.stopped().await;
    }
}

/// A handler with its types hidden, so that many kinds fit in one table.
#[async_trait]
pub trait AnyHandler: Send + Sync + 'static {
    /// See [`Handler::job_type`].
    fn job_type(&self) -> &str;

    /// Reads the payload, runs the handler, writes the output as JSON.
    async fn run_any(&self, ctx: &Context) -> Result<Value, HandlerError>;
}

#[async_trait]
impl<H: Handler> AnyHandler for H {
    fn job_type(&self) -> &str {
        Handler::job_type(self)
    }

    async fn run_any(&self, ctx: &Context) -> Result<Value, HandlerError> {
        let payload = H::Payload::deserialize(&ctx.record.payload)
            .map_err(|error| HandlerError::failed(FailureClass::InvalidRequest, "INVALID_PAYLOAD", error))?;
        Ok(serde_json::to_value(self.run(ctx, payload).await?)?)
    }
}
