//! The step between `lock run` and its command: this program, run again, becomes the command. On the way it
//! asks the system to end the command if `lock run` dies without a word: nobody would renew the lock then, and
//! the command would outlive it.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// The argument that makes this program become another: then the process that waits for it, the file there
/// that takes the reason why it could not, and the command.
pub const EXEC_ARGUMENT: &str = "__lock-exec";

/// The status of a command that could not be started.
pub(super) const NOT_STARTED: u8 = 127;

/// Becomes the command.
#[must_use]
pub fn exec_main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.skip(2);
    let (Some(parent), Some(file), Some(command)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return ExitCode::from(NOT_STARTED);
    };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have died before it was asked.
    let waits = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if waits.as_deref() != parent.to_str() {
        return ExitCode::from(NOT_STARTED);
    }
    let error = Command::new(&command).args(arguments).exec();
    let path = format!("/proc/{}/fd/{}", parent.to_string_lossy(), file.to_string_lossy());
    if let Ok(mut reason) = std::fs::OpenOptions::new().write(true).open(path) {
        let _ = write!(reason, "{error}");
    }
    ExitCode::from(NOT_STARTED)
}
