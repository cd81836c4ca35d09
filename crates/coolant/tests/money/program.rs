//! The real program, and a fake provider that it starts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::client::Client;

/// The program, with nothing of the tests' own environment.
pub(crate) fn coolant(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coolant"));
    command.args(arguments).args(["--log", "warn"]).env_clear().stdin(Stdio::null());
    command
}

/// The JSON that a command wrote that must have ended well.
#[track_caller]
pub(crate) fn json_of(output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

/// A fake provider in a process of its own.
pub(crate) struct Fake {
    child: Child,
    pub(crate) client: Client,
}

impl Fake {
    /// Starts one; its script is TOML, or JSON if it begins with a brace.
    pub(crate) fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = if script.trim_start().starts_with('{') { "script.json" } else { "script.toml" };
        let path = folder.path().join(name);
        std::fs::write(&path, script).unwrap();
        Self::with(&["--script", path.to_str().unwrap()])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut command = coolant(&["fake-provider", "--json", "--listen", "127.0.0.1:0"]);
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let url = said["base_url"].as_str().unwrap();
        let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/v1")).unwrap();
        Self { child, client: Client { address: address.parse().unwrap() } }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.client.address)
    }

    pub(crate) async fn counts(&self) -> Value {
        self.client.get("/counts").await.expect(200)
    }

    /// Ends it by SIGTERM; gives what it said on standard error.
    pub(crate) fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program on a SQLite store in that folder, with embeddings from that provider.
pub(crate) fn paying(folder: &Path, fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = coolant(arguments);
    command
        .current_dir(folder)
        .env("COOLANT_STORE", format!("sqlite:{}", folder.join("coolant.db").display()))
        .env("COOLANT_CONFIG", folder.join("coolant.toml"))
        .env("COOLANT_EMBEDDING_BASE_URL", fake.base_url())
        .env("COOLANT_EMBEDDING_API_KEY", "sk-never-to-be-seen-again")
        .env("COOLANT_EMBEDDING_MODEL", "fake-embedding");
    command
}
