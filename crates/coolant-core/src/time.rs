//! Instants and spans of time as the store counts them: whole milliseconds since 1970, UTC.
//!
//! Nothing here reads a clock. A [`Timestamp`] comes from the store's clock, or from a test.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant that many milliseconds after 1970.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The instant that much later. A part of a millisecond counts as a whole one, so that a wait is
    /// never cut short; the far end saturates.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis_up(span)))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Whole milliseconds of a span, rounded up, saturating.
#[must_use]
pub fn millis_up(span: Duration) -> i64 {
    let whole = span.as_millis();
    let up = if span.subsec_nanos().is_multiple_of(1_000_000) { whole } else { whole + 1 };
    i64::try_from(up).unwrap_or(i64::MAX)
}

/// A wait as a person says it, in whole units rounded up: `12 s`, `4 min 12 s`, `2 h 5 min`, `3 d 4 h`.
#[must_use]
pub fn spoken(wait: Duration) -> String {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let pair = |big: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big} {unit}"),
        _ => format!("{big} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => {
            let minutes = seconds.div_ceil(60);
            pair(minutes / 60, "h", minutes % 60, "min")
        }
        _ => {
            let hours = seconds.div_ceil(3600);
            pair(hours / 24, "d", hours % 24, "h")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_reads_as_a_person_says_it() {
        let said = |ms| spoken(Duration::from_millis(ms));
        assert_eq!(said(0), "0 s");
        assert_eq!(said(251_100), "4 min 12 s");
        assert_eq!(said(240_000), "4 min");
        assert_eq!(said(7_500_000), "2 h 5 min");
        assert_eq!(said(86_400_000 * 3 + 1), "3 d 1 h");
    }

    #[test]
    fn a_part_of_a_millisecond_is_never_cut_off_a_wait() {
        let start = Timestamp::from_millis(10);
        assert_eq!(start.plus(Duration::from_micros(1)), Timestamp::from_millis(11));
        assert_eq!(start.plus(Duration::MAX), Timestamp::from_millis(i64::MAX));
        assert_eq!(start.since(Timestamp::from_millis(20)), Duration::ZERO);
    }
}
