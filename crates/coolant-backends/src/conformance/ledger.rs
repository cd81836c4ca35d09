//! The ledger: what is kept of a paid call, what counts as wasted, pages and sums.

use coolant_core::failure::FailureClass;
use coolant_core::ledger::{LedgerBy, LedgerFilter, LedgerPage, LedgerRow, LedgerSum};
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::money::{Money, Usage};
use coolant_core::names::JobType;
use coolant_core::store::JobChange;
use coolant_core::time::{DAY_MS, date_of};
use coolant_core::upstream::{PermitRequest, PermitSettlement, Room, Verdict};
use serde_json::json;

use super::Subject;
use super::calls::{ask, ok, permit, upstream};
use super::kit::*;

fn everything() -> Usage {
    Usage {
        upstream: Some("openai/gpt-4.1".into()),
        provider: Some("openai".into()),
        asked_model: Some("gpt-4.1".into()),
        model: Some("gpt-4.1-2025-04-14".into()),
        input_tokens: 100,
        cached_tokens: 60,
        cache_write_tokens: 7,
        output_tokens: 20,
        reasoning_tokens: 5,
        cost: Some(Money::from_nanos(12_345)),
        price: Some("list 2025-12-01 openai/gpt-4.1 from 2025-04-14".into()),
        estimated: true,
        failed: Some(FailureClass::InvalidOutput),
        credential: Some("회사 키".into()),
        reported: Some(json!({"prompt_tokens": 100, "x": [1.5, null, "é"]})),
        permit: None,
        room: Room::default(),
    }
}

fn step_of(n: i64, name: &str, usage: Vec<Usage>) -> Event {
    Event::SaveStep { token: token(n), name: name.into(), output: json!(n), usage }
}

const ALL: LedgerPage = LedgerPage { limit: 1000, before: None };

/// What settles a call of no job, under permit number `n`.
fn settlement((n, usage): (u32, Usage)) -> PermitSettlement {
    let verdict = match usage.failed {
        Some(class) => Verdict::Failed(failure(class)),
        None => Verdict::Ok { room: Room::default() },
    };
    PermitSettlement { id: permit(n), verdict, usage }
}

impl Subject {
    /// Books calls of no job.
    async fn book(&self, calls: Vec<(u32, Usage)>) {
        let ask = |(n, usage): &(u32, Usage)| {
            let upstream = upstream(usage.upstream.as_deref().unwrap());
            PermitRequest { upstream, tenant: tenant("t"), step: Some("SEARCH".into()), ..ask(*n, None, 0.0) }
        };
        let permits = self.store.acquire_permits(calls.iter().map(ask).collect()).await.unwrap();
        assert!(permits.iter().all(Result::is_ok), "{permits:?}");
        let settled = self.store.settle_permits(calls.into_iter().map(settlement).collect()).await.unwrap();
        assert!(settled.iter().flatten().all(|settled| !settled.repeated), "{settled:?}");
    }

    async fn page(&self, filter: &LedgerFilter, page: LedgerPage) -> Vec<LedgerRow> {
        self.store.ledger_page(filter, page).await.unwrap()
    }

    async fn sums(&self, by: LedgerBy) -> Vec<LedgerSum> {
        self.store.ledger_sums(by, &LedgerFilter::default()).await.unwrap()
    }

    /// Cost and waste of a job, and which of its calls were wasted.
    async fn waste(&self, n: u32) -> (i64, i64, Vec<bool>) {
        let usage = self.record(id(n)).await.job.usage;
        let ledger = self.store.ledger(id(n)).await.unwrap();
        let wasted: Vec<_> = ledger.iter().map(|entry| entry.wasted).collect();
        (usage.cost.as_nanos(), usage.wasted.as_nanos(), wasted)
    }
}

pub(super) async fn everything_about_a_paid_call_comes_back(s: Subject) {
    s.running(job(1)).await;
    s.apply(id(1), step_of(1, "a", vec![everything()])).await.unwrap();
    s.done(id(1), Event::Succeed { token: token(1), result: json!(0), usage: vec![Usage::default()] }).await;
    let ledger = s.store.ledger(id(1)).await.unwrap();
    assert_eq!(ledger[0].usage, everything());
    assert_eq!(ledger[1].usage, Usage::default(), "nothing known is nothing known");
    assert_eq!(ledger[0].job_type.as_ref().map(JobType::as_str), Some("TEST"));
    let rows = s.page(&LedgerFilter::default(), ALL).await;
    assert!(ledger.iter().all(|entry| rows.iter().any(|row| row.entry == *entry)), "{rows:?}");
}

pub(super) async fn a_call_of_no_use_is_wasted_also_within_a_step(s: Subject) {
    s.running(job(1)).await;
    let cut = Usage { failed: Some(FailureClass::Network), ..paid(3) };
    s.apply(id(1), step_of(1, "a", vec![cut.clone(), paid(5)])).await.unwrap();
    assert_eq!(s.waste(1).await, (8, 3, vec![true, false]));
    s.done(id(1), Event::Succeed { token: token(1), result: json!(0), usage: vec![cut, paid(7)] }).await;
    assert_eq!(s.waste(1).await, (18, 6, vec![true, false, true, false]));
    assert_eq!(s.store.attempts(id(1)).await.unwrap()[0].usage.wasted.as_nanos(), 6);
    s.running(job(2)).await;
    let failed =
        Event::Fail { token: token(1), failure: failure(NETWORK), jitter: 0.0, usage: vec![paid(9)] };
    s.done(id(2), failed).await;
    assert_eq!(s.waste(2).await, (9, 9, vec![true]), "the attempt came to nothing");
}

pub(super) async fn a_step_that_is_paid_again_was_wasted_before(s: Subject) {
    s.running(job(1)).await;
    s.apply(id(1), step_of(1, "a", vec![paid(1), paid(2)])).await.unwrap();
    s.apply(id(1), step_of(1, "b", vec![paid(10)])).await.unwrap();
    s.apply(id(1), step_of(1, "a", vec![paid(100)])).await.unwrap();
    assert_eq!(s.waste(1).await, (13, 0, vec![false; 3]), "a repetition is neither paid nor wasted");
    s.done(id(1), release(1)).await;
    s.claim_one().await;
    s.apply(id(1), step_of(2, "a", vec![paid(4)])).await.unwrap();
    let mut wasted = s.waste(1).await;
    wasted.2.sort_unstable();
    assert_eq!(wasted, (17, 3, vec![false, false, true, true]), "`b` was got back, `a` was not");
    s.done(id(1), release(2)).await;
    s.claim_one().await;
    s.apply(id(1), step_of(3, "a", Vec::new())).await.unwrap();
    assert_eq!(s.waste(1).await.1, 7, "only what was not wasted before");
    s.done(id(1), succeed(3)).await;
    let sums = s.sums(LedgerBy::JobType).await;
    assert_eq!((sums[0].cost.as_nanos(), sums[0].wasted.as_nanos()), (17, 7), "the job and the ledger agree");
}

pub(super) async fn a_settled_call_that_nothing_keeps_is_wasted_with_its_attempt(s: Subject) {
    s.running(job_with(1, |spec| spec.policy.max_lost = 9)).await;
    let settle = async |n: u32, attempt: i64, step: Option<&str>, nanos: i64| {
        let job = Some((id(1), token(attempt)));
        let request = PermitRequest { job, step: step.map(str::to_owned), ..ask(n, None, 0.0) };
        s.permit(request).await.unwrap();
        let usage = Usage { cost: Some(Money::from_nanos(nanos)), ..Usage::default() };
        s.settle(PermitSettlement { usage, ..ok(n, 0.0) }).await.unwrap();
    };
    settle(1, 1, Some("a"), 1).await;
    settle(2, 1, Some("b"), 20).await;
    s.apply(id(1), step_of(1, "a", Vec::new())).await.unwrap();
    assert_eq!(s.waste(1).await.1, 0, "the attempt runs, and may keep all of it");
    // Lost: a later attempt gets back what `a` gave, and nothing else.
    s.advance(30);
    let again = s.claim_one().await;
    assert_eq!(again.record.job.usage.wasted.as_nanos(), 20, "the next worker is told so");
    assert_eq!(s.waste(1).await, (21, 20, vec![false, true]));
    let attempts = s.store.attempts(id(1)).await.unwrap();
    let wasted = |n: usize| attempts[n].usage.wasted.as_nanos();
    assert_eq!((wasted(0), wasted(1)), (20, 0));
    assert_eq!(s.stats().await.wasted.as_nanos(), 20);
    // A step that was there before does not keep what is paid for it once more, unless it is saved once more.
    settle(4, 2, Some("a"), 4000).await;
    settle(5, 2, Some("b"), 50_000).await;
    s.apply(id(1), step_of(2, "b", Vec::new())).await.unwrap();
    // A call that names no step is believed to be of one that was saved.
    settle(6, 2, None, 600_000).await;
    s.advance(30);
    assert_eq!(s.claim_one().await.record.job.usage.wasted.as_nanos(), 4020);
    settle(7, 3, None, 300).await;
    s.advance(30);
    assert_eq!(s.claim_one().await.record.job.usage.wasted.as_nanos(), 4320, "nothing was saved");
    // A result keeps everything.
    settle(8, 4, None, 7_000_000).await;
    s.done(id(1), succeed(4)).await;
    assert_eq!(s.waste(1).await.1, 4320);
    let sums = s.sums(LedgerBy::JobType).await;
    assert_eq!(
        (sums[0].cost.as_nanos(), sums[0].wasted.as_nanos()),
        (7_654_321, 4320),
        "and the ledger agrees"
    );
}

pub(super) async fn what_an_attempt_settled_is_wasted_however_it_ends_without_a_result(s: Subject) {
    let pay = |step: &str| Event::Pay { token: token(1), step: Some(step.into()), usage: vec![paid(7)] };
    let ends = [
        fail(1, NETWORK),
        fail(1, FailureClass::InvalidRequest),
        defer(1, 10),
        release(1),
        Event::Succeed { token: token(1), result: json!(0), usage: Vec::new() },
    ];
    for (n, end) in (1..).zip(ends) {
        s.running(job(n)).await;
        // All in one call, and the step is saved only after its call is paid.
        let step = step_of(1, "kept", Vec::new());
        let changes = [pay("lost"), pay("kept"), step, end.clone()];
        let answers = s.apply_all(changes.map(|event| JobChange::new(id(n), event)).into()).await;
        let told = answers.iter().map(|answer| answer.as_ref().unwrap().job.usage.wasted.as_nanos());
        let expected = if matches!(end, Event::Succeed { .. }) { 0 } else { 7 };
        assert_eq!(told.collect::<Vec<_>>(), [0, 0, 0, expected], "{end:?}");
        assert_eq!((s.waste(n).await.0, s.waste(n).await.1), (14, expected), "{end:?}");
        // What was put back must not be claimed with the next job.
        s.apply(id(n), Event::Cancel).await.ok();
    }
    // A worker that runs out of time, and one that is told of a cancel.
    s.running(job_with(8, |spec| spec.policy.timeout = secs(10))).await;
    s.apply(id(8), pay("lost")).await.unwrap();
    s.advance(10);
    s.apply(id(8), renew(1)).await.unwrap();
    assert_eq!(s.waste(8).await.1, 7);
    s.running(job(9)).await;
    s.apply(id(9), pay("lost")).await.unwrap();
    s.done(id(9), Event::Cancel).await;
    s.apply(id(9), renew(1)).await.unwrap();
    assert_eq!(s.waste(9).await.1, 7);
}

pub(super) async fn calls_of_no_job_are_booked_once(s: Subject) {
    let calls = || vec![(1, paid(5)), (2, Usage { failed: Some(NETWORK), ..paid(2) })];
    s.book(calls()).await;
    s.advance(1);
    let again = s.twin.settle_permits(calls().into_iter().map(settlement).collect()).await.unwrap();
    assert!(again.into_iter().all(|settled| settled.unwrap().repeated));
    let rows = s.page(&LedgerFilter::default(), ALL).await;
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [permit(2).0, permit(1).0]);
    let first = &rows[1].entry;
    assert_eq!((first.job_id, first.attempt, first.step.as_deref(), first.wasted), (None, 0, None, false));
    assert_eq!((first.tenant.as_str(), first.job_type.as_ref().unwrap().as_str()), ("t", "SEARCH"));
    assert!(rows[0].entry.wasted);
    let stats = s.stats().await;
    assert_eq!((stats.paid_calls, stats.spent.as_nanos(), stats.wasted.as_nanos()), (2, 7, 2));
}

pub(super) async fn the_ledger_comes_newest_first_in_pages_without_gaps(s: Subject) {
    for group in 0..4 {
        // Three at an instant, so that pages end in the middle of one.
        s.book((0..3).map(|n| (100 - group * 10 + n, paid(1))).collect()).await;
        s.advance(1);
    }
    let all = s.page(&LedgerFilter::default(), ALL).await;
    assert_eq!(all.len(), 12);
    let place = |row: &LedgerRow| (row.entry.at, row.id);
    assert!(all.windows(2).all(|two| place(&two[0]) > place(&two[1])), "newest first");
    let (mut paged, mut before) = (Vec::new(), None);
    loop {
        let page = s.page(&LedgerFilter::default(), LedgerPage { limit: 5, before }).await;
        before = page.last().map(place);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all);
}

pub(super) async fn every_filter_of_the_ledger_filters(s: Subject) {
    s.running(job(1)).await;
    s.apply(id(1), step_of(1, "a", vec![everything()])).await.unwrap();
    let first_day = s.now().day();
    s.clock.advance(std::time::Duration::from_millis(DAY_MS.unsigned_abs()));
    s.book(vec![(1, paid(5))]).await;
    let one = async |filter: LedgerFilter| {
        let rows = s.page(&filter, ALL).await;
        let sums = s.store.ledger_sums(LedgerBy::Day, &filter).await.unwrap();
        assert_eq!(sums.iter().map(|sum| sum.calls).sum::<i64>(), rows.len() as i64, "{filter:?}");
        rows.iter().map(|row| row.entry.job_id.is_some()).collect::<Vec<_>>()
    };
    let any = LedgerFilter::default;
    assert_eq!(one(any()).await, [false, true]);
    assert_eq!(one(LedgerFilter { job_id: Some(id(1)), ..any() }).await, [true]);
    assert_eq!(one(LedgerFilter { job_id: Some(id(2)), ..any() }).await, [false; 0]);
    assert_eq!(one(LedgerFilter { upstream: Some("openai/gpt".into()), ..any() }).await, [false]);
    assert_eq!(one(LedgerFilter { tenant: Some(tenant("default")), ..any() }).await, [true]);
    assert_eq!(one(LedgerFilter { day: Some(first_day), ..any() }).await, [true]);
    assert_eq!(one(LedgerFilter { day: Some(first_day + 1), ..any() }).await, [false]);
    assert_eq!(
        one(LedgerFilter { day: Some(first_day + 1), job_id: Some(id(1)), ..any() }).await,
        [false; 0]
    );
}

pub(super) async fn the_ledger_adds_up_by_whatever_is_asked(s: Subject) {
    s.running(job(1)).await;
    let calls = vec![everything(), Usage { cost: None, ..paid(0) }, Usage { upstream: None, ..paid(1) }];
    s.apply(id(1), step_of(1, "a", calls)).await.unwrap();
    s.book(vec![(1, paid(5))]).await;
    let keys = async |by| s.sums(by).await.into_iter().map(|sum| (sum.key, sum.calls)).collect::<Vec<_>>();
    let key = |name: &str| Some(name.to_owned());
    assert_eq!(keys(LedgerBy::Tenant).await, [(key("default"), 3), (key("t"), 1)]);
    assert_eq!(keys(LedgerBy::JobType).await, [(key("TEST"), 3), (key("SEARCH"), 1)]);
    assert_eq!(keys(LedgerBy::Day).await, [(Some(date_of(s.now().day())), 4)]);
    assert_eq!(
        keys(LedgerBy::Upstream).await,
        [(key("openai/gpt-4.1"), 1), (key("openai/gpt"), 2), (None, 1)]
    );
    let expected = LedgerSum {
        key: key("default"),
        calls: 3,
        failed_calls: 1,
        unpriced_calls: 1,
        estimated_calls: 1,
        input_tokens: 120,
        cached_tokens: 60,
        output_tokens: 24,
        cost: Money::from_nanos(12_346),
        wasted: Money::from_nanos(12_345),
    };
    assert_eq!(s.sums(LedgerBy::Tenant).await[0], expected);
    s.advance(86_400);
    s.book(vec![(3, paid(9))]).await;
    let days = keys(LedgerBy::Day).await;
    assert_eq!(days.iter().map(|(_, calls)| *calls).collect::<Vec<_>>(), [1, 4], "the newest day first");
}

pub(super) async fn sums_of_the_ledger_stop_at_the_largest_amount(s: Subject) {
    let huge = || Usage { input_tokens: i64::MAX, output_tokens: i64::MAX, ..paid(i64::MAX) };
    s.book(vec![(1, huge()), (2, huge())]).await;
    let sum = &s.sums(LedgerBy::Tenant).await[0];
    assert!(
        sum.cost.as_nanos() > 1_000_000_000_000_000 && sum.input_tokens > 1_000_000_000_000_000,
        "{sum:?}"
    );
}

pub(super) async fn a_start_that_a_cooldown_refuses_is_counted_at_what_it_would_have_cost(s: Subject) {
    s.running(job_with(1, |spec| spec.policy.max_attempts = 1)).await;
    let usage = vec![paid(70)];
    s.done(id(1), Event::Fail { token: token(1), failure: failure(NETWORK), jitter: 0.0, usage }).await;
    for _ in 0..3 {
        let refused = s.apply(id(1), reopen()).await.unwrap_err();
        assert!(matches!(refused, Refusal::CoolingDown { .. }), "{refused:?}");
    }
    let stats = s.stats().await;
    assert_eq!((stats.blocked_calls, stats.saved.by_cooldowns.as_nanos()), (3, 210));
    assert_eq!(stats.saved.total().as_nanos(), 0, "an estimate is no amount");
}
