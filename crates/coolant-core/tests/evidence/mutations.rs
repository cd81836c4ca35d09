//! The cases of the file in other clothes: what is read must not hang on wrapping, order or spelling.

use coolant_core::evidence::{Evidence, read};
use serde_json::{Value, json};

use crate::cases::{self, Case, miss};

/// Runs every case through a change, and demands that almost all are still fully right.
fn still_right(test: &str, fewest_percent: usize, change: impl Fn(&Case) -> Option<Evidence>) {
    let Some(cases) = cases::all(test) else { return };
    let (mut right, mut run) = (0, 0);
    for case in &cases {
        let Some(evidence) = change(case) else { continue };
        run += 1;
        let reading = read(&evidence, &case.context());
        match miss(&case.expect, &reading) {
            None => right += 1,
            Some(wrong) => println!("{test}, {}: {wrong}; rule {}", case.id, reading.rule),
        }
    }
    println!("{test}: {right} of {run} fully right");
    assert!(right * 100 >= run * fewest_percent, "{test}: {right} of {run} fully right");
}

/// An error body under an error status: the ones that a gateway may wrap.
fn is_error(case: &Case) -> bool {
    case.status.is_some_and(|status| status >= 400) && case.body.is_object()
}

fn with_body(case: &Case, body: Value) -> Evidence {
    Evidence { body, ..case.evidence() }
}

#[test]
fn header_names_in_capitals() {
    still_right("header_names_in_capitals", 100, |case| {
        let mut evidence = case.evidence();
        evidence.headers.iter_mut().for_each(|(name, _)| *name = name.to_uppercase());
        Some(evidence)
    });
}

#[test]
fn headers_of_the_litellm_proxy() {
    still_right("headers_of_the_litellm_proxy", 100, |case| {
        let mut evidence = case.evidence();
        for (name, _) in &mut evidence.headers {
            if name.contains("ratelimit") || name.starts_with("retry-after") {
                *name = format!("llm_provider-{name}");
            }
        }
        Some(evidence)
    });
}

#[test]
fn a_list_around_the_body() {
    still_right("a_list_around_the_body", 98, |case| {
        is_error(case).then(|| with_body(case, Value::Array(vec![case.body.clone()])))
    });
}

#[test]
fn the_body_as_a_string_in_an_error() {
    still_right("the_body_as_a_string_in_an_error", 97, |case| {
        is_error(case).then(|| with_body(case, json!({"error": {"message": case.body.to_string()}})))
    });
}

#[test]
fn the_body_in_a_gateways_prose() {
    still_right("the_body_in_a_gateways_prose", 97, |case| {
        let text = format!("litellm.APIError: XException - {}. Received Model Group=x", case.body);
        is_error(case).then(|| with_body(case, json!({"error": {"message": text, "type": null}})))
    });
}

#[test]
fn the_body_in_gateway_metadata() {
    still_right("the_body_in_gateway_metadata", 97, |case| {
        let raw = case.body.to_string();
        let body = json!({"error": {"message": "Provider returned error", "code": case.status, "metadata": {"raw": raw}}});
        is_error(case).then(|| with_body(case, body))
    });
}

#[test]
fn the_body_as_a_python_dict() {
    still_right("the_body_as_a_python_dict", 97, |case| {
        let text = format!("Error code: {} - {}", case.status?, python(&case.body));
        is_error(case).then(|| with_body(case, json!({"detail": text})))
    });
}

#[test]
fn the_error_in_a_stream_that_began() {
    still_right("the_error_in_a_stream_that_began", 90, |case| {
        // Only faults that name themselves: a status cannot be carried into a 200.
        let named =
            case.body.get("error").is_some_and(|error| error.get("code").is_some_and(|c| !c.is_null()));
        (is_error(case) && named).then(|| {
            let start = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}";
            let text = format!("{start}\n\ndata: {}\n\n", case.body);
            Evidence { status: Some(200), headers: case.evidence().headers, body: text.into() }
        })
    });
}

#[test]
fn the_clients_own_text_without_a_status() {
    still_right("the_clients_own_text_without_a_status", 97, |case| {
        let text = format!("Error code: {} - {}", case.status?, python(&case.body));
        // The headers are lost here, and with them what only they say.
        (is_error(case) && case.headers.is_empty()).then(|| Evidence {
            status: None,
            headers: vec![],
            body: text.into(),
        })
    });
}

#[test]
fn codes_in_another_case() {
    still_right("codes_in_another_case", 97, |case| {
        is_error(case).then(|| with_body(case, upper_codes(&case.body)))
    });
}

#[test]
fn prose_in_capitals() {
    still_right("prose_in_capitals", 97, |case| {
        is_error(case).then(|| with_body(case, each_message(&case.body, &|text| text.to_uppercase())))
    });
}

#[test]
fn other_prose_around_a_telling_code() {
    const TELLING: [&str; 14] = [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "invalid_api_key",
        "context_length_exceeded",
        "content_filter",
        "model_not_found",
        "server_is_overloaded",
        "1113",
        "Arrearage",
        "overloaded_error",
        "exceed_context_size_error",
        "max_tokens_per_request",
        "unsupported_country_region_territory",
        "credit_unresolved",
    ];
    still_right("other_prose_around_a_telling_code", 100, |case| {
        let text = case.body.to_string();
        (is_error(case) && TELLING.iter().any(|code| text.contains(&format!("\"{code}\"")))).then(|| {
            let body =
                each_message(&case.body, &|_| "La demande n'a pas abouti (référence 429-7).".to_owned());
            with_body(case, body)
        })
    });
}

#[test]
fn a_greeting_and_an_address_around_the_message() {
    still_right("a_greeting_and_an_address_around_the_message", 97, |case| {
        let polite = |text: &str| {
            format!(
                "Sorry! {text} See https://example.com/docs/rate-limits/overloaded/per-day (request id 01HX)."
            )
        };
        is_error(case).then(|| with_body(case, each_message(&case.body, &polite)))
    });
}

#[test]
fn fields_that_nobody_knows() {
    still_right("fields_that_nobody_knows", 100, |case| {
        let mut body = case.body.clone();
        let map = body.as_object_mut().filter(|_| is_error(case))?;
        map.insert("request_id".into(), "req_429".into());
        map.insert("input".into(), "insufficient_quota: rate limit exceeded, invalid api key".into());
        map.insert("x_debug".into(), json!({"took": 429, "region": "eu"}));
        Some(with_body(case, body))
    });
}

fn upper_codes(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if matches!(key.as_str(), "code" | "type" | "status" | "reason") => {
                    (key.clone(), text.to_uppercase().into())
                }
                value => (key.clone(), upper_codes(value)),
            })
            .collect(),
        Value::Array(items) => items.iter().map(upper_codes).collect(),
        other => other.clone(),
    }
}

fn each_message(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) if matches!(key.as_str(), "message" | "detail") => {
                    (key.clone(), change(text).into())
                }
                value => (key.clone(), each_message(value, change)),
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| each_message(item, change)).collect(),
        other => other.clone(),
    }
}

/// A value as Python prints a dict.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) if text.contains('\'') && !text.contains('"') => {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('\n', "\\n"))
        }
        Value::String(text) => {
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<_> = map.iter().map(|(k, v)| format!("'{k}': {}", python(v))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        number => number.to_string(),
    }
}
