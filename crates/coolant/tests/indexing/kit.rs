//! The real program in a folder of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use coolant::Coolant;
use coolant_backends::Address;
use coolant_core::store::Store;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::client::Client;
use crate::database::Database;
use crate::provider::Provider;

/// Longest that a command may take: everything here ends within seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// The API key that must never be seen again.
pub const KEY: &str = "sk-test-0123456789abcdef-secret";

/// A folder with documents and a store.
pub struct Site {
    folder: Arc<TempDir>,
    store: Option<String>,
    env: Vec<(String, String)>,
    /// Virtual memory of each process, in KiB.
    most_memory: Option<u64>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The totals that `index --json` wrote, of a run that must have ended so.
    #[track_caller]
    pub fn report(&self, code: i32) -> Value {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        let mut lines = self.stdout.lines();
        let report = lines.next().and_then(|line| serde_json::from_str(line).ok());
        assert_eq!(lines.next(), None, "one line of JSON and nothing else: {self:#?}");
        report.unwrap_or_else(|| panic!("no JSON: {self:#?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }
}

/// The numbers of a report: new, updated, unchanged, failed documents; embedded, reused chunks.
pub fn counts(report: &Value) -> [u64; 6] {
    let number = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap();
    [
        number("/documents/new"),
        number("/documents/updated"),
        number("/documents/unchanged"),
        report["documents"]["failed"].as_array().unwrap().len() as u64,
        number("/chunks/embedded"),
        number("/chunks/reused"),
    ]
}

/// The failed documents of a report, by name.
pub fn failed(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let failed = report["documents"]["failed"].as_array().unwrap();
    failed.iter().map(|failed| (text(&failed["document_id"]), text(&failed["error_code"]))).collect()
}

impl Site {
    /// With the local embedder.
    pub fn new() -> Self {
        let site = Self {
            folder: Arc::new(TempDir::new().unwrap()),
            store: None,
            env: Vec::new(),
            most_memory: None,
        };
        std::fs::create_dir(site.docs()).unwrap();
        site
    }

    /// With a paid one, in calls of so many inputs.
    pub fn paying(provider: &Provider, batch_items: usize) -> Self {
        Self::new()
            .env("COOLANT_EMBEDDING_BASE_URL", provider.base_url())
            .env("COOLANT_EMBEDDING_MODEL", "fake-1")
            .env("COOLANT_EMBEDDING_API_KEY", KEY)
            .env("COOLANT_EMBEDDING_BATCH_ITEMS", batch_items.to_string())
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With the documents and the store of another one.
    pub fn beside(mut self, other: &Self) -> Self {
        self.folder = Arc::clone(&other.folder);
        self.store.clone_from(&other.store);
        self
    }

    /// On another store than the SQLite file of the folder.
    pub fn store(mut self, store: Option<String>) -> Self {
        self.store = store;
        self
    }

    /// No process of it may take more memory.
    pub fn limited_to_gib(mut self, gib: u64) -> Self {
        self.most_memory = Some(gib << 20);
        self
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn docs(&self) -> PathBuf {
        self.path().join("docs")
    }

    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.docs().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn command<Arg: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = Arg>) -> Command {
        let program = env!("CARGO_BIN_EXE_coolant");
        let mut command = match self.most_memory {
            None => Command::new(program),
            Some(kib) => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\""), program]);
                shell
            }
        };
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(self.path());
        command.args(args);
        if let Some(store) = &self.store {
            command.args(["--store", store]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command
    }

    pub fn start<Arg: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = Arg>) -> Running {
        Running::new(self.command(args))
    }

    pub async fn run<Arg: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = Arg>) -> Ran {
        self.start(args).end().await
    }

    /// Its store, beside whoever else has it open.
    pub async fn open_store(&self) -> Arc<dyn Store> {
        let file = format!("sqlite:{}", self.path().join("coolant-data/coolant.db").display());
        let coolant = Coolant::open(self.store.as_ref().unwrap_or(&file)).await.unwrap();
        Arc::clone(coolant.store())
    }

    /// `coolant index docs --json`.
    pub async fn index(&self) -> Ran {
        self.run(["index", "docs", "--json"]).await
    }

    /// What a search finds: the hits as `--json` writes them.
    pub async fn search(&self, args: &[&str]) -> Vec<Value> {
        let ran = self.run(["search", "--json"].iter().chain(args)).await;
        let found = ran.report(0);
        found["hits"].as_array().unwrap().clone()
    }

    /// The server on a port that the system chose, and a client of it.
    pub async fn serve(&self, args: &[&str]) -> (Running, Client) {
        let mut server = self.start(["serve", "--listen", "127.0.0.1:0"].iter().chain(args));
        let stdout = server.child.stdout.as_mut().unwrap();
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line)).await.unwrap().unwrap();
        let address = line.trim().rsplit("//").next().unwrap();
        let address = address.parse().unwrap_or_else(|_| panic!("no address: {line:?}"));
        (server, Client { address })
    }

    /// What `doctor --index` says of the index; fails if anything is bad.
    pub async fn examine(&self) -> String {
        let report = self.run(["doctor", "--index", "--json"]).await.report(0);
        let findings = report["findings"].as_array().unwrap().clone();
        let index = findings.iter().find(|finding| finding["what"] == "index").unwrap();
        assert_eq!(index["condition"], "good", "{index}");
        index["detail"].as_str().unwrap().to_owned()
    }
}

/// A command that runs.
pub struct Running {
    pub child: Child,
    stderr: Option<BufReader<ChildStderr>>,
    /// What it has said so far.
    said: String,
}

impl Running {
    pub fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stderr, said: String::new() }
    }

    fn pid(&self) -> Pid {
        let id = self.child.id().expect("it still runs");
        Pid::from_raw(id.try_into().unwrap()).unwrap()
    }

    /// SIGKILL for it and its process group.
    pub fn kill(&self) {
        kill_process_group(self.pid(), Signal::KILL).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Returns when a signal has stopped it, all its threads.
    pub fn until_stopped(&self) {
        let status = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), status).unwrap();
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it says something like that on standard error.
    pub async fn says(&mut self, text: &str) {
        let stderr = self.stderr.as_mut().unwrap();
        let start = self.said.len();
        while !self.said[start..].contains(text) {
            let line = tokio::time::timeout(PATIENCE, stderr.read_line(&mut self.said)).await;
            let length = line.unwrap_or_else(|_| panic!("never says `{text}`: {}", self.said)).unwrap();
            assert!(length > 0, "it ended without saying `{text}`: {}", self.said);
        }
    }

    /// Waits until its first line on standard output begins like that.
    pub async fn says_on_stdout(&mut self, text: &str) {
        let stdout = self.child.stdout.as_mut().unwrap();
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, BufReader::new(stdout).read_line(&mut line)).await.unwrap().unwrap();
        assert!(line.starts_with(text), "{line}");
    }

    /// Reads along no more.
    pub fn hang_up(&mut self) {
        drop((self.child.stdout.take(), self.stderr.take()));
    }

    /// Waits for its end.
    pub async fn end(self) -> Ran {
        let Self { mut child, stderr, said } = self;
        let stdout = child.stdout.take();
        let ended =
            tokio::time::timeout(PATIENCE, async { tokio::join!(read(stdout), read(stderr), child.wait()) });
        let (stdout, stderr, status) = ended.await.expect("the command ends");
        let ran = Ran { status: status.unwrap(), stdout, stderr: said + &stderr };
        assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
        ran
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await.unwrap();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the text of hits holds, white space folded.
pub fn texts(hits: &[Value]) -> String {
    let texts: Vec<&str> = hits.iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    texts.join("\n").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The address of a database as `--store` takes it.
pub fn postgres_url(database: &Database) -> String {
    match database.address() {
        Address::Postgres(url) => url,
        Address::Sqlite(_) => unreachable!("it is PostgreSQL"),
    }
}
