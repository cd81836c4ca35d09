//! Operation: health, numbers, audit, and what the API is.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::App;
use super::extract::{Call, Query};
use super::problem::{AnyProblem, Problem};
use super::wire::Items;
use super::wire::ops::{AuditView, Health, StatsView};
use super::wire::query::{AuditQuery, NoQuery, StatsQuery};

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "operation",
    responses((status = 200, body = Health), AnyProblem))]
pub(crate) async fn healthz(Query(NoQuery {}): Query<NoQuery>) -> axum::Json<Health> {
    axum::Json(Health { status: "ok" })
}

/// The store answers and is migrated; 503 with the reason if not.
#[utoipa::path(get, path = "/readyz", tag = "operation",
    responses((status = 200, body = Health), AnyProblem))]
pub(crate) async fn readyz(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<axum::Json<Health>, Problem> {
    app.engine.ready().await?;
    Ok(axum::Json(Health { status: "ok" }))
}

/// The metrics, of one queue or of all.
#[utoipa::path(get, path = "/stats", tag = "operation", params(StatsQuery),
    responses((status = 200, body = StatsView), AnyProblem))]
pub(crate) async fn stats(
    State(app): State<App>,
    Query(StatsQuery { queue, window_seconds }): Query<StatsQuery>,
) -> Result<axum::Json<StatsView>, Problem> {
    Ok(axum::Json(app.engine.stats(queue.as_deref(), window_seconds).await?.into()))
}

/// What was done out of the ordinary, newest first.
#[utoipa::path(get, path = "/audit", tag = "operation", params(AuditQuery),
    responses((status = 200, body = Items<AuditView>), AnyProblem))]
pub(crate) async fn audit(
    State(app): State<App>,
    _call: Call,
    Query(AuditQuery { limit }): Query<AuditQuery>,
) -> Result<axum::Json<Items<AuditView>>, Problem> {
    let entries = app.engine.audit(limit).await?;
    Ok(axum::Json(Items { items: entries.into_iter().map(Into::into).collect() }))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "operation",
    responses((status = 200, body = serde_json::Value, description = "OpenAPI"), AnyProblem))]
pub(crate) async fn openapi(State(app): State<App>, Query(NoQuery {}): Query<NoQuery>) -> Response {
    let json = app.openapi.get().cloned().unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The description as JSON text.
pub(crate) fn document(api: &utoipa::openapi::OpenApi) -> Bytes {
    // Its types write themselves without fail.
    Bytes::from(serde_json::to_vec(api).unwrap_or_default())
}
