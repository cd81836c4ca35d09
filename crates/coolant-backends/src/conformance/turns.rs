//! Turns: how tenants share workers, and how long priority goes before waiting.

use coolant_core::failure::FailureClass;
use coolant_core::job::JobId;
use coolant_core::names::{LockKey, Upstream};
use coolant_core::store::{Claimed, NewJob, Start};

use super::Subject;
use super::calls::refused_by;
use super::kit::*;

/// A job that has to wait for so many seconds.
fn after(seconds: u64, new: NewJob) -> NewJob {
    NewJob { start: Start::After(secs(seconds)), ..new }
}

/// Job number `n` of a tenant.
fn of(name: &str, n: u32) -> NewJob {
    job_with(n, |spec| spec.tenant = tenant(name))
}

fn many(name: &str, numbers: impl IntoIterator<Item = u32>) -> Vec<NewJob> {
    numbers.into_iter().map(|n| of(name, n)).collect()
}

impl Subject {
    /// The tenants of the next jobs, one claim each.
    async fn next_tenants(&self, claims: usize) -> String {
        let mut tenants = String::new();
        for _ in 0..claims {
            let claimed = self.claim(1).await;
            tenants.push_str(claimed[0].record.job.spec.tenant.as_str());
        }
        tenants
    }
}

pub(super) async fn a_minute_of_waiting_is_worth_a_step_of_priority(s: Subject) {
    let urgent = |n| job_with(n, |spec| spec.priority = 2);
    s.submit(job(9)).await;
    s.advance(119);
    s.submit_all(vec![urgent(8), job_with(7, |spec| spec.priority = -1)]).await;
    s.advance(1);
    s.submit_all(vec![urgent(6), job(5)]).await;
    s.advance(1);
    s.submit(urgent(4)).await;
    // Number 9 waits since two minutes before number 6 came: equal, and then the smaller id goes first.
    let mut order = claimed_ids(&s.claim(4).await);
    order.extend(claimed_ids(&s.claim(4).await));
    assert_eq!(order, [8, 6, 9, 4, 5, 7].map(id));
}

pub(super) async fn a_low_priority_does_not_starve(s: Subject) {
    s.submit(job_with(1, |spec| spec.priority = -10)).await;
    let urgent = |n| job_with(n, |spec| spec.priority = 10);
    for n in 0..20 {
        s.submit(urgent(100 + n)).await;
        assert_eq!(claimed_ids(&s.claim(1).await), [id(100 + n)]);
        s.done(id(100 + n), succeed(1)).await;
        s.advance(60);
    }
    s.advance(1);
    s.submit(urgent(200)).await;
    assert_eq!(claimed_ids(&s.claim(1).await), [id(1)], "it has waited for twenty steps");
}

pub(super) async fn tenants_take_turns_whatever_their_backlogs_and_priorities(s: Subject) {
    let large = (1..=300).map(|n| {
        job_with(n, |spec| {
            spec.tenant = tenant("a");
            spec.priority = 10;
        })
    });
    s.submit_all(large.collect()).await;
    assert_eq!(s.next_tenants(5).await, "aaaaa", "one alone gets every turn");
    s.submit_all(many("b", 1001..=1010)).await;
    s.submit_all(many("c", 2001..=2002)).await;
    assert_eq!(s.next_tenants(24).await, "bcabca".to_owned() + "babababababababa" + "aa");
}

pub(super) async fn ten_jobs_wait_for_no_more_than_twenty_claims_of_two_processes(s: Subject) {
    s.submit_all(many("a", 1..=1000)).await;
    for _ in 0..3 {
        s.store.claim(request(7)).await.unwrap();
        s.twin.claim(request(4)).await.unwrap();
    }
    s.submit_all(many("b", 2001..=2010)).await;
    // However the claims fall to the two, and however large they are.
    let (mut given, mut of_b) = (0, 0);
    for (n, max) in [1, 3, 1, 1, 2, 5, 1, 2, 1, 3].into_iter().enumerate() {
        let store = if n % 3 == 0 { &s.store } else { &s.twin };
        let claimed = store.claim(request(max)).await.unwrap();
        given += claimed.len();
        of_b += claimed.iter().filter(|claimed| claimed.record.job.spec.tenant == tenant("b")).count();
    }
    assert_eq!((given, of_b), (20, 10));
}

pub(super) async fn the_turns_of_one_process_are_known_to_the_others(s: Subject) {
    s.submit_all(many("a", 1..=100)).await;
    s.submit_all(many("b", 101..=200)).await;
    s.submit_all(many("c", 201..=300)).await;
    let mut tenants = String::new();
    for n in 0..30 {
        // One by one, in no regular order, the second process from the sixth claim on.
        let store = if [5, 6, 8, 11, 12, 13, 17, 20, 26, 29].contains(&n) { &s.twin } else { &s.store };
        let claimed = store.claim(request(1)).await.unwrap();
        tenants.push_str(claimed[0].record.job.spec.tenant.as_str());
    }
    assert_eq!(tenants, "abc".repeat(10));
    // What one process gave out last, another goes on behind, also in larger pieces.
    let of = |claimed: &[Claimed]| -> String {
        claimed.iter().map(|claimed| claimed.record.job.spec.tenant.to_string()).collect()
    };
    assert_eq!(of(&s.store.claim(request(4)).await.unwrap()), "abca");
    assert_eq!(of(&s.twin.claim(request(4)).await.unwrap()), "bcab");
    assert_eq!(of(&s.store.claim(request(1)).await.unwrap()), "c");
}

pub(super) async fn a_large_claim_is_shared_and_what_one_does_not_need_the_others_get(s: Subject) {
    s.submit_all(many("a", 1..=100)).await;
    s.submit_all(many("b", 201..=202)).await;
    s.submit_all(many("c", 301..=305)).await;
    let claimed = s.claim(30).await;
    let count =
        |name| claimed.iter().filter(|claimed| claimed.record.job.spec.tenant == tenant(name)).count();
    assert_eq!([count("a"), count("b"), count("c")], [23, 2, 5]);
    let first: Vec<JobId> = claimed_ids(&claimed).into_iter().take(9).collect();
    assert_eq!(first, [1, 201, 301, 2, 202, 302, 3, 303, 4].map(id), "as turns go");
    let own: Vec<_> = claimed.iter().filter(|c| c.record.job.spec.tenant == tenant("a")).cloned().collect();
    assert_eq!(claimed_ids(&own), (1..=23).map(id).collect::<Vec<_>>());
}

pub(super) async fn a_tenant_whose_jobs_cannot_start_passes_its_turn_on(s: Subject) {
    let locked = |n| {
        job_with(n, |spec| {
            spec.tenant = tenant("a");
            spec.lock_key = Some(LockKey::parse("l").unwrap());
        })
    };
    s.submit_all((1..=20).map(locked).collect()).await;
    s.submit(after(60, of("b", 100))).await;
    s.submit_all(many("c", 201..=204)).await;
    assert_eq!(claimed_ids(&s.claim(2).await), [id(1), id(201)]);
    assert_eq!(claimed_ids(&s.claim(1).await), [id(202)], "the lock key of `a` is held");
    assert_eq!(claimed_ids(&s.claim(5).await), [id(203), id(204)]);
    s.done(id(1), succeed(1)).await;
    assert_eq!(claimed_ids(&s.claim(5).await), [id(2)]);
}

pub(super) async fn a_lost_job_comes_back_in_its_tenants_turn(s: Subject) {
    s.submit_all(many("a", 1..=3)).await;
    s.submit_all(many("b", 101..=140)).await;
    assert_eq!(s.next_tenants(4).await, "abab");
    s.advance(30);
    // All four are lost. What waits since before goes first, tenant by tenant.
    let order = claimed_ids(&s.claim(8).await);
    assert_eq!(order, [3, 103, 1, 104, 2, 105, 106, 107].map(id));
}

pub(super) async fn every_one_of_many_tenants_gets_its_turn(s: Subject) {
    // More than any store looks at in one piece.
    let names: Vec<String> = (0..300).map(|n| format!("t{n:03}")).collect();
    let jobs: Vec<NewJob> = (0..3_u32)
        .flat_map(|round| (1_u32..).zip(&names).map(move |(n, name)| of(name, round * 1000 + n)))
        .collect();
    s.submit_all(jobs).await;
    // Some more that have nothing for now: they are passed over.
    let later = (0..200).map(|n| after(500, of(&format!("l{n}"), 5000 + n)));
    s.submit_all(later.collect()).await;
    let mut turns = std::collections::BTreeMap::<String, u32>::new();
    for claims in 0..90 {
        // Of all sizes, so that they end within a look and between two.
        for claimed in s.claim(1 + claims % 12).await {
            *turns.entry(claimed.record.job.spec.tenant.to_string()).or_default() += 1;
        }
    }
    assert_eq!(turns.len(), 300, "each had one");
    let (most, least) = (turns.values().max().unwrap(), turns.values().min().unwrap());
    assert!(most - least <= 1, "{least} to {most} turns");
    let rest: usize = s.claim(1000).await.len();
    assert_eq!(turns.values().sum::<u32>() as usize + rest, 900);
}

pub(super) async fn jobs_for_later_go_among_the_others_by_their_instants(s: Subject) {
    s.submit_all(vec![after(10, of("a", 1)), after(6, of("a", 2)), after(7, of("b", 101))]).await;
    s.advance(5);
    s.submit_all(vec![of("a", 3), of("b", 102)]).await;
    s.advance(3);
    s.submit_all(vec![of("a", 4), after(100, of("b", 103))]).await;
    let ahead = async |n| s.store.ahead_of(&s.record(id(n)).await.job).await.unwrap();
    assert_eq!([ahead(102).await, ahead(101).await, ahead(4).await], [1, 3, 2 + 2]);
    assert_eq!(ahead(1).await, 3 + 2, "its instant is still to come");
    s.advance(2);
    let mut order = claimed_ids(&s.claim(3).await);
    order.extend(claimed_ids(&s.claim(10).await));
    assert_eq!(order, [3, 102, 2, 101, 4, 1].map(id));
}

pub(super) async fn jobs_for_later_keep_to_lock_keys_and_gates(s: Subject) {
    let behind = |n| job_with(n, |spec| spec.upstreams = vec![Upstream::parse("u").unwrap()]);
    s.submit_all(vec![after(10, locked(1, "L")), after(10, locked(2, "L")), after(10, behind(3))]).await;
    s.submit_all(vec![after(11, behind(4)), after(12, job(5))]).await;
    s.submit(behind(9)).await;
    assert_eq!(claimed_ids(&s.claim(1).await), [id(9)]);
    s.done(id(9), refused_by(1, "u", FailureClass::RateLimited, Some(20))).await;
    s.advance(12);
    assert_eq!(
        claimed_ids(&s.claim(10).await),
        [1, 5].map(id),
        "one has the key, and the upstream is closed"
    );
    assert_eq!(s.claim(10).await.len(), 0);
    s.done(id(1), succeed(1)).await;
    assert_eq!(claimed_ids(&s.claim(1).await), [id(2)]);
    s.advance(8);
    assert_eq!(claimed_ids(&s.claim(10).await), [id(3)], "the probe");
}

pub(super) async fn ten_thousand_jobs_of_one_instant_delay_ten_of_another_tenant_by_twenty_claims(
    s: Subject,
) {
    for first in (0..10_000).step_by(1000) {
        s.submit_all((first..first + 1000).map(|n| after(60, of("a", n))).collect()).await;
    }
    s.submit_all((20_000..20_010).map(|n| after(61, of("b", n))).collect()).await;
    s.advance(61);
    // Ten for themselves and twenty more.
    let tenants = s.next_tenants(30).await;
    assert_eq!(tenants.matches('b').count(), 10, "{tenants}");
    assert_eq!(s.claim(1000).await.len(), 1000, "and none of the others is lost");
}

pub(super) async fn jobs_of_one_instant_in_several_lines_are_each_given_out_once(s: Subject) {
    let of_priority = |n: u32| after(60, job_with(n, |spec| spec.priority = (n % 4) as i8));
    s.submit_all((0..1600).map(of_priority).collect()).await;
    s.advance(60);
    let mut given = std::collections::BTreeSet::new();
    for claims in 0..20 {
        let store = if claims % 3 == 0 { &s.twin } else { &s.store };
        given.extend(claimed_ids(&store.claim(request(100)).await.unwrap()));
    }
    assert_eq!(given.len(), 1600);
}

pub(super) async fn the_jobs_ahead_are_those_that_turns_put_there(s: Subject) {
    s.submit_all(many("a", 1..=50)).await;
    s.submit_all(many("b", 101..=103)).await;
    s.submit_all(many("c", 201..=202)).await;
    let ahead = async |n| s.store.ahead_of(&s.record(id(n)).await.job).await.unwrap();
    // The third of `b` has two of its own before it, and three turns of each other tenant at most.
    assert_eq!([ahead(101).await, ahead(103).await], [2, 2 + 3 + 2]);
    assert_eq!(ahead(50).await, 49 + 3 + 2);
    let urgent = |n: u32| {
        job_with(n, |spec| {
            spec.tenant = tenant("b");
            spec.priority = 1;
        })
    };
    s.submit(urgent(110)).await;
    assert_eq!([ahead(110).await, ahead(101).await], [2, 1 + 2 + 2]);
    s.advance(61);
    s.submit(urgent(111)).await;
    assert_eq!(ahead(111).await, 4 + 5 + 2, "a step is worth a minute and no more");
}

pub(super) async fn jobs_of_several_upstreams_go_in_their_tenants_order(s: Subject) {
    let behind = |n, names: &[&str]| {
        job_with(n, |spec| {
            spec.upstreams = names.iter().map(|name| Upstream::parse(*name).unwrap()).collect();
        })
    };
    s.submit_all(vec![behind(3, &["u", "v"]), behind(1, &["v"]), job(4), behind(2, &["v", "u"])]).await;
    assert_eq!(claimed_ids(&s.claim(3).await), [1, 2, 3].map(id));
    assert_eq!(claimed_ids(&s.claim(3).await), [id(4)]);
}
