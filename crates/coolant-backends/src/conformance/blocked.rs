//! What keeps jobs from starting although their instant has come: how people see it, and how long it may.

use std::collections::BTreeSet;

use coolant_core::failure::FailureClass;
use coolant_core::job::{JobId, JobSpec, JobState, Reopen, Status};
use coolant_core::lifecycle::Event;
use coolant_core::names::Credential;
use coolant_core::store::{AuditEntry, JobFilter, NewJob, Page, Start};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Control, Limits, PermitRequest, UpstreamSettings};
use coolant_core::view::Phase;

use super::Subject;
use super::calls::{ask, limits, ok, refused_by, upstream, usd};
use super::kit::*;

/// Job number `n` that names these upstreams and waits for them so many seconds at most.
fn patient(n: u32, names: &[&str], max_wait: u64) -> NewJob {
    job_with(n, |spec| {
        spec.upstreams = names.iter().map(|name| upstream(name)).collect();
        spec.policy.max_wait = secs(max_wait);
    })
}

fn of_tenant(name: &str, new: NewJob) -> NewJob {
    with(new, |spec| spec.tenant = tenant(name))
}

fn with(mut new: NewJob, change: impl FnOnce(&mut JobSpec)) -> NewJob {
    change(std::sync::Arc::make_mut(&mut new.spec));
    new
}

fn budget(dollars: f64) -> Limits {
    Limits { budget_per_day: Some(usd(dollars)), ..Limits::default() }
}

impl Subject {
    /// Closes an upstream by hand.
    async fn close(&self, name: &str, wait: u64) {
        let audit = AuditEntry {
            at: Timestamp::default(),
            actor: "kim".into(),
            action: "upstream.closed".into(),
            target: name.into(),
            reason: String::new(),
        };
        let control = Control::Close { wait: secs(wait), reason: "maintenance".into() };
        self.store.control_upstream(&upstream(name), control, audit).await.unwrap();
    }

    /// Spends a dollar at an upstream, on behalf of a tenant, under permit number `n`.
    async fn spend(&self, n: u32, at: &str, of: &str) {
        let request = PermitRequest { upstream: upstream(at), tenant: tenant(of), ..ask(n, None, 0.0) };
        self.permit(request).await.unwrap();
        self.settle(ok(n, 1.0)).await.unwrap();
    }

    async fn code(&self, n: u32) -> String {
        self.record(id(n)).await.job.last_error.map_or_else(String::new, |failure| failure.code)
    }

    /// Each job and the phase that it shows.
    async fn shown(&self, ids: &[JobId]) -> Vec<(JobId, Phase)> {
        let blocked = self.twin.blocked(ids).await.unwrap();
        let records = self.store.jobs(ids).await.unwrap();
        let shown = records.iter().flatten().map(|record| {
            let id = record.job.id;
            (id, Phase::given(&record.job, blocked.contains(&id), self.now()))
        });
        shown.collect()
    }
}

/// Jobs 1 to 9: every phase that a claimed job may be in.
async fn jobs_that_were_claimed(s: &Subject) {
    let once = |n| job_with(n, |spec| spec.policy.max_attempts = 1);
    s.submit_all(vec![once(1), once(2), job(3), job(4), job(5), locked(6, "L"), patient(7, &["u"], 900)])
        .await;
    s.submit_all(vec![patient(8, &["w"], 900), job(9)]).await;
    assert_eq!(s.claim(20).await.len(), 9);
    s.done(id(1), fail(1, NETWORK)).await;
    s.done(id(2), fail(1, NETWORK)).await;
    s.done(id(2), Event::Discard).await;
    s.done(id(3), fail(1, NETWORK)).await;
    s.done(id(4), defer(1, 60)).await;
    s.done(id(5), succeed(1)).await;
    s.done(id(8), fail(1, NETWORK)).await;
}

/// Closes `u` by its provider, `k` with the credential of another, and for want of money `m` and two tenants.
/// Job 6 holds its lock key.
async fn close_some(s: &Subject) {
    let key = Some(Credential::parse("key").unwrap());
    for name in ["k", "other"] {
        let settings = UpstreamSettings { credential: key.clone(), ..UpstreamSettings::default() };
        s.store.set_upstream(&upstream(name), settings).await.unwrap();
    }
    s.submit(patient(13, &["other"], 900)).await;
    s.claim_one().await;
    s.done(id(13), refused_by(1, "other", FailureClass::Auth, None)).await;
    s.done(id(7), refused_by(1, "u", FailureClass::RateLimited, Some(500))).await;
    s.store.set_upstream(&upstream("m"), limits(|it| *it = budget(1.0))).await.unwrap();
    s.store.set_tenant(&tenant("poor"), budget(1.0)).await.unwrap();
    s.store.set_tenant(&tenant("broke"), budget(0.0)).await.unwrap();
    s.spend(1, "m", "default").await;
    s.spend(2, "v", "poor").await;
}

/// Jobs 10 to 33: those that nobody claimed.
async fn jobs_that_were_not(s: &Subject) {
    let later = |new| NewJob { start: Start::After(secs(60)), ..new };
    s.submit_all(vec![
        job(10),
        later(job(11)),
        job(12),
        patient(20, &["u"], 900),
        patient(21, &["v", "u"], 900),
        patient(22, &["k"], 900),
        patient(23, &["m"], 900),
        of_tenant("poor", patient(24, &["v"], 900)),
        locked(25, "L"),
        later(patient(26, &["u"], 900)),
        of_tenant("broke", patient(27, &["v"], 900)),
        patient(30, &["v"], 900),
        of_tenant("poor", job(31)),
        of_tenant("poor", locked(32, "L")),
        job(33),
    ])
    .await;
    s.done(id(12), Event::Cancel).await;
}

pub(super) async fn the_phase_that_is_shown_is_the_phase_that_is_found(s: Subject) {
    jobs_that_were_claimed(&s).await;
    close_some(&s).await;
    jobs_that_were_not(&s).await;
    let all: Vec<JobId> = s.list(JobFilter::default()).await;
    assert_eq!(all.len(), 25);
    for _ in 0..3 {
        let shown = s.shown(&all).await;
        for phase in Phase::ALL {
            let found = s.list(JobFilter { phase: Some(phase), ..JobFilter::default() }).await;
            let expected = shown.iter().filter(|(_, of)| *of == phase).map(|(id, _)| *id);
            assert_eq!(found, expected.collect::<Vec<_>>(), "{phase:?}");
        }
        // In pages, too.
        let blocked = JobFilter { phase: Some(Phase::Blocked), ..JobFilter::default() };
        let page = s.store.list(&blocked, Page { limit: 3, before: Some(id(24)) }).await.unwrap();
        assert_eq!(ids(&page), [23, 22, 21].map(id));
        s.advance(30);
    }
    let blocked = s.list(JobFilter { phase: Some(Phase::Blocked), ..JobFilter::default() }).await;
    // 4 has been put back for as long as it asked; 26 is due by now, and 6 lost its lease and with it the key.
    assert_eq!(blocked, [27, 26, 24, 23, 22, 21, 20, 13, 7].map(id));
    let waiting = JobFilter { phase: Some(Phase::Waiting), ..JobFilter::default() };
    assert!(s.list(waiting).await.starts_with(&[33, 32, 31, 30, 25].map(id)));
    assert_eq!(s.store.blocked(&[]).await.unwrap(), BTreeSet::new());
    assert_eq!(s.store.blocked(&[id(99), id(20)]).await.unwrap(), [id(20)].into());
}

pub(super) async fn what_waits_too_long_for_an_upstream_ends_with_its_code(s: Subject) {
    s.submit(patient(9, &["u"], 86_400)).await;
    s.claim_one().await;
    s.done(id(9), refused_by(1, "u", FailureClass::Overloaded, Some(3000))).await;
    let later = NewJob { start: Start::After(secs(50)), ..patient(3, &["u"], 100) };
    s.submit_all(vec![
        patient(1, &["u"], 86_400),
        patient(2, &["u"], 100),
        later,
        patient(4, &[], 100),
        patient(5, &["v"], 100),
        patient(6, &["v", "u"], 100),
    ])
    .await;
    s.advance(99);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.advance(1);
    assert_eq!(s.twin.sweep(100).await.unwrap(), 2);
    for n in [2, 6] {
        let job = s.record(id(n)).await.job;
        let error = job.last_error.unwrap();
        assert_eq!((error.code.as_str(), error.class), ("LLM_OVERLOADED", FailureClass::Overloaded));
        assert_eq!(error.upstream.as_deref(), Some("u"));
        assert_eq!(
            job.state,
            JobState::Failed { at: s.now(), reopen: Reopen::From(s.now().plus(secs(300))) }
        );
        assert!(s.store.attempts(id(n)).await.unwrap().is_empty(), "nobody ever claimed it");
    }
    s.advance(49);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0, "it was due fifty seconds later");
    s.advance(1);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.code(3).await, "LLM_OVERLOADED");
    for n in [1, 4, 5, 9] {
        assert_eq!(s.record(id(n)).await.job.status(), Status::Pending);
    }
    // Brought back, it waits afresh.
    s.advance(250);
    s.done(id(2), reopen()).await;
    s.advance(99);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.advance(1);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
}

pub(super) async fn a_wait_begins_with_the_closing_and_lasts_through_probes(s: Subject) {
    s.submit(patient(1, &["u"], 900)).await;
    s.submit(patient(2, &["u"], 100)).await;
    s.claim(1).await;
    // A long backlog alone is no reason.
    s.advance(25);
    s.apply(id(1), renew(1)).await.unwrap();
    s.advance(25);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.done(id(1), refused_by(1, "u", FailureClass::RateLimited, Some(60))).await;
    s.advance(60);
    let probe = s.claim(5).await;
    assert_eq!(claimed_ids(&probe), [id(2)]);
    s.done(id(2), release(1)).await;
    // The prober gave up; the next one fails.
    let probe = s.claim(1).await;
    assert_eq!(claimed_ids(&probe), [id(1)]);
    s.done(id(1), refused_by(2, "u", FailureClass::RateLimited, Some(60))).await;
    s.advance(39);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.advance(1);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0, "it was given back sixty seconds ago");
    s.advance(60);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.code(2).await, "LLM_RATE_LIMIT");
    // Closed by hand is closed, with a code of its own.
    s.submit(patient(3, &["v"], 10)).await;
    s.close("v", 1000).await;
    s.advance(10);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.code(3).await, "UPSTREAM_CLOSED");
}

pub(super) async fn what_waits_too_long_for_money_is_given_up(s: Subject) {
    s.store.set_upstream(&upstream("m"), limits(|it| *it = budget(1.0))).await.unwrap();
    s.store.set_tenant(&tenant("poor"), budget(1.0)).await.unwrap();
    s.submit_all(vec![
        patient(1, &["m"], 100),
        of_tenant("poor", patient(2, &["v"], 100)),
        of_tenant("poor", patient(3, &[], 100)),
        patient(4, &["v"], 100),
        of_tenant("poor", patient(5, &["v"], 86_400)),
    ])
    .await;
    s.advance(500);
    s.spend(1, "m", "default").await;
    s.advance(10);
    s.spend(2, "v", "poor").await;
    s.advance(90);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.code(1).await, "BUDGET_EXHAUSTED");
    s.advance(10);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    let error = s.record(id(2)).await.job.last_error.unwrap();
    assert_eq!((error.code.as_str(), error.class), ("BUDGET_EXHAUSTED", FailureClass::QuotaExhausted));
    assert!(error.message.contains("tenant `poor`"), "{}", error.message);
    // Another day, other money; and what is spent again is spent since then.
    s.clock.set(coolant_core::upstream::end_of_day(s.now()));
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.spend(3, "v", "poor").await;
    s.submit(of_tenant("poor", patient(6, &["v"], 100))).await;
    s.advance(99);
    assert_eq!(s.store.sweep(100).await.unwrap(), 0);
    s.advance(1);
    assert_eq!(s.store.sweep(100).await.unwrap(), 1);
    assert_eq!(s.record(id(6)).await.job.status(), Status::Failed);
}

pub(super) async fn what_waits_too_long_is_given_up_a_few_at_a_time(s: Subject) {
    s.close("u", 10_000).await;
    // Of every patience, and before them a backlog that may wait on.
    s.submit_all((1..=20).map(|n| patient(n, &["u"], 86_400)).collect()).await;
    s.submit_all((21..=30).map(|n| patient(n, &["u"], u64::from(n))).collect()).await;
    s.advance(30);
    assert_eq!(s.store.sweep(4).await.unwrap(), 4);
    assert_eq!(s.twin.sweep(4).await.unwrap(), 4);
    assert_eq!(s.store.sweep(4).await.unwrap(), 2);
    assert_eq!(s.store.sweep(4).await.unwrap(), 0);
    let failed = s.list(JobFilter { status: Some(Status::Failed), ..JobFilter::default() }).await;
    assert_eq!(failed, (21..=30).rev().map(id).collect::<Vec<_>>());
}

pub(super) async fn a_tenant_out_of_money_leaves_a_claim_to_the_others(s: Subject) {
    let poor: Vec<String> = (0..100).map(|n| format!("a{n:02}")).collect();
    s.store.set_tenant(&tenant("a00"), budget(1.0)).await.unwrap();
    let backlog = (1..=900).map(|n| of_tenant("a00", patient(n, &["u"], 86_400)));
    s.submit_all(backlog.collect()).await;
    s.spend(1, "u", "a00").await;
    // More of them than any store looks at in one piece, all before the others by name.
    for (n, name) in (1..).zip(&poor[1..]) {
        s.store.set_tenant(&tenant(name), budget(1.0)).await.unwrap();
        s.submit(of_tenant(name, patient(1000 + n, &["u"], 86_400))).await;
        s.spend(1000 + n, "u", name).await;
    }
    s.submit_all((2001..=2005).map(|n| of_tenant("b", patient(n, &["u"], 86_400))).collect()).await;
    s.submit_all((3001..=3005).map(|n| of_tenant("c", job(n))).collect()).await;
    s.submit(of_tenant("a00", job(4001))).await;
    let mut claimed = claimed_ids(&s.claim(8).await);
    assert_eq!(claimed.len(), 8, "one call is enough");
    claimed.extend(claimed_ids(&s.claim(100).await));
    claimed.sort_unstable();
    let free = (2001..=2005).chain(3001..=3005).chain([4001]);
    assert_eq!(claimed, free.map(id).collect::<Vec<_>>());
}
