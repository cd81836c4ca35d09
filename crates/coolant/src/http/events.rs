//! A job's changes as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::{Stream, StreamExt};

use super::App;
use super::extract::{Call, PathId, Query, header_text};
use super::problem::{AnyProblem, Code, Problem};
use super::wire::job::JobView;
use super::wire::query::NoQuery;
use crate::engine::read::JobEvent;
use crate::language;

/// A silent stream says something so often, so that no proxy takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The job on every change (`event: job`), then its end (`event: end`). Each event's id is the job's
/// version; `Last-Event-ID` goes on after it. Fast changes may be merged; the last state always comes.
#[utoipa::path(get, path = "/jobs/{job_id}/events", tag = "jobs",
    params(("job_id" = uuid::Uuid, Path), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, body = String, content_type = "text/event-stream"), AnyProblem))]
pub(crate) async fn events(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let after = last_event_id(&headers)?;
    let changes = app.engine.changes(&call.caller, id, after).await?;
    // The stream goes on after this call has been answered.
    let language = language::current();
    let mut closing = call.closing;
    let closed = async move {
        match &mut closing {
            Some(closing) => closing.closing().await,
            None => std::future::pending().await,
        }
    };
    let events = changes
        .take_until(Box::pin(closed))
        .map(move |change| Ok(language::saying(language, || event(change))));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(text) = header_text(headers, "Last-Event-ID")?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let version = text.parse().ok().filter(|version| *version >= 0);
    let wrong = || {
        Problem::new(Code::InvalidHeader, "the header `Last-Event-ID` is no id of this stream")
            .of_field("Last-Event-ID")
    };
    version.map(Some).ok_or_else(wrong)
}

fn event(change: JobEvent) -> Event {
    match change {
        JobEvent::Changed(job) => {
            let version = job.record.job.version;
            let event = Event::default().event("job").id(version.to_string());
            // JSON text holds no line break, so it is one data line.
            let json = serde_json::to_string(&JobView::from(*job)).unwrap_or_default();
            event.data(json)
        }
        JobEvent::Ended { version } => Event::default().event("end").id(version.to_string()).data("{}"),
    }
}
