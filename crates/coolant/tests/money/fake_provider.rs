//! The fake provider does as its script says, and counts.

use serde_json::{Value, json};

use crate::program::{Fake, coolant};
use crate::support::client::{Answer, Call};

async fn embed(fake: &Fake, input: Value) -> Answer {
    let body = json!({"model": "fake-embedding", "input": input});
    fake.client
        .send(Call::new("POST", "/v1/embeddings").header("Authorization", "Bearer sk-test").json(&body))
        .await
}

async fn chat(fake: &Fake, more: Value) -> Answer {
    let mut body = json!({"model": "fake-chat", "messages": [{"role": "user", "content": "say it"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fake.client.post("/v1/chat/completions", body).await
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn without_a_script_every_call_goes_well_and_alike() {
    let (one, two) = (Fake::with(&[]), Fake::with(&[]));
    let other = Fake::with(&["--seed", "1"]);
    let vectors = embed(&one, json!(["a b", "c"])).await.expect(200);
    assert_eq!(vectors["data"][1]["index"], 1);
    assert_eq!(vectors["data"][0]["embedding"].as_array().unwrap().len(), 256);
    assert_eq!(vectors, embed(&two, json!(["a b", "c"])).await.expect(200));
    assert_ne!(vectors, embed(&other, json!(["a b", "c"])).await.expect(200));
    let said = chat(&one, json!({})).await.expect(200);
    assert_eq!(said["choices"][0]["finish_reason"], "stop");
    let text = &said["choices"][0]["message"]["content"];
    assert_eq!(*text, chat(&two, json!({})).await.expect(200)["choices"][0]["message"]["content"]);
    assert!(text.as_str().unwrap().len() > 20);
    let models = one.client.get("/v1/models").await.expect(200);
    assert_eq!(models["data"][0]["id"], "fake-chat");
    let counts = one.counts().await;
    assert_eq!(
        (&counts["calls"], &counts["paid_calls"], &counts["inputs"]),
        (&json!(2), &json!(2), &json!(3))
    );
    assert_eq!(counts["by_key"]["sk-test"]["calls"], 1);
    assert_eq!(counts["by_model"]["fake-chat"]["paid_calls"], 1);
    let usage = [&vectors["usage"], &said["usage"]];
    let tokens = |name: &str| usage.iter().map(|usage| usage[name].as_i64().unwrap_or(0)).sum::<i64>();
    let cost = tokens("prompt_tokens") * 400 + tokens("completion_tokens") * 1600;
    assert_eq!(counts["cost_usd"].as_f64().unwrap() * 1e9, cost as f64, "{counts}");
}

#[tokio::test]
async fn each_refusal_is_that_of_the_provider_and_costs_nothing() {
    let rules = [
        ("rate_limit", 429, "rate_limit_exceeded"),
        ("overloaded", 503, "overloaded"),
        ("server_error", 500, "server_error"),
        ("quota", 429, "insufficient_quota"),
        ("auth", 401, "invalid_api_key"),
        ("bad_request", 400, "invalid_value"),
        ("context_too_long", 400, "context_length_exceeded"),
        ("not_found", 404, "model_not_found"),
    ];
    let script: Vec<Value> = rules
        .iter()
        .map(|(name, ..)| json!({"do": name, "contains": format!("<{name}>"), "retry_after": "1500ms"}))
        .collect();
    let fake = Fake::start(&json!({"rule": script}).to_string());
    for (name, status, expected) in rules {
        let answer = embed(&fake, json!(format!("<{name}>"))).await;
        assert_eq!(code(&answer), (status, expected.to_owned()));
        assert_eq!(answer.header("retry-after"), Some("2"), "whole seconds, rounded up");
    }
    embed(&fake, json!("else")).await.expect(200);
    let counts = fake.counts().await;
    assert_eq!(
        (&counts["refused_calls"], &counts["paid_calls"], &counts["inputs"]),
        (&json!(8), &json!(1), &json!(1))
    );
    assert_eq!(counts["by_outcome"]["quota"], 1);
    let said = fake.stop();
    assert!(said.contains("after 9 calls: 1 paid, 8 refused"), "{said}");
}

#[tokio::test]
async fn what_is_paid_and_of_no_use_is_cut_short_or_wrong() {
    let fake = Fake::start(
        "dimensions = 4\n[[rule]]\nlast = 1\ndo = 'truncated'\n[[rule]]\nlast = 1\ndo = 'wrong'\n\
         [[rule]]\nlast = 1\ndo = 'empty'\n[[rule]]\nlast = 1\ndo = 'cut'\n",
    );
    let inputs = || json!(["one", "two"]);
    assert_eq!(embed(&fake, inputs()).await.expect(200)["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        embed(&fake, inputs()).await.expect(200)["data"][0]["embedding"],
        json!([null, null, null, null])
    );
    assert_eq!(embed(&fake, inputs()).await.expect(200)["data"], json!([]));
    let cut = embed(&fake, inputs()).await;
    let announced: usize = cut.header("content-length").unwrap().parse().unwrap();
    assert!(!cut.body.is_empty() && cut.body.len() < announced, "{} of {announced}", cut.body.len());
    embed(&fake, inputs()).await.expect(200);
    let counts = fake.counts().await;
    assert_eq!(
        (&counts["paid_calls"], &counts["inputs"], &counts["distinct_inputs"]),
        (&json!(5), &json!(10), &json!(2))
    );
    assert_eq!(counts["by_outcome"], json!({"cut": 1, "empty": 1, "ok": 1, "truncated": 1, "wrong": 1}));
    assert_eq!(counts["most_calls_of_an_input"], 5);
}

#[tokio::test]
async fn a_chat_streams_and_a_cut_stream_never_says_it_is_done() {
    let fake = Fake::start("words = 6\n[[rule]]\nfirst = 2\ndo = 'cut'\n");
    let streamed = |more: Value| {
        let mut body = json!({"stream": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chat(&fake, body)
    };
    let whole = streamed(json!({"stream_options": {"include_usage": true}})).await;
    assert_eq!(whole.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(whole.body).unwrap();
    let events: Vec<&str> = text.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let parts: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let said =
        parts.iter().filter_map(|part| part["choices"][0]["delta"]["content"].as_str()).collect::<String>();
    assert_eq!(said.split(' ').count(), 6, "{said}");
    assert_eq!(parts[parts.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(parts[parts.len() - 1]["usage"]["completion_tokens"].as_i64().unwrap() > 0);
    let cut = String::from_utf8(streamed(json!({})).await.body).unwrap();
    assert!(cut.contains("data: ") && !cut.contains("[DONE]") && !cut.contains("\"stop\""), "{cut}");
}

#[tokio::test]
async fn json_is_given_where_it_is_asked_for() {
    let fake = Fake::start("[[rule]]\nfirst = 2\ndo = 'wrong'\n");
    let schema = json!({"type": "object", "properties": {
        "title": {"type": "string"}, "score": {"type": "integer", "minimum": 3},
        "kind": {"enum": ["a", "b"]}, "parts": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/part"}},
    }, "$defs": {"part": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}});
    let format = || json!({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}});
    let said = chat(&fake, format()).await.expect(200);
    let content: Value =
        serde_json::from_str(said["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(content["title"].is_string() && content["score"].as_i64().unwrap() >= 3, "{content}");
    assert!(["a", "b"].contains(&content["kind"].as_str().unwrap()), "{content}");
    assert!(content["parts"][1]["ok"].is_boolean(), "{content}");
    let wrong = chat(&fake, format()).await.expect(200);
    let content = wrong["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(content).is_err(), "{content}");
    let short = chat(&Fake::with(&[]), json!({"max_tokens": 3})).await.expect(200);
    assert_eq!(short["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn what_is_no_request_is_refused_as_openai_does() {
    let fake = Fake::with(&[]);
    let post = |path: &str, body: &str| fake.client.send(Call::new("POST", path).json_text(body.to_owned()));
    for body in
        ["{", "{}", r#"{"model":"m"}"#, r#"{"model":"m","input":[]}"#, r#"{"model":"m","input":[""]}"#]
    {
        assert_eq!(code(&post("/v1/embeddings", body).await), (400, "invalid_request".into()), "{body}");
    }
    assert_eq!(code(&post("/v1/chat/completions", r#"{"model":"m","messages":[]}"#).await).0, 400);
    assert_eq!(code(&fake.client.get("/v1/images").await), (404, "unknown_url".into()));
    assert_eq!(fake.counts().await["calls"], 0, "nothing was asked");
}

#[tokio::test]
async fn a_limit_takes_what_fits_and_states_what_is_left() {
    let fake = Fake::start(
        "[limit]\nrequests = 2\ntokens = 1000\nwindow = '1h'\n[[rule]]\ncontains = '<auth>'\ndo = 'auth'",
    );
    assert_eq!(code(&embed(&fake, json!("<auth>")).await).0, 401, "it is no call of the limit");
    for left in ["1", "0"] {
        let answer = chat(&fake, json!({})).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining-requests")), (200, Some(left)));
        let tokens: u64 = answer.header("x-ratelimit-remaining-tokens").unwrap().parse().unwrap();
        let used = fake.counts().await;
        let used = used["input_tokens"].as_u64().unwrap() + used["output_tokens"].as_u64().unwrap();
        assert_eq!(tokens, 1000 - used);
    }
    let refused = embed(&fake, json!("one more")).await;
    assert_eq!(code(&refused), (429, "rate_limit_exceeded".to_owned()));
    let reset = refused.header("x-ratelimit-reset-requests").unwrap().strip_suffix("ms").unwrap();
    let wait = refused.header("retry-after").unwrap().parse::<u64>().unwrap() * 1000;
    let reset: u64 = reset.parse().unwrap();
    assert!((1..=3_600_000).contains(&reset) && (reset..reset + 1000).contains(&wait), "{reset} {wait}");
    assert_eq!(fake.counts().await["by_outcome"], json!({"auth": 1, "ok": 2, "rate_limit": 1}));
}

#[test]
fn a_wrong_script_or_address_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("s.toml");
    std::fs::write(&script, "[[rule]]\ndo = 'explode'\n").unwrap();
    let script = script.to_str().unwrap();
    for arguments in [vec!["--script", script], vec!["--listen", "0.0.0.0:0"], vec!["--listen", "nowhere"]] {
        let ended = coolant(&["fake-provider"]).args(&arguments).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}");
    }
    let said =
        String::from_utf8(coolant(&["fake-provider", "--script", script]).output().unwrap().stderr).unwrap();
    assert!(said.contains("s.toml") && said.contains("explode"), "{said}");
}
