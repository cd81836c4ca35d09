//! A PostgreSQL database for one test, on the server that `scripts/services` started.
#![allow(dead_code, reason = "shared; each test uses a part of it")]

use std::time::{Duration, Instant};

use coolant_backends::Address;
use tokio_postgres::{Client, NoTls};

/// A wait that is not over by then is a failure.
const TOO_LONG: Duration = Duration::from_secs(30);

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

    /// Its address for a user who has the schema `coolant` and nothing else, and can create no extension.
    pub(crate) async fn restricted(&self) -> Address {
        let Self { server, name } = self;
        let raw = self.connect().await;
        raw.say(&format!("CREATE ROLE {name} LOGIN; CREATE SCHEMA coolant AUTHORIZATION {name}")).await;
        let (_, host) = server.split_once('@').unwrap();
        let (host, _) = host.rsplit_once('/').unwrap();
        Address::Postgres(format!("postgres://{name}@{host}/{name}"))
    }

    /// Its address as text.
    pub(crate) fn url(&self) -> String {
        let Address::Postgres(url) = self.address() else { unreachable!("it is PostgreSQL") };
        url
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A connection to it that finds the store's tables.
    pub(crate) async fn connect(&self) -> Raw {
        let Address::Postgres(url) = self.address() else { unreachable!("it is PostgreSQL") };
        let raw = Raw::open(&url).await;
        raw.say("SET search_path = coolant, public").await;
        raw
    }

    /// Removes it, whoever is still connected.
    pub(crate) async fn drop_it(self) {
        say(&self.server, &format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
        say(&self.server, &format!("DROP ROLE IF EXISTS {}", self.name)).await;
    }
}

async fn say(server: &str, statement: &str) {
    Raw::open(server).await.say(statement).await;
}

/// How many connections to this database wait for a lock.
pub(crate) const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                                  AND wait_event_type = 'Lock'";

/// A connection of the test's own, outside the store.
pub(crate) struct Raw(Client);

impl Raw {
    async fn open(server: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// Says statements, separated by semicolons.
    pub(crate) async fn say(&self, statements: &str) {
        self.0.batch_execute(statements).await.unwrap();
    }

    /// A number that a query gives.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.0.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Returns once a query gives true.
    pub(crate) async fn until(&self, query: &str) {
        let deadline = Instant::now() + TOO_LONG;
        while !self.look(query).await.get::<_, bool>(0) {
            assert!(Instant::now() < deadline, "never true: {query}");
            tokio::task::yield_now().await;
        }
    }

    /// Returns once a query counts that many.
    pub(crate) async fn until_count(&self, query: &str, count: i64) {
        self.until(&format!("SELECT ({query}) = {count}")).await;
    }

    /// The text that a statement answers with.
    pub(crate) async fn ask(&self, statement: &str) -> String {
        self.try_ask(statement).await.unwrap()
    }

    pub(crate) async fn try_ask(&self, statement: &str) -> Result<String, Refused> {
        let answer = self.0.query_one(statement, &[]).await;
        answer.map(|row| row.get(0)).map_err(|error| {
            let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
            let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
            Refused {
                state: error.code().code().to_owned(),
                message: error.message().to_owned(),
                detail: text(error.detail()),
                column: text(error.column()),
            }
        })
    }

    /// How a statement is refused.
    pub(crate) async fn refused(&self, statement: &str) -> Refused {
        self.try_ask(statement).await.unwrap_err()
    }

    /// Returns once another connection to this database waits for a lock.
    pub(crate) async fn until_somebody_waits(&self) {
        self.until(&format!("SELECT ({WAITING}) > 0")).await;
    }

    /// What a query gives now. Within a transaction the server would show its activity as it was at the first look.
    async fn look(&self, query: &str) -> tokio_postgres::Row {
        self.say("SELECT pg_stat_clear_snapshot()").await;
        self.0.query_one(query, &[]).await.unwrap()
    }
}

/// An error of the server.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) state: String,
    pub(crate) message: String,
    pub(crate) detail: String,
    pub(crate) column: String,
}
