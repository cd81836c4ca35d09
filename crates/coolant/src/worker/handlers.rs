//! Handlers' code, on threads of its own.
//!
//! A handler may block its thread, or panic. Neither may touch anything but its own job: heartbeats, claims
//! and the HTTP server run on another runtime, and a panic ends in the task that raised it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::handler::{AnyHandler, Context, HandlerError};
use coolant_core::lifecycle::Refusal;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

use super::final_failure;
use super::leases::Stop;
use crate::size;

/// The handlers of a worker by type, and the threads they run on.
pub(super) struct Handlers {
    table: BTreeMap<String, Arc<dyn AnyHandler>>,
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
}

/// How the work on a job ended in this process.
#[derive(Debug)]
pub(super) enum Ended {
    /// With an output.
    Output(Value),
    /// With a failure.
    Failed(Failure),
    /// Not now.
    Deferred { wait: Duration, reason: String },
    /// The handler found the job gone.
    Gone,
    /// Before its handler was done.
    Stopped(Stop),
}

impl Handlers {
    pub(super) fn new(table: BTreeMap<String, Arc<dyn AnyHandler>>, threads: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("coolant-handler")
            .enable_all()
            .build()?;
        Ok(Self { table, runtime: Some(runtime) })
    }

    /// Starts the handler of the job's type.
    pub(super) fn start(&self, ctx: Context) -> Work {
        let job = &ctx.record().job;
        let job_type = job.spec.job_type.as_str();
        let span = tracing::info_span!("job", job.id = %job.id, job.type = job_type);
        let handler = self.table.get(job_type).cloned();
        let task = async move {
            // It may have waited long for a thread; what was stopped meanwhile must not begin.
            if ctx.is_stopped() {
                return Err(HandlerError::Gone(Refusal::LeaseLost));
            }
            match handler {
                Some(handler) => handler.run_any(&ctx).await,
                None => Err(HandlerError::Failed(unknown_type(&ctx))),
            }
        };
        let runtime = self.runtime.as_ref().map(|runtime| runtime.spawn(task.instrument(span)));
        Work { task: runtime }
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        // Waits for nobody: a handler that blocks its thread would block the end of the process.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A handler at work. Dropping it drops the handler's future at its next await point.
pub(super) struct Work {
    task: Option<JoinHandle<Result<Value, HandlerError>>>,
}

impl Work {
    /// Ends when the handler does, and says how. To be asked until it has answered, and not again.
    pub(super) async fn ended(&mut self) -> Ended {
        let Some(task) = &mut self.task else { return Ended::Gone };
        let joined = task.await;
        self.task = None;
        match joined {
            Ok(Ok(output)) => checked(output),
            Ok(Err(HandlerError::Failed(failure))) => Ended::Failed(failure),
            Ok(Err(HandlerError::Defer { wait, reason })) => Ended::Deferred { wait, reason },
            Ok(Err(HandlerError::Gone(_))) => Ended::Gone,
            Err(error) => panicked(error),
        }
    }

    /// Drops the handler's future at its next await point.
    pub(super) fn abort(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }

    /// Whether the handler has ended, and holds no thread any more.
    pub(super) fn is_gone(&self) -> bool {
        self.task.is_none()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.abort();
    }
}

fn checked(output: Value) -> Ended {
    match size::check(&output) {
        Ok(()) => Ended::Output(output),
        Err(error) => Ended::Failed(final_failure(FailureClass::HandlerError, "RESULT_TOO_LARGE", error)),
    }
}

fn panicked(error: JoinError) -> Ended {
    match error.try_into_panic() {
        Ok(payload) => {
            let message = format!("handler panicked: {}", panic_message(&*payload));
            Ended::Failed(Failure::new(FailureClass::HandlerError, "HANDLER_ERROR", message))
        }
        // Dropped with its runtime: the process ends.
        Err(_) => Ended::Stopped(Stop::Shutdown),
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Final, since this worker can only repeat it, but not permanent: a newer program may have the handler.
fn unknown_type(ctx: &Context) -> Failure {
    let message = format!("this worker has no handler for `{}`", ctx.record().job.spec.job_type);
    final_failure(FailureClass::HandlerError, "UNKNOWN_JOB_TYPE", message)
}
