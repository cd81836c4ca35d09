//! Connections: one way to say SQL to SQLite and PostgreSQL.
//!
//! Texts are written once, with `$1` parameters, `TEXT`, `BIGINT` and bytes. Where the two databases need
//! other words, the text has a named hole:
//!
//! | hole | SQLite | PostgreSQL |
//! |---|---|---|
//! | `{lock}` | nothing: there is one writer | `FOR UPDATE` |
//! | `{lock_jobs}` | nothing | `FOR UPDATE OF j` |
//! | `{lock_permits}` | nothing | `FOR UPDATE OF p` |
//! | `{skip}` | nothing | `FOR UPDATE SKIP LOCKED` |
//! | `{skip_jobs}` | nothing | `FOR UPDATE OF j SKIP LOCKED` |
//! | `{rows}` | `(SELECT ?n AS a, …)`, run once a row | `UNNEST($n::text[], …)`, run once |
//! | `{bytewise}` | nothing: texts compare by their bytes | `COLLATE "C"` |
//! | `{from_rows}`, of an update | nothing, and `?n` for each `r.a` | `FROM {rows}` |
//!
//! Elsewhere: who opens connections and transactions (`batch`), what is said (`sql`).

use std::fmt::Write as _;
use std::sync::Arc;

use coolant_core::store::StoreError;

use crate::{postgres, sqlite};

/// A value as both databases keep it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(option: Option<T>) -> Self {
        option.map_or(Self::Null, Into::into)
    }
}

/// The type of a column of `{rows}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Text,
    Bytes,
}

/// The columns of `{rows}`: their names and types.
pub(crate) type Columns<'a> = &'a [(&'a str, Kind)];

/// A row of an answer, read from left to right.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) std::vec::IntoIter<Value>);

impl Row {
    fn wrong(expected: &str, found: &Value) -> StoreError {
        StoreError::Broken(format!("expected {expected} in a column, found {found:?}"))
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(|| StoreError::Broken("a row has too few columns".into()))
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Int(int) => Ok(Some(int)),
            other => Err(Self::wrong("a whole number", &other)),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| Self::wrong("a whole number", &Value::Null))
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            other => Err(Self::wrong("text", &other)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| Self::wrong("text", &Value::Null))
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.next()? {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(Self::wrong("bytes", &other)),
        }
    }
}

/// Which database a connection speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The text with its holes filled.
    fn fill(self, text: &str) -> String {
        match self {
            Self::Sqlite => {
                let holes =
                    ["{lock}", "{lock_jobs}", "{lock_permits}", "{skip}", "{skip_jobs}", "{bytewise}"];
                numbered(&holes.iter().fold(text.to_owned(), |text, hole| text.replace(hole, "")))
            }
            Self::Postgres => text
                .replace("{lock}", "FOR UPDATE")
                .replace("{lock_jobs}", "FOR UPDATE OF j")
                .replace("{lock_permits}", "FOR UPDATE OF p")
                .replace("{skip}", "FOR UPDATE SKIP LOCKED")
                .replace("{skip_jobs}", "FOR UPDATE OF j SKIP LOCKED")
                .replace("{bytewise}", "COLLATE \"C\""),
        }
    }

    /// The text with its holes filled, for rows of these columns after the first `before` parameters.
    fn fill_rows(self, text: &str, columns: Columns<'_>, before: usize) -> String {
        let text = self.fill(text);
        // An update from a table of one row would build that table for each row.
        if self == Self::Sqlite && text.contains("{from_rows}") {
            return inlined(&text.replace("{from_rows}", ""), columns, before);
        }
        text.replace("{from_rows}", "FROM {rows}").replace("{rows}", &self.rows(columns, before))
    }

    /// A query for each row of these columns, with its holes filled; `r.a` in it is the row's.
    fn fill_for_each(self, text: &str, columns: Columns<'_>, before: usize) -> String {
        let text = self.fill(text);
        match self {
            Self::Sqlite => inlined(&text, columns, before),
            Self::Postgres => {
                format!("SELECT e.* FROM {} CROSS JOIN LATERAL ({text}) AS e", self.rows(columns, before))
            }
        }
    }

    /// What stands for `{rows}`, whose columns are the parameters after the first `before`.
    fn rows(self, columns: Columns<'_>, before: usize) -> String {
        let mut text = String::new();
        match self {
            Self::Sqlite => {
                text.push_str("(SELECT ");
                for (index, (name, _)) in columns.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let _ = write!(text, "{comma}?{} AS {name}", before + index + 1);
                }
                text.push_str(") AS r");
            }
            Self::Postgres => {
                text.push_str("UNNEST(");
                for (index, (_, kind)) in columns.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let array = match kind {
                        Kind::Int => "bigint[]",
                        Kind::Text => "text[]",
                        Kind::Bytes => "bytea[]",
                    };
                    let _ = write!(text, "{comma}${}::{array}", before + index + 1);
                }
                let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
                let _ = write!(text, ") AS r({})", names.join(", "));
            }
        }
        text
    }
}

/// SQLite numbers its parameters `?1`; its `$1` would be a name, counted by where it first stands.
fn numbered(text: &str) -> String {
    let mut numbered = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_parameter = c == '$' && rest.peek().is_some_and(char::is_ascii_digit);
        numbered.push(if is_parameter { '?' } else { c });
    }
    numbered
}

/// Puts its parameter for each `r.column`.
fn inlined(text: &str, columns: Columns<'_>, before: usize) -> String {
    let mut inlined = String::with_capacity(text.len());
    let mut pieces = text.split("r.");
    inlined.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        let is_word = inlined.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        match columns.iter().position(|(column, _)| *column == name) {
            Some(index) if !is_word => {
                let _ = write!(inlined, "?{}", before + index + 1);
            }
            _ => {
                let _ = write!(inlined, "r.{name}");
            }
        }
        inlined.push_str(rest);
    }
    inlined
}

/// A connection to either database.
pub(crate) enum Conn {
    Sqlite(rusqlite::Connection),
    Postgres(deadpool_postgres::Object),
}

impl Conn {
    pub(crate) const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Says one statement and gives its rows.
    pub(crate) async fn query(&mut self, text: &str, params: &[Value]) -> Result<Vec<Row>, StoreError> {
        let text = self.dialect().fill(text);
        match self {
            Self::Sqlite(conn) => sqlite::query(conn, &text, params),
            Self::Postgres(client) => postgres::query(client, &text, params).await,
        }
    }

    /// Says one statement and hands over its rows one by one: they may be more than memory holds.
    pub(crate) async fn each_row(
        &mut self,
        text: &str,
        params: &[Value],
        take: impl FnMut(Row) -> Result<(), StoreError> + Send,
    ) -> Result<(), StoreError> {
        let text = self.dialect().fill(text);
        match self {
            Self::Sqlite(conn) => sqlite::each_row(conn, &text, params, take),
            Self::Postgres(client) => postgres::each_row(client, &text, params, take).await,
        }
    }

    /// Says one statement for its effect and gives how many rows it touched.
    pub(crate) async fn execute(&mut self, text: &str, params: &[Value]) -> Result<u64, StoreError> {
        let text = self.dialect().fill(text);
        match self {
            Self::Sqlite(conn) => sqlite::execute(conn, &text, params),
            Self::Postgres(client) => postgres::execute(client, &text, params).await,
        }
    }

    /// Asks the same of each of many rows, in one statement where the database can: `r.a` in the text is the
    /// row's column. Gives what all of them are answered, in no order.
    pub(crate) async fn query_for_each(
        &mut self,
        text: &str,
        params: &[Value],
        columns: Columns<'_>,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<Row>, StoreError> {
        let text = self.dialect().fill_for_each(text, columns, params.len());
        self.query_filled(&text, params, columns, rows).await
    }

    /// Says one statement over many rows: `{rows}` in the text is a table named `r` that holds them. Gives
    /// what the statement returns, over all of them. `params` are `$1` and on.
    pub(crate) async fn query_rows(
        &mut self,
        text: &str,
        params: &[Value],
        columns: Columns<'_>,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<Row>, StoreError> {
        let text = self.dialect().fill_rows(text, columns, params.len());
        self.query_filled(&text, params, columns, rows).await
    }

    /// Says a text without holes over rows of these columns, and gives what it answers over all of them.
    async fn query_filled(
        &mut self,
        text: &str,
        params: &[Value],
        columns: Columns<'_>,
        rows: Vec<Vec<Value>>,
    ) -> Result<Vec<Row>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Self::Sqlite(conn) => sqlite::query_each(conn, text, params, &rows),
            Self::Postgres(client) => postgres::query_unnest(client, text, params, columns, rows).await,
        }
    }

    /// The same for the effect alone: gives how many rows were touched.
    pub(crate) async fn execute_rows(
        &mut self,
        text: &str,
        params: &[Value],
        columns: Columns<'_>,
        rows: Vec<Vec<Value>>,
    ) -> Result<u64, StoreError> {
        if rows.is_empty() {
            return Ok(0);
        }
        let text = self.dialect().fill_rows(text, columns, params.len());
        match self {
            Self::Sqlite(conn) => sqlite::execute_each(conn, &text, params, &rows),
            Self::Postgres(client) => postgres::execute_unnest(client, &text, params, columns, rows).await,
        }
    }

    /// Says many statements, separated by semicolons, with no parameters.
    pub(crate) async fn script(&mut self, text: &str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(conn) => conn.execute_batch(text).map_err(sqlite::error),
            Self::Postgres(client) => client.batch_execute(text).await.map_err(postgres::error),
        }
    }

    /// Opens a transaction that will write.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        self.script(match self.dialect() {
            // A deferred transaction that turns into a writing one fails at once if another writes.
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
        })
        .await
    }

    /// Refuses a server that a failover, or its operator, has made read-only: reading from it may go well.
    pub(crate) async fn check_takes_writes(&mut self) -> Result<(), StoreError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let text =
            "SELECT (pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on')::int";
        match self.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())? {
            0 => Ok(()),
            _ => Err(unavailable(TakesNoWrites)),
        }
    }

    /// Opens a transaction that only reads, and sees one state of everything.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        self.script(match self.dialect() {
            Dialect::Sqlite => "BEGIN",
            Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        })
        .await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        self.script("COMMIT").await
    }

    /// Waits less, or as long as usual, for rows that others hold. SQLite has no rows that others hold.
    pub(crate) async fn hurry(&mut self, hurry: bool) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(client) => postgres::hurry(client, hurry).await,
        }
    }

    /// Ends a transaction without a trace. Gives whether the connection is still good.
    pub(crate) async fn rollback(&mut self) -> bool {
        let in_transaction = match self {
            Self::Sqlite(conn) => !conn.is_autocommit(),
            Self::Postgres(client) => !client.is_closed(),
        };
        !in_transaction || self.script("ROLLBACK").await.is_ok()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the server takes no writes")]
struct TakesNoWrites;

/// A fault of the database as the store's callers see it.
pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Arc::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_becomes_either_databases_own() {
        let columns: Columns<'_> = &[("id", Kind::Text), ("n", Kind::Int)];
        assert_eq!(Dialect::Sqlite.rows(columns, 1), "(SELECT ?2 AS id, ?3 AS n) AS r");
        assert_eq!(Dialect::Postgres.rows(columns, 1), "UNNEST($2::text[], $3::bigint[]) AS r(id, n)");
        let update = "UPDATE t SET n = r.n + other.n {from_rows} WHERE t.id = r.id AND k = $1";
        assert_eq!(
            Dialect::Sqlite.fill_rows(update, columns, 1),
            "UPDATE t SET n = ?3 + other.n  WHERE t.id = ?2 AND k = ?1"
        );
        assert_eq!(
            Dialect::Postgres.fill_rows(update, columns, 1),
            "UPDATE t SET n = r.n + other.n FROM UNNEST($2::text[], $3::bigint[]) AS r(id, n) \
             WHERE t.id = r.id AND k = $1"
        );
        let each = "SELECT r.id FROM t WHERE n > r.n AND other.n = $1 {skip}";
        assert_eq!(
            Dialect::Sqlite.fill_for_each(each, columns, 1),
            "SELECT ?2 FROM t WHERE n > ?3 AND other.n = ?1 "
        );
        assert_eq!(
            Dialect::Postgres.fill_for_each(each, columns, 1),
            "SELECT e.* FROM UNNEST($2::text[], $3::bigint[]) AS r(id, n) CROSS JOIN LATERAL \
             (SELECT r.id FROM t WHERE n > r.n AND other.n = $1 FOR UPDATE SKIP LOCKED) AS e"
        );
        assert_eq!(Dialect::Sqlite.fill("a = $1, '$.b' {lock}"), "a = ?1, '$.b' ");
        assert_eq!(Dialect::Postgres.fill("a = $1 {lock}"), "a = $1 FOR UPDATE");
    }
}
