//! PostgreSQL: a pool of connections and speaking to them.

use std::time::Duration;

use coolant_core::store::StoreError;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use futures::TryStreamExt;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{NoTls, SimpleQueryMessage, Statement};

use crate::conn::{Columns, Kind, Row, Value, unavailable};

/// How long a call waits for a connection before the store counts as away.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// What connections are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Statements that find each row by an index, again and again.
    Write,
    /// The same for what others hold for longer.
    PatientWrite,
    /// Anything that people ask.
    Read,
    /// Hints. One that a crash loses need not wait for a disk.
    Hint,
    /// Nothing but holding a lock. The server soon finds out that a machine is gone without a word.
    ProcessLock,
}

impl Purpose {
    /// Everything of ours is in a schema of its own, so that no table of the users' is in the way. Compiling
    /// a statement costs more than it ever saves here. A transaction of a process that was stopped in the middle
    /// of it ends soon, and no statement runs for ever with nobody left who waits for it.
    ///
    /// Writers ask by key. A plan made while a table was small, or before its first ANALYZE, would scan it
    /// whole and be kept while it grows: they plan each statement once, and never a scan. What they wait for
    /// is another writer's commit, except for what somebody else holds (`stuck`): that must not hold up a
    /// lane, and with it everybody else.
    fn settings(self) -> String {
        let own = match self {
            Self::Read => "-c idle_in_transaction_session_timeout=60s",
            Self::Write => "-c lock_timeout=500ms",
            Self::PatientWrite => "-c lock_timeout=2s",
            Self::Hint => return "-c synchronous_commit=off -c idle_session_timeout=0".into(),
            Self::ProcessLock => {
                return "-c idle_session_timeout=0 -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 \
                        -c tcp_keepalives_count=2"
                    .into();
            }
        };
        let writing = match self {
            Self::Write | Self::PatientWrite => {
                " -c idle_in_transaction_session_timeout=10s -c plan_cache_mode=force_generic_plan \
                 -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
            }
            _ => "",
        };
        format!("{own}{writing} -c statement_timeout=60s -c search_path=coolant,public -c jit=off")
    }
}

/// How to connect for that purpose.
pub(crate) fn config(url: &str, purpose: Purpose) -> Result<tokio_postgres::Config, StoreError> {
    let mut config: tokio_postgres::Config =
        url.parse().map_err(|error| StoreError::Broken(format!("the store's address is wrong: {error}")))?;
    config.connect_timeout(CONNECT_WAIT);
    config.keepalives_idle(Duration::from_secs(10));
    config.application_name("coolant");
    config.options(purpose.settings());
    // Of several hosts the one that takes writes; and none that a failover has left behind.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    // A server that answers no more must not hold a lane for ever.
    config.tcp_user_timeout(Duration::from_secs(15));
    Ok(config)
}

/// Opens a pool of that many connections at most. Nothing is connected yet.
pub(crate) fn pool(url: &str, size: usize, purpose: Purpose) -> Result<Pool, StoreError> {
    let config = config(url, purpose)?;
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config, NoTls, recycling))
        .max_size(size)
        .wait_timeout(Some(CONNECT_WAIT))
        .create_timeout(Some(CONNECT_WAIT))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| StoreError::Broken(error.to_string()))
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(int) => int.to_sql_checked(ty, out),
            Self::Real(real) => real.to_sql_checked(ty, out),
            Self::Text(text) => text.to_sql_checked(ty, out),
            Self::Bytes(bytes) => bytes.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

pub(crate) async fn query(client: &Object, text: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
    let statement = client.prepare_cached(text).await.map_err(error)?;
    let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
    let rows = client.query(&statement, &params).await.map_err(error)?;
    read(&statement, &rows)
}

/// The server sends on as rows are taken; no more than a few wait here.
pub(crate) async fn each_row(
    client: &Object,
    text: &str,
    params: &[Value],
    mut take: impl FnMut(Row) -> Result<(), StoreError> + Send,
) -> Result<(), StoreError> {
    let statement = client.prepare_cached(text).await.map_err(error)?;
    let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
    let mut rows = std::pin::pin!(client.query_raw(&statement, params).await.map_err(error)?);
    while let Some(row) = rows.try_next().await.map_err(error)? {
        read(&statement, &[row])?.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

pub(crate) async fn execute(client: &Object, text: &str, params: &[Value]) -> Result<u64, StoreError> {
    let statement = client.prepare_cached(text).await.map_err(error)?;
    let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
    client.execute(&statement, &params).await.map_err(error)
}

/// Opens a transaction that will write and gives the time in it, in milliseconds: one trip for both.
pub(crate) async fn begin_at_now(client: &Object) -> Result<i64, StoreError> {
    let text = "BEGIN; SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
    let answer = client.simple_query(text).await.map_err(error)?;
    let time = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).and_then(|ms| ms.parse().ok()),
        _ => None,
    });
    time.ok_or_else(|| StoreError::Broken("the database tells no time".into()))
}

/// Runs a statement once over all rows, a column an array.
pub(crate) async fn query_unnest(
    client: &Object,
    text: &str,
    params: &[Value],
    columns: Columns<'_>,
    rows: Vec<Vec<Value>>,
) -> Result<Vec<Row>, StoreError> {
    let statement = client.prepare_cached(text).await.map_err(error)?;
    let arrays = arrays(columns, rows)?;
    let rows = client.query(&statement, &all(params, &arrays)).await.map_err(error)?;
    read(&statement, &rows)
}

/// The same for the effect alone; gives how many rows were touched.
pub(crate) async fn execute_unnest(
    client: &Object,
    text: &str,
    params: &[Value],
    columns: Columns<'_>,
    rows: Vec<Vec<Value>>,
) -> Result<u64, StoreError> {
    let statement = client.prepare_cached(text).await.map_err(error)?;
    let arrays = arrays(columns, rows)?;
    client.execute(&statement, &all(params, &arrays)).await.map_err(error)
}

type Array = Box<dyn ToSql + Sync + Send>;

fn all<'a>(params: &'a [Value], arrays: &'a [Array]) -> Vec<&'a (dyn ToSql + Sync)> {
    let params = params.iter().map(|value| value as &(dyn ToSql + Sync));
    params.chain(arrays.iter().map(|array| &**array as &(dyn ToSql + Sync))).collect()
}

fn arrays(columns: Columns<'_>, rows: Vec<Vec<Value>>) -> Result<Vec<Array>, StoreError> {
    let count = rows.len();
    let mut by_column: Vec<Vec<Value>> = columns.iter().map(|_| Vec::with_capacity(count)).collect();
    for row in rows {
        for (column, value) in by_column.iter_mut().zip(row) {
            column.push(value);
        }
    }
    columns.iter().zip(by_column).map(|((name, kind), values)| array(name, *kind, values)).collect()
}

fn array(name: &str, kind: Kind, values: Vec<Value>) -> Result<Array, StoreError> {
    let wrong = |value: &Value| StoreError::Broken(format!("column `{name}` cannot hold {value:?}"));
    macro_rules! typed {
        ($variant:ident) => {
            Box::new(
                values
                    .into_iter()
                    .map(|value| match value {
                        Value::Null => Ok(None),
                        Value::$variant(inner) => Ok(Some(inner)),
                        other => Err(wrong(&other)),
                    })
                    .collect::<Result<Vec<_>, _>>()?,
            )
        };
    }
    Ok(match kind {
        Kind::Int => typed!(Int),
        Kind::Text => typed!(Text),
        Kind::Bytes => typed!(Bytes),
    })
}

fn read(statement: &Statement, rows: &[tokio_postgres::Row]) -> Result<Vec<Row>, StoreError> {
    let types: Vec<&Type> = statement.columns().iter().map(tokio_postgres::Column::type_).collect();
    rows.iter()
        .map(|row| {
            let values: Result<Vec<_>, _> =
                types.iter().enumerate().map(|(index, ty)| column(row, index, ty)).collect();
            Ok(Row(values?.into_iter()))
        })
        .collect()
}

fn column(row: &tokio_postgres::Row, index: usize, ty: &Type) -> Result<Value, StoreError> {
    Ok(match *ty {
        Type::INT8 => row.try_get::<_, Option<i64>>(index).map_err(error)?.into(),
        Type::INT4 => row.try_get::<_, Option<i32>>(index).map_err(error)?.map(i64::from).into(),
        Type::BOOL => row.try_get::<_, Option<bool>>(index).map_err(error)?.map(i64::from).into(),
        Type::TEXT | Type::VARCHAR | Type::NAME => {
            row.try_get::<_, Option<String>>(index).map_err(error)?.into()
        }
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(index).map_err(error)?.into(),
        Type::FLOAT8 => match row.try_get::<_, Option<f64>>(index).map_err(error)? {
            Some(real) => Value::Real(real),
            None => Value::Null,
        },
        ref other => return Err(StoreError::Broken(format!("a column of type {other} is not expected"))),
    })
}

/// What a fault of PostgreSQL means to the store's callers. `Broken` is for what no repetition mends.
pub(crate) fn error(error: tokio_postgres::Error) -> StoreError {
    let Some(code) = error.code().cloned() else {
        // Without a code it is the connection that failed, or this program that asked nonsense.
        let said = error.to_string();
        let ours = ["error serializing", "error deserializing", "invalid column", "parameter"];
        return match ours.iter().any(|start| said.starts_with(start)) {
            true => StoreError::Broken(said),
            false => away(&error),
        };
    };
    let passing = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::QUERY_CANCELED,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    match code {
        SqlState::DISK_FULL => StoreError::Full(std::sync::Arc::new(error)),
        SqlState::LOCK_NOT_AVAILABLE => unavailable(LockedOut(said(&error))),
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
            StoreError::NotMigrated(said(&error))
        }
        code if passing.contains(&code) || code.code().starts_with("08") || code.code().starts_with("53") => {
            away(&error)
        }
        _ => StoreError::Broken(said(&error)),
    }
}

/// Shortens the wait for what others hold, or puts it back to what it is for this connection.
pub(crate) async fn hurry(client: &Object, hurry: bool) -> Result<(), StoreError> {
    let text = if hurry { "SET lock_timeout = '100ms'" } else { "RESET lock_timeout" };
    client.batch_execute(text).await.map_err(error)
}

/// Others hold what a request wants.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct LockedOut(String);

/// Whether a call failed only because somebody else's transaction holds what it wants.
pub(crate) fn is_locked_out(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(cause) if cause.is::<LockedOut>())
}

/// What the server said, or why it could not: the driver's own text is "db error" for all of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

fn away(error: &tokio_postgres::Error) -> StoreError {
    unavailable(Said(said(error)))
}

/// Without the detail, which may quote rows.
fn said(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// A fault of the pool: no connection in time, or none to be had.
pub(crate) fn pool_error(fault: deadpool_postgres::PoolError) -> StoreError {
    match fault {
        deadpool_postgres::PoolError::Backend(backend) => error(backend),
        other => unavailable(other),
    }
}
