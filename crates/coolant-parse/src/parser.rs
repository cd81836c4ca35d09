//! The parent's side: runs a child for one document, believes it no further than its limits, and leaves no
//! process behind.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::child::{ChildLimits, EXIT_PANIC, OUT_OF_MEMORY};
use crate::document::{Document, Hints, PARSER_VERSION};
use crate::error::{Fault, ParseError};
use crate::wire::{self, Assembly, Request};

/// How much a document may cost to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time from start to answer, and CPU time of the child.
    pub time: Duration,
    /// Address space of the child, in bytes. A quarter of it, 256 MiB at most, is the reader's stack.
    pub memory_bytes: u64,
    /// Text that is taken back, in bytes of UTF-8.
    pub text_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(60), memory_bytes: 1 << 30, text_bytes: 64 << 20 }
    }
}

/// Reads documents in child processes, one for each.
#[derive(Debug, Clone)]
pub struct Parser {
    /// The program to run, as an absolute path: the product itself.
    pub program: PathBuf,
    /// Arguments that make the program call [`crate::child_main`]. One more is appended.
    pub args: Vec<OsString>,
    /// What a document may cost.
    pub limits: Limits,
    /// `pdftotext` as the second reader of PDFs, if the machine has it: see [`crate::find_pdftotext`].
    pub pdftotext: Option<PathBuf>,
}

impl Parser {
    /// A parser that runs `program args...` within the default limits and with no second reader.
    #[must_use]
    pub fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Self { program, args, limits: Limits::default(), pdftotext: None }
    }

    /// Names everything that decides the text of a document: for the pipeline fingerprint.
    #[must_use]
    pub fn version(&self) -> String {
        let second = if self.pdftotext.is_some() { "+pdftotext" } else { "" };
        format!("{PARSER_VERSION}{second}")
    }

    /// Reads a document in a child process.
    ///
    /// Ends within the time limit. Dropping the future kills the child and all that it started.
    ///
    /// # Errors
    /// [`ParseError::Document`] where the document is at fault, also when it broke its reader;
    /// [`ParseError::Reader`] where the child could not be run or was stopped from outside.
    pub async fn parse(&self, bytes: &[u8], hints: &Hints) -> Result<Document, ParseError> {
        let mut running = Running::start(self)?;
        let answer = tokio::time::timeout(self.limits.time, running.answer(self, bytes, hints)).await;
        running.end().await;
        answer.unwrap_or_else(|_| Err(self.limits.out_of_time()))
    }
}

impl Limits {
    fn for_child(self) -> ChildLimits {
        // A margin, so that the clock on the wall decides where both run out: it has the better message.
        ChildLimits { cpu_seconds: self.time.as_secs() + 2, memory_bytes: self.memory_bytes }
    }

    fn out_of_time(self) -> ParseError {
        let message = format!("reading the document took more than {} s", self.time.as_secs_f64());
        ParseError::document(Fault::TooLarge, message)
    }

    fn out_of_memory(self) -> ParseError {
        let memory = wire::mebibytes(self.memory_bytes);
        ParseError::document(
            Fault::TooLarge,
            format!("reading the document took more than {memory} of memory"),
        )
    }

    /// Whose fault it was that a child ended without an answer.
    fn verdict(self, status: ExitStatus, stderr: &[u8]) -> ParseError {
        const XCPU: i32 = Signal::XCPU.as_raw();
        const KILL: i32 = Signal::KILL.as_raw();
        const TERM: i32 = Signal::TERM.as_raw();
        let is_crash = status.code() == Some(i32::from(EXIT_PANIC)) || status.signal().is_some();
        match status.signal() {
            Some(XCPU) => self.out_of_time(),
            // The system or an operator: another try may go well.
            Some(KILL | TERM) => ParseError::reader("was killed from outside", None),
            _ if is_crash && contains(stderr, OUT_OF_MEMORY.as_bytes()) => self.out_of_memory(),
            _ if is_crash => ParseError::damaged("the document crashed its reader"),
            _ => ParseError::reader(format!("ended without an answer ({status})"), None),
        }
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// A child and the ends of its pipes.
struct Running {
    child: Child,
    /// Held until the end: its closing tells the child that nobody waits.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
}

impl Running {
    fn start(parser: &Parser) -> Result<Self, ParseError> {
        let mut child = Command::new(&parser.program)
            .args(&parser.args)
            .arg(parser.limits.for_child().to_argument())
            // It needs no secret of ours.
            .env_clear()
            .current_dir("/")
            // A group of its own, so that a kill takes along what it started.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| ParseError::reader("could not be started", Some(error)))?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok(Self { child, stdin, stdout: BufReader::new(stdout), stderr })
            }
            _ => Err(ParseError::reader("has no pipes", None)),
        }
    }

    /// Sends the document and takes the answer, both at once: neither side can block the other.
    async fn answer(&mut self, parser: &Parser, bytes: &[u8], hints: &Hints) -> Result<Document, ParseError> {
        let request = request(parser, bytes, hints)?;
        let Self { child, stdin, stdout, stderr } = self;
        let mut send = pin!(async {
            // A child that does not want the rest has its reason, and says it by its answer or its end.
            if stdin.write_all(&request).await.is_ok() && stdin.write_all(bytes).await.is_ok() {
                let _ = stdin.flush().await;
            }
        });
        let mut complain = pin!(keep_start(stderr));
        let mut receive = pin!(receive(stdout, parser.limits.text_bytes));
        let (mut is_sent, mut note) = (false, None);
        let answer = loop {
            tokio::select! {
                answer = &mut receive => break answer,
                () = &mut send, if !is_sent => is_sent = true,
                kept = &mut complain, if note.is_none() => note = Some(kept),
            }
        };
        if let Some(answer) = answer {
            return answer;
        }
        let note = match note {
            Some(note) => note,
            None => complain.await,
        };
        match child.wait().await {
            Ok(status) => Err(parser.limits.verdict(status, &note)),
            Err(error) => Err(ParseError::reader("could not be waited for", Some(error))),
        }
    }

    /// Ends the child, whatever it does, and reaps it.
    async fn end(mut self) {
        self.kill_group();
        // After a kill this takes no longer than the system needs.
        let _ = self.child.wait().await;
    }

    fn kill_group(&self) {
        // No id means that the child is reaped: its number may belong to another process by now.
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
    }
}

fn request(parser: &Parser, bytes: &[u8], hints: &Hints) -> Result<Vec<u8>, ParseError> {
    let request = Request {
        bytes: bytes.len() as u64,
        hints: hints.clone(),
        pdftotext: parser.pdftotext.clone(),
        text_bytes: parser.limits.text_bytes,
    };
    let mut line = serde_json::to_vec(&request)
        .map_err(|error| ParseError::reader("could not be asked", Some(io::Error::from(error))))?;
    line.push(b'\n');
    Ok(line)
}

/// Takes frames up to the final answer; `None` if the child ended before it.
async fn receive(
    stdout: &mut BufReader<ChildStdout>,
    text_bytes: u64,
) -> Option<Result<Document, ParseError>> {
    let mut assembly = Assembly::new(text_bytes);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut *stdout).take(wire::LONGEST_LINE);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) => return None,
            // The child ended in the middle of a line, or the line is longer than any honest one.
            Ok(_) if line.last() != Some(&b'\n') => {
                let is_cut = (line.len() as u64) < wire::LONGEST_LINE;
                return if is_cut { None } else { Some(Err(wire::malformed())) };
            }
            Ok(_) => {
                if let Some(answer) = assembly.push(&line) {
                    return Some(answer);
                }
            }
            Err(error) => return Some(Err(ParseError::reader("could not be read from", Some(error)))),
        }
    }
}

/// Keeps the first kilobytes of what a child complains about and throws the rest away, so that it never
/// waits for a reader.
async fn keep_start(stderr: &mut ChildStderr) -> Vec<u8> {
    const MOST: u64 = 8 << 10;
    let mut kept = Vec::new();
    let _ = (&mut *stderr).take(MOST).read_to_end(&mut kept).await;
    let mut rest = [0; 4096];
    while matches!(stderr.read(&mut rest).await, Ok(read) if read > 0) {}
    kept
}
