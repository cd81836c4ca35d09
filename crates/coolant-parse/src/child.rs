//! The child: sets its own limits, reads one document, answers, ends.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::process::ExitCode;
use std::thread;

use rustix::process::{Resource, Rlimit, Signal};

use crate::error::ParseError;
use crate::read::{Means, read_with};
use crate::wire::{self, Frame, Request};

/// Exit statuses beyond success: the parent tells by them whose fault it was.
pub(crate) const EXIT_PANIC: u8 = 101;
const EXIT_USAGE: u8 = 64;
const EXIT_INPUT: u8 = 74;

/// Readers recurse over nested structures; a stack this deep, in bytes, holds what real files nest.
const READING_STACK: u64 = 256 << 20;

/// The longest request, in bytes.
const LONGEST_REQUEST: u64 = 1 << 20;

/// The limits a parent gives to its child: on its command line, so that they hold before any input is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChildLimits {
    pub(crate) cpu_seconds: u64,
    pub(crate) memory_bytes: u64,
}

impl ChildLimits {
    pub(crate) fn to_argument(self) -> String {
        format!("--limits={},{}", self.cpu_seconds, self.memory_bytes)
    }

    fn parse(argument: &str) -> Option<Self> {
        let (cpu_seconds, memory_bytes) = argument.strip_prefix("--limits=")?.split_once(',')?;
        Some(Self { cpu_seconds: cpu_seconds.parse().ok()?, memory_bytes: memory_bytes.parse().ok()? })
    }

    /// Sets the limits on this process and on all that it starts.
    fn apply(self) -> io::Result<()> {
        let set = |resource, soft, hard| {
            rustix::process::setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })
        };
        // The soft limit ends the process by a signal of its own, which the parent can tell from a kill.
        set(Resource::Cpu, self.cpu_seconds, self.cpu_seconds + 1)?;
        set(Resource::As, self.memory_bytes, self.memory_bytes)?;
        // A core dump would be a copy of somebody's document on disk.
        set(Resource::Core, 0, 0)?;
        set(Resource::Fsize, 0, 0)?;
        set(Resource::Nofile, 64, 64)?;
        Ok(())
    }

    fn stack(self) -> usize {
        // A quarter at most, or a small memory limit would leave nothing to read with.
        usize::try_from(READING_STACK.min(self.memory_bytes / 4)).unwrap_or(usize::MAX)
    }
}

/// Runs this process as the child of a [`crate::Parser`]: the program calls it, and nothing else, when its
/// arguments are those that the parser was given.
///
/// It sets its own limits from its last argument before it reads a byte, ends when its input closes (the
/// parent is gone), and writes nothing but frames to its output.
#[must_use]
pub fn child_main() -> ExitCode {
    let last = std::env::args_os().next_back();
    let Some(limits) = last.as_deref().and_then(|last| last.to_str()).and_then(ChildLimits::parse) else {
        return fail("is started by the program itself, not by hand", EXIT_USAGE);
    };
    if limits.apply().is_err() {
        return fail("could not set its limits", EXIT_USAGE);
    }
    // A panic's own message may quote the document; its place does not. Where no reader is prepared for it,
    // it ends the reading thread, and the process by its status.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(io::stderr(), "panic at {place}");
    }));
    let reading = thread::Builder::new().name("read".to_owned()).stack_size(limits.stack()).spawn(answer);
    match reading.map(thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        // The parent is gone or broke off.
        Ok(Ok(Err(_))) => ExitCode::from(EXIT_INPUT),
        Ok(Err(_)) => ExitCode::from(EXIT_PANIC),
        Err(_) => fail(OUT_OF_MEMORY, EXIT_PANIC),
    }
}

/// What the runtime says when memory is refused to it, and this child likewise.
pub(crate) const OUT_OF_MEMORY: &str = "memory allocation of";

fn fail(what: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "document reader: {what}");
    ExitCode::from(status)
}

/// Reads the request and the bytes, and writes the answer.
fn answer() -> io::Result<()> {
    let (request, bytes) = receive()?;
    thread::Builder::new().name("parent".to_owned()).stack_size(64 << 10).spawn(end_with_parent)?;
    let means = Means { pdftotext: request.pdftotext.as_deref(), text_bytes: request.text_bytes };
    let answer = read_with(&bytes, &request.hints, means);
    let mut out = BufWriter::new(io::stdout().lock());
    match answer {
        Ok(document) => wire::write_document(&mut out, &document),
        Err(ParseError::Document { fault, message }) => {
            wire::write_frame(&mut out, &Frame::Fault { fault, message })
        }
        Err(ParseError::Reader { .. }) => Err(io::ErrorKind::Other.into()),
    }
}

fn receive() -> io::Result<(Request, Vec<u8>)> {
    let mut stdin = io::stdin().lock();
    let mut line = Vec::new();
    (&mut stdin).take(LONGEST_REQUEST).read_until(b'\n', &mut line)?;
    let request: Request = serde_json::from_slice(&line)?;
    let mut bytes = Vec::new();
    (&mut stdin).take(request.bytes).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == request.bytes {
        Ok((request, bytes))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The parent keeps our input open for as long as it lives and wants the answer.
///
/// Not `PR_SET_PDEATHSIG`: that fires when the parent's *thread* ends, and an async runtime ends threads
/// while the process goes on.
fn end_with_parent() {
    let mut rest = [0; 64];
    while matches!(io::stdin().lock().read(&mut rest), Ok(read) if read > 0) {}
    if rustix::process::getpgrp() == rustix::process::getpid() {
        // Takes the second reader along.
        let _ = rustix::process::kill_current_process_group(Signal::KILL);
    }
    std::process::exit(i32::from(EXIT_INPUT));
}
