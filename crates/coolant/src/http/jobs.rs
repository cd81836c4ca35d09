//! Jobs over HTTP.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coolant_core::store::SubmitOutcome;
use coolant_core::view::RetryAt;

use super::App;
use super::extract::{Call, JsonBody, OptionalJson, PathId, PathName, Query, from_value, header_text};
use super::problem::{AnyProblem, Code, Problem, retry_after_header};
use super::wire::job::{AttemptView, ExplanationView, JobView, StepSummary, StepView};
use super::wire::query::{JobsQuery, NoQuery, WaitQuery, job_cursor, read_job_cursor};
use super::wire::submit::{BatchAnswer, BatchBody, BatchResult, Empty, RetryBody, SubmitBody};
use super::wire::{Items, ListPage};
use crate::engine::JobAt;
use crate::engine::control::Changed;
use crate::engine::read::JobsPage;
use crate::engine::submit::{MAX_BATCH, SubmitAnswer};

/// Whether an answer repeats that of an earlier call.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Submit one job.
#[utoipa::path(post, path = "/jobs", tag = "jobs", request_body = SubmitBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same as the field")),
    responses(
        (status = 202, body = JobView, description = "Created, or reopened"),
        (status = 200, body = JobView, description = "It existed: `Idempotent-Replayed: true`"),
        AnyProblem,
    ))]
pub(crate) async fn submit(
    State(app): State<App>,
    call: Call,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody<SubmitBody>,
) -> Result<Response, Problem> {
    body.idempotency_key = same_key(header_text(&headers, "Idempotency-Key")?, body.idempotency_key)?;
    let answer = app.engine.submit(&call.caller, body.into_request(&call.trace_id)).await?;
    Ok(submitted(answer))
}

/// The key of header and field, which must not differ.
fn same_key(header: Option<String>, field: Option<String>) -> Result<Option<String>, Problem> {
    match (header, field) {
        (Some(header), Some(field)) if header != field => Err(Problem::new(
            Code::IdempotencyKeyMismatch,
            "the header `Idempotency-Key` and the field `idempotency_key` differ",
        )
        .of_field("idempotency_key")),
        (header, field) => Ok(header.or(field)),
    }
}

/// The answer to a submit: with its place, and when to try again if it is cooling down.
pub(crate) fn submitted(SubmitAnswer { outcome, job }: SubmitAnswer) -> Response {
    let status = match outcome {
        SubmitOutcome::Created | SubmitOutcome::Reopened => StatusCode::ACCEPTED,
        SubmitOutcome::Existing | SubmitOutcome::Conflict => StatusCode::OK,
    };
    let mut response = answer_with(status, job);
    if outcome == SubmitOutcome::Existing {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// A job with its place in `Location` and its wait in `Retry-After`.
fn answer_with(status: StatusCode, job: JobAt) -> Response {
    let place = HeaderValue::try_from(format!("/jobs/{}", job.record.job.id));
    let wait = RetryAt::of(&job.record.job).map(|retry| retry.in_seconds(job.now)).filter(|s| *s > 0.0);
    let mut response = (status, axum::Json(JobView::from(job))).into_response();
    let headers = response.headers_mut();
    if let Ok(place) = place {
        headers.insert(header::LOCATION, place);
    }
    if let Some(seconds) = wait {
        headers.insert(header::RETRY_AFTER, retry_after_header(seconds));
    }
    response
}

/// Submit up to 1000 jobs; one bad item spoils no other.
#[utoipa::path(post, path = "/jobs/batch", tag = "jobs", request_body = BatchBody,
    responses((status = 200, body = BatchAnswer, description = "A result each, in input order"), AnyProblem))]
pub(crate) async fn submit_batch(
    State(app): State<App>,
    call: Call,
    Query(NoQuery {}): Query<NoQuery>,
    headers: HeaderMap,
    JsonBody(BatchBody { jobs }): JsonBody<BatchBody>,
) -> Result<axum::Json<BatchAnswer>, Problem> {
    if headers.contains_key("Idempotency-Key") {
        let detail = "a batch has no key of its own; each of its jobs may have an `idempotency_key`";
        return Err(Problem::new(Code::InvalidHeader, detail).of_field("Idempotency-Key"));
    }
    if jobs.len() > MAX_BATCH {
        let code = Code::Engine(crate::engine::Code::InvalidField);
        let detail = format!("`jobs` takes at most {MAX_BATCH} items");
        return Err(Problem::new(code, detail).of_field("jobs"));
    }
    let mut results: Vec<Option<BatchResult>> = Vec::with_capacity(jobs.len());
    let mut requests = Vec::with_capacity(jobs.len());
    for (i, job) in jobs.into_iter().enumerate() {
        match from_value::<SubmitBody>(&format!("jobs[{i}]"), job) {
            Ok(body) => {
                requests.push(body.into_request(&call.trace_id));
                results.push(None);
            }
            Err(problem) => results.push(Some(BatchResult::invalid(problem))),
        }
    }
    let mut answers = app.engine.submit_batch(&call.caller, requests).await?.into_iter();
    let fill = |result: Option<BatchResult>| result.or_else(|| answers.next().map(BatchResult::from));
    Ok(axum::Json(BatchAnswer { results: results.into_iter().filter_map(fill).collect() }))
}

/// One job; with `wait`, once it has ended or the seconds are over.
#[utoipa::path(get, path = "/jobs/{job_id}", tag = "jobs",
    params(("job_id" = uuid::Uuid, Path), WaitQuery),
    responses((status = 200, body = JobView), AnyProblem))]
pub(crate) async fn get(
    State(app): State<App>,
    PathId(id): PathId,
    Query(query): Query<WaitQuery>,
    call: Call,
) -> Result<axum::Json<JobView>, Problem> {
    let waited = app.engine.wait(&call.caller, id, query.wait);
    let job = match call.closing {
        None => waited.await?,
        Some(mut closing) => tokio::select! {
            biased;
            job = waited => job?,
            () = closing.closing() => app.engine.job(&call.caller, id).await?,
        },
    };
    Ok(axum::Json(job.into()))
}

/// Jobs, newest first.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = ListPage<JobView>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    call: Call,
    Query(query): Query<JobsQuery>,
) -> Result<axum::Json<ListPage<JobView>>, Problem> {
    let (limit, before) = (query.limit, read_job_cursor(query.cursor.as_deref())?);
    let page = app.engine.jobs(&call.caller, query.filter()?, limit, before).await?;
    Ok(axum::Json(list_page(page)))
}

/// A page as the wire has it.
pub(crate) fn list_page<T: From<JobAt> + utoipa::ToSchema>(page: JobsPage) -> ListPage<T> {
    ListPage {
        items: page.items.into_iter().map(Into::into).collect(),
        next_cursor: page.next.map(job_cursor),
    }
}

/// Every attempt of a job, oldest first.
#[utoipa::path(get, path = "/jobs/{job_id}/attempts", tag = "jobs", params(("job_id" = uuid::Uuid, Path)),
    responses((status = 200, body = Items<AttemptView>), AnyProblem))]
pub(crate) async fn attempts(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<Items<AttemptView>>, Problem> {
    let attempts = app.engine.attempts(&call.caller, id).await?;
    Ok(axum::Json(Items { items: attempts.into_iter().map(Into::into).collect() }))
}

/// The finished steps of a job, oldest first.
#[utoipa::path(get, path = "/jobs/{job_id}/steps", tag = "jobs", params(("job_id" = uuid::Uuid, Path)),
    responses((status = 200, body = Items<StepSummary>), AnyProblem))]
pub(crate) async fn steps(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<Items<StepSummary>>, Problem> {
    let steps = app.engine.steps(&call.caller, id).await?;
    Ok(axum::Json(Items { items: steps.into_iter().map(Into::into).collect() }))
}

/// One finished step with its output.
#[utoipa::path(get, path = "/jobs/{job_id}/steps/{name}", tag = "jobs",
    params(("job_id" = uuid::Uuid, Path), ("name" = String, Path)),
    responses((status = 200, body = StepView), AnyProblem))]
pub(crate) async fn step(
    State(app): State<App>,
    PathId(id): PathId,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<StepView>, Problem> {
    Ok(axum::Json(app.engine.step(&call.caller, id, &name).await?.into()))
}

/// Why a job is not running now, and when it can start at the earliest.
#[utoipa::path(get, path = "/jobs/{job_id}/explain", tag = "jobs", params(("job_id" = uuid::Uuid, Path)),
    responses((status = 200, body = ExplanationView), AnyProblem))]
pub(crate) async fn explain(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
) -> Result<axum::Json<ExplanationView>, Problem> {
    Ok(axum::Json(app.engine.explain(&call.caller, id).await?.into()))
}

/// Reopen a failed or cancelled job.
#[utoipa::path(post, path = "/jobs/{job_id}/retry", tag = "jobs", params(("job_id" = uuid::Uuid, Path)),
    request_body = Option<RetryBody>,
    responses(
        (status = 202, body = JobView, description = "Reopened"),
        (status = 409, body = Problem, description = "Not ended, succeeded or failed for good",
            content_type = "application/problem+json"),
        (status = 429, body = Problem, description = "Cooling down: `Retry-After`",
            content_type = "application/problem+json"),
        AnyProblem,
    ))]
pub(crate) async fn retry(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    OptionalJson(RetryBody { force, reason }): OptionalJson<RetryBody>,
) -> Result<Response, Problem> {
    let force = force.unwrap_or(false);
    Ok(changed(app.engine.retry(&call.caller, id, force, reason.as_deref()).await?))
}

/// Cancel a job: at once if it waits, at its worker's next beat if it runs.
#[utoipa::path(post, path = "/jobs/{job_id}/cancel", tag = "jobs", params(("job_id" = uuid::Uuid, Path)),
    request_body = Option<Empty>,
    responses(
        (status = 202, body = JobView, description = "Cancelled, or will be"),
        (status = 200, body = JobView, description = "It was so already"),
        (status = 409, body = Problem, description = "It has ended", content_type = "application/problem+json"),
        AnyProblem,
    ))]
pub(crate) async fn cancel(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    call: Call,
    OptionalJson(Empty {}): OptionalJson<Empty>,
) -> Result<Response, Problem> {
    Ok(changed(app.engine.cancel(&call.caller, id).await?))
}

/// A job that somebody changed: 202, or 200 if it was so already.
fn changed(Changed { job, already }: Changed) -> Response {
    answer_with(if already { StatusCode::OK } else { StatusCode::ACCEPTED }, job)
}
