//! Migrations: the schema, brought up to date in steps that are never edited once released.
//!
//! Always true:
//! - a step is applied whole or not at all, and written down with the hash of its text;
//! - one process migrates while others wait; each step runs once;
//! - a store newer than this program is refused, not touched.
//!
//! Elsewhere: what a database may have or not, and gets by migrating once more (`pgvector`).

use coolant_core::store::{StoreError, StoreResult};

use crate::conn::{Conn, Dialect, Value};
use crate::pgvector;

/// One step: the text that both databases share, and what only one of them needs.
struct Migration {
    name: &'static str,
    shared: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "jobs",
        shared: include_str!("../migrations/0001_jobs.sql"),
        sqlite: "",
        postgres: include_str!("../migrations/0001_jobs.postgres.sql"),
    },
    Migration {
        name: "documents",
        shared: include_str!("../migrations/0002_documents.sql"),
        sqlite: include_str!("../migrations/0002_documents.sqlite.sql"),
        postgres: include_str!("../migrations/0002_documents.postgres.sql"),
    },
    Migration {
        name: "schedules",
        shared: include_str!("../migrations/0003_schedules.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        name: "sql_submit",
        shared: "",
        sqlite: "",
        postgres: include_str!("../migrations/0004_sql_submit.postgres.sql"),
    },
];

/// Locks out other migrating processes on PostgreSQL: "coolant" in ASCII.
const ADVISORY_KEY: i64 = 0x0063_6f6f_6c61_6e74;

impl Migration {
    fn text(&self, dialect: Dialect) -> String {
        let (bytes, sequence, own) = match dialect {
            Dialect::Sqlite => ("BLOB", "INTEGER PRIMARY KEY", self.sqlite),
            Dialect::Postgres => ("BYTEA", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", self.postgres),
        };
        format!("{}\n{own}", self.shared.replace("{bytes}", bytes).replace("{sequence}", sequence))
    }

    fn checksum(&self, dialect: Dialect) -> String {
        use sha2::{Digest, Sha256};
        Sha256::digest(self.text(dialect)).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Brings the schema up to date. Gives how many steps that took.
///
/// # Errors
/// [`StoreError::NotMigrated`] where the store is newer than this program, or a step of it was another.
pub(crate) async fn migrate(conn: &mut Conn, now_ms: i64) -> StoreResult<usize> {
    conn.begin().await?;
    let outcome = migrate_in_transaction(conn, now_ms).await;
    match outcome {
        Ok(steps) => conn.commit().await.map(|()| steps),
        Err(error) => {
            conn.rollback().await;
            Err(error)
        }
    }
}

async fn migrate_in_transaction(conn: &mut Conn, now_ms: i64) -> StoreResult<usize> {
    let dialect = conn.dialect();
    if dialect == Dialect::Postgres {
        conn.script("SET LOCAL lock_timeout = 0").await?;
        conn.query("SELECT pg_advisory_xact_lock($1)::text", &[ADVISORY_KEY.into()]).await?;
        // `IF NOT EXISTS` would ask for the right to create schemas also where an operator made this one.
        let found = conn.query("SELECT count(to_regnamespace('coolant'))", &[]).await?.pop();
        if found.map_or(Ok(0), |mut row| row.int())? == 0 {
            conn.script("CREATE SCHEMA coolant").await?;
        }
    }
    conn.script(
        "CREATE TABLE IF NOT EXISTS schema_migrations (number BIGINT NOT NULL PRIMARY KEY, \
         name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)",
    )
    .await?;
    let applied = applied(conn).await?;
    check_against(&applied, dialect)?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(applied.len()) {
        conn.script(&migration.text(dialect)).await?;
        let params: [Value; 4] =
            [number(index).into(), migration.name.into(), migration.checksum(dialect).into(), now_ms.into()];
        conn.execute("INSERT INTO schema_migrations VALUES ($1, $2, $3, $4)", &params).await?;
    }
    if dialect == Dialect::Postgres {
        pgvector::arrange(conn, now_ms).await?;
    }
    Ok(MIGRATIONS.len() - applied.len())
}

/// Whether the schema is the one this program needs.
///
/// # Errors
/// [`StoreError::NotMigrated`], saying what to do.
pub(crate) async fn check(conn: &mut Conn) -> StoreResult<()> {
    let missing = |_| StoreError::NotMigrated("it has no tables yet: run `coolant migrate`".into());
    let exists = match conn.dialect() {
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'",
        Dialect::Postgres => "SELECT count(to_regclass('coolant.schema_migrations'))",
    };
    let found = conn.query(exists, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    if found == 0 {
        return Err(missing(()));
    }
    let applied = applied(conn).await?;
    check_against(&applied, conn.dialect())?;
    match MIGRATIONS.len() - applied.len() {
        0 => Ok(()),
        left => Err(StoreError::NotMigrated(format!("{left} steps are missing: run `coolant migrate`"))),
    }
}

async fn applied(conn: &mut Conn) -> StoreResult<Vec<(i64, String)>> {
    let rows = conn.query("SELECT number, checksum FROM schema_migrations ORDER BY number", &[]).await?;
    rows.into_iter().map(|mut row| Ok((row.int()?, row.text()?))).collect()
}

fn check_against(applied: &[(i64, String)], dialect: Dialect) -> StoreResult<()> {
    if applied.len() > MIGRATIONS.len() {
        return Err(StoreError::NotMigrated(
            "it was made by a newer version of coolant: run that version, or a newer one".into(),
        ));
    }
    for (index, ((found, checksum), migration)) in applied.iter().zip(MIGRATIONS).enumerate() {
        if *found != number(index) || *checksum != migration.checksum(dialect) {
            let name = migration.name;
            let text = format!("step {} (`{name}`) is not the one this version knows", number(index));
            return Err(StoreError::NotMigrated(text));
        }
    }
    Ok(())
}

fn number(index: usize) -> i64 {
    index as i64 + 1
}
