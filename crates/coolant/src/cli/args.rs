//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::fake_provider::FakeProviderArgs;
use super::ledger::LedgerArgs;
#[cfg(unix)]
use super::lock::LockArgs;
use super::schedules::SchedulesArgs;
use super::storm::StormArgs;
use super::upstreams::UpstreamsArgs;
use crate::config::Flags;
use crate::engine::documents::SearchMode;

/// Durable AI work: each piece is paid for once, whatever fails.
#[derive(Debug, Parser)]
#[command(name = "coolant", version, max_term_width = 100, arg_required_else_help = true)]
pub(super) struct Args {
    /// The store: `sqlite:PATH` or `postgres://USER@HOST/DATABASE` [default: sqlite:coolant-data/coolant.db]
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// Leaky locks in Redis or Valkey: `redis://HOST:PORT/DATABASE` [default: in the store]
    #[arg(long, global = true, value_name = "URL")]
    locks: Option<String>,
    /// A configuration file (TOML); flags beat environment, environment beats file
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write results as JSON on standard output
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// What to log, such as `info` or `coolant=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    pub(super) command: Command,
}

impl Args {
    pub(super) fn flags(&self) -> Flags {
        let (listen, concurrency) = match &self.command {
            Command::Serve(args) => (args.listen.clone(), args.concurrency),
            Command::Work(args) => (None, args.concurrency),
            Command::Index(args) => (None, args.concurrency),
            _ => (None, None),
        };
        // Reading a folder fills a terminal with progress, a storm is all failures: errors are enough beside them.
        let quiet = matches!(self.command, Command::Index(_) | Command::Storm(_)).then(|| "error".to_owned());
        Flags {
            store: self.store.clone(),
            config: self.config.clone(),
            log: self.log.clone().or(quiet),
            listen,
            concurrency,
            locks: self.locks.clone(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Index files and folders: idempotent, resumable, each piece paid for once
    Index(IndexArgs),
    /// Search what was indexed
    Search(SearchArgs),
    /// Serve the HTTP API and run the built-in workers
    Serve(ServeArgs),
    /// Run workers only, for more machines
    Work(WorkArgs),
    /// Submit a job
    Submit(SubmitArgs),
    /// Look at jobs and act on them
    Jobs(JobsArgs),
    /// Look at the dead-letter queue and act on it
    Dlq(DlqArgs),
    /// Submit work again and again, by cron expressions
    Schedules(SchedulesArgs),
    /// Limits and closures of paid services
    Upstreams(UpstreamsArgs),
    /// Leaky locks: run a command under one, look at one, open one
    #[cfg(unix)]
    Lock(LockArgs),
    /// List paid calls, or add them up
    Ledger(LedgerArgs),
    /// Try things out: an OpenAI-compatible server that does as its script says, and counts
    FakeProvider(FakeProviderArgs),
    /// The retry-storm experiment: an outage, with naive retries, with backoff, with Coolant
    Storm(StormArgs),
    /// Show the metrics
    Stats(StatsArgs),
    /// Bring the store's schema up to date
    Migrate,
    /// Find what is wrong with this set-up
    Doctor(DoctorArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct IndexArgs {
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Documents that are read at the same time
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(super) struct SearchArgs {
    /// What to look for
    pub(super) query: String,
    /// Hits at most, 1 to 100
    #[arg(long, default_value_t = 10)]
    pub(super) k: i64,
    /// By words and vectors, or by one of them
    #[arg(long, value_enum, default_value_t = Mode::Hybrid)]
    pub(super) mode: Mode,
    /// In this document alone
    #[arg(long, value_name = "ID")]
    pub(super) document: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Mode {
    Hybrid,
    Vector,
    Text,
}

impl From<Mode> for SearchMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Hybrid => Self::Hybrid,
            Mode::Vector => Self::Vector,
            Mode::Text => Self::Text,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Address and port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<String>,
    /// Serve the API only; other processes work
    #[arg(long)]
    pub(super) no_work: bool,
    /// Jobs run at once [default: 4]
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(super) struct WorkArgs {
    /// Queues to work on, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) queues: Vec<String>,
    /// Types of jobs to run, separated by commas [default: all built-in ones]
    #[arg(long, value_delimiter = ',', value_name = "TYPES")]
    pub(super) job_types: Vec<String>,
    /// Jobs run at once [default: 4]
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(super) struct SubmitArgs {
    /// Which handler runs it
    pub(super) job_type: String,
    /// JSON, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(super) payload: Option<String>,
    /// The idempotency key: the same key is the same job
    #[arg(long)]
    pub(super) key: Option<String>,
    /// The queue
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Start no sooner than this many seconds from now
    #[arg(long, value_name = "SECONDS")]
    pub(super) delay: Option<f64>,
    /// Reopen the key's job if it failed and its cooldown is over
    #[arg(long)]
    pub(super) retry: bool,
    /// Wait for the end, and exit with 1 if the job did not succeed
    #[arg(long)]
    pub(super) wait: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct JobsArgs {
    #[command(subcommand)]
    pub(super) command: JobsCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum JobsCommand {
    /// List jobs, newest first
    List(FilterArgs),
    /// Show one job with its attempts and steps
    Show {
        /// The job's id
        job_id: String,
    },
    /// Follow one job until it ends
    Watch {
        /// The job's id
        job_id: String,
    },
    /// Say why a job is not running now
    Explain {
        /// The job's id
        job_id: String,
    },
    /// Reopen a failed or cancelled job
    Retry {
        /// The job's id
        job_id: String,
        /// Past its cooldown and past a permanent failure; needs `--reason`
        #[arg(long, requires = "reason")]
        force: bool,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
    /// Cancel a job
    Cancel {
        /// The job's id
        job_id: String,
    },
}

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct FilterArgs {
    /// PENDING, RUNNING, SUCCEEDED, FAILED or CANCELLED
    #[arg(long)]
    pub(super) status: Option<String>,
    /// waiting, scheduled, running, cooling, blocked, succeeded, dead_lettered, discarded or cancelled
    #[arg(long)]
    pub(super) phase: Option<String>,
    /// Of this type
    #[arg(long, value_name = "TYPE")]
    pub(super) job_type: Option<String>,
    /// In this queue
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// With this error code
    #[arg(long, value_name = "CODE")]
    pub(super) error_code: Option<String>,
    /// With this idempotency key
    #[arg(long)]
    pub(super) key: Option<String>,
    /// This many at most, 1 to 500
    #[arg(long, default_value_t = 50)]
    pub(super) limit: i64,
}

#[derive(Debug, clap::Args)]
pub(super) struct DlqArgs {
    #[command(subcommand)]
    pub(super) command: DlqCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum DlqCommand {
    /// List dead-lettered jobs, newest first
    List(FilterArgs),
    /// Group them by what failed alike
    Groups(FilterArgs),
    /// Show one with its attempts
    Show {
        /// The job's id
        job_id: String,
    },
    /// Put jobs back, at a pace
    Redrive {
        #[command(flatten)]
        filter: FilterArgs,
        /// Only show what would be done and cost
        #[arg(long)]
        dry_run: bool,
        /// Jobs a second
        #[arg(long, default_value_t = 5.0, value_name = "N")]
        per_second: f64,
        /// Past cooldowns and permanent failures; needs `--reason`
        #[arg(long, requires = "reason")]
        force: bool,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
    /// End a job for good; it stays in the history
    Discard {
        /// The job's id
        job_id: String,
        /// Why, for the audit trail
        #[arg(long)]
        note: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct StatsArgs {
    /// Of this queue alone
    #[arg(long)]
    pub(super) queue: Option<String>,
    /// Over this many seconds back
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS")]
    pub(super) window: f64,
}

#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Count the index, too, and what in it does not agree
    #[arg(long)]
    pub(super) index: bool,
}
