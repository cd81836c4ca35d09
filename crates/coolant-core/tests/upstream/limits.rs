//! Rates, concurrency and money.

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::money::{Money, Usage};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Ask, Bucket, Denial, Limits, Per, PermitId, PermitSettlement, Rate, Verdict};
use proptest::prelude::*;

use super::books::{Books, ask, cost, rate};
use super::common::{at, secs};
use super::{attempt, probing};

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

/// Takes what may be taken, step by step, and judges every span of it.
fn keeps_to(rate: Rate, steps: Vec<(i64, u64)>) -> Result<(), TestCaseError> {
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
            let most =
                i128::from(rate.burst()) * i128::from(rate.per.millis()) + span * i128::from(rate.amount);
            prop_assert!(i128::from(sum) * i128::from(rate.per.millis()) <= most);
        }
    }
    Ok(())
}

#[test]
fn a_wait_that_is_told_while_a_unit_comes_back_is_enough() {
    keeps_to(Rate { amount: 1, per: Per::Minute }, vec![(0, 1), (1537, 1)]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes when: within no span more is taken than the rate and one burst allow.
    #[test]
    fn no_window_holds_more_than_the_rate_and_a_burst(
        amount in 1_u32..5000,
        minute in any::<bool>(),
        steps in prop::collection::vec((0_i64..3000, 1_u64..20), 1..200),
    ) {
        keeps_to(Rate { amount, per: if minute { Per::Minute } else { Per::Second } }, steps)?;
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
