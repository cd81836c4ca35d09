//! `coolant index`: files and folders into the index, now.
//!
//! Each file is kept as a version of a document named after its path, and indexed by an ordinary job. So
//! everything else follows from what jobs are: a second run finds the same jobs done, an interrupted one
//! finds its steps, a file that changed is a new version whose unchanged chunks have their vectors already.

mod files;
mod progress;
mod report;

use std::collections::VecDeque;
use std::time::Duration;

use coolant_core::job::{Job, JobId, JobState, Status, Wait};
use coolant_core::store::SubmitOutcome;
use coolant_core::time::{Timestamp, spoken};

use super::args::IndexArgs;
use super::out::Output;
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::{Caller, JobAt, housekeeping};
use crate::worker::Shutdown;
use files::Found;
use progress::Progress;
use report::Report;

/// Lease of the jobs that this command runs: short, since whoever runs it again after a crash waits for it.
const LEASE: Duration = Duration::from_secs(5);
/// How often jobs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Jobs looked at in one go, the longest waiting first.
const LOOK_AT: usize = 200;
/// A wait for an upstream beyond this is somebody else's time: the command ends and says when to come back.
const LONGEST_BLOCKED: Duration = Duration::from_secs(60);

/// A document on its way.
struct Underway {
    name: String,
    /// Whether the index has never had it.
    is_new: bool,
    job_id: JobId,
    /// Paid calls of its job before this run.
    calls_before: i64,
    cost_before: i64,
}

/// Why the command stops before everything is done.
enum Stopped {
    /// Somebody pressed Ctrl-C.
    Asked,
    /// What is left waits for an upstream for longer than anybody watches.
    Blocked(String),
}

pub(super) async fn run(app: App, args: IndexArgs, output: &Output) -> CommandResult {
    let found = files::find(&args.paths)?;
    let shutdown = Shutdown::on_signals().map_err(CommandError::system("cannot take signals"))?;
    let concurrency = args.concurrency.unwrap_or_else(default_concurrency);
    let worker = app
        .worker()
        .name(format!("index-{}", std::process::id()))
        .lease(Some(LEASE))
        .concurrency(concurrency)
        .build()
        .map_err(|error| CommandError::Usage(error.to_string()))?;
    let working = tokio::spawn(worker.run(shutdown.clone()));
    let keeping = tokio::spawn(housekeeping::run(app.engine.clone()));
    let mut indexing = Indexing {
        app: &app,
        caller: Caller::local(),
        report: Report::default(),
        underway: VecDeque::new(),
        progress: Progress::new(output, found.len()),
    };
    let stopped = indexing.all(found, &shutdown).await;
    let Indexing { report, progress, underway, .. } = indexing;
    let left = underway.len();
    shutdown.drain();
    // The second Ctrl-C of somebody in a hurry ends the wait for running jobs.
    let _ = working.await;
    keeping.abort();
    progress.finish();
    report.write(&app, output);
    match stopped? {
        None if report.has_failures() => Err(CommandError::Failed),
        None => Ok(()),
        Some(Stopped::Asked) => Err(CommandError::Later(format!(
            "stopped with {left} documents left; run the same command again to go on"
        ))),
        Some(Stopped::Blocked(why)) => Err(CommandError::Later(format!("{left} documents wait: {why}"))),
    }
}

/// As many documents as there are cores: reading them is what takes the time.
fn default_concurrency() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 16)
}

struct Indexing<'a> {
    app: &'a App,
    caller: Caller,
    report: Report,
    underway: VecDeque<Underway>,
    progress: Progress,
}

impl Indexing<'_> {
    async fn all(&mut self, found: Vec<Found>, shutdown: &Shutdown) -> Result<Option<Stopped>, CommandError> {
        for file in found {
            if shutdown.is_asked() {
                return Ok(Some(Stopped::Asked));
            }
            self.begin(file).await?;
        }
        self.progress.all_read();
        while !self.underway.is_empty() {
            if shutdown.is_asked() {
                return Ok(Some(Stopped::Asked));
            }
            if let Some(why) = self.look().await? {
                return Ok(Some(Stopped::Blocked(why)));
            }
            let _ = tokio::time::timeout(LOOK_EVERY, shutdown.asked()).await;
        }
        Ok(None)
    }

    /// Keeps a file and submits its job.
    async fn begin(&mut self, file: Found) -> CommandResult {
        let Found { name, path } = file;
        self.progress.reading(&name);
        let bytes = match files::read(&path) {
            Ok(bytes) => bytes,
            Err((code, reason)) => {
                self.progress.failed(&name, code, &reason);
                self.report.failed(name, code, reason);
                return Ok(());
            }
        };
        let filename = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let put = self.app.engine.put_document(&self.caller, &name, bytes, None, filename).await?;
        let answer = self.app.engine.index_document(&self.caller, &name, None, None, None).await?;
        let job = &answer.job.record.job;
        let was_done = answer.outcome == SubmitOutcome::Existing && job.status() == Status::Succeeded;
        if was_done {
            self.report.unchanged();
            self.progress.done(&name, None);
            return Ok(());
        }
        let underway = Underway {
            name,
            is_new: put.version.version == 1 && job.finished_at.is_none(),
            job_id: job.id,
            calls_before: job.usage.calls,
            cost_before: job.usage.cost.as_nanos(),
        };
        match job.status() {
            Status::Failed | Status::Cancelled => self.end(&underway, &answer.job),
            _ => self.underway.push_back(underway),
        }
        Ok(())
    }

    /// Looks at the jobs that have waited longest. Gives why nothing will move for a while, if so.
    async fn look(&mut self) -> Result<Option<String>, CommandError> {
        let now = self.app.engine.now().await?;
        let looking: Vec<Underway> = self.underway.drain(..self.underway.len().min(LOOK_AT)).collect();
        let ids: Vec<JobId> = looking.iter().map(|underway| underway.job_id).collect();
        let records = self.app.engine.store().jobs(&ids).await.map_err(crate::engine::EngineError::from)?;
        let mut chunks = (0, 0);
        let mut blocked = Vec::new();
        let mut left = VecDeque::new();
        for (underway, record) in looking.into_iter().zip(records) {
            let Some(record) = record else { continue };
            if record.job.status().has_ended() {
                self.end(&underway, &JobAt { record, now });
                continue;
            }
            if let Some(progress) = &record.job.progress {
                chunks = (chunks.0 + progress.done, chunks.1 + progress.total.unwrap_or(progress.done));
            }
            blocked.push(long_wait(&record.job, now));
            left.push_back(underway);
        }
        self.progress.chunks_underway(chunks);
        left.append(&mut self.underway);
        self.underway = left;
        // All that is left waits for the same closed door.
        let all_blocked = !blocked.is_empty() && blocked.iter().all(Option::is_some);
        Ok(all_blocked.then(|| blocked.into_iter().flatten().next()).flatten())
    }

    fn end(&mut self, underway: &Underway, job: &JobAt) {
        let Job { usage, last_error, .. } = &job.record.job;
        self.report.paid(usage.calls - underway.calls_before, usage.cost.as_nanos() - underway.cost_before);
        match job.record.job.status() {
            Status::Succeeded => {
                let indexed = self.report.indexed(underway.is_new, job.record.result.as_ref());
                self.progress.done(&underway.name, Some(indexed));
            }
            Status::Cancelled => {
                self.report.failed(underway.name.clone(), "CANCELLED", "its job was cancelled".into());
                self.progress.failed(&underway.name, "CANCELLED", "its job was cancelled");
            }
            _ => {
                let (code, message) = last_error
                    .as_ref()
                    .map_or(("FAILED", ""), |error| (error.code.as_str(), error.message.as_str()));
                let retry = coolant_core::view::RetryAt::of(&job.record.job);
                let retry = retry.map(|retry| format!(" ({})", retry.message(job.now))).unwrap_or_default();
                let reason = format!("{message}{retry}");
                self.progress.failed(&underway.name, code, &reason);
                self.report.failed(underway.name.clone(), code, reason);
            }
        }
    }
}

/// Why a job waits for something outside it for longer than anybody watches.
fn long_wait(job: &Job, now: Timestamp) -> Option<String> {
    match &job.state {
        JobState::Pending { visible_at, wait: Wait::Deferred { reason } }
            if visible_at.since(now) > LONGEST_BLOCKED =>
        {
            Some(format!("{reason}; try again in {}", spoken(visible_at.since(now))))
        }
        _ => None,
    }
}
