//! Real processes: a store of its own for each test, and servers on it.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use coolant_backends::Address;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Api;
use crate::client::Client;
use crate::database::Database;

/// How long a process may take to start or to end, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store, empty at first, on which servers can be started.
pub(crate) struct World {
    /// As `--store` takes it.
    pub(crate) store: String,
}

/// Runs a scenario on a new SQLite file.
pub(crate) fn on_sqlite(scenario: impl AsyncFnOnce(&World)) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("coolant.db").display());
    run(async { scenario(&World { store }).await });
}

/// Runs a scenario on a new PostgreSQL database; says so where there is no server for it.
pub(crate) fn on_postgres(scenario: impl AsyncFnOnce(&World)) {
    run(async {
        let Some(database) = Database::create().await else { return };
        let Address::Postgres(store) = database.address() else { unreachable!("it is PostgreSQL") };
        let world = World { store };
        world.migrate().await;
        scenario(&world).await;
        database.drop_it().await;
    });
}

/// Runs a test that makes its own world.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

impl World {
    /// Brings the store up to date, as an operator does before the first server on PostgreSQL.
    pub(crate) async fn migrate(&self) {
        let status = self.command(&["migrate"]).stdout(Stdio::null()).status().await.unwrap();
        assert!(status.success(), "`coolant migrate` ended with {status}");
    }

    /// The program with these arguments on this store, with nothing of the tests' own environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coolant"));
        command.args(arguments).args(["--store", &self.store, "--log", "warn"]);
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The same with the store named before the arguments, the last of which may belong to another command.
    pub(crate) fn command_first(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coolant"));
        command.args(["--store", &self.store, "--log", "warn"]).args(arguments);
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts a server with more arguments.
    pub(crate) async fn serve_with(&self, arguments: &[&str]) -> Server {
        let serve = ["serve", "--no-work", "--listen", "127.0.0.1:0"];
        Server::started(self.command(&[&serve[..], arguments].concat())).await
    }

    /// Starts a server and waits until it listens.
    pub(crate) async fn serve(&self) -> Server {
        self.serve_at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// The same at an address that clients know already.
    pub(crate) async fn serve_at(&self, address: SocketAddr) -> Server {
        Server::started(self.command(&["serve", "--no-work", "--listen", &address.to_string()])).await
    }
}

/// `coolant serve`; killed when it is dropped.
pub(crate) struct Server {
    /// Speaks to it.
    pub(crate) api: Api,
    process: Child,
}

impl Server {
    /// Starts it and waits until it listens.
    async fn started(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a server that starts");
        let line = line.unwrap().expect("a server that says where it listens");
        let address = line.strip_prefix("coolant listens on http://").unwrap_or_else(|| panic!("{line}"));
        Self { api: Api(Client { address: address.parse().unwrap() }), process }
    }

    /// Ends it as a crash does.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}
