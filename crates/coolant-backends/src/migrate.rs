//! Migrations: the schema, brought up to date in steps that are never edited once released.
//!
//! Always true:
//! - a step is applied whole or not at all, and written down with the hash of its text;
//! - one process migrates while others wait; each step runs once;
//! - steps only add: a program that does not know the newest ones works beside those that do. A step that
//!   an older program cannot live with has a name that begins with `!`, and makes older programs refuse.
//!
//! Elsewhere: what a database may have or not, and gets by migrating once more (`pgvector`).

use std::collections::BTreeMap;

use coolant_core::store::{StoreError, StoreResult};

use crate::conn::{Conn, Dialect, Value};
use crate::pgvector;

/// One step: the text that both databases share, and what only one of them needs.
struct Migration {
    /// Its place in the order, for ever. Steps that were worked on at the same time may leave a gap.
    number: i64,
    name: &'static str,
    shared: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "jobs",
        shared: include_str!("../migrations/0001_jobs.sql"),
        sqlite: "",
        postgres: include_str!("../migrations/0001_jobs.postgres.sql"),
    },
    Migration {
        number: 2,
        name: "documents",
        shared: include_str!("../migrations/0002_documents.sql"),
        sqlite: include_str!("../migrations/0002_documents.sqlite.sql"),
        postgres: include_str!("../migrations/0002_documents.postgres.sql"),
    },
    Migration {
        number: 3,
        name: "schedules",
        shared: include_str!("../migrations/0003_schedules.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 4,
        name: "sql_submit",
        shared: "",
        sqlite: "",
        postgres: include_str!("../migrations/0004_sql_submit.postgres.sql"),
    },
    Migration {
        number: 5,
        name: "gates",
        shared: include_str!("../migrations/0005_gates.sql"),
        sqlite: include_str!("../migrations/0005_gates.sqlite.sql"),
        postgres: include_str!("../migrations/0005_gates.postgres.sql"),
    },
    Migration {
        number: 6,
        name: "turns",
        shared: "",
        sqlite: include_str!("../migrations/0006_turns.sqlite.sql"),
        postgres: include_str!("../migrations/0006_turns.postgres.sql"),
    },
    Migration {
        number: 7,
        name: "processes",
        shared: include_str!("../migrations/0007_processes.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 8,
        name: "upstreams",
        shared: include_str!("../migrations/0008_upstreams.sql"),
        sqlite: "",
        postgres: include_str!("../migrations/0008_upstreams.postgres.sql"),
    },
    Migration {
        number: 10,
        name: "locks",
        shared: include_str!("../migrations/0010_locks.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 11,
        name: "ledger",
        shared: include_str!("../migrations/0011_ledger.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 13,
        name: "lines",
        shared: include_str!("../migrations/0013_lines.sql"),
        sqlite: "",
        postgres: include_str!("../migrations/0013_lines.postgres.sql"),
    },
    Migration {
        number: 14,
        name: "last_turns",
        shared: include_str!("../migrations/0014_last_turns.sql"),
        sqlite: include_str!("../migrations/0014_last_turns.sqlite.sql"),
        postgres: include_str!("../migrations/0014_last_turns.postgres.sql"),
    },
    Migration {
        number: 15,
        name: "due",
        shared: include_str!("../migrations/0015_due.sql"),
        sqlite: "",
        postgres: "",
    },
    Migration {
        number: 16,
        name: "blocked",
        shared: include_str!("../migrations/0016_blocked.sql"),
        sqlite: include_str!("../migrations/0016_blocked.sqlite.sql"),
        postgres: include_str!("../migrations/0016_blocked.postgres.sql"),
    },
    Migration {
        number: 17,
        name: "delayed",
        shared: include_str!("../migrations/0017_delayed.sql"),
        sqlite: include_str!("../migrations/0017_delayed.sqlite.sql"),
        postgres: include_str!("../migrations/0017_delayed.postgres.sql"),
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
        conn.script("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0").await?;
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
    let missing = missing(&applied(conn).await?, dialect)?;
    for migration in &missing {
        conn.script(&migration.text(dialect)).await?;
        let params: [Value; 4] = [
            migration.number.into(),
            migration.name.into(),
            migration.checksum(dialect).into(),
            now_ms.into(),
        ];
        conn.execute("INSERT INTO schema_migrations VALUES ($1, $2, $3, $4)", &params).await?;
    }
    if dialect == Dialect::Postgres {
        pgvector::arrange(conn, now_ms).await?;
    }
    Ok(missing.len())
}

/// Whether the schema is the one this program needs.
///
/// # Errors
/// [`StoreError::NotMigrated`], saying what to do.
pub(crate) async fn check(conn: &mut Conn) -> StoreResult<()> {
    let exists = match conn.dialect() {
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'",
        Dialect::Postgres => "SELECT count(to_regclass('coolant.schema_migrations'))",
    };
    let found = conn.query(exists, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    if found == 0 {
        return Err(StoreError::NotMigrated("it has no tables yet: run `coolant migrate`".into()));
    }
    match missing(&applied(conn).await?, conn.dialect())?.len() {
        0 => Ok(()),
        left => Err(StoreError::NotMigrated(format!("{left} steps are missing: run `coolant migrate`"))),
    }
}

/// The indexes that a migrated store has, by name, each with the statement that makes it.
pub(crate) fn indexes(dialect: Dialect) -> BTreeMap<String, String> {
    let mut indexes = BTreeMap::new();
    for migration in MIGRATIONS {
        let text = migration.text(dialect);
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        for statement in code.join(" ").split(';') {
            let words: Vec<&str> = statement.split_whitespace().collect();
            match words.as_slice() {
                ["CREATE", "INDEX", name, ..] => {
                    indexes.insert((*name).to_owned(), words.join(" "));
                }
                ["DROP", "INDEX", name, ..] => {
                    indexes.remove(*name);
                }
                _ => {}
            }
        }
    }
    indexes
}

/// A step that a store has seen.
struct Applied {
    number: i64,
    name: String,
    checksum: String,
}

/// What the names of steps begin with that older programs cannot live with.
const BREAKS: char = '!';

async fn applied(conn: &mut Conn) -> StoreResult<Vec<Applied>> {
    let text = "SELECT number, name, checksum FROM schema_migrations ORDER BY number";
    let rows = conn.query(text, &[]).await?;
    rows.into_iter()
        .map(|mut row| Ok(Applied { number: row.int()?, name: row.text()?, checksum: row.text()? }))
        .collect()
}

/// The steps that were not applied yet, in their order.
///
/// # Errors
/// [`StoreError::NotMigrated`] where a step was applied that this program knows otherwise, or that it does not
/// know and cannot live with.
fn missing(applied: &[Applied], dialect: Dialect) -> StoreResult<Vec<&'static Migration>> {
    for Applied { number, name, checksum } in applied {
        let Some(known) = MIGRATIONS.iter().find(|migration| migration.number == *number) else {
            if !name.starts_with(BREAKS) {
                continue;
            }
            return Err(StoreError::NotMigrated(
                "it was made by a newer version of coolant: run that version, or a newer one".into(),
            ));
        };
        if *checksum != known.checksum(dialect) {
            let name = known.name;
            let text = format!("step {number} (`{name}`) is not the one this version knows");
            return Err(StoreError::NotMigrated(text));
        }
    }
    let is_applied = |migration: &Migration| applied.iter().any(|it| it.number == migration.number);
    Ok(MIGRATIONS.iter().filter(|migration| !is_applied(migration)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(number: i64, name: &str, checksum: String) -> Applied {
        Applied { number, name: name.into(), checksum }
    }

    fn of(migrations: &[&Migration]) -> Vec<Applied> {
        let seen = |step: &&Migration| seen(step.number, step.name, step.checksum(Dialect::Sqlite));
        migrations.iter().map(seen).collect()
    }

    fn numbers(applied: &[Applied]) -> Vec<i64> {
        missing(applied, Dialect::Sqlite).unwrap().iter().map(|step| step.number).collect()
    }

    #[test]
    fn steps_are_applied_in_their_order_and_a_gap_is_filled() {
        let all: Vec<i64> = MIGRATIONS.iter().map(|step| step.number).collect();
        assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
        assert_eq!(numbers(&[]), all);
        let without_the_second: Vec<_> = MIGRATIONS.iter().filter(|step| step.number != 2).collect();
        assert_eq!(numbers(&of(&without_the_second)), [2]);
    }

    #[test]
    fn a_step_that_is_another_or_breaks_older_programs_is_refused() {
        let said = |applied: &[Applied]| missing(applied, Dialect::Sqlite).err().unwrap().to_string();
        assert!(said(&[seen(i64::MAX, "!later", String::new())]).contains("newer version"));
        assert!(said(&[seen(1, "jobs", "another".into())]).contains("step 1"));
        let mut all = of(&MIGRATIONS.iter().collect::<Vec<_>>());
        all.push(seen(i64::MAX, "later", String::new()));
        assert!(numbers(&all).is_empty(), "one that only adds is let be");
    }
}
