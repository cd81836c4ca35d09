//! The commands: what a person or a script says, and what comes back.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done; 1 the work failed;
//! 2 wrong usage or configuration; 75 try later.

mod args;
mod dlq;
mod doctor;
mod fake_provider;
mod index;
mod jobs;
mod ledger;
#[cfg(unix)]
mod lock;
mod out;
mod schedules;
mod search;
mod serve;
mod storm;
mod upstreams;

use std::process::ExitCode;

use clap::Parser;
use coolant_core::say::Sentence;

use crate::app::{App, StartError};
use crate::config::{ConfigError, Process, Settings};
use crate::engine::EngineError;
use crate::language;
use args::{Args, Command};
#[cfg(unix)]
pub use lock::{EXEC_ARGUMENT, exec_main};
use out::Output;

/// The work failed.
const FAILED: u8 = 1;
/// Wrong usage or configuration.
const USAGE: u8 = 2;
/// Cooling, closed, locked or away: the same command may pass later (`EX_TEMPFAIL` of `sysexits.h`).
const LATER: u8 = 75;

/// Why a command ended without doing its work.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program could not be put together.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was said makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It is not done yet, and will be if the command is given again.
    #[error("{0}")]
    Later(String),
    /// The work was done, and it failed; what is to be said has been said.
    #[error("")]
    Failed,
    /// The command that was run has ended with this status; what is to be said has been said.
    #[error("")]
    Status(u8),
    /// Something of the system failed.
    #[error("{what}")]
    System {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl CommandError {
    fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => USAGE,
            Self::Start(StartError::Store(error)) if error.is_retryable() => LATER,
            Self::Start(StartError::Embedding(_)) => USAGE,
            Self::Engine(error) => engine_exit_code(error),
            Self::Later(_) => LATER,
            Self::Status(code) => *code,
            Self::Start(_) | Self::Failed | Self::System { .. } => FAILED,
        }
    }

    /// What is said of it, in the language of the command where people wait.
    fn said(&self) -> String {
        match self {
            Self::Engine(error) => error.said(),
            other => other.to_string(),
        }
    }

    /// What the user can do about it.
    fn hint(&self) -> Option<String> {
        use coolant_core::store::StoreError;
        match self {
            Self::Start(StartError::Store(StoreError::NotMigrated(_))) => {
                Some("`coolant migrate` brings the store up to date".into())
            }
            Self::Start(StartError::Store(StoreError::Full(_))) => {
                Some("make room on the store's disk; nothing that was acknowledged is lost".into())
            }
            Self::Engine(error) => {
                error.retry_after().map(|wait| Sentence::RetryPossibleIn(wait).say(language::current()))
            }
            _ => None,
        }
    }
}

/// The one place that says which refusals pass by themselves.
fn engine_exit_code(error: &EngineError) -> u8 {
    use crate::engine::Code;
    match error.code() {
        Code::InvalidField | Code::InvalidPayload | Code::PayloadTooLarge => USAGE,
        Code::CoolingDown
        | Code::LockHeld
        | Code::LockCooling
        | Code::LockClosed
        | Code::UpstreamClosed
        | Code::RateLimited
        | Code::ConcurrencyLimited
        | Code::BudgetExhausted
        | Code::SearchUnavailable
        | Code::StoreUnavailable => LATER,
        _ => FAILED,
    }
}

type CommandResult = Result<(), CommandError>;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    let output = Output::new(args.json);
    match start(args, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(error.said(), &error, error.hint());
            ExitCode::from(error.exit_code())
        }
    }
}

fn start(args: Args, output: &Output) -> CommandResult {
    let settings = Settings::load(&args.flags(), &Process)?;
    language::speak(settings.language);
    init_log(&settings, output)?;
    // One provider of cryptography, chosen before the first connection.
    coolant_ai::embed::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("coolant")
        .enable_all()
        .build()
        .map_err(CommandError::system("cannot start the runtime"))?;
    let outcome = runtime.block_on(run(args.command, settings, output));
    // A blocked handler must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

async fn run(command: Command, settings: Settings, output: &Output) -> CommandResult {
    match command {
        Command::Index(args) => index::run(App::open(settings).await?, args, output).await,
        Command::Search(args) => search::run(App::open(settings).await?, args, output).await,
        Command::Serve(args) => serve::serve(settings, args, output).await,
        Command::Work(args) => serve::work(App::open(settings).await?, args, output).await,
        Command::Submit(args) => jobs::submit(App::open(settings).await?, args, output).await,
        Command::Jobs(args) => jobs::run(App::open(settings).await?, args, output).await,
        Command::Dlq(args) => dlq::run(App::open(settings).await?, args, output).await,
        Command::Schedules(args) => schedules::run(App::open(settings).await?, args, output).await,
        Command::Upstreams(args) => upstreams::run(App::open(settings).await?, args, output).await,
        #[cfg(unix)]
        Command::Lock(args) => lock::run(settings, args, output).await,
        Command::Ledger(args) => ledger::run(App::open(settings).await?, args, output).await,
        Command::FakeProvider(args) => fake_provider::run(args, output).await,
        Command::Storm(args) => storm::run(settings, args, output).await,
        Command::Stats(args) => doctor::stats(App::open(settings).await?, args, output).await,
        Command::Migrate => doctor::migrate(&settings, output).await,
        Command::Doctor(args) => doctor::run(settings, args, output).await,
    }
}

fn init_log(settings: &Settings, output: &Output) -> CommandResult {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log).map_err(|error| {
        CommandError::Usage(format!("`--log {}` is no log filter: {error}", settings.log))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output.is_terminal() && !settings.plain)
        .with_target(false)
        .init();
    Ok(())
}
