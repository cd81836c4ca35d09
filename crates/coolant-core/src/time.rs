//! Instants and spans of time as the store counts them: whole milliseconds since 1970, UTC.
//!
//! Nothing here reads a clock. A [`Timestamp`] comes from the store's clock, or from a test.

use std::time::{Duration, SystemTime};

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

impl From<SystemTime> for Timestamp {
    /// What the machine's clock says, as an instant; the near end is 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    /// The instant as the machine's clock would say it; the near end is 1970.
    fn from(instant: Timestamp) -> Self {
        Self::UNIX_EPOCH + instant.since(Timestamp::default())
    }
}

/// Milliseconds of a day. Days are UTC.
pub const DAY_MS: i64 = 86_400_000;

impl Timestamp {
    /// The day it lies in, counted from 1970-01-01.
    #[must_use]
    pub const fn day(self) -> i64 {
        self.0.div_euclid(DAY_MS)
    }

    /// The first instant of a day; the far ends saturate.
    #[must_use]
    pub const fn start_of_day(day: i64) -> Self {
        Self(day.saturating_mul(DAY_MS))
    }
}

/// The day that a date such as `2026-11-30` names, counted from 1970-01-01; `None` for what is no date of
/// the years 1 to 9999.
#[must_use]
pub fn day_of(date: &str) -> Option<i64> {
    let bytes = date.as_bytes();
    let is_date = bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let number = |range: std::ops::Range<usize>| date.get(range)?.parse::<i64>().ok();
    let (year, month, day) =
        if is_date { (number(0..4)?, number(5..7)?, number(8..10)?) } else { return None };
    if year == 0 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let (year_of_march, month_of_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month_of_march + 2) / 5 + day - 1;
    let leap_days = year_of_march / 4 - year_of_march / 100 + year_of_march / 400;
    let found = year_of_march * 365 + leap_days + day_of_year - DAYS_TO_1970;
    // A day that its month does not have would come back as one of the next.
    (date_of(found) == date).then_some(found)
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// The date of a day counted from 1970-01-01, such as `2026-11-30`.
#[must_use]
pub fn date_of(day: i64) -> String {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let since_march = day.saturating_add(DAYS_TO_1970);
    let era = since_march.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = since_march.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_OF_400_YEARS - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_of_march + 2) / 5 + 1;
    let month = if month_of_march < 10 { month_of_march + 3 } else { month_of_march - 9 };
    let year = era.saturating_mul(400) + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
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
    fn a_date_and_its_day_are_each_others() {
        assert_eq!(day_of("1970-01-01"), Some(0));
        assert_eq!(day_of("2026-11-30"), Some(20_787));
        assert_eq!(date_of(20_787), "2026-11-30");
        assert_eq!(Timestamp::from_millis(-1).day(), -1);
        for day in (-719_162..2_932_896).step_by(13) {
            assert_eq!(day_of(&date_of(day)), Some(day));
        }
        for wrong in ["2026-02-29", "2026-13-01", "2026-00-10", "0000-01-01", "2026-1-01", "+026-01-01", ""] {
            assert_eq!(day_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_part_of_a_millisecond_is_never_cut_off_a_wait() {
        let start = Timestamp::from_millis(10);
        assert_eq!(start.plus(Duration::from_micros(1)), Timestamp::from_millis(11));
        assert_eq!(start.plus(Duration::MAX), Timestamp::from_millis(i64::MAX));
        assert_eq!(start.since(Timestamp::from_millis(20)), Duration::ZERO);
    }
}
