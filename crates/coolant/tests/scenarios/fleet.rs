//! Several servers behind one address. Each connection goes to the next of them, so that each step of a scenario
//! meets another process than the step before.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The one address; nobody listens there any more when it is dropped.
pub(crate) struct RoundRobin {
    /// Where it is.
    pub(crate) address: SocketAddr,
    _carrying: JoinSet<()>,
}

impl RoundRobin {
    /// Leads from that address to these servers.
    pub(crate) async fn at(address: SocketAddr, servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut carrying = JoinSet::new();
        carrying.spawn(async move {
            for server in servers.into_iter().cycle() {
                let Ok((client, _)) = listener.accept().await else { return };
                tokio::spawn(carry(client, server));
            }
        });
        Self { address, _carrying: carrying }
    }
}

/// Carries bytes both ways until one side is gone. A server that is gone hangs up, as it would by itself.
async fn carry(mut client: TcpStream, server: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
