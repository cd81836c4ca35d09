//! The rule of leaky locks, to the millisecond. What stores make of it is in the conformance suite.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::time::Duration;

use coolant_core::lock::{Cooldown, Lock, LockEvent, LockRefusal, LockState, LockToken};
use coolant_core::time::Timestamp;
use proptest::prelude::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn acquire(ttl_ms: u64) -> LockEvent {
    LockEvent::Acquire { holder: "me".into(), ttl: Duration::from_millis(ttl_ms) }
}

#[test]
fn a_lock_ends_at_its_instant_and_not_before() {
    let held = Lock::default().on(&acquire(100), at(0)).unwrap();
    assert!(matches!(held.on(&acquire(100), at(99)), Err(LockRefusal::Taken(_))));
    assert!(held.on(&LockEvent::Renew { token: LockToken(1), ttl: Duration::ZERO }, at(99)).is_ok());
    assert_eq!(held.state(at(100)), LockState::Free);
    let renewal = LockEvent::Renew { token: LockToken(1), ttl: Duration::from_secs(1) };
    assert_eq!(held.on(&renewal, at(100)), Err(LockRefusal::Lost));
    assert_eq!(held.on(&acquire(100), at(100)).unwrap().token, LockToken(2));
}

#[test]
fn a_failure_keeps_the_instant_at_which_the_lock_would_have_ended() {
    let held = Lock::default().on(&acquire(100), at(0)).unwrap();
    let fail = |cooldown| LockEvent::Fail { token: LockToken(1), reason: "no".into(), cooldown };
    let until = |cooldown| held.on(&fail(cooldown), at(30)).unwrap().state(at(30)).until();
    assert_eq!(until(Cooldown::RestOfTtl), Some(at(100)));
    assert_eq!(until(Cooldown::For(Duration::from_millis(10))), Some(at(40)));
    assert_eq!(until(Cooldown::Permanent), None);
    let closed = held.on(&fail(Cooldown::Permanent), at(30)).unwrap();
    assert!(matches!(closed.state(at(i64::MAX)), LockState::Closed { .. }));
}

#[test]
fn the_first_lock_cannot_be_given_back_by_a_token_that_was_never_given_out() {
    let never = Lock::default();
    for token in [0, -1, 1] {
        let late = LockEvent::Succeed { token: LockToken(token) };
        assert_eq!(never.on(&late, at(0)), Err(LockRefusal::Lost));
    }
}

fn event() -> impl Strategy<Value = LockEvent> {
    let token = || (0_i64..6).prop_map(LockToken);
    let span = || (0_u64..50).prop_map(Duration::from_millis);
    prop_oneof![
        3 => span().prop_map(|ttl| LockEvent::Acquire { holder: "me".into(), ttl }),
        2 => (token(), span()).prop_map(|(token, ttl)| LockEvent::Renew { token, ttl }),
        2 => token().prop_map(|token| LockEvent::Succeed { token }),
        2 => (token(), span()).prop_map(|(token, wait)| LockEvent::Fail {
            token,
            reason: "no".into(),
            cooldown: Cooldown::For(wait),
        }),
        1 => token().prop_map(|token| LockEvent::Fail {
            token,
            reason: "no".into(),
            cooldown: Cooldown::Permanent,
        }),
        1 => Just(LockEvent::Open),
    ]
}

proptest! {
    /// Whatever happens in whatever order: nobody gets a lock that somebody has, tokens never go back, and
    /// a token that is not the newest changes nothing.
    #[test]
    fn a_lock_has_one_holder(history in proptest::collection::vec((event(), 0_i64..40), 1..60)) {
        let (mut lock, mut now) = (Lock::default(), 0);
        for (event, wait) in history {
            let before = lock.state(at(now));
            if let Ok(after) = lock.on(&event, at(now)) {
                prop_assert!(after.token >= lock.token);
                match &event {
                    LockEvent::Acquire { .. } => {
                        prop_assert_eq!(before, LockState::Free);
                        prop_assert!(after.token > lock.token);
                    }
                    LockEvent::Renew { token, .. }
                    | LockEvent::Succeed { token }
                    | LockEvent::Fail { token, .. } => prop_assert_eq!(*token, lock.token),
                    LockEvent::Open => prop_assert!(after.token > lock.token),
                }
                lock = after;
            }
            now += wait;
        }
    }
}
