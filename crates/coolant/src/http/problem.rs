//! Problems: every error of the API in one shape (RFC 9457), with a stable code and its one status.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coolant_core::job::JobId;
use coolant_core::store::StoreError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::error::EngineError;
use crate::engine::{self};
use crate::language::{self, Language};

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The stable name of an error, wherever it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Code {
    Engine(engine::Code),
    InvalidJson,
    UnknownField,
    InvalidId,
    InvalidCursor,
    InvalidUrl,
    InvalidHeader,
    IdempotencyKeyMismatch,
    UnsupportedMediaType,
    BodyTooLarge,
    RequestTimeout,
    TooManyHeaders,
    ForeignHost,
    ForeignOrigin,
    NotFound,
    MethodNotAllowed,
    Busy,
}

impl Code {
    /// `NOT_FOUND` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine(code) => code.as_str(),
            Self::InvalidJson => "INVALID_JSON",
            Self::UnknownField => "UNKNOWN_FIELD",
            Self::InvalidId => "INVALID_ID",
            Self::InvalidCursor => "INVALID_CURSOR",
            Self::InvalidUrl => "INVALID_URL",
            Self::InvalidHeader => "INVALID_HEADER",
            Self::IdempotencyKeyMismatch => "IDEMPOTENCY_KEY_MISMATCH",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::RequestTimeout => "REQUEST_TIMEOUT",
            Self::TooManyHeaders => "TOO_MANY_HEADERS",
            Self::ForeignHost => "FOREIGN_HOST",
            Self::ForeignOrigin => "FOREIGN_ORIGIN",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::Busy => "BUSY",
        }
    }

    /// The one place where a code becomes a status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        use engine::Code as E;
        match self {
            Self::InvalidJson
            | Self::UnknownField
            | Self::InvalidId
            | Self::InvalidCursor
            | Self::InvalidUrl
            | Self::InvalidHeader
            | Self::IdempotencyKeyMismatch
            | Self::Engine(E::InvalidField) => StatusCode::BAD_REQUEST,
            Self::ForeignHost | Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NotFound
            | Self::Engine(
                E::JobNotFound
                | E::NotDeadLettered
                | E::StepNotFound
                | E::DocumentNotFound
                | E::RedriveNotFound
                | E::ScheduleNotFound
                | E::UpstreamNotFound
                | E::TenantNotFound
                | E::PermitNotFound,
            ) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Engine(
                E::PermanentFailure | E::JobNotEnded | E::JobEnded | E::JobSucceeded | E::LeaseLost,
            ) => StatusCode::CONFLICT,
            Self::Engine(E::LockHeld | E::LockCooling | E::LockClosed) => StatusCode::LOCKED,
            Self::BodyTooLarge | Self::Engine(E::PayloadTooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Engine(E::InvalidPayload | E::IdempotencyKeyReused | E::EstimateAboveLimit) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Engine(
                E::CoolingDown
                | E::UpstreamClosed
                | E::RateLimited
                | E::ConcurrencyLimited
                | E::BudgetExhausted
                | E::PaidCallLimit,
            ) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyHeaders => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Engine(E::Internal) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy | Self::Engine(E::StoreUnavailable | E::StoreNotMigrated | E::SearchUnavailable) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Engine(E::StoreFull) => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

/// An error as the API answers it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:coolant:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, for people.
    pub detail: String,
    /// What is wrong, for programs.
    pub code: &'static str,
    /// What else there is to say.
    #[serde(flatten)]
    pub more: Box<More>,
    /// The language of `title` and `detail`.
    #[serde(skip)]
    pub(crate) language: Language,
}

/// What a problem says beyond what all of them say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[schema(as = ProblemExtension)]
pub struct More {
    /// When the same call may pass, where waiting helps; also in `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<f64>,
    /// The field, parameter or header at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The fields in which two requests of one key differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
    /// The job that stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// How the lock stands that is not to be had: `held`, `cooling` or `closed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Of such a lock: who has it; null if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub holder: Option<Option<String>>,
    /// Of such a lock: what failed; null if it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Option<String>>,
    /// Where the JSON breaks, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Where the JSON breaks, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl Problem {
    /// A problem of that code.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let status = code.status();
        Self {
            kind: format!("urn:coolant:problem:{}", code.as_str()),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.as_str(),
            more: Box::default(),
            language: Language::English,
        }
    }

    /// The same in the language of the call, if waiting helps: then it is told to people.
    fn in_language_of_call(mut self, error: &EngineError) -> Self {
        if error.sentence().is_some() {
            self.language = language::current();
            self.title = self.language.title(self.status).unwrap_or(self.title);
        }
        self
    }

    /// The same, naming the field, parameter or header at fault.
    #[must_use]
    pub fn of_field(mut self, field: impl Into<String>) -> Self {
        self.more.field = Some(field.into());
        self
    }

    /// The same, saying when the call may pass.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.more.retry_after_seconds = wait.map(|wait| wait.as_secs_f64());
        self
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let code = error.code();
        let problem = Self::new(Code::Engine(code), detail(&error)).retry_after(error.retry_after());
        let mut problem = problem.in_language_of_call(&error);
        problem.more.field = error.field_name().map(ToOwned::to_owned);
        match error {
            EngineError::KeyReused { job_id, fields } => {
                problem.more.job_id = Some(job_id.to_string());
                problem.more.fields = Some(fields);
            }
            EngineError::CoolingDown { job_id, .. } => problem.more.job_id = Some(job_id.to_string()),
            EngineError::Locked(lock) => {
                let more = &mut problem.more;
                more.state = Some(lock.state.as_str());
                more.holder = Some(lock.state.holder().map(ToOwned::to_owned));
                more.reason = Some(lock.state.reason().map(ToOwned::to_owned));
            }
            EngineError::Store(error) => log(&error),
            _ => {}
        }
        problem
    }
}

/// What the client is told: a fault of the server's own is for the log, not for it.
fn detail(error: &EngineError) -> String {
    match error.code() {
        engine::Code::Internal => INTERNAL.to_owned(),
        _ => error.said(),
    }
}

/// What a client learns of a fault of the server's own.
pub(crate) const INTERNAL: &str = "the server failed; its log says why";

/// A store that is away for a moment is no fault of this program; anything else is somebody's to mend.
fn log(error: &StoreError) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    match error.is_retryable() {
        true => tracing::warn!(%error, cause, "a call met a store that is away"),
        false => tracing::error!(%error, cause, "a call met a store that failed"),
    }
}

/// The value of `Retry-After`: whole seconds, rounded up, so that nobody comes too early.
#[must_use]
pub fn retry_after_header(seconds: f64) -> HeaderValue {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    HeaderValue::from(seconds.ceil() as u64)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(&self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(header::CONTENT_LANGUAGE, HeaderValue::from_static(self.language.tag()));
        if let Some(seconds) = self.more.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, retry_after_header(seconds));
        }
        response
    }
}

/// A job's id as the caller wrote it: hyphenated, as the API writes it.
///
/// # Errors
/// `INVALID_ID` if it is none.
pub(crate) fn job_id(field: &str, text: &str) -> Result<JobId, Problem> {
    text.parse().ok().filter(|_| text.len() == 36).ok_or_else(|| {
        Problem::new(Code::InvalidId, format!("`{field}` is no id: it takes a UUID with hyphens"))
            .of_field(field)
    })
}

/// The problems that any call may answer with, for the description of the API.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "describes answers; none is made from it")]
pub(crate) enum AnyProblem {
    #[response(status = 400, description = "The request is wrong", content_type = PROBLEM_JSON)]
    BadRequest(Problem),
    #[response(status = "4XX", description = "The request cannot be done", content_type = PROBLEM_JSON)]
    Refused(Problem),
    #[response(status = "5XX", description = "The server or its store failed", content_type = PROBLEM_JSON)]
    Failed(Problem),
}
