//! Races for a leaky lock on PostgreSQL, forced: another transaction has the lock's row until the test says
//! so, while the store waits for it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::{Options, SqlStore};
use coolant_core::lock::{LockAnswer, LockEvent, LockRefusal, LockStore, LockToken};
use coolant_core::names::LockName;
use support::beside_another;
use support::database::Raw;

fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Raw)) {
    beside_another(Options::default(), case);
}

/// Acquires lock `a` while the other transaction is open, and commits that once the store waits for it.
async fn acquire_meanwhile(store: &Arc<SqlStore>, raw: &Raw) -> LockAnswer {
    let asking = tokio::spawn({
        let store = Arc::clone(store);
        async move {
            let event = LockEvent::Acquire { holder: "us".into(), ttl: Duration::from_secs(300) };
            store.change_lock(&LockName::parse("a").unwrap(), event).await.unwrap()
        }
    });
    raw.until_somebody_waits().await;
    raw.say("COMMIT").await;
    asking.await.unwrap()
}

#[test]
fn whoever_waits_for_a_new_lock_finds_it_held() {
    with(async |store, raw| {
        raw.say(
            "BEGIN; INSERT INTO locks (name, token, state, holder, until_at, forget_at) \
             VALUES ('a', 7, 'held', 'them', 9999999999999, 9999999999999)",
        )
        .await;
        let answer = acquire_meanwhile(&store, &raw).await;
        let Err(LockRefusal::Taken(seen)) = answer else { panic!("two have it: {answer:?}") };
        assert_eq!(seen.state.holder(), Some("them"));
    });
}

#[test]
fn whoever_waits_for_a_lock_that_ended_finds_it_taken_over() {
    with(async |store, raw| {
        raw.say(
            "INSERT INTO locks (name, token, state, holder, until_at, forget_at) \
             VALUES ('a', 7, 'held', 'who crashed', 1, 1)",
        )
        .await;
        raw.say(
            "BEGIN; UPDATE locks SET token = 8, holder = 'them', until_at = 9999999999999, \
             forget_at = 9999999999999",
        )
        .await;
        let answer = acquire_meanwhile(&store, &raw).await;
        assert!(matches!(answer, Err(LockRefusal::Taken(_))), "two have it: {answer:?}");
    });
}

#[test]
fn a_lock_that_is_forgotten_meanwhile_goes_on_with_a_larger_token() {
    with(async |store, raw| {
        raw.say(
            "INSERT INTO locks (name, token, state, holder, until_at, forget_at) \
             VALUES ('a', 41, 'held', 'who crashed', 1, 1)",
        )
        .await;
        raw.say("BEGIN; UPDATE lock_floor SET token = 41; DELETE FROM locks").await;
        let given = acquire_meanwhile(&store, &raw).await.unwrap();
        assert_eq!(given.token, LockToken(42));
    });
}

#[test]
fn a_lock_that_somebody_is_changing_is_not_forgotten() {
    with(async |store, raw| {
        raw.say(
            "INSERT INTO locks (name, token, state, holder, until_at, forget_at) \
             VALUES ('a', 41, 'held', 'who crashed', 1, 1), ('b', 9, 'held', 'who crashed', 1, 1)",
        )
        .await;
        raw.say("BEGIN; SELECT 1 FROM locks WHERE name = 'a' FOR UPDATE").await;
        assert_eq!(store.forget_locks(10).await.unwrap(), 1, "it passes over the one");
        raw.say("COMMIT").await;
        assert_eq!(store.forget_locks(10).await.unwrap(), 1);
    });
}
