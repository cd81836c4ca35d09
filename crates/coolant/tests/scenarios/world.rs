//! Real processes: a store of its own for each test, and servers on it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use coolant_backends::Address;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Api;
use crate::client::Client;
use crate::database::Database;
use crate::fleet::RoundRobin;

/// How long a process may take to start or to end, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store, empty at first, on which servers can be started.
pub(crate) struct World {
    /// As `--store` takes it.
    pub(crate) store: String,
    /// How many processes stand behind the address of one server.
    processes: usize,
}

/// Processes of a server in a fleet.
const FLEET: usize = 2;

/// Any free port of this machine.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs a scenario on a new SQLite file.
pub(crate) fn on_sqlite(scenario: impl AsyncFnOnce(&World)) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("coolant.db").display());
    run(async { scenario(&World::on(store)).await });
}

/// Runs a scenario on a new PostgreSQL database; says so where there is no server for it.
pub(crate) fn on_postgres(scenario: impl AsyncFnOnce(&World)) {
    on_postgres_with(1, scenario);
}

/// The same with two processes for each server, which are asked in turn.
pub(crate) fn on_a_fleet(scenario: impl AsyncFnOnce(&World)) {
    on_postgres_with(FLEET, scenario);
}

fn on_postgres_with(processes: usize, scenario: impl AsyncFnOnce(&World)) {
    run(async {
        let Some(database) = Database::create().await else { return };
        let Address::Postgres(store) = database.address() else { unreachable!("it is PostgreSQL") };
        let world = World { store, processes };
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
    /// One process for each server, on that store.
    pub(crate) const fn on(store: String) -> Self {
        Self { store, processes: 1 }
    }

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

    /// Starts a server and waits until it listens.
    pub(crate) async fn serve(&self) -> Server {
        self.serve_at(ANYWHERE).await
    }

    /// The same with more arguments.
    pub(crate) async fn serve_with(&self, arguments: &[&str]) -> Server {
        self.start(ANYWHERE, arguments).await
    }

    /// The same at an address that clients know already.
    pub(crate) async fn serve_at(&self, address: SocketAddr) -> Server {
        self.start(address, &[]).await
    }

    async fn start(&self, address: SocketAddr, arguments: &[&str]) -> Server {
        if self.processes == 1 {
            let (process, address) = self.started(address, arguments).await;
            return Server { api: Api(Client { address }), processes: vec![process], _fleet: None };
        }
        let started = (0..self.processes).map(|_| self.started(ANYWHERE, arguments));
        let (processes, servers) = futures::future::join_all(started).await.into_iter().unzip();
        let fleet = RoundRobin::at(address, servers).await;
        Server { api: Api(Client { address: fleet.address }), processes, _fleet: Some(fleet) }
    }

    /// Starts one process, and waits until it says where it listens.
    async fn started(&self, address: SocketAddr, arguments: &[&str]) -> (Child, SocketAddr) {
        let serve = ["serve", "--no-work", "--listen", &address.to_string()];
        listening(self.command(&[&serve[..], arguments].concat())).await
    }

    /// Starts one server that works itself, in an environment of these variables.
    pub(crate) async fn serve_working(&self, variables: &[(&str, &str)]) -> Server {
        let mut command = self.command(&["serve", "--listen", &ANYWHERE.to_string()]);
        command.envs(variables.iter().copied());
        let (process, address) = listening(command).await;
        Server { api: Api(Client { address }), processes: vec![process], _fleet: None }
    }
}

/// Starts a server, and waits until it says where it listens.
async fn listening(mut command: Command) -> (Child, SocketAddr) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a server that starts");
    let line = line.unwrap().expect("a server that says where it listens");
    let address = line.strip_prefix("coolant listens on http://").unwrap_or_else(|| panic!("{line}"));
    (process, address.parse().unwrap())
}

/// `coolant serve`, or a fleet of it behind one address; killed when it is dropped.
pub(crate) struct Server {
    /// Speaks to it.
    pub(crate) api: Api,
    processes: Vec<Child>,
    _fleet: Option<RoundRobin>,
}

impl Server {
    /// Ends it as a crash does, all of it.
    pub(crate) async fn kill(mut self) {
        for process in &mut self.processes {
            process.kill().await.unwrap();
        }
    }
}
