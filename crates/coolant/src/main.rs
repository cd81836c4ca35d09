//! The `coolant` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The reader of documents is this program, run again: it opens no store and no network.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == coolant::app::PARSE_ARGUMENT) {
        return coolant_parse::child_main();
    }
    // The same on the way from `lock run` to its command.
    #[cfg(unix)]
    if std::env::args_os().nth(1).is_some_and(|argument| argument == coolant::cli::EXEC_ARGUMENT) {
        return coolant::cli::exec_main(std::env::args_os());
    }
    coolant::cli::main()
}
