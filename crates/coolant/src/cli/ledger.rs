//! `coolant ledger`.

use clap::ValueEnum;
use coolant_core::ledger::{LedgerBy, LedgerRow, LedgerSum};
use coolant_core::money::Money;
use serde_json::json;

use super::CommandResult;
use super::jobs::parse as parse_id;
use super::out::Output;
use crate::app::App;
use crate::engine::Caller;
use crate::engine::ledger::LedgerQuestion;
use crate::http::wire::ledger::{LedgerRowView, LedgerSumView};
use crate::http::wire::time::Time;

#[derive(Debug, clap::Args)]
pub(super) struct LedgerArgs {
    /// Add calls up instead of listing them
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Of this job
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Paid to this upstream
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// On behalf of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Booked on this day, UTC
    #[arg(long, value_name = "YYYY-MM-DD")]
    day: Option<String>,
    /// This many calls at most, 1 to 500
    #[arg(long, default_value_t = 50)]
    limit: i64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    Upstream,
    Tenant,
    #[value(name = "job_type", alias = "job-type")]
    JobType,
    Day,
}

impl From<By> for LedgerBy {
    fn from(by: By) -> Self {
        match by {
            By::Upstream => Self::Upstream,
            By::Tenant => Self::Tenant,
            By::JobType => Self::JobType,
            By::Day => Self::Day,
        }
    }
}

pub(super) async fn run(app: App, args: LedgerArgs, output: &Output) -> CommandResult {
    let question = LedgerQuestion {
        job_id: args.job.as_deref().map(parse_id).transpose()?,
        upstream: args.upstream,
        tenant: args.tenant,
        day: args.day,
    };
    let caller = Caller::local();
    if let Some(by) = args.by.map(LedgerBy::from) {
        let sums = app.engine.ledger_sums(&caller, by, question).await?;
        show_sums(by, sums, output);
        return Ok(());
    }
    let rows = app.engine.ledger(&caller, question, Some(args.limit), None).await?;
    show_rows(rows.items, output);
    if rows.next.is_some() {
        output.remark("there are more: `--limit` shows them, `--by` adds them up");
    }
    Ok(())
}

fn show_rows(rows: Vec<LedgerRow>, output: &Output) {
    if output.is_json() {
        let items: Vec<LedgerRowView> = rows.into_iter().map(Into::into).collect();
        return output.json(&json!({"items": items}));
    }
    let cells = rows.into_iter().map(|LedgerRow { entry, .. }| {
        let usage = &entry.usage;
        vec![
            Time(entry.at).to_string(),
            usage.upstream.clone().unwrap_or_default(),
            usage.input_tokens.to_string(),
            usage.cached_tokens.to_string(),
            usage.output_tokens.to_string(),
            dollars(usage.cost),
            usage.failed.map_or("ok", |class| class.as_str()).to_owned(),
            if entry.wasted { "wasted".to_owned() } else { String::new() },
            entry.job_id.map_or_else(String::new, |id| id.to_string()),
            entry.step.unwrap_or_default(),
        ]
    });
    let headings = ["at", "upstream", "tokens in", "cached", "out", "USD", "outcome", "", "job", "step"];
    output.table(&headings, cells.collect());
}

fn show_sums(by: LedgerBy, sums: Vec<LedgerSum>, output: &Output) {
    if output.is_json() {
        let items: Vec<LedgerSumView> = sums.into_iter().map(Into::into).collect();
        return output.json(&json!({"items": items}));
    }
    let unpriced: i64 = sums.iter().map(|sum| sum.unpriced_calls).sum();
    let cells = sums.into_iter().map(|sum| {
        vec![
            sum.key.unwrap_or_else(|| "-".into()),
            sum.calls.to_string(),
            sum.failed_calls.to_string(),
            sum.unpriced_calls.to_string(),
            sum.input_tokens.to_string(),
            sum.cached_tokens.to_string(),
            sum.output_tokens.to_string(),
            dollars(Some(sum.cost)),
            dollars(Some(sum.wasted)),
        ]
    });
    let headings = [
        by.as_str(),
        "calls",
        "of no use",
        "without a price",
        "tokens in",
        "cached",
        "out",
        "USD",
        "wasted USD",
    ];
    output.table(&headings, cells.collect());
    if unpriced > 0 {
        output.remark(format!(
            "{unpriced} calls have no known price and are not in these sums; \
             `[prices.\"provider/model\"]` in the configuration file says it for calls to come"
        ));
    }
}

/// An amount to the last nano-dollar; `?` if nobody knows it.
fn dollars(cost: Option<Money>) -> String {
    cost.map_or_else(|| "?".to_owned(), |cost| cost.to_string())
}
