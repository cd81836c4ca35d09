//! What heartbeats leave behind in PostgreSQL: versions of rows, in the table or also in its indexes, and room
//! that is not given back.
//!
//! A worker beats every 10 s; here every lease is renewed once a second, so that a minute does for ten.

use std::time::{Duration, Instant};

use coolant_backends::Address;
use coolant_core::lifecycle::Event;
use coolant_core::store::{Claimed, JobChange, Store};
use tokio_postgres::Client;

use crate::place::Place;
use crate::table::grouped;
use crate::{Settings, measure, raw, work};

/// Leases that are held all the time.
const LEASES: usize = 1000;
/// How often each of them is renewed.
const EVERY: Duration = Duration::from_secs(1);
/// Rows of the printed table.
const LOOKS: u32 = 12;

/// Renews leases for as long as a measurement takes, beside a backlog, and prints what became of the table.
pub(crate) async fn watch(place: &mut Place, settings: &Settings) {
    let (store, address) = place.store().await;
    let Address::Postgres(url) = &address else { unreachable!("heartbeats are watched on PostgreSQL") };
    let raw = raw::connect(url).await;
    work::queue_up_to(&store, settings.queued.max(LEASES)).await;
    let claimed = store.claim(work::request(LEASES)).await.unwrap();
    println!(
        "### {LEASES} leases renewed every second beside {} queued jobs\n",
        grouped(settings.queued as f64)
    );
    println!("| s | beats | HOT | dead rows | table MB | indexes MB | vacuums | load, 1 min |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut before = Look::at(&raw).await;
    before.print(0, &before);
    let began = Instant::now();
    let mut beat = tokio::time::interval(EVERY);
    for look in 1..=LOOKS {
        while began.elapsed() < settings.span() * look / LOOKS {
            beat.tick().await;
            work::apply(&store, renewals(&claimed)).await;
        }
        let now = Look::at(&raw).await;
        now.print(began.elapsed().as_secs(), &before);
        before = now;
    }
    println!();
    work::apply(&store, claimed.iter().map(work::success).collect()).await;
}

fn renewals(claimed: &[Claimed]) -> Vec<JobChange> {
    let renew = |claimed: &Claimed| {
        let event = Event::Renew { token: claimed.lease.token, progress: None };
        JobChange::new(claimed.record.job.id, event)
    };
    claimed.iter().map(renew).collect()
}

/// The table of jobs, as the server's statistics have it.
struct Look {
    updates: i64,
    hot: i64,
    dead: i64,
    table: i64,
    indexes: i64,
    vacuums: i64,
}

impl Look {
    async fn at(raw: &Client) -> Self {
        // What sessions have done is told a second later at the latest.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let text = "SELECT n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_table_size(relid), pg_indexes_size(relid), \
                    vacuum_count + autovacuum_count FROM pg_stat_user_tables \
                    WHERE schemaname = 'coolant' AND relname = 'jobs'";
        let row = raw.query_one(text, &[]).await.unwrap();
        Self {
            updates: row.get(0),
            hot: row.get(1),
            dead: row.get(2),
            table: row.get(3),
            indexes: row.get(4),
            vacuums: row.get(5),
        }
    }

    /// Prints what there is, and of the beats those since the look before.
    fn print(&self, seconds: u64, before: &Self) {
        let (updates, hot) = (self.updates - before.updates, self.hot - before.hot);
        let share = if updates == 0 { String::new() } else { format!("{} %", hot * 100 / updates) };
        let mb = |bytes: i64| format!("{:.1}", bytes as f64 / 1e6);
        println!(
            "| {seconds} | {updates} | {share} | {} | {} | {} | {} | {} |",
            self.dead,
            mb(self.table),
            mb(self.indexes),
            self.vacuums,
            measure::load_of_a_minute()
        );
    }
}
