//! What headers say is left, in the forms of many providers.

use std::time::Duration;

use coolant_core::evidence::{Evidence, room};
use coolant_core::upstream::{Left, Room};
use serde_json::Value;

use crate::{at_epoch, evidence};

/// The room that headers state at 1,700,000,000 seconds.
fn stated(headers: &[(&str, &str)]) -> Room {
    room(&evidence(200, headers, Value::Null), Some(at_epoch(1_700_000_000)))
}

fn left(amount: u64, millis: u64) -> Left {
    Left { amount, reset_in: Duration::from_millis(millis) }
}

#[track_caller]
fn says(headers: &[(&str, &str)], requests: &[Left], tokens: &[Left]) {
    assert_eq!(stated(headers), Room { requests: requests.into(), tokens: tokens.into() });
}

#[track_caller]
fn says_nothing(headers: &[(&str, &str)]) {
    says(headers, &[], &[]);
}

#[test]
fn openai_and_those_like_it_state_calls_and_tokens() {
    says(
        &[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("X-RateLimit-Remaining-Requests", "59"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
        &[left(59, 1000)],
        &[left(149_984, 360_000)],
    );
    // Groq counts calls by the day and tokens by the minute.
    says(
        &[
            ("x-ratelimit-remaining-requests", "14370"),
            ("x-ratelimit-reset-requests", "2m59.56s"),
            ("x-ratelimit-remaining-tokens", "17997"),
            ("x-ratelimit-reset-tokens", "7.66s"),
        ],
        &[left(14_370, 179_560)],
        &[left(17_997, 7660)],
    );
    // Azure counts seconds; a proxy passes on what its provider said.
    says(
        &[
            ("llm_provider-x-ratelimit-remaining-tokens", "12"),
            ("llm_provider-x-ratelimit-reset-tokens", "30"),
        ],
        &[],
        &[left(12, 30_000)],
    );
}

#[test]
fn several_windows_are_several_statements() {
    says(
        &[
            ("x-ratelimit-remaining-requests-day", "100"),
            ("x-ratelimit-reset-requests-day", "33011.382867"),
            ("x-ratelimit-remaining-requests-minute", "3"),
            ("x-ratelimit-reset-requests-minute", "11.38"),
            ("x-ratelimit-remaining-tokens-minute", "60000"),
            ("x-ratelimit-reset-tokens-minute", "11.38"),
        ],
        &[left(100, 33_011_383), left(3, 11_380)],
        &[left(60_000, 11_380)],
    );
}

#[test]
fn anthropics_whole_limits_count_and_of_their_parts_only_that_nothing_is_left() {
    let headers = |input_left: &'static str| {
        [
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:25Z"),
            ("anthropic-ratelimit-tokens-remaining", "8000"),
            ("anthropic-ratelimit-tokens-reset", "2023-11-14T22:13:50Z"),
            ("anthropic-ratelimit-input-tokens-remaining", input_left),
            ("anthropic-ratelimit-input-tokens-reset", "2023-11-14T22:14:20Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "1000"),
            ("anthropic-ratelimit-output-tokens-reset", "2023-11-14T22:14:00Z"),
        ]
    };
    says(&headers("7000"), &[left(49, 5000)], &[left(8000, 30_000)]);
    says(&headers("0"), &[left(0, 60_000), left(49, 5000)], &[left(8000, 30_000)]);
    let plan = |status| {
        [("anthropic-ratelimit-unified-status", status), ("anthropic-ratelimit-unified-reset", "1700000030")]
    };
    says(&plan("rejected"), &[left(0, 30_000)], &[]);
    says_nothing(&plan("allowed_warning"));
}

#[test]
fn of_a_unit_that_nobody_knows_only_that_nothing_is_left_counts() {
    says(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000020")], &[left(0, 20_000)], &[]);
    says(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "20")], &[left(0, 20_000)], &[]);
    says(
        &[("x-ratelimit-remaining-images", "0"), ("x-ratelimit-reset-images", "20")],
        &[left(0, 20_000)],
        &[],
    );
    says(&[("ratelimit", "\"default\";r=0;t=30")], &[left(0, 30_000)], &[]);
    says_nothing(&[("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "20")]);
    says_nothing(&[
        ("x-ratelimit-remaining-project-tokens", "7"),
        ("x-ratelimit-reset-project-tokens", "20"),
    ]);
    says_nothing(&[("ratelimit", "\"default\";r=7;t=30")]);
}

#[test]
fn a_count_without_a_reset_and_a_reset_without_a_count_say_nothing() {
    for count in ["0", "-1", "12"] {
        says_nothing(&[("x-ratelimit-remaining-requests", count), ("x-ratelimit-remaining-tokens", count)]);
        let with_no_reset = [("x-ratelimit-remaining-tokens", count), ("x-ratelimit-reset-tokens", "0")];
        says_nothing(&with_no_reset);
    }
    says_nothing(&[("x-ratelimit-reset", "30")]);
    says_nothing(&[("x-ratelimit-reset-tokens", "30s")]);
    says_nothing(&[("retry-after", "30")]);
}

#[test]
fn counts_are_read_with_care() {
    for (count, expected) in [
        ("12", Some(12)),
        (" 12 ", Some(12)),
        ("12.9", Some(12)),
        ("0.9", Some(0)),
        ("12.", Some(12)),
        ("99999999999999999999999999", Some(u64::MAX)),
        ("-1", None),
        ("-0", None),
        ("+5", None),
        (".5", None),
        ("1e3", None),
        ("0x10", None),
        ("NaN", None),
        ("inf", None),
        ("1,000", None),
        ("1 000", None),
        ("1.2.3", None),
        ("٣", None),
        ("many", None),
        ("", None),
    ] {
        let room =
            stated(&[("x-ratelimit-remaining-tokens", count), ("x-ratelimit-reset-tokens", "30s")]).tokens;
        assert_eq!(room.first().map(|left| left.amount), expected, "{count:?}");
    }
    for reset in ["0", "-5", "soon", "", "NaN", "1e999", "1600000000", "32 days", "2023-11-14T22:13:20Z"] {
        says_nothing(&[("x-ratelimit-remaining-tokens", "7"), ("x-ratelimit-reset-tokens", reset)]);
    }
}

#[test]
fn of_a_header_that_came_twice_the_stricter_counts() {
    says(
        &[
            ("x-ratelimit-remaining-tokens", "500"),
            ("x-ratelimit-reset-tokens", "10s"),
            ("llm_provider-x-ratelimit-remaining-tokens", "20"),
            ("llm_provider-x-ratelimit-reset-tokens", "1m"),
            ("x-ratelimit-remaining-tokens", "nonsense"),
            ("x-ratelimit-reset-tokens", "nonsense"),
        ],
        &[],
        &[left(20, 60_000)],
    );
}

#[test]
fn a_reset_at_a_time_counts_from_the_answers_own_date() {
    let reset = [
        ("anthropic-ratelimit-tokens-remaining", "9"),
        ("anthropic-ratelimit-tokens-reset", "2023-11-14T22:13:50Z"),
    ];
    let date = [("date", "Tue, 14 Nov 2023 22:13:40 GMT")];
    says(&[reset.as_slice(), &date].concat(), &[], &[left(9, 10_000)]);
    let without_a_present = room(&evidence(200, &reset, Value::Null), None);
    assert_eq!(without_a_present, Room::default());
}

#[test]
fn many_headers_are_read_in_one_go() {
    let headers = (0..200_000).flat_map(|n| {
        let header = |part: &str| format!("x-ratelimit-{part}-requests-{n}");
        [(header("remaining"), "0".to_owned()), (header("reset"), "30s".to_owned())]
    });
    let evidence = Evidence { status: Some(200), headers: headers.collect(), body: Value::Null };
    assert_eq!(room(&evidence, None).requests.len(), 200_000);
}
