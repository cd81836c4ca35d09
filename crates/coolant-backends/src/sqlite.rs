//! SQLite: opening a file and speaking to it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coolant_core::store::StoreError;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql};

use crate::conn::{Row, Value, unavailable};

/// How long the opening of a file waits for a writer of another process, which may be migrating.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// How long a group of writes waits for a writer of another process. Whoever holds a file for longer is no
/// writer of this program: a copy being made, or a process that was stopped.
pub(crate) const GROUP_WAIT: Duration = Duration::from_secs(4);

/// Opens the file for writing, and makes it if it is not there.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if let Some(folder) = path.parent()
        && !folder.as_os_str().is_empty()
    {
        std::fs::create_dir_all(folder).map_err(unavailable)?;
    }
    let conn = Connection::open(path).map_err(error)?;
    settle_in(&conn)?;
    use_write_ahead_log(&conn)?;
    // An accepted job and a finished paid call must survive the power going off: FULL, in every group.
    conn.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;").map_err(error)?;
    Ok(conn)
}

/// Of several processes that open a new file at the same moment one makes the switch; the others are told at
/// once that it is locked, without the busy wait, and have to ask again.
fn use_write_ahead_log(conn: &Connection) -> Result<(), StoreError> {
    let deadline = Instant::now() + BUSY_WAIT;
    loop {
        let switched = conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
        match switched {
            Err(fault) if is_busy(&fault) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome.map_err(error),
        }
    }
}

fn is_busy(fault: &rusqlite::Error) -> bool {
    matches!(fault.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Opens the file for reading; it has to be there.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(error)?;
    settle_in(&conn)?;
    Ok(conn)
}

/// Sets how long it waits for a writer of another process.
pub(crate) fn wait_for_others(conn: &Connection, wait: Duration) -> Result<(), StoreError> {
    conn.busy_timeout(wait).map_err(error)
}

fn settle_in(conn: &Connection) -> Result<(), StoreError> {
    wait_for_others(conn, BUSY_WAIT)?;
    conn.set_prepared_statement_cache_capacity(128);
    conn.execute_batch("PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;").map_err(error)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(int) => ValueRef::Integer(*int),
            Self::Real(real) => ValueRef::Real(*real),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

pub(crate) fn query(conn: &Connection, text: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
    let mut statement = conn.prepare_cached(text).map_err(error)?;
    let mut found = Vec::new();
    run(&mut statement, params.iter(), keep(&mut found))?;
    Ok(found)
}

pub(crate) fn each_row(
    conn: &Connection,
    text: &str,
    params: &[Value],
    take: impl FnMut(Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = conn.prepare_cached(text).map_err(error)?;
    run(&mut statement, params.iter(), take)
}

pub(crate) fn execute(conn: &Connection, text: &str, params: &[Value]) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached(text).map_err(error)?;
    let touched = statement.execute(rusqlite::params_from_iter(params)).map_err(error)?;
    Ok(touched as u64)
}

/// Runs a statement once for each row and gives what all runs returned.
pub(crate) fn query_each(
    conn: &Connection,
    text: &str,
    params: &[Value],
    rows: &[Vec<Value>],
) -> Result<Vec<Row>, StoreError> {
    let mut statement = conn.prepare_cached(text).map_err(error)?;
    let mut found = Vec::new();
    for row in rows {
        run(&mut statement, params.iter().chain(row), keep(&mut found))?;
    }
    Ok(found)
}

/// Runs a statement once for each row and gives how many rows all runs touched.
pub(crate) fn execute_each(
    conn: &Connection,
    text: &str,
    params: &[Value],
    rows: &[Vec<Value>],
) -> Result<u64, StoreError> {
    let mut statement = conn.prepare_cached(text).map_err(error)?;
    let mut touched = 0;
    for row in rows {
        touched += statement.execute(rusqlite::params_from_iter(params.iter().chain(row))).map_err(error)?;
    }
    Ok(touched as u64)
}

fn run<'a>(
    statement: &mut CachedStatement<'_>,
    params: impl Iterator<Item = &'a Value>,
    mut take: impl FnMut(Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let columns = statement.column_count();
    let mut rows = statement.query(rusqlite::params_from_iter(params)).map_err(error)?;
    while let Some(row) = rows.next().map_err(error)? {
        let values: Result<Vec<_>, _> = (0..columns).map(|index| read(row, index)).collect();
        take(Row(values?.into_iter()))?;
    }
    Ok(())
}

fn keep(found: &mut Vec<Row>) -> impl FnMut(Row) -> Result<(), StoreError> {
    |row| {
        found.push(row);
        Ok(())
    }
}

fn read(row: &rusqlite::Row<'_>, index: usize) -> Result<Value, StoreError> {
    Ok(match row.get_ref(index).map_err(error)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(int) => Value::Int(int),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Text(text) => Value::Text(
            String::from_utf8(text.to_vec()).map_err(|_| StoreError::Broken("text is not UTF-8".into()))?,
        ),
    })
}

/// What a fault of SQLite means to the store's callers.
pub(crate) fn error(error: rusqlite::Error) -> StoreError {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, OutOfMemory,
        ReadOnly, SystemIoFailure,
    };
    match error.sqlite_error_code() {
        Some(DiskFull) => StoreError::Full(Arc::new(error)),
        Some(DatabaseBusy | DatabaseLocked | CannotOpen | SystemIoFailure | ReadOnly | OutOfMemory) => {
            unavailable(error)
        }
        Some(NotADatabase | DatabaseCorrupt) => {
            StoreError::Broken(format!("the file is no sound SQLite database ({error})"))
        }
        _ => StoreError::Broken(error.to_string()),
    }
}
