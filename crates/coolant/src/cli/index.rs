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
use coolant_core::upstream::Denial;

use super::args::IndexArgs;
use super::out::{Output, counted};
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::{Caller, EngineError, JobAt, housekeeping};
use crate::language;
use crate::worker::Shutdown;
use files::Found;
use progress::{Progress, Waits};
use report::Report;

/// Lease of the jobs that this command runs: short, since whoever runs it again after a crash waits for it.
const LEASE: Duration = Duration::from_secs(5);
/// How often jobs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Jobs looked at in one go, the longest waiting first.
const LOOK_AT: usize = 200;
/// A wait for an upstream beyond this is somebody else's time: the command ends and says when to come back.
const LONGEST_BLOCKED: Duration = Duration::from_secs(60);

/// Why a job is reopened before its cooldown is over, for the audit trail.
const REOPENED: &str = "its workers were lost, and `coolant index` was run again";

/// A document on its way.
struct Underway {
    name: String,
    /// Whether the index has never had it.
    is_new: bool,
    job_id: JobId,
    /// Whether this run has given it its second chance.
    reopened: bool,
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
    let (found, left_out) = files::find(&args.paths)?;
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
    let keeping = tokio::spawn(housekeeping::run(app.engine.clone(), app.settings.retention));
    let mut indexing = Indexing {
        app: &app,
        caller: Caller::local(),
        report: Report::default(),
        underway: VecDeque::new(),
        progress: Progress::new(output, found.len()),
    };
    left_out.iter().for_each(|left_out| indexing.progress.left_out(left_out));
    let stopped = indexing.all(found, &shutdown).await;
    if matches!(stopped, Ok(Some(Stopped::Asked))) {
        indexing.progress.stopping();
    }
    shutdown.drain();
    // The second Ctrl-C of somebody in a hurry ends the wait for running jobs.
    let _ = working.await;
    keeping.abort();
    let stopped = match stopped {
        // What was under way has been finished meanwhile.
        Ok(Some(_)) => indexing.look_at_all().await.and(stopped),
        _ => stopped,
    };
    let Indexing { report, progress, .. } = indexing;
    progress.finish();
    report.write(&app, output);
    let left = progress.left();
    match stopped? {
        Some(stopped) if left > 0 => Err(CommandError::Later(match stopped {
            Stopped::Asked => {
                let left = counted(left, "document");
                format!("stopped with {left} left; run the same command again to go on")
            }
            Stopped::Blocked(why) => {
                let wait = if left == 1 { "waits" } else { "wait" };
                format!("{} {wait}: {why}", counted(left, "document"))
            }
        })),
        _ if report.has_failures() => Err(CommandError::Failed),
        _ => Ok(()),
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
        self.progress.all_read(self.underway.len());
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
        let filename = path.file_name().map(|name| files::printable(&name.to_string_lossy()));
        self.app.engine.put_document(&self.caller, &name, bytes, None, filename).await?;
        let answer = self.app.engine.index_document(&self.caller, &name, None, None, None).await?;
        let job = &answer.job.record.job;
        let was_done = answer.outcome == SubmitOutcome::Existing && job.status() == Status::Succeeded;
        if was_done {
            self.report.unchanged();
            self.progress.done(&name, None);
            return Ok(());
        }
        let (document, _) = self.app.engine.document(&self.caller, &name).await?;
        let underway = Underway {
            name,
            is_new: document.searchable.is_none(),
            reopened: false,
            job_id: job.id,
            calls_before: job.usage.calls,
            cost_before: job.usage.cost.as_nanos(),
        };
        match job.status() {
            Status::Failed | Status::Cancelled => self.end_or_reopen(underway, &answer.job).await,
            _ => {
                self.underway.push_back(underway);
                Ok(())
            }
        }
    }

    /// A job whose workers were lost under it says nothing against its document, which is read in a process
    /// of its own. Whoever runs this command again after they were killed wants it to go on now: once a run
    /// such a job is reopened, and does not wait for its cooldown.
    async fn end_or_reopen(&mut self, mut underway: Underway, job: &JobAt) -> CommandResult {
        let code = job.record.job.last_error.as_ref().map(|error| error.code.as_str());
        let was_lost = job.record.job.status() == Status::Failed
            && matches!(code, Some("WORKER_LOST" | "RELEASE_LIMIT"));
        if underway.reopened || !was_lost {
            self.end(&underway, job);
            return Ok(());
        }
        let retried = self.app.engine.retry(&self.caller, underway.job_id, true, Some(REOPENED)).await;
        match retried {
            // Refused: somebody else was faster, and the next look says how it goes on.
            Ok(_) | Err(EngineError::JobNotEnded | EngineError::JobSucceeded) => {
                underway.reopened = true;
                self.underway.push_back(underway);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at every job once.
    async fn look_at_all(&mut self) -> CommandResult {
        for _ in 0..self.underway.len().div_ceil(LOOK_AT) {
            self.look().await?;
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
        let (mut waits, mut ended) = (None, Vec::new());
        let mut left = VecDeque::new();
        for (underway, record) in looking.into_iter().zip(records) {
            let Some(record) = record else { continue };
            if record.job.status().has_ended() {
                ended.push((underway, JobAt { record, now, blocked: false }));
                continue;
            }
            if let Some(progress) = &record.job.progress {
                chunks = (chunks.0 + progress.done, chunks.1 + progress.total.unwrap_or(progress.done));
            }
            blocked.push(long_wait(&record.job, now));
            add_wait(&mut waits, &underway.name, &record.job, now);
            left.push_back(underway);
        }
        self.progress.chunks_underway(chunks);
        self.progress.waiting(waits);
        left.append(&mut self.underway);
        self.underway = left;
        for (underway, job) in ended {
            self.end_or_reopen(underway, &job).await?;
        }
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
                let retry = retry
                    .map(|retry| format!(" ({})", retry.sentence(job.now).say(language::current())))
                    .unwrap_or_default();
                let reason = format!("{message}{retry}");
                self.progress.failed(&underway.name, code, &reason);
                self.report.failed(underway.name.clone(), code, reason);
            }
        }
    }
}

/// Counts a document that waits for another try, for people who wonder why nothing moves.
fn add_wait(waits: &mut Option<Waits>, name: &str, job: &Job, now: Timestamp) {
    let JobState::Pending { visible_at, wait } = &job.state else { return };
    let Some((code, message)) = why_it_waits(job, wait).filter(|_| *visible_at > now) else { return };
    let wait = visible_at.since(now);
    match waits {
        Some(waits) => {
            waits.count += 1;
            waits.wait = waits.wait.min(wait);
        }
        None => {
            let (code, message) = (code.to_owned(), message.to_owned());
            *waits = Some(Waits { count: 1, name: name.to_owned(), code, message, wait });
        }
    }
}

/// A code and its words: of the permit that it did not get, else of its failure.
fn why_it_waits<'a>(job: &'a Job, wait: &'a Wait) -> Option<(&'a str, &'a str)> {
    let denied = match wait {
        Wait::Deferred { reason } if Denial::named_in(reason).is_some() => reason.split_once(": "),
        Wait::Cooling | Wait::Deferred { .. } => None,
        Wait::Start => return None,
    };
    denied.or_else(|| job.last_error.as_ref().map(|error| (error.code.as_str(), error.message.as_str())))
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
