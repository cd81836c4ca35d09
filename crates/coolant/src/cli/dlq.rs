//! `coolant dlq`.

use coolant_core::store::RedriveState;
use serde_json::json;

use super::args::{DlqArgs, DlqCommand, FilterArgs};
use super::jobs::{attempts_table, list, parse, show};
use super::out::{Output, counted};
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::redrive::{Paces, RedriveRequest};
use crate::engine::{Caller, Engine};
use crate::http::wire::dlq::{DeadLetterDetail, DeadLetterView, GroupView, RedriveView};
use crate::worker::Shutdown;

pub(super) async fn run(app: App, args: DlqArgs, output: &Output) -> CommandResult {
    let (engine, caller) = (&app.engine, Caller::local());
    match args.command {
        DlqCommand::List(filter) => {
            let page = engine.dead_letters(&caller, filter.filter()?, Some(filter.limit), None).await?;
            if output.is_json() {
                let items: Vec<_> = page.items.into_iter().map(DeadLetterView::from).collect();
                output.json(&json!({"items": items}));
            } else {
                list(page.items, output);
            }
        }
        DlqCommand::Groups(filter) => groups(engine, &caller, &filter, output).await?,
        DlqCommand::Show { job_id } => {
            let found = engine.dead_letter(&caller, parse(&job_id)?).await?;
            if output.is_json() {
                output.json(&DeadLetterDetail::from(found));
            } else {
                show(found.job, output);
                attempts_table(&found.attempts, output);
            }
        }
        DlqCommand::Redrive { filter, dry_run, per_second, force, reason } => {
            let request = RedriveRequest {
                limit: Some(filter.limit),
                filter: filter.filter()?,
                per_second: Some(per_second),
                dry_run,
                force,
                reason,
            };
            redrive(engine, &caller, request, output).await?;
        }
        DlqCommand::Discard { job_id, note } => {
            show(engine.discard(&caller, parse(&job_id)?, note.as_deref()).await?.job, output);
        }
    }
    Ok(())
}

async fn groups(engine: &Engine, caller: &Caller, filter: &FilterArgs, output: &Output) -> CommandResult {
    let groups = engine.dlq_groups(caller, filter.filter()?).await?;
    if output.is_json() {
        let items: Vec<_> = groups.into_iter().map(GroupView::from).collect();
        output.json(&json!({"items": items}));
        return Ok(());
    }
    let rows = groups.into_iter().map(|group| {
        vec![
            group.count.to_string(),
            group.job_type,
            group.error_code,
            group.message,
            group.sample.to_string(),
            format!("{}", group.cost.as_usd()),
        ]
    });
    output.table(&["jobs", "type", "code", "message", "one of them", "cost, USD"], rows.collect());
    Ok(())
}

/// Plans a redrive; if it is meant, paces it here until it is done. Ctrl-C leaves the rest to the servers
/// that share the store.
async fn redrive(
    engine: &Engine,
    caller: &Caller,
    request: RedriveRequest,
    output: &Output,
) -> CommandResult {
    let dry_run = request.dry_run;
    let plan = engine.redrive(caller, request).await?;
    let id = plan.redrive.id;
    if dry_run {
        let (go, skipped) = (plan.redrive.left.len() as u64, plan.redrive.skipped.clone());
        let cost = plan.estimated_cost.as_usd();
        if output.is_json() {
            output.json(&RedriveView::of_plan(plan, true));
        } else {
            output.line(format!(
                "would put back {} of {} that match; estimated cost {cost} USD",
                counted(go, "job"),
                plan.redrive.matched
            ));
            for skipped in skipped {
                output.line(format!("  skips {}: {}", skipped.job_id, skipped.reason));
            }
        }
        return Ok(());
    }
    let shutdown = Shutdown::on_signals().map_err(CommandError::system("cannot take signals"))?;
    let mut paces = Paces::new();
    let progress = loop {
        engine.advance_redrives(&mut paces).await?;
        let progress = engine.redrive_progress(caller, id).await?;
        if progress.state != RedriveState::Running || shutdown.is_asked() {
            break progress;
        }
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), shutdown.asked()).await;
    };
    if output.is_json() {
        output.json(&RedriveView::of(progress, None));
    } else {
        output.line(format!(
            "put back {}, skipped {}, {} left",
            counted(u64::from(progress.redriven), "job"),
            progress.skipped.len(),
            progress.left.len()
        ));
        for skipped in &progress.skipped {
            output.line(format!("  skipped {}: {}", skipped.job_id, skipped.reason));
        }
    }
    Ok(())
}
