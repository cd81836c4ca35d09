//! Turns: how tenants share workers, and which of a tenant's jobs goes first.
//!
//! Tenants take turns, a job a turn, whatever their priorities and backlogs: so a tenant with ten thousand
//! jobs delays ten jobs of another by ten claims. A tenant alone gets every turn.
//!
//! Always true:
//! - the tenant whose last turn lies farthest back goes first;
//! - one that had none stands behind those that waited when it came, and before those that had a turn since:
//!   so names that come up for the first time, again and again, starve nobody;
//! - a tenant's own jobs go by [`rank`], so none of them waits for ever.
//!
//! What is remembered is bounded, and losing it is harmless: the next turns are dealt as if nobody had had
//! one. So each process remembers for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::job::Job;
use crate::names::{JobType, Queue, Tenant};
use crate::store::ClaimRequest;
use crate::time::{Timestamp, millis_up};

/// How much waiting one step of priority is worth.
pub const PRIORITY_STEP: Duration = Duration::from_secs(60);

/// Where an instant stands in the order of a tenant's jobs, in milliseconds; lower goes first. A step of
/// priority moves it forward by [`PRIORITY_STEP`], so that what waits long enough goes before anything.
#[must_use]
pub fn rank(instant: Timestamp, priority: i8) -> i64 {
    instant.as_millis().saturating_sub(i64::from(priority).saturating_mul(millis_up(PRIORITY_STEP)))
}

/// The rank of a job that waits or runs, by its instant; `None` for one that has ended.
#[must_use]
pub fn rank_of(job: &Job) -> Option<i64> {
    job.visible_at().map(|at| rank(at, job.spec.priority))
}

/// Whose turn it is among the tenants of one kind of request.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// Turns dealt so far.
    dealt: u64,
    /// Where each tenant stands: twice the number of its last turn, or, of one that had none, just before the
    /// last turn that was dealt when it came.
    last: BTreeMap<Tenant, u64>,
    after: Option<Tenant>,
}

/// A tenant that has jobs waiting, and how many it may start now. None, where turns were too few for all.
pub type Share = (Tenant, u32);

impl Turns {
    /// Tenants whose place is remembered.
    pub const REMEMBERED: usize = 1024;

    /// Where a store that cannot look at all tenants at once begins to look: behind this one, in the order
    /// of their names. From the first on if `None`.
    #[must_use]
    pub const fn after(&self) -> Option<&Tenant> {
        self.after.as_ref()
    }

    /// Deals `max` turns to tenants that all have jobs waiting; these are all there are.
    pub fn deal(&mut self, tenants: Vec<Tenant>, max: u32) -> Vec<Share> {
        self.after = None;
        let new = (2 * self.dealt).saturating_sub(1);
        let mut order: Vec<(u64, Tenant)> = tenants
            .into_iter()
            .map(|tenant| (*self.last.entry(tenant.clone()).or_insert(new), tenant))
            .collect();
        order.sort_unstable();
        self.share(order.into_iter().map(|(_, tenant)| tenant).collect(), max)
    }

    /// Deals `max` turns to some of the tenants, those that come next in the order of the names: each gets
    /// one before any gets another. The next look begins behind the last of them; at the first of all
    /// tenants, if these are the last ones (`are_last`) and all of them were dealt to.
    pub fn deal_part(&mut self, tenants: Vec<Tenant>, max: u32, are_last: bool) -> Vec<Share> {
        if are_last && tenants.len() <= max as usize {
            self.after = None;
        } else if let Some(tenant) = tenants.get((max as usize).saturating_sub(1)).or(tenants.last()) {
            self.after = Some(tenant.clone());
        }
        self.share(tenants, max)
    }

    /// Deals turns that are left because some tenants (`done`) had fewer jobs than turns: to those that got
    /// none so far, then to the others, in the order in which they were dealt.
    pub fn deal_again(&mut self, shares: Vec<Share>, done: &BTreeSet<Tenant>, max: u32) -> Vec<Share> {
        let (none_yet, some): (Vec<_>, Vec<_>) = shares
            .into_iter()
            .filter(|(tenant, _)| !done.contains(tenant))
            .partition(|(_, share)| *share == 0);
        self.share(none_yet.into_iter().chain(some).map(|(tenant, _)| tenant).collect(), max)
    }

    fn share(&mut self, tenants: Vec<Tenant>, max: u32) -> Vec<Share> {
        let count = u32::try_from(tenants.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return Vec::new();
        }
        let (rounds, more) = (max / count, max % count);
        let mut shares = Vec::with_capacity(tenants.len());
        for (place, tenant) in (0_u32..).zip(tenants) {
            let share = rounds + u32::from(place < more);
            if share > 0 {
                let number = u64::from(share - 1) * u64::from(count) + u64::from(place) + 1;
                self.last.insert(tenant.clone(), 2 * (self.dealt + number));
            }
            shares.push((tenant, share));
        }
        self.dealt += u64::from(max);
        self.forget_some();
        shares
    }

    /// Forgets those that have waited or stayed away the longest.
    fn forget_some(&mut self) {
        if self.last.len() > Self::REMEMBERED {
            let mut turns: Vec<u64> = self.last.values().copied().collect();
            turns.sort_unstable();
            let oldest_kept = turns[turns.len() - Self::REMEMBERED / 2];
            self.last.retain(|_, turn| *turn >= oldest_kept);
        }
    }
}

/// Where counting the jobs ahead of one ends.
pub const MOST_AHEAD: i64 = 10_000;

/// How many jobs go before one that has `own` of its tenant's jobs before it, at most: those, and of each
/// other tenant no more than it has turns until then. Counted to [`MOST_AHEAD`].
pub fn jobs_ahead(own: i64, of_others: impl IntoIterator<Item = i64>) -> i64 {
    let turns = own.saturating_add(1);
    let others = of_others.into_iter().fold(0_i64, |sum, waiting| sum.saturating_add(waiting.min(turns)));
    own.saturating_add(others).min(MOST_AHEAD)
}

/// What tenants were given, in the order in which they came first.
#[derive(Debug)]
pub struct Given<T>(Vec<(Tenant, Vec<T>)>);

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Given<T> {
    /// Adds to what a tenant was given.
    pub fn add(&mut self, tenant: &Tenant, more: impl IntoIterator<Item = T>) {
        match self.0.iter_mut().find(|(of, _)| of == tenant) {
            Some((_, given)) => given.extend(more),
            None => self.0.push((tenant.clone(), more.into_iter().collect())),
        }
    }

    /// All of it, as turns go: the first of each tenant, then the second of each.
    #[must_use]
    pub fn in_turn(self) -> Vec<T> {
        let longest = self.0.iter().map(|(_, given)| given.len()).max().unwrap_or(0);
        let mut tenants: Vec<_> = self.0.into_iter().map(|(_, given)| given.into_iter()).collect();
        (0..longest).flat_map(|_| tenants.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
    }
}

/// The turns of every kind of request: workers that ask for other queues or types share nothing.
#[derive(Debug, Default)]
pub struct Rota(BTreeMap<(Vec<Queue>, Vec<JobType>), Turns>);

impl Rota {
    /// Kinds of requests that are remembered.
    pub const REMEMBERED: usize = 256;

    /// The turns among those that such a request can be given.
    pub fn of(&mut self, request: &ClaimRequest) -> &mut Turns {
        let (mut queues, mut job_types) = (request.queues.clone(), request.job_types.clone());
        queues.sort_unstable();
        queues.dedup();
        job_types.sort_unstable();
        job_types.dedup();
        let kind = (queues, job_types);
        if self.0.len() >= Self::REMEMBERED && !self.0.contains_key(&kind) {
            self.0.clear();
        }
        self.0.entry(kind).or_default()
    }
}
