//! HTTP: the engine's calls as the API that users see.
//!
//! Always true:
//! - every error is a problem (RFC 9457) with a stable code;
//! - wire types live in `wire` and nowhere else; no other module knows how JSON looks outside;
//! - a client that goes away loses nothing: a claim that it did not get is given back.

mod dlq;
mod documents;
mod events;
mod extract;
mod guard;
mod jobs;
mod ledger;
mod locks;
mod observe;
mod ops;
pub mod problem;
mod schedules;
mod serve;
mod upstreams;
pub(crate) mod wire;
mod work;

use std::sync::Arc;

use axum::Router;
use tokio::sync::Semaphore;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use serve::{Closing, serve};

use crate::engine::Engine;

/// Documents that are received at the same time: each may hold 64 MiB of memory.
const UPLOADS: usize = 8;

/// How the API is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Names under which the server may be called, without a port. A browser that was lured to another
    /// name is refused, and so is a page of another origin. Empty: any name.
    pub allowed_hosts: Vec<String>,
}

impl Default for HttpConfig {
    /// A server on the loopback interface.
    fn default() -> Self {
        Self { allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(String::from).to_vec() }
    }
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) uploads: Arc<Semaphore>,
    pub(crate) openapi: Arc<std::sync::OnceLock<axum::body::Bytes>>,
}

/// All calls of the API.
pub fn router(engine: Engine, config: HttpConfig) -> Router {
    let app = App { engine, uploads: Arc::new(Semaphore::new(UPLOADS)), openapi: Arc::default() };
    let (router, api) = calls().with_state(app.clone()).split_for_parts();
    let _ = app.openapi.set(ops::document(&api));
    router
        .fallback(observe::no_such_path)
        .layer(axum::middleware::from_fn_with_state(Arc::new(config), guard::guard))
        .layer(axum::middleware::from_fn(observe::observe))
}

/// What the API is, as OpenAPI says it: what the server really does, since both come from one list.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    calls().into_openapi()
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Coolant",
    description = "Durable AI work: every piece is paid for once, whatever fails. Every error is a problem \
                   (RFC 9457) with a stable `code`."
))]
struct Api;

fn calls() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(jobs::submit, jobs::list))
        .routes(routes!(jobs::submit_batch))
        .routes(routes!(jobs::get))
        .routes(routes!(jobs::attempts))
        .routes(routes!(events::events))
        .routes(routes!(jobs::steps))
        .routes(routes!(jobs::step))
        .routes(routes!(jobs::explain))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::cancel))
        .routes(routes!(dlq::list))
        .routes(routes!(dlq::groups))
        .routes(routes!(dlq::redrive))
        .routes(routes!(dlq::redrive_progress, dlq::stop_redrive))
        .routes(routes!(dlq::get))
        .routes(routes!(dlq::discard))
        .routes(routes!(work::claim))
        .routes(routes!(work::heartbeat))
        .routes(routes!(work::save_step))
        .routes(routes!(work::succeed))
        .routes(routes!(work::fail))
        .routes(routes!(work::defer))
        .routes(routes!(work::release))
        .routes(routes!(work::settle))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::put, schedules::get, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(locks::acquire))
        .routes(routes!(locks::renew))
        .routes(routes!(locks::succeed))
        .routes(routes!(locks::fail))
        .routes(routes!(locks::get, locks::open))
        .routes(routes!(upstreams::list))
        .routes(routes!(upstreams::put, upstreams::get))
        .routes(routes!(upstreams::close))
        .routes(routes!(upstreams::open))
        .routes(routes!(upstreams::permit))
        .routes(routes!(upstreams::settle))
        .routes(routes!(upstreams::put_tenant, upstreams::tenant))
        .routes(routes!(documents::list))
        .routes(routes!(documents::put, documents::get, documents::delete))
        .routes(routes!(documents::index))
        .routes(routes!(documents::search))
        .routes(routes!(ledger::list))
        .routes(routes!(ledger::summary))
        .routes(routes!(ops::healthz))
        .routes(routes!(ops::readyz))
        .routes(routes!(ops::stats))
        .routes(routes!(ops::audit))
        .routes(routes!(ops::openapi))
}
