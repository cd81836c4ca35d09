//! Opening a store that several processes open at the same moment.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::sync::{Arc, Barrier};

use coolant_backends::{Address, Options, SqlStore};
use coolant_core::store::Store;

#[test]
fn a_new_file_may_be_opened_by_many_at_once() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Sqlite(folder.path().join("coolant.db"));
        let start = Arc::new(Barrier::new(6));
        let openers: Vec<_> = (0..6)
            .map(|_| {
                let (address, start) = (address.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    start.wait();
                    runtime.block_on(async {
                        let store = SqlStore::open(&address, Options::default()).await.unwrap();
                        store.ready().await.unwrap();
                    });
                })
            })
            .collect();
        for opener in openers {
            opener.join().unwrap();
        }
    }
}
