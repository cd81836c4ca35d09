//! The wait that an answer states, in all its spellings.

use std::time::Duration;

use coolant_core::evidence::{Context, read};
use serde_json::{Value, json};

use crate::{at_epoch, evidence, reading};

fn header_wait(name: &str, value: &str) -> Option<u128> {
    reading(429, &[(name, value)], Value::Null).retry_after.map(|wait| wait.as_millis())
}

fn text_wait(text: &str) -> Option<u128> {
    reading(429, &[], json!({"error": {"message": text}})).retry_after.map(|wait| wait.as_millis())
}

#[test]
fn seconds_and_milliseconds_in_headers() {
    for (name, value, expected) in [
        ("retry-after", "1", Some(1000)),
        ("Retry-After", " 1.5 ", Some(1500)),
        ("retry-after", "0.0001", Some(1)),
        ("retry-after", "20s", Some(20_000)),
        ("retry-after", "2678400", Some(2_678_400_000)),
        ("retry-after", "2678401", None),
        ("retry-after", "0", None),
        ("retry-after", "-1", None),
        ("retry-after", "+Inf", None),
        ("retry-after", "NaN", None),
        ("retry-after", "1e400", None),
        ("retry-after", "soon", None),
        ("retry-after", "", None),
        ("retry-after-ms", "6", Some(6)),
        ("retry-after-ms", "6.2", Some(7)),
        ("x-ratelimit-reset", "12.5", Some(12_500)),
        ("ratelimit", "\"default\";r=0;t=30", Some(30_000)),
        ("ratelimit", "limit=100, remaining=0, reset=9", Some(9000)),
        ("ratelimit", "limit=100, remaining=3, reset=9", None),
    ] {
        assert_eq!(header_wait(name, value), expected, "{name}: {value}");
    }
}

#[test]
fn a_source_with_nonsense_is_passed_over() {
    let wait = |headers: &[(&str, &str)], body: Value| {
        reading(429, headers, body).retry_after.map(|wait| wait.as_millis())
    };
    assert_eq!(wait(&[("retry-after-ms", "-5"), ("retry-after", "2")], Value::Null), Some(2000));
    assert_eq!(wait(&[("retry-after", "0")], json!("try again in 3s")), Some(3000));
    let reset = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m3s")];
    assert_eq!(wait(&reset, Value::Null), Some(63_000));
    assert_eq!(wait(&reset[1..], Value::Null), None, "a reset says nothing while the budget may be full");
}

#[test]
fn dates_count_from_the_answers_own_date() {
    let now = at_epoch(1_700_000_000);
    let wait = |headers: &[(&str, &str)]| {
        let context = Context { now: Some(now), ..Context::default() };
        read(&evidence(429, headers, Value::Null), &context).retry_after
    };
    let at = ("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT");
    assert_eq!(wait(&[at]), Some(Duration::from_secs(30)));
    assert_eq!(wait(&[at, ("date", "Tue, 14 Nov 2023 22:13:49 GMT")]), Some(Duration::from_secs(1)));
    assert_eq!(wait(&[("retry-after", "Tuesday, 14-Nov-23 22:13:50 GMT")]), Some(Duration::from_secs(30)));
    assert_eq!(wait(&[("retry-after", "2023-11-14T22:13:50.5Z")]), Some(Duration::from_millis(30_500)));
    assert_eq!(wait(&[("retry-after", "2023-11-15T06:13:50+08:00")]), Some(Duration::from_secs(30)));
    assert_eq!(wait(&[("retry-after", "Tue, 31 Feb 2023 22:13:50 GMT")]), None);
    for stamp in ["1700000030", "1700000030000"] {
        assert_eq!(
            wait(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", stamp)]),
            Some(Duration::from_secs(30))
        );
    }
    assert_eq!(wait(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1600000000")]), None);
}

#[test]
fn an_absolute_time_without_a_present_is_kept_as_one() {
    let body = json!({"error": {"message": "Usage limit reached. You will regain access on 2026-04-01 at 00:00 UTC."}});
    let reading = reading(429, &[], body);
    assert_eq!(reading.retry_after, None);
    assert_eq!(reading.not_before, Some(at_epoch(1_775_001_600)));
}

#[test]
fn waits_in_words() {
    for (text, expected) in [
        ("Please try again in 20s.", Some(20_000)),
        ("Please try again in 172ms.", Some(172)),
        ("Please try again in 1m26.4s.", Some(86_400)),
        ("Please try again in 7m12s. Visit x.", Some(432_000)),
        ("Retry after 7 seconds", Some(7000)),
        ("Please retry in 0.539477544s", Some(540)),
        ("retry after: 30", Some(30_000)),
        ("Please wait 2 minutes and 5 seconds", Some(125_000)),
        ("Please wait for about 1 minute before", Some(60_000)),
        ("Try again in 1 hour, 2 mins.", Some(3_720_000)),
        ("try again after 45 second(s)", Some(45_000)),
        ("Try again in an hour", Some(3_600_000)),
        ("Your quota will reset after 24h", Some(86_400_000)),
        ("Resets in 16 days.", Some(1_382_400_000)),
        ("Resets in 32 days.", None),
        ("请在 20 秒后重试", Some(20_000)),
        ("请等待5分钟", Some(300_000)),
        ("Try again later.", None),
        ("please wait a moment and try again", None),
        ("Retry after 3 attempts", None),
        ("timed out after 60 seconds", None),
        ("Limit 10 / minute", None),
        ("Please modify your prompt and retry.", None),
        ("try again in 99999999999999999999999999999 days", None),
        ("try again in 0s", None),
    ] {
        assert_eq!(text_wait(text), expected, "{text}");
    }
}

#[test]
fn what_no_wait_heals_states_none() {
    let body = json!({"error": {"code": "insufficient_quota", "message": "try again in 5s"}});
    assert_eq!(reading(429, &[("retry-after", "5")], body).retry_after, None);
    assert_eq!(reading(401, &[("retry-after", "5")], Value::Null).retry_after, None);
}
