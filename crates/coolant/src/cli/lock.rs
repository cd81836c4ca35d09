//! `coolant lock`: the leaky lock around any command, and for operators.

mod exec;
mod run;

use std::time::Duration;

use clap::Subcommand;
use coolant_core::lock::{LockAt, LockState};

use super::out::Output;
use super::{CommandError, CommandResult};
use crate::app::App;
use crate::config::Settings;
use crate::engine::locks::lock_name;
use crate::engine::{Caller, EngineError};
use crate::http::wire::locks::LockView;
use crate::language;

pub use exec::{EXEC_ARGUMENT, exec_main};

#[derive(Debug, clap::Args)]
pub(super) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Debug, Subcommand)]
enum LockCommand {
    /// Run a command while holding a lock: success frees it, failure leaves it cooling
    Run(run::RunArgs),
    /// Say how a lock stands
    Show {
        /// The lock's name
        key: String,
    },
    /// Open a lock, whoever has it; audited
    Open {
        /// The lock's name
        key: String,
        /// Why, for the audit trail
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(super) async fn run(settings: Settings, args: LockArgs, output: &Output) -> CommandResult {
    match args.command {
        LockCommand::Run(args) => run::run(&settings, args, output).await,
        LockCommand::Show { key } => {
            let name = lock_name(&key)?;
            let lock = App::open_locks(&settings).await?.lock(&name).await.map_err(EngineError::from)?;
            show(key, &lock, output);
            Ok(())
        }
        LockCommand::Open { key, reason } => {
            let app = App::open(settings).await?;
            let before = app.engine.lock(&key).await?;
            let after = app.engine.open_lock(&Caller::local(), &key, reason.as_deref()).await?;
            if !output.is_json() {
                output.remark(match before.state {
                    LockState::Free => "it was free already".into(),
                    _ => format!("opened; before: {}", before.sentence().say(language::current())),
                });
            }
            show(key, &after, output);
            Ok(())
        }
    }
}

fn show(key: String, lock: &LockAt, output: &Output) {
    if output.is_json() {
        return output.json(&LockView::of(key, lock));
    }
    output.sentence(&format!("`{key}`: {}", lock.sentence().say(language::current())));
}

/// A span as it is said on a command line: `500ms`, `30s`, `5m`, `2h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let span = number.parse::<f64>().ok().map(|number| number * seconds);
    span.and_then(|span| Duration::try_from_secs_f64(span).ok())
        .ok_or_else(|| "takes a duration such as 500ms, 30s, 5m or 2h".to_owned())
}

impl CommandError {
    /// The end of a command whose own status is the program's.
    fn status(code: u8) -> CommandResult {
        if code == 0 { Ok(()) } else { Err(Self::Status(code)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        let ms = |text: &str| duration(text).map(|span| span.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("30"), Ok(30_000));
        assert_eq!(ms("1.5m"), Ok(90_000));
        assert_eq!(ms("2h"), Ok(7_200_000));
        for wrong in ["", "s", "-1s", "1d", "5 m", "1e3", "1.2.3", "5M", "0x5", "∞", "1s2"] {
            assert!(ms(wrong).is_err(), "{wrong}");
        }
        assert!(ms(&"9".repeat(400)).is_err());
    }
}
