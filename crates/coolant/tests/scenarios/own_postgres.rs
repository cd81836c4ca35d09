//! A PostgreSQL server that a test may stop, start and cut off.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::NoTls;

use crate::api::{SOON, until};
use crate::world::World;

/// PostgreSQL runs as nobody where the tests run as root, as whom it refuses to run.
const NOBODY: u32 = 65534;

/// A server of its own; it goes when it is dropped, and its data with it.
pub(crate) struct OwnPostgres {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
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
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-k", ""]);
        command.args(["-c", "listen_addresses=127.0.0.1"]);
        self.process = Some(command.spawn().unwrap());
        until(SOON, async || tokio_postgres::connect(&self.url(), NoTls).await.ok().map(drop)).await;
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
        let world = World { store: self.url() };
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

/// A way to a server that can lose the answer to a commit: the server has it, the client never hears.
#[derive(Clone)]
pub(crate) struct LossyWay {
    /// Where it leads in.
    pub(crate) port: u16,
    /// The transaction whose answer is to be lost: one in which this text is said.
    lose: Arc<Mutex<Option<String>>>,
}

impl LossyWay {
    /// A way to that server.
    pub(crate) async fn to(server: &OwnPostgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = Self { port: listener.local_addr().unwrap().port(), lose: Arc::default() };
        let (carrier, port) = (way.clone(), server.port);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let carrier = carrier.clone();
                tokio::spawn(async move { carrier.carry(client, server).await });
            }
        });
        way
    }

    /// Loses the answer to the next commit of a transaction in which that is said.
    pub(crate) fn lose(&self, text: &str) {
        *self.lose.lock().unwrap() = Some(text.to_owned());
    }

    /// Whether it was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.lose.lock().unwrap().is_none()
    }

    /// Carries bytes both ways until one side ends, or an answer is to be lost.
    async fn carry(&self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
        let mut transaction = Vec::new();
        loop {
            tokio::select! {
                read = from_client.read(&mut asked) => {
                    let Ok(size @ 1..) = read else { return };
                    if to_server.write_all(&asked[..size]).await.is_err() { return }
                    transaction.extend(&asked[..size]);
                    if says(&asked[..size], b"COMMIT\0") {
                        if self.takes(&transaction) {
                            return hang_up_on_the_answer(&mut from_server, &mut to_client).await;
                        }
                        transaction.clear();
                    }
                }
                read = from_server.read(&mut answered) => {
                    let Ok(size @ 1..) = read else { return };
                    if to_client.write_all(&answered[..size]).await.is_err() { return }
                }
            }
        }
    }

    /// Whether the answer to this transaction is the one to lose; only one connection is told so.
    fn takes(&self, transaction: &[u8]) -> bool {
        let mut lose = self.lose.lock().unwrap();
        lose.take_if(|text| says(transaction, text.as_bytes())).is_some()
    }
}

fn says(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}

/// Waits for the server's answer, which says that the commit is done, and does not pass it on.
async fn hang_up_on_the_answer(from_server: &mut OwnedReadHalf, to_client: &mut OwnedWriteHalf) {
    let mut answer = [0; 1024];
    let read = tokio::time::timeout(SOON, from_server.read(&mut answer)).await;
    let size = read.expect("an answer to the commit").unwrap();
    assert!(says(&answer[..size], b"COMMIT"));
    let _ = to_client.shutdown().await;
}
