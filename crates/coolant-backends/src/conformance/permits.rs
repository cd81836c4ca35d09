//! Permits: how many paid calls may begin, what they are booked as, and the limits that stop them.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::FailureClass;
use coolant_core::job::Status;
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::money::Usage;
use coolant_core::upstream::{
    Denial, Limits, NoPermit, Per, PermitRequest, PermitSettlement, Rate, SettledPermit, Verdict, end_of_day,
};
use serde_json::json;

use super::Subject;
use super::calls::*;
use super::kit::*;

pub(super) async fn of_sixteen_simultaneous_permits_of_a_limit_of_two_two_are_given(s: Subject) {
    s.set(limits(|limits| limits.max_concurrent = Some(2))).await;
    let asked = (0..16_u32).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &s.store } else { &s.twin });
        async move { acquire(&store, ask(n, None, 0.0)).await }
    });
    let answers = futures::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2);
    let denied = answers.iter().filter(|answer| denial(answer) == Some(Denial::ConcurrencyLimited));
    assert_eq!(denied.count(), 14);
    assert_eq!(s.upstream("u").await.live.permits, 2);
    let given = answers.iter().flatten().next().unwrap().id;
    let settlement = PermitSettlement { id: given, ..ok(0, 0.0) };
    assert!(!s.settle(settlement).await.unwrap().repeated);
    assert!(s.permit(ask(99, None, 0.0)).await.is_ok());
}

pub(super) async fn a_permit_that_is_asked_for_again_is_the_same_and_takes_nothing(s: Subject) {
    s.set(limits(|limits| limits.max_concurrent = Some(1))).await;
    let first = s.permit(ask(1, None, 0.5)).await.unwrap();
    assert_eq!(first.expires_at, s.now().plus(secs(120)));
    s.advance(1);
    assert_eq!(acquire(&s.twin, ask(1, None, 0.5)).await.unwrap(), first);
    let twice = s.store.acquire_permits(vec![ask(1, None, 0.5), ask(2, None, 0.5)]).await.unwrap();
    assert_eq!(twice[0].as_ref().ok(), Some(&first));
    assert_eq!(denial(&twice[1]), Some(Denial::ConcurrencyLimited));
    assert_eq!(s.upstream("u").await.live.reserved, usd(0.5));
    // Left alone it ends by itself.
    s.advance(120);
    assert_eq!(s.upstream("u").await.live.permits, 0);
    assert!(s.permit(ask(3, None, 0.0)).await.is_ok());
}

pub(super) async fn a_permit_of_a_job_needs_its_lease_and_ends_with_it(s: Subject) {
    s.set(limits(|limits| limits.max_concurrent = Some(1))).await;
    assert_eq!(s.permit(ask(1, Some(9), 0.0)).await, Err(NoPermit::Refused(Refusal::NotFound)));
    s.running(job(1)).await;
    let stale = PermitRequest { job: Some((id(1), token(2))), ..ask(1, None, 0.0) };
    assert_eq!(s.permit(stale).await, Err(NoPermit::Refused(Refusal::LeaseLost)));
    let given = s.permit(ask(1, Some(1), 0.3)).await.unwrap();
    assert_eq!(given.expires_at, s.now().plus(secs(30)));
    s.advance(20);
    s.apply(id(1), renew(1)).await.unwrap();
    s.advance(20);
    assert_eq!(s.upstream("u").await.live.permits, 1, "it lives with the renewed lease");
    s.advance(10);
    let now = s.upstream("u").await;
    assert_eq!((now.live.permits, now.live.reserved), (0, usd(0.0)), "the reservation came back");
    assert!(s.permit(ask(2, None, 0.0)).await.is_ok());
    // A cancelled job begins no more calls.
    s.claim_one().await;
    s.done(id(1), Event::Cancel).await;
    let late = PermitRequest { job: Some((id(1), token(2))), ..ask(3, None, 0.0) };
    assert_eq!(s.permit(late).await, Err(NoPermit::Refused(Refusal::LeaseLostByCancel)));
}

pub(super) async fn a_settled_call_is_booked_once_with_its_job(s: Subject) {
    s.running(job(1)).await;
    let step = Some("draft".to_owned());
    s.permit(PermitRequest { step: step.clone(), ..ask(1, Some(1), 0.4) }).await.unwrap();
    assert_eq!(s.settle(ok(9, 0.1)).await, None, "there is no such permit");
    let first = s.settle(ok(1, 0.1)).await.unwrap();
    assert_eq!(first, SettledPermit { class: None, closed: None, repeated: false });
    assert!(s.settle(ok(1, 0.1)).await.unwrap().repeated);
    let twice = s.twin.settle_permits(vec![ok(1, 0.1), ok(1, 0.1)]).await.unwrap();
    assert!(twice.iter().flatten().all(|settled| settled.repeated));
    let ledger = s.store.ledger(id(1)).await.unwrap();
    assert_eq!(ledger.len(), 1);
    assert_eq!((&ledger[0].step, ledger[0].attempt, ledger[0].usage.cost), (&step, 1, Some(usd(0.1))));
    assert_eq!(ledger[0].usage.upstream.as_deref(), Some("u"));
    let record = s.record(id(1)).await;
    assert_eq!((record.job.usage.calls, record.job.usage.cost), (1, usd(0.1)));
    assert_eq!(record.job.usage.wasted, usd(0.0));
    assert_eq!(s.store.attempts(id(1)).await.unwrap()[0].usage.calls, 1);
    let now = s.upstream("u").await;
    assert_eq!((now.meter.spent_today(s.now()), now.live.reserved), (usd(0.1), usd(0.0)));
}

pub(super) async fn a_call_that_is_settled_after_its_lease_is_paid_all_the_same(s: Subject) {
    s.running(job(1)).await;
    s.permit(ask(1, Some(1), 0.4)).await.unwrap();
    s.advance(30);
    s.claim_one().await;
    assert!(!s.settle(ok(1, 0.2)).await.unwrap().repeated);
    let record = s.record(id(1)).await;
    assert_eq!((record.job.usage.cost, record.job.usage.wasted), (usd(0.2), usd(0.2)));
    assert_eq!(record.job.status(), Status::Running, "nothing else changed");
    let attempts = s.store.attempts(id(1)).await.unwrap();
    assert_eq!((attempts[0].usage.cost, attempts[1].usage.cost), (usd(0.2), usd(0.0)));
    assert_eq!(s.upstream("u").await.meter.spent_today(s.now()), usd(0.2));
}

pub(super) async fn a_call_without_a_job_is_paid_too(s: Subject) {
    s.permit(ask(1, None, 0.4)).await.unwrap();
    s.settle(ok(1, 0.3)).await.unwrap();
    let stats = s.stats().await;
    assert_eq!((stats.paid_calls, stats.spent), (1, usd(0.3)));
    // A refusal costs nothing and is no paid call.
    s.permit(ask(2, None, 0.4)).await.unwrap();
    s.settle(failed(2, FailureClass::InvalidRequest)).await.unwrap();
    assert_eq!(s.stats().await.paid_calls, 1);
}

pub(super) async fn a_step_settles_the_permit_of_its_call(s: Subject) {
    s.running(job(1)).await;
    s.permit(ask(1, Some(1), 0.4)).await.unwrap();
    let call = |n: u32| Usage { permit: Some(permit(n)), ..paid(100_000_000) };
    let save = |name: &str, n: u32| Event::SaveStep {
        token: token(1),
        name: name.into(),
        output: json!(1),
        usage: vec![call(n)],
    };
    s.apply(id(1), save("a", 1)).await.unwrap();
    let now = s.upstream("u").await;
    assert_eq!((now.live.permits, now.meter.spent_today(s.now())), (0, usd(0.1)));
    assert!(s.settle(ok(1, 0.1)).await.unwrap().repeated);
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 1);
    // A call that is settled already is not booked again with what it made.
    s.permit(ask(2, Some(1), 0.0)).await.unwrap();
    s.settle(ok(2, 0.2)).await.unwrap();
    s.apply(id(1), save("b", 2)).await.unwrap();
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 2);
    assert_eq!(s.record(id(1)).await.job.usage.cost, usd(0.3));
    // A permit that nobody gave is no permit; the call is booked as any other.
    s.apply(id(1), save("c", 77)).await.unwrap();
    assert_eq!(s.record(id(1)).await.job.usage.calls, 3);
    // Paid, and then the lease is lost: the step is refused, the money is not.
    s.permit(ask(3, Some(1), 0.0)).await.unwrap();
    s.advance(30);
    s.claim_one().await;
    assert_eq!(s.apply(id(1), save("d", 3)).await, Err(Refusal::LeaseLost));
    assert_eq!(s.record(id(1)).await.job.usage.wasted, usd(0.1));
    assert!(s.settle(ok(3, 0.1)).await.unwrap().repeated);
}

pub(super) async fn a_budget_is_reserved_settled_and_given_back(s: Subject) {
    s.set(limits(|limits| limits.budget_per_day = Some(usd(1.0)))).await;
    for n in 1..=4 {
        s.submit(job(n)).await;
    }
    s.claim(4).await;
    let asked = (1..=4_u32).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &s.store } else { &s.twin });
        async move { (n, acquire(&store, ask(n, Some(n), 0.4)).await) }
    });
    let answers = futures::future::join_all(asked).await;
    let given: Vec<u32> = answers.iter().filter(|(_, answer)| answer.is_ok()).map(|(n, _)| *n).collect();
    assert_eq!(given.len(), 2);
    let denied = answers.iter().filter(|(_, it)| denial(it) == Some(Denial::BudgetExhausted));
    assert_eq!(denied.count(), 2);
    assert_eq!(s.upstream("u").await.live.reserved, usd(0.8));
    s.settle(ok(given[0], 0.1)).await.unwrap();
    assert!(s.permit(ask(10, None, 0.4)).await.is_ok());
    assert!(s.permit(ask(11, None, 0.4)).await.is_err());
    // The other one's worker is dead: its reservation comes back with the lease.
    s.advance(30);
    assert!(s.permit(ask(12, None, 0.4)).await.is_ok());
    let too_much = s.permit(ask(13, None, 1.1)).await;
    assert_eq!(denial(&too_much), Some(Denial::AboveLimit));
}

pub(super) async fn a_spent_budget_stops_claims_until_the_next_day(s: Subject) {
    s.set(limits(|limits| limits.budget_per_day = Some(usd(1.0)))).await;
    s.jobs_of_u(1..3).await;
    s.submit(job(3)).await;
    s.permit(ask(1, None, 0.0)).await.unwrap();
    s.settle(ok(1, 1.0)).await.unwrap();
    assert_eq!(claimed_ids(&s.claim(5).await), [id(3)]);
    // More money opens at once; and so does the next day.
    s.set(limits(|limits| limits.budget_per_day = Some(usd(2.0)))).await;
    assert_eq!(s.claim(1).await.len(), 1);
    s.set(limits(|limits| limits.budget_per_day = Some(usd(0.5)))).await;
    assert!(s.claim(1).await.is_empty());
    s.apply(id(1), renew(1)).await.unwrap();
    let midnight = end_of_day(s.now());
    s.clock.set(midnight);
    assert!(!s.claim(5).await.is_empty());
    assert_eq!(s.upstream("u").await.meter.spent_today(s.now()), usd(0.0));
}

pub(super) async fn a_tenants_limits_hold_over_all_upstreams(s: Subject) {
    assert_eq!(s.store.tenant(&tenant("a")).await.unwrap(), None);
    let all = Limits { max_concurrent: Some(2), budget_per_day: Some(usd(1.0)), ..Limits::default() };
    let set = s.store.set_tenant(&tenant("a"), all.clone()).await.unwrap();
    assert_eq!((&set.tenant, &set.limits), (&tenant("a"), &all));
    let of_a =
        |n, name: &str| PermitRequest { upstream: upstream(name), tenant: tenant("a"), ..ask(n, None, 0.5) };
    assert!(s.permit(of_a(1, "u")).await.is_ok());
    assert!(s.permit(of_a(2, "v")).await.is_ok());
    assert_eq!(denial(&s.permit(of_a(3, "w")).await), Some(Denial::BudgetExhausted));
    assert!(s.permit(ask(4, None, 0.5)).await.is_ok(), "another tenant's");
    let now = s.twin.tenant(&tenant("a")).await.unwrap().unwrap();
    assert_eq!((now.live.permits, now.live.reserved), (2, usd(1.0)));
    s.settle(ok(1, 0.5)).await.unwrap();
    s.settle(ok(2, 0.5)).await.unwrap();
    // Spent: its jobs that pay are passed over, those that do not are not, and neither are others'.
    let in_a = |n, pays: bool| {
        job_with(n, move |spec| {
            spec.tenant = tenant("a");
            spec.upstreams = if pays { vec![upstream("u")] } else { Vec::new() };
        })
    };
    s.submit_all(vec![in_a(1, true), in_a(2, false), job_with(3, of("u"))]).await;
    let mut claimed = claimed_ids(&s.claim(5).await);
    claimed.sort_unstable();
    assert_eq!(claimed, [id(2), id(3)]);
    s.clock.set(end_of_day(s.now()));
    assert!(claimed_ids(&s.claim(5).await).contains(&id(1)));
}

pub(super) async fn a_job_makes_no_more_paid_calls_than_it_may(s: Subject) {
    s.running(job_with(1, |spec| spec.policy.max_paid_calls = Some(2))).await;
    let answers = s.store.acquire_permits((1..=3).map(|n| ask(n, Some(1), 0.0)).collect()).await.unwrap();
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert_eq!(denial(&answers[2]), Some(Denial::PaidCallLimit));
    s.settle(ok(1, 0.1)).await.unwrap();
    s.settle(ok(2, 0.1)).await.unwrap();
    assert_eq!(denial(&s.permit(ask(4, Some(1), 0.0)).await), Some(Denial::PaidCallLimit));
}

pub(super) async fn a_rate_lets_calls_begin_one_after_another(s: Subject) {
    s.set(limits(|limits| limits.requests = Some(Rate { amount: 10, per: Per::Second }))).await;
    let mut begun = 0;
    for n in 0..100 {
        begun += u32::from(s.permit(ask(n, None, 0.0)).await.is_ok());
        s.clock.advance(Duration::from_millis(20));
    }
    // Two seconds at ten a second, and one at once.
    assert_eq!(begun, 20);
    let denied = s.permit(ask(1000, None, 0.0)).await;
    assert!(denied.is_ok() || denial(&denied) == Some(Denial::RateLimited));
}

pub(super) async fn a_call_that_was_cut_short_is_booked_and_says_nothing_of_its_upstream(s: Subject) {
    s.running(job(1)).await;
    for n in 1..=3 {
        s.permit(ask(n, Some(1), 0.4)).await.unwrap();
        let usage = Usage { estimated: true, failed: Some(FailureClass::HandlerError), ..Usage::default() };
        let cut = PermitSettlement { id: permit(n), verdict: Verdict::CutShort, usage };
        assert_eq!(s.settle(cut).await.unwrap().class, None);
    }
    let now = s.upstream("u").await;
    assert_eq!((now.live.permits, now.is_closed()), (0, false));
    assert_eq!(now.meter.spent_today(now.now), usd(1.2), "what nobody knows counts as it was reserved");
    let ledger = s.store.ledger(id(1)).await.unwrap();
    assert_eq!(ledger.iter().filter(|entry| entry.wasted).count(), 3);
}

pub(super) async fn a_call_that_was_not_sent_costs_nothing_and_counts_in_a_row(s: Subject) {
    for n in 1..=3 {
        s.permit(ask(n, None, 0.4)).await.unwrap();
        let verdict = Verdict::NotSent(failure(NETWORK));
        s.settle(PermitSettlement { id: permit(n), verdict, usage: Usage::default() }).await.unwrap();
    }
    let now = s.upstream("u").await;
    assert!(now.is_closed());
    assert_eq!(now.meter.spent_today(now.now), usd(0.0));
    assert_eq!(s.stats().await.paid_calls, 0);
}
