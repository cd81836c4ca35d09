//! Serve: connections, their limits, and an end that loses nothing.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// Connections at the same time; more wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 4096;
/// Longest that a client takes to send its headers, or to begin its next request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// More header lines than the guard lets pass, so that it is the guard who answers.
const MAX_HEADERS: usize = 512;
/// Longest that calls in flight are waited for at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// Tells calls that wait for something that the server is about to end.
#[derive(Debug, Clone)]
pub struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Ends when the server is about to end; never, if it just ends.
    pub async fn closing(&mut self) {
        if self.0.wait_for(|closing| *closing).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Answers calls until `shutdown` ends. Then it takes no more connections, long polls and event streams
/// end at once, and other calls in flight have ten seconds.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let (close, closing) = watch::channel(false);
    let closing = Closing(closing);
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (accept(&listener).await, slot)
        };
        let (stream, slot) = tokio::select! {
            accepted = accept => accepted,
            () = &mut shutdown => break,
        };
        let connection = graceful.watch(
            http1()
                .serve_connection(TokioIo::new(stream), service_fn(answer(router.clone(), closing.clone()))),
        );
        connections.spawn(async move {
            // A client that breaks off or talks no HTTP is its own affair.
            let _ = connection.await;
            drop(slot);
        });
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let _ = close.send(true);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("calls in flight took too long to end and are cut off");
    }
    connections.shutdown().await;
}

fn http1() -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_headers(MAX_HEADERS);
    builder
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers leave at once; a socket that refuses the option still works.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                // Out of file descriptors, mostly: the next one may be free in a moment.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn answer(
    router: Router,
    closing: Closing,
) -> impl Fn(
    hyper::Request<hyper::body::Incoming>,
) -> futures::future::BoxFuture<'static, Result<axum::response::Response, Infallible>> {
    move |request| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(closing.clone());
        Box::pin(router.clone().oneshot(request))
    }
}
