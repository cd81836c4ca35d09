//! `coolant lock run`: a command under a leaky lock.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::exec::{EXEC_ARGUMENT, NOT_STARTED};
use super::{LockView, duration};
use crate::app::App;
use crate::cli::out::Output;
use crate::cli::{CommandError, CommandResult, FAILED, LATER};
use crate::config::Settings;
use crate::embedded::{LeakyLock, LockError, LockGuard};
use crate::engine::EngineError;
use crate::language;

/// How long a command has to end by itself once its lock is lost.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The lock's name
    key: String,
    /// How long the lock stays if nobody is left to renew it, such as 500ms, 30s, 5m or 2h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Duration,
    /// How long a failure leaves it cooling [default: until it would have ended]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    cooldown: Option<Duration>,
    /// Who holds it, for people [default: user@host and process id]
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How a command ended.
enum Ended {
    /// The system could not start it.
    NotStarted(String),
    /// It ran.
    Ran {
        status: ExitStatus,
        /// The first signal that was passed on to it.
        signalled: Option<Signal>,
        /// Whether it was stopped for the loss of its lock.
        lost: bool,
    },
}

pub(super) async fn run(settings: &Settings, args: RunArgs, output: &Output) -> CommandResult {
    // Before the lock is asked for: from then on a signal must not end this process without a word.
    let mut signals = Signals::take().map_err(CommandError::system("cannot take signals"))?;
    let locks = App::open_locks(settings).await?;
    let mut lock = LeakyLock::new(locks, args.key.as_str()).ttl(args.ttl);
    if let Some(holder) = &args.holder {
        lock = lock.holder(holder.as_str());
    }
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(LockError::Taken(taken)) if output.is_json() => {
            output.json(&LockView::of(args.key, &taken));
            return CommandError::status(LATER);
        }
        Err(LockError::Taken(taken)) => {
            let key = &args.key;
            return Err(CommandError::Later(format!(
                "`{key}`: {}",
                taken.sentence().say(language::current())
            )));
        }
        Err(LockError::Invalid(what)) => return Err(CommandError::Usage(what)),
        Err(LockError::Store(error)) => return Err(EngineError::from(error).into()),
        Err(LockError::Lost) => return CommandError::status(FAILED),
    };
    let ended = under(&guard, &args, &mut signals, output).await?;
    give_back(guard, &args, &ended, output).await;
    CommandError::status(exit_code(&ended))
}

/// Runs the command while its lock is held.
async fn under(
    guard: &LockGuard,
    args: &RunArgs,
    signals: &mut Signals,
    output: &Output,
) -> Result<Ended, CommandError> {
    let (why, takes) = std::io::pipe().map_err(CommandError::system("cannot make a pipe to the command"))?;
    let mut child = match start(args, guard.token(), takes.as_raw_fd()) {
        Ok(child) => child,
        Err(error) => return Ok(Ended::NotStarted(error.to_string())),
    };
    let (mut signalled, mut lost, mut stop_at) = (None, false, None);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(CommandError::system("cannot wait for the command"))?,
            Some(signal) = signals.next() => {
                // A second Ctrl-C does not ask any more.
                let again = signalled.is_some() && signal == Signal::INT;
                let of_terminal = signal == Signal::INT && is_in_foreground();
                if again || !of_terminal {
                    pass_on(&child, if again { Signal::KILL } else { signal });
                }
                signalled = signalled.or(Some(signal));
            }
            () = guard.lost(), if !lost => {
                output.remark("the lock is lost: somebody opened it, or it could not be renewed. The command is stopped");
                pass_on(&child, Signal::TERM);
                (lost, stop_at) = (true, Some(tokio::time::Instant::now() + GRACE));
            }
            () = until(stop_at) => {
                pass_on(&child, Signal::KILL);
                stop_at = None;
            }
        }
    };
    drop(takes);
    let mut reason = String::new();
    if status.code() == Some(i32::from(NOT_STARTED)) {
        let _ = { why }.read_to_string(&mut reason);
    }
    Ok(match reason.is_empty() {
        true => Ended::Ran { status, signalled, lost },
        false => Ended::NotStarted(reason),
    })
}

/// Ends at that instant; never, if there is none.
async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn start(args: &RunArgs, token: i64, reason: std::os::fd::RawFd) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .arg(EXEC_ARGUMENT)
        .arg(std::process::id().to_string())
        .arg(reason.to_string())
        .args(&args.command)
        .env("COOLANT_LOCK_KEY", &args.key)
        .env("COOLANT_LOCK_TOKEN", token.to_string())
        .spawn()
}

fn pass_on(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended in this moment.
        let _ = kill_process(pid, signal);
    }
}

/// Whether a Ctrl-C on the terminal reached the command as well: it is in this process's group.
fn is_in_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp())
}

/// Gives the lock back as the command ended, and says what became of it.
async fn give_back(guard: LockGuard, args: &RunArgs, ended: &Ended, output: &Output) {
    let key = &args.key;
    let reason = match ended {
        Ended::NotStarted(error) => {
            let command = args.command[0].to_string_lossy();
            output.remark(format!("error: cannot start `{command}`: {error}"));
            None
        }
        Ended::Ran { status, signalled: None, lost: false } if status.success() => None,
        Ended::Ran { lost: true, .. } => return,
        Ended::Ran { status, signalled, .. } => Some(told(*status, *signalled)),
    };
    let given = match (reason, args.cooldown) {
        (None, _) => guard.succeed().await.map(|()| None),
        (Some(reason), None) => guard.fail(reason).await.map(Some),
        (Some(reason), Some(wait)) => guard.fail_for(reason, wait).await.map(Some),
    };
    match given {
        Ok(None) => {}
        Ok(Some(lock)) => {
            output.remark(format!("`{key}`: {}", lock.sentence().say(language::current())));
        }
        Err(error) => output.remark(format!("warning: `{key}` could not be given back: {error}")),
    }
}

fn told(status: ExitStatus, signalled: Option<Signal>) -> String {
    match (status.signal(), status.code(), signalled) {
        (Some(signal), ..) => format!("ended by signal {signal}"),
        (None, Some(code), Some(signal)) => format!("signal {}, exit status {code}", signal.as_raw()),
        (None, code, _) => format!("exit status {}", code.unwrap_or_default()),
    }
}

/// The command's own status, but that 75 is left to a lock that was not to be had. A command that was told
/// to stop has not done its work, whatever it says.
fn exit_code(ended: &Ended) -> u8 {
    let Ended::Ran { status, signalled, lost } = ended else { return NOT_STARTED };
    let by_signal = |signal: i32| u8::try_from(128 + signal).unwrap_or(FAILED);
    match (status.code(), status.signal()) {
        (Some(0), _) if *lost => by_signal(Signal::TERM.as_raw()),
        (Some(0), _) => signalled.map_or(0, |signal| by_signal(signal.as_raw())),
        (Some(code), _) => u8::try_from(code).ok().filter(|code| *code != LATER).unwrap_or(FAILED),
        (None, signal) => by_signal(signal.unwrap_or_default()),
    }
}

/// The signals that ask a process to stop.
struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    fn take() -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for taken in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            let mut signals = signal(SignalKind::from_raw(taken.as_raw()))?;
            let sender = sender.clone();
            tokio::spawn(
                async move { while signals.recv().await.is_some() && sender.send(taken).is_ok() {} },
            );
        }
        Ok(Self(receiver))
    }

    async fn next(&mut self) -> Option<Signal> {
        self.0.recv().await
    }
}
