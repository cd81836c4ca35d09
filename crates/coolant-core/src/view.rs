//! What people are told about a job: its phase, and when a retry is possible. Derived, never stored.

use serde::{Deserialize, Serialize};

use crate::job::{Job, JobState, Reopen, Wait};
use crate::time::{Timestamp, spoken};

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

    /// The phase of a job.
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

    /// A plain sentence: `retry possible in 4 min 12 s`.
    #[must_use]
    pub fn message(&self, now: Timestamp) -> String {
        let left = self.at.since(now);
        match (left.is_zero(), self.automatic) {
            (true, true) => "retry starts with the next free worker".into(),
            (true, false) => "retry possible now".into(),
            (false, true) => format!("automatic retry in {}", spoken(left)),
            (false, false) => format!("retry possible in {}", spoken(left)),
        }
    }
}

/// A message with what differs from one failure of a kind to the next taken out: numbers, ids, quoted
/// values. Failures of one kind then read alike. 200 characters at most.
#[must_use]
pub fn normalised_message(message: &str) -> String {
    let mut normal = String::new();
    let mut rest = message.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' | '`' => {
                // Up to the closing quote, if there is one near; a lone quote stays as it is.
                let inner: String = rest.clone().take(300).take_while(|next| *next != c).collect();
                let closes = rest.clone().nth(inner.chars().count()) == Some(c);
                normal.push(c);
                if closes {
                    rest.nth(inner.chars().count());
                    normal.push('…');
                    normal.push(c);
                }
            }
            c if c.is_alphanumeric() => {
                let mut word = String::from(c);
                while let Some(next) = rest.next_if(|next| next.is_alphanumeric() || *next == '_') {
                    word.push(next);
                }
                let id = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
                let number = word.starts_with(|c: char| c.is_ascii_digit());
                normal.push_str(if id || number { "#" } else { &word });
            }
            c if c.is_whitespace() => {
                if !normal.ends_with(' ') {
                    normal.push(' ');
                }
            }
            c => normal.push(c),
        }
        if normal.len() > 200 {
            break;
        }
    }
    normal.chars().take(200).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_kind_read_alike() {
        let normal = normalised_message("page 12 of `a b.pdf` failed after 1.5s (id 0a1b2c3d4e5f)");
        assert_eq!(normal, "page # of `…` failed after #.# (id #)");
        assert_eq!(normalised_message("a lone ` stays,  spaces\nfold"), "a lone ` stays, spaces fold");
        assert!(normalised_message(&"x".repeat(5000)).len() <= 200);
    }
}
