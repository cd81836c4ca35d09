//! Schedules over HTTP.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use coolant_core::names::ScheduleName;

use super::App;
use super::extract::{DocumentCall, JsonBody, OptionalJson, PathName, Query, header_text};
use super::jobs::submitted;
use super::problem::{AnyProblem, Problem};
use super::wire::ListPage;
use super::wire::job::JobView;
use super::wire::query::{NamesQuery, NoQuery, name_cursor, read_name_cursor};
use super::wire::schedules::{ScheduleBody, ScheduleView};
use super::wire::submit::Empty;

/// Set a schedule: each tick of its cron expression submits its job, once over all processes.
#[utoipa::path(put, path = "/schedules/{name}", tag = "schedules", request_body = ScheduleBody,
    params(("name" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses(
        (status = 201, body = ScheduleView, description = "It is new"),
        (status = 200, body = ScheduleView, description = "It was there, and is now this"),
        AnyProblem,
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    JsonBody(body): JsonBody<ScheduleBody>,
) -> Result<(StatusCode, axum::Json<ScheduleView>), Problem> {
    let (is_new, set) = app.engine.put_schedule(&call.caller, &name, body.into()).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(set.into())))
}

/// A schedule and its next ticks.
#[utoipa::path(get, path = "/schedules/{name}", tag = "schedules",
    params(("name" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = ScheduleView), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
) -> Result<axum::Json<ScheduleView>, Problem> {
    Ok(axum::Json(app.engine.schedule(&call.caller, &name).await?.into()))
}

/// Schedules, by name.
#[utoipa::path(get, path = "/schedules", tag = "schedules",
    params(NamesQuery, ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = ListPage<ScheduleView>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    DocumentCall(call): DocumentCall,
    Query(NamesQuery { limit, cursor }): Query<NamesQuery>,
) -> Result<axum::Json<ListPage<ScheduleView>>, Problem> {
    let after = read_name_cursor(cursor.as_deref(), ScheduleName::parse)?;
    let page = app.engine.schedules(&call.caller, limit, after).await?;
    Ok(axum::Json(ListPage {
        items: page.items.into_iter().map(Into::into).collect(),
        next_cursor: page.next.as_ref().map(|name| name_cursor(name.as_str())),
    }))
}

/// Remove a schedule; the jobs that it made stay.
#[utoipa::path(delete, path = "/schedules/{name}", tag = "schedules",
    params(("name" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 204, description = "Removed"), AnyProblem))]
pub(crate) async fn delete(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
) -> Result<StatusCode, Problem> {
    app.engine.delete_schedule(&call.caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a schedule rest: it has no ticks until it is resumed.
#[utoipa::path(post, path = "/schedules/{name}/pause", tag = "schedules", request_body = Option<Empty>,
    params(("name" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = ScheduleView), AnyProblem))]
pub(crate) async fn pause(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    OptionalJson(Empty {}): OptionalJson<Empty>,
) -> Result<axum::Json<ScheduleView>, Problem> {
    Ok(axum::Json(app.engine.pause_schedule(&call.caller, &name, true).await?.into()))
}

/// End a schedule's rest: it goes on with the first tick from now on.
#[utoipa::path(post, path = "/schedules/{name}/resume", tag = "schedules", request_body = Option<Empty>,
    params(("name" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = ScheduleView), AnyProblem))]
pub(crate) async fn resume(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    OptionalJson(Empty {}): OptionalJson<Empty>,
) -> Result<axum::Json<ScheduleView>, Problem> {
    Ok(axum::Json(app.engine.pause_schedule(&call.caller, &name, false).await?.into()))
}

/// Submit a schedule's job now, also while it rests; its ticks come as they would have.
#[utoipa::path(post, path = "/schedules/{name}/run", tag = "schedules", request_body = Option<Empty>,
    params(
        ("name" = String, Path),
        ("X-Tenant" = Option<String>, Header),
        ("Idempotency-Key" = Option<String>, Header, description = "The same run has the same key"),
    ),
    responses(
        (status = 202, body = JobView, description = "Submitted"),
        (status = 200, body = JobView, description = "It was before: `Idempotent-Replayed: true`"),
        AnyProblem,
    ))]
pub(crate) async fn run(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    headers: HeaderMap,
    OptionalJson(Empty {}): OptionalJson<Empty>,
) -> Result<Response, Problem> {
    let key = header_text(&headers, "Idempotency-Key")?;
    let trace_id = Some(call.trace_id);
    Ok(submitted(app.engine.run_schedule(&call.caller, &name, key.as_deref(), trace_id).await?))
}
