//! The dead-letter queue over HTTP.

use axum::extract::State;
use axum::http::StatusCode;
use coolant_core::job::Status;
use coolant_core::view::Phase;

use super::App;
use super::extract::{Call, JsonBody, OptionalJson, PathId, Query};
use super::jobs::list_page;
use super::problem::{AnyProblem, Code, Problem};
use super::wire::dlq::{DeadLetterDetail, DeadLetterView, DiscardBody, GroupView, RedriveBody, RedriveView};
use super::wire::job::JobView;
use super::wire::query::{FilterBody, JobsQuery, NoQuery, read_job_cursor};
use super::wire::{Items, ListPage};
use crate::engine::redrive::RedriveRequest;

/// Dead-lettered jobs, newest first.
#[utoipa::path(get, path = "/dlq", tag = "dead-letter queue", params(JobsQuery),
    responses((status = 200, body = ListPage<DeadLetterView>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    call: Call,
    Query(query): Query<JobsQuery>,
) -> Result<axum::Json<ListPage<DeadLetterView>>, Problem> {
    let (limit, before) = (query.limit, read_job_cursor(query.cursor.as_deref())?);
    let filter = query.filter()?;
    let elsewhere = filter.status.is_some_and(|status| status != Status::Failed)
        || filter.phase.is_some_and(|phase| phase != Phase::DeadLettered);
    if elsewhere {
        let code = Code::Engine(crate::engine::Code::InvalidField);
        let detail = "the dead-letter queue holds FAILED jobs in phase `dead_lettered` only";
        return Err(Problem::new(code, detail).of_field("status"));
    }
    let page = app.engine.dead_letters(&call.caller, filter, limit, before).await?;
    Ok(axum::Json(list_page(page)))
}

/// The dead-letter queue by what failed alike, most first.
#[utoipa::path(get, path = "/dlq/groups", tag = "dead-letter queue", params(FilterBody),
    responses((status = 200, body = Items<GroupView>), AnyProblem))]
pub(crate) async fn groups(
    State(app): State<App>,
    call: Call,
    Query(filter): Query<FilterBody>,
) -> Result<axum::Json<Items<GroupView>>, Problem> {
    let groups = app.engine.dlq_groups(&call.caller, filter.filter()?).await?;
    Ok(axum::Json(Items { items: groups.into_iter().map(Into::into).collect() }))
}

/// One dead-lettered job with its attempts.
#[utoipa::path(get, path = "/dlq/{job_id}", tag = "dead-letter queue", params(("job_id" = uuid::Uuid, Path)),
    responses((status = 200, body = DeadLetterDetail), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<DeadLetterDetail>, Problem> {
    Ok(axum::Json(app.engine.dead_letter(&call.caller, id).await?.into()))
}

/// Put dead-lettered jobs back, paced. Only says what it would do unless `dry_run` is false.
#[utoipa::path(post, path = "/dlq/redrive", tag = "dead-letter queue", request_body = RedriveBody,
    responses(
        (status = 200, body = RedriveView, description = "What would be done"),
        (status = 202, body = RedriveView, description = "Begun"),
        AnyProblem,
    ))]
pub(crate) async fn redrive(
    State(app): State<App>,
    call: Call,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<RedriveBody>,
) -> Result<(StatusCode, axum::Json<RedriveView>), Problem> {
    let dry_run = body.dry_run.unwrap_or(true);
    let request = RedriveRequest {
        filter: body.filter.unwrap_or_default().filter()?,
        limit: body.limit,
        per_second: body.per_second,
        dry_run,
        force: body.force.unwrap_or(false),
        reason: body.reason,
    };
    let plan = app.engine.redrive(&call.caller, request).await?;
    let status = if dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, axum::Json(RedriveView::of_plan(plan, dry_run))))
}

/// How far a redrive is.
#[utoipa::path(get, path = "/dlq/redrives/{redrive_id}", tag = "dead-letter queue",
    params(("redrive_id" = uuid::Uuid, Path)),
    responses((status = 200, body = RedriveView), AnyProblem))]
pub(crate) async fn redrive_progress(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<RedriveView>, Problem> {
    Ok(axum::Json(RedriveView::of(app.engine.redrive_progress(&call.caller, id).await?, None)))
}

/// Stop a redrive; what was put back stays so.
#[utoipa::path(delete, path = "/dlq/redrives/{redrive_id}", tag = "dead-letter queue",
    params(("redrive_id" = uuid::Uuid, Path)),
    responses((status = 200, body = RedriveView), AnyProblem))]
pub(crate) async fn stop_redrive(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<RedriveView>, Problem> {
    Ok(axum::Json(RedriveView::of(app.engine.stop_redrive(&call.caller, id).await?, None)))
}

/// Take a job out of the dead-letter queue for good; it stays in the history.
#[utoipa::path(post, path = "/dlq/{job_id}/discard", tag = "dead-letter queue",
    params(("job_id" = uuid::Uuid, Path)), request_body = Option<DiscardBody>,
    responses((status = 200, body = JobView), AnyProblem))]
pub(crate) async fn discard(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    OptionalJson(DiscardBody { note }): OptionalJson<DiscardBody>,
) -> Result<axum::Json<JobView>, Problem> {
    Ok(axum::Json(app.engine.discard(&call.caller, id, note.as_deref()).await?.job.into()))
}
