//! Blockages: since when an upstream or a budget lets nothing start, and what a job ends with that waits for it.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use common::{at, id, secs, token};
use coolant_core::failure::FailureClass;
use coolant_core::money::{Money, Usage};
use coolant_core::names::{Credential, Tenant, Upstream};
use coolant_core::upstream::{
    Desk, Limits, PermitId, PermitSettlement, Report, Room, Spending, Starter, TenantRecord, UpstreamRecord,
    UpstreamSettings, Verdict,
};

fn report(class: FailureClass, stated: Option<u64>) -> Report {
    let code = format!("LLM_{}", class.code_suffix());
    let by = Starter::Job { id: id(1), token: token(1) };
    Report { class, stated: stated.map(secs), code, reason: "no".into(), by, ends_attempt: false }
}

#[test]
fn what_blocks_an_upstream_says_since_when_and_with_which_code() {
    let (name, other) = (Upstream::parse("u").unwrap(), Upstream::parse("v").unwrap());
    let key = Credential::parse("key").unwrap();
    let mut desk = Desk::default();
    for name in [&name, &other] {
        let settings = UpstreamSettings { credential: Some(key.clone()), ..UpstreamSettings::default() };
        desk.upstreams.insert(name.clone(), UpstreamRecord { settings, ..UpstreamRecord::default() });
    }
    assert!(desk.blocked_upstreams(at(0)).is_empty());
    // The key closes both; the rate limit of one is older.
    desk.report(&name, &report(FailureClass::RateLimited, Some(100)), at(10));
    desk.report(&other, &report(FailureClass::Auth, None), at(20));
    let blocked = desk.blocked_upstreams(at(30));
    let said = |name: &Upstream| (blocked[name].since, blocked[name].failure.code.as_str());
    assert_eq!((said(&name), said(&other)), ((at(10), "LLM_RATE_LIMIT"), (at(20), "LLM_AUTH")));
    let prober = Starter::Job { id: id(2), token: token(1) };
    // A probe under way is no opening, and neither is its failure; its success is.
    desk.start(std::slice::from_ref(&name), prober, at(3620));
    assert_eq!(desk.blocked_upstreams(at(3620))[&name].since, at(10));
    desk.succeeded(std::slice::from_ref(&name), prober, at(3621));
    assert!(desk.blocked_upstreams(at(3621)).is_empty());
}

#[test]
fn a_spent_budget_blocks_since_it_was_spent_and_each_day_anew() {
    let tenant = Tenant::parse("poor").unwrap();
    let limits = |usd| Limits { budget_per_day: Money::from_usd(usd), ..Limits::default() };
    let mut desk = Desk::default();
    desk.tenants.insert(tenant.clone(), TenantRecord { limits: limits(1.0), ..TenantRecord::default() });
    let since = |desk: &Desk, now| desk.blocked_tenants(now).get(&tenant).map(|blockage| blockage.since);
    let spend = |desk: &mut Desk, usd, now| {
        let permit = PermitId(uuid::Uuid::from_u128(1));
        let call = Spending {
            id: permit,
            upstream: Upstream::parse("u").unwrap(),
            tenant: tenant.clone(),
            job: None,
            step: None,
            tokens: 0,
            cost: Money::default(),
        };
        let settlement = PermitSettlement {
            id: permit,
            verdict: Verdict::Ok { room: Room::default() },
            usage: Usage { cost: Money::from_usd(usd), ..Usage::default() },
        };
        desk.settle(&call, &settlement, now);
    };
    spend(&mut desk, 0.5, at(100));
    assert_eq!(since(&desk, at(200)), None);
    spend(&mut desk, 0.5, at(300));
    spend(&mut desk, 0.5, at(400));
    desk.settle_down(at(500));
    assert_eq!(since(&desk, at(600)), Some(at(300)));
    assert_eq!(since(&desk, at(86_400)), None);
    spend(&mut desk, 1.0, at(86_500));
    assert_eq!(since(&desk, at(86_600)), Some(at(86_500)), "not since yesterday");
    // More money, and then less than was spent: since it was noticed.
    desk.tenants.get_mut(&tenant).unwrap().limits = limits(5.0);
    desk.settle_down(at(86_700));
    desk.tenants.get_mut(&tenant).unwrap().limits = limits(0.1);
    desk.settle_down(at(86_800));
    assert_eq!(since(&desk, at(86_900)), Some(at(86_800)));
    // No money at all is none tomorrow either.
    desk.tenants.get_mut(&tenant).unwrap().limits = limits(0.0);
    desk.settle_down(at(86_900));
    desk.settle_down(at(200_000));
    assert_eq!(since(&desk, at(300_000)), Some(at(86_800)));
}
