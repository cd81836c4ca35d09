//! `coolant serve` and `coolant work`.

use coolant_core::names::{JobType, Queue};
use tokio::net::TcpListener;

use super::args::{ServeArgs, WorkArgs};
use super::out::{Output, counted};
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::config::Settings;
use crate::engine::housekeeping;
use crate::http::{self, HttpConfig};
use crate::worker::{Drained, Shutdown, WorkerBuilder};

pub(super) async fn serve(settings: Settings, args: ServeArgs, output: &Output) -> CommandResult {
    if settings.listens_in_public() {
        return Err(CommandError::Usage(format!(
            "`--listen {}` can be reached from other machines, and this server asks for no keys: listen on \
             127.0.0.1 and put a proxy that does in front",
            settings.listen
        )));
    }
    let listen = settings.listen;
    let shutdown = Shutdown::on_signals().map_err(CommandError::system("cannot take signals"))?;
    let app = App::open(settings).await?;
    app.listen_to_others();
    let listener = TcpListener::bind(listen)
        .await
        .map_err(CommandError::system(format!("cannot listen on {listen}: is a server running there?")))?;
    let address = listener.local_addr().map_err(CommandError::system("cannot tell the own address"))?;
    let router = http::router(app.engine.clone(), HttpConfig::default());
    let keeping = tokio::spawn(housekeeping::run(app.engine.clone(), app.settings.retention));
    let stopping = shutdown.clone();
    let serving = tokio::spawn(async move {
        http::serve(listener, router, async move { stopping.asked().await }).await;
    });
    let working = if args.no_work {
        None
    } else {
        let worker = build(app.worker().name(worker_name("serve")))?;
        Some(tokio::spawn(worker.run(shutdown.clone())))
    };
    // Scripts wait for this line; it says where, also for a port that the system chose.
    output.line(format!("coolant listens on http://{address}"));
    let _ = serving.await;
    keeping.abort();
    match working {
        Some(working) => drained(working.await, output),
        None => Ok(()),
    }
}

pub(super) async fn work(app: App, args: WorkArgs, output: &Output) -> CommandResult {
    let shutdown = Shutdown::on_signals().map_err(CommandError::system("cannot take signals"))?;
    app.listen_to_others();
    let mut worker = app.worker().name(worker_name("work"));
    if !args.queues.is_empty() {
        worker = worker.queues(names(&args.queues, Queue::parse)?);
    }
    if !args.job_types.is_empty() {
        worker = worker.job_types(names(&args.job_types, JobType::parse)?);
    }
    let worker = build(worker)?;
    let keeping = tokio::spawn(housekeeping::run(app.engine.clone(), app.settings.retention));
    output.line("coolant works; SIGTERM drains, a second one stops at once");
    let working = tokio::spawn(worker.run(shutdown)).await;
    keeping.abort();
    drained(working, output)
}

fn names<T>(
    texts: &[String],
    parse: impl Fn(String) -> Result<T, coolant_core::names::InvalidName>,
) -> Result<Vec<T>, CommandError> {
    texts
        .iter()
        .map(|text| parse(text.clone()).map_err(|error| CommandError::Usage(error.to_string())))
        .collect()
}

fn build(worker: WorkerBuilder) -> Result<crate::worker::Worker, CommandError> {
    worker.build().map_err(|error| CommandError::Usage(error.to_string()))
}

/// A label for people who look at attempts; an identity it is not.
fn worker_name(role: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => format!("{role}-{}", std::process::id()),
        host => format!("{role}-{host}-{}", std::process::id()),
    }
}

fn drained(
    ended: Result<Result<Drained, crate::worker::RunError>, tokio::task::JoinError>,
    output: &Output,
) -> CommandResult {
    match ended {
        Ok(Ok(Drained { finished, released, left })) => {
            output.remark(format!(
                "stopped: {} finished, {released} given back, {left} left to their leases",
                counted(finished as u64, "job")
            ));
            Ok(())
        }
        Ok(Err(error)) => Err(CommandError::Usage(format!("{error}: run `coolant migrate`"))),
        Err(error) => Err(CommandError::Usage(format!("the worker broke: {error}"))),
    }
}
