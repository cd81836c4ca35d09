//! `coolant schedules`.

use clap::{Subcommand, ValueEnum};
use coolant_core::names::{ScheduleName, Tenant};
use coolant_core::schedule::CatchUp;
use serde_json::json;

use super::jobs::{payload, show};
use super::out::Output;
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::schedule::{ScheduleNow, ScheduleRequest};
use crate::engine::submit::SubmitRequest;
use crate::engine::{Caller, Engine};
use crate::http::wire::schedules::ScheduleView;
use crate::http::wire::time::Time;

#[derive(Debug, clap::Args)]
pub(super) struct SchedulesArgs {
    #[command(subcommand)]
    command: SchedulesCommand,
    /// Of this tenant [default: default]
    #[arg(long, global = true)]
    tenant: Option<String>,
}

#[derive(Debug, Subcommand)]
enum SchedulesCommand {
    /// List schedules by name
    List,
    /// Show one with its next ticks
    Show {
        /// The schedule's name
        name: String,
    },
    /// Set one, new or not: what is not said is the default
    Set(SetArgs),
    /// Let one rest
    Pause {
        /// The schedule's name
        name: String,
    },
    /// End its rest, from now on
    Resume {
        /// The schedule's name
        name: String,
    },
    /// Submit its job now
    Run {
        /// The schedule's name
        name: String,
        /// The same run has the same key
        #[arg(long)]
        key: Option<String>,
    },
    /// Remove one; its jobs stay
    Delete {
        /// The schedule's name
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// The schedule's name
    name: String,
    /// Five fields (minute, hour, day of month, month, day of week), or six with the second first
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// In whose clock the expression is read: an IANA name [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Which handler runs its jobs
    #[arg(long, value_name = "TYPE")]
    job_type: String,
    /// JSON, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// The queue
    #[arg(long)]
    queue: Option<String>,
    /// What happens to ticks that nobody looked at in time
    #[arg(long, value_enum, default_value_t = CatchUpName::Latest)]
    catch_up: CatchUpName,
    /// Let it rest
    #[arg(long)]
    paused: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CatchUpName {
    /// None becomes a job
    Skip,
    /// The newest becomes a job
    Latest,
    /// The newest 100 become jobs
    All,
}

impl From<CatchUpName> for CatchUp {
    fn from(name: CatchUpName) -> Self {
        match name {
            CatchUpName::Skip => Self::Skip,
            CatchUpName::Latest => Self::Latest,
            CatchUpName::All => Self::All,
        }
    }
}

pub(super) async fn run(app: App, args: SchedulesArgs, output: &Output) -> CommandResult {
    let usage = |error: coolant_core::names::InvalidName| CommandError::Usage(error.to_string());
    let tenant = args.tenant.map(Tenant::parse).transpose().map_err(usage)?;
    let (engine, caller) = (&app.engine, Caller { tenant, ..Caller::local() });
    match args.command {
        SchedulesCommand::List => list(engine, &caller, output).await?,
        SchedulesCommand::Show { name } => show_one(engine.schedule(&caller, &name).await?, output),
        SchedulesCommand::Set(args) => {
            let name = args.name.clone();
            let (is_new, set) = engine.put_schedule(&caller, &name, args.request()?).await?;
            if !output.is_json() {
                output.remark(if is_new { "a new schedule" } else { "the schedule is set" });
            }
            show_one(set, output);
        }
        SchedulesCommand::Pause { name } => {
            show_one(engine.pause_schedule(&caller, &name, true).await?, output);
        }
        SchedulesCommand::Resume { name } => {
            show_one(engine.pause_schedule(&caller, &name, false).await?, output);
        }
        SchedulesCommand::Run { name, key } => {
            show(engine.run_schedule(&caller, &name, key.as_deref(), None).await?.job, output);
        }
        SchedulesCommand::Delete { name } => {
            engine.delete_schedule(&caller, &name).await?;
            if output.is_json() {
                output.json(&json!({"deleted": name}));
            } else {
                output.line(format!("`{name}` is removed; its jobs stay"));
            }
        }
    }
    Ok(())
}

impl SetArgs {
    fn request(self) -> Result<ScheduleRequest, CommandError> {
        Ok(ScheduleRequest {
            cron: self.cron,
            time_zone: self.time_zone,
            job: SubmitRequest {
                job_type: self.job_type,
                payload: self.payload.as_deref().map(payload).transpose()?,
                queue: self.queue,
                ..SubmitRequest::default()
            },
            catch_up: self.catch_up.into(),
            paused: self.paused,
        })
    }
}

async fn list(engine: &Engine, caller: &Caller, output: &Output) -> CommandResult {
    let mut all = Vec::new();
    let mut after: Option<ScheduleName> = None;
    loop {
        let page = engine.schedules(caller, Some(500), after).await?;
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if output.is_json() {
        let items: Vec<_> = all.into_iter().map(ScheduleView::from).collect();
        output.json(&json!({"items": items}));
        return Ok(());
    }
    let rows = all.iter().map(|ScheduleNow { schedule, .. }| {
        vec![
            schedule.name.to_string(),
            schedule.cron.clone(),
            schedule.time_zone.clone(),
            schedule.template.job_type.to_string(),
            next(schedule.next_at, schedule.paused),
            schedule.last_at.map(|at| Time(at).to_string()).unwrap_or_default(),
        ]
    });
    output.table(&["schedule", "cron", "time zone", "type", "next", "last"], rows.collect());
    Ok(())
}

fn next(at: Option<coolant_core::time::Timestamp>, paused: bool) -> String {
    match at {
        _ if paused => "paused".to_owned(),
        Some(at) => Time(at).to_string(),
        None => "never".to_owned(),
    }
}

/// One schedule, as a few lines.
fn show_one(now: ScheduleNow, output: &Output) {
    if output.is_json() {
        return output.json(&ScheduleView::from(now));
    }
    let ScheduleNow { schedule, next: ticks } = now;
    output.line(format!(
        "{}: `{}` in {}, submits {} to queue {}",
        schedule.name, schedule.cron, schedule.time_zone, schedule.template.job_type, schedule.template.queue
    ));
    if let Some(last) = schedule.last_at {
        output.line(format!("  last {}", Time(last)));
    }
    if ticks.is_empty() {
        output.line(format!("  next {}", next(schedule.next_at, schedule.paused)));
    }
    for tick in ticks {
        output.line(format!("  next {}", Time(tick)));
    }
}
