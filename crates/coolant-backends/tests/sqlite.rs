//! The suite on SQLite: two handles on one file, each with its own connections.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use coolant_backends::conformance::{self, Case, Subject};
use coolant_backends::{Address, Options, SqlStore};

fn run(case: &'static Case) {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Sqlite(folder.path().join("coolant.db"));
    let clock = conformance::clock();
    support::run(async {
        let options = Options { clock: Some(clock.reader()), ..Options::default() };
        let store = SqlStore::open(&address, options.clone()).await.unwrap();
        let twin = SqlStore::open(&address, options).await.unwrap();
        (case.run)(Subject { store, twin, clock }).await;
    });
}

coolant_backends::conformance_tests!(run);
