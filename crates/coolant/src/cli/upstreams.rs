//! `coolant upstreams`.

use clap::Subcommand;
use serde_json::json;

use super::out::Output;
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::engine::Caller;
use crate::engine::upstreams::LimitsRequest;
use crate::http::wire::upstreams::UpstreamView;

#[derive(Debug, clap::Args)]
pub(super) struct UpstreamsArgs {
    #[command(subcommand)]
    command: UpstreamsCommand,
}

#[derive(Debug, Subcommand)]
enum UpstreamsCommand {
    /// List upstreams: open or closed, why and until when, what they cost today
    List,
    /// Set all limits of one: what is not said is no limit
    Set(SetArgs),
    /// Close one for a while
    Close {
        /// Its name: openai/gpt-4.1-mini
        name: String,
        /// For so long
        #[arg(long, value_name = "N")]
        seconds: f64,
        /// Why: people and the audit trail are told
        #[arg(long)]
        reason: String,
    },
    /// Open one, and its credential
    Open {
        /// Its name: openai/gpt-4.1-mini
        name: String,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// Its name: openai/gpt-4.1-mini
    name: String,
    /// Calls in flight
    #[arg(long, value_name = "N")]
    max_concurrent: Option<i64>,
    /// Calls begun in a minute
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<i64>,
    /// Calls begun in a second
    #[arg(long, value_name = "N", conflicts_with = "requests_per_minute")]
    requests_per_second: Option<i64>,
    /// Tokens in and out in a minute
    #[arg(long, value_name = "N")]
    tokens_per_minute: Option<i64>,
    /// Dollars a day, by UTC
    #[arg(long, value_name = "USD")]
    budget_usd_per_day: Option<f64>,
    /// The name of the key it is paid with, never the key
    #[arg(long, value_name = "NAME")]
    credential: Option<String>,
}

pub(super) async fn run(app: App, args: UpstreamsArgs, output: &Output) -> CommandResult {
    let (engine, caller) = (&app.engine, Caller::local());
    match args.command {
        UpstreamsCommand::List => {
            let all: Vec<_> = engine.upstreams().await?.into_iter().map(UpstreamView::from).collect();
            list(&all, output);
        }
        UpstreamsCommand::Set(args) => {
            let limits = LimitsRequest {
                max_concurrent: args.max_concurrent,
                requests_per_minute: args.requests_per_minute,
                requests_per_second: args.requests_per_second,
                tokens_per_minute: args.tokens_per_minute,
                budget_usd_per_day: args.budget_usd_per_day,
            };
            show(&engine.set_upstream(&args.name, limits, args.credential).await?.into(), output);
        }
        UpstreamsCommand::Close { name, seconds, reason } => {
            show(&engine.close_upstream(&caller, &name, seconds, &reason).await?.into(), output);
        }
        UpstreamsCommand::Open { name, reason } => {
            // A name with a typing error would be opened without a word.
            engine.upstream(&name).await.map_err(CommandError::from)?;
            show(&engine.open_upstream(&caller, &name, reason.as_deref()).await?.into(), output);
        }
    }
    Ok(())
}

fn list(all: &[UpstreamView], output: &Output) {
    if output.is_json() {
        return output.json(&json!({"items": all}));
    }
    let rows = all.iter().map(|upstream| {
        let (in_flight, spent) = upstream.in_flight_and_spent();
        vec![
            upstream.name.clone(),
            upstream.state.as_str().to_owned(),
            upstream.closed_until.map(|until| until.to_string()).unwrap_or_default(),
            in_flight.to_string(),
            format!("{spent:.4}"),
            reason(upstream),
        ]
    });
    output.table(&["upstream", "state", "until", "in flight", "USD today", "reason"], rows.collect());
}

fn reason(upstream: &UpstreamView) -> String {
    let reason = upstream.reason.clone().unwrap_or_default();
    match upstream.needs_operator {
        true => format!("somebody has to act: {reason}"),
        false => reason,
    }
}

/// One upstream, as a line.
fn show(upstream: &UpstreamView, output: &Output) {
    if output.is_json() {
        return output.json(upstream);
    }
    let until = upstream.closed_until.map(|until| format!(" until {until}")).unwrap_or_default();
    let reason = Some(reason(upstream)).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    output.line(format!("{} is {}{until}{reason}", upstream.name, upstream.state.as_str()));
}
