//! The suite on PostgreSQL: two handles on one database, which is made for the case and dropped after it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use coolant_backends::conformance::{self, Case, Subject};
use coolant_backends::{Options, SqlStore};
use support::on_postgres;

fn run(case: &'static Case) {
    let clock = conformance::clock();
    let options = Options { clock: Some(clock.reader()), ..Options::default() };
    on_postgres(options.clone(), async |store, database| {
        let twin = SqlStore::open(&database.address(), options).await.unwrap();
        (case.run)(Subject { store, twin, clock }).await;
    });
}

coolant_backends::conformance_tests!(run);
