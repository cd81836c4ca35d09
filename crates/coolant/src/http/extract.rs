//! Extract: what a handler takes from a request, or the problem that says what is wrong with it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use coolant_core::job::JobId;
use coolant_core::names::Tenant;
use futures::StreamExt;
use serde::de::DeserializeOwned;

use super::observe::Trace;
use super::problem::{Code, Problem, job_id};
use super::serve::Closing;
use super::wire::object::Object;
use crate::engine::{self, Caller};

/// Largest JSON body, in bytes.
const MAX_JSON: usize = 8 * 1024 * 1024;
/// Longest silence within a body.
const BODY_IDLE: Duration = Duration::from_secs(20);
/// Longest time for a whole body.
const BODY_TOTAL: Duration = Duration::from_secs(600);

/// A JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        check_json_type(request.headers())?;
        let bytes = read_body(request, MAX_JSON).await?;
        from_json(&bytes).map(Self)
    }
}

/// A JSON body, or the default of its type if the body is empty.
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let typed = check_json_type(request.headers());
        let bytes = read_body(request, MAX_JSON).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        from_json(&bytes).map(Self)
    }
}

/// A browser sends no `application/json` across origins without asking first.
fn check_json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = media_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, "this call takes `Content-Type: application/json`")
        .of_field("Content-Type"))
}

/// A whole body of that many bytes at most, unless it comes too slowly.
pub(crate) async fn read_body(request: Request, max: usize) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        Problem::new(Code::BodyTooLarge, format!("the body is too large; at most {max} bytes are allowed"))
    };
    let stated = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if stated.and_then(|text| text.parse().ok()).is_some_and(|stated: usize| stated > max) {
        return Err(too_large());
    }
    let slow = || Problem::new(Code::RequestTimeout, "the body came too slowly");
    let read = collect(request.into_body(), max);
    match tokio::time::timeout(BODY_TOTAL, read).await.map_err(|_| slow())? {
        Ok(bytes) => Ok(bytes),
        Err(Broken::TooLarge) => Err(too_large()),
        Err(Broken::Slow) => Err(slow()),
        Err(Broken::Cut) => Err(Problem::new(Code::InvalidJson, "the body ended too early")),
    }
}

enum Broken {
    TooLarge,
    Slow,
    Cut,
}

async fn collect(body: Body, max: usize) -> Result<Vec<u8>, Broken> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = tokio::time::timeout(BODY_IDLE, chunks.next()).await.map_err(|_| Broken::Slow)? {
        let chunk = chunk.map_err(|_| Broken::Cut)?;
        if bytes.len() + chunk.len() > max {
            return Err(Broken::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Reads JSON text; says where it breaks, or which field is wrong.
pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if let Err(error) = std::str::from_utf8(bytes) {
        let detail = format!("the body is not UTF-8 after byte {}", error.valid_up_to());
        return Err(Problem::new(Code::InvalidJson, detail));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        json_problem(&path, error.inner())
    })?;
    reader.end().map_err(|error| json_problem(".", &error))?;
    Ok(value)
}

/// Reads a JSON value that was read before; `path` is where it stood.
pub(crate) fn from_value<T: DeserializeOwned>(path: &str, value: serde_json::Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map(|Object(value)| value).map_err(|error| {
        let inside = error.path().to_string();
        let path = if inside == "." { path.to_owned() } else { format!("{path}.{inside}") };
        field_problem(&path, &error.inner().to_string())
    })
}

fn json_problem(path: &str, error: &serde_json::Error) -> Problem {
    let said = error.to_string();
    // The position is told apart.
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_data() {
        return field_problem(path, said);
    }
    let (line, column) = (error.line(), error.column());
    let detail = format!("the body is no JSON: {said} at line {line}, column {column}");
    let mut problem = Problem::new(Code::InvalidJson, detail);
    (problem.more.line, problem.more.column) = (Some(line), Some(column));
    problem
}

/// A field that serde refused, in its words: `unknown field`, `missing field`, `invalid type`.
fn field_problem(path: &str, said: &str) -> Problem {
    let quoted = |prefix: &str| {
        let name = said.strip_prefix(prefix)?.split('`').next()?;
        // A path ends at the object, or at the field itself.
        let parent = path.strip_suffix(name).unwrap_or(path).trim_end_matches('.');
        Some(if parent.is_empty() || parent == "?" { name.to_owned() } else { format!("{parent}.{name}") })
    };
    if let Some(field) = quoted("unknown field `") {
        return Problem::new(Code::UnknownField, format!("`{field}` is not a field of this call"))
            .of_field(field);
    }
    let invalid = Code::Engine(engine::Code::InvalidField);
    if let Some(field) = quoted("missing field `") {
        return Problem::new(invalid, format!("`{field}` is needed")).of_field(field);
    }
    if let Some(field) = quoted("duplicate field `") {
        return Problem::new(invalid, format!("`{field}` is given twice")).of_field(field);
    }
    let field = if path == "." { "body" } else { path };
    Problem::new(invalid, format!("`{field}`: {}", without_value(said))).of_field(field)
}

/// What serde said without the text that it quotes: a value may be anything, also a secret.
fn without_value(said: &str) -> String {
    match (said.find("string \""), said.rfind("\", expected")) {
        (Some(start), Some(end)) if start < end => format!("{}a string{}", &said[..start], &said[end + 1..]),
        _ => said.to_owned(),
    }
}

/// Query parameters, every one of them known.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query)
            .map_err(|_| Problem::new(Code::InvalidUrl, "the query cannot be read"))?;
        let reader = serde::de::value::MapDeserializer::new(pairs.into_iter().map(|(k, v)| (k, Text(v))));
        serde_path_to_error::deserialize(reader).map(Self).map_err(|error| {
            let path = error.path().to_string();
            let said: &serde::de::value::Error = error.inner();
            field_problem(&path, &said.to_string())
        })
    }
}

/// A query value: text that is read as whatever its field takes.
struct Text(String);

impl<'de> serde::de::IntoDeserializer<'de> for Text {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! read_as {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            match self.0.parse::<$type>() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(serde::de::Error::custom(concat!("takes ", $what))),
            }
        }
    )*};
}

impl<'de> serde::Deserializer<'de> for Text {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_option<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: serde::de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    read_as! {
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_f64 visit_f64 f64, "a number";
        deserialize_bool visit_bool bool, "true or false";
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

/// A job's or redrive's id in the path.
pub(crate) struct PathId(pub(crate) JobId);

impl<S: Sync + Send> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = segments(parts, state).await?;
        let id = segments.iter().find(|(name, _)| name.ends_with("_id"));
        let (name, text) = id.ok_or_else(|| Problem::new(Code::NotFound, "there is no id in the path"))?;
        job_id(name, text).map(Self)
    }
}

/// A name in the path: a step's, a document's, a lock's.
pub(crate) struct PathName(pub(crate) String);

impl<S: Sync + Send> FromRequestParts<S> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let mut segments = segments(parts, state).await?;
        let name =
            ["name", "id", "key", "permit_id", "tenant"].into_iter().find_map(|part| segments.remove(part));
        name.map(Self).ok_or_else(|| Problem::new(Code::NotFound, "there is no name in the path"))
    }
}

async fn segments<S: Sync + Send>(parts: &mut Parts, state: &S) -> Result<BTreeMap<String, String>, Problem> {
    let segments = Path::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
    segments
        .map(|Path(segments)| segments)
        .map_err(|_| Problem::new(Code::InvalidUrl, "the path cannot be read"))
}

/// Who calls, and in which trace.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) trace_id: String,
    pub(crate) closing: Option<Closing>,
}

impl<S: Sync> FromRequestParts<S> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::local);
        let trace = parts.extensions.get::<Trace>().map(|trace| trace.0.clone());
        let closing = parts.extensions.get::<Closing>().cloned();
        Ok(Self { caller, trace_id: trace.unwrap_or_else(engine::submit::new_trace_id), closing })
    }
}

/// The same for documents: the tenant is the caller's, or what `X-Tenant` says if it is bound to none.
pub(crate) struct DocumentCall(pub(crate) Call);

impl<S: Sync> FromRequestParts<S> for DocumentCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let mut call = Call::from_request_parts(parts, state).await?;
        if let Some(tenant) = header_text(&parts.headers, "X-Tenant")? {
            act_for(&mut call.caller, "X-Tenant", &tenant)?;
        }
        Ok(Self(call))
    }
}

/// Binds the caller to that tenant, if it may act for it.
pub(crate) fn act_for(caller: &mut Caller, field: &str, tenant: &str) -> Result<(), Problem> {
    let tenant = Tenant::parse(tenant).map_err(|error| {
        Problem::new(Code::Engine(engine::Code::InvalidField), error.to_string()).of_field(field)
    })?;
    if !caller.sees(&tenant) {
        let detail = format!("`{field}` is not the tenant of this key");
        return Err(Problem::new(Code::Engine(engine::Code::InvalidField), detail).of_field(field));
    }
    caller.tenant = Some(tenant);
    Ok(())
}

/// A header that may be given once, in UTF-8.
pub(crate) fn header_text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let wrong =
        |what: &str| Problem::new(Code::InvalidHeader, format!("the header `{name}` {what}")).of_field(name);
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(wrong("is given twice"));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| wrong("is not UTF-8"))?;
    Ok(Some(text.to_owned()))
}
