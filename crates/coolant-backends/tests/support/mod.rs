//! What the tests of this crate share: databases of their own, stores on them, jobs and documents.
#![allow(dead_code, reason = "shared; each test uses a part of it")]

pub(crate) mod database;
pub(crate) mod documents;
pub(crate) mod jobs;

use std::sync::Arc;

use coolant_backends::{Options, SqlStore};

use self::database::{Database, Raw};

/// Runs a test on two threads, so that what it starts at once overlaps.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Runs a case with a store on a PostgreSQL database of its own.
pub(crate) fn on_postgres(options: Options, case: impl AsyncFnOnce(Arc<SqlStore>, &Database)) {
    run(async {
        let Some(database) = Database::create().await else { return };
        let store = SqlStore::open(&database.address(), options).await.unwrap();
        case(store, &database).await;
        database.drop_it().await;
    });
}

/// Runs a case with such a store and a connection of the test's own, with which it forces a race.
pub(crate) fn beside_another(options: Options, case: impl AsyncFnOnce(Arc<SqlStore>, Raw)) {
    on_postgres(options, async |store, database| case(store, database.connect().await).await);
}
