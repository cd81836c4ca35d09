//! Upstreams, permits and tenants' limits over HTTP.

use axum::extract::State;

use super::App;
use super::extract::{Call, JsonBody, OptionalJson, PathName, Query};
use super::problem::{AnyProblem, Code, PROBLEM_JSON, Problem};
use super::wire::Items;
use super::wire::query::NoQuery;
use super::wire::upstreams::{
    CloseBody, LimitsBody, OpenBody, PermitBody, PermitView, SettlePermitBody, SettledPermitView, TenantView,
    UpstreamBody, UpstreamView,
};

/// All upstreams that anything is known of, by name.
#[utoipa::path(get, path = "/upstreams", tag = "upstreams",
    responses((status = 200, body = Items<UpstreamView>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<axum::Json<Items<UpstreamView>>, Problem> {
    let items = app.engine.upstreams().await?.into_iter().map(UpstreamView::from).collect();
    Ok(axum::Json(Items { items }))
}

/// Set all limits of an upstream: what is null or left out is no limit. What is used and closed stays.
#[utoipa::path(put, path = "/upstreams/{name}", tag = "upstreams", request_body = UpstreamBody,
    params(("name" = String, Path, description = "A slash in it is `%2F`")),
    responses((status = 200, body = UpstreamView), AnyProblem))]
pub(crate) async fn put(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<UpstreamBody>,
) -> Result<axum::Json<UpstreamView>, Problem> {
    let (limits, credential) = body.read();
    Ok(axum::Json(app.engine.set_upstream(&name, limits, credential).await?.into()))
}

/// One upstream: its limits, whether it is open, what is used.
#[utoipa::path(get, path = "/upstreams/{name}", tag = "upstreams",
    params(("name" = String, Path)), responses((status = 200, body = UpstreamView), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<axum::Json<UpstreamView>, Problem> {
    Ok(axum::Json(app.engine.upstream(&name).await?.into()))
}

/// Close one by hand for a while. Audited.
#[utoipa::path(post, path = "/upstreams/{name}/close", tag = "upstreams", request_body = CloseBody,
    params(("name" = String, Path)), responses((status = 200, body = UpstreamView), AnyProblem))]
pub(crate) async fn close(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    JsonBody(CloseBody { seconds, reason }): JsonBody<CloseBody>,
) -> Result<axum::Json<UpstreamView>, Problem> {
    Ok(axum::Json(app.engine.close_upstream(&call.caller, &name, seconds, &reason).await?.into()))
}

/// Open one by hand, and its credential: by the ramp. Audited.
#[utoipa::path(post, path = "/upstreams/{name}/open", tag = "upstreams", request_body = Option<OpenBody>,
    params(("name" = String, Path)), responses((status = 200, body = UpstreamView), AnyProblem))]
pub(crate) async fn open(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    OptionalJson(OpenBody { reason }): OptionalJson<OpenBody>,
) -> Result<axum::Json<UpstreamView>, Problem> {
    Ok(axum::Json(app.engine.open_upstream(&call.caller, &name, reason.as_deref()).await?.into()))
}

/// Leave to make one paid call. It has to be settled; unsettled it ends with the job's lease, or after two minutes.
#[utoipa::path(post, path = "/upstreams/{name}/permits", tag = "upstreams", request_body = PermitBody,
    params(("name" = String, Path)),
    responses(
        (status = 200, body = PermitView),
        (status = 422, body = Problem, content_type = PROBLEM_JSON,
            description = "`ESTIMATE_ABOVE_LIMIT`: no waiting helps"),
        (status = 429, body = Problem, content_type = PROBLEM_JSON,
            description = "`UPSTREAM_CLOSED`, `RATE_LIMITED`, `CONCURRENCY_LIMITED` or `BUDGET_EXHAUSTED` \
                           with the seconds; `PAID_CALL_LIMIT` without"),
        AnyProblem,
    ))]
pub(crate) async fn permit(
    State(app): State<App>,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    JsonBody(body): JsonBody<PermitBody>,
) -> Result<axum::Json<PermitView>, Problem> {
    Ok(axum::Json(app.engine.permit(&call.caller, &name, body.read()?).await?.into()))
}

/// A paid call is over. Settling again changes nothing; a late settle is booked all the same.
#[utoipa::path(post, path = "/permits/{permit_id}/settle", tag = "upstreams",
    request_body = SettlePermitBody, params(("permit_id" = uuid::Uuid, Path)),
    responses((status = 200, body = SettledPermitView), AnyProblem))]
pub(crate) async fn settle(
    State(app): State<App>,
    PathName(id): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    JsonBody(body): JsonBody<SettlePermitBody>,
) -> Result<axum::Json<SettledPermitView>, Problem> {
    let id = id.parse().ok().filter(|_| id.len() == 36).ok_or_else(|| {
        Problem::new(Code::InvalidId, "`permit_id` is no id: it takes a UUID with hyphens")
            .of_field("permit_id")
    })?;
    let settled = app.engine.settle_permit(&call.caller, id, body.into()).await?;
    Ok(axum::Json(SettledPermitView::of(id, &settled)))
}

/// Set all limits of a tenant, over all upstreams: what is null or left out is no limit.
#[utoipa::path(put, path = "/tenants/{tenant}", tag = "upstreams", request_body = LimitsBody,
    params(("tenant" = String, Path)), responses((status = 200, body = TenantView), AnyProblem))]
pub(crate) async fn put_tenant(
    State(app): State<App>,
    PathName(tenant): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    JsonBody(body): JsonBody<LimitsBody>,
) -> Result<axum::Json<TenantView>, Problem> {
    Ok(axum::Json(app.engine.set_tenant(&call.caller, &tenant, body.into()).await?.into()))
}

/// A tenant's limits, and what is used of them.
#[utoipa::path(get, path = "/tenants/{tenant}", tag = "upstreams",
    params(("tenant" = String, Path)), responses((status = 200, body = TenantView), AnyProblem))]
pub(crate) async fn tenant(
    State(app): State<App>,
    PathName(tenant): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<TenantView>, Problem> {
    Ok(axum::Json(app.engine.tenant(&call.caller, &tenant).await?.into()))
}
