//! The HTTP embedder against a real server on the loopback that answers what a test tells it to.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_ai::Secret;
use coolant_ai::embed::{
    EmbedError, Embedder, EmbeddingSettings, Embeddings, InvalidOutput, Phase, Timeouts, Timer,
    TransportFault, build,
};
use serde_json::{Value, json};
use support::{Server, Step, http};

const KEY: &str = "sk-live-0123456789";
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

fn settings(base_url: &str) -> EmbeddingSettings {
    EmbeddingSettings {
        base_url: Some(base_url.to_owned()),
        api_key: Some(Secret::new(KEY)),
        provider: Some("test".into()),
        model: Some("m".into()),
        dimensions: Some(2),
        timeouts: Timeouts { connect: LONG, first_byte: LONG, idle: LONG, total: LONG },
        ..Default::default()
    }
}

fn embedder(server: &Server) -> Arc<dyn Embedder> {
    build(&settings(&server.base_url)).unwrap()
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("text {n}")).collect()
}

/// Embeds two texts at a server that answers this; the key is in nothing that can be printed.
async fn answer(
    steps: Vec<Step>,
    change: impl FnOnce(&mut EmbeddingSettings),
) -> Result<Embeddings, EmbedError> {
    let server = Server::start(steps).await;
    let mut settings = settings(&server.base_url);
    change(&mut settings);
    let embedder = build(&settings).unwrap();
    let result = embedder.embed(&texts(2)).await;
    assert!(!format!("{settings:?} {embedder:?} {result:?}").contains(KEY));
    if let Err(error) = &result {
        assert!(!format!("{error}").contains(KEY));
    }
    assert_eq!(server.requests().len(), 1, "one call is one request");
    result
}

async fn answer_json(status: &str, body: Value) -> Result<Embeddings, EmbedError> {
    answer(vec![Step::Send(http(status, &[], body.to_string()))], |_| {}).await
}

async fn refused(status: &str, headers: &[&str], body: &str) -> EmbedError {
    let error = answer(vec![Step::Send(http(status, headers, body))], |_| {}).await.unwrap_err();
    assert!(matches!(error, EmbedError::Refused { .. }), "{error:?}");
    error
}

#[tokio::test]
async fn a_good_answer_is_sorted_by_index() {
    let body = json!({
        "object": "list", "model": "m-2026", "usage": {"prompt_tokens": 9, "total_tokens": 9},
        "data": [{"index": 1, "embedding": [0.5, 0.25]}, {"index": 0, "embedding": [1, -1.5e-3]}],
    });
    let server =
        Server::start(vec![Step::Send(http("200 OK", &["X-RateLimit-Remaining: 7"], body.to_string()))])
            .await;
    let answer = embedder(&server).embed(&texts(2)).await.unwrap();
    assert_eq!(answer.vectors, [[1.0, -0.0015], [0.5, 0.25]]);
    assert_eq!((answer.usage.input_tokens, answer.usage.estimated), (9, false));
    assert_eq!(answer.model.as_deref(), Some("m-2026"));
    assert!(answer.headers.contains(&("x-ratelimit-remaining".into(), "7".into())));
    let request = &server.requests()[0];
    assert!(request.head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"));
    assert!(request.head.to_lowercase().contains(&format!("authorization: bearer {KEY}")));
    let sent: Value = serde_json::from_slice(&request.body).unwrap();
    let wanted =
        json!({"model": "m", "input": ["text 0", "text 1"], "encoding_format": "float", "dimensions": 2});
    assert_eq!(sent, wanted);
}

#[tokio::test]
async fn without_usage_the_tokens_are_estimated_and_without_dimension_the_first_answer_tells() {
    let body = json!({"data": [{"embedding": [1, 2, 3]}, {"index": 1, "embedding": [1, 2, 4]}]});
    let steps = vec![Step::Send(http("200 OK", &[], body.to_string()))];
    let answer = answer(steps, |settings| settings.dimensions = None).await.unwrap();
    assert_eq!(answer.dimension(), Some(3));
    assert!(answer.usage.estimated && answer.usage.input_tokens > 0);
}

#[tokio::test]
async fn nothing_to_embed_is_not_sent() {
    let server = Server::start(vec![]).await;
    let embedder = embedder(&server);
    assert_eq!(embedder.embed(&[]).await.unwrap(), Embeddings::default());
    let blank = ["a".to_owned(), "\u{3000}\n".to_owned()];
    assert!(matches!(embedder.embed(&blank).await, Err(EmbedError::BlankInput { index: 1 })));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_429_is_kept_as_evidence_and_masks_a_quoted_key() {
    let body = format!(r#"{{"error": {{"message": "slow down, {KEY}", "code": "rate_limit_exceeded"}}}}"#);
    let echo = format!("X-Your-Key: {KEY}");
    let error = refused("429 Too Many Requests", &["Retry-After: 7", &echo, "Set-Cookie: a=b"], &body).await;
    let evidence = error.evidence().unwrap();
    assert_eq!(evidence.status, Some(429));
    assert!(evidence.headers.contains(&("retry-after".into(), "7".into())));
    assert!(evidence.headers.contains(&("x-your-key".into(), "[redacted]".into())));
    assert!(evidence.headers.iter().all(|(name, _)| name != "set-cookie"));
    assert_eq!(evidence.body["error"]["message"], "slow down, [redacted]");
    assert!(!error.is_batch_too_large());
}

#[tokio::test]
async fn an_error_that_is_not_json_is_text_and_a_413_asks_for_halves() {
    let error = refused("502 Bad Gateway", &["Content-Type: text/html"], "<html>bad gateway</html>").await;
    assert_eq!(error.evidence().unwrap().body, "<html>bad gateway</html>");
    assert!(refused("413 Payload Too Large", &[], "").await.is_batch_too_large());
}

#[tokio::test]
async fn a_200_without_vectors_is_evidence_too() {
    for body in ["", "<html>welcome</html>", r#"{"error": {"code": 503}}"#, "null"] {
        let error = refused("200 OK", &[], body).await;
        assert_eq!(error.evidence().unwrap().status, Some(200), "{body}");
    }
}

#[tokio::test]
async fn vectors_that_cannot_be_used_are_refused_whole() {
    let item = |index: u64, embedding: Value| json!({"index": index, "embedding": embedding});
    let good = || item(0, json!([1, 2]));
    let cases = [
        (vec![], InvalidOutput::WrongCount { expected: 2, found: 0 }),
        (vec![good()], InvalidOutput::WrongCount { expected: 2, found: 1 }),
        (vec![good(), good()], InvalidOutput::WrongIndex { index: 0 }),
        (vec![good(), item(2, json!([1, 2]))], InvalidOutput::WrongIndex { index: 2 }),
        (
            vec![good(), item(1, json!([1]))],
            InvalidOutput::WrongDimension { index: 1, expected: 2, found: 1 },
        ),
        (
            vec![good(), item(1, json!([1, 2, 3]))],
            InvalidOutput::WrongDimension { index: 1, expected: 2, found: 3 },
        ),
        (vec![good(), item(1, json!([null, 1]))], InvalidOutput::NotFinite { index: 1 }),
        (vec![good(), item(1, json!([1e39, 1]))], InvalidOutput::NotFinite { index: 1 }),
        (vec![good(), item(1, json!([0, -0.0]))], InvalidOutput::AllZero { index: 1 }),
    ];
    for (data, wanted) in cases {
        let error =
            answer_json("200 OK", json!({"data": data, "usage": {"prompt_tokens": 5}})).await.unwrap_err();
        let EmbedError::InvalidOutput { reason, usage, evidence } = error else { panic!("{error:?}") };
        assert_eq!(reason, wanted);
        assert_eq!(usage.input_tokens, 5, "it is paid for");
        assert_eq!(evidence.status, Some(200));
    }
}

#[tokio::test]
async fn vectors_of_another_form_are_malformed() {
    for body in
        [json!({"data": [{"index": 0, "embedding": "AAAA"}]}), json!([[null, null]]), json!({"data": ["x"]})]
    {
        let error = answer_json("200 OK", body).await.unwrap_err();
        let EmbedError::InvalidOutput { reason, .. } = error else { panic!("{error:?}") };
        assert!(matches!(reason, InvalidOutput::Malformed { .. }));
    }
}

#[tokio::test]
async fn vectors_of_mixed_dimension_are_refused_without_a_configured_one() {
    let body = json!({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]});
    let steps = vec![Step::Send(http("200 OK", &[], body.to_string()))];
    let error = answer(steps, |settings| settings.dimensions = None).await.unwrap_err();
    assert!(error.to_string().contains("dimension"), "{error}");
}

#[tokio::test]
async fn a_pinned_dimension_is_checked_and_not_asked_for() {
    let body = json!({"data": [{"index": 0, "embedding": [1, 2]}]});
    let server = Server::start(vec![Step::Send(http("200 OK", &[], body.to_string()))]).await;
    let mut settings = settings(&server.base_url);
    (settings.dimensions, settings.pinned_dimension) = (None, Some(3));
    let embedder = build(&settings).unwrap();
    assert_eq!(embedder.id().fingerprint(), "embed=test/m@3");
    let error = embedder.embed(&texts(1)).await.unwrap_err();
    assert!(matches!(error, EmbedError::InvalidOutput { reason: InvalidOutput::WrongDimension { .. }, .. }));
    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent.get("dimensions"), None);
}

#[tokio::test]
async fn a_huge_answer_is_not_read() {
    let endless =
        || vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\n{\"data\": [".to_vec()), Step::Forever(vec![b' '; 9999])];
    let error = answer(endless(), |_| {}).await.unwrap_err();
    let EmbedError::InvalidOutput { reason: InvalidOutput::TooLong { limit }, .. } = error else {
        panic!("{error:?}")
    };
    assert!(limit < 100_000);
    let failing = vec![Step::Send(b"HTTP/1.1 500 No\r\n\r\n".to_vec()), Step::Forever(vec![b'x'; 9999])];
    let error = answer(failing, |_| {}).await.unwrap_err();
    assert_eq!(error.evidence().unwrap().body.as_str().unwrap().len(), 64 * 1024);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_takes_the_key_nowhere() {
    let elsewhere = Server::start(vec![]).await;
    let location = format!("Location: {}/embeddings", elsewhere.base_url);
    for status in ["307 Temporary Redirect", "302 Found"] {
        assert_eq!(refused(status, &[&location], "").await.evidence().unwrap().body, "");
    }
    assert!(elsewhere.requests().is_empty());
}

fn transport(result: Result<Embeddings, EmbedError>) -> (Phase, TransportFault, Value) {
    match result {
        Err(EmbedError::Transport { phase, fault, evidence }) => {
            assert_eq!(evidence.status, None);
            (phase, fault, evidence.body)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cut_answer_had_begun() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\": [".to_vec();
    let (phase, fault, _) = transport(answer(vec![Step::Send(cut)], |_| {}).await);
    assert_eq!((phase, fault), (Phase::AnswerBegun, TransportFault::Network));
    let cut = b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 500\r\n\r\nbusy".to_vec();
    let error = answer(vec![Step::Send(cut)], |_| {}).await.unwrap_err();
    let evidence = error.evidence().unwrap();
    assert_eq!((evidence.status, evidence.body.as_str()), (Some(503), Some("busy")));
}

#[tokio::test]
async fn a_connection_closed_without_an_answer_may_have_been_billed() {
    let (phase, fault, text) = transport(answer(vec![], |_| {}).await);
    assert_eq!((phase, fault), (Phase::Sent, TransportFault::Network));
    assert!(text.as_str().unwrap().contains("connection closed before message completed"), "{text}");
}

#[tokio::test]
async fn a_refused_connection_sent_nothing() {
    let server = Server::start(vec![]).await;
    let base_url = server.base_url.clone();
    server.stop().await;
    let (phase, fault, text) = transport(build(&settings(&base_url)).unwrap().embed(&texts(1)).await);
    assert_eq!((phase, fault), (Phase::NotSent, TransportFault::Network));
    assert!(text.as_str().unwrap().contains("refused"), "{text}");
}

#[tokio::test]
async fn each_timer_ends_its_own_part() {
    let head = || Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n".to_vec());
    let part = || Step::Send(b"{\"data\"".to_vec());
    let first_byte = |settings: &mut EmbeddingSettings| settings.timeouts.first_byte = SHORT;
    let idle = |settings: &mut EmbeddingSettings| settings.timeouts.idle = SHORT;
    let total = |settings: &mut EmbeddingSettings| settings.timeouts.total = SHORT;
    let timed_out = |timer| TransportFault::Timeout { timer, after: SHORT };

    let (phase, fault, text) = transport(answer(vec![Step::Hold], first_byte).await);
    assert_eq!((phase, fault), (Phase::Sent, timed_out(Timer::FirstByte)));
    assert_eq!(text, "first byte timed out after 150ms");
    let (phase, fault, _) = transport(answer(vec![head(), Step::Hold], first_byte).await);
    assert_eq!((phase, fault), (Phase::AnswerBegun, timed_out(Timer::FirstByte)));
    let (phase, fault, _) = transport(answer(vec![head(), part(), Step::Hold], idle).await);
    assert_eq!((phase, fault), (Phase::AnswerBegun, timed_out(Timer::Idle)));
    let (phase, fault, _) = transport(answer(vec![Step::Hold], total).await);
    assert_eq!((phase, fault), (Phase::Sent, timed_out(Timer::Total)));
    let (phase, fault, _) = transport(answer(vec![head(), part(), Step::Hold], total).await);
    assert_eq!((phase, fault), (Phase::AnswerBegun, timed_out(Timer::Total)));
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_connect_timeout() {
    // The server speaks no TLS: it reads the client's first message and says nothing.
    let server = Server::start(vec![Step::Hold]).await;
    let mut settings = settings(&server.base_url.replace("http://", "https://"));
    settings.timeouts.connect = SHORT;
    let (phase, fault, _) = transport(build(&settings).unwrap().embed(&texts(1)).await);
    assert_eq!(
        (phase, fault),
        (Phase::NotSent, TransportFault::Timeout { timer: Timer::Connect, after: SHORT })
    );
}
