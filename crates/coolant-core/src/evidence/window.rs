//! Rate or quota: the window of a limit, and whether the stated wait fits it.
//!
//! The same words and codes stand for the limit of a minute and that of a month. What divides them is the
//! window that is named, and the wait that is stated.

use std::time::Duration;

use crate::failure::{CoolingScope, FailureClass};

use super::Retry;
use super::fault::Fault;
use super::matching::{Verdict, has_code, says};
use super::wait::Stated;

/// From this on a wait is a quota's, not a rate's.
const LONG: Duration = Duration::from_secs(60 * 60);
/// A used-up plan does not come back in less than this; shorter delays belong to another window.
const SHORTEST_RESET: Duration = Duration::from_secs(60);
/// A model that says it needs longer than this to load may never come: bound the waits.
const LONG_LOADING: Duration = Duration::from_secs(10 * 60);

/// Words of a day's or longer window. Hyphens are blanks here: `free-models-per-day`.
const LONG_WINDOW: &str = "per day | daily | / day | /day | a day | (rpd) | (tpd) | rpd | tpd | per month | monthly | \
    / month | /month | a month | per week | weekly | / week | 24 hours | per 24h | 每天 | 每日 | 每月 | 当日";
/// The same inside names of limits, without punctuation.
const LONG_WINDOW_IN_CODE: [&str; 6] = ["perday", "daily", "permonth", "monthly", "perweek", "weekly"];

/// Settles class and wait together.
pub(crate) fn refine(fault: &Fault, mut verdict: Verdict, mut stated: Stated) -> (Verdict, Stated) {
    if verdict.retry == Retry::No {
        return (verdict, Stated::default());
    }
    let is_long = stated.wait.is_some_and(|wait| wait >= LONG);
    match verdict.class {
        FailureClass::RateLimited if has_long_window(fault) && !is_rolling(fault, &stated) => {
            // A wait below an hour next to a day's limit belongs to another window.
            if !is_long && stated.until.is_none() {
                stated = Stated::default();
            }
            verdict = as_quota(verdict, "long_window");
        }
        FailureClass::RateLimited if is_long => verdict = as_quota(verdict, "long_wait"),
        FailureClass::Overloaded if is_long && fault.status == Some(429) => {
            verdict = as_quota(verdict, "long_wait");
        }
        FailureClass::Overloaded
            if verdict.rule == "loading" && stated.wait.is_some_and(|wait| wait >= LONG_LOADING) =>
        {
            verdict.retry = Retry::Conditional;
        }
        FailureClass::QuotaExhausted if verdict.retry == Retry::Conditional => {
            let shortest = if has_long_window(fault) { LONG } else { SHORTEST_RESET };
            if stated.until.is_none() && stated.wait.is_some_and(|wait| wait < shortest) {
                stated = Stated::default();
            }
        }
        _ => {}
    }
    (verdict, stated)
}

fn as_quota(verdict: Verdict, rule: &'static str) -> Verdict {
    let scope = match verdict.scope {
        CoolingScope::Job => CoolingScope::Credential,
        scope => scope,
    };
    Verdict { class: FailureClass::QuotaExhausted, retry: Retry::Conditional, scope, rule, ..verdict }
}

fn has_long_window(fault: &Fault) -> bool {
    let in_codes = fault.codes.iter().any(|code| {
        let code = super::fault::squash(code);
        LONG_WINDOW_IN_CODE.iter().any(|window| code.contains(window))
    });
    // Names of limits reach prose too, where a client library prints a structure.
    let names_in_words = ["perday", "permonth", "perweek"].iter().any(|name| fault.words.contains(name));
    in_codes || names_in_words || says(&fault.words, LONG_WINDOW)
}

/// A day's limit that refills all the time, as at OpenAI and Groq: the sentence that names the limit also
/// names the wait. Google's day limits do not refill, and its delays are those of the minute.
fn is_rolling(fault: &Fault, stated: &Stated) -> bool {
    let is_google = has_code(fault, "RESOURCE_EXHAUSTED QuotaFailure");
    stated.in_words && !is_google && stated.wait.is_some_and(|wait| wait < LONG)
}

/// Whether a limit of exactly zero is named: the model is not in the plan. `0.5` is not zero.
pub(crate) fn limit_is_zero(fault: &Fault) -> bool {
    fault.zero_quota
        || numbers_after(&fault.words, "limit").any(|(number, start)| {
            // "rate limit 0" is a limit; "rate limit exceeded: 0 remaining" is not read that far.
            number == 0.0 && !fault.words[..start].ends_with("remaining ")
        })
}

/// `Limit 30000, Requested 31000`: this request alone is larger than the whole budget.
pub(crate) fn request_over_limit(fault: &Fault) -> bool {
    let words = &fault.words;
    let limit = numbers_after(words, "limit").map(|(n, _)| n).reduce(f64::max);
    let requested = numbers_after(words, "requested").map(|(n, _)| n).reduce(f64::max);
    match (limit, requested) {
        (Some(limit), Some(requested)) if limit > 0.0 => requested > limit,
        _ => says(words, "request too large for") && matches!(fault.status, Some(413 | 429)),
    }
}

/// Whether tokens are counted against a limit of the input, whatever the sentence. Limits of the answer
/// are settings, and limits of a time are rates; rows above and `unless` keep them away.
pub(crate) fn tokens_over_limit(fault: &Fault) -> bool {
    let counts = says(&fault.words, "tokens | token count | token limit | token length | sequence length");
    let is_over = says(
        &fault.words,
        "exceed | longer than | larger than | greater than | more than | too long | too large | too many | \
         only supports | supports only | supports up to | maximum | at most | less than | > | over the limit",
    );
    let of_answer =
        says(&fault.words, "max tokens | max completion tokens | completion tokens | output tokens");
    let of_input = says(&fault.words, "input | prompt | message | context | text | document");
    let has_number = fault.words.bytes().any(|b| b.is_ascii_digit());
    counts && is_over && has_number && (of_input || !of_answer)
}

/// The numbers that follow a word directly: `limit 5`, `limit: 5`, `limit=1,000`.
fn numbers_after<'a>(words: &'a str, word: &'a str) -> impl Iterator<Item = (f64, usize)> + 'a {
    words.match_indices(word).filter_map(move |(at, _)| {
        let rest = words[at + word.len()..].trim_start_matches([':', ' ', '=']);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',').unwrap_or(rest.len());
        let digits = rest[..end].trim_end_matches(['.', ',']).replace(',', "");
        Some((digits.parse().ok()?, at))
    })
}
