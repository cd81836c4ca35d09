//! Leaky locks: what every store of them has to answer, Redis included.
//!
//! Its own list beside the suite of job stores. Time passes when a case says so; where the store keeps it
//! by itself, a little more does, so no case stands near the end of a lock.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::lock::{
    Cooldown, Lock, LockAnswer, LockAt, LockEvent, LockRefusal, LockState, LockStore, LockToken,
};
use coolant_core::names::LockName;
use coolant_core::time::Timestamp;
use futures::future::{BoxFuture, join_all};

/// Lets time pass for a store.
pub type Pass = Box<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// An empty store of locks under test.
pub struct LockSubject {
    /// The store.
    pub locks: Arc<dyn LockStore>,
    /// Another handle on the same locks, as another process would have.
    pub twin: Arc<dyn LockStore>,
    /// Lets time pass.
    pub pass: Pass,
}

/// A rule that every store of locks holds to.
pub struct LockCase {
    /// The rule.
    pub name: &'static str,
    /// Panics if the store breaks it.
    pub run: fn(LockSubject) -> BoxFuture<'static, ()>,
}

/// The case of that name.
#[must_use]
pub fn lock_case(name: &str) -> &'static LockCase {
    LOCK_CASES.iter().find(|case| case.name == name).expect("the list of cases names it")
}

macro_rules! lock_cases {
    ($d:tt $($name:ident),* $(,)?) => {
        /// Every case of leaky locks.
        pub const LOCK_CASES: &[LockCase] =
            &[$(LockCase { name: stringify!($name), run: |subject| Box::pin($name(subject)) },)*];

        /// Registers one `#[test]` for each case; `$d run` is a `fn(&'static LockCase)`.
        #[macro_export]
        macro_rules! lock_conformance_tests {
            ($d run:path) => {
                $(
                    #[test]
                    fn $name() {
                        $d run($d crate::conformance::leaky::lock_case(stringify!($name)));
                    }
                )*
            };
        }
    };
}

lock_cases! { $
    a_lock_has_one_holder_and_others_are_told_who_and_how_long,
    of_simultaneous_acquires_one_is_given_the_lock,
    a_lock_that_nobody_gives_back_is_free_when_its_time_ends,
    a_renewed_lock_goes_on_and_a_late_renewal_is_refused,
    a_success_frees_at_once_and_is_answered_alike_again,
    a_failure_leaves_the_lock_cooling_for_the_rest_of_its_time,
    a_failure_may_cool_shorter_longer_or_not_at_all,
    a_failure_for_good_closes_until_an_operator_opens,
    an_old_holder_changes_nothing,
    an_opened_lock_is_lost_to_its_holder,
    tokens_of_a_name_grow_whatever_happened_to_it,
    what_is_forgotten_is_free_and_its_tokens_go_on,
    names_are_told_apart_and_text_comes_back_as_it_was,
    a_random_history_of_a_lock_agrees_with_the_rule,
}

const TTL: Duration = Duration::from_secs(300);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn named(text: &str) -> LockName {
    LockName::parse(text).unwrap()
}

fn acquire(holder: &str) -> LockEvent {
    LockEvent::Acquire { holder: holder.into(), ttl: TTL }
}

fn renew(token: LockToken) -> LockEvent {
    LockEvent::Renew { token, ttl: TTL }
}

const fn succeed(token: LockToken) -> LockEvent {
    LockEvent::Succeed { token }
}

fn fail(token: LockToken, cooldown: Cooldown) -> LockEvent {
    LockEvent::Fail { token, reason: "exit status 3".into(), cooldown }
}

impl LockSubject {
    async fn say(&self, event: LockEvent) -> LockAnswer {
        self.locks.change_lock(&named("a"), event).await.unwrap()
    }

    async fn acquired(&self, holder: &str) -> LockToken {
        self.say(acquire(holder)).await.expect("it is free").token
    }

    async fn seen(&self) -> LockAt {
        self.twin.lock(&named("a")).await.unwrap()
    }
}

fn taken(answer: LockAnswer) -> LockAt {
    let Err(LockRefusal::Taken(seen)) = answer else { panic!("{answer:?} is no refusal") };
    seen
}

/// The lock ends by itself after so long, but for what a store's own clock went on.
#[track_caller]
fn ends_in(seen: &LockAt, left: Duration) {
    let found = seen.left().unwrap_or_else(|| panic!("{seen:?} has no end"));
    assert!(found <= left && found + secs(4) > left, "{found:?} are left of {left:?}");
}

async fn a_lock_has_one_holder_and_others_are_told_who_and_how_long(s: LockSubject) {
    assert_eq!(s.seen().await.state, LockState::Free);
    let given = s.say(acquire("me@host:1")).await.unwrap();
    assert!(given.token > LockToken(0));
    assert_eq!(given.state.holder(), Some("me@host:1"));
    ends_in(&given, TTL);
    (s.pass)(secs(100)).await;
    let refused = taken(s.twin.change_lock(&named("a"), acquire("you")).await.unwrap());
    assert_eq!((refused.state.as_str(), refused.state.holder()), ("held", Some("me@host:1")));
    ends_in(&refused, secs(200));
    assert_eq!(s.seen().await.state.as_str(), "held");
    ends_in(&s.seen().await, secs(200));
}

async fn of_simultaneous_acquires_one_is_given_the_lock(s: LockSubject) {
    for round in 0..3 {
        let key = named(&format!("round {round}"));
        let asked = (0..40).map(|n| {
            let store = if n % 2 == 0 { &s.locks } else { &s.twin };
            store.change_lock(&key, acquire(&format!("holder {n}")))
        });
        let answers: Vec<LockAnswer> = join_all(asked).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<&LockAt> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!(winners.len(), 1);
        for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(
                matches!(refused, LockRefusal::Taken(seen) if seen.state.holder() == winners[0].state.holder())
            );
        }
    }
}

async fn a_lock_that_nobody_gives_back_is_free_when_its_time_ends(s: LockSubject) {
    let first = s.acquired("who crashed").await;
    (s.pass)(secs(290)).await;
    taken(s.say(acquire("too early")).await);
    (s.pass)(secs(20)).await;
    assert_eq!(s.seen().await.state, LockState::Free);
    assert!(s.acquired("the next").await > first);
}

async fn a_renewed_lock_goes_on_and_a_late_renewal_is_refused(s: LockSubject) {
    let token = s.acquired("me").await;
    for _ in 0..3 {
        (s.pass)(secs(250)).await;
        let renewed = s.say(renew(token)).await.unwrap();
        assert_eq!((renewed.token, renewed.state.holder()), (token, Some("me")));
        ends_in(&renewed, TTL);
    }
    let shorter = s.say(LockEvent::Renew { token, ttl: secs(60) }).await.unwrap();
    ends_in(&shorter, secs(60));
    (s.pass)(secs(70)).await;
    assert_eq!(s.say(renew(token)).await, Err(LockRefusal::Lost), "it may have been somebody else's since");
    assert_eq!(s.seen().await.state, LockState::Free);
    assert_eq!(s.say(renew(LockToken(0))).await, Err(LockRefusal::Lost));
}

async fn a_success_frees_at_once_and_is_answered_alike_again(s: LockSubject) {
    let token = s.acquired("me").await;
    assert_eq!(s.say(succeed(token)).await.unwrap().state, LockState::Free);
    assert_eq!(s.seen().await.state, LockState::Free);
    assert_eq!(s.say(succeed(token)).await.unwrap().state, LockState::Free, "the first answer was lost");
    assert_eq!(s.say(renew(token)).await, Err(LockRefusal::Lost));
    assert_eq!(s.say(fail(token, Cooldown::Permanent)).await, Err(LockRefusal::Lost));
    assert!(s.acquired("you").await > token);
    assert_eq!(s.say(succeed(token)).await, Err(LockRefusal::Lost), "it is somebody else's now");
    (s.pass)(secs(310)).await;
    assert_eq!(s.say(succeed(token)).await, Err(LockRefusal::Lost));
}

async fn a_failure_leaves_the_lock_cooling_for_the_rest_of_its_time(s: LockSubject) {
    let token = s.acquired("me").await;
    (s.pass)(secs(100)).await;
    let failed = s.say(fail(token, Cooldown::RestOfTtl)).await.unwrap();
    ends_in(&failed, secs(200));
    let refused = taken(s.say(acquire("you")).await);
    let told = (refused.state.as_str(), refused.state.holder(), refused.state.reason());
    assert_eq!(told, ("cooling", Some("me"), Some("exit status 3")));
    ends_in(&refused, secs(200));
    let again = s.say(fail(token, Cooldown::Permanent)).await.unwrap();
    assert_eq!(again.state.as_str(), "cooling", "the first answer was lost; what it did stays");
    for late in [renew(token), succeed(token)] {
        assert_eq!(s.say(late).await, Err(LockRefusal::Lost));
    }
    (s.pass)(secs(210)).await;
    assert_eq!(s.seen().await.state, LockState::Free);
    assert!(s.acquired("you").await > token);
}

async fn a_failure_may_cool_shorter_longer_or_not_at_all(s: LockSubject) {
    for wait in [30, 3600] {
        let token = s.acquired("me").await;
        ends_in(&s.say(fail(token, Cooldown::For(secs(wait)))).await.unwrap(), secs(wait));
        (s.pass)(secs(wait - 10)).await;
        assert_eq!(taken(s.say(acquire("you")).await).state.as_str(), "cooling");
        (s.pass)(secs(20)).await;
        assert_eq!(s.seen().await.state, LockState::Free);
    }
    let token = s.acquired("me").await;
    assert_eq!(s.say(fail(token, Cooldown::For(Duration::ZERO))).await.unwrap().state, LockState::Free);
    assert!(s.acquired("you").await > token);
}

async fn a_failure_for_good_closes_until_an_operator_opens(s: LockSubject) {
    let token = s.acquired("me").await;
    let closed = s.say(fail(token, Cooldown::Permanent)).await.unwrap();
    assert_eq!((closed.state.as_str(), closed.left()), ("closed", None));
    (s.pass)(secs(30 * 86_400)).await;
    assert_eq!(s.locks.forget_locks(100).await.unwrap(), 0, "it is kept as long as it takes");
    let refused = taken(s.say(acquire("you")).await);
    let told = (refused.state.as_str(), refused.state.holder(), refused.state.reason());
    assert_eq!(told, ("closed", Some("me"), Some("exit status 3")));
    assert_eq!(s.say(fail(token, Cooldown::RestOfTtl)).await.unwrap().state.as_str(), "closed");
    assert_eq!(s.say(succeed(token)).await, Err(LockRefusal::Lost));
    assert_eq!(s.say(LockEvent::Open).await.unwrap().state, LockState::Free);
    assert!(s.acquired("you").await > token);
}

async fn an_old_holder_changes_nothing(s: LockSubject) {
    let old = s.acquired("old").await;
    (s.pass)(secs(310)).await;
    let new = s.acquired("new").await;
    for late in [renew(old), succeed(old), fail(old, Cooldown::Permanent), fail(old, Cooldown::RestOfTtl)] {
        assert_eq!(s.twin.change_lock(&named("a"), late).await.unwrap(), Err(LockRefusal::Lost));
    }
    let seen = s.seen().await;
    assert_eq!((seen.state.as_str(), seen.state.holder()), ("held", Some("new")));
    ends_in(&seen, TTL);
    assert!(s.say(renew(new)).await.is_ok());
    for invented in [LockToken(new.0 + 1), LockToken(0), LockToken(-1), LockToken(i64::MAX)] {
        assert_eq!(s.say(succeed(invented)).await, Err(LockRefusal::Lost));
    }
}

async fn an_opened_lock_is_lost_to_its_holder(s: LockSubject) {
    assert_eq!(s.say(LockEvent::Open).await.unwrap().state, LockState::Free, "it is open already");
    let token = s.acquired("me").await;
    assert_eq!(s.say(LockEvent::Open).await.unwrap().state, LockState::Free);
    for late in [renew(token), succeed(token), fail(token, Cooldown::RestOfTtl)] {
        assert_eq!(s.say(late).await, Err(LockRefusal::Lost));
    }
    let cooling = s.acquired("me").await;
    s.say(fail(cooling, Cooldown::RestOfTtl)).await.unwrap();
    assert_eq!(s.say(LockEvent::Open).await.unwrap().state, LockState::Free);
    assert!(s.acquired("you").await > cooling);
}

async fn tokens_of_a_name_grow_whatever_happened_to_it(s: LockSubject) {
    let mut newest = LockToken(0);
    for round in 0..8 {
        let token = s.acquired("me").await;
        assert!(token > newest, "{token:?} comes after {newest:?}");
        newest = token;
        let end = match round % 4 {
            0 => succeed(token),
            1 => fail(token, Cooldown::For(Duration::ZERO)),
            2 => LockEvent::Open,
            _ => fail(token, Cooldown::For(secs(10))),
        };
        s.say(end).await.unwrap();
        (s.pass)(secs(20)).await;
    }
}

async fn what_is_forgotten_is_free_and_its_tokens_go_on(s: LockSubject) {
    let mut tokens = Vec::new();
    for key in ["done", "crashed", "failed"] {
        tokens.push(s.locks.change_lock(&named(key), acquire("me")).await.unwrap().unwrap().token);
    }
    s.locks.change_lock(&named("done"), succeed(tokens[0])).await.unwrap().unwrap();
    s.locks.change_lock(&named("failed"), fail(tokens[2], Cooldown::For(secs(3600)))).await.unwrap().unwrap();
    assert_eq!(s.twin.forget_locks(100).await.unwrap(), 0, "a success may come again");
    (s.pass)(secs(400)).await;
    for _ in 0..3 {
        s.twin.forget_locks(1).await.unwrap();
    }
    assert_eq!(s.locks.lock(&named("failed")).await.unwrap().state.as_str(), "cooling");
    for (key, old) in [("done", tokens[0]), ("crashed", tokens[1])] {
        assert_eq!(s.locks.lock(&named(key)).await.unwrap().state, LockState::Free);
        let late = s.locks.change_lock(&named(key), renew(old)).await.unwrap();
        assert_eq!(late, Err(LockRefusal::Lost), "{key}");
        let new = s.locks.change_lock(&named(key), acquire("you")).await.unwrap().unwrap().token;
        assert!(new > old, "{key}: {new:?} comes after {old:?}");
    }
}

async fn names_are_told_apart_and_text_comes_back_as_it_was(s: LockSubject) {
    let long = "x".repeat(LockName::MAX);
    let names = ["a b", "A b", "문서:42/쪽", "it's \"quoted\"", "%2F*?[a]", "{tag}", long.as_str()];
    for name in names {
        let given = s.locks.change_lock(&named(name), acquire(name)).await.unwrap().unwrap();
        s.locks
            .change_lock(
                &named(name),
                LockEvent::Fail { token: given.token, reason: name.into(), cooldown: Cooldown::Permanent },
            )
            .await
            .unwrap()
            .unwrap();
    }
    for name in names {
        let seen = s.twin.lock(&named(name)).await.unwrap().state;
        assert_eq!((seen.holder(), seen.reason()), (Some(name), Some(name)));
    }
    assert_eq!(s.seen().await.state, LockState::Free);
}

/// A small generator: a seed gives the same history everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

async fn a_random_history_of_a_lock_agrees_with_the_rule(s: LockSubject) {
    for seed in 1..=4 {
        let key = named(&format!("history {seed}"));
        let mut dice = Dice(seed);
        let (mut rule, mut now) = (Lock::default(), Timestamp::from_millis(0));
        // Tokens are the store's own: what the rule calls n, it calls tokens[n].
        let mut tokens = vec![LockToken(0)];
        for step in 0..60 {
            let rank = dice.roll(3).min(rule.token.0 as u64);
            let (ours, its) = {
                let old = LockToken(rule.token.0 - rank as i64);
                (old, tokens[old.0 as usize])
            };
            // How long a success is remembered is the store's affair.
            let of = |token| match (step * 7 + seed) % 3 {
                0 => LockEvent::Renew { token, ttl: secs(90) },
                1 if rule.left != LockState::Free => LockEvent::Succeed { token },
                _ => LockEvent::Fail { token, reason: "no".into(), cooldown: Cooldown::RestOfTtl },
            };
            let (to_rule, to_store) = match dice.roll(6) {
                0..=2 => (acquire("me"), acquire("me")),
                3 | 4 => (of(ours), of(its)),
                _ if dice.roll(3) == 0 => (LockEvent::Open, LockEvent::Open),
                _ => (of(ours), of(its)),
            };
            let expected = rule.on(&to_rule, now);
            let found = s.locks.change_lock(&key, to_store.clone()).await.unwrap();
            let context = format!("seed {seed}, step {step}: {to_store:?} gave {found:?}");
            assert_eq!(expected.is_ok(), found.is_ok(), "{context}, not {expected:?}");
            if let (Ok(after), Ok(seen)) = (&expected, &found) {
                if after.token != rule.token {
                    tokens.resize(after.token.0 as usize + 1, LockToken(0));
                    tokens[after.token.0 as usize] = seen.token;
                }
                rule = after.clone();
            }
            let (state, seen) = (rule.state(now), s.twin.lock(&key).await.unwrap());
            assert_eq!(state.as_str(), seen.state.as_str(), "{context}");
            assert_eq!(
                (state.holder(), state.reason()),
                (seen.state.holder(), seen.state.reason()),
                "{context}"
            );
            if let Some(until) = state.until() {
                ends_in(&seen, until.since(now));
            }
            // Times end at tens of seconds, and this never does.
            let wait = secs(dice.roll(12) * 10 + if step == 0 { 5 } else { 0 });
            (s.pass)(wait).await;
            now = now.plus(wait);
        }
    }
}
