//! One HTTP exchange: timers, bounds, and what is kept of it when it fails.

use std::error::Error;

use coolant_core::evidence::Evidence;
use reqwest::header::{HeaderMap, SET_COOKIE};
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::super::Usage;
use super::super::error::{EmbedError, InvalidOutput, Phase, Timer, TransportFault};
use super::super::settings::Timeouts;
use crate::Secret;

/// What is read of an answer that is not a success, in bytes; the rest of it is cut off.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// A whole answer with a success status.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    key: Option<Secret>,
}

impl Answer {
    /// The answer as evidence, with this for its body.
    pub(super) fn evidence(self, body: Value) -> Box<Evidence> {
        Box::new(Evidence { status: Some(self.status), headers: self.headers, body })
    }

    /// The start of the body as JSON or text, without the key.
    pub(super) fn start_of_body(&self) -> Value {
        readable(&self.body[..self.body.len().min(MAX_ERROR_BODY)], self.key.as_ref())
    }
}

/// How to do one exchange.
pub(super) struct Exchange<'a> {
    /// Removed from whatever is kept.
    pub(super) key: Option<&'a Secret>,
    pub(super) timeouts: Timeouts,
    /// The longest body of a success.
    pub(super) most_bytes: usize,
}

struct Deadlines {
    first_byte: Instant,
    total: Instant,
}

impl Exchange<'_> {
    /// Sends the request and reads the whole answer.
    ///
    /// # Errors
    ///
    /// Everything but a success with a whole body of bounded length.
    pub(super) async fn run(&self, request: RequestBuilder) -> Result<Answer, EmbedError> {
        let start = Instant::now();
        let at =
            Deadlines { first_byte: start + self.timeouts.first_byte, total: start + self.timeouts.total };
        let mut response = match self.within(at.first_byte, Timer::FirstByte, &at, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.failed_to_send(error)),
            // Perhaps not even connected, but nobody can tell: it may be on the bill.
            Err(timer) => return Err(self.timed_out(timer, Phase::Sent, Vec::new())),
        };
        let (status, headers) = (response.status(), self.headers(response.headers()));
        let most_bytes = if status.is_success() { self.most_bytes } else { MAX_ERROR_BODY };
        let mut body = Vec::new();
        let end = self.read(&mut response, &mut body, most_bytes, &at).await;
        let key = self.key.cloned();
        let answer = Answer { status: status.as_u16(), headers, body, key };
        match end {
            // The status says more than how its body ended.
            _ if !status.is_success() => {
                let body = answer.start_of_body();
                Err(EmbedError::Refused { evidence: answer.evidence(body) })
            }
            End::Whole => Ok(answer),
            End::TooLong => Err(EmbedError::InvalidOutput {
                reason: InvalidOutput::TooLong { limit: most_bytes },
                usage: Usage::default(),
                evidence: answer.evidence(Value::Null),
            }),
            End::TimedOut(timer) => Err(self.timed_out(timer, Phase::AnswerBegun, answer.headers)),
            End::Cut(error) => {
                let fault = TransportFault::Network;
                Err(self.transport(Phase::AnswerBegun, fault, &chain(&error.without_url()), answer.headers))
            }
        }
    }

    /// Reads the body until it ends, is longer than `most_bytes`, or comes no further.
    async fn read(
        &self,
        response: &mut Response,
        body: &mut Vec<u8>,
        most_bytes: usize,
        at: &Deadlines,
    ) -> End {
        let (mut until, mut timer) = (at.first_byte, Timer::FirstByte);
        loop {
            match self.within(until, timer, at, response.chunk()).await {
                Ok(Ok(Some(part))) => {
                    let room = most_bytes - body.len();
                    body.extend_from_slice(&part[..part.len().min(room)]);
                    if part.len() > room {
                        return End::TooLong;
                    }
                }
                Ok(Ok(None)) => return End::Whole,
                Ok(Err(error)) => return End::Cut(error),
                Err(timer) => return End::TimedOut(timer),
            }
            (until, timer) = (Instant::now() + self.timeouts.idle, Timer::Idle);
        }
    }

    /// The future's output, or the timer that ended first: this one or the total.
    async fn within<F: Future>(
        &self,
        until: Instant,
        timer: Timer,
        at: &Deadlines,
        future: F,
    ) -> Result<F::Output, Timer> {
        let (until, timer) = if at.total < until { (at.total, Timer::Total) } else { (until, timer) };
        timeout_at(until, future).await.map_err(|_| timer)
    }

    fn failed_to_send(&self, error: reqwest::Error) -> EmbedError {
        let error = error.without_url();
        // Without a connection nothing was sent. Any other failure may have come after the provider got
        // the request, even "connection closed before message completed".
        let phase = if error.is_connect() || error.is_builder() { Phase::NotSent } else { Phase::Sent };
        let fault = if error.is_timeout() {
            TransportFault::Timeout { timer: Timer::Connect, after: self.timeouts.connect }
        } else if is_untrusted_tls(&error) {
            TransportFault::UntrustedTls
        } else {
            TransportFault::Network
        };
        self.transport(phase, fault, &chain(&error), Vec::new())
    }

    fn timed_out(&self, timer: Timer, phase: Phase, headers: Vec<(String, String)>) -> EmbedError {
        let after = match timer {
            Timer::Connect => self.timeouts.connect,
            Timer::FirstByte => self.timeouts.first_byte,
            Timer::Idle => self.timeouts.idle,
            Timer::Total => self.timeouts.total,
        };
        let fault = TransportFault::Timeout { timer, after };
        self.transport(phase, fault, &fault.to_string(), headers)
    }

    fn transport(
        &self,
        phase: Phase,
        fault: TransportFault,
        text: &str,
        headers: Vec<(String, String)>,
    ) -> EmbedError {
        let text = masked(text, self.key);
        let evidence = Box::new(Evidence { status: None, headers, body: Value::String(text) });
        EmbedError::Transport { phase, fault, evidence }
    }

    fn headers(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let kept = headers.iter().filter(|(name, _)| *name != SET_COOKIE);
        kept.map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str().to_owned(), masked(&value, self.key))
        })
        .collect()
    }
}

enum End {
    Whole,
    TooLong,
    TimedOut(Timer),
    Cut(reqwest::Error),
}

/// A body as JSON if it is, else as text; without the key.
fn readable(body: &[u8], key: Option<&Secret>) -> Value {
    let text = masked(&String::from_utf8_lossy(body), key);
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn masked(text: &str, key: Option<&Secret>) -> String {
    key.map_or_else(|| text.to_owned(), |key| key.mask(text))
}

/// An error's text with those of its sources.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn is_untrusted_tls(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            return true;
        }
        // An IO error hides what it wraps from `source`, which gives the source of the wrapped one.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}
