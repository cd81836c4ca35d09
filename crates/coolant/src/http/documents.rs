//! Documents and search over HTTP.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use coolant_core::names::DocumentId;

use super::App;
use super::extract::{DocumentCall, OptionalJson, PathName, Query, act_for, header_text, read_body};
use super::jobs::submitted;
use super::problem::{AnyProblem, Code, Problem};
use super::wire::ListPage;
use super::wire::documents::{DocumentSummary, DocumentView, Hits, IndexBody, PutAnswer};
use super::wire::job::JobView;
use super::wire::query::{NamesQuery, NoQuery, SearchParams, name_cursor, read_name_cursor};
use crate::engine::documents::MAX_DOCUMENT;

/// Longest that an upload waits for its turn.
const UPLOAD_WAIT: Duration = Duration::from_secs(30);

/// Store a document's bytes, 64 MiB at most; the same bytes make no new version.
#[utoipa::path(put, path = "/documents/{id}", tag = "documents",
    params(("id" = String, Path), ("X-Filename" = Option<String>, Header), ("X-Tenant" = Option<String>, Header)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, body = PutAnswer, description = "The document is new"),
        (status = 200, body = PutAnswer, description = "It existed"),
        AnyProblem,
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    PathName(id): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    request: Request,
) -> Result<Response, Problem> {
    let content_type = header_text(request.headers(), header::CONTENT_TYPE.as_str())?;
    let filename = header_text(request.headers(), "X-Filename")?;
    let busy =
        || Problem::new(Code::Busy, "too many documents are being received").retry_after(Some(UPLOAD_WAIT));
    let slot = tokio::time::timeout(UPLOAD_WAIT, app.uploads.acquire()).await;
    let _slot = slot.map_err(|_| busy())?.map_err(|_| busy())?;
    let bytes = read_body(request, MAX_DOCUMENT).await?;
    let put = app.engine.put_document(&call.caller, &id, bytes, content_type, filename).await?;
    let status = if put.new_document { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(PutAnswer::of(id, put))).into_response())
}

/// A document, its versions, what is searchable, and its last index job.
#[utoipa::path(get, path = "/documents/{id}", tag = "documents",
    params(("id" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = DocumentView), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathName(id): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
) -> Result<axum::Json<DocumentView>, Problem> {
    Ok(axum::Json(app.engine.document(&call.caller, &id).await?.into()))
}

/// Documents, by name.
#[utoipa::path(get, path = "/documents", tag = "documents",
    params(NamesQuery, ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = ListPage<DocumentSummary>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    DocumentCall(call): DocumentCall,
    Query(NamesQuery { limit, cursor }): Query<NamesQuery>,
) -> Result<axum::Json<ListPage<DocumentSummary>>, Problem> {
    let after = read_name_cursor(cursor.as_deref(), DocumentId::parse)?;
    let page = app.engine.documents(&call.caller, limit, after).await?;
    Ok(axum::Json(ListPage {
        items: page.items.into_iter().map(Into::into).collect(),
        next_cursor: page.next.as_ref().map(|id| name_cursor(id.as_str())),
    }))
}

/// Remove a document; a search does not find it any more.
#[utoipa::path(delete, path = "/documents/{id}", tag = "documents",
    params(("id" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses((status = 204, description = "Removed"), AnyProblem))]
pub(crate) async fn delete(
    State(app): State<App>,
    PathName(id): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
) -> Result<StatusCode, Problem> {
    app.engine.delete_document(&call.caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Submit the job that indexes a version, the newest if none is named.
#[utoipa::path(post, path = "/documents/{id}/index", tag = "documents", request_body = Option<IndexBody>,
    params(("id" = String, Path), ("X-Tenant" = Option<String>, Header)),
    responses(
        (status = 202, body = JobView, description = "Submitted"),
        (status = 200, body = JobView, description = "It was before: `Idempotent-Replayed: true`"),
        AnyProblem,
    ))]
pub(crate) async fn index(
    State(app): State<App>,
    PathName(id): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    DocumentCall(call): DocumentCall,
    OptionalJson(IndexBody { version, pipeline }): OptionalJson<IndexBody>,
) -> Result<Response, Problem> {
    let trace_id = Some(call.trace_id);
    let answer = app.engine.index_document(&call.caller, &id, version, pipeline.as_deref(), trace_id).await?;
    Ok(submitted(answer))
}

/// Search what is published.
#[utoipa::path(get, path = "/search", tag = "documents",
    params(SearchParams, ("X-Tenant" = Option<String>, Header)),
    responses((status = 200, body = Hits), AnyProblem))]
pub(crate) async fn search(
    State(app): State<App>,
    DocumentCall(mut call): DocumentCall,
    Query(params): Query<SearchParams>,
) -> Result<axum::Json<Hits>, Problem> {
    if let Some(tenant) = &params.tenant {
        act_for(&mut call.caller, "tenant", tenant)?;
    }
    let mode = params.mode.map(|name| name.0).unwrap_or_default();
    let found = app.engine.search(&call.caller, &params.q, params.k, params.document_id.as_deref(), mode);
    Ok(axum::Json(Hits { hits: found.await?.into_iter().map(Into::into).collect() }))
}
