use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn call(upstream: &str, reported: serde_json::Value) -> Usage {
    Usage::of_report(upstream, reported)
}

fn priced(mut usage: Usage) -> (Option<i64>, Option<String>) {
    Prices::built_in().price(&mut usage, NOW);
    (usage.cost.map(Money::as_nanos), usage.price)
}

fn own(prices: serde_json::Value) -> Result<Prices, InvalidPrice> {
    let texts: std::collections::BTreeMap<String, PriceText> = serde_json::from_value(prices).unwrap();
    Prices::with_own(texts.iter().map(|(name, text)| (name.as_str(), text)))
}

#[test]
fn the_table_can_be_read_and_names_no_model_twice_for_a_day() {
    let table = table().unwrap();
    assert!(table.len() > 40);
    let mut seen = std::collections::BTreeSet::new();
    for price in &table {
        assert!(seen.insert((&price.provider, &price.model, price.valid_from)), "{} twice", price.version);
        assert!(price.version.len() <= 128, "{}", price.version);
    }
}

#[test]
fn each_kind_of_token_has_its_price() {
    let report = json!({"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 600}});
    let (cost, version) = priced(call("openai/gpt-4.1-mini", report));
    // 400 at 400, 600 at 100, 10 at 1600 nano-dollars.
    assert_eq!(cost, Some(400 * 400 + 600 * 100 + 10 * 1600));
    assert_eq!(version.as_deref(), Some("list 2025-12-01 openai/gpt-4.1-mini from 2025-04-14"));
    let report = json!({"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 1000,
        "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 50}});
    let (cost, _) = priced(call("anthropic/claude-haiku-4-5-20251001", report));
    assert_eq!(cost, Some(100 * 1000 + 1000 * 100 + 200 * 1250 + 50 * 2000 + 10 * 5000));
}

#[test]
fn an_embedding_of_a_few_tokens_costs_a_few_nano_dollars() {
    assert_eq!(priced(call("openai/text-embedding-3-small", json!({"prompt_tokens": 3}))).0, Some(60));
    assert_eq!(priced(call("openai/text-embedding-3-small", json!({"prompt_tokens": 0}))).0, Some(0));
}

#[test]
fn a_call_is_rounded_once_a_half_upwards() {
    let prices = own(json!({"x/m": {"input": "0.0005", "cached": "0.0005", "output": "0.0005"}})).unwrap();
    let cost = |input, cached, output| {
        let mut usage = Usage {
            upstream: Some("x/m".into()),
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            ..Usage::default()
        };
        prices.price(&mut usage, NOW);
        usage.cost.unwrap().as_nanos()
    };
    // Half a nano-dollar each: rounded one by one, two of them would be two.
    assert_eq!((cost(1, 0, 0), cost(1, 0, 1), cost(2, 1, 1), cost(0, 0, 0)), (1, 1, 2, 0));
}

#[test]
fn sums_of_any_size_stop_at_the_largest_amount() {
    let prices = own(json!({"x/m": {"input": "1000000", "output": "1000000", "batch": "0.5"}})).unwrap();
    let mut usage = Usage {
        upstream: Some("x/m".into()),
        input_tokens: i64::MAX,
        output_tokens: i64::MAX,
        ..Usage::default()
    };
    prices.price(&mut usage, NOW);
    assert_eq!(usage.cost, Some(Money::from_nanos(i64::MAX)));
}

#[test]
fn nobody_knows_what_an_unknown_model_costs() {
    let tokens = json!({"prompt_tokens": 10, "completion_tokens": 10});
    for unknown in
        ["openai/gpt-99", "openai/gpt-4.1-mini-2", "openai/gpt-4.1-miniature", "embeddings", "?/gpt-5"]
    {
        assert_eq!(priced(call(unknown, tokens.clone())), (None, None), "{unknown}");
    }
    assert_eq!(priced(Usage { input_tokens: 5, ..Usage::default() }), (None, None));
    let chatty = json!({"prompt_tokens": 10, "completion_tokens": 1});
    assert_eq!(priced(call("openai/text-embedding-3-small", chatty)).0, None, "its output has no price");
    assert_eq!(priced(call("ollama/llama3", tokens)).0, Some(0), "one's own machine is known to be free");
}

#[test]
fn what_the_list_price_does_not_hold_for_has_no_cost() {
    let with_tier = |tier: &str| json!({"prompt_tokens": 100, "service_tier": tier});
    assert_eq!(priced(call("openai/gpt-4.1", with_tier("default"))).0, Some(200_000));
    assert_eq!(priced(call("openai/gpt-4.1", with_tier("batch"))).0, Some(100_000));
    assert_eq!(priced(call("openai/gpt-4.1", with_tier("priority"))).0, None);
    assert_eq!(
        priced(call("voyage/voyage-3.5", json!({"total_tokens": 9, "service_tier": "batch"}))).0,
        None
    );
}

#[test]
fn a_long_call_is_priced_as_one() {
    let report = |tokens: i64| json!({"promptTokenCount": tokens, "candidatesTokenCount": 1});
    assert_eq!(priced(call("gemini/gemini-2.5-pro", report(200_000))).0, Some(200_000 * 1250 + 10_000));
    assert_eq!(priced(call("gemini/gemini-2.5-pro", report(200_001))).0, Some(200_001 * 2500 + 15_000));
}

#[test]
fn the_model_that_answered_goes_before_the_one_asked() {
    let report = json!({"prompt_tokens": 1000});
    let answered =
        |model: &str| Usage { model: Some(model.into()), ..call("openai/gpt-4.1", report.clone()) };
    assert_eq!(priced(answered("gpt-4.1-nano-2025-04-14")).0, Some(100_000));
    assert_eq!(priced(answered("ft:something")).0, Some(2_000_000), "unknown: the one asked");
    let named = Usage {
        provider: Some("openai".into()),
        asked_model: Some("gpt-4.1-nano".into()),
        ..call("embeddings", report.clone())
    };
    assert_eq!(priced(named).0, Some(100_000), "an upstream of any name");
}

#[test]
fn a_stated_cost_wins_and_a_users_price_goes_before_the_table() {
    let prices = own(json!({
        "openai/gpt-4.1": {"input": 3, "output": 0.5},
        "openai/*": {"input": "7", "output": "7"},
        "*/llama*": {"input": "0", "output": "0"},
    }));
    let prices = prices.unwrap();
    let cost = |upstream: &str, stated: Option<i64>| {
        let mut usage = call(upstream, json!({"prompt_tokens": 10, "completion_tokens": 10}));
        usage.cost = stated.map(Money::from_nanos);
        prices.price(&mut usage, NOW);
        (usage.cost.map(Money::as_nanos), usage.price)
    };
    assert_eq!(cost("openai/gpt-4.1", Some(5)), (Some(5), None));
    let (nanos, version) = cost("openai/gpt-4.1-2025-04-14", None);
    assert_eq!(nanos, Some(10 * 3000 + 10 * 500));
    assert_eq!(version.as_deref(), Some("own openai/gpt-4.1 in 3 out 0.5"));
    assert_eq!(cost("openai/gpt-5", None).0, Some(20 * 7000), "also before a closer name in the table");
    assert_eq!(cost("127.0.0.1:8000/llama-3", None).0, Some(0));
    assert_eq!(cost("mistral/mistral-embed", None).0, None);
}

#[test]
fn a_price_that_is_none_is_refused_by_its_name() {
    for (name, price) in [
        ("gpt", json!({"input": "1"})),
        ("x/m", json!({})),
        ("x/m", json!({"input": "-1"})),
        ("x/m", json!({"input": -1})),
        ("x/m", json!({"input": "1e3"})),
        ("x/m", json!({"input": "0.1234567891"})),
        ("x/m", json!({"input": "1000001"})),
        ("x/m", json!({"input": ""})),
        ("x/m", json!({"input": "1", "batch": "1.5"})),
        ("x/m", json!({"input": "1", "above": {"input_tokens": 5}})),
    ] {
        let error = own(json!({name: price})).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_newer_price_holds_from_its_day() {
    let at = |day: &str, rate: &str| {
        let text = PriceText { input: Some(super::rate::Written::Text(rate.into())), ..PriceText::default() };
        price("x/m", "x", "m", (day_of(day).unwrap(), day.to_owned()), &text).unwrap()
    };
    let table: Arc<[Price]> = vec![at("2026-02-01", "2"), at("2026-01-01", "1")].into();
    let prices = Prices { own: Arc::default(), table };
    let cost = |day: &str| {
        let mut usage = call("x/m", json!({"prompt_tokens": 1}));
        prices.price(&mut usage, Timestamp::start_of_day(day_of(day).unwrap()));
        usage.price
    };
    assert_eq!(cost("2025-12-31"), None);
    assert_eq!(cost("2026-01-31").as_deref(), Some("2026-01-01"));
    assert_eq!(cost("2026-02-01").as_deref(), Some("2026-02-01"));
}

#[test]
fn patterns_name_what_they_say() {
    for (pattern, name, fits) in [
        ("m", "m", true),
        ("m", "m-2025-04-14", true),
        ("m", "m@20250414", true),
        ("m", "m-latest", true),
        ("m", "m-mini", false),
        ("m", "m-2025-13-14", false),
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abcd", false),
        ("*b*", "abc", true),
        ("a*b*c", "a-b-b-c", true),
        ("ab*ba", "aba", false),
    ] {
        assert_eq!(pattern_fits(pattern, name), fits, "{pattern} {name}");
    }
}
