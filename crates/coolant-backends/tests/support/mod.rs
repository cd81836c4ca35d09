//! A PostgreSQL database for one test, on the server that `scripts/services` started.

use coolant_backends::Address;
use tokio_postgres::NoTls;

/// A database of its own.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Makes an empty one; `None`, and says so, where no server is given.
    pub(crate) async fn create() -> Option<Self> {
        let Ok(server) = std::env::var("COOLANT_TEST_POSTGRES") else {
            println!("skipped: postgres (COOLANT_TEST_POSTGRES names no server; `scripts/test` starts one)");
            return None;
        };
        let name = format!("t{}", uuid::Uuid::now_v7().simple());
        say(&server, &format!("CREATE DATABASE {name}")).await;
        Some(Self { server, name })
    }

    /// Its address.
    pub(crate) fn address(&self) -> Address {
        let (front, _) = self.server.rsplit_once('/').unwrap();
        Address::Postgres(format!("{front}/{}", self.name))
    }

    /// Removes it, whoever is still connected.
    pub(crate) async fn drop_it(self) {
        say(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

async fn say(server: &str, statement: &str) {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(statement).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
}
