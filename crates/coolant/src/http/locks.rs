//! Leaky locks over HTTP.

use axum::extract::State;
use axum::http::StatusCode;

use super::App;
use super::extract::{Call, JsonBody, PathName, Query};
use super::problem::{AnyProblem, PROBLEM_JSON, Problem};
use super::wire::locks::{AcquireBody, FailBody, GrantView, LockView, OpenQuery, RenewBody, SucceedBody};
use super::wire::query::NoQuery;

/// Acquire a lock, if it is free. It is held for `ttl_seconds`, unless renewed.
#[utoipa::path(post, path = "/locks/{key}/acquire", tag = "locks", request_body = AcquireBody,
    params(("key" = String, Path)),
    responses(
        (status = 200, body = GrantView),
        (status = 423, body = Problem, content_type = PROBLEM_JSON,
            description = "`LOCK_HELD` or `LOCK_COOLING` with the seconds, `LOCK_CLOSED` without"),
        AnyProblem,
    ))]
pub(crate) async fn acquire(
    State(app): State<App>,
    PathName(key): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    JsonBody(body): JsonBody<AcquireBody>,
) -> Result<axum::Json<GrantView>, Problem> {
    let holder = body.holder.as_deref();
    Ok(axum::Json(app.engine.acquire_lock(&call.caller, &key, body.ttl_seconds, holder).await?.into()))
}

/// Hold a lock for longer: `ttl_seconds` from now.
#[utoipa::path(post, path = "/locks/{key}/renew", tag = "locks", request_body = RenewBody,
    params(("key" = String, Path)), responses((status = 200, body = GrantView), AnyProblem))]
pub(crate) async fn renew(
    State(app): State<App>,
    PathName(key): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<RenewBody>,
) -> Result<axum::Json<GrantView>, Problem> {
    Ok(axum::Json(app.engine.renew_lock(&key, body.token, body.ttl_seconds).await?.into()))
}

/// Give a lock back after a success: it is free at once.
#[utoipa::path(post, path = "/locks/{key}/succeed", tag = "locks", request_body = SucceedBody,
    params(("key" = String, Path)), responses((status = 200, body = LockView), AnyProblem))]
pub(crate) async fn succeed(
    State(app): State<App>,
    PathName(key): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<SucceedBody>,
) -> Result<axum::Json<LockView>, Problem> {
    let lock = app.engine.succeed_lock(&key, body.token).await?;
    Ok(axum::Json(LockView::of(key, &lock)))
}

/// Give a lock back after a failure: it cools down, or stays closed until an operator opens it.
#[utoipa::path(post, path = "/locks/{key}/fail", tag = "locks", request_body = FailBody,
    params(("key" = String, Path)), responses((status = 200, body = LockView), AnyProblem))]
pub(crate) async fn fail(
    State(app): State<App>,
    PathName(key): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<FailBody>,
) -> Result<axum::Json<LockView>, Problem> {
    let lock = app.engine.fail_lock(&key, body.into()).await?;
    Ok(axum::Json(LockView::of(key, &lock)))
}

/// How a lock stands, and until when.
#[utoipa::path(get, path = "/locks/{key}", tag = "locks",
    params(("key" = String, Path)), responses((status = 200, body = LockView), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathName(key): PathName,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<axum::Json<LockView>, Problem> {
    let lock = app.engine.lock(&key).await?;
    Ok(axum::Json(LockView::of(key, &lock)))
}

/// Open a lock, whoever has it; its holder's token is stale from then on. Audited.
#[utoipa::path(delete, path = "/locks/{key}", tag = "locks",
    params(("key" = String, Path), OpenQuery),
    responses((status = 204, description = "It is free"), AnyProblem))]
pub(crate) async fn open(
    State(app): State<App>,
    PathName(key): PathName,
    Query(OpenQuery { reason }): Query<OpenQuery>,
    call: Call,
) -> Result<StatusCode, Problem> {
    app.engine.open_lock(&call.caller, &key, reason.as_deref()).await?;
    Ok(StatusCode::NO_CONTENT)
}
