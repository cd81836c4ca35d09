//! A PostgreSQL server that a test may stop and start.
//!
//! Elsewhere: a way to it that can be cut (`way`).

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tokio_postgres::NoTls;

use crate::api::{SOON, until};
use crate::world::World;

/// PostgreSQL runs as nobody where the tests run as root, as whom it refuses to run.
const NOBODY: u32 = 65534;

/// A server of its own; it goes when it is dropped, and its data with it.
pub(crate) struct OwnPostgres {
    programs: PathBuf,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    process: Option<Child>,
}

impl OwnPostgres {
    /// Makes one and starts it; `None`, and says so, where its programs are not at hand.
    pub(crate) async fn start() -> Option<Self> {
        let Ok(programs) = std::env::var("COOLANT_TEST_POSTGRES_BIN") else {
            println!("skipped: postgres (COOLANT_TEST_POSTGRES_BIN is not set; `scripts/test` sets it)");
            return None;
        };
        // Where also the user `nobody` can go, whatever `TMPDIR` says.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), None).unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { programs: programs.into(), folder, port, process: None };
        let data = server.data();
        let mut initdb = server.program("initdb");
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        let made = initdb.arg("--no-sync").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.start_again().await;
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.env("LC_ALL", "C").current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts it where it was, and waits until it answers.
    pub(crate) async fn start_again(&mut self) {
        let start = || {
            let mut command = self.program("postgres");
            command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-k", ""]);
            command.args(["-c", "listen_addresses=127.0.0.1"]).spawn().unwrap()
        };
        let process = Mutex::new(start());
        until(SOON, async || {
            // After a crash it refuses to start as long as a process of the one before is still there.
            let has_ended = process.lock().unwrap().try_wait().unwrap().is_some();
            if has_ended {
                *process.lock().unwrap() = start();
            }
            tokio_postgres::connect(&self.url(), NoTls).await.ok().map(drop)
        })
        .await;
        self.process = Some(process.into_inner().unwrap());
    }

    /// Stops it: `INT` as an operator does, `QUIT` as a crash does.
    pub(crate) fn stop(&mut self, signal: &str) {
        let Some(mut process) = self.process.take() else { return };
        let pid = process.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        assert!(sent.success());
        process.wait().unwrap();
    }

    /// Its own database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Says something to it.
    pub(crate) async fn say(&self, statement: &str) {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        for statement in statement.split("; ") {
            client.batch_execute(statement).await.unwrap();
        }
        drop(client);
        driver.await.unwrap().unwrap();
    }

    /// A migrated store on it.
    pub(crate) async fn world(&self) -> World {
        let world = World::on(self.url());
        world.migrate().await;
        world
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        self.stop("QUIT");
    }
}

fn is_root() -> bool {
    std::fs::metadata(Path::new("/proc/self")).unwrap().uid() == 0
}
