//! Turns: what holds for whatever tenants come and go, and however many jobs each has.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::ClaimRequest;
use coolant_core::time::Timestamp;
use coolant_core::turns::{Given, Rota, Share, Turns, jobs_ahead, rank};
use proptest::prelude::*;

fn tenant(name: impl std::fmt::Display) -> Tenant {
    Tenant::parse(name.to_string()).unwrap()
}

/// Tenants and the jobs that each has waiting, as a store would find them.
#[derive(Debug, Clone, Default)]
struct Waiting(BTreeMap<Tenant, u32>);

impl Waiting {
    fn add(&mut self, name: impl std::fmt::Display, jobs: u32) {
        *self.0.entry(tenant(name)).or_default() += jobs;
    }

    /// Claims as a store does: what one has no jobs for, the others get. Gives the tenants of the jobs.
    fn claim(&mut self, turns: &mut Turns, max: u32) -> Vec<Tenant> {
        let mut given = Given::default();
        let mut left = max;
        let mut shares = turns.deal(self.0.keys().cloned().collect(), left);
        while left > 0 && !shares.is_empty() {
            let mut done = BTreeSet::new();
            for (tenant, share) in &shares {
                let jobs = self.0.get_mut(tenant).unwrap();
                let taken = (*share).min(*jobs);
                *jobs -= taken;
                left -= taken;
                given.add(tenant, (0..taken).map(|_| tenant.clone()));
                if taken < *share {
                    done.insert(tenant.clone());
                }
            }
            shares = turns.deal_again(shares, &done, left);
        }
        self.0.retain(|_, jobs| *jobs > 0);
        given.in_turn()
    }
}

fn count(tenants: &[Tenant], name: &str) -> usize {
    tenants.iter().filter(|of| **of == tenant(name)).count()
}

proptest! {
    /// Every claim is full as long as there are jobs, and nobody is given more than it has.
    #[test]
    fn no_turn_is_wasted(jobs in prop::collection::vec(0_u32..30, 1..20), sizes in prop::collection::vec(1_u32..40, 1..40)) {
        let (mut turns, mut waiting) = (Turns::default(), Waiting::default());
        for (n, jobs) in jobs.iter().enumerate().filter(|(_, jobs)| **jobs > 0) {
            waiting.add(n, *jobs);
        }
        let mut left: u32 = jobs.iter().sum();
        for size in sizes {
            let claimed = waiting.claim(&mut turns, size);
            prop_assert_eq!(claimed.len(), size.min(left) as usize);
            left -= u32::try_from(claimed.len()).unwrap();
        }
        prop_assert_eq!(waiting.0.values().sum::<u32>(), left);
    }

    /// After any history, tenants that all have jobs differ by one turn at most, over any number of claims.
    #[test]
    fn tenants_that_go_on_have_equal_turns(
        history in prop::collection::vec((0_u32..12, 1_u32..9, 1_u32..15), 0..40),
        tenants in 2_u32..9,
        sizes in prop::collection::vec(1_u32..20, 1..60),
    ) {
        let (mut turns, mut waiting) = (Turns::default(), Waiting::default());
        for (name, jobs, size) in history {
            waiting.add(format!("old{name}"), jobs);
            waiting.claim(&mut turns, size);
        }
        let mut waiting = Waiting::default();
        (0..tenants).for_each(|n| waiting.add(n, 1_000_000));
        // From here on, whoever had turns before.
        waiting.claim(&mut turns, tenants);
        let mut claimed = Vec::new();
        for size in sizes {
            claimed.extend(waiting.claim(&mut turns, size));
            let counts: Vec<_> = (0..tenants).map(|n| count(&claimed, &n.to_string())).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    /// Ten jobs beside ten thousand: all among the next twenty, whichever processes deal and in what pieces,
    /// if each of them has dealt before.
    #[test]
    fn ten_jobs_are_delayed_by_ten_turns(
        before in prop::collection::vec((0_usize..3, 1_u32..30), 0..30),
        after in prop::collection::vec((0_usize..3, 1_u32..12), 40),
    ) {
        let mut processes = [Turns::default(), Turns::default(), Turns::default()];
        let mut waiting = Waiting::default();
        waiting.add("a", 10_000);
        for (process, size) in (0..3).map(|process| (process, 1)).chain(before) {
            waiting.claim(&mut processes[process], size);
        }
        waiting.add("b", 10);
        let (mut seen, mut of_b) = (0, 0);
        for (process, size) in after {
            let size = size.min(20 - seen);
            let claimed = waiting.claim(&mut processes[process], size);
            seen += size;
            of_b += count(&claimed, "b");
            if seen == 20 {
                break;
            }
        }
        prop_assert_eq!((seen, of_b), (20, 10));
    }

    /// Names that nobody has seen before, new ones in every claim: each goes once before those that have more
    /// jobs go again, and never twice.
    #[test]
    fn new_names_starve_nobody(arrivals in prop::collection::vec(0_u32..6, 20..200), known in 1_u32..5) {
        let (mut turns, mut waiting) = (Turns::default(), Waiting::default());
        (0..known).for_each(|n| waiting.add(format!("known{n}"), 1_000_000));
        waiting.claim(&mut turns, known);
        let (mut next, mut waits) = (0, BTreeMap::new());
        for arrivals in &arrivals {
            for _ in 0..*arrivals {
                waiting.add(format!("new{next}"), 1);
                next += 1;
            }
            // Whoever is there now goes before anybody who comes later.
            let there = waiting.0.len();
            waiting.0.keys().for_each(|tenant| { waits.entry(tenant.clone()).or_insert(there); });
            let claimed = waiting.claim(&mut turns, 1).remove(0);
            waits.remove(&claimed);
            waits.values_mut().for_each(|turns| *turns -= 1);
            prop_assert!(waits.values().all(|turns| *turns > 0), "{waits:?}");
        }
    }

    /// In pieces, by their names: each has a turn before any has two.
    #[test]
    fn in_pieces_each_has_its_turn(tenants in 2_usize..60, piece in 1_usize..20, sizes in prop::collection::vec(1_u32..15, 100)) {
        let names: Vec<Tenant> = (0..tenants).map(|n| tenant(format!("{n:03}"))).collect();
        let mut turns = Turns::default();
        let mut counts = vec![0_u32; tenants];
        for size in sizes {
            let start = turns.after().map_or(0, |after| names.partition_point(|name| name <= after));
            let end = (start + piece).min(tenants);
            let shares = turns.deal_part(names[start..end].to_vec(), size.min(u32::try_from(end - start).unwrap()), end == tenants);
            for (name, share) in shares {
                counts[names.binary_search(&name).unwrap()] += share;
            }
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }
}

#[test]
fn a_step_of_priority_is_worth_a_minute() {
    let at = Timestamp::from_millis;
    assert_eq!(rank(at(600_000), 0), 600_000);
    assert_eq!(rank(at(600_000), 10), 0);
    assert_eq!(rank(at(600_000), -10), 1_200_000);
    assert_eq!(rank(at(i64::MIN), 10), i64::MIN);
    assert_eq!(rank(at(i64::MAX), -10), i64::MAX);
}

#[test]
fn the_jobs_ahead_are_counted_as_turns_go() {
    assert_eq!(jobs_ahead(0, []), 0);
    assert_eq!(jobs_ahead(9, [10_000, 3]), 9 + 10 + 3);
    assert_eq!(jobs_ahead(9_000, [8_000, 8_000]), 10_000);
}

/// The tenant whose turn it is.
fn first(shares: Vec<Share>) -> Tenant {
    shares.into_iter().find(|(_, share)| *share > 0).unwrap().0
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut turns = Turns::default();
    for n in 0..5_000 {
        turns.deal(vec![tenant(n)], 1);
    }
    // Number 0 is forgotten and stands as a new one, behind 4998, which had its turn before it came.
    assert_eq!(first(turns.deal(vec![tenant(4_998), tenant(0)], 1)), tenant(4_998));
    assert_eq!(first(turns.deal(vec![tenant(4_999), tenant(0)], 1)), tenant(0));
    let mut rota = Rota::default();
    let request = |queue: &str, job_type: &str| ClaimRequest {
        worker: "w".into(),
        queues: vec![Queue::parse(queue).unwrap()],
        job_types: vec![JobType::parse(job_type).unwrap()],
        max: 1,
        lease: None,
        process: None,
    };
    rota.of(&request("q", "A")).deal(vec![tenant("a")], 1);
    assert_eq!(first(rota.of(&request("q", "A")).deal(vec![tenant("a"), tenant("b")], 1)), tenant("b"));
    assert_eq!(first(rota.of(&request("r", "A")).deal(vec![tenant("a"), tenant("b")], 1)), tenant("a"));
    for n in 0..Rota::REMEMBERED {
        rota.of(&request(&n.to_string(), "A"));
    }
    assert_eq!(first(rota.of(&request("q", "A")).deal(vec![tenant("a"), tenant("b")], 1)), tenant("a"));
}
