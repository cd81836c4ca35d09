//! Forms of many providers that the case file need not hold, written down as they arrive.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{evidence, reading, said};
use coolant_core::evidence::{Context, Evidence, Operation, read};

const FILTERED: &str = "content_filtered no job";
const BUSY: &str = "overloaded yes upstream";
const RATE: &str = "rate_limited yes credential";
const KEY: &str = "auth no credential";
const BAD: &str = "invalid_request no job";
const FAILED: &str = "upstream_error yes upstream";
const LATE: &str = "timeout conditional upstream";
const CUT: &str = "invalid_output no job";
const BROKEN: &str = "invalid_output conditional job";

/// One line of `forms.jsonl`.
#[derive(Deserialize)]
struct Form {
    name: String,
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    expect: String,
    wait_ms: Option<u64>,
    body: Value,
}

#[test]
fn answers_of_many_providers() {
    let mut wrong = Vec::new();
    for line in include_str!("forms.jsonl").lines() {
        let form: Form = serde_json::from_str(line).unwrap();
        let evidence = Evidence {
            status: Some(form.status),
            headers: form.headers.into_iter().collect(),
            body: form.body,
        };
        let reading = read(&evidence, &Context::default());
        let ms = reading.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
        if said(&reading) != form.expect || ms != form.wait_ms {
            let (name, expect, wait) = (form.name, form.expect, form.wait_ms);
            wrong.push(format!(
                "{name}: {} {ms:?}, expected {expect} {wait:?}; rule {}",
                said(&reading),
                reading.rule
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n", wrong.join("\n"));
}

#[test]
fn reasons_why_an_answer_ended() {
    let gemini =
        |reason: &str| json!({"candidates": [{"finishReason": reason, "content": {"role": "model"}}]});
    for (reason, expected) in
        [("SAFETY", FILTERED), ("RECITATION", FILTERED), ("MAX_TOKENS", CUT), ("OTHER", BROKEN)]
    {
        assert_eq!(said(&reading(200, &[], gemini(reason))), expected, "{reason}");
    }
    let openai = |reason: &str| json!({"choices": [{"finish_reason": reason, "message": {"role": "assistant", "content": "par"}}]});
    for (reason, expected) in [
        ("sensitive", FILTERED),
        ("network_error", FAILED),
        ("model_length", CUT),
        ("length", CUT),
        ("insufficient_system_resource", BUSY),
        ("stop", "success no job"),
        ("something_new", "success no job"),
    ] {
        assert_eq!(said(&reading(200, &[], openai(reason))), expected, "{reason}");
    }
}

#[test]
fn good_answers_are_successes() {
    let good = [
        json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "rate limit exceeded", "refusal": null}}], "error": null}),
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]}}]}),
        json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}),
        json!({"candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "hi"}]}}]}),
        json!({"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn"}),
        json!({"object": "response", "status": "completed", "error": null, "incomplete_details": null, "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]}),
        json!({"model": "x", "message": {"role": "assistant", "content": "hi"}, "done": true, "done_reason": "stop"}),
        json!({"model": "x", "response": "hi", "done": true}),
        json!([{"generated_text": "hi"}]),
        json!({"id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}}),
        json!({"object": "list", "data": [{"index": 0, "embedding": [0.1, 0.2]}]}),
        json!({"embeddings": {"float": [[0.1, 0.2]]}}),
        json!({"embeddings": [{"values": [0.1, 0.2]}]}),
        json!({"predictions": [{"embeddings": {"values": [0.1, 0.2], "statistics": {"token_count": 2}}}]}),
        json!([{"index": 0, "embedding": [[0.1, 0.2]]}]),
        json!({"output": {"embeddings": [{"text_index": 0, "embedding": [0.1, 0.2]}]}, "usage": {"total_tokens": 1}}),
        json!({"object": "list", "data": [{"index": 0, "embedding": "zczMPc3MTD4="}]}),
        json!(
            "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
        ),
        json!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[],\"stop_reason\":null}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
        ),
        json!(
            "{\"model\":\"x\",\"response\":\"h\",\"done\":false}\n{\"model\":\"x\",\"response\":\"\",\"done\":true,\"done_reason\":\"stop\"}\n"
        ),
        json!(
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}]}}\n\n"
        ),
    ];
    for body in good {
        let reading = reading(
            200,
            &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1s")],
            body.clone(),
        );
        assert!(reading.is_success(), "{body}: {reading:?}");
    }
}

#[test]
fn a_streams_text_is_put_together_once() {
    let lines = [
        r#"data: {"type":"response.created","response":{"status":"in_progress","error":null,"output":[]}}"#,
        r#"data: {"type":"response.output_text.delta","delta":"{\"a\""}"#,
        r#"data: {"type":"response.output_text.delta","delta":":1}"}"#,
        r#"data: {"type":"response.output_text.done","text":"{\"a\":1}"}"#,
        r#"data: {"type":"response.completed","response":{"status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"{\"a\":1}"}]}]}}"#,
    ];
    let cohere = [
        r#"data: {"type":"content-delta","delta":{"message":{"content":{"text":"{\"a\":"}}}}"#,
        r#"data: {"type":"content-delta","delta":{"message":{"content":{"text":"1}"}}}}"#,
        r#"data: {"type":"message-end","delta":{"finish_reason":"COMPLETE"}}"#,
    ];
    let context = Context { operation: Some(Operation::Chat), expects_json: true, ..Context::default() };
    for stream in [&lines[..], &cohere[..]] {
        let whole = read(&evidence(200, &[], stream.join("\n\n").into()), &context);
        assert!(whole.is_success(), "{whole:?}");
        let cut = read(&evidence(200, &[], stream[..stream.len() - 1].join("\n\n").into()), &context);
        assert_eq!(cut.rule, "cut_stream");
    }
}

#[test]
fn json_handed_on_as_text_is_json() {
    let answer = r#"{"choices":[{"finish_reason":"stop","message":{"content":"hi"}}]}"#;
    assert!(reading(200, &[], answer.into()).is_success());
    let first_line = r#"{"model":"x","response":"a","done":false}"#;
    assert_eq!(reading(200, &[], first_line.into()).rule, "cut_stream");
}

#[test]
fn vectors_that_must_not_be_stored() {
    let context = Context {
        operation: Some(Operation::Embeddings),
        inputs: Some(2),
        dimensions: Some(2),
        ..Context::default()
    };
    let with = |vectors: Value| evidence(200, &[], json!({"object": "list", "data": vectors}));
    let of = |vectors: Value| said(&read(&with(vectors), &context));
    assert_eq!(
        of(json!([{"index": 1, "embedding": [1.0, 2]}, {"index": 0, "embedding": [3, 4]}])),
        "success no job"
    );
    assert_eq!(of(json!([{"index": 0, "embedding": [1.0, 2]}])), BROKEN);
    assert_eq!(
        of(
            json!([{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [3, 4]}, {"index": 2, "embedding": [5, 6]}])
        ),
        BROKEN
    );
    assert_eq!(of(json!([{"index": 0, "embedding": [1, 2]}, {"index": 2, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": [0, 0.0]}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": null}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": []}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(
        of(json!([{"index": 0, "embedding": [1, 2, 3]}, {"index": 1, "embedding": [3, 4, 5]}])),
        "invalid_output no upstream"
    );
    assert_eq!(of(json!("nonsense")), BROKEN);
    // NaN packed into base64, which JSON would not have let through.
    assert_eq!(
        of(json!([{"index": 0, "embedding": "AADAfwAAgD8="}, {"index": 1, "embedding": "AACAPwAAgD8="}])),
        BROKEN
    );
}

#[test]
fn json_that_was_asked_for() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}, "b": {"enum": ["x", "y"]}}, "additionalProperties": false});
    let of = |text: &str| {
        let body = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]});
        let context =
            Context { operation: Some(Operation::Chat), schema: Some(schema.clone()), ..Context::default() };
        read(&evidence(200, &[], body), &context)
    };
    assert!(of("{\"a\": [1, 2.0, null], \"b\": \"x\"}").is_success());
    for (text, rule) in [
        ("{\"a\": [1, \"2\"]}", "output_schema"),
        ("{\"b\": \"x\"}", "output_schema"),
        ("{\"a\": [], \"b\": \"z\"}", "output_schema"),
        ("{\"a\": [], \"c\": 1}", "output_schema"),
        ("Here it is: {\"a\": []}", "output_wrapped"),
        ("I cannot do that", "output_not_json"),
        ("  ", "empty_text"),
    ] {
        assert_eq!(of(text).rule, rule, "{text}");
        assert_eq!(said(&of(text)), BROKEN, "{text}");
    }
}

#[test]
fn calls_without_an_answer() {
    let of = |text: &str| {
        said(&read(&Evidence { status: None, headers: vec![], body: json!(text) }, &Context::default()))
    };
    for (text, expected) in [
        (
            "error sending request for url (https://api.x.com/): client error (Connect): invalid peer certificate: UnknownIssuer",
            "network no upstream",
        ),
        ("x509: certificate signed by unknown authority", "network no upstream"),
        ("self-signed certificate in certificate chain", "network no upstream"),
        ("getaddrinfo EAI_AGAIN api.openai.com", "network yes upstream"),
        ("getaddrinfo ENOTFOUND api.openai.com", "network conditional upstream"),
        ("[Errno -3] Temporary failure in name resolution", "network yes upstream"),
        ("connect ECONNREFUSED 127.0.0.1:11434", "network yes upstream"),
        ("tcp connect error: Connection refused (os error 111)", "network yes upstream"),
        ("read ECONNRESET", "network yes upstream"),
        ("[Errno 104] Connection reset by peer", "network yes upstream"),
        ("socket hang up", "network yes upstream"),
        ("Server disconnected without sending a response.", "network yes upstream"),
        ("connection closed before message completed", "network yes upstream"),
        ("http2 error: connection error received: GOAWAY", "network yes upstream"),
        ("error decoding response body: unexpected end of file", "network yes upstream"),
        ("Connection error.", "network yes upstream"),
        ("Request timed out.", LATE),
        ("operation timed out", LATE),
        ("The operation was aborted due to timeout", LATE),
        ("context deadline exceeded (Client.Timeout exceeded while awaiting headers)", LATE),
        ("HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=60)", LATE),
        (
            "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /v1 (Caused by ConnectTimeoutError(<x>, 'Connection to x timed out. (connect timeout=5)'))",
            "timeout yes upstream",
        ),
        ("dial tcp 1.2.3.4:443: i/o timeout", "timeout yes upstream"),
        ("UND_ERR_CONNECT_TIMEOUT", "timeout yes upstream"),
        ("UND_ERR_HEADERS_TIMEOUT", LATE),
        ("litellm.Timeout: APITimeoutError - Request timed out.", LATE),
        (
            "Error code: 401 - {'error': {'message': 'Incorrect API key provided', 'code': 'invalid_api_key'}}",
            KEY,
        ),
        (
            "Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}",
            BUSY,
        ),
        ("The api_key client option must be set: no API key found", KEY),
        (
            "Error 429, Message: You exceeded your current quota, please check your plan and billing details. \
             * Quota exceeded for metric: generate_requests, limit: 20, Status: RESOURCE_EXHAUSTED, Details: \
             [map[quotaId:GenerateRequestsPerDayPerProjectPerModel] map[retryDelay:36s]]",
            "quota_exhausted conditional credential",
        ),
        (
            "Error code: 429 - ***'error': ***'message': 'You exceeded your current quota, please check your plan and \
             billing details.', 'type': 'insufficient_quota'***",
            "quota_exhausted no credential",
        ),
        ("something nobody has seen", "network conditional upstream"),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
}

#[test]
fn the_server_may_forbid_and_allow_a_retry() {
    let no = &[("X-Should-Retry", "false")];
    assert_eq!(said(&reading(429, no, json!(""))), "rate_limited no credential");
    assert_eq!(said(&reading(500, no, json!(""))), "upstream_error no job");
    let yes = &[("x-should-retry", "true")];
    assert_eq!(said(&reading(400, yes, json!(""))), FAILED);
    // No header makes a wrong key right.
    assert_eq!(said(&reading(401, yes, json!(""))), KEY);
}

#[test]
fn a_reading_becomes_a_failure_to_store() {
    let limited = reading(429, &[("retry-after", "2")], json!("")).failure("LLM").unwrap();
    assert_eq!((limited.code.as_str(), limited.final_), ("LLM_RATE_LIMIT", false));
    assert_eq!(limited.retry_after, Some(std::time::Duration::from_secs(2)));
    let cut = json!({"choices": [{"finish_reason": "length", "message": {"content": "par"}}]});
    assert!(reading(200, &[], cut).failure("LLM").unwrap().final_);
    // A person has to act, and then the job goes on: not final.
    assert!(!reading(401, &[], json!("")).failure("LLM").unwrap().final_);
    assert_eq!(reading(200, &[], json!([[0.1, 0.2]])).failure("LLM"), None);
}

#[test]
fn numeric_codes_belong_to_their_vendor() {
    let body = json!({"error": {"code": "1300", "message": "x"}});
    let of = |provider: Option<&str>| {
        let context = Context { provider: provider.map(str::to_owned), ..Context::default() };
        said(&read(&evidence(400, &[], body.clone()), &context))
    };
    assert_eq!(of(Some("mistral")), RATE);
    assert_eq!(of(None), RATE);
    assert_eq!(of(Some("z.ai/glm-4")), BAD);
}
