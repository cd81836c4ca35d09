//! `coolant stats`, `coolant migrate` and `coolant doctor`.

use coolant_backends::{Condition, Finding, Options, SqlStore};
use coolant_core::documents::DocumentStore;
use serde_json::json;

use super::args::{DoctorArgs, StatsArgs};
use super::out::{Output, counted};
use super::{CommandError, CommandResult};
use crate::app::{App, StartError};
use crate::config::Settings;
use crate::engine::EngineError;
use crate::http::wire::ops::StatsView;

pub(super) async fn stats(app: App, args: StatsArgs, output: &Output) -> CommandResult {
    let stats = app.engine.stats(args.queue.as_deref(), Some(args.window)).await?;
    if output.is_json() {
        output.json(&StatsView::from(stats));
        return Ok(());
    }
    let p95 = stats.job_duration_p95.map_or("-".into(), |p95| format!("{:.3} s", p95.as_secs_f64()));
    let rows = [
        ("queue_depth", stats.queue_depth.to_string()),
        ("job_duration_p95", p95),
        ("job_failure_rate", format!("{:.1} %", stats.job_failure_rate * 100.0)),
        ("retry_count", stats.retry_count.to_string()),
        ("dlq_message_count", stats.dlq_message_count.to_string()),
        ("duplicate_request_count", stats.duplicate_request_count.to_string()),
        ("paid_calls", stats.paid_calls.to_string()),
        ("spent_usd", stats.spent.as_usd().to_string()),
        ("saved_usd", stats.saved.total().as_usd().to_string()),
        ("saved_by_keys_usd", stats.saved.by_keys.as_usd().to_string()),
        ("saved_by_steps_usd", stats.saved.by_steps.as_usd().to_string()),
        ("saved_by_content_usd", stats.saved.by_content.as_usd().to_string()),
        ("saved_by_cooldowns_usd", stats.saved.by_cooldowns.as_usd().to_string()),
        ("wasted_usd", stats.wasted.as_usd().to_string()),
        ("blocked_calls", stats.blocked_calls.to_string()),
    ];
    output.table(&["metric", "value"], rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec());
    Ok(())
}

pub(super) async fn migrate(settings: &Settings, output: &Output) -> CommandResult {
    let steps = SqlStore::migrate(&settings.store).await.map_err(StartError::Store)?;
    // What a database may lack is no failure; but this is the moment to say how to get it.
    let options = Options { migrate: false, ..Options::default() };
    let store = SqlStore::open(&settings.store, options).await.map_err(StartError::Store)?;
    let findings = store.examine().await.map_err(EngineError::from)?;
    let hints = findings.iter().filter(|finding| finding.condition != Condition::Good);
    let hints: Vec<String> = hints.map(|finding| format!("{}: {}", finding.what, finding.detail)).collect();
    if output.is_json() {
        output.json(&json!({"steps": steps, "hints": hints}));
        return Ok(());
    }
    if steps == 0 {
        output.line("the store is up to date");
    } else {
        output.line(format!("the store is up to date after {}", counted(steps as u64, "step")));
    }
    for hint in hints {
        output.line(hint);
    }
    Ok(())
}

pub(super) async fn run(settings: Settings, args: DoctorArgs, output: &Output) -> CommandResult {
    let mut findings = Vec::new();
    match App::open(settings).await {
        Ok(app) => {
            findings.push(Finding::new("store", Condition::Good, "opens and answers".into()));
            findings.extend(app.store.examine().await.map_err(EngineError::from)?);
            findings.push(embedder(&app));
            if app.settings.locks.is_some() {
                findings.push(locks(&app).await);
            }
            if args.index {
                findings.push(index(&app).await?);
            }
        }
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(source) = cause {
                text.push_str(&format!(": {source}"));
                cause = source.source();
            }
            findings.push(Finding::new("store", Condition::Bad, text));
        }
    }
    report(&findings, output);
    match findings.iter().any(|finding| finding.condition == Condition::Bad) {
        true => Err(CommandError::Failed),
        false => Ok(()),
    }
}

fn embedder(app: &App) -> Finding {
    let name = app.embedder_name();
    if app.pays_for_embeddings() {
        Finding::new("embeddings", Condition::Good, format!("{name}; every call is booked"))
    } else {
        let detail = format!(
            "{name} runs on this machine and knows spelling, not meaning: set COOLANT_EMBEDDING_BASE_URL for \
             a model that does"
        );
        Finding::new("embeddings", Condition::Warning, detail)
    }
}

/// Whether the Redis of the locks answers.
async fn locks(app: &App) -> Finding {
    match app.engine.lock("doctor").await {
        Ok(_) => Finding::new("locks", Condition::Good, "Redis answers".into()),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            Finding::new("locks", Condition::Bad, format!("{error}{}", cause.unwrap_or_default()))
        }
    }
}

async fn index(app: &App) -> Result<Finding, CommandError> {
    let health = app.store.index_health().await.map_err(EngineError::from)?;
    let counts = format!(
        "{} documents, {} published with {} chunks; {} vectors kept",
        health.documents, health.published, health.chunks, health.vectors
    );
    let (without_vector, without_terms) = (health.chunks_without_vector, health.chunks_without_terms);
    Ok(if without_vector > 0 {
        let detail = format!("{counts}; {without_vector} chunks have no vector: index their documents again");
        Finding::new("index", Condition::Bad, detail)
    } else {
        let rest = if without_terms > 0 {
            format!("; {without_terms} chunks hold no words, only signs")
        } else {
            String::new()
        };
        Finding::new("index", Condition::Good, format!("{counts}{rest}"))
    })
}

fn report(findings: &[Finding], output: &Output) {
    let word = |condition| match condition {
        Condition::Good => "good",
        Condition::Warning => "warning",
        Condition::Bad => "bad",
    };
    if output.is_json() {
        let items = findings.iter().map(|finding| {
            json!({"what": finding.what, "condition": word(finding.condition), "detail": finding.detail})
        });
        output.json(&json!({"findings": items.collect::<Vec<_>>()}));
        return;
    }
    let rows = findings.iter().map(|finding| {
        vec![word(finding.condition).to_owned(), finding.what.clone(), finding.detail.clone()]
    });
    output.table(&["", "what", "finding"], rows.collect());
}
