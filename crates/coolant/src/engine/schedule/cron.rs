//! Cron expressions in the clock of a time zone.
//!
//! The arithmetic is croner's, which follows the Open Cron Pattern Specification; the calendar is jiff's,
//! which the rest of the program uses. What that means where clocks change:
//! - a time that the clock jumps over (`30 2 * * *` in spring) comes once, at the first instant after it;
//! - a time that comes twice (in autumn) is taken once, the first time;
//! - an expression that goes on through the hours (`*/15 * * * *`) simply goes on: nothing while the clock
//!   jumps, and every quarter of the repeated hour.

use std::cmp::Ordering;

use coolant_core::schedule::Ticks;
use coolant_core::time::Timestamp;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, ZonedDateTime};

use crate::engine::{EngineError, EngineResult};

/// Longest expression, in bytes.
const MAX_CRON: usize = 256;

/// The ticks of an expression in a time zone.
#[derive(Debug, Clone)]
pub struct CronTicks {
    cron: Cron,
    zone: TimeZone,
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
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(cron).map_err(|error| wrong(&said(&error)))?;
        Ok(Self { cron, zone })
    }

    fn at(&self, at: Timestamp) -> Option<Wall> {
        let second = at.as_millis().div_euclid(1000);
        let at = jiff::Timestamp::from_second(second).ok()?;
        Some(Wall(at.to_zoned_datetime(self.zone.clone())))
    }
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
    fn after(&self, at: Timestamp) -> Option<Timestamp> {
        // Ended where there is none for centuries: 30 February.
        let next = self.cron.find_next_occurrence(&self.at(at)?, false).ok()?;
        Some(next.timestamp()).filter(|next| *next > at)
    }

    fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        let last = self.cron.find_previous_occurrence(&self.at(at)?, true).ok()?;
        Some(last.timestamp()).filter(|last| *last <= at)
    }
}

/// An instant with the clock on the wall, as croner asks for it.
#[derive(Debug, Clone)]
struct Wall(ZonedDateTime);

impl Wall {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(self.0.timestamp().as_millisecond())
    }
}

impl CronDateTime for Wall {
    fn to_civil(&self) -> CivilDateTime {
        let at = self.0.datetime();
        let part = |part: i8| part.unsigned_abs().into();
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(at.year().into(), part(at.month()), part(at.day())),
            CivilTime::from_parts_unchecked(part(at.hour()), part(at.minute()), part(at.second())),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(self.0.weekday().to_sunday_zero_offset().unsigned_abs().into())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let (date, time) = (civil.date(), civil.time());
        let at = jiff::civil::DateTime::new(
            year,
            part(date.month())?,
            part(date.day())?,
            part(time.hour())?,
            part(time.minute())?,
            part(time.second())?,
            0,
        );
        let at = at.map_err(|_| CronError::InvalidDate)?;
        let ambiguous = self.0.time_zone().to_ambiguous_zoned_datetime(at);
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
