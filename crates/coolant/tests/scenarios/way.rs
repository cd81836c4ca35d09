//! A way to a server that can be cut at a chosen point, or fall silent.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::api::SOON;
use crate::own_postgres::OwnPostgres;
use crate::world::World;

/// Where a transaction loses its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server has all statements, and never hears the commit.
    BeforeCommit,
    /// The server has committed, and nobody hears it.
    AfterCommit,
    /// The server has a statement, and nobody hears what came of it.
    Statement,
    /// The client hears the beginning of what came of a statement.
    Answer,
}

impl Cut {
    pub(crate) const ALL: [Self; 4] = [Self::BeforeCommit, Self::AfterCommit, Self::Statement, Self::Answer];
}

/// A way to a server.
#[derive(Clone)]
pub(crate) struct Way {
    /// Where it leads in.
    port: u16,
    /// The next transaction to be cut: one in which this text is said.
    plan: Arc<Mutex<Option<(String, Cut)>>>,
    /// Carries nothing at the moment, and says so to nobody.
    silent: Arc<watch::Sender<bool>>,
}

impl Way {
    /// A way to that server.
    pub(crate) async fn to(server: &OwnPostgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = Self { port, plan: Arc::default(), silent: Arc::new(watch::channel(false).0) };
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

    /// The store at its end.
    pub(crate) fn world(&self) -> World {
        World::on(format!("postgres://postgres@127.0.0.1:{}/postgres", self.port))
    }

    /// Cuts the next transaction in which that is said.
    pub(crate) fn cut(&self, text: &str, cut: Cut) {
        *self.plan.lock().unwrap() = Some((text.to_owned(), cut));
    }

    /// Whether it was cut.
    pub(crate) fn was_cut(&self) -> bool {
        self.plan.lock().unwrap().is_none()
    }

    /// Carries nothing more, or goes on; connections stay as they are, and new ones are taken.
    pub(crate) fn be_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    async fn carries(&self) {
        let _ = self.silent.subscribe().wait_for(|silent| !*silent).await;
    }

    /// Carries bytes both ways until one side ends, or it is to be cut.
    async fn carry(&self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let (mut asked, mut answered) = (vec![0; 65536], vec![0; 65536]);
        let mut transaction = Vec::new();
        let mut cut_answer = false;
        loop {
            tokio::select! {
                read = from_client.read(&mut asked) => {
                    let Ok(size @ 1..) = read else { return };
                    self.carries().await;
                    transaction.extend(&asked[..size]);
                    let is_commit = says(&asked[..size], b"COMMIT\0");
                    let cut = self.takes(&transaction, is_commit);
                    if cut == Some(Cut::BeforeCommit) || to_server.write_all(&asked[..size]).await.is_err() {
                        return;
                    }
                    match cut {
                        Some(Cut::AfterCommit) => {
                            return hang_up_on_the_answer(&mut from_server, &mut to_client).await;
                        }
                        Some(Cut::Statement) => return,
                        Some(Cut::Answer) => cut_answer = true,
                        _ => {}
                    }
                    if is_commit {
                        transaction.clear();
                    }
                }
                read = from_server.read(&mut answered) => {
                    let Ok(size @ 1..) = read else { return };
                    self.carries().await;
                    let size = if cut_answer { size / 2 } else { size };
                    if to_client.write_all(&answered[..size]).await.is_err() || cut_answer { return }
                }
            }
        }
    }

    /// Whether this transaction is the one to be cut, and now; only one connection is told so.
    fn takes(&self, transaction: &[u8], is_commit: bool) -> Option<Cut> {
        let at_commit = |cut: &Cut| matches!(cut, Cut::BeforeCommit | Cut::AfterCommit);
        let mut plan = self.plan.lock().unwrap();
        let taken =
            plan.take_if(|(text, cut)| (is_commit || !at_commit(cut)) && says(transaction, text.as_bytes()));
        taken.map(|(_, cut)| cut)
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
