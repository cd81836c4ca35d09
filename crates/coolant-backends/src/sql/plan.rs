//! How SQLite would answer a question, for tests of indexes.

use futures::executor::block_on;

use crate::conn::{Columns, Conn, Value};
use crate::{migrate, sqlite};

/// The plan for a text with so many parameters, asked of rows of these columns: a line for each step.
pub(crate) fn of(text: &str, params: usize, columns: Columns<'_>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut conn = Conn::Sqlite(sqlite::open_writer(&folder.path().join("coolant.db")).unwrap());
    block_on(migrate::migrate(&mut conn, 0)).unwrap();
    let text = format!("EXPLAIN QUERY PLAN {text}");
    let params = vec![Value::Null; params];
    let steps = match columns {
        [] => block_on(conn.query(&text, &params)),
        _ => block_on(conn.query_for_each(&text, &params, columns, vec![vec![Value::Null; columns.len()]])),
    };
    // Its number, its parent's, and one of no use go before the words.
    let detail = |row: crate::conn::Row| crate::conn::Row(row.0.skip(3).collect::<Vec<_>>().into_iter());
    let detail = |row| detail(row).text().unwrap();
    steps.unwrap().into_iter().map(detail).collect::<Vec<_>>().join("\n")
}
