//! Rates of an empty store beside those of a full one: with jobs scheduled for later, and with a history.
//!
//! Each state is a store of its own on the same database server or disk, and the states take turns, round
//! after round, so that what else goes on on the machine meets all of them. The table has the medians.

use std::sync::Arc;

use coolant_backends::{Address, SqlStore};
use coolant_core::store::{Start, Store};

use crate::measure::rate;
use crate::place::Place;
use crate::table::{Table, per_second};
use crate::{Settings, work};

/// Jobs that are ready before each measurement of claims.
const READY: usize = 30_000;

/// What is measured.
const ROWS: [&str; 4] = [
    "submit 1 a call, 16 callers",
    "submit 100 a call, 1 caller",
    "claim and settle 1 at a time, 8 workers",
    "claim and settle 10 at a time, 8 workers",
];

/// A store in a state.
struct State {
    name: String,
    store: Arc<SqlStore>,
    rates: [Vec<f64>; ROWS.len()],
}

/// Measures all states and prints the table.
pub(crate) async fn compare(name: &str, place: &mut Place, settings: &Settings) {
    let mut states = Vec::new();
    let million = crate::table::grouped(settings.finished as f64);
    for (scheduled, finished, name) in [
        (0, 0, "empty at first".to_owned()),
        (settings.finished, 0, format!("{million} scheduled")),
        (settings.finished, settings.finished, format!("{million} scheduled, {million} finished")),
    ] {
        let (store, address) = place.store().await;
        eprintln!("filling: {name}");
        fill(&store, &address, scheduled, finished).await;
        states.push(State { name, store, rates: Default::default() });
    }
    for round in 0..settings.rounds {
        eprintln!("round {round}");
        for state in &mut states {
            for (row, rate) in measure(&state.store, settings).await.into_iter().enumerate() {
                state.rates[row].push(rate);
            }
        }
    }
    print(name, &mut states, settings);
}

async fn measure(store: &Arc<SqlStore>, settings: &Settings) -> [f64; ROWS.len()] {
    let submit = async |callers, size| {
        let of = Arc::clone(store);
        rate(settings.span(), callers, move || {
            let store = Arc::clone(&of);
            async move { store.submit(work::jobs(size)).await.unwrap().len() }
        })
        .await
    };
    let settle = async |workers, max| {
        work::submit(store, READY).await;
        let of = Arc::clone(store);
        rate(settings.span(), workers, move || {
            let store = Arc::clone(&of);
            async move {
                let claimed = store.claim(work::request(max)).await.unwrap();
                work::apply(&store, claimed.iter().map(work::success).collect()).await
            }
        })
        .await
    };
    [submit(16, 1).await, submit(1, 100).await, settle(8, 1).await, settle(8, 10).await]
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn print(name: &str, states: &mut [State], settings: &Settings) {
    let mut table = Table::new(&format!(
        "### Coolant on {name}, by what it holds: medians of {} rounds",
        settings.rounds
    ));
    let mut empty = [0.0; ROWS.len()];
    for (place, state) in states.iter_mut().enumerate() {
        table.column(&state.name);
        for (row, rates) in state.rates.iter_mut().enumerate() {
            let (low, high) =
                (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
            let median = median(rates);
            if place == 0 {
                empty[row] = median;
            }
            let range = format!("{} to {}", crate::table::grouped(low), crate::table::grouped(high));
            let share = format!("{:.2}", median / empty[row]);
            table.put(ROWS[row], format!("{} ({range}): {share}", per_second(median)));
        }
    }
    println!("{table}");
}

/// Puts so many jobs in: scheduled for ten days ahead, and finished ones. One of each goes through the store;
/// the others are copies of its rows under names of their own.
async fn fill(store: &Arc<SqlStore>, address: &Address, scheduled: usize, finished: usize) {
    if scheduled > 0 {
        let mut job = work::job();
        job.start = Start::After(std::time::Duration::from_secs(864_000));
        let id = job.id.to_string();
        store.submit(vec![job]).await.unwrap();
        copy(address, &id, 0x018f_0000_0000, scheduled).await;
    }
    if finished > 0 {
        let job = work::job();
        let id = job.id.to_string();
        store.submit(vec![job]).await.unwrap();
        let claimed = store.claim(work::request(1)).await.unwrap();
        work::apply(store, claimed.iter().map(work::success).collect()).await;
        copy(address, &id, 0x0190_0000_0000, finished).await;
    }
}

const TABLES: [&str; 5] = ["job_specs", "jobs", "attempts", "job_results", "ledger"];

async fn copy(address: &Address, id: &str, base: u64, count: usize) {
    match address {
        Address::Sqlite(path) => {
            let conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
            for table in TABLES {
                let text = format!("SELECT name FROM pragma_table_info('{table}')");
                let columns: Vec<String> = conn
                    .prepare(&text)
                    .unwrap()
                    .query_map([], |row| row.get(0))
                    .unwrap()
                    .map(Result::unwrap)
                    .collect();
                let numbers = format!(
                    "(WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {count}) SELECT n FROM g)"
                );
                let hex = format!("printf('%012x', {base} + n)");
                conn.execute_batch(&copying(table, &columns, id, &numbers, &hex)).unwrap();
            }
            conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }
        Address::Postgres(url) => {
            let client = crate::raw::connect(url).await;
            client.batch_execute("SET search_path = coolant").await.unwrap();
            for table in TABLES {
                let text = "SELECT column_name::text FROM information_schema.columns \
                            WHERE table_schema = 'coolant' AND table_name = $1 AND is_generated = 'NEVER'";
                let rows = client.query(text, &[&table]).await.unwrap();
                let columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                let numbers = format!("(SELECT n FROM generate_series(1, {count}) AS s(n))");
                let hex = format!("lpad(to_hex({base}::bigint + n), 12, '0')");
                client.batch_execute(&copying(table, &columns, id, &numbers, &hex)).await.unwrap();
            }
            // As autovacuum leaves it a little later.
            client.batch_execute("VACUUM ANALYZE").await.unwrap();
        }
    }
}

/// The statement that copies the rows of a job under so many other names.
fn copying(table: &str, columns: &[String], id: &str, numbers: &str, hex: &str) -> String {
    let uuid = format!("substr({hex}, 1, 8) || '-' || substr({hex}, 9, 4) || '-7000-8000-000000000000'");
    let values: Vec<String> = columns
        .iter()
        .map(|column| match (table, column.as_str()) {
            ("jobs" | "ledger", "id") | (_, "job_id") => uuid.clone(),
            (_, "idempotency_key") => "'copy:' || t.idempotency_key || ':' || n".to_owned(),
            (_, "due_at") => "t.due_at + n".to_owned(),
            (_, other) => format!("t.{other}"),
        })
        .collect();
    let of = if table == "jobs" { "id" } else { "job_id" };
    format!(
        "INSERT INTO {table} ({}) SELECT {} FROM {table} t, {numbers} AS g WHERE t.{of} = '{id}'",
        columns.join(", "),
        values.join(", ")
    )
}
