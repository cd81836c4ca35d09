//! Durations as providers write them: `20`, `1.5`, `172ms`, `6m0s`, `9m38.016s`, `2 hours and 5 minutes`,
//! `02:10:33`, `16 days`, `20 秒`. All arithmetic is whole numbers, so nothing overflows or is `nan`.

use std::time::Duration;

/// Seconds as a plain number. `inf`, `nan`, signs and anything above a century are no number here.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (nanos, rest) = decimal(text, 1_000_000_000)?;
    rest.is_empty().then(|| duration(nanos)).flatten()
}

/// Milliseconds as a plain number.
pub(crate) fn millis(text: &str) -> Option<Duration> {
    let (nanos, rest) = decimal(text.trim(), 1_000_000)?;
    rest.is_empty().then(|| duration(nanos)).flatten()
}

/// A duration that fills the whole text.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let lower = text.trim().to_lowercase();
    let (nanos, rest) = units(&lower)?;
    rest.trim().is_empty().then(|| duration(nanos)).flatten()
}

/// A duration at the start of a text in lower case. A bare number counts as seconds only where nothing
/// countable follows it: "retry after 3 attempts" is no wait.
pub(crate) fn leading(text: &str) -> Option<Duration> {
    if let Some(nanos) = clock(text) {
        return duration(nanos);
    }
    if let Some((nanos, _)) = units(text) {
        return duration(nanos);
    }
    for (word, secs) in
        [("an hour", 3600), ("a minute", 60), ("one minute", 60), ("one hour", 3600), ("a day", 86_400)]
    {
        if text.starts_with(word) {
            return Some(Duration::from_secs(secs));
        }
    }
    let (nanos, rest) = decimal(text, 1_000_000_000)?;
    let ends = rest.is_empty() || rest.starts_with(['.', ',', ';', ')', '"', '\n', '}']);
    ends.then(|| duration(nanos)).flatten()
}

/// `02:10:33`, hours first, or `6.02:10:33` with days before them, as .NET writes it.
fn clock(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(text.len());
    let mut parts = text[..end].trim_end_matches('.').split(':');
    let number = |text: &str| text.parse::<u128>().ok().filter(|_| text.len() <= 3);
    let (first, minutes, secs) = (parts.next()?, number(parts.next()?)?, number(parts.next()?)?);
    let (days, hours) = first.split_once('.').unwrap_or(("0", first));
    let hours = number(days)? * 24 + number(hours)?;
    (minutes < 60 && secs < 60 && parts.next().is_none())
        .then_some((hours * 3600 + minutes * 60 + secs) * 1_000_000_000)
}

/// Numbers with units, one after the other, largest first or not; and what follows them.
fn units(text: &str) -> Option<(u128, &str)> {
    let mut total = None;
    let mut rest = text;
    while let Some((number, unit, next)) = number_with_unit(rest) {
        total = Some(total.unwrap_or(0_u128).checked_add(number.checked_mul(unit)? / 1_000_000_000)?);
        let joined = next.trim_start_matches([' ', ',']);
        rest = joined.strip_prefix("and ").unwrap_or(joined);
    }
    Some((total?, rest))
}

/// One number in billionths, its unit in nanoseconds, and what follows.
fn number_with_unit(text: &str) -> Option<(u128, u128, &str)> {
    const SECOND: u128 = 1_000_000_000;
    let (number, rest) = decimal(text, 1_000_000_000)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let word = &rest[..end];
    // Chinese runs on without blanks: the unit is the start of the word.
    for (sign, unit) in [
        ("毫秒", SECOND / 1000),
        ("秒", SECOND),
        ("分", 60 * SECOND),
        ("小时", 3600 * SECOND),
        ("天", 86_400 * SECOND),
    ] {
        if let Some(next) = rest.strip_prefix(sign) {
            return Some((number, unit, next.strip_prefix('钟').unwrap_or(next)));
        }
    }
    let unit = match word {
        "ns" | "nanosecond" | "nanoseconds" => 1,
        "us" | "µs" | "μs" | "microseconds" => 1_000,
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => SECOND / 1000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND,
        _ => return None,
    };
    let mut next = &rest[end..];
    // "second(s)" is one word to its author.
    next = next.strip_prefix("(s)").unwrap_or(next);
    Some((number, unit, next))
}

/// A number without sign or exponent, times `scale`, rounded up in the last place; and what follows it.
fn decimal(text: &str, scale: u128) -> Option<(u128, &str)> {
    let whole_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = &text[..whole_end];
    // Twelve digits of seconds are 31,000 years: more is not a wait, and never has to fit anything.
    if whole.is_empty() || whole.len() > 12 {
        return None;
    }
    let mut rest = &text[whole_end..];
    let mut value = whole.parse::<u128>().ok()? * scale;
    if let Some(after) = rest.strip_prefix('.') {
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if end > 0 {
            let mut place = scale;
            let mut lost = false;
            for digit in after[..end].bytes().map(|b| u128::from(b - b'0')) {
                place /= 10;
                value += digit * place;
                lost |= place == 0 && digit > 0;
            }
            value += u128::from(lost);
            rest = &after[end..];
        }
    }
    Some((value, rest))
}

fn duration(nanos: u128) -> Option<Duration> {
    const BILLION: u128 = 1_000_000_000;
    let secs = u64::try_from(nanos / BILLION).ok()?;
    Some(Duration::new(secs, u32::try_from(nanos % BILLION).ok()?))
}
