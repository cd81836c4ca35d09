//! `coolant storm`: the retry-storm experiment.
//!
//! Users wait for their jobs and press retry while an upstream is away. The same provider, jobs, workers and
//! users come three times: with naive retries, with backoff only, and with Coolant. Nothing is simulated:
//! calls go over HTTP to the fake provider, and time is the machine's.
//!
//! Elsewhere: queues as they are often built (`plain`), Coolant (`cooled`), the picture (`chart`).

mod chart;
mod cooled;
mod plain;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use coolant_ai::embed::{Embedder, EmbeddingSettings};
use coolant_core::money::Money;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::fake_provider::{Counts, Do, FakeProvider, Rule, Script, spoken_span};
use super::out::Output;
use super::{CommandError, CommandResult};
use crate::config::Settings;

/// How long a refusal takes: an overloaded service says so at once.
const REFUSAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, clap::Args)]
#[command(args_override_self = true)]
pub(super) struct StormArgs {
    /// One of the three alone
    #[arg(long, value_enum)]
    only: Option<Way>,
    /// Jobs, of one paid call each
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    jobs: u32,
    /// Calls at a time
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Users, who share the jobs
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    users: u32,
    /// How often each user presses retry on every job that is not done
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = span)]
    press_every: Duration,
    /// How long a call takes that goes well
    #[arg(long, default_value = "300ms", value_name = "DURATION", value_parser = span)]
    call: Duration,
    /// When the upstream goes away
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = span)]
    outage_after: Duration,
    /// For how long
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = span)]
    outage: Duration,
    /// What it says meanwhile: `Retry-After`, whole seconds
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = span)]
    retry_after: Duration,
    /// How long after the outage an experiment may still take
    #[arg(long, default_value = "120s", value_name = "DURATION", value_parser = span)]
    patience: Duration,
    /// Write the chart as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// How a failed call is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// Three tries in a row, as SDKs do; each press starts the job once more.
    Naive,
    /// Each job by itself: a second, doubling to a minute, ten tries; a press starts a waiting one at once.
    Backoff,
    /// Coolant.
    Coolant,
}

impl Way {
    const ALL: [Self; 3] = [Self::Naive, Self::Backoff, Self::Coolant];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Naive => "naive retries",
            Self::Backoff => "backoff only",
            Self::Coolant => "Coolant",
        }
    }
}

fn span(text: &str) -> Result<Duration, String> {
    spoken_span(text).ok_or_else(|| "takes a duration such as 500ms, 30s or 2m".to_owned())
}

/// What became of the jobs.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    /// When the last job that got done was done, since the provider's start.
    last_done: Option<Duration>,
    done: u32,
    dead: u32,
    presses: u64,
}

/// One experiment, measured.
#[derive(Debug, Serialize)]
struct Measured {
    way: Way,
    calls: u64,
    /// Calls that met the outage.
    calls_in_outage: u64,
    paid_calls: u64,
    cost_usd: f64,
    /// Most calls that were made for one job.
    most_calls_of_a_job: u32,
    presses: u64,
    done: u32,
    dead_lettered: u32,
    /// From the end of the outage until the last job was done; null if some were not.
    recovery_seconds: Option<f64>,
    calls_by_second: Vec<u32>,
}

/// The provider of one experiment, and a client of it.
struct Upstream {
    provider: FakeProvider,
    settings: EmbeddingSettings,
    embedder: Arc<dyn Embedder>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Upstream {
    async fn start(args: &StormArgs) -> Result<Self, CommandError> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(CommandError::system("cannot listen on this machine"))?;
        let address = listener.local_addr().map_err(CommandError::system("cannot tell the own address"))?;
        let away = Rule {
            from: Some(args.outage_after),
            until: Some(args.outage_after + args.outage),
            act: Do::Overloaded,
            retry_after: Some(args.retry_after),
            ..Rule::default()
        };
        let well = Rule { delay: Some(args.call.saturating_sub(REFUSAL)), ..Rule::default() };
        let script = Script { latency: REFUSAL, dimensions: 8, rules: vec![away, well], ..Script::default() };
        let provider = FakeProvider::new(script);
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(provider.clone().serve(listener, async {
            let _ = stopped.await;
        }));
        let settings = EmbeddingSettings {
            base_url: Some(format!("http://{address}/v1")),
            provider: Some("fake".into()),
            model: Some("fake-embedding".into()),
            ..EmbeddingSettings::default()
        };
        let embedder = coolant_ai::embed::build(&settings).map_err(crate::app::StartError::from)?;
        Ok(Self { provider, settings, embedder, stop, serving })
    }

    async fn end(self) -> Counts {
        let _ = self.stop.send(());
        let _ = self.serving.await;
        self.provider.counts()
    }
}

/// The text of a job: no two are alike.
fn text_of(job: u32) -> String {
    format!("Report number {job}: what was paid for once is kept.")
}

pub(super) async fn run(settings: Settings, args: StormArgs, output: &Output) -> CommandResult {
    let ways = args.only.map_or_else(|| Way::ALL.to_vec(), |way| vec![way]);
    let mut measured = Vec::new();
    for way in ways {
        let longest = args.outage_after + args.outage + args.patience;
        output.remark(format!("{}: at most {} ...", way.as_str(), coolant_core::time::spoken(longest)));
        measured.push(experiment(way, &settings, &args).await?);
    }
    if let Some(path) = &args.svg {
        let picture = chart::svg(&measured, args.outage_after, args.outage);
        std::fs::write(path, picture)
            .map_err(CommandError::system(format!("cannot write `{}`", path.display())))?;
    }
    if output.is_json() {
        output.json(&json!({"experiments": measured}));
        return Ok(());
    }
    report(&measured, &args, output);
    Ok(())
}

async fn experiment(way: Way, settings: &Settings, args: &StormArgs) -> Result<Measured, CommandError> {
    let upstream = Upstream::start(args).await?;
    let ended = match way {
        Way::Naive => plain::run(plain::Habit::Naive, args, &upstream).await,
        Way::Backoff => plain::run(plain::Habit::Backoff, args, &upstream).await,
        Way::Coolant => cooled::run(settings, args, &upstream).await?,
    };
    let counts = upstream.end().await;
    let all_done = ended.done == args.jobs;
    let reopened = args.outage_after + args.outage;
    let recovery = ended.last_done.filter(|_| all_done).map(|last| last.saturating_sub(reopened));
    Ok(Measured {
        way,
        calls: counts.calls,
        calls_in_outage: counts.refused_calls,
        paid_calls: counts.paid_calls,
        cost_usd: Money::as_usd(counts.cost),
        most_calls_of_a_job: counts.most_calls_of_an_input,
        presses: ended.presses,
        done: ended.done,
        dead_lettered: ended.dead,
        recovery_seconds: recovery.map(|recovery| recovery.as_secs_f64()),
        calls_by_second: counts.calls_by_second,
    })
}

fn report(measured: &[Measured], args: &StormArgs, output: &Output) {
    let rows = measured.iter().map(|one| {
        vec![
            one.way.as_str().to_owned(),
            one.calls.to_string(),
            one.calls_in_outage.to_string(),
            one.paid_calls.to_string(),
            format!("{:.6}", one.cost_usd),
            one.most_calls_of_a_job.to_string(),
            one.presses.to_string(),
            format!("{}/{}", one.done, args.jobs),
            one.dead_lettered.to_string(),
            one.recovery_seconds.map_or_else(|| "not yet".to_owned(), |seconds| format!("{seconds:.1} s")),
        ]
    });
    let headings = [
        "",
        "calls",
        "in the outage",
        "paid",
        "USD",
        "most of one job",
        "presses",
        "done",
        "dead letters",
        "recovered after",
    ];
    output.table(&headings, rows.collect());
    output.line("");
    for line in chart::lines(measured, args.outage_after, args.outage) {
        output.line(line);
    }
}
