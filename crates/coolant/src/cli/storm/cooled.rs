//! The same with Coolant: its engine, its worker, its store, its job `DOCUMENT_INDEX`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coolant_core::job::{JobId, Status};
use coolant_core::store::{JobFilter, Page, Store};
use tokio::time::Instant;

use super::{Ended, StormArgs, Upstream, text_of};
use crate::app::App;
use crate::cli::CommandError;
use crate::config::Settings;
use crate::engine::{Caller, Engine, EngineError, housekeeping};
use crate::worker::Shutdown;

/// Runs all jobs; ends when they are done or patience is over.
pub(super) async fn run(
    settings: &Settings,
    args: &StormArgs,
    upstream: &Upstream,
) -> Result<Ended, CommandError> {
    let folder = tempfile::tempdir().map_err(CommandError::system("cannot make a folder for the store"))?;
    let settings = Settings {
        store: coolant_backends::Address::Sqlite(folder.path().join("storm.db")),
        embedding: upstream.settings.clone(),
        concurrency: args.workers as usize,
        drain: Duration::ZERO,
        ..settings.clone()
    };
    let app = App::open(settings).await?;
    let jobs = submit(&app.engine, args).await?;
    let worker = app.worker().build().map_err(|error| CommandError::Usage(error.to_string()))?;
    let shutdown = Shutdown::new();
    // The jobs are there before anything runs, as with the other ways.
    upstream.provider.begin();
    let keeping = tokio::spawn(housekeeping::run(app.engine.clone(), app.settings.retention));
    let working = tokio::spawn(worker.run(shutdown.clone()));
    let presses = Arc::new(AtomicU64::new(0));
    let mut users = tokio::task::JoinSet::new();
    for user in 0..args.users.min(args.jobs) {
        let own: Vec<(u32, JobId)> =
            (user..args.jobs).step_by(args.users as usize).map(|job| (job, jobs[job as usize])).collect();
        users.spawn(press(app.engine.clone(), own, user, args.clone(), Arc::clone(&presses)));
    }
    let end = Instant::now() + args.outage_after + args.outage + args.patience;
    let mut ended = Ended::default();
    while Instant::now() < end && ended.done < args.jobs {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let done = count(app.store.as_ref(), Status::Succeeded, args.jobs).await?;
        if done > ended.done {
            (ended.done, ended.last_done) = (done, Some(upstream.provider.age()));
        }
    }
    ended.dead = count(app.store.as_ref(), Status::Failed, args.jobs).await?;
    ended.presses = presses.load(Ordering::SeqCst);
    users.shutdown().await;
    shutdown.drain();
    let _ = working.await;
    keeping.abort();
    Ok(ended)
}

/// A document for each job, all put before the first is started.
async fn submit(engine: &Engine, args: &StormArgs) -> Result<Vec<JobId>, CommandError> {
    let mut jobs = Vec::new();
    for job in 0..args.jobs {
        let (caller, text) = (Caller::local(), text_of(job).into_bytes());
        engine.put_document(&caller, &name_of(job), text, Some("text/plain".into()), None).await?;
        jobs.push(engine.index_document(&caller, &name_of(job), None, None, None).await?.job.record.job.id);
    }
    Ok(jobs)
}

fn name_of(job: u32) -> String {
    format!("report-{job}")
}

/// A user presses retry on each of their jobs that is not done, and asks for it again.
async fn press(engine: Engine, own: Vec<(u32, JobId)>, user: u32, args: StormArgs, presses: Arc<AtomicU64>) {
    tokio::time::sleep(args.press_every.mul_f64(f64::from(user) / f64::from(args.users))).await;
    loop {
        tokio::time::sleep(args.press_every).await;
        for (job, id) in &own {
            let caller = Caller::local();
            let pressed = engine.retry(&caller, *id, false, None).await;
            if matches!(pressed, Err(EngineError::JobSucceeded)) {
                continue;
            }
            presses.fetch_add(1, Ordering::SeqCst);
            let _ = engine.index_document(&caller, &name_of(*job), None, None, None).await;
        }
    }
}

/// How many jobs have that status.
async fn count(store: &dyn Store, status: Status, most: u32) -> Result<u32, CommandError> {
    let filter = JobFilter { status: Some(status), ..JobFilter::default() };
    let (mut found, mut before) = (0, None);
    loop {
        let page = store.list(&filter, Page { limit: 1000, before }).await.map_err(EngineError::from)?;
        found += u32::try_from(page.len()).unwrap_or(u32::MAX);
        before = page.last().map(|record| record.job.id);
        if page.len() < 1000 || found >= most {
            return Ok(found);
        }
    }
}
