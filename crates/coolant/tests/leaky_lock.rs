//! Leaky locks in a program of one's own: the guard gives the lock back by success alone.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::time::Duration;

use coolant::{LeakyLock, LockError};
use coolant_core::lock::{LockEvent, LockState, LockStore};
use coolant_core::model::ModelStore;
use coolant_core::names::LockName;
use coolant_core::time::Timestamp;
use tokio::time::Instant;

/// Locks whose time is the runtime's own, which a paused runtime moves by itself.
fn locks() -> Arc<ModelStore> {
    let start = Instant::now();
    Arc::new(ModelStore::new(Arc::new(move || Timestamp::from_millis(0).plus(start.elapsed()))))
}

fn lock(locks: &Arc<ModelStore>) -> LeakyLock {
    LeakyLock::new(Arc::clone(locks) as Arc<dyn LockStore>, "a").ttl(Duration::from_secs(30)).holder("me")
}

/// Waits until the lock stands so.
async fn until(lock: &LeakyLock, state: &str) -> LockState {
    loop {
        let seen = lock.look().await.unwrap().state;
        if seen.as_str() == state {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_renews_its_lock_as_long_as_it_lives_and_success_frees_it() {
    let locks = locks();
    let lock = lock(&locks);
    let guard = lock.acquire().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert!(guard.is_held());
        let refused = lock.acquire().await.unwrap_err();
        let LockError::Taken(taken) = &refused else { panic!("two have it: {refused:?}") };
        assert_eq!(taken.state.holder(), Some("me"));
        assert!(refused.to_string().starts_with("`me` holds the lock for another"), "{refused}");
    }
    let token = guard.token();
    guard.succeed().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(guard.token() > token);
    guard.succeed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_leaves_the_lock_cooling_until_its_ttl() {
    let locks = locks();
    let lock = lock(&locks);
    let begun = Instant::now();
    drop(lock.acquire().await.unwrap());
    let seen = until(&lock, "cooling").await;
    assert_eq!((seen.holder(), seen.reason()), (Some("me"), Some("the holder gave up")));
    until(&lock, "free").await;
    let lasted = begun.elapsed();
    assert!(lasted >= Duration::from_secs(30) && lasted < Duration::from_secs(31), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_the_lock_cooling() {
    let locks = locks();
    let lock = lock(&locks);
    let guard = lock.acquire().await.unwrap();
    let work = tokio::spawn(async move {
        let _guard = guard;
        panic!("told to");
    });
    assert!(work.await.unwrap_err().is_panic());
    assert_eq!(until(&lock, "cooling").await.reason(), Some("the holder panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_says_why_and_how_long() {
    let locks = locks();
    let lock = lock(&locks);
    let failed = lock.acquire().await.unwrap().fail("no\npaper").await.unwrap();
    assert_eq!((failed.state.reason(), failed.left()), (Some("no paper"), Some(Duration::from_secs(30))));
    until(&lock, "free").await;
    let hour = Duration::from_secs(3600);
    let failed = lock.acquire().await.unwrap().fail_for("", hour).await.unwrap();
    assert_eq!((failed.state.reason(), failed.left()), (Some("not said"), Some(hour)));
    until(&lock, "free").await;
    let closed = lock.acquire().await.unwrap().close("gone for good").await.unwrap();
    assert_eq!((closed.state.as_str(), closed.left()), ("closed", None));
}

#[tokio::test(start_paused = true)]
async fn a_guard_whose_lock_was_opened_is_told() {
    let locks = locks();
    let lock = lock(&locks);
    let guard = lock.acquire().await.unwrap();
    locks.change_lock(&LockName::parse("a").unwrap(), LockEvent::Open).await.unwrap().unwrap();
    guard.lost().await;
    assert!(!guard.is_held());
    let next = lock.acquire().await.unwrap();
    assert!(matches!(guard.succeed().await, Err(LockError::Lost)));
    assert!(next.is_held(), "it is somebody else's, and stays so");
    next.succeed().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_cannot_be_is_refused_before_anything_is_asked() {
    let locks = locks();
    let store = || Arc::clone(&locks) as Arc<dyn LockStore>;
    for wrong in [
        LeakyLock::new(store(), ""),
        LeakyLock::new(store(), "coolant:x"),
        LeakyLock::new(store(), "a\nb"),
        LeakyLock::new(store(), "a").ttl(Duration::ZERO),
        LeakyLock::new(store(), "a").ttl(Duration::MAX),
        LeakyLock::new(store(), "a").holder("x".repeat(257)),
    ] {
        assert!(matches!(wrong.acquire().await, Err(LockError::Invalid(_))), "{wrong:?}");
    }
    let guard = LeakyLock::new(store(), "a").acquire().await.unwrap();
    let holder = lock(&locks).look().await.unwrap().state.holder().unwrap().to_owned();
    assert!(holder.contains('@') && holder.ends_with(&format!(":{}", std::process::id())), "{holder}");
    guard.succeed().await.unwrap();
}
