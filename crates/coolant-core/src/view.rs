//! What people are told about a job: its phase, and when a retry is possible. Derived, never stored.

use serde::{Deserialize, Serialize};

use crate::job::{Job, JobState, Reopen, Wait};
use crate::say::Sentence;
use crate::time::Timestamp;

/// Where a job stands, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its turn will come.
    Waiting,
    /// Its start lies ahead.
    Scheduled,
    /// A worker has it.
    Running,
    /// Pending after a failure.
    Cooling,
    /// Something outside it is closed.
    Blocked,
    /// Done.
    Succeeded,
    /// In the dead-letter queue.
    DeadLettered,
    /// Taken out of the dead-letter queue for good.
    Discarded,
    /// Ended by a person.
    Cancelled,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Scheduled,
        Self::Running,
        Self::Cooling,
        Self::Blocked,
        Self::Succeeded,
        Self::DeadLettered,
        Self::Discarded,
        Self::Cancelled,
    ];

    /// The phase of a job. `is_blocked` says whether something outside it keeps it from starting
    /// (`Store::blocked`); only the phase of a job whose instant has come depends on that.
    #[must_use]
    pub fn given(job: &Job, is_blocked: bool, now: Timestamp) -> Self {
        match Self::of(job, now) {
            Self::Waiting if is_blocked => Self::Blocked,
            phase => phase,
        }
    }

    /// The phase of a job as the job alone shows it.
    #[must_use]
    pub fn of(job: &Job, now: Timestamp) -> Self {
        match &job.state {
            JobState::Pending { visible_at, .. } if *visible_at <= now => Self::Waiting,
            JobState::Pending { wait: Wait::Start, .. } => Self::Scheduled,
            JobState::Pending { wait: Wait::Cooling, .. } => Self::Cooling,
            JobState::Pending { wait: Wait::Deferred { .. }, .. } => Self::Blocked,
            JobState::Running { .. } => Self::Running,
            JobState::Succeeded { .. } => Self::Succeeded,
            JobState::Failed { reopen: Reopen::Discarded, .. } => Self::Discarded,
            JobState::Failed { .. } => Self::DeadLettered,
            JobState::Cancelled { .. } => Self::Cancelled,
        }
    }

    /// `dead_lettered` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Cooling => "cooling",
            Self::Blocked => "blocked",
            Self::Succeeded => "succeeded",
            Self::DeadLettered => "dead_lettered",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
        }
    }

    /// The phase of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }
}

/// When a job may be tried again, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAt {
    /// The earliest instant; in the past once the cooldown is over.
    pub at: Timestamp,
    /// Whether Coolant does it by itself.
    pub automatic: bool,
}

impl RetryAt {
    /// `None` where no retry can come or none is due: running, waiting, blocked, ended well, cancelled,
    /// or failed for good.
    #[must_use]
    pub const fn of(job: &Job) -> Option<Self> {
        match &job.state {
            JobState::Pending { visible_at, wait: Wait::Cooling } => {
                Some(Self { at: *visible_at, automatic: true })
            }
            JobState::Failed { reopen: Reopen::From(at), .. } => Some(Self { at: *at, automatic: false }),
            _ => None,
        }
    }

    /// Seconds until then, to the millisecond; 0 once it is past.
    #[must_use]
    pub fn in_seconds(&self, now: Timestamp) -> f64 {
        self.at.since(now).as_secs_f64()
    }

    /// For people: `retry possible in 4 min 12 s`.
    #[must_use]
    pub fn sentence(&self, now: Timestamp) -> Sentence {
        let left = self.at.since(now);
        match (left.is_zero(), self.automatic) {
            (true, true) => Sentence::RetryStarts,
            (true, false) => Sentence::RetryPossible,
            (false, true) => Sentence::RetriesIn(left),
            (false, false) => Sentence::RetryPossibleIn(left),
        }
    }
}

/// A failure's message without what differs from one failure to the next, so that messages that say the
/// same can be grouped: numbers, ids and hashes become `#`. 200 characters at most.
#[must_use]
pub fn without_particulars(message: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut shape = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c: char| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (piece, tail) = rest.split_at(end);
        match is_word(first) {
            true if uuid::Uuid::parse_str(piece).is_ok() => shape.push('#'),
            true => piece.split_inclusive('-').for_each(|word| push_word(&mut shape, word)),
            false => shape.push_str(piece),
        }
        rest = tail;
    }
    shape.chars().take(200).collect()
}

/// Long words with digits are ids or hashes; in short ones only the digits go (`gpt-4o` stays readable).
fn push_word(shape: &mut String, word: &str) {
    const LONG: usize = 8;
    let letters = word.trim_end_matches('-');
    if letters.len() >= LONG && letters.contains(|c: char| c.is_ascii_digit()) {
        shape.push('#');
        shape.push_str(&word[letters.len()..]);
        return;
    }
    for c in word.chars() {
        match c.is_ascii_digit() {
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
            false => shape.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_and_ids_alone_have_one_shape() {
        let shape = without_particulars;
        assert_eq!(shape("took 31.5 s of 30 s"), "took #.# s of # s");
        assert_eq!(shape("job 0198f3c2-1111-7abc-beef-0123456789ab is gone"), "job # is gone");
        assert_eq!(shape("request req_9f8e7d6c5b"), "request req_#");
        assert_eq!(shape("model gpt-4o-mini has no capacity"), "model gpt-#o-mini has no capacity");
        assert_eq!(shape("문서 42의 3쪽이 비었습니다"), "문서 #의 #쪽이 비었습니다");
        assert_eq!(shape(&"x".repeat(500)).len(), 200);
        assert_eq!(shape(""), "");
    }
}
