//! The wait that an answer states: from headers, from fields of the body, from words.
//!
//! The first source in the order of precision that gives a credible value wins: `retry-after-ms`,
//! `retry-after`, the reset headers of budgets that are used up, fields of the body and its words (the
//! longer of the two, since one is often the other cut off). A source with nonsense is passed over.

use std::time::{Duration, SystemTime};

use crate::failure::FailureClass;

use super::fault::{BodyWait, Fault};
use super::matching::Verdict;
use super::{Evidence, Retry, date, room, span};

/// Nothing beyond this is credible.
pub(crate) const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// What an answer states about when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stated {
    pub(crate) wait: Option<Duration>,
    /// The absolute time, if it was stated as one.
    pub(crate) until: Option<SystemTime>,
    /// Whether words stated it.
    pub(crate) in_words: bool,
}

/// The wait that the answer states, if the kind of fault is one that waiting heals.
pub(crate) fn stated(
    evidence: &Evidence,
    fault: &Fault,
    verdict: &Verdict,
    now: Option<SystemTime>,
) -> Stated {
    use FailureClass::{Network, Overloaded, QuotaExhausted, RateLimited, Timeout, UpstreamError};
    let heals = matches!(
        verdict.class,
        RateLimited | Overloaded | QuotaExhausted | UpstreamError | Timeout | Network
    );
    if !heals || verdict.retry == Retry::No {
        return Stated::default();
    }
    let now = evidence.header("date").and_then(date::parse).or(now);
    let is_limit = matches!(verdict.class, RateLimited | Overloaded | QuotaExhausted);
    let words = in_words(fault, now);
    let found = retry_after(&evidence.headers, now)
        .or_else(|| resets(&evidence.headers, now).filter(|_| is_limit))
        .or_else(|| retry_after(&fault.headers, now))
        .or_else(|| resets(&fault.headers, now).filter(|_| is_limit))
        .or_else(|| longer(in_fields(fault, now), words));
    Stated { in_words: words.is_some(), ..found.unwrap_or_default() }
}

pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| bare(n).eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A header's name without the prefix that the LiteLLM proxy puts before those of the provider.
pub(crate) fn bare(name: &str) -> &str {
    let name = name.trim();
    match name.get(..13) {
        Some(prefix) if prefix.eq_ignore_ascii_case("llm_provider-") => &name[13..],
        _ => name,
    }
}

fn retry_after(headers: &[(String, String)], now: Option<SystemTime>) -> Option<Stated> {
    let millis = ["retry-after-ms", "x-ms-retry-after-ms", "x-retry-after-ms"]
        .into_iter()
        .filter_map(|name| find(headers, name))
        .find_map(|value| relative(span::millis(value)?));
    millis.or_else(|| {
        ["retry-after", "x-retry-after"].into_iter().filter_map(|name| find(headers, name)).find_map(
            |value| {
                // No epoch here: a stamp in this header has been a bug more often than a time.
                span::seconds(value)
                    .or_else(|| span::parse(value))
                    .map_or_else(|| absolute(date::parse(value)?, now), relative)
            },
        )
    })
}

/// The latest reset of the limits of which nothing is left.
fn resets(headers: &[(String, String)], now: Option<SystemTime>) -> Option<Stated> {
    let used_up = room::limits(headers, now).filter(room::Limit::is_used_up_by_a_refusal);
    let named = used_up.filter_map(|limit| limit.reset).reduce(later);
    named.or_else(|| structured_field(find(headers, "ratelimit")?))
}

/// The IETF draft's one header, if it says that nothing is left: `"default";r=0;t=30`, and its older form
/// `limit=5, remaining=0, reset=30`.
pub(crate) fn structured_field(value: &str) -> Option<Stated> {
    let field = |names: [&str; 2]| {
        value.split([';', ',']).find_map(|part| {
            let (name, value) = part.trim().split_once('=')?;
            names.contains(&name.trim()).then(|| value.trim())
        })
    };
    (field(["r", "remaining"])? == "0").then(|| relative(span::seconds(field(["t", "reset"])?)?)).flatten()
}

fn in_fields(fault: &Fault, now: Option<SystemTime>) -> Option<Stated> {
    let of = |wait: &BodyWait| match wait {
        BodyWait::Delay(text) => {
            span::seconds(text).or_else(|| span::parse(text)).map_or_else(|| point(text, now), relative)
        }
        BodyWait::Millis(text) => relative(span::millis(text)?),
        BodyWait::Until(text) => point(text, now),
        BodyWait::Estimate(_) => None,
    };
    let delays = fault.waits.iter().filter_map(of).reduce(later);
    delays.or_else(|| {
        fault.waits.iter().find_map(|wait| match wait {
            BodyWait::Estimate(text) => relative(span::seconds(text).or_else(|| span::parse(text))?),
            _ => None,
        })
    })
}

/// What the words say after "try again in", "until" and the like; the longest if there are several.
fn in_words(fault: &Fault, now: Option<SystemTime>) -> Option<Stated> {
    const BEFORE: [&str; 27] = [
        "again in",
        "again after",
        "retry in",
        "retry after",
        "retry-after",
        "retrying in",
        "reset in",
        "resets in",
        "reset after",
        "resets after",
        "wait for",
        "wait",
        "available in",
        "replenished in",
        "renews in",
        "request after",
        "requests after",
        "expires in",
        "seconds left:",
        "请在",
        "请等待",
        "等待",
        "请于",
        "restored in",
        "retrydelay",
        "retry_after",
        "backoff for",
    ];
    const BEFORE_TIME: [&str; 15] = [
        "until",
        "again at",
        "again on",
        "access on",
        "access at",
        "reset at",
        "resets at",
        "reset on",
        "resets on",
        "again after",
        "retry after",
        "available at",
        "available on",
        "renews on",
        "将在",
    ];
    let mut longest = None;
    for text in &fault.texts {
        let text = text.to_lowercase();
        for rest in after(&text, &BEFORE) {
            if let Some(wait) = span::leading(rest).and_then(relative) {
                longest = longer(longest, Some(wait));
            }
        }
        for rest in after(&text, &BEFORE_TIME) {
            if let Some(wait) = date::leading(rest).and_then(|time| absolute(time, now)) {
                longest = longer(longest, Some(wait));
            }
        }
    }
    longest
}

/// What follows each of the marks, without the small words between a mark and its value.
fn after<'a>(text: &'a str, marks: &'a [&'a str]) -> impl Iterator<Item = &'a str> + 'a {
    const SMALL: [&str; 12] = [
        "about",
        "approximately",
        "approx.",
        "around",
        "another",
        "at least",
        "~",
        ":",
        "=",
        "the next",
        "for",
        "\"",
    ];
    marks.iter().flat_map(move |mark| {
        text.match_indices(mark).take(8).map(move |(at, _)| {
            let mut rest = text[at + mark.len()..].trim_start();
            while let Some(next) = SMALL.iter().find_map(|small| rest.strip_prefix(small)) {
                rest = next.trim_start();
            }
            rest
        })
    })
}

/// A reset in any of the forms met: a duration, seconds, epoch seconds or milliseconds, a date.
pub(crate) fn point(value: &str, now: Option<SystemTime>) -> Option<Stated> {
    let value = value.trim();
    if let Some(time) = date::epoch(value) {
        return absolute(time, now);
    }
    let span = span::seconds(value).or_else(|| span::parse(value));
    span.map_or_else(|| absolute(date::parse(value)?, now), relative)
}

/// A wait inside the bounds, rounded up to a millisecond.
fn relative(wait: Duration) -> Option<Stated> {
    let rest = wait.subsec_nanos() % 1_000_000;
    let wait =
        if rest == 0 { wait } else { wait.checked_add(Duration::from_nanos(u64::from(1_000_000 - rest)))? };
    (!wait.is_zero() && wait <= LONGEST).then_some(Stated { wait: Some(wait), ..Stated::default() })
}

/// An absolute time as a wait, if the present is known; a time that is known to have passed is none.
fn absolute(until: SystemTime, now: Option<SystemTime>) -> Option<Stated> {
    let Some(now) = now else { return Some(Stated { until: Some(until), ..Stated::default() }) };
    let stated = relative(until.duration_since(now).ok()?)?;
    Some(Stated { until: Some(until), ..stated })
}

fn longer(left: Option<Stated>, right: Option<Stated>) -> Option<Stated> {
    match (left, right) {
        (Some(left), Some(right)) => Some(later(left, right)),
        (one, other) => one.or(other),
    }
}

pub(crate) fn later(left: Stated, right: Stated) -> Stated {
    if (right.wait, right.until) > (left.wait, left.until) { right } else { left }
}
