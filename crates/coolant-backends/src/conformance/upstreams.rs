//! Upstreams: what closes them, for whom, and how they open again.

use std::sync::Arc;

use coolant_core::failure::FailureClass;
use coolant_core::job::Outcome;
use coolant_core::names::Credential;
use coolant_core::store::{AuditEntry, JobChange};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    ClosedWhat, Control, Denial, Limits, Per, PermitRequest, Rate, UpstreamNow, UpstreamSettings,
};

use super::Subject;
use super::calls::*;
use super::kit::*;

pub(super) async fn an_upstream_is_as_it_was_set(s: Subject) {
    assert!(s.store.upstreams(None).await.unwrap().is_empty());
    let settings = UpstreamSettings {
        limits: Limits {
            max_concurrent: Some(3),
            requests: Some(Rate { amount: 60, per: Per::Minute }),
            tokens: Some(Rate { amount: 10_000, per: Per::Minute }),
            budget_per_day: Some(usd(12.5)),
        },
        credential: Some(Credential::parse("키").unwrap()),
    };
    let set = s.set(settings.clone()).await;
    assert_eq!((&set.settings, set.is_closed()), (&settings, false));
    assert_eq!(s.upstream("u").await, UpstreamNow { now: s.now(), ..set });
    s.store.set_upstream(&upstream("a/b"), UpstreamSettings::default()).await.unwrap();
    let all = s.twin.upstreams(None).await.unwrap();
    assert_eq!(all.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["a/b", "u"], "by name");
    assert!(s.store.upstreams(Some(&[])).await.unwrap().is_empty());
    assert!(s.store.upstreams(Some(&[upstream("none")])).await.unwrap().is_empty());
}

pub(super) async fn a_failure_that_names_an_upstream_closes_it_for_all(s: Subject) {
    s.jobs_of_u(1..6).await;
    s.submit_all(vec![job_with(6, of("v")), job(7)]).await;
    assert_eq!(claimed_ids(&s.claim(1).await), [id(1)]);
    s.done(id(1), refused_by(1, "u", FailureClass::RateLimited, Some(5))).await;
    let now = s.upstream("u").await;
    assert!(now.is_closed());
    assert_eq!(now.breaker.closure().unwrap().until, s.now().plus(secs(5)));
    assert_eq!(s.record(id(1)).await.job.counters.tries, 0, "the job is not at fault");
    // Nothing of `u`, everything else, whoever asks.
    let others = s.twin.claim(request(10)).await.unwrap();
    assert_eq!(claimed_ids(&others), [id(6), id(7)]);
    assert_eq!(denial(&s.permit(ask(1, None, 0.0)).await), Some(Denial::UpstreamClosed));
    assert_eq!(s.stats().await.blocked_calls, 1);
    s.advance(4);
    assert!(s.claim(10).await.is_empty());
    assert!(!s.store.breakers_stir().await.unwrap());
    s.advance(1);
    assert!(s.store.breakers_stir().await.unwrap(), "a probe is due");
    let probe = s.claim(10).await;
    assert_eq!(probe.len(), 1, "one probe");
    assert!(s.twin.claim(request(10)).await.unwrap().is_empty());
    assert!(!s.store.breakers_stir().await.unwrap());
    // Its success opens, for a few at first.
    s.done(probe[0].record.job.id, succeed(probe[0].lease.token.0)).await;
    assert!(!s.upstream("u").await.is_closed());
    assert_eq!(s.claim(10).await.len(), 1);
    assert!(s.claim(10).await.is_empty());
    s.advance(1);
    assert!(s.store.breakers_stir().await.unwrap(), "the ramp goes on");
    assert_eq!(s.twin.claim(request(10)).await.unwrap().len(), 2);
    assert_eq!(s.record(id(5)).await.job.counters.executions, 1);
}

pub(super) async fn of_simultaneous_claims_and_permits_one_is_the_probe(s: Subject) {
    s.close_u(5).await;
    s.jobs_of_u(2..10).await;
    s.advance(5);
    let claims = (0..8).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &s.store } else { &s.twin });
        async move { store.claim(request(4)).await.unwrap() }
    });
    let permits = (0..8).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &s.store } else { &s.twin });
        async move { acquire(&store, ask(n, None, 0.0)).await }
    });
    let (claimed, permitted) =
        futures::future::join(futures::future::join_all(claims), futures::future::join_all(permits)).await;
    let probes = claimed.iter().map(Vec::len).sum::<usize>() + permitted.iter().flatten().count();
    assert_eq!(probes, 1);
}

pub(super) async fn a_probes_calls_are_its_own_and_their_success_opens(s: Subject) {
    s.close_u(5).await;
    s.submit(job_with(2, |spec| spec.upstreams = vec![upstream("v"), upstream("u")])).await;
    s.advance(5);
    let probe = s.claim(1).await.pop().unwrap();
    let mine = |n| {
        let job = Some((probe.record.job.id, probe.lease.token));
        PermitRequest { job, ..ask(n, None, 0.0) }
    };
    assert!(s.permit(mine(1)).await.is_ok());
    assert_eq!(denial(&s.permit(ask(2, None, 0.0)).await), Some(Denial::UpstreamClosed));
    assert!(s.permit(mine(3)).await.is_ok());
    s.settle(ok(1, 0.0)).await.unwrap();
    assert!(!s.upstream("u").await.is_closed());
}

pub(super) async fn a_probe_that_dies_makes_room_for_another(s: Subject) {
    s.close_u(5).await;
    s.jobs_of_u(2..3).await;
    s.advance(5);
    assert_eq!(s.claim(5).await.len(), 1);
    s.advance(29);
    assert!(s.claim(5).await.is_empty());
    s.advance(1);
    // Its lease is over: itself or another is the next.
    assert_eq!(s.claim(5).await.len(), 1);
    assert!(s.claim(5).await.is_empty());
    // A permit without a job lives for two minutes.
    s.advance(30);
    assert!(s.permit(ask(1, None, 0.0)).await.is_ok());
    assert!(s.claim(5).await.is_empty());
    s.advance(120);
    assert_eq!(s.claim(5).await.len(), 1);
}

pub(super) async fn a_failed_probe_closes_for_longer(s: Subject) {
    s.jobs_of_u(1..3).await;
    s.claim(1).await;
    s.done(id(1), refused_by(1, "u", FailureClass::Overloaded, None)).await;
    s.advance(10);
    let probe = s.claim(5).await.pop().unwrap();
    let token = probe.lease.token.0;
    s.done(probe.record.job.id, refused_by(token, "u", FailureClass::Timeout, None)).await;
    let closure = s.upstream("u").await.breaker.closure().cloned().unwrap();
    assert_eq!(closure.until, s.now().plus(secs(20)));
    assert_eq!((closure.class, closure.code.as_str()), (Some(FailureClass::Timeout), "LLM_TIMEOUT"));
}

pub(super) async fn three_failures_in_a_row_over_all_workers_close(s: Subject) {
    s.submit_all((1..5).map(|n| job_with(n, of("u"))).collect()).await;
    s.claim(5).await;
    for n in 1..=2 {
        s.done(id(n), refused_by(1, "u", FailureClass::Network, None)).await;
        assert!(!s.upstream("u").await.is_closed());
    }
    s.twin
        .apply(vec![JobChange::new(id(3), refused_by(1, "u", FailureClass::UpstreamError, None))])
        .await
        .unwrap();
    assert!(s.upstream("u").await.is_closed());
    assert_eq!(s.store.attempts(id(3)).await.unwrap()[0].outcome, Some(Outcome::Failed));
}

pub(super) async fn a_credential_closes_all_that_is_paid_with_it(s: Subject) {
    let with_key = UpstreamSettings {
        credential: Some(Credential::parse("openai").unwrap()),
        ..UpstreamSettings::default()
    };
    for name in ["u", "v"] {
        s.store.set_upstream(&upstream(name), with_key.clone()).await.unwrap();
    }
    s.submit_all(vec![job_with(1, of("u")), job_with(2, of("v")), job_with(3, of("w"))]).await;
    s.permit(ask(1, None, 0.0)).await.unwrap();
    let settled = s.settle(failed(1, FailureClass::QuotaExhausted)).await.unwrap();
    assert_eq!(settled.class, Some(FailureClass::QuotaExhausted));
    assert_eq!(settled.closed, Some((ClosedWhat::Credential, s.now().plus(secs(3600)))));
    assert!(s.upstream("v").await.is_closed());
    assert!(s.upstream("v").await.narrower_breaker().closure().unwrap().needs_operator());
    assert_eq!(claimed_ids(&s.claim(5).await), [id(3)]);
    let on_v = PermitRequest { upstream: upstream("v"), ..ask(2, None, 0.0) };
    assert_eq!(denial(&s.permit(on_v).await), Some(Denial::UpstreamClosed));
    // One probe an hour, for both together.
    s.advance(3600);
    assert_eq!(s.claim(5).await.len(), 1);
    assert!(s.claim(5).await.is_empty());
    // A person who has paid opens it.
    let audit = AuditEntry {
        at: Timestamp::default(),
        actor: "kim".into(),
        action: "upstream.opened".into(),
        target: "v".into(),
        reason: "paid".into(),
    };
    let now = s.store.control_upstream(&upstream("v"), Control::Open, audit).await.unwrap();
    assert!(!now.is_closed() && !s.upstream("u").await.is_closed());
    let trail = s.store.audit(10).await.unwrap();
    assert_eq!((trail[0].action.as_str(), trail[0].at), ("upstream.opened", s.now()));
    assert_eq!(s.claim(5).await.len(), 1);
}

pub(super) async fn an_operator_closes_for_a_while(s: Subject) {
    s.jobs_of_u(1..2).await;
    let audit = |action: &str| AuditEntry {
        at: Timestamp::default(),
        actor: "kim".into(),
        action: action.into(),
        target: "u".into(),
        reason: String::new(),
    };
    let close = Control::Close { wait: secs(60), reason: "maintenance".into() };
    let now = s.store.control_upstream(&upstream("u"), close, audit("upstream.closed")).await.unwrap();
    let closure = now.breaker.closure().unwrap();
    assert_eq!((closure.until, closure.reason.as_str()), (s.now().plus(secs(60)), "maintenance"));
    assert!(s.claim(1).await.is_empty());
    s.advance(60);
    assert_eq!(s.claim(1).await.len(), 1);
    assert_eq!(s.store.audit(1).await.unwrap()[0].action, "upstream.closed");
}
