//! The suite of leaky locks on the model store, SQLite, PostgreSQL and Redis.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::conformance::leaky::{LockCase, LockSubject, Pass};
use coolant_backends::conformance::{self, leaky};
use coolant_backends::{Address, Options, SqlStore};
use coolant_core::lock::LockStore;
use coolant_core::model::{ManualClock, ModelStore};

fn by(clock: Arc<ManualClock>) -> Pass {
    Box::new(move |span| {
        clock.advance(span);
        Box::pin(std::future::ready(()))
    })
}

mod model {
    use super::*;

    fn run(case: &'static LockCase) {
        let clock = conformance::clock();
        let locks: Arc<dyn LockStore> = Arc::new(ModelStore::new(clock.reader()));
        support::run((case.run)(LockSubject { twin: Arc::clone(&locks), locks, pass: by(clock) }));
    }

    coolant_backends::lock_conformance_tests!(run);
}

async fn on_sql(address: &Address, case: &'static LockCase) {
    let clock = conformance::clock();
    let options = Options { clock: Some(clock.reader()), ..Options::default() };
    let locks = SqlStore::open(address, options.clone()).await.unwrap();
    let twin = SqlStore::open(address, options).await.unwrap();
    (case.run)(LockSubject { locks, twin, pass: by(clock) }).await;
}

mod sqlite {
    use super::*;

    fn run(case: &'static LockCase) {
        let folder = tempfile::tempdir().unwrap();
        support::run(on_sql(&Address::Sqlite(folder.path().join("coolant.db")), case));
    }

    coolant_backends::lock_conformance_tests!(run);
}

mod postgres {
    use super::*;

    fn run(case: &'static LockCase) {
        support::run(async {
            let Some(database) = support::database::Database::create().await else { return };
            on_sql(&database.address(), case).await;
            database.drop_it().await;
        });
    }

    coolant_backends::lock_conformance_tests!(run);
}

#[cfg(feature = "redis")]
mod redis {
    use coolant_backends::RedisLocks;

    use super::*;

    /// As if that much time had passed: every key under the prefix is so much nearer to its end.
    const PASS: &str = "
        local cursor = '0'
        repeat
            local found = redis.call('SCAN', cursor, 'COUNT', 1000)
            cursor = found[1]
            for _, key in ipairs(found[2]) do
                local left = redis.call('PTTL', key)
                if string.sub(key, 1, #ARGV[1]) == ARGV[1] and left >= 0 then
                    redis.call('PEXPIRE', key, left - ARGV[2])
                end
            end
        until cursor == '0'";

    async fn on_redis(variable: &str, case: &'static LockCase) {
        let Ok(url) = std::env::var(variable) else {
            println!("skipped: redis ({variable} names no server; `scripts/test` starts one)");
            return;
        };
        let prefix = format!("t{}:", uuid::Uuid::now_v7().simple());
        let client = ::redis::Client::open(url.as_str()).unwrap();
        let raw = client.get_multiplexed_async_connection().await.unwrap();
        let (own, within) = (raw.clone(), prefix.clone());
        let pass: Pass = Box::new(move |span: Duration| {
            let (mut raw, within) = (own.clone(), within.clone());
            Box::pin(async move {
                let script = ::redis::Script::new(PASS);
                let mut call = script.arg(within);
                call.arg(span.as_millis() as u64).invoke_async::<()>(&mut raw).await.unwrap();
            })
        });
        let locks = Arc::new(RedisLocks::open(&url, &prefix).unwrap());
        let twin = Arc::new(RedisLocks::open(&url, &prefix).unwrap());
        (case.run)(LockSubject { locks, twin, pass }).await;
    }

    fn run(case: &'static LockCase) {
        support::run(on_redis("COOLANT_TEST_REDIS", case));
    }

    coolant_backends::lock_conformance_tests!(run);

    /// The same on Valkey, where there is one.
    mod valkey {
        use super::*;

        fn run(case: &'static LockCase) {
            support::run(on_redis("COOLANT_TEST_VALKEY", case));
        }

        coolant_backends::lock_conformance_tests!(run);
    }
}

#[test]
fn the_suite_is_not_empty() {
    assert!(leaky::LOCK_CASES.len() > 10);
}
