//! Work over HTTP: for workers in any language.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use coolant_core::job::{JobId, LeaseToken};

use super::App;
use super::extract::{Call, JsonBody, PathId, PathName, Query, from_value};
use super::problem::{AnyProblem, Code, INTERNAL, Problem, job_id};
use super::wire::query::NoQuery;
use super::wire::time::Time;
use super::wire::work::{
    ClaimAnswer, ClaimBody, ClaimedView, DeferBody, FailBody, HeartbeatAnswer, HeartbeatBody, LeaseView,
    ReleaseBody, SettleAnswer, SettleBody, SettleResult, SettledView, SettlementBody, StepAnswer, StepBody,
    SucceedBody,
};
use crate::engine::work::{Beat, Handed, MAX_ITEMS, Settlement};

/// Claim jobs, waiting for a first one if asked to. An empty list when the wait ends.
#[utoipa::path(post, path = "/work/claim", tag = "work", request_body = ClaimBody,
    responses((status = 200, body = ClaimAnswer), AnyProblem))]
pub(crate) async fn claim(
    State(app): State<App>,
    call: Call,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(body): JsonBody<ClaimBody>,
) -> Result<Response, Problem> {
    let claimed = app.engine.claim(body.into());
    let handed = match call.closing {
        None => claimed.await?,
        Some(mut closing) => tokio::select! {
            biased;
            handed = claimed => handed?,
            () = closing.closing() => return Ok(axum::Json(ClaimAnswer::default()).into_response()),
        },
    };
    hand_over(handed)
}

/// The jobs count as handed over once the answer's body is on its way: a client that is gone by then gets
/// none, and they go back to the queue.
fn hand_over(handed: Handed) -> Result<Response, Problem> {
    let (jobs, now) = handed.jobs();
    let answer = ClaimAnswer { jobs: jobs.iter().map(|claimed| ClaimedView::of(claimed, now)).collect() };
    let json = serde_json::to_vec(&answer)
        .map_err(|_| Problem::new(Code::Engine(crate::engine::Code::Internal), INTERNAL))?;
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, json.len().to_string()),
    ];
    let body = futures::stream::once(async move {
        handed.take();
        Ok::<_, std::convert::Infallible>(Bytes::from(json))
    });
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Renew leases; brings back which are lost and which jobs are cancelled.
#[utoipa::path(post, path = "/work/heartbeat", tag = "work", request_body = HeartbeatBody,
    responses((status = 200, body = HeartbeatAnswer, description = "An answer each, in input order"), AnyProblem))]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(HeartbeatBody { worker, leases }): JsonBody<HeartbeatBody>,
) -> Result<axum::Json<HeartbeatAnswer>, Problem> {
    let beat = |(i, lease): (usize, super::wire::work::LeaseBody)| {
        Ok::<_, Problem>(Beat {
            job_id: job_id(&format!("leases[{i}].job_id"), &lease.job_id)?,
            token: LeaseToken(lease.lease_token),
            progress: lease.progress.map(Into::into),
        })
    };
    let beats = leases.into_iter().enumerate().map(beat).collect::<Result<_, _>>()?;
    let states = app.engine.heartbeat(&worker, beats).await?;
    let leases = states.into_iter().map(|(id, state)| LeaseView::of(id.0, state)).collect();
    Ok(axum::Json(HeartbeatAnswer { leases }))
}

/// Keep a finished step.
#[utoipa::path(put, path = "/work/jobs/{job_id}/steps/{name}", tag = "work", request_body = StepBody,
    params(("job_id" = uuid::Uuid, Path), ("name" = String, Path)),
    responses((status = 200, body = StepAnswer), LeaseLost, AnyProblem))]
pub(crate) async fn save_step(
    State(app): State<App>,
    PathId(id): PathId,
    PathName(name): PathName,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(StepBody { lease_token, output, usage }): JsonBody<StepBody>,
) -> Result<axum::Json<StepAnswer>, Problem> {
    let usage = usage.map(Into::into);
    let until = app.engine.save_step(id, LeaseToken(lease_token), &name, output, usage).await?;
    Ok(axum::Json(StepAnswer { name, lease_expires_at: Time(until) }))
}

/// The work is done.
#[utoipa::path(post, path = "/work/jobs/{job_id}/succeed", tag = "work", request_body = SucceedBody,
    params(("job_id" = uuid::Uuid, Path)), responses((status = 200, body = SettledView), LeaseLost, AnyProblem))]
pub(crate) async fn succeed(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(SucceedBody { lease_token, result, usage }): JsonBody<SucceedBody>,
) -> Result<axum::Json<SettledView>, Problem> {
    let usage = usage.map(Into::into);
    settle_one(&app, id, lease_token, Settlement::Succeed { result, usage }).await
}

/// The work failed; says whether and when it is tried again.
#[utoipa::path(post, path = "/work/jobs/{job_id}/fail", tag = "work", request_body = FailBody,
    params(("job_id" = uuid::Uuid, Path)), responses((status = 200, body = SettledView), LeaseLost, AnyProblem))]
pub(crate) async fn fail(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(FailBody { lease_token, error, usage }): JsonBody<FailBody>,
) -> Result<axum::Json<SettledView>, Problem> {
    let settlement = Settlement::Fail { error: error.into(), usage: usage.map(Into::into) };
    settle_one(&app, id, lease_token, settlement).await
}

/// Not now; uses up no attempt.
#[utoipa::path(post, path = "/work/jobs/{job_id}/defer", tag = "work", request_body = DeferBody,
    params(("job_id" = uuid::Uuid, Path)), responses((status = 200, body = SettledView), LeaseLost, AnyProblem))]
pub(crate) async fn defer(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(DeferBody { lease_token, seconds, reason }): JsonBody<DeferBody>,
) -> Result<axum::Json<SettledView>, Problem> {
    settle_one(&app, id, lease_token, Settlement::Defer { seconds, reason }).await
}

/// Give a claim back; claimable at once, uses up no attempt.
#[utoipa::path(post, path = "/work/jobs/{job_id}/release", tag = "work", request_body = ReleaseBody,
    params(("job_id" = uuid::Uuid, Path)), responses((status = 200, body = SettledView), LeaseLost, AnyProblem))]
pub(crate) async fn release(
    State(app): State<App>,
    PathId(id): PathId,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(ReleaseBody { lease_token }): JsonBody<ReleaseBody>,
) -> Result<axum::Json<SettledView>, Problem> {
    settle_one(&app, id, lease_token, Settlement::Release).await
}

async fn settle_one(
    app: &App,
    id: JobId,
    token: i64,
    settlement: Settlement,
) -> Result<axum::Json<SettledView>, Problem> {
    let mut settled = app.engine.settle(vec![(id, LeaseToken(token), settlement)]).await?;
    let unanswered = || Problem::new(Code::Engine(crate::engine::Code::Internal), INTERNAL);
    Ok(axum::Json(settled.pop().ok_or_else(unanswered)??.into()))
}

/// End many attempts at once.
#[utoipa::path(post, path = "/work/settle", tag = "work", request_body = SettleBody,
    responses((status = 200, body = SettleAnswer, description = "A result each, in input order"), AnyProblem))]
pub(crate) async fn settle(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    JsonBody(SettleBody { settlements }): JsonBody<SettleBody>,
) -> Result<axum::Json<SettleAnswer>, Problem> {
    if settlements.len() > MAX_ITEMS {
        let code = Code::Engine(crate::engine::Code::InvalidField);
        let detail = format!("`settlements` takes at most {MAX_ITEMS} items");
        return Err(Problem::new(code, detail).of_field("settlements"));
    }
    let mut read = Vec::with_capacity(settlements.len());
    let mut results: Vec<Result<JobId, Problem>> = Vec::with_capacity(settlements.len());
    for (i, settlement) in settlements.into_iter().enumerate() {
        match read_settlement(i, settlement) {
            Ok((id, token, settlement)) => {
                read.push((id, token, settlement));
                results.push(Ok(id));
            }
            Err(problem) => results.push(Err(problem)),
        }
    }
    let mut settled = app.engine.settle(read).await?.into_iter();
    let answer = |result: Result<JobId, Problem>| match result {
        Ok(id) => settled.next().map(|settled| SettleResult::of(Some(id.0), settled.map_err(Into::into))),
        Err(problem) => Some(SettleResult::of(None, Err(problem))),
    };
    Ok(axum::Json(SettleAnswer { results: results.into_iter().filter_map(answer).collect() }))
}

fn read_settlement(
    i: usize,
    settlement: serde_json::Value,
) -> Result<(JobId, LeaseToken, Settlement), Problem> {
    let body: SettlementBody = from_value(&format!("settlements[{i}]"), settlement)?;
    let id = job_id(&format!("settlements[{i}].job_id"), &body.job_id)?;
    let (token, settlement) = body.read()?;
    Ok((id, token, settlement))
}

/// The one refusal that all calls under a lease share, for the description of the API.
#[derive(utoipa::IntoResponses)]
#[response(
    status = 409,
    description = "`LEASE_LOST`: nothing changed",
    content_type = "application/problem+json"
)]
#[expect(dead_code, reason = "describes an answer; none is made from it")]
pub(crate) struct LeaseLost(Problem);
