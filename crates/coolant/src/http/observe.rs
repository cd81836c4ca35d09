//! Observe: what is done around every call: its trace, its log line, and that whatever goes wrong still
//! ends in a problem.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;

use super::problem::{Code, INTERNAL, PROBLEM_JSON, Problem};
use crate::engine;
use crate::engine::submit::new_trace_id;
use crate::language::{self, Language};

/// The trace that a request belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Trace(pub(crate) String);

/// Around every call.
pub(crate) async fn observe(mut request: Request, next: Next) -> Response {
    let (trace_id, flags) = incoming(request.headers()).unwrap_or_else(|| (new_trace_id(), "01".into()));
    request.extensions_mut().insert(Trace(trace_id.clone()));
    let method = request.method().clone();
    let begun = tokio::time::Instant::now();
    let language = Language::accepted(&asked_languages(request.headers()));
    let answer = language::within(language, next.run(request));
    let response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => as_problem(response),
        Err(panic) => {
            tracing::error!(trace_id, %method, panic = said(&*panic), "a call panicked");
            Problem::new(Code::Engine(engine::Code::Internal), INTERNAL).into_response()
        }
    };
    // The path may hold names that users chose; it is not logged.
    let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(trace_id, %method, status = response.status().as_u16(), duration_ms, "call");
    with_traceparent(with_language(response, language), &trace_id, &flags)
}

/// All `Accept-Language` headers as one list.
fn asked_languages(headers: &HeaderMap) -> String {
    let lists = headers.get_all(header::ACCEPT_LANGUAGE).iter().filter_map(|list| list.to_str().ok());
    lists.collect::<Vec<_>>().join(",")
}

/// Says in which language an answer is, unless it has said so itself, and that another may be had.
fn with_language(mut response: Response, language: Language) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CONTENT_LANGUAGE).or_insert(HeaderValue::from_static(language.tag()));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Language"));
    response
}

/// The answer to a path that is none of the API's.
pub(crate) async fn no_such_path() -> Problem {
    Problem::new(Code::NotFound, "there is nothing under this path; `/openapi.json` lists what there is")
}

/// Turns an error that no handler made (a wrong method, say) into a problem; its headers stay.
fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == PROBLEM_JSON);
    if !is_error || is_problem {
        return response;
    }
    let problem = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            Problem::new(Code::MethodNotAllowed, "this path does not take this method; `Allow` says which")
        }
        StatusCode::NOT_FOUND => Problem::new(Code::NotFound, "there is nothing under this path"),
        status if status.is_client_error() => Problem::new(Code::InvalidUrl, "the request could not be read"),
        status => {
            tracing::error!(status = status.as_u16(), "a call failed without saying why");
            Problem::new(Code::Engine(engine::Code::Internal), INTERNAL)
        }
    };
    let mut answer = problem.into_response();
    if let Some(allow) = response.headers().get(header::ALLOW) {
        answer.headers_mut().insert(header::ALLOW, allow.clone());
    }
    answer
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

/// Trace id and flags of a valid W3C `traceparent`.
fn incoming(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |text: &str| text.bytes().all(|b| b == b'0');
    let valid = is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && !is_zero(trace)
        && is_hex(span, 16)
        && !is_zero(span)
        && is_hex(flags, 2)
        && (version != "00" || parts.next().is_none());
    valid.then(|| (trace.to_owned(), flags.to_owned()))
}

fn with_traceparent(mut response: Response, trace_id: &str, flags: &str) -> Response {
    let span = rand::random::<u64>().max(1);
    if let Ok(value) = HeaderValue::try_from(format!("00-{trace_id}-{span:016x}-{flags}")) {
        response.headers_mut().insert("traceparent", value);
    }
    response
}
