//! What the same database does with a table of three columns and nothing around it.

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::table::{Table, per_second};

const TABLE: &str =
    "CREATE TABLE raw (id TEXT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, payload TEXT NOT NULL)";
const SIZES: [usize; 2] = [1, 1000];

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|_| Uuid::now_v7().to_string()).collect()
}

fn payload() -> String {
    "x".repeat(240)
}

fn label(what: &str, size: usize) -> String {
    format!("{what}, {size} a commit")
}

/// Repeats something that does `size` things; gives how many a second.
fn repeat(span: Duration, size: usize, mut once: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < span {
        once();
        done += size;
    }
    done as f64 / began.elapsed().as_secs_f64()
}

/// The limits of SQLite in a folder, with the settings of the store, and of the disk below it.
pub(crate) fn sqlite(folder: &Path, span: Duration) -> String {
    let mut table = Table::new("### Raw limits of SQLite and of the disk");
    table.column("one connection");
    table.put("append 4 KiB and fdatasync", per_second(fsyncs(&folder.join("appended"), span)));
    let conn = rusqlite::Connection::open(folder.join("raw.db")).unwrap();
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;")
        .unwrap();
    conn.execute_batch(TABLE).unwrap();
    let payload = payload();
    let transaction = |text: &str, ids: &[String]| {
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut statement = conn.prepare_cached(text).unwrap();
        for id in ids {
            statement.execute((id, &payload)).unwrap();
        }
        drop(statement);
        conn.execute_batch("COMMIT").unwrap();
    };
    for size in SIZES {
        let insert = "INSERT INTO raw (id, n, payload) VALUES (?1, 0, ?2)";
        let rate = repeat(span, size, || transaction(insert, &ids(size)));
        table.put(&label("insert", size), per_second(rate));
    }
    let there = ids(1000);
    transaction("INSERT INTO raw (id, n, payload) VALUES (?1, 0, ?2)", &there);
    for size in SIZES {
        let update = "UPDATE raw SET n = n + 1, payload = ?2 WHERE id = ?1";
        let rate = repeat(span, size, || transaction(update, &there[..size]));
        table.put(&label("update by key", size), per_second(rate));
    }
    table.to_string()
}

fn fsyncs(path: &Path, span: Duration) -> f64 {
    let mut file = std::fs::File::create(path).unwrap();
    repeat(span, 1, || {
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
    })
}

/// A database of its own on the server.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn create(server: &str) -> Self {
        let name = format!("bench{}", Uuid::now_v7().simple());
        connect(server).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let (front, _) = server.rsplit_once('/').unwrap();
        Self { server: server.to_owned(), url: format!("{front}/{name}"), name }
    }

    pub(crate) async fn drop_it(self) {
        let text = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        connect(&self.server).await.batch_execute(&text).await.unwrap();
    }

    /// What one connection does, with many rows in one statement where many go into a commit.
    pub(crate) async fn limits(&self, span: Duration) -> String {
        let mut table = Table::new("### Raw limits of PostgreSQL");
        table.column("one connection");
        let client = connect(&self.url).await;
        client.batch_execute(TABLE).await.unwrap();
        let insert = client
            .prepare("INSERT INTO raw (id, n, payload) SELECT id, 0, $2 FROM UNNEST($1::text[]) AS r(id)")
            .await
            .unwrap();
        let update = client
            .prepare(
                "UPDATE raw SET n = n + 1, payload = $2 FROM UNNEST($1::text[]) AS r(id) WHERE raw.id = r.id",
            )
            .await
            .unwrap();
        let payload = payload();
        for size in SIZES {
            let once = || async { client.execute(&insert, &[&ids(size), &payload]).await.unwrap() };
            table.put(&label("insert", size), per_second(repeat_async(span, once).await));
        }
        let there = ids(1000);
        client.execute(&insert, &[&there, &payload]).await.unwrap();
        for size in SIZES {
            let some = &there[..size];
            let once = || async { client.execute(&update, &[&some, &payload]).await.unwrap() };
            table.put(&label("update by key", size), per_second(repeat_async(span, once).await));
        }
        client.batch_execute("DROP TABLE raw").await.unwrap();
        table.to_string()
    }
}

async fn repeat_async<Fut: Future<Output = u64>>(span: Duration, once: impl Fn() -> Fut) -> f64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < span {
        done += once().await;
    }
    done as f64 / began.elapsed().as_secs_f64()
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
