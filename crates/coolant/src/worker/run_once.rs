//! A job's life in this process, from the claim to the settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coolant_core::failure::{self, Failure, FailureClass};
use coolant_core::handler::Context;
use coolant_core::job::{JobId, Status};
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::store::{Applied, Claimed, JobChange, StoreError};
use coolant_core::time::spoken;
use tokio::sync::OwnedSemaphorePermit;

use super::Inner;
use super::handlers::{Ended, Work};
use super::leases::{Held, Hold, Line, Stop};
use super::patience::{NotMade, millis};

/// How long a handler that was told to stop may take to its next await point before its job is settled
/// without it.
const SLOW_TO_STOP: Duration = Duration::from_secs(1);

impl Inner {
    /// Runs a claimed job and settles it.
    pub(super) async fn run_once(self: Arc<Self>, claimed: Claimed, hold: Hold, slot: OwnedSemaphorePermit) {
        let life = Life::of(&claimed);
        let mut work = self.handlers.start(self.context(claimed, &hold));
        let ended = while_held(&mut work, &hold.held).await;
        let event = verdict(&life, ended);
        hold.held.steps_kept().await;
        let settled = self.settle(life.job_id, event).await;
        life.log(&settled);
        self.tally(&settled);
        drop(hold);
        self.until_gone(work, &life).await;
        drop(slot);
    }

    fn context(&self, claimed: Claimed, hold: &Hold) -> Context {
        let line = Line {
            held: Arc::clone(&hold.held),
            courier: Arc::clone(&self.courier),
            prices: self.settings.prices.clone(),
            control: tokio::runtime::Handle::current(),
            deferrals: claimed.record.job.counters.deferrals,
        };
        Context::new(Arc::new(claimed.record), claimed.lease.token, claimed.steps, Arc::new(line))
    }

    async fn settle(&self, job_id: JobId, verdict: Result<Event, Stop>) -> Settled {
        let event = match verdict {
            Ok(event) => event,
            Err(stop) => return Settled::NotReported(stop),
        };
        let is_release = matches!(event, Event::Release { .. });
        match self.courier.deliver(JobChange::new(job_id, event)).await {
            Ok(applied) => {
                self.bell.ring();
                Settled::Made { applied: Box::new(applied), is_release }
            }
            Err(NotMade::Refused(refusal)) => Settled::Refused(refusal),
            Err(NotMade::GivenUp(error)) => Settled::GivenUp(error),
        }
    }

    /// Keeps the slot until the handler has left its thread: another job could not run on it either.
    async fn until_gone(&self, mut work: Work, life: &Life) {
        if work.is_gone() {
            return;
        }
        let Life { job_id, job_type, .. } = life;
        tracing::warn!(
            job.id = %job_id, job.type = job_type,
            "the handler blocks its thread after its job was stopped; its slot is kept until it ends"
        );
        tokio::select! {
            _ = work.ended() => tracing::info!(
                job.id = %job_id, job.type = job_type, duration_ms = life.millis(),
                "the blocking handler has ended; its result is discarded"
            ),
            () = self.closing.closed() => {}
        }
    }
}

/// Runs the handler until it is done, or the job has to stop, whichever comes first.
async fn while_held(work: &mut Work, held: &Held) -> Ended {
    let stop = tokio::select! {
        // First: a handler that gives up because it saw the stop has not failed.
        biased;
        stop = held.stopped() => stop,
        ended = work.ended() => return ended,
        () = tokio::time::sleep_until(held.deadline.into()) => Stop::TimeUp,
    };
    held.stop(stop);
    work.abort();
    let left = tokio::time::timeout(SLOW_TO_STOP, work.ended()).await;
    match (stop, left) {
        // An output that came in the same instant is paid for, and the lease is still ours.
        (Stop::TimeUp | Stop::Shutdown, Ok(output @ Ended::Output(_))) => output,
        _ => Ended::Stopped(stop),
    }
}

/// What to tell the store; nothing where the job is no longer ours to report on.
fn verdict(life: &Life, ended: Ended) -> Result<Event, Stop> {
    let token = life.token;
    let usage = Vec::new();
    let fail = |failure: Failure| Event::Fail { token, failure, jitter: rand::random(), usage: Vec::new() };
    Ok(match ended {
        Ended::Output(result) => Event::Succeed { token, result, usage },
        Ended::Failed(failure) => fail(Failure { message: failure::cut(failure.message), ..failure }),
        Ended::Deferred { wait, reason } => Event::Defer { token, wait, reason, usage },
        Ended::Stopped(Stop::TimeUp) => fail(timed_out(life)),
        Ended::Stopped(Stop::Shutdown) => Event::Release { token },
        Ended::Stopped(stop @ (Stop::Cancelled | Stop::LeaseLost | Stop::Ended)) => return Err(stop),
        Ended::Gone => return Err(Stop::LeaseLost),
    })
}

fn timed_out(life: &Life) -> Failure {
    let message = format!("the attempt ran longer than {}", spoken(life.limit));
    Failure::new(FailureClass::Timeout, "TIMED_OUT", message)
}

/// What became of the report.
pub(super) enum Settled {
    /// It is in the store.
    Made { applied: Box<Applied>, is_release: bool },
    /// The store refused it; the work is somebody else's by now.
    Refused(Refusal),
    /// There was nothing to report.
    NotReported(Stop),
    /// The store never answered; the lease runs out by itself.
    GivenUp(StoreError),
}

/// What is said of a job in the log: names and numbers, never payloads.
struct Life {
    job_id: JobId,
    token: coolant_core::job::LeaseToken,
    job_type: String,
    queue: String,
    trace_id: String,
    limit: Duration,
    began: Instant,
}

impl Life {
    fn of(claimed: &Claimed) -> Self {
        let spec = &claimed.record.job.spec;
        Self {
            job_id: claimed.record.job.id,
            token: claimed.lease.token,
            job_type: spec.job_type.as_str().to_owned(),
            queue: spec.queue.as_str().to_owned(),
            trace_id: spec.trace_id.clone(),
            limit: spec.policy.timeout,
            began: Instant::now(),
        }
    }

    fn millis(&self) -> u64 {
        millis(self.began.elapsed())
    }

    fn log(&self, settled: &Settled) {
        let Self { job_id, token, job_type, queue, trace_id, .. } = self;
        let (attempt, duration_ms) = (token.0, self.millis());
        match settled {
            Settled::Made { applied, .. } => self.log_end(applied),
            Settled::Refused(refusal) => tracing::warn!(
                job.id = %job_id, job.attempt = attempt, job.type = job_type, queue, trace_id, duration_ms,
                reason = %refusal, "the job is somebody else's by now; the result is discarded"
            ),
            Settled::NotReported(stop) => tracing::info!(
                job.id = %job_id, job.attempt = attempt, job.type = job_type, queue, trace_id, duration_ms,
                reason = stop.as_str(), "job stopped"
            ),
            Settled::GivenUp(error) => tracing::error!(
                job.id = %job_id, job.attempt = attempt, job.type = job_type, queue, trace_id, duration_ms,
                %error, "the end of a job could not be stored; its lease runs out"
            ),
        }
    }

    fn log_end(&self, applied: &Applied) {
        let Self { job_id, token, job_type, queue, trace_id, .. } = self;
        let (attempt, duration_ms) = (token.0, self.millis());
        let outcome = applied.job.last_settled.map_or("", |settled| settled.outcome.as_str());
        let error = applied.job.last_error.as_ref().filter(|_| outcome != "succeeded");
        let error_code = error.map(|failure| failure.code.as_str());
        let error_class = error.map(|failure| failure.class.as_str());
        match applied.job.status() {
            Status::Failed => tracing::warn!(
                job.id = %job_id, job.attempt = attempt, job.type = job_type, queue, trace_id, duration_ms,
                outcome, error.code = error_code, error.class = error_class, "job dead-lettered"
            ),
            _ => tracing::info!(
                job.id = %job_id, job.attempt = attempt, job.type = job_type, queue, trace_id, duration_ms,
                outcome, error.code = error_code, error.class = error_class, "attempt ended"
            ),
        }
    }
}
