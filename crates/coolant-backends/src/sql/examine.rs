//! Examination: what is wrong with a store, and what to do about it.
//!
//! Elsewhere: the extension for vectors (`pgvector`), who prints it (`coolant doctor`).

use std::collections::BTreeSet;
use std::time::Duration;

use coolant_core::store::StoreResult;
use coolant_core::time::{millis_up, spoken};

use crate::clock::StoreClock;
use crate::conn::{Conn, Dialect};
use crate::migrate;
use crate::store::{Condition, Finding, Tolerance};

/// Looks for what is wrong with the store itself.
pub(crate) async fn examine(
    conn: &mut Conn,
    clock: &StoreClock,
    tolerance: &Tolerance,
) -> StoreResult<Vec<Finding>> {
    let mut findings = vec![clock_finding(conn, clock).await?, schema_finding(conn).await];
    findings.push(indexes_finding(conn).await?);
    let (what, text, good) = match conn.dialect() {
        Dialect::Sqlite => ("integrity", "SELECT quick_check FROM pragma_quick_check LIMIT 1", "ok"),
        Dialect::Postgres => ("durability", "SELECT current_setting('fsync')", "on"),
    };
    let said = conn.query(text, &[]).await?.pop().map_or(Ok(String::new()), |mut row| row.text())?;
    let condition = if said == good { Condition::Good } else { Condition::Bad };
    let detail = match conn.dialect() {
        Dialect::Sqlite => format!("SQLite's own check says: {said}"),
        Dialect::Postgres => format!("fsync is {said}; off, accepted jobs are lost when the power goes"),
    };
    findings.push(Finding::new(what, condition, detail));
    if conn.dialect() == Dialect::Postgres {
        findings.push(crate::pgvector::examine(conn, clock).await?);
        findings.push(transactions_finding(conn, tolerance.open_transaction).await?);
        findings.push(dead_rows_finding(conn, tolerance.dead_rows).await?);
    }
    Ok(findings)
}

/// The farthest that the machine's clock may be from the store's before somebody should look, in
/// milliseconds.
const CLOCK_SKEW_MS: i64 = 2000;

async fn clock_finding(conn: &mut Conn, clock: &StoreClock) -> StoreResult<Finding> {
    let skew = clock.now(conn).await?.as_millis() - crate::clock::wall_ms();
    if skew.abs() <= CLOCK_SKEW_MS {
        let detail = format!("the store's clock and this machine's differ by {} ms", skew.abs());
        return Ok(Finding::new("clock", Condition::Good, detail));
    }
    let detail = format!(
        "the store's clock is {} ms {} this machine's: leases follow the store's, `run_at` is read by it",
        skew.abs(),
        if skew > 0 { "ahead of" } else { "behind" }
    );
    Ok(Finding::new("clock", Condition::Warning, detail))
}

async fn schema_finding(conn: &mut Conn) -> Finding {
    let (condition, detail) = match crate::migrate::check(conn).await {
        Ok(()) => (Condition::Good, "up to date".to_owned()),
        Err(error) => (Condition::Bad, error.to_string()),
    };
    Finding::new("schema", condition, detail)
}

/// Whether every index that the steps of the schema make is there, and usable.
async fn indexes_finding(conn: &mut Conn) -> StoreResult<Finding> {
    let text = match conn.dialect() {
        Dialect::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'index'",
        Dialect::Postgres => {
            "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
             WHERE c.relnamespace = 'coolant'::regnamespace AND i.indisvalid"
        }
    };
    let mut there = BTreeSet::new();
    for mut row in conn.query(text, &[]).await? {
        there.insert(row.text()?);
    }
    let expected = migrate::indexes(conn.dialect());
    let count = expected.len();
    let missing: Vec<String> = expected
        .into_iter()
        .filter(|(name, _)| !there.contains(name))
        .map(|(name, create)| match conn.dialect() {
            Dialect::Sqlite => format!("`{name}`: run `{create}`"),
            // Without keeping writers out.
            Dialect::Postgres => {
                let create = create.replacen("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1);
                format!("`{name}`: run `{}`", create.replacen(" ON ", " ON coolant.", 1))
            }
        })
        .collect();
    Ok(match missing.as_slice() {
        [] => Finding::new("indexes", Condition::Good, format!("all {count} are there")),
        missing => {
            let detail = format!("missing, so that some calls read whole tables: {}", missing.join("; "));
            Finding::new("indexes", Condition::Bad, detail)
        }
    })
}

/// The most that is named of anything.
const NAMED: usize = 5;

/// Transactions that have been open for long. As long as one is, no vacuum clears what was deleted or
/// replaced since it began, and every claim walks over that.
async fn transactions_finding(conn: &mut Conn, tolerated: Duration) -> StoreResult<Finding> {
    // Those of another user show their age to members of pg_monitor and superusers alone.
    let text = "SELECT pid::bigint, coalesce(state, ''), coalesce(application_name, ''), \
                (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND backend_type = 'client backend' \
                AND xact_start < clock_timestamp() - $1::bigint * interval '1 millisecond' \
                ORDER BY xact_start";
    let mut open = Vec::new();
    for mut row in conn.query(text, &[millis_up(tolerated).into()]).await? {
        let (pid, state, application, age) = (row.int()?, row.text()?, row.text()?, row.int()?);
        let age = spoken(Duration::from_millis(u64::try_from(age).unwrap_or(0)));
        let of = if application.is_empty() { String::new() } else { format!(" of {application}") };
        open.push(format!("pid {pid}{of}, {state}, open for {age}"));
    }
    let count = open.len();
    if count == 0 {
        let detail = format!("none is open for more than {}", spoken(tolerated));
        return Ok(Finding::new("transactions", Condition::Good, detail));
    }
    open.truncate(NAMED);
    let detail = format!(
        "{count} open for more than {}, so that no vacuum can clear what was replaced since: {}. Let their \
         clients commit, set `idle_in_transaction_session_timeout`, or end one with \
         `SELECT pg_terminate_backend(pid)`",
        spoken(tolerated),
        open.join("; ")
    );
    Ok(Finding::new("transactions", Condition::Warning, detail))
}

/// Tables in which much is dead that no vacuum has cleared.
async fn dead_rows_finding(conn: &mut Conn, tolerated: i64) -> StoreResult<Finding> {
    let text = "SELECT relname::text, n_dead_tup, n_live_tup, \
                coalesce(to_char(greatest(last_vacuum, last_autovacuum) AT TIME ZONE 'UTC', \
                'YYYY-MM-DD HH24:MI'), 'never') FROM pg_stat_user_tables \
                WHERE schemaname = 'coolant' AND n_dead_tup > $1 AND n_dead_tup > n_live_tup / 2 \
                ORDER BY n_dead_tup DESC";
    let mut bloated = Vec::new();
    for mut row in conn.query(text, &[tolerated.into()]).await? {
        let (table, dead, live, vacuumed) = (row.text()?, row.int()?, row.int()?, row.text()?);
        bloated.push(format!("`{table}` has {dead} beside {live} live ones, last vacuum {vacuumed}"));
    }
    if bloated.is_empty() {
        return Ok(Finding::new("dead rows", Condition::Good, "no table has many".into()));
    }
    bloated.truncate(NAMED);
    let detail = format!(
        "{}. See that autovacuum is on and that no transaction stays open; `VACUUM` in this database helps now",
        bloated.join("; ")
    );
    Ok(Finding::new("dead rows", Condition::Warning, detail))
}
