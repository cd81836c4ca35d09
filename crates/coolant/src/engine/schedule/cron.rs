//! Cron expressions in the clock of a time zone.
//!
//! Which wall clock times an expression names is croner's to say; which instants those are is said here, by
//! jiff's time zones:
//! - a time of day (`30 2 * * *`, `0 8,20 * * *`) that the clock jumps over comes once, at the first instant
//!   after it; one that the clock shows twice is taken once, the first time;
//! - an expression that goes on through the hours (`*/15 * * * *`) simply goes on: nothing while the clock
//!   jumps, and every quarter of the repeated hour.
//!
//! croner's own rule takes only a single hour and minute for a time of day: `0 8,20 * * *` would be dropped
//! or doubled when the clock changes at eight.

use std::cmp::Ordering;

use coolant_core::schedule::Ticks;
use coolant_core::time::Timestamp;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, ZonedDateTime};

use crate::engine::{EngineError, EngineResult};

/// Longest expression, in bytes.
const MAX_CRON: usize = 256;

/// The ticks of an expression in a time zone.
#[derive(Clone)]
pub struct CronTicks {
    cron: Cron,
    zone: TimeZone,
    /// Whether it goes on through the hours, rather than naming times of day.
    through: bool,
}

impl std::fmt::Debug for CronTicks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CronTicks(`{}` in {:?})", self.cron.as_str(), self.zone.iana_name())
    }
}

impl CronTicks {
    /// Reads an expression of five fields, or of six with the second first.
    ///
    /// # Errors
    /// Which of `cron` and `time_zone` is wrong, and what it takes.
    pub fn parse(cron: &str, time_zone: &str) -> EngineResult<Self> {
        let zone = zone(time_zone)?;
        let wrong = |why: &str| EngineError::field("cron", format!("{why}; {TAKES}"));
        if cron.len() > MAX_CRON {
            return Err(wrong(&format!("has more than {MAX_CRON} bytes")));
        }
        if cron.split_whitespace().any(|field| field.split(',').any(str::is_empty)) {
            return Err(wrong("has an empty item in a list"));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(cron).map_err(|error| wrong(&said(&error)))?;
        let hours = &cron.pattern.hours;
        let through = hours.from_wildcard || hours.values().len() == 24;
        Ok(Self { cron, zone, through })
    }

    /// The instant of a time of day.
    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(civil);
        let jumped_over = matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. });
        let earlier = ambiguous.earlier().ok()?;
        let instant = match jumped_over {
            true => self.zone.following(earlier).next()?.timestamp(),
            false => earlier,
        };
        Some(Timestamp::from_millis(instant.as_millisecond()))
    }

    /// The wall clock time at or after which there is no time of day whose instant has come.
    fn last_civil(&self, at: jiff::Timestamp) -> Option<DateTime> {
        let civil = self.zone.to_datetime(at);
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            // All of a repeated hour may have come, the first time it was shown.
            AmbiguousOffset::Fold { before, after } => {
                let shown_twice = SignedDuration::from_secs(i64::from(before.seconds() - after.seconds()));
                civil.checked_add(shown_twice).ok()
            }
            _ => Some(civil),
        }
    }
}

/// The second in which an instant lies.
fn second(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(at.as_millis().div_euclid(1000)).ok()
}

const TAKES: &str = "it takes five fields (minute, hour, day of month, month, day of week), such as \
                     `0 3 * * MON-FRI`, or six with the second first";

fn said(error: &CronError) -> String {
    match error {
        CronError::EmptyPattern => "is empty".into(),
        CronError::InvalidPattern(text)
        | CronError::IllegalCharacters(text)
        | CronError::ComponentError(text) => {
            format!("cannot be read: {}", text.trim_end_matches('.'))
        }
        other => format!("cannot be read: {other}"),
    }
}

fn zone(name: &str) -> EngineResult<TimeZone> {
    let takes = "is no time zone: it takes an IANA name such as `Europe/Berlin`, `Asia/Seoul` or `UTC`";
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| EngineError::field("time_zone", takes))
}

/// The name of a time zone as its database spells it.
pub(super) fn zone_name(name: &str) -> EngineResult<String> {
    Ok(zone(name)?.iana_name().unwrap_or("UTC").to_owned())
}

impl Ticks for CronTicks {
    // Each search ends where there is nothing for centuries: 30 February.
    fn after(&self, at: Timestamp) -> Option<Timestamp> {
        let start = second(at)?;
        if self.through {
            let wall = Wall(start.to_zoned_datetime(self.zone.clone()));
            let next = self.cron.find_next_occurrence(&wall, false).ok()?;
            return Some(next.timestamp()).filter(|next| *next > at);
        }
        let mut civil = self.zone.to_datetime(start);
        loop {
            civil = self.cron.find_next_occurrence(&Civil(civil), false).ok()?.0;
            let tick = self.instant(civil)?;
            if tick > at {
                return Some(tick);
            }
        }
    }

    fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let start = second(at)?;
        if self.through {
            let wall = Wall(start.to_zoned_datetime(self.zone.clone()));
            let last = self.cron.find_previous_occurrence(&wall, true).ok()?;
            return Some(last.timestamp()).filter(|last| *last <= at);
        }
        let mut civil = self.cron.find_previous_occurrence(&Civil(self.last_civil(start)?), true).ok()?.0;
        loop {
            let tick = self.instant(civil)?;
            if tick <= at {
                return Some(tick);
            }
            civil = self.cron.find_previous_occurrence(&Civil(civil), false).ok()?.0;
        }
    }
}

fn to_croner(at: DateTime) -> CivilDateTime {
    let part = |part: i8| part.unsigned_abs().into();
    CivilDateTime::new(
        CivilDate::from_parts_unchecked(at.year().into(), part(at.month()), part(at.day())),
        CivilTime::from_parts_unchecked(part(at.hour()), part(at.minute()), part(at.second())),
    )
}

fn from_croner(at: CivilDateTime) -> Result<DateTime, CronError> {
    let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
    let year = i16::try_from(at.year()).map_err(|_| CronError::InvalidDate)?;
    let (date, time) = (at.date(), at.time());
    let (month, day) = (part(date.month())?, part(date.day())?);
    let (hour, minute, second) = (part(time.hour())?, part(time.minute())?, part(time.second())?);
    DateTime::new(year, month, day, hour, minute, second, 0).map_err(|_| CronError::InvalidDate)
}

fn weekday(day: jiff::civil::Weekday) -> Weekday {
    Weekday::from_days_from_sunday(day.to_sunday_zero_offset().unsigned_abs().into())
}

/// A wall clock time by itself, as croner asks for it.
#[derive(Debug, Clone)]
struct Civil(DateTime);

impl CronDateTime for Civil {
    fn to_civil(&self) -> CivilDateTime {
        to_croner(self.0)
    }

    fn civil_weekday(&self) -> Weekday {
        weekday(self.0.weekday())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        from_croner(civil).map(Self).map(Resolution::Single)
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// An instant with its wall clock time.
#[derive(Debug, Clone)]
struct Wall(ZonedDateTime);

impl Wall {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(self.0.timestamp().as_millisecond())
    }
}

impl CronDateTime for Wall {
    fn to_civil(&self) -> CivilDateTime {
        to_croner(self.0.datetime())
    }

    fn civil_weekday(&self) -> Weekday {
        weekday(self.0.weekday())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let ambiguous = self.0.time_zone().to_ambiguous_zoned_datetime(from_croner(civil)?);
        let wall =
            |zoned: Result<ZonedDateTime, jiff::Error>| zoned.map(Self).map_err(|_| CronError::InvalidTime);
        Ok(match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => Resolution::Single(wall(ambiguous.compatible())?),
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
            AmbiguousOffset::Fold { .. } => {
                Resolution::Ambiguous(wall(ambiguous.clone().earlier())?, wall(ambiguous.later())?)
            }
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.timestamp().cmp(&other.0.timestamp())
    }
}
