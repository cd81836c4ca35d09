//! The suite on PostgreSQL: two handles on one database, which is made for the case and dropped after it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use coolant_backends::conformance::{self, Case, Subject};
use coolant_backends::{Options, SqlStore};

fn run(case: &'static Case) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(database) = support::Database::create().await else { return };
        let clock = conformance::clock();
        let options = Options { clock: Some(clock.reader()), ..Options::default() };
        let store = SqlStore::open(&database.address(), options.clone()).await.unwrap();
        let twin = SqlStore::open(&database.address(), options).await.unwrap();
        (case.run)(Subject { store, twin, clock }).await;
        database.drop_it().await;
    });
}

coolant_backends::conformance_tests!(run);
