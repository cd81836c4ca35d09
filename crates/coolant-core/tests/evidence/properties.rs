//! What holds for any input: no panic, waits and resets in bounds, the same answer twice, no key in a summary.

use std::time::{Duration, SystemTime};

use coolant_core::evidence::{Context, Evidence, Operation, Reading, mask, read, room};
use proptest::prelude::*;
use serde_json::{Value, json};

const LONGEST: Duration = Duration::from_secs(31 * 24 * 60 * 60);

fn check(evidence: &Evidence, context: &Context) -> Result<Reading, TestCaseError> {
    let reading = read(evidence, context);
    prop_assert!(reading.retry_after.is_none_or(|wait| wait > Duration::ZERO && wait <= LONGEST));
    prop_assert!(reading.summary.chars().count() <= 301);
    prop_assert_eq!(&reading, &read(evidence, context));
    let room = room(evidence, context.now);
    for left in room.requests.iter().chain(&room.tokens) {
        prop_assert!(left.reset_in > Duration::ZERO && left.reset_in <= LONGEST);
    }
    Ok(reading)
}

/// Words that the reading looks for, so that random bodies reach deep into it.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "error",
        "message",
        "code",
        "type",
        "status",
        "details",
        "detail",
        "choices",
        "data",
        "embedding",
        "retryDelay",
        "retry_after",
        "estimated_time",
        "resets_at",
        "candidates",
        "finish_reason",
        "headers",
        "rate limit exceeded",
        "limit: 0",
        "Limit 5, Requested 9",
        "try again in",
        "until 2026-04-01",
        "per day",
        "[DONE]",
        "data: {",
        "event: error",
        "{'a': 'b",
        "\\\"",
        "insufficient_quota",
        "RESOURCE_EXHAUSTED",
        "1e999",
        "inf",
        "-1",
        "99999999999999999999",
        "1m",
        "00:00:00",
        "429",
        "overloaded",
        ":exception-type",
        "base_resp",
        "status_code",
        "content",
        "delta",
        "response",
        "output",
        "embeddings",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => ".{0,12}"]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::collection::vec(word(), 0..5).prop_map(|words| words.join(" ").into()),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..6).prop_map(|entries| entries.into_iter().collect()),
        ]
    })
}

fn any_context() -> impl Strategy<Value = Context> {
    let operation = prop::option::of(prop::sample::select(vec![Operation::Chat, Operation::Embeddings]));
    let small = || prop::option::of(0_usize..4);
    let now = prop::option::of(
        (0_u64..4_000_000_000).prop_map(|secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs)),
    );
    (operation, small(), small(), any::<bool>(), prop::option::of(any_json()), now).prop_map(
        |(operation, inputs, dimensions, expects_json, schema, now)| Context {
            operation,
            inputs,
            dimensions,
            expects_json,
            schema,
            now,
            ..Context::default()
        },
    )
}

fn any_headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(vec![
        "retry-after",
        "retry-after-ms",
        "date",
        "x-ratelimit-reset",
        "x-ratelimit-remaining",
        "ratelimit",
        "x-ratelimit-reset-tokens",
        "x-ratelimit-remaining-tokens",
        "x-should-retry",
        "x-amzn-errortype",
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-unified-status",
        "x-ratelimit-remaining-requests-day",
        "x-ratelimit-reset-requests-day",
        "llm_provider-retry-after",
    ]);
    let value = prop_oneof![
        word(),
        ".{0,40}",
        any::<f64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        (0_u32..100).prop_map(|n| format!("{n}s")),
        Just("0".to_owned())
    ];
    prop::collection::vec((name.prop_map(str::to_owned), value), 0..6)
}

fn any_status() -> impl Strategy<Value = Option<u16>> {
    prop_oneof![
        Just(None),
        Just(Some(200)),
        Just(Some(429)),
        (400_u16..600).prop_map(Some),
        any::<u16>().prop_map(Some)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read(
        status in any_status(), headers in any_headers(), context in any_context(),
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        check(&Evidence::from_bytes(status, headers, &body), &context)?;
    }

    #[test]
    fn any_text_is_read(
        status in any_status(), headers in any_headers(), context in any_context(),
        body in prop::collection::vec(word(), 0..30), glue in prop::sample::select(vec![" ", "\n", "", "\n\ndata: ", "\""]),
    ) {
        check(&Evidence { status, headers, body: body.join(glue).into() }, &context)?;
    }

    #[test]
    fn any_json_is_read(status in any_status(), headers in any_headers(), context in any_context(), body in any_json()) {
        check(&Evidence { status, headers, body }, &context)?;
    }

    #[test]
    fn no_key_gets_into_a_summary(
        before in "[ -~]{0,40}", after in "[ -~]{0,40}", secret in "[A-Za-z0-9]{40}",
        form in prop::sample::select(vec![
            "sk-K", "sk-proj-K", "sk-ant-api03-K", "Bearer sk-K", "AIzaK", "gsk_K", "hf_K", "xai-K", "nvapi-K", "AKIAK",
            "pplx-K", "key=K1a", "api_key: K1a", "\"apiKey\":\"K1a\"", "x-api-key: K1a", "?key=K1a&x=1", "token=K1a",
            "eyJK.eyJK.K",
        ]),
    ) {
        let text = format!("{before} {} {after}", form.replace('K', &secret));
        prop_assert!(!mask(&text).contains(&secret), "{}", mask(&text));
        prop_assert_eq!(mask(&mask(&text)), mask(&text));
        let evidence = Evidence { status: Some(401), headers: vec![("authorization".into(), secret.clone())], body: json!({"error": {"message": text}}) };
        let reading = check(&evidence, &Context::default())?;
        prop_assert!(!reading.summary.contains(&secret));
        let stored = format!("{:?}", evidence.masked());
        prop_assert!(!stored.contains(&secret), "{}", stored);
    }
}

#[test]
fn masking_leaves_prose_alone() {
    for text in [
        "Incorrect API key provided: sk-***. You can find your API key at <url>.",
        "risk-based task-specific desk-top",
        "Bearer authentication is required",
        "Limit 30000, Requested 30921, model gpt-4o-mini-2024-07-18",
        "request id 0198c1f2-7a3e-7c11-9a53-0f3f9b3f7c55",
        "the key: value pairs",
    ] {
        assert_eq!(mask(text), text);
    }
}

#[test]
fn hostile_bodies_are_read_in_bounded_time() {
    let started = std::time::Instant::now();
    let mut nested = json!("rate limit");
    for _ in 0..60 {
        nested = json!({ "error": nested });
    }
    let mut quoted = "{\"error\":\"x\"}".to_owned();
    for _ in 0..12 {
        quoted = json!({ "error": quoted }).to_string();
    }
    let bodies = [
        nested,
        quoted.into(),
        "{".repeat(1 << 18).into(),
        "[{'".repeat(1 << 16).into(),
        "-".repeat(1 << 18).into(),
        "limit ".repeat(1 << 14).into(),
        "data: {}\n".repeat(1 << 14).into(),
        "{\"a\":1}\n".repeat(1 << 14).into(),
        "key= ".repeat(1 << 14).into(),
        Value::from(vec![json!({"error": "x y"}); 10_000]),
    ];
    for (at, body) in bodies.into_iter().enumerate() {
        let one = std::time::Instant::now();
        for status in [None, Some(200), Some(429)] {
            let _ = read(&Evidence { status, headers: vec![], body: body.clone() }, &Context::default());
        }
        let _ = mask(&body.to_string());
        println!("hostile body {at} took {:?}", one.elapsed());
    }
    let took = started.elapsed();
    println!("hostile bodies took {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_usual_error_costs_microseconds() {
    let body = json!({"error": {"message": "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s.", "type": "tokens", "code": "rate_limit_exceeded"}});
    let evidence = Evidence { status: Some(429), headers: vec![("retry-after".into(), "2".into())], body };
    let started = std::time::Instant::now();
    for _ in 0..1000 {
        let _ = read(&evidence, &Context::default());
    }
    println!("one reading takes {:?} in this build", started.elapsed() / 1000);
}
