//! The server: takes calls, asks the script, counts, answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use coolant_core::money::Usage;
use coolant_core::prices::Prices;
use coolant_core::time::Timestamp;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::answer::{Asked, Given, Used, error, paid, refusal};
use super::counts::Counts;
use super::limit::Window;
use super::output::Dice;
use super::script::{Do, Kind, Rule, Script};

/// Largest request.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// A provider; all clones are one.
#[derive(Clone)]
pub(crate) struct FakeProvider {
    inner: Arc<Inner>,
}

struct Inner {
    script: Script,
    prices: Prices,
    start: Mutex<Instant>,
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    counts: Counts,
    window: Window,
    /// Calls that fitted each rule's conditions so far, its own count of them left aside.
    fitted: Vec<u64>,
}

/// A call once it is decided what becomes of it.
struct Decided {
    number: u64,
    rule: Rule,
    /// What is stated about the limit.
    headers: HeaderMap,
}

impl FakeProvider {
    /// A provider whose time begins now.
    pub(crate) fn new(script: Script) -> Self {
        let desk = Desk { fitted: vec![0; script.rules.len()], ..Desk::default() };
        let prices = script.prices().unwrap_or_default();
        let inner = Inner { script, prices, start: Mutex::new(Instant::now()), desk: Mutex::new(desk) };
        Self { inner: Arc::new(inner) }
    }

    /// Serves until `stop` ends.
    pub(crate) async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let router = Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/embeddings", post(embeddings))
            .route("/v1/models", get(models))
            .route("/counts", get(counts))
            .fallback(nothing)
            .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
            .with_state(self);
        crate::http::serve(listener, router, stop).await;
    }

    /// What was called so far.
    pub(crate) fn counts(&self) -> Counts {
        self.desk().counts.clone()
    }

    /// The time since its start, which the rules' times are counted in.
    pub(crate) fn age(&self) -> Duration {
        self.inner.start.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Lets its time begin now, and not when it was made.
    pub(crate) fn begin(&self) {
        *self.inner.start.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.inner.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a call. Decided and counted in one go, so that two calls are never both the
    /// third.
    fn decide(&self, asked: &Asked, key: Option<&str>) -> Decided {
        let age = self.age();
        let script = &self.inner.script;
        let mut desk = self.desk();
        let number = desk.counts.calls;
        let mut rule = self.choose(&mut desk, asked, key, age);
        let mut used = rule.act.is_paid().then(|| paid(asked, script, rule.act, number).1);
        let mut headers = HeaderMap::new();
        if let (Some(limit), Some(call)) = (&script.limit, used) {
            let admission = desk.window.admit(limit, call, age);
            headers = admission.headers;
            if !admission.fits {
                rule = Rule { act: Do::RateLimit, ..Rule::default() };
                used = None;
            }
        }
        // Counted now: what happens to the answer on its way changes nothing for who pays.
        let usage = used.map(|used| self.usage(used)).unwrap_or_default();
        if used.is_some() {
            desk.counts.add_inputs(asked.inputs.iter().map(String::as_str));
        }
        desk.counts.add_call_of(asked.inputs.first().map_or("", String::as_str));
        desk.counts.add(age, key, &asked.model, rule.act, &usage);
        Decided { number, rule, headers }
    }

    /// The first rule that a call fits.
    fn choose(&self, desk: &mut Desk, asked: &Asked, key: Option<&str>, age: Duration) -> Rule {
        let script = &self.inner.script;
        for (at, rule) in script.rules.iter().enumerate() {
            if !fits(rule, asked, key, age) {
                continue;
            }
            desk.fitted[at] += 1;
            let nth = desk.fitted[at];
            let by_count = rule.first.is_none_or(|first| nth >= first)
                && rule.last.is_none_or(|last| nth <= last)
                && rule.every.is_none_or(|every| nth.is_multiple_of(every));
            let by_chance = rule.chance.is_none_or(|chance| {
                Dice::new(script.seed, "chance", &format!("{at}:{nth}")).chance() < chance
            });
            if by_count && by_chance {
                return rule.clone();
            }
        }
        Rule::default()
    }

    fn usage(&self, used: Used) -> Usage {
        let mut usage = Usage {
            upstream: Some("fake/any".into()),
            input_tokens: used.input_tokens,
            output_tokens: used.output_tokens,
            ..Usage::default()
        };
        // Its only price holds at any time.
        self.inner.prices.price(&mut usage, Timestamp::default());
        usage
    }

    async fn answer(self, kind: Kind, headers: HeaderMap, body: Bytes) -> Response {
        let asked = match Asked::read(kind, &body) {
            Ok(asked) => asked,
            Err(wrong) => {
                return plain(
                    StatusCode::BAD_REQUEST,
                    error("invalid_request_error", "invalid_request", &wrong),
                );
            }
        };
        let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = key.map(|key| key.strip_prefix("Bearer ").unwrap_or(key));
        let Decided { number, rule, headers } = self.decide(&asked, key);
        let script = &self.inner.script;
        let delay = script.latency + rule.delay.unwrap_or_default();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let cut = rule.act == Do::Cut;
        let mut response = match rule.act.is_paid().then(|| paid(&asked, script, rule.act, number).0) {
            None => refused(&rule, &asked.model),
            Some(Given::Body(value)) => whole(value.to_string(), cut),
            Some(Given::Stream(parts)) => stream(&parts, cut),
        };
        response.headers_mut().extend(headers);
        response
    }
}

fn fits(rule: &Rule, asked: &Asked, key: Option<&str>, age: Duration) -> bool {
    let named = |pattern: &String| coolant_core::prices::pattern_fits(pattern, &asked.model);
    rule.path.is_none_or(|kind| kind == asked.kind)
        && rule.model.as_ref().is_none_or(named)
        && rule.key.as_deref().is_none_or(|wanted| key == Some(wanted))
        && rule.contains.as_ref().is_none_or(|text| asked.inputs.iter().any(|input| input.contains(text)))
        && rule.from.is_none_or(|from| age >= from)
        && rule.until.is_none_or(|until| age < until)
}

async fn chat(State(provider): State<FakeProvider>, headers: HeaderMap, body: Bytes) -> Response {
    provider.answer(Kind::Chat, headers, body).await
}

async fn embeddings(State(provider): State<FakeProvider>, headers: HeaderMap, body: Bytes) -> Response {
    provider.answer(Kind::Embeddings, headers, body).await
}

async fn models(State(provider): State<FakeProvider>) -> axum::Json<Value> {
    let models = provider.inner.script.models.iter();
    let data: Vec<Value> =
        models.map(|id| json!({"id": id, "object": "model", "created": 0, "owned_by": "coolant"})).collect();
    axum::Json(json!({"object": "list", "data": data}))
}

async fn counts(State(provider): State<FakeProvider>) -> axum::Json<Counts> {
    axum::Json(provider.counts())
}

async fn nothing() -> Response {
    plain(StatusCode::NOT_FOUND, error("invalid_request_error", "unknown_url", "Unknown request URL."))
}

fn plain(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(rule: &Rule, model: &str) -> Response {
    let (status, body) = refusal(rule, model);
    let mut response = plain(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body);
    let headers = response.headers_mut();
    if let Some(wait) = rule.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
    }
    for (name, value) in &rule.headers {
        // Both were looked at when the script was read.
        if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    response
}

/// A body, or its first half and then the end of the connection.
fn whole(body: String, cut: bool) -> Response {
    if !cut {
        return plain(StatusCode::OK, body);
    }
    let length = body.len();
    let half = Bytes::from(body).slice(..length / 2);
    let mut response = plain(StatusCode::OK, String::new());
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    *response.body_mut() = broken(vec![half]);
    response
}

/// Server-sent events, or half of them and then the end of the connection.
fn stream(parts: &[Value], cut: bool) -> Response {
    let mut events: Vec<Bytes> = parts.iter().map(|part| Bytes::from(format!("data: {part}\n\n"))).collect();
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    let mut response = Response::new(match cut {
        true => broken(events.drain(..events.len() / 2).collect()),
        false => Body::from_stream(futures::stream::iter(events).map(Ok::<_, std::io::Error>)),
    });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

/// These parts, each on its way before the connection breaks.
fn broken(parts: Vec<Bytes>) -> Body {
    let parts = futures::stream::iter(parts).map(Ok);
    let end = futures::stream::once(async {
        // The parts before have to leave first; one turn of the runtime sends them.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted))
    });
    Body::from_stream(parts.chain(end))
}
