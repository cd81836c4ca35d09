//! The rules of waiting, one test each.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use std::time::Duration;

use common::*;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{Counters, Policy};
use coolant_core::retry::{JITTER, LONGEST_AUTOMATIC_WAIT, Verdict, after_failure, jittered, upstream_wait};
use proptest::prelude::*;

fn verdict(failure: &Failure, counters: Counters) -> Verdict {
    after_failure(&Policy::default(), &counters, failure, 0.0)
}

fn tries(tries: u32) -> Counters {
    Counters { tries, ..Counters::default() }
}

#[test]
fn the_last_wait_of_a_schedule_repeats() {
    let policy = Policy { max_attempts: 10, ..Policy::default() };
    let network = failure(FailureClass::Network);
    let waits: Vec<_> = (1..=5).map(|n| after_failure(&policy, &tries(n), &network, 0.0)).collect();
    assert_eq!(waits, [5, 30, 120, 120, 120].map(|wait| Verdict::Retry(secs(wait))));
    let policy = Policy { retry_delays: Vec::new(), ..policy };
    assert_eq!(after_failure(&policy, &tries(1), &network, 0.0), Verdict::Retry(Duration::ZERO));
}

#[test]
fn an_unusable_output_has_two_more_tries_and_is_then_permanent() {
    let bad = failure(FailureClass::InvalidOutput);
    let after =
        |invalid_outputs| verdict(&bad, Counters { invalid_outputs, tries: 1, ..Counters::default() });
    assert!(matches!(after(1), Verdict::Retry(_)));
    assert!(matches!(after(2), Verdict::Retry(_)));
    assert_eq!(after(3), Verdict::Permanent);
    let cut = Failure { final_: true, ..bad };
    assert_eq!(verdict(&cut, tries(1)), Verdict::Permanent, "the same request is cut again");
}

#[test]
fn a_timeout_has_two_more_tries_since_each_may_have_been_billed() {
    let policy = Policy { max_attempts: 100, ..Policy::default() };
    let timeout = failure(FailureClass::Timeout);
    let after = |timeouts| {
        let counters = Counters { timeouts, tries: timeouts, ..Counters::default() };
        after_failure(&policy, &counters, &timeout, 0.0)
    };
    assert!(matches!(after(1), Verdict::Retry(_)));
    assert!(matches!(after(2), Verdict::Retry(_)));
    assert_eq!(after(3), Verdict::GiveUp);
}

#[test]
fn a_failure_that_forbids_a_retry_is_given_up_with_its_class() {
    let untrusted = Failure { final_: true, ..failure(FailureClass::Network) };
    assert_eq!(verdict(&untrusted, tries(1)), Verdict::GiveUp);
}

#[test]
fn the_paid_call_limit_is_permanent() {
    let limit = Failure::new(FailureClass::HandlerError, "PAID_CALL_LIMIT", "no more calls");
    assert_eq!(verdict(&limit, tries(1)), Verdict::Permanent);
}

#[test]
fn a_job_whose_key_needs_a_person_cools_five_minutes() {
    for class in [FailureClass::Auth, FailureClass::Permission, FailureClass::QuotaExhausted] {
        assert_eq!(verdict(&failure(class), tries(1)), Verdict::Retry(secs(300)));
        assert_eq!(verdict(&failure(class), tries(4)), Verdict::GiveUp, "and it counts");
        assert_eq!(upstream_wait(&failure(class), 0.0), secs(3600), "one probe an hour");
    }
}

#[test]
fn a_stated_wait_is_never_shortened_and_the_schedule_is_its_floor() {
    let stated = |wait| failure(FailureClass::Network).with_retry_after(Some(secs(wait)));
    assert_eq!(verdict(&stated(77), tries(1)), Verdict::Retry(secs(77)));
    assert_eq!(verdict(&stated(1), tries(1)), Verdict::Retry(secs(5)));
    assert_eq!(upstream_wait(&stated(77), 0.0), secs(77));
    assert_eq!(upstream_wait(&failure(FailureClass::Overloaded), 0.0), secs(10));
}

#[test]
fn a_stated_wait_above_a_day_is_tried_after_a_day() {
    let month = failure(FailureClass::QuotaExhausted).with_retry_after(Some(secs(2_592_000)));
    assert_eq!(upstream_wait(&month, 0.0), LONGEST_AUTOMATIC_WAIT);
    assert_eq!(verdict(&month, tries(1)), Verdict::Retry(LONGEST_AUTOMATIC_WAIT));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jitter_only_adds_and_a_fifth_at_most(millis in 0_u64..100_000_000, jitter in 0.0_f64..=1.0) {
        let wait = Duration::from_millis(millis);
        let got = jittered(wait, jitter);
        prop_assert!(wait <= got);
        prop_assert!(got <= wait.mul_f64(1.0 + JITTER) + Duration::from_nanos(1));
    }

    #[test]
    fn no_roll_of_the_dice_breaks_a_wait(millis in any::<u64>(), jitter in any::<f64>()) {
        let wait = Duration::from_millis(millis);
        prop_assert!(jittered(wait, jitter) >= wait);
    }

    #[test]
    fn a_retry_is_never_before_the_stated_wait(
        class in proptest::sample::select(FailureClass::ALL.to_vec()),
        stated in 0_u64..=86_400,
        tried in 1_u32..4,
        jitter in 0.0_f64..=1.0,
    ) {
        let failure = failure(class).with_retry_after(Some(secs(stated)));
        if let Verdict::Retry(wait) = after_failure(&Policy::default(), &tries(tried), &failure, jitter) {
            prop_assert!(wait >= secs(stated));
        }
        prop_assert!(upstream_wait(&failure, jitter) >= secs(stated));
    }
}
