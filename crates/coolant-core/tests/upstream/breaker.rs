//! Closures, probes and the ramp after them.

use coolant_core::failure::FailureClass;
use coolant_core::upstream::{Allowance, Breaker, BreakerState, Closure, Report, close};
use proptest::prelude::*;

use super::common::{at, secs};
use super::{attempt, closed, limited, probing, report, until};

#[test]
fn the_latest_deadline_wins_and_a_shorter_one_never_shortens_it() {
    let mut breaker = closed(Some(60));
    assert!(!breaker.report(&limited(Some(5)), at(1)));
    assert_eq!(until(&breaker), at(60));
    assert!(breaker.report(&limited(Some(60)), at(1)));
    assert_eq!(until(&breaker), at(61));
    assert_eq!(breaker.allowance(false, at(60)), Allowance::Nothing(Some(at(61))));
}

#[test]
fn without_a_stated_wait_it_closes_for_ten_seconds_and_twice_as_long_with_each_failed_probe() {
    let mut breaker = closed(None);
    let mut waits = vec![until(&breaker).since(at(0)).as_secs()];
    for n in 0..6 {
        let now = until(&breaker);
        breaker.start(attempt(n), now);
        breaker.report(&report(attempt(n), FailureClass::Overloaded, None), now);
        waits.push(until(&breaker).since(now).as_secs());
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    // Only a success makes it forget.
    let now = until(&breaker);
    breaker.start(attempt(9), now);
    assert!(breaker.succeed(attempt(9), now));
    breaker.report(&limited(None), now);
    assert_eq!(until(&breaker).since(now), secs(10));
}

#[test]
fn a_stated_wait_is_obeyed_as_it_stands_unless_probes_show_it_wrong() {
    let mut breaker = probing(Some(30));
    breaker.report(&report(attempt(1), FailureClass::RateLimited, Some(30)), at(30));
    assert_eq!(until(&breaker), at(60));
    let mut breaker = closed(Some(1));
    let mut waits = Vec::new();
    for n in 0..4 {
        let now = until(&breaker);
        breaker.start(attempt(n), now);
        breaker.report(&report(attempt(n), FailureClass::RateLimited, Some(1)), now);
        waits.push(until(&breaker).since(now).as_secs());
    }
    assert_eq!(waits, [10, 20, 40, 80]);
}

#[test]
fn one_probe_goes_and_another_only_when_it_is_dead() {
    let breaker = probing(Some(5));
    assert_eq!(breaker.allowance(true, at(1000)), Allowance::Nothing(None));
    assert_eq!(breaker.allowance(false, at(6)), Allowance::AtMost(1));
    assert!(breaker.is_probe(attempt(1)) && !breaker.is_probe(attempt(2)));
}

#[test]
fn only_the_probes_own_success_opens_and_then_by_the_ramp() {
    let mut breaker = probing(Some(5));
    assert!(!breaker.succeed(attempt(2), at(6)), "a call of before the closure proves nothing");
    assert!(breaker.succeed(attempt(1), at(6)));
    let mut starts = Vec::new();
    for second in 6..20 {
        let now = at(second);
        let mut n = 0;
        while n < 2000 && breaker.allowance(false, now).of(1) == 1 {
            breaker.start(attempt(100), now);
            n += 1;
        }
        starts.push(n);
    }
    assert_eq!(starts[..6], [1, 2, 4, 8, 16, 32]);
    assert_eq!(starts[10], 2000, "open after ten seconds");
    breaker.settle_down(at(20));
    assert_eq!(breaker.state, BreakerState::Open);
    assert!(!breaker.needs_care());
}

#[test]
fn a_report_during_the_ramp_closes_again() {
    let mut breaker = probing(Some(5));
    breaker.succeed(attempt(1), at(6));
    assert!(breaker.report(&limited(Some(7)), at(7)));
    assert_eq!(breaker.allowance(false, at(8)), Allowance::Nothing(Some(at(14))));
    assert_eq!(breaker.closed_since, Some(at(7)));
}

#[test]
fn three_in_a_row_close_and_a_success_in_between_does_not_let_it_come_to_three() {
    let mut breaker = Breaker::default();
    let fault = |n| report(attempt(n), FailureClass::Timeout, None);
    assert!(!breaker.report(&fault(1), at(0)));
    assert!(!breaker.report(&fault(2), at(1)));
    breaker.succeed(attempt(3), at(2));
    assert!(!breaker.report(&report(attempt(4), FailureClass::Network, None), at(3)));
    assert!(!breaker.report(&report(attempt(5), FailureClass::UpstreamError, None), at(4)));
    assert!(breaker.report(&fault(6), at(5)));
    assert_eq!(until(&breaker), at(15));
}

#[test]
fn a_call_and_the_end_of_its_attempt_count_once() {
    let mut breaker = Breaker::default();
    for n in 1..=2 {
        let call = report(attempt(n), FailureClass::Timeout, None);
        breaker.report(&call, at(0));
        breaker.report(&Report { ends_attempt: true, ..call }, at(0));
    }
    assert!(breaker.closure().is_none(), "two calls, told twice each");
    assert!(breaker.report(&report(attempt(3), FailureClass::Timeout, None), at(1)));
}

#[test]
fn the_jobs_own_faults_close_nothing() {
    let mut breaker = Breaker::default();
    for class in [FailureClass::InvalidRequest, FailureClass::InvalidOutput, FailureClass::HandlerError] {
        for n in 0..5 {
            assert!(!breaker.report(&report(attempt(n), class, Some(60)), at(0)));
        }
    }
    assert_eq!(breaker, Breaker::default());
}

#[test]
fn no_money_and_a_wrong_key_close_the_credential_for_an_hour_until_a_probe_or_a_person() {
    let (mut upstream, mut credential) = (Breaker::default(), Breaker::default());
    let auth = report(attempt(1), FailureClass::Auth, None);
    close(&mut upstream, Some(&mut credential), &auth, at(0)).unwrap();
    assert!(upstream.closure().is_none());
    assert!(credential.closure().unwrap().needs_operator());
    assert_eq!(until(&credential), at(3600));
    // A rate limit for a while longer does not hide that a person has to act.
    credential.report(&limited(Some(7200)), at(1));
    assert!(credential.closure().unwrap().needs_operator());
    assert!(credential.reopen(at(2)));
    assert_eq!(credential.allowance(false, at(2)), Allowance::AtMost(1), "by the ramp");
}

#[test]
fn a_wait_of_days_is_probed_after_one_and_shown_as_it_was_stated() {
    let mut breaker = Breaker::default();
    breaker.report(&report(attempt(1), FailureClass::QuotaExhausted, Some(16 * 86_400)), at(0));
    let closure = breaker.closure().unwrap();
    assert_eq!(closure.until, at(86_400));
    assert_eq!(closure.shown_until(), at(16 * 86_400));
}

#[test]
fn a_call_that_was_in_flight_when_it_closed_lengthens_nothing_by_a_timeout() {
    let mut breaker = closed(Some(5));
    for n in 0..5 {
        breaker.report(&report(attempt(n), FailureClass::Timeout, None), at(1));
    }
    assert_eq!(until(&breaker), at(5));
}

#[test]
fn a_closure_by_hand_ends_like_any_other() {
    let mut breaker = Breaker::default();
    let closure = Closure {
        until: at(60),
        stated_until: None,
        class: None,
        code: "UPSTREAM_CLOSED".into(),
        reason: "maintenance".into(),
    };
    assert!(breaker.close(closure, at(0)));
    assert_eq!(breaker.allowance(false, at(59)), Allowance::Nothing(Some(at(60))));
    assert_eq!(breaker.allowance(false, at(60)), Allowance::AtMost(1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any story of a breaker: a deadline is never moved forward but by a success or by hand, never more than one
    /// probe is out, and left alone it lets somebody through within a day and a bit.
    #[test]
    fn any_story_of_a_breaker_keeps_its_rules(
        story in prop::collection::vec((0_u8..6, 0_i64..400, 0_u128..4, prop::option::of(0_u64..200_000)), 1..120)
    ) {
        let classes = [FailureClass::RateLimited, FailureClass::Timeout, FailureClass::QuotaExhausted];
        let mut breaker = Breaker::default();
        let mut now = at(0);
        for (what, pause, who, stated) in story {
            now = now.plus(secs(u64::try_from(pause).unwrap()));
            let before = breaker.clone();
            match what {
                0..=2 => {
                    let changed = breaker.report(&report(attempt(who), classes[usize::from(what)], stated), now);
                    if let (Some(old), BreakerState::Closed(_)) = (before.closure(), &before.state) {
                        prop_assert!(until(&breaker) >= old.until);
                        prop_assert_eq!(changed, until(&breaker) > old.until);
                    }
                }
                3 => {
                    let opened = breaker.succeed(attempt(who), now);
                    prop_assert_eq!(opened, before.is_probe(attempt(who)));
                    prop_assert_eq!(opened, before.closure().is_some() && breaker.closure().is_none());
                }
                4 => {
                    if breaker.allowance(true, now).of(1) == 1 {
                        breaker.start(attempt(who), now);
                        prop_assert!(before.closure().is_none() || breaker.is_probe(attempt(who)));
                        if before.closure().is_some() {
                            prop_assert_eq!(breaker.allowance(true, now), Allowance::Nothing(None));
                        }
                    }
                }
                _ => breaker.settle_down(now),
            }
        }
        let day = now.plus(secs(86_401));
        prop_assert!(breaker.allowance(false, day).of(1) == 1, "{breaker:?}");
    }
}
