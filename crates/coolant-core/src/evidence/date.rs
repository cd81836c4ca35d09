//! Points in time as providers write them: HTTP dates, RFC 3339, `2026-04-01 at 00:00 UTC`,
//! `April 1, 2026`, epoch seconds and milliseconds. A time without a zone is read as UTC.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// A time that fills a header or a field.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    leading(&text.trim().to_lowercase())
}

/// A time at the start of a text in lower case.
pub(crate) fn leading(text: &str) -> Option<SystemTime> {
    let text = super::fault::clip(text, 64);
    iso(text).or_else(|| in_words(text))
}

/// Epoch seconds or milliseconds; smaller numbers are durations.
pub(crate) fn epoch(text: &str) -> Option<SystemTime> {
    let whole = text.trim().split('.').next()?;
    if whole.len() > 16 || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let millis = match whole.parse::<u64>().ok()? {
        // From 2001 on; a wait of that many seconds would be 31 years.
        secs @ 1_000_000_000..=99_999_999_999 => secs * 1000,
        millis @ 1_000_000_000_000..=99_999_999_999_999 => millis,
        _ => return None,
    };
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

/// `2026-04-01T00:00:00.5Z`, `2026-04-01 08:00:00+08:00`, `2026-04-01 at 00:00 UTC`.
fn iso(text: &str) -> Option<SystemTime> {
    let (year, rest) = digits(text, 4, 4)?;
    let (month, rest) = digits(rest.strip_prefix(['-', '/'])?, 1, 2)?;
    let (day, rest) = digits(rest.strip_prefix(['-', '/'])?, 1, 2)?;
    let rest = rest.strip_prefix(['t', ',']).unwrap_or(rest).trim_start();
    let rest = rest.strip_prefix("at ").unwrap_or(rest).trim_start();
    let (second, nanos, rest) = time_of_day(rest).unwrap_or((0, 0, rest));
    instant(year, month, day, second - zone(rest), nanos)
}

/// `fri, 29 sep 2023 16:26:57 gmt`, `29-sep-23`, `april 1st, 2026 3:04 am`, `1 april 2026`.
fn in_words(text: &str) -> Option<SystemTime> {
    const BETWEEN: [char; 3] = [' ', ',', '-'];
    let (mut day, mut month, mut year) = (None, None, None);
    let mut rest = text;
    while day.is_none() || month.is_none() || year.is_none() {
        rest = rest.trim_start_matches(BETWEEN);
        let (field, after) = rest.split_at(rest.find(BETWEEN).unwrap_or(rest.len()));
        let number = field.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        if let Some(at) = MONTHS.iter().position(|name| field.starts_with(name)) {
            month = Some(at as i64 + 1);
        } else if let (Ok(value), true) = (number.parse::<i64>(), number.len() <= 2 && day.is_none()) {
            day = Some(value);
        } else if let (Ok(value), true) = (number.parse::<i64>(), matches!(number.len(), 2 | 4)) {
            // Two digits are RFC 850's, which no provider sends for the last century.
            year = Some(if value < 100 { value + 2000 } else { value });
        } else if field.is_empty() || !number.is_empty() || day.is_some() || month.is_some() {
            // Only a weekday's name may stand before the rest.
            return None;
        }
        rest = after;
    }
    let rest = rest.trim_start_matches([' ', ',']);
    let rest = rest.strip_prefix("at ").unwrap_or(rest);
    let (second, nanos, rest) = time_of_day(rest).unwrap_or((0, 0, rest));
    instant(year?, month?, day?, second - zone(rest), nanos)
}

/// Seconds since midnight and nanoseconds: `16:26:57.5`, `3:04 pm`.
fn time_of_day(text: &str) -> Option<(i64, u32, &str)> {
    let (mut hour, rest) = digits(text, 1, 2)?;
    let (minute, mut rest) = digits(rest.strip_prefix(':')?, 2, 2)?;
    let (mut second, mut nanos) = (0, 0);
    if let Some((value, after)) = rest.strip_prefix(':').and_then(|rest| digits(rest, 2, 2)) {
        (second, rest) = (value, after);
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let nine: String = after[..end].chars().chain("000000000".chars()).take(9).collect();
            nanos = nine.parse().ok()?;
            rest = &after[end..];
        }
    }
    rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix("pm") {
        (hour, rest) = (hour % 12 + 12, after);
    } else if let Some(after) = rest.strip_prefix("am") {
        (hour, rest) = (hour % 12, after);
    }
    (hour < 24 && minute < 60 && second <= 60).then_some((hour * 3600 + minute * 60 + second, nanos, rest))
}

/// The zone's distance from UTC in seconds: `z`, `utc`, `gmt`, `+08:00`, `-0700`, `(utc+8)`.
fn zone(text: &str) -> i64 {
    let text = text.trim_start_matches([' ', '(']);
    let text = text.strip_prefix("utc").or_else(|| text.strip_prefix("gmt")).unwrap_or(text);
    let sign = match text.chars().next() {
        Some('+') => 1,
        Some('-') => -1,
        _ => return 0,
    };
    let Some((hours, rest)) = digits(&text[1..], 1, 2) else { return 0 };
    let minutes = digits(rest.strip_prefix(':').unwrap_or(rest), 2, 2).map_or(0, |(minutes, _)| minutes);
    if hours > 14 || minutes > 59 { 0 } else { sign * (hours * 3600 + minutes * 60) }
}

/// A number of so many digits, not followed by another digit; and what follows it.
fn digits(text: &str, fewest: usize, most: usize) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    // `-0700` has no colon: take only as many as may be.
    let end = if fewest == 1 && end == 4 { 2 } else { end };
    (fewest..=most).contains(&end).then(|| Some((text[..end].parse().ok()?, &text[end..]))).flatten()
}

/// The civil date and second of day as a point in time; none for dates that do not exist or lie before 1970.
fn instant(year: i64, month: i64, day: i64, second: i64, nanos: u32) -> Option<SystemTime> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Howard Hinnant's count of days: years start in March, so that the leap day is the last.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted / 400;
    let year_of_era = shifted % 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    let secs = u64::try_from(days * 86_400 + second).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(secs, nanos))
}
