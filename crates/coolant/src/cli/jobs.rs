//! `coolant submit` and `coolant jobs`.

use coolant_core::job::{JobId, Status};
use coolant_core::say::Sentence;
use coolant_core::store::{IfFailed, JobFilter, SubmitOutcome};
use coolant_core::view::{Phase, RetryAt};
use futures::StreamExt;
use serde_json::{Value, json};

use super::args::{FilterArgs, JobsArgs, JobsCommand, SubmitArgs};
use super::out::{Output, shortened};
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::read::JobEvent;
use crate::engine::submit::SubmitRequest;
use crate::engine::{Caller, Engine, JobAt};
use crate::http::wire::job::{AttemptView, ExplanationView, JobView, StepSummary};
use crate::language;

pub(super) async fn submit(app: App, args: SubmitArgs, output: &Output) -> CommandResult {
    let request = SubmitRequest {
        job_type: args.job_type,
        payload: args.payload.as_deref().map(payload).transpose()?,
        idempotency_key: args.key,
        queue: args.queue,
        delay_seconds: args.delay,
        if_failed: if args.retry { IfFailed::Retry } else { IfFailed::Return },
        ..SubmitRequest::default()
    };
    if args.wait {
        app.listen_to_others();
    }
    let answer = app.engine.submit(&Caller::local(), request).await?;
    let id = answer.job.record.job.id;
    if args.wait {
        let job = follow(&app.engine, id, output, false).await?;
        let succeeded = job.record.job.status() == Status::Succeeded;
        show(job, output);
        return if succeeded { Ok(()) } else { Err(CommandError::Failed) };
    }
    if !output.is_json() {
        output.remark(match answer.outcome {
            SubmitOutcome::Created => "a new job",
            SubmitOutcome::Reopened => "the key's job had failed and is reopened",
            SubmitOutcome::Existing | SubmitOutcome::Conflict => "the key has its job already",
        });
    }
    show(answer.job, output);
    Ok(())
}

/// JSON as it is, from a file, or from standard input.
pub(super) fn payload(text: &str) -> Result<Value, CommandError> {
    let (text, from) = match text.strip_prefix('@') {
        _ if text == "-" => {
            let read = std::io::read_to_string(std::io::stdin());
            (read.map_err(CommandError::system("cannot read standard input"))?, "standard input")
        }
        Some(path) => {
            let read = std::fs::read_to_string(path);
            (read.map_err(CommandError::system(format!("cannot read `{path}`")))?, path)
        }
        None => (text.to_owned(), "--payload"),
    };
    serde_json::from_str(&text).map_err(|error| CommandError::Usage(format!("{from} is no JSON: {error}")))
}

pub(super) async fn run(app: App, args: JobsArgs, output: &Output) -> CommandResult {
    let (engine, caller) = (&app.engine, Caller::local());
    match args.command {
        JobsCommand::List(filter) => {
            let page = engine.jobs(&caller, filter.filter()?, Some(filter.limit), None).await?;
            list(page.items, output);
        }
        JobsCommand::Show { job_id } => {
            let id = parse(&job_id)?;
            let job = engine.job(&caller, id).await?;
            let attempts = engine.attempts(&caller, id).await?;
            let steps = engine.steps(&caller, id).await?;
            if output.is_json() {
                let attempts: Vec<_> = attempts.into_iter().map(AttemptView::from).collect();
                let steps: Vec<_> = steps.into_iter().map(StepSummary::from).collect();
                output.json(&json!({"job": JobView::from(job), "attempts": attempts, "steps": steps}));
            } else {
                show(job, output);
                attempts_table(&attempts, output);
                if !steps.is_empty() {
                    let rows = steps.iter().map(|step| {
                        vec![step.name.clone(), step.bytes.to_string(), step.attempt.to_string()]
                    });
                    output.table(&["step", "bytes", "attempt"], rows.collect());
                }
            }
        }
        JobsCommand::Watch { job_id } => {
            let job = follow(engine, parse(&job_id)?, output, true).await?;
            return if job.record.job.status() == Status::Succeeded {
                Ok(())
            } else {
                Err(CommandError::Failed)
            };
        }
        JobsCommand::Explain { job_id } => explain(engine, &caller, parse(&job_id)?, output).await?,
        JobsCommand::Retry { job_id, force, reason } => {
            show(engine.retry(&caller, parse(&job_id)?, force, reason.as_deref()).await?.job, output);
        }
        JobsCommand::Cancel { job_id } => show(engine.cancel(&caller, parse(&job_id)?).await?.job, output),
    }
    Ok(())
}

async fn explain(engine: &Engine, caller: &Caller, id: JobId, output: &Output) -> CommandResult {
    let explanation = engine.explain(caller, id).await?;
    if output.is_json() {
        output.json(&ExplanationView::from(explanation));
        return Ok(());
    }
    let (now, language) = (explanation.job.now, language::current());
    output.line(summary(&explanation.job));
    if explanation.reasons.is_empty() {
        output.line(Sentence::NothingInTheWay.say(language));
    }
    for reason in &explanation.reasons {
        let until = reason.until.map(|at| format!(" ({})", language.wait(at.since(now)))).unwrap_or_default();
        output.line(format!("- {}{until}", reason.detail.say(language)));
    }
    Ok(())
}

pub(super) fn parse(text: &str) -> Result<JobId, CommandError> {
    text.parse()
        .map_err(|_| CommandError::Usage(format!("`{text}` is no job id: `coolant jobs list` shows them")))
}

impl FilterArgs {
    /// The filter as the engine takes it.
    pub(super) fn filter(&self) -> Result<JobFilter, CommandError> {
        let unknown = |what: &str, text: &str| CommandError::Usage(format!("there is no {what} `{text}`"));
        let status = self
            .status
            .as_deref()
            .map(|text| Status::parse(&text.to_uppercase()).ok_or_else(|| unknown("status", text)));
        let phase = self.phase.as_deref();
        let phase = phase.map(|text| Phase::parse(text).ok_or_else(|| unknown("phase", text)));
        Ok(JobFilter {
            status: status.transpose()?,
            phase: phase.transpose()?,
            job_type: self.job_type.clone(),
            queue: self.queue.clone(),
            error_code: self.error_code.clone(),
            idempotency_key: self.key.clone(),
            ..JobFilter::default()
        })
    }
}

/// A list of jobs.
pub(super) fn list(jobs: Vec<JobAt>, output: &Output) {
    if output.is_json() {
        let items: Vec<_> = jobs.into_iter().map(JobView::from).collect();
        return output.json(&json!({"items": items}));
    }
    let rows = jobs.iter().map(|job| {
        let JobAt { record, now, .. } = job;
        let of = &record.job;
        vec![
            of.id.to_string(),
            of.spec.job_type.to_string(),
            job.phase().as_str().to_owned(),
            format!("{}/{}", of.counters.executions, of.spec.policy.max_attempts),
            of.spec.idempotency_key.as_ref().map(|key| shortened(key.as_str(), 48)).unwrap_or_default(),
            RetryAt::of(of).map(|retry| retry.sentence(*now).say(language::current())).unwrap_or_default(),
            of.last_error.as_ref().map(|error| error.code.clone()).unwrap_or_default(),
        ]
    });
    let headings = ["job", "type", "phase", "attempts", "key", "retry", "last error"];
    output.table(&headings, rows.collect());
}

pub(super) fn attempts_table(attempts: &[coolant_core::job::Attempt], output: &Output) {
    let rows = attempts.iter().map(|attempt| {
        let took =
            attempt.ended_at.map(|end| format!("{:.3} s", end.since(attempt.started_at).as_secs_f64()));
        vec![
            attempt.number.to_string(),
            attempt.worker.clone(),
            attempt.outcome.map_or("running", |outcome| outcome.as_str()).to_owned(),
            took.unwrap_or_default(),
            attempt
                .error
                .as_ref()
                .map(|e| format!("{}: {}", e.code, shortened(&e.message, 100)))
                .unwrap_or_default(),
        ]
    });
    output.table(&["attempt", "worker", "outcome", "took", "error"], rows.collect());
}

/// One job, as a few lines.
pub(super) fn show(job: JobAt, output: &Output) {
    if output.is_json() {
        return output.json(&JobView::from(job));
    }
    output.line(summary(&job));
    if let Some(error) = &job.record.job.last_error {
        output.line(format!("  {} ({}): {}", error.code, error.class, shortened(&error.message, 300)));
    }
    if let Some(retry) = RetryAt::of(&job.record.job) {
        output.line(format!("  {}", retry.sentence(job.now).say(language::current())));
    }
    if let Some(result) = &job.record.result {
        output.line(format!("  result: {}", shortened(&result.to_string(), 300)));
    }
}

fn summary(job: &JobAt) -> String {
    let of = &job.record.job;
    let progress = of.progress.as_ref().map(|progress| {
        let total = progress.total.map(|total| format!("/{total}")).unwrap_or_default();
        format!(", {}{total} {}", progress.done, progress.unit.as_deref().unwrap_or_default())
    });
    format!(
        "{} {} {}, attempt {} of {}{}",
        of.id,
        of.spec.job_type,
        job.phase().as_str(),
        of.counters.executions,
        of.spec.policy.max_attempts,
        progress.unwrap_or_default()
    )
}

/// Waits until a job has ended; says every change on the way if somebody watches.
async fn follow(engine: &Engine, id: JobId, output: &Output, watched: bool) -> Result<JobAt, CommandError> {
    let caller = Caller::local();
    let mut seen = None;
    loop {
        let mut changes = Box::pin(engine.changes(&caller, id, seen).await?);
        while let Some(JobEvent::Changed(job)) = changes.next().await {
            seen = Some(job.record.job.version);
            if watched && output.is_json() {
                output.json(&JobView::from((*job).clone()));
            } else if watched {
                output.line(summary(&job));
            }
        }
        let job = engine.job(&caller, id).await?;
        if job.record.job.status().has_ended() {
            return Ok(job);
        }
    }
}
