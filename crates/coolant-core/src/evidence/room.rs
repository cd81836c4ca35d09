//! What headers say about the limits of a provider: how much is left of each, and when it is whole again.
//!
//! What cannot be read, and a count without a reset, is no statement. Where a header came twice, the one that
//! lets fewer calls pass counts.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::wait::{self, Stated};
use super::{Evidence, date};
use crate::upstream::{Left, Room};

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Requests,
    Tokens,
    /// Not known, or only a part of what a call needs.
    Other,
}

/// A limit as headers name it, such as `x-ratelimit` and `-tokens-minute`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    family: String,
    of: String,
}

/// What is stated about one limit.
#[derive(Debug, Default)]
pub(super) struct Limit {
    unit: Option<Unit>,
    /// What is left, in whole units.
    left: Option<u64>,
    /// Whether a header said something about what is left, understood or not.
    is_counted: bool,
    pub(super) reset: Option<Stated>,
}

/// Which part of a statement a header holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Remaining,
    /// Plans have a status in place of a count.
    Status,
    Reset,
}

/// What an answer that went well says is left.
pub(super) fn read(evidence: &Evidence, now: Option<SystemTime>) -> Room {
    let now = evidence.header("date").and_then(date::parse).or(now);
    let mut room = Room::default();
    for limit in limits(&evidence.headers, now) {
        let Some(left) = limit.stated() else { continue };
        match limit.unit {
            Some(Unit::Tokens) => room.tokens.push(left),
            Some(Unit::Requests) => room.requests.push(left),
            _ if left.amount == 0 => room.requests.push(left),
            _ => {}
        }
    }
    let field = wait::find(&evidence.headers, "ratelimit").and_then(wait::structured_field);
    let nothing = field.and_then(|stated| stated.wait).map(|reset_in| Left { amount: 0, reset_in });
    room.requests.extend(nothing);
    room
}

/// The limits that headers speak of.
pub(super) fn limits(
    headers: &[(String, String)],
    now: Option<SystemTime>,
) -> impl Iterator<Item = Limit> + use<> {
    let mut limits: BTreeMap<Name, Limit> = BTreeMap::new();
    for (header, value) in headers {
        let header = wait::bare(header).to_ascii_lowercase();
        let Some((part, name)) = anthropic(&header).or_else(|| usual(&header)) else { continue };
        limits.entry(name).or_default().take(part, value.trim(), now);
    }
    limits.into_iter().map(|(name, limit)| Limit { unit: name.unit(), ..limit })
}

impl Limit {
    fn take(&mut self, part: Part, value: &str, now: Option<SystemTime>) {
        let left = match part {
            Part::Reset => {
                let reset = wait::point(value, now);
                self.reset = self.reset.into_iter().chain(reset).reduce(wait::later);
                return;
            }
            Part::Remaining => whole(value),
            Part::Status => (value == "rejected").then_some(0),
        };
        self.is_counted = true;
        self.left = self.left.into_iter().chain(left).min();
    }

    fn stated(&self) -> Option<Left> {
        Some(Left { amount: self.left?, reset_in: self.reset?.wait? })
    }

    /// Whether a refusal says that nothing is left of it: one that names no limit needs no count for that.
    pub(super) fn is_used_up_by_a_refusal(&self) -> bool {
        self.left == Some(0) || !self.is_counted && self.unit.is_none()
    }
}

impl Name {
    fn unit(&self) -> Option<Unit> {
        const WINDOWS: [&str; 4] = ["-second", "-minute", "-hour", "-day"];
        if self.of.is_empty() {
            return None;
        }
        let of = WINDOWS.iter().find_map(|window| self.of.strip_suffix(window)).unwrap_or(&self.of);
        Some(match of {
            "-requests" => Unit::Requests,
            "-tokens" => Unit::Tokens,
            _ => Unit::Other,
        })
    }
}

/// `anthropic-ratelimit-tokens-remaining`.
fn anthropic(header: &str) -> Option<(Part, Name)> {
    const FAMILY: &str = "anthropic-ratelimit";
    const PARTS: [(&str, Part); 3] =
        [("-remaining", Part::Remaining), ("-status", Part::Status), ("-reset", Part::Reset)];
    let rest = header.strip_prefix(FAMILY)?;
    PARTS.iter().find_map(|(end, part)| {
        let of = rest.strip_suffix(end)?;
        Some((*part, Name { family: FAMILY.to_owned(), of: of.to_owned() }))
    })
}

/// `x-ratelimit-remaining-tokens`, `ratelimit-reset` and the like.
fn usual(header: &str) -> Option<(Part, Name)> {
    const PARTS: [(&str, Part); 2] = [("-remaining", Part::Remaining), ("-reset", Part::Reset)];
    const FAMILIES: [&str; 2] = ["ratelimit", "rate-limit"];
    FAMILIES.iter().find_map(|family| {
        let (before, rest) = header.split_once(family)?;
        PARTS.iter().find_map(|(start, part)| {
            let of = rest.strip_prefix(start)?;
            Some((*part, Name { family: format!("{before}{family}"), of: of.to_owned() }))
        })
    })
}

/// The whole units of a count. A number below zero is how some say that they do not know.
fn whole(count: &str) -> Option<u64> {
    let (whole, part) = count.split_once('.').unwrap_or((count, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !whole.is_empty() && are_digits(whole) && are_digits(part);
    // More digits than any counter has: it is plenty.
    is_number.then(|| whole.parse().unwrap_or(u64::MAX))
}
