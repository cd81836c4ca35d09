//! Turns: what holds for whatever tenants come and go, and however many jobs each has.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::ClaimRequest;
use coolant_core::time::Timestamp;
use coolant_core::turns::{Given, Kind, Rota, Share, Turn, Turns, Waiting, jobs_ahead, rank};
use proptest::prelude::*;

fn tenant(name: impl std::fmt::Display) -> Tenant {
    Tenant::parse(name.to_string()).unwrap()
}

/// Tenants and the jobs that each has waiting, as a store would find them, with the turns that it keeps.
#[derive(Debug, Clone, Default)]
struct Field {
    waiting: BTreeMap<Tenant, (u32, Timestamp)>,
    kept: BTreeMap<Tenant, Turn>,
    now: i64,
}

impl Field {
    /// Jobs that come now.
    fn add(&mut self, name: impl std::fmt::Display, jobs: u32) {
        let since = Timestamp::from_millis(self.now);
        self.waiting.entry(tenant(name)).or_insert((0, since)).0 += jobs;
    }

    /// Claims as a store does, a little later: what one has no jobs for, the others get. Gives the tenants of
    /// the jobs.
    fn claim(&mut self, turns: &mut Turns, max: u32) -> Vec<Tenant> {
        self.now += 1;
        self.claim_at_once(turns, max)
    }

    fn claim_at_once(&mut self, turns: &mut Turns, max: u32) -> Vec<Tenant> {
        let now = Timestamp::from_millis(self.now);
        let mut given = Given::default();
        let mut left = max;
        let mut shares = turns.deal(self.found(), left, now);
        let are_kept = shares.len() > 1;
        while left > 0 && !shares.is_empty() {
            let mut done = BTreeSet::new();
            for Share { tenant, jobs: share, turn } in &shares {
                let (jobs, _) = self.waiting.get_mut(tenant).unwrap();
                let taken = (*share).min(*jobs);
                *jobs -= taken;
                left -= taken;
                given.add(tenant, (0..taken).map(|_| tenant.clone()));
                if taken < *share {
                    done.insert(tenant.clone());
                }
                if taken > 0 && are_kept {
                    self.kept.insert(tenant.clone(), *turn);
                }
            }
            shares = turns.deal_again(shares, &done, left, now);
        }
        self.waiting.retain(|_, (jobs, _)| *jobs > 0);
        given.in_turn()
    }

    fn found(&self) -> Vec<Waiting> {
        let found = |(tenant, (_, since)): (&Tenant, &(u32, Timestamp))| Waiting {
            tenant: tenant.clone(),
            since: *since,
            last: self.kept.get(tenant).copied(),
        };
        self.waiting.iter().map(found).collect()
    }
}

fn count(tenants: &[Tenant], name: &str) -> usize {
    tenants.iter().filter(|of| **of == tenant(name)).count()
}

proptest! {
    /// Every claim is full as long as there are jobs, and nobody is given more than it has.
    #[test]
    fn no_turn_is_wasted(jobs in prop::collection::vec(0_u32..30, 1..20), sizes in prop::collection::vec(1_u32..40, 1..40)) {
        let (mut turns, mut field) = (Turns::default(), Field::default());
        for (n, jobs) in jobs.iter().enumerate().filter(|(_, jobs)| **jobs > 0) {
            field.add(n, *jobs);
        }
        let mut left: u32 = jobs.iter().sum();
        for size in sizes {
            let claimed = field.claim(&mut turns, size);
            prop_assert_eq!(claimed.len(), size.min(left) as usize);
            left -= u32::try_from(claimed.len()).unwrap();
        }
        prop_assert_eq!(field.waiting.values().map(|(jobs, _)| jobs).sum::<u32>(), left);
    }

    /// After any history, tenants that all have jobs differ by one turn at most, over any number of claims.
    #[test]
    fn tenants_that_go_on_have_equal_turns(
        history in prop::collection::vec((0_u32..12, 1_u32..9, 1_u32..15), 0..40),
        tenants in 2_u32..9,
        sizes in prop::collection::vec(1_u32..20, 1..60),
    ) {
        let (mut turns, mut field) = (Turns::default(), Field::default());
        for (name, jobs, size) in history {
            field.add(format!("old{name}"), jobs);
            field.claim(&mut turns, size);
        }
        let mut field = Field { now: field.now, kept: field.kept, ..Field::default() };
        (0..tenants).for_each(|n| field.add(n, 1_000_000));
        // From here on, whoever had turns before.
        field.claim(&mut turns, tenants);
        let mut claimed = Vec::new();
        for size in sizes {
            claimed.extend(field.claim(&mut turns, size));
            let counts: Vec<_> = (0..tenants).map(|n| count(&claimed, &n.to_string())).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    /// Ten jobs beside ten thousand: all among the next twenty, whichever processes deal and in what pieces,
    /// whether they have dealt before or begin only now.
    #[test]
    fn ten_jobs_are_delayed_by_ten_turns(
        before in prop::collection::vec((0_usize..3, 1_u32..30), 0..30),
        after in prop::collection::vec((0_usize..6, 1_u32..12), 40),
        others in 0_u32..4,
    ) {
        let mut processes: [Turns; 6] = Default::default();
        let mut field = Field::default();
        field.add("a", 10_000);
        (0..others).for_each(|n| field.add(format!("other{n}"), 10_000));
        for (process, size) in before {
            field.claim(&mut processes[process], size);
        }
        field.add("b", 10);
        let enough = 10 * (2 + others);
        let (mut seen, mut of_b) = (0, 0);
        for (process, size) in after.into_iter().cycle() {
            let size = size.min(enough - seen);
            let claimed = field.claim(&mut processes[process], size);
            seen += size;
            of_b += count(&claimed, "b");
            if seen == enough {
                break;
            }
        }
        prop_assert_eq!((seen, of_b), (enough, 10));
    }

    /// However the claims fall to processes, tenants that all have jobs differ by one turn at most.
    #[test]
    fn processes_deal_as_one(
        tenants in 2_u32..9,
        claims in prop::collection::vec((0_usize..5, 1_u32..20, any::<bool>()), 1..60),
    ) {
        let mut processes: [Turns; 5] = Default::default();
        let mut field = Field::default();
        (0..tenants).for_each(|n| field.add(n, 1_000_000));
        let mut claimed = Vec::new();
        for (process, size, in_the_same_instant) in claims {
            claimed.extend(match in_the_same_instant {
                true => field.claim_at_once(&mut processes[process], size),
                false => field.claim(&mut processes[process], size),
            });
            let counts: Vec<_> = (0..tenants).map(|n| count(&claimed, &n.to_string())).collect();
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
    }

    /// Names that nobody has seen before, new ones in every claim: each goes once before those that have more
    /// jobs go again, and never twice.
    #[test]
    fn new_names_starve_nobody(arrivals in prop::collection::vec(0_u32..6, 20..100), known in 1_u32..5) {
        let (mut turns, mut field) = (Turns::default(), Field::default());
        (0..known).for_each(|n| field.add(format!("known{n}"), 1_000_000));
        field.claim(&mut turns, known);
        let (mut next, mut waits) = (0, BTreeMap::new());
        for arrivals in &arrivals {
            for _ in 0..*arrivals {
                field.add(format!("new{next}"), 1);
                next += 1;
            }
            // Whoever is there now goes before anybody who comes later.
            let there = field.waiting.len();
            field.waiting.keys().for_each(|tenant| { waits.entry(tenant.clone()).or_insert(there); });
            let claimed = field.claim(&mut turns, 1).remove(0);
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
            let shares = turns.deal_part(names[start..end].to_vec(), size.min(u32::try_from(end - start).unwrap()), end == tenants, Timestamp::default());
            for Share { tenant, jobs, .. } in shares {
                counts[names.binary_search(&tenant).unwrap()] += jobs;
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

/// The tenant of these whose turn it is, among those that all came at the same moment.
fn first(turns: &mut Turns, names: &[u32]) -> String {
    let since = Timestamp::from_millis(1);
    let waiting = |name: &u32| Waiting { tenant: tenant(name), since, last: None };
    let shares = turns.deal(names.iter().map(waiting).collect(), 1, Timestamp::from_millis(2));
    shares.into_iter().find(|share| share.jobs > 0).unwrap().tenant.to_string()
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut turns = Turns::default();
    for n in 0..5_000 {
        first(&mut turns, &[n]);
    }
    assert_eq!(first(&mut turns, &[4_998, 4_999]), "4998");
    assert_eq!(first(&mut turns, &[4_999, 0]), "0", "its turn is forgotten");
    let mut rota = Rota::default();
    let kind = |queue: &str, job_type: &str| {
        Kind::of(&ClaimRequest {
            worker: "w".into(),
            queues: vec![Queue::parse(queue).unwrap()],
            job_types: vec![JobType::parse(job_type).unwrap()],
            max: 1,
            lease: None,
            process: None,
        })
    };
    first(rota.of(kind("q", "A")), &[1]);
    assert_eq!(first(rota.of(kind("q", "A")), &[1, 2]), "2");
    assert_eq!(first(rota.of(kind("r", "A")), &[1, 2]), "1");
    for n in 0..Rota::REMEMBERED {
        rota.of(kind(&n.to_string(), "A"));
    }
    assert_eq!(first(rota.of(kind("q", "A")), &[1, 2]), "1");
}

#[test]
fn requests_for_the_same_queues_and_types_are_of_one_kind() {
    let request = |queues: &[&str], job_types: &[&str]| ClaimRequest {
        worker: "w".into(),
        queues: queues.iter().map(|name| Queue::parse(*name).unwrap()).collect(),
        job_types: job_types.iter().map(|name| JobType::parse(*name).unwrap()).collect(),
        max: 1,
        lease: None,
        process: None,
    };
    let kind = |queues: &[&str], job_types: &[&str]| Kind::of(&request(queues, job_types));
    assert_eq!(kind(&["a", "b"], &["C", "D"]), kind(&["b", "a", "b"], &["D", "C"]));
    let others = [kind(&["a"], &[]), kind(&["a"], &["A"]), kind(&["a", "b"], &[]), kind(&["ab"], &[])];
    assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    // Stores keep it: it must be the same in every version.
    assert_eq!(kind(&["default"], &[]).number(), -1_780_466_721_331_392_542);
}

/// One that comes waits for those that were there, and for nobody that had a turn since.
#[test]
fn who_comes_stands_between_those_that_waited_and_those_that_had_a_turn_since() {
    let mut field = Field::default();
    let (mut one, mut other) = (Turns::default(), Turns::default());
    field.add("a", 10);
    field.add("b", 10);
    assert_eq!(field.claim(&mut one, 1), [tenant("a")]);
    field.now += 1;
    field.add("c", 10);
    let order: Vec<_> = (0..6).flat_map(|_| field.claim(&mut other, 1)).collect();
    assert_eq!(order, ["b", "a", "c", "b", "a", "c"].map(tenant));
    field.now += 1;
    field.add("d", 10);
    assert_eq!(field.claim(&mut one, 4), ["b", "a", "c", "d"].map(tenant));
}
