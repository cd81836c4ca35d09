//! Upstreams: closures, probes, ramps, rates, concurrency, money and what providers say is
//! left, as rules.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod books;
mod breaker;
#[path = "../common/mod.rs"]
mod common;
mod limits;
mod room;

use common::{at, id, secs, token};
use coolant_core::failure::FailureClass;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Allowance, Breaker, Report, Starter};

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
