//! The extension `vector` of PostgreSQL: whether this database has it, and what to do if not.
//!
//! Always true: nothing fails for want of it. It may come at any time, and `coolant migrate` takes it up.
//!
//! Elsewhere: what is made of it (`sql::vector_index`).

use coolant_core::store::StoreResult;

use crate::clock::StoreClock;
use crate::conn::Conn;
use crate::sql::vector_index;
use crate::store::{Condition, Finding};

/// What a database has of the extension.
#[derive(Debug, PartialEq, Eq)]
enum Extension {
    /// Usable.
    Ready { version: String },
    /// Without `halfvec` or iterative scans.
    TooOld { version: String },
    /// In a schema where its types are not found.
    OutOfSight { schema: String },
    /// The server has it, the database does not.
    NotCreated,
    /// The server does not have it.
    NotInstalled,
}

async fn look(conn: &mut Conn) -> StoreResult<Extension> {
    let text = "SELECT e.extversion, n.nspname, (to_regtype('halfvec') IS NOT NULL)::int FROM pg_extension e \
                JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'";
    if let Some(mut row) = conn.query(text, &[]).await?.pop() {
        let (version, schema, is_seen) = (row.text()?, row.text()?, row.int()? == 1);
        return Ok(match (is_recent(&version), is_seen) {
            (false, _) => Extension::TooOld { version },
            (true, false) => Extension::OutOfSight { schema },
            (true, true) => Extension::Ready { version },
        });
    }
    let text = "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'";
    let available = conn.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    Ok(if available == 0 { Extension::NotInstalled } else { Extension::NotCreated })
}

/// 0.8 has both what is needed.
fn is_recent(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (0, 8)
}

/// Takes up the extension if it is there, or can be had without asking anybody. Part of every migration.
pub(crate) async fn arrange(conn: &mut Conn, now_ms: i64) -> StoreResult<()> {
    let mut found = look(conn).await?;
    if found == Extension::NotCreated {
        conn.script("SAVEPOINT extension").await?;
        if let Err(error) = conn.script("CREATE EXTENSION vector SCHEMA public").await {
            conn.script("ROLLBACK TO extension").await?;
            tracing::info!(%error, "going on without the extension `vector`");
        }
        conn.script("RELEASE extension").await?;
        found = look(conn).await?;
    }
    if matches!(found, Extension::Ready { .. }) && !vector_index::exists(conn).await? {
        vector_index::create(conn, now_ms).await?;
    }
    Ok(())
}

/// How long documents may wait for the index before somebody should look, in milliseconds.
const LONG_WAIT_MS: i64 = 10 * 60 * 1000;

/// Says what the database has, and how to get what it lacks.
pub(crate) async fn examine(conn: &mut Conn, clock: &StoreClock) -> StoreResult<Finding> {
    let text = "SELECT current_setting('server_version_num')::bigint / 10000";
    let major = conn.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    let what_for = "without it a vector search reads every vector of its tenant, which is slow from about \
                    20 000 chunks on";
    let create = "run `CREATE EXTENSION vector` in this database as its owner or a superuser, then \
                  `coolant migrate`";
    let detail = match look(conn).await? {
        Extension::Ready { version } if vector_index::exists(conn).await? => {
            return ready(conn, clock, &version).await;
        }
        Extension::Ready { version } => {
            format!("pgvector {version} is there and not used yet: run `coolant migrate`")
        }
        Extension::TooOld { version } => format!(
            "pgvector {version} is too old, 0.8 is needed ({what_for}): install a newer package \
             (`postgresql-{major}-pgvector`), run `ALTER EXTENSION vector UPDATE`, then `coolant migrate`"
        ),
        Extension::OutOfSight { schema } => format!(
            "pgvector is in the schema `{schema}`, where it is not looked for: run `ALTER EXTENSION vector \
             SET SCHEMA public`, then `coolant migrate`"
        ),
        Extension::NotCreated => {
            format!("pgvector is installed, but not in this database ({what_for}): {create}")
        }
        Extension::NotInstalled => format!(
            "this server does not have pgvector ({what_for}): install its package (`postgresql-{major}-pgvector` \
             on Debian and Ubuntu), {create}"
        ),
    };
    Ok(finding(Condition::Warning, detail))
}

/// What there is to say about an index in use.
async fn ready(conn: &mut Conn, clock: &StoreClock, version: &str) -> StoreResult<Finding> {
    let text = "SELECT count(*), min(fresh_since) FROM documents WHERE fresh_since IS NOT NULL";
    let (waiting, since) = match conn.query(text, &[]).await?.pop() {
        Some(mut row) => (row.int()?, row.maybe_int()?),
        None => (0, None),
    };
    let lacking = vector_index::lacking(conn).await?.len();
    let now_ms = clock.now(conn).await?.as_millis();
    let waited_ms = since.map_or(0, |since| now_ms - since);
    let mut detail = format!("pgvector {version}");
    if waiting > 0 {
        detail.push_str(&format!("; {waiting} documents are not in the index of vectors yet"));
    }
    if lacking > 0 {
        detail.push_str(&format!("; {lacking} large models have no HNSW index yet"));
    }
    let is_stuck = waited_ms > LONG_WAIT_MS || lacking > 0;
    if is_stuck {
        detail.push_str(": every `coolant serve` and `coolant work` makes them, if its user owns the tables");
    }
    Ok(finding(if is_stuck { Condition::Warning } else { Condition::Good }, detail))
}

fn finding(condition: Condition, detail: String) -> Finding {
    Finding::new("vectors", condition, detail)
}

#[cfg(test)]
mod tests {
    use super::is_recent;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, recent) in
            [("0.8.6", true), ("0.10.0", true), ("1.0", true), ("0.7.4", false), ("", false)]
        {
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }
}
