//! Upstreams: closures, probes, ramps, rates, concurrency and money, as rules.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use std::time::Duration;

use common::{at, id, secs, token};
use coolant_core::evidence::{self, Evidence};
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Allowance, Ask, Breaker, BreakerState, Bucket, Closure, Denial, Limits, Live, Meter, Party, Per,
    PermitId, PermitSettlement, Rate, Report, Spending, Starter, Verdict, admit, close, settle,
};
use proptest::prelude::*;
use serde_json::Value;

fn attempt(n: u128) -> Starter {
    Starter::Job { id: id(n), token: token(1) }
}

fn report(by: Starter, class: FailureClass, stated: Option<u64>) -> Report {
    let code = format!("LLM_{}", class.code_suffix());
    Report { class, stated: stated.map(secs), code, reason: "no".into(), by, ends_attempt: false }
}

fn limited(stated: Option<u64>) -> Report {
    report(attempt(99), FailureClass::RateLimited, stated)
}

fn closed(stated: Option<u64>) -> Breaker {
    let mut breaker = Breaker::default();
    assert!(breaker.report(&limited(stated), at(0)));
    breaker
}

fn until(breaker: &Breaker) -> Timestamp {
    breaker.closure().unwrap().until
}

/// The breaker with its probe under way.
fn probing(stated: Option<u64>) -> Breaker {
    let mut breaker = closed(stated);
    let due = until(&breaker);
    assert_eq!(breaker.allowance(false, due), Allowance::AtMost(1));
    breaker.start(attempt(1), due);
    breaker
}

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
fn an_answer_that_went_well_may_say_that_nothing_is_left() {
    let headers = |list: &[(&str, &str)]| {
        let headers = list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        evidence::rest(&Evidence { status: Some(200), headers, body: Value::Null }, None)
    };
    let none_left = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")];
    assert_eq!(headers(&none_left), Some(secs(360)));
    let some_left = [("x-ratelimit-remaining-tokens", "12"), ("x-ratelimit-reset-tokens", "172ms")];
    assert_eq!(headers(&some_left), None);
    assert_eq!(headers(&[("x-ratelimit-reset", "30")]), None, "no count, no claim");
}

const fn rate(amount: u32, per: Per) -> Option<Rate> {
    Some(Rate { amount, per })
}

struct Books {
    breaker: Breaker,
    limits: Limits,
    meter: Meter,
    live: Live,
}

impl Books {
    fn of(limits: Limits) -> Self {
        Self { breaker: Breaker::default(), limits, meter: Meter::default(), live: Live::default() }
    }

    fn ask(&mut self, ask: &Ask, now: Timestamp) -> Result<(), (Denial, Option<Duration>)> {
        let Self { breaker, limits, meter, live } = self;
        let party = Party { name: "u".into(), limits, meter, live: *live };
        admit(&mut [(breaker, true)], &mut [party], ask, now)
            .map(|()| *live = live.with(ask.cost))
            .map_err(|denied| (denied.denial, denied.retry_after))
    }

    fn settle(&mut self, reserved: Money, usage: Usage, now: Timestamp) {
        let permit = PermitId(uuid::Uuid::from_u128(1));
        let spending = Spending {
            id: permit,
            upstream: Upstream::parse("u").unwrap(),
            tenant: Tenant::default(),
            job: None,
            step: None,
            tokens: 0,
            cost: reserved,
        };
        let settlement = PermitSettlement { id: permit, verdict: Verdict::Ok { rest: None }, usage };
        let Self { breaker, limits, meter, live } = self;
        live.permits -= 1;
        live.reserved = Money::from_nanos(live.reserved.as_nanos() - reserved.as_nanos());
        let party = Party { name: "u".into(), limits, meter, live: *live };
        settle(&spending, &settlement, breaker, None, &mut [party], now);
    }
}

fn ask(tokens: u64, usd: f64) -> Ask {
    let cost = Money::from_usd(usd).unwrap();
    Ask { starter: attempt(1), claimed_at: None, tokens, cost }
}

fn cost(usd: f64) -> Usage {
    Usage { cost: Money::from_usd(usd), ..Usage::default() }
}

#[test]
fn a_budget_reserves_and_settles() {
    let budget_per_day = Money::from_usd(1.0);
    let mut books = Books::of(Limits { budget_per_day, ..Limits::default() });
    assert_eq!(books.ask(&ask(0, 0.4), at(0)), Ok(()));
    assert_eq!(books.ask(&ask(0, 0.4), at(0)), Ok(()));
    assert_eq!(books.ask(&ask(0, 0.4), at(0)), Err((Denial::BudgetExhausted, Some(secs(1)))));
    books.settle(Money::from_usd(0.4).unwrap(), cost(0.1), at(1));
    assert_eq!(books.ask(&ask(0, 0.4), at(1)), Ok(()));
    books.settle(Money::from_usd(0.4).unwrap(), cost(0.9), at(2));
    // Spent is 1.00: nothing more before the next UTC day, also no call that is said to cost nothing.
    assert_eq!(books.ask(&ask(0, 0.0), at(3)), Err((Denial::BudgetExhausted, Some(secs(86_397)))));
    assert!(books.meter.is_exhausted(&books.limits, at(3)));
    assert_eq!(books.ask(&ask(0, 0.4), at(86_400)), Ok(()));
    assert!(!books.meter.is_exhausted(&books.limits, at(86_400)));
}

/// The last second before midnight is `at(86_399)`.
#[test]
fn a_window_that_spans_midnight_resets_normally() {
    let budget_per_day = Money::from_usd(1.0);
    let limits = Limits { budget_per_day, requests: rate(60, Per::Minute), ..Limits::default() };
    let mut books = Books::of(limits);
    // A burst of six in the last half minute of the day, and all the money.
    for n in 0..6 {
        assert_eq!(books.ask(&ask(0, 0.1), at(86_370)), Ok(()), "call {n}");
    }
    let (denial, wait) = books.ask(&ask(0, 0.1), at(86_370)).unwrap_err();
    assert_eq!((denial, wait), (Denial::RateLimited, Some(secs(1))));
    for n in 0..6 {
        books.settle(Money::from_usd(0.1).unwrap(), cost(if n == 0 { 0.5 } else { 0.1 }), at(86_372));
    }
    let (denial, wait) = books.ask(&ask(0, 0.1), at(86_398)).unwrap_err();
    assert_eq!((denial, wait), (Denial::BudgetExhausted, Some(secs(2))), "until midnight and no longer");
    // A new day has its money, and the rate goes on as in any other minute: one burst, then one a second.
    let mut begun = Vec::new();
    for tenth in 0..100 {
        let now = Timestamp::from_millis(86_400_000 + tenth * 100);
        if books.ask(&ask(0, 0.01), now).is_ok() {
            begun.push(tenth);
        }
    }
    assert_eq!(begun[..6], [0, 1, 2, 3, 4, 5]);
    assert_eq!(begun.len(), 6 + 9);
    assert_eq!(books.meter.spent_today(at(86_409)), Money::default());
    assert_eq!(books.meter.used_this_minute(at(86_409)), (15, 0), "those of yesterday are not among them");
    // A call that is settled after midnight is spent on the day on which it ended.
    books.settle(Money::from_usd(0.01).unwrap(), cost(0.25), at(86_410));
    assert_eq!(books.meter.spent_today(at(86_410)), Money::from_usd(0.25).unwrap());
    assert_eq!(
        books.meter.spent_today(at(86_399)),
        Money::default(),
        "a clock that is set back finds nothing"
    );
}

#[test]
fn an_estimate_that_never_fits_is_no_matter_of_waiting() {
    let limits =
        Limits { tokens: rate(1000, Per::Minute), budget_per_day: Money::from_usd(1.0), ..Limits::default() };
    let mut books = Books::of(limits);
    assert_eq!(books.ask(&ask(1001, 0.0), at(0)), Err((Denial::AboveLimit, None)));
    assert_eq!(books.ask(&ask(0, 1.1), at(0)), Err((Denial::AboveLimit, None)));
    assert_eq!(books.ask(&ask(1000, 1.0), at(0)), Ok(()), "more than the burst, but it fits the rate");
    assert_eq!(books.ask(&ask(1, 0.0), at(0)).unwrap_err().0, Denial::BudgetExhausted);
}

#[test]
fn a_cost_that_nobody_knows_counts_as_it_was_reserved() {
    let mut books = Books::of(Limits { budget_per_day: Money::from_usd(1.0), ..Limits::default() });
    books.ask(&ask(0, 0.4), at(0)).unwrap();
    books.settle(Money::from_usd(0.4).unwrap(), Usage::default(), at(0));
    assert_eq!(books.meter.spent_today(at(0)), Money::from_usd(0.4).unwrap());
}

#[test]
fn concurrency_is_what_is_in_flight() {
    let mut books = Books::of(Limits { max_concurrent: Some(2), ..Limits::default() });
    assert_eq!(books.ask(&ask(0, 0.0), at(0)), Ok(()));
    assert_eq!(books.ask(&ask(0, 0.0), at(0)), Ok(()));
    assert_eq!(books.ask(&ask(0, 0.0), at(0)).unwrap_err().0, Denial::ConcurrencyLimited);
    books.settle(Money::default(), cost(0.0), at(1));
    assert_eq!(books.ask(&ask(0, 0.0), at(1)), Ok(()));
}

#[test]
fn a_denied_call_takes_nothing() {
    let limits = Limits { requests: rate(10, Per::Second), max_concurrent: Some(1), ..Limits::default() };
    let mut books = Books::of(limits);
    books.ask(&ask(0, 0.0), at(0)).unwrap();
    let before = (books.meter.clone(), books.breaker.clone());
    books.ask(&ask(0, 0.0), at(5)).unwrap_err();
    assert_eq!((books.meter.clone(), books.breaker.clone()), before);
}

#[test]
fn the_probes_calls_pass_and_a_claim_of_the_ramp_is_not_counted_twice() {
    let mut books = Books::of(Limits::default());
    books.breaker = probing(Some(5));
    assert_eq!(books.ask(&ask(0, 0.0), at(6)), Ok(()), "a call of the probing attempt");
    let other = Ask { starter: attempt(2), ..ask(0, 0.0) };
    assert_eq!(books.ask(&other, at(6)).unwrap_err().0, Denial::UpstreamClosed);
    books.breaker.succeed(attempt(1), at(7));
    books.breaker.start(attempt(2), at(7));
    assert_eq!(books.ask(&Ask { claimed_at: Some(at(7)), ..other }, at(7)), Ok(()));
    let third = Ask { starter: attempt(3), claimed_at: Some(at(2)), ..other };
    let (denial, wait) = books.ask(&third, at(7)).unwrap_err();
    assert_eq!((denial, wait), (Denial::UpstreamClosed, Some(secs(1))));
}

#[test]
fn a_refusal_costs_nothing_and_a_timeout_may() {
    let settlement = |class| PermitSettlement {
        id: PermitId(uuid::Uuid::from_u128(1)),
        verdict: Verdict::Failed(Failure::new(class, "X", "")),
        usage: Usage::default(),
    };
    assert!(!settlement(FailureClass::RateLimited).is_paid());
    assert!(settlement(FailureClass::Timeout).is_paid());
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
    /// Whatever comes when: within no span more is taken than the rate and one burst allow.
    #[test]
    fn no_window_holds_more_than_the_rate_and_a_burst(
        amount in 1_u32..5000,
        minute in any::<bool>(),
        steps in prop::collection::vec((0_i64..3000, 1_u64..20), 1..200),
    ) {
        let rate = Rate { amount, per: if minute { Per::Minute } else { Per::Second } };
        let mut now = at(1_000_000);
        let mut bucket = Bucket::full(rate, now);
        let mut taken: Vec<(i64, u64)> = Vec::new();
        for (pause, units) in steps {
            now = Timestamp::from_millis(now.as_millis() + pause);
            let units = units.min(rate.burst());
            let wait = bucket.wait(rate, units, now);
            if wait.is_zero() {
                bucket = bucket.take(rate, units, now);
                taken.push((now.as_millis(), units));
            } else {
                // The wait that was told is enough, and not longer than it has to be.
                let later = now.plus(wait);
                prop_assert!(bucket.wait(rate, units, later).is_zero());
                let sooner = Timestamp::from_millis(later.as_millis() - 1);
                prop_assert!(!bucket.wait(rate, units, sooner).is_zero());
            }
        }
        for (i, (from, _)) in taken.iter().enumerate() {
            let mut sum = 0_u64;
            for (to, units) in &taken[i..] {
                sum += units;
                let span = i128::from(to - from);
                let most = i128::from(rate.burst()) * i128::from(rate.per.millis())
                    + span * i128::from(rate.amount);
                prop_assert!(i128::from(sum) * i128::from(rate.per.millis()) <= most);
            }
        }
    }

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

    /// Money: whatever is asked, settled and lost in whatever order, what is spent and reserved never passes the
    /// budget while estimates are kept to.
    #[test]
    fn a_budget_is_never_passed_while_estimates_hold(
        story in prop::collection::vec((any::<bool>(), 0_i64..60, 0_u32..100), 1..100)
    ) {
        let budget = Money::from_usd(1.0).unwrap();
        let mut books = Books::of(Limits { budget_per_day: Some(budget), ..Limits::default() });
        let mut open: Vec<Money> = Vec::new();
        for (asks, pause, cents) in story {
            let now = at(pause);
            if asks || open.is_empty() {
                let estimate = f64::from(cents) / 100.0;
                if books.ask(&ask(0, estimate), now).is_ok() {
                    open.push(Money::from_usd(estimate).unwrap());
                }
            } else {
                let reserved = open.remove(0);
                let used = Money::from_nanos(reserved.as_nanos() * i64::from(cents) / 100);
                books.settle(reserved, Usage { cost: Some(used), ..Usage::default() }, now);
            }
            prop_assert!(books.meter.spent_today(now).plus(books.live.reserved) <= budget);
        }
    }
}
