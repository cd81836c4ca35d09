//! Migrations while others work: one process migrates and the others wait; an older process goes on beside a
//! newer schema.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use coolant_backends::{Address, Options, SqlStore};
use coolant_core::store::{Store, StoreError};
use support::database::{Database, WAITING};
use support::jobs::{claimed, job, submitted, succeed};
use support::run;

/// A job from submit to success.
async fn works(store: &SqlStore) {
    let id = submitted(store, job()).await;
    assert_eq!(claimed(store, 1).await, [id]);
    assert!(store.apply(vec![succeed(id)]).await.unwrap()[0].is_ok());
}

/// What a newer version leaves behind: more columns and tables, and its step.
fn newer(name: &str) -> String {
    format!(
        "ALTER TABLE jobs ADD COLUMN {name} TEXT; CREATE TABLE new_{name} (n BIGINT); \
         INSERT INTO schema_migrations (number, name, checksum, applied_at) \
         SELECT max(number) + 1, 'later', 'x', 0 FROM schema_migrations"
    )
}

const BREAKING: &str = "UPDATE schema_migrations SET name = '!later' WHERE name = 'later'";

async fn goes_on_beside_a_newer_schema(address: &Address, say: impl AsyncFn(&str)) {
    let store = SqlStore::open(address, Options::default()).await.unwrap();
    works(&store).await;
    say(&newer("first")).await;
    store.ready().await.unwrap();
    works(&store).await;
    // One that starts now, too, whether it may migrate or not.
    for migrate in [true, false] {
        let other = SqlStore::open(address, Options { migrate, ..Options::default() }).await.unwrap();
        other.ready().await.unwrap();
        works(&other).await;
    }
    say(BREAKING).await;
    let refused = store.ready().await.unwrap_err();
    assert!(matches!(&refused, StoreError::NotMigrated(why) if why.contains("newer version")), "{refused}");
    assert!(SqlStore::open(address, Options::default()).await.is_err());
}

#[test]
fn an_older_process_goes_on_beside_a_newer_schema_in_a_file() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coolant.db");
        let say = async |text: &str| {
            let conn = rusqlite::Connection::open(&path).unwrap();
            conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
            conn.execute_batch(text).unwrap();
        };
        goes_on_beside_a_newer_schema(&Address::Sqlite(path.clone()), say).await;
    });
}

#[test]
fn an_older_process_goes_on_beside_a_newer_schema_on_a_server() {
    run(async {
        let Some(database) = Database::create().await else { return };
        let say = async |text: &str| database.connect().await.say(text).await;
        goes_on_beside_a_newer_schema(&database.address(), say).await;
        database.drop_it().await;
    });
}

#[test]
fn one_process_migrates_while_the_others_wait() {
    run(async {
        let Some(database) = Database::create().await else { return };
        let raw = database.connect().await;
        // As a process that is migrating: it holds the lock until it commits.
        raw.say("BEGIN; SELECT pg_advisory_xact_lock(x'636f6f6c616e74'::bigint)").await;
        let migrating = || {
            let address = database.address();
            tokio::spawn(async move { SqlStore::migrate(&address).await.unwrap() })
        };
        let (one, two) = (migrating(), migrating());
        raw.until_count(WAITING, 2).await;
        assert!(!one.is_finished() && !two.is_finished());
        raw.say("COMMIT").await;
        let steps = [one.await.unwrap(), two.await.unwrap()];
        assert!(steps.contains(&0) && steps.iter().any(|steps| *steps > 5), "{steps:?}");
        works(
            &SqlStore::open(&database.address(), Options { migrate: false, ..Options::default() })
                .await
                .unwrap(),
        )
        .await;
        database.drop_it().await;
    });
}
