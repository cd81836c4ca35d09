//! Waits: how long after a failure, and whether there is another try at all.
//!
//! Elsewhere: what the verdict does to a job (`lifecycle`), which waits are credible (`evidence`).

use std::time::Duration;

use crate::failure::{Failure, FailureClass};
use crate::job::{Counters, Policy};

/// The longest wait before Coolant tries by itself again. A stated wait may be longer and is shown as it
/// was stated; providers have been wrong about such waits.
pub const LONGEST_AUTOMATIC_WAIT: Duration = Duration::from_secs(86_400);

/// The share of a wait that jitter adds at most. Only upwards: a stated wait is the earliest start.
pub const JITTER: f64 = 0.2;

/// More tries after a timeout: each may have been billed without an answer.
const TRIES_AFTER_TIMEOUT: u32 = 2;
/// More tries after an unusable output.
const TRIES_AFTER_INVALID_OUTPUT: u32 = 2;
/// Wait for an upstream that did not say how long.
const UPSTREAM_WAIT: Duration = Duration::from_secs(10);
/// Wait before a probe where only a person can help.
const OPERATOR_WAIT: Duration = Duration::from_secs(3600);
/// Wait of a job on its own where only a person can help.
const OPERATOR_COOLING: Duration = Duration::from_secs(300);

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Another try after that wait.
    Retry(Duration),
    /// The dead-letter queue; by hand again after the cooldown.
    GiveUp,
    /// The dead-letter queue; the same work would fail again.
    Permanent,
}

/// Decides after a failure that is the job's own. `counters` count it already; `jitter` is 0 to 1.
#[must_use]
pub fn after_failure(policy: &Policy, counters: &Counters, failure: &Failure, jitter: f64) -> Verdict {
    let class = failure.class;
    if class.is_permanent() {
        return Verdict::Permanent;
    }
    let bad_output = class == FailureClass::InvalidOutput;
    if bad_output && (failure.final_ || counters.invalid_outputs > TRIES_AFTER_INVALID_OUTPUT) {
        return Verdict::Permanent;
    }
    if failure.code == "PAID_CALL_LIMIT" {
        return Verdict::Permanent;
    }
    let spent = counters.tries >= policy.max_attempts || counters.timeouts > TRIES_AFTER_TIMEOUT;
    if failure.final_ || spent {
        return Verdict::GiveUp;
    }
    let scheduled = match class {
        _ if class.needs_operator() => OPERATOR_COOLING,
        _ => scheduled(policy, counters.tries),
    };
    let wait = scheduled.max(failure.retry_after.unwrap_or_default());
    Verdict::Retry(jittered(wait.min(LONGEST_AUTOMATIC_WAIT), jitter))
}

/// The wait after that many tries (from 1); the last one of the schedule repeats.
fn scheduled(policy: &Policy, tries: u32) -> Duration {
    let index = tries.saturating_sub(1) as usize;
    policy.retry_delays.get(index).or(policy.retry_delays.last()).copied().unwrap_or_default()
}

/// How long a job waits for an upstream after a failure that is the upstream's. `jitter` is 0 to 1.
#[must_use]
pub fn upstream_wait(failure: &Failure, jitter: f64) -> Duration {
    let unstated = if failure.class.needs_operator() { OPERATOR_WAIT } else { UPSTREAM_WAIT };
    jittered(failure.retry_after.unwrap_or(unstated).min(LONGEST_AUTOMATIC_WAIT), jitter)
}

/// The wait with up to [`JITTER`] of itself added.
#[must_use]
pub fn jittered(wait: Duration, jitter: f64) -> Duration {
    let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    wait.saturating_add(wait.mul_f64(JITTER * share))
}
