//! What providers say is left of their limits.

use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::money::Usage;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Ask, Denial, Left, Limits, MOST_TOKENS, Meter, Per, PermitId, PermitRequest, Room, Spending, Verdict,
};
use proptest::prelude::*;
use serde_json::json;

use super::books::{Books, ask, rate};
use super::common::{at, secs};

fn left(amount: u64, seconds: u64) -> Vec<Left> {
    vec![Left { amount, reset_in: secs(seconds) }]
}

fn tokens(amount: u64, seconds: u64) -> Room {
    Room { tokens: left(amount, seconds), ..Room::default() }
}

fn requests(amount: u64, seconds: u64) -> Room {
    Room { requests: left(amount, seconds), ..Room::default() }
}

fn used(tokens: i64) -> Usage {
    Usage { input_tokens: tokens, ..Usage::default() }
}

/// A call that costs nothing.
fn call(tokens: u64) -> Ask {
    ask(tokens, 0.0)
}

/// Books after one call whose answer stated that room at second 0.
fn told(room: Room) -> Books {
    let mut books = Books::of(Limits::default());
    books.ask(&call(1), at(0)).unwrap();
    books.end(&call(1), Verdict::Ok { room }, used(1), at(0));
    books
}

const fn wait(seconds: u64) -> Result<(), (Denial, Option<Duration>)> {
    Err((Denial::RateLimited, Some(secs(seconds))))
}

#[test]
fn a_call_begins_where_what_is_left_is_enough_beside_what_is_in_flight() {
    let mut books = told(tokens(1000, 60));
    assert_eq!(books.ask(&call(1001), at(10)), wait(50));
    assert_eq!(books.ask(&call(600), at(10)), Ok(()));
    assert_eq!(books.ask(&call(400), at(10)), Ok(()));
    let denied = books.try_ask(&call(1), at(10)).unwrap_err();
    let said = "RATE_LIMITED: the provider of upstream `u` says how much is left of its limits; \
                tokens left: 1000, in flight: 1000, needed: 1";
    assert_eq!(denied.to_string(), said);
}

#[test]
fn calls_count_as_tokens_do() {
    let mut books = told(requests(2, 60));
    assert_eq!(books.ask(&call(900), at(0)), Ok(()));
    assert_eq!(books.ask(&call(900), at(0)), Ok(()));
    assert_eq!(books.ask(&call(0), at(0)), wait(1));
    // Both hold: the longer wait is told.
    let mut books = told(Room { requests: left(0, 20), tokens: left(10, 30) });
    assert_eq!(books.ask(&call(11), at(0)), wait(30));
    assert_eq!(books.ask(&call(10), at(0)), wait(20));
    assert_eq!(books.ask(&call(10), at(20)), Ok(()));
}

#[test]
fn where_nothing_is_left_no_call_begins_whatever_it_estimates() {
    for nothing in [tokens(0, 30), requests(0, 30)] {
        let mut books = told(nothing);
        assert_eq!(books.ask(&call(0), at(1)), wait(29));
        assert_eq!(books.ask(&call(0), at(30)), Ok(()));
    }
}

/// An estimate says how much it may be at most, and nobody knows how large the limit is.
#[test]
fn a_call_that_needs_more_than_was_ever_left_goes_at_the_reset() {
    let mut books = told(tokens(1000, 60));
    assert_eq!(books.ask(&call(1_000_000), at(59)), wait(1));
    assert_eq!(books.ask(&call(1_000_000), at(60)), Ok(()));
}

#[test]
fn calls_in_flight_may_use_less_than_they_said_so_the_next_asks_again_soon() {
    let mut books = told(tokens(1000, 60));
    books.ask(&call(900), at(0)).unwrap();
    assert_eq!(books.ask(&call(200), at(5)), wait(1), "it fits as soon as that call is over");
    assert_eq!(books.ask(&call(1001), at(5)), wait(55), "it does not, whatever that call uses");
    books.end(&call(900), Verdict::Ok { room: tokens(950, 55) }, used(50), at(5));
    assert_eq!(books.ask(&call(200), at(5)), Ok(()));
}

#[test]
fn nobody_is_believed_for_longer_than_an_hour() {
    let mut books = told(requests(0, 86_400));
    assert_eq!(books.ask(&call(1), at(0)), wait(3600));
    assert_eq!(books.ask(&call(1), at(3600)), Ok(()));
}

#[test]
fn a_minutes_limit_and_a_days_hold_side_by_side() {
    let both = [left(3, 20), left(5, 3000)].concat();
    let mut books = told(Room { requests: both, ..Room::default() });
    for _ in 0..3 {
        assert_eq!(books.ask(&call(1), at(0)), Ok(()));
    }
    assert_eq!(books.ask(&call(1), at(0)), wait(1));
    // The minute is over; three calls are in flight still.
    assert_eq!(books.ask(&call(1), at(20)), Ok(()));
    assert_eq!(books.ask(&call(1), at(20)), Ok(()));
    assert_eq!(books.ask(&call(1), at(20)), wait(1));
}

#[test]
fn old_news_of_a_window_does_not_make_it_fuller() {
    let mut books = told(tokens(100, 60));
    books.ask(&call(50), at(1)).unwrap();
    // Its answer came before the other one's, and was told after it.
    books.end(&call(50), Verdict::Ok { room: tokens(900, 60) }, used(50), at(2));
    assert_eq!(books.ask(&call(101), at(3)).unwrap_err().0, Denial::RateLimited);
    assert_eq!(books.ask(&call(100), at(3)), Ok(()));
}

#[test]
fn news_of_a_window_that_is_over_hides_nothing_of_the_next() {
    let mut books = told(tokens(500, 60));
    books.ask(&call(50), at(1)).unwrap();
    // The end of a long stream, which began just before the last reset.
    books.end(&call(50), Verdict::Ok { room: tokens(10, 2) }, used(50), at(2));
    assert_eq!(books.ask(&call(11), at(3)), wait(1));
    assert_eq!(books.ask(&call(501), at(4)), wait(56));
    assert_eq!(books.ask(&call(500), at(4)), Ok(()));
}

#[test]
fn a_call_whose_end_states_nothing_is_taken_off_what_was_stated() {
    let failed = |class| Failure::new(class, "X", "");
    let ends = [
        (Verdict::Ok { room: Room::default() }, used(300), 700),
        (Verdict::Ok { room: Room::default() }, used(0), 600),
        (Verdict::Ok { room: requests(5, 60) }, used(300), 700),
        (Verdict::CutShort, used(0), 600),
        (Verdict::Failed(failed(FailureClass::Timeout)), used(0), 600),
        (Verdict::Failed(failed(FailureClass::InvalidRequest)), used(0), 1000),
        (Verdict::NotSent(failed(FailureClass::Network)), used(0), 1000),
    ];
    for (verdict, usage, still_left) in ends {
        let mut books = told(tokens(1000, 60));
        books.ask(&call(400), at(1)).unwrap();
        let what = format!("{verdict:?}");
        books.end(&call(400), verdict, usage, at(1));
        assert_eq!(books.ask(&call(still_left + 1), at(2)).unwrap_err().0, Denial::RateLimited, "{what}");
        assert_eq!(books.ask(&call(still_left), at(2)), Ok(()), "{what}");
    }
    // A refusal may have been counted as a call; what was never sent was not.
    for (verdict, is_room) in [
        (Verdict::Failed(failed(FailureClass::InvalidRequest)), false),
        (Verdict::NotSent(failed(FailureClass::Network)), true),
    ] {
        let mut books = told(requests(1, 60));
        books.ask(&call(1), at(1)).unwrap();
        books.end(&call(1), verdict, used(0), at(1));
        assert_eq!(books.ask(&call(1), at(2)).is_ok(), is_room);
    }
}

#[test]
fn the_operators_rate_and_the_providers_word_both_hold() {
    let mut books = told(tokens(1000, 60));
    books.limits.requests = rate(10, Per::Minute);
    assert_eq!(books.ask(&call(400), at(0)), Ok(()));
    assert_eq!(books.ask(&call(400), at(0)), wait(6), "a tenth of its rate at once");
    assert_eq!(books.ask(&call(1001), at(0)), wait(60));
    assert_eq!(books.ask(&call(700), at(6)), wait(1));
    assert_eq!(books.ask(&call(600), at(6)), Ok(()));
}

#[test]
fn sums_and_estimates_of_any_size_are_counted() {
    let mut books = told(tokens(u64::MAX, 60));
    assert_eq!(books.ask(&call(u64::MAX), at(0)), Ok(()));
    books.live.tokens = u64::MAX;
    assert_eq!(books.ask(&call(u64::MAX), at(0)), wait(1));
    assert_eq!(books.live.with(u64::MAX, Default::default()).tokens, u64::MAX);
    let request = PermitRequest {
        id: PermitId(uuid::Uuid::from_u128(1)),
        upstream: coolant_core::names::Upstream::parse("u").unwrap(),
        job: None,
        tenant: coolant_core::names::Tenant::default(),
        step: None,
        tokens: u64::MAX,
        cost: Default::default(),
    };
    assert_eq!(Spending::of(&request).tokens, MOST_TOKENS);
}

#[test]
fn a_meter_of_an_older_version_is_read_and_keeps_its_counts() {
    let old = json!({"requests": null, "tokens": null, "rest_until": 99, "day": 0, "spent": 7, "minute": 3,
        "minute_requests": 2, "minute_tokens": 5});
    let mut books = Books::of(Limits::default());
    books.meter = serde_json::from_value::<Meter>(old).unwrap();
    assert_eq!(books.meter.used_this_minute(at(180)), (2, 5));
    assert_eq!(books.ask(&call(1), at(0)), Ok(()));
    // What is kept now comes back.
    let kept = told(Room { requests: left(1, 9), tokens: left(2, 9) }).meter;
    assert_eq!(serde_json::from_value::<Meter>(serde_json::to_value(&kept).unwrap()).unwrap(), kept);
}

const WINDOW_MS: i64 = 60_000;
const TOKENS: u64 = 1000;
const REQUESTS: u64 = 9;

/// A provider with windows that keeps to what it states.
#[derive(Default)]
struct Provider {
    window: i64,
    tokens: u64,
    requests: u64,
}

impl Provider {
    /// Takes a call. What it states, or nothing if it has to refuse.
    fn take(&mut self, tokens: u64, now: Timestamp) -> Option<Room> {
        let window = now.as_millis().div_euclid(WINDOW_MS);
        if self.window != window {
            *self = Self { window, ..Self::default() };
        }
        self.tokens += tokens;
        self.requests += 1;
        let end = Timestamp::from_millis((window + 1) * WINDOW_MS);
        let left = |amount| vec![Left { amount, reset_in: end.since(now) }];
        Some(Room {
            requests: left(REQUESTS.checked_sub(self.requests)?),
            tokens: left(TOKENS.checked_sub(self.tokens)?),
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Calls reach the provider when they do, and their answers are told in any order and as late as may be: none
    /// is refused, as long as what nobody knows anything of yet fits.
    #[test]
    fn a_provider_that_states_its_room_never_has_to_refuse(
        story in prop::collection::vec(
            (0_u8..4, any::<prop::sample::Index>(), 1_u64..=TOKENS / 4, 0_u64..=100, 0_u64..15_000),
            1..150,
        )
    ) {
        let mut books = Books::of(Limits { max_concurrent: Some(4), ..Limits::default() });
        let mut provider = Provider::default();
        let (mut sent, mut answered) = (Vec::new(), Vec::new());
        let mut now = at(0);
        for (what, which, tokens, percent, pause) in story {
            match what {
                0 => sent.extend(books.ask(&call(tokens), now).ok().map(|()| tokens)),
                1 if !sent.is_empty() => {
                    let estimate = sent.swap_remove(which.index(sent.len()));
                    let tokens = estimate * percent / 100;
                    let room = provider.take(tokens, now);
                    prop_assert!(room.is_some(), "refused: {} tokens in {} calls", provider.tokens, provider.requests);
                    answered.push((estimate, tokens, room.unwrap()));
                }
                2 if !answered.is_empty() => {
                    let (estimate, tokens, room) = answered.swap_remove(which.index(answered.len()));
                    books.end(&call(estimate), Verdict::Ok { room }, used(tokens.try_into().unwrap()), now);
                }
                _ => now = now.plus(Duration::from_millis(pause)),
            }
        }
        // Nobody waits for ever: an hour later whatever was said is void.
        books.live = Default::default();
        prop_assert_eq!(books.ask(&call(u64::MAX), now.plus(secs(3600))), Ok(()));
    }

    /// What a call finds does not depend on the order in which answers came.
    #[test]
    fn the_order_of_answers_changes_nothing(
        mut stated in prop::collection::vec((0_u64..50, 1_u64..50), 1..8),
        need in 0_u64..60, later in 0_i64..60, turn in any::<prop::sample::Index>(),
    ) {
        let hear = |stated: &[(u64, u64)]| {
            let mut books = Books::of(Limits::default());
            for (amount, seconds) in stated {
                books.live = books.live.with(0, Default::default());
                books.end(&call(0), Verdict::Ok { room: tokens(*amount, *seconds) }, used(0), at(0));
            }
            books
        };
        let mut first = hear(&stated);
        let middle = turn.index(stated.len());
        stated.rotate_left(middle);
        stated.reverse();
        let mut second = hear(&stated);
        prop_assert_eq!(&first.meter, &second.meter);
        let strictest = stated.iter().filter(|(amount, seconds)| {
            *amount < need.max(1) && i64::try_from(*seconds).unwrap() > later
        });
        let wait = strictest.map(|(_, seconds)| *seconds).max();
        let told = first.ask(&call(need), at(later));
        prop_assert_eq!(told, second.ask(&call(need), at(later)));
        prop_assert_eq!(told.is_ok(), wait.is_none());
    }
}
