//! Turns: how tenants share workers, and which of a tenant's jobs goes first.
//!
//! Tenants take turns, a job a turn, whatever their priorities and backlogs: so a tenant with ten thousand
//! jobs delays ten jobs of another by ten claims. A tenant alone gets every turn.
//!
//! Always true:
//! - the tenant whose last turn lies farthest back goes first, whichever process dealt it;
//! - one that had none stands where its first job came: behind those that waited when it came, and before
//!   those that had a turn since: so names that come up for the first time, again and again, starve nobody;
//! - a tenant's own jobs go by [`rank`], so none of them waits for ever.
//!
//! A store keeps the last turn of each tenant with the claim that took it, so that all processes deal as one
//! and no row is written by all of them. A turn that a tenant had alone is not kept: it took nothing from
//! anybody. What a process remembers besides are the turns of its own, which others see with the commit. That
//! is bounded, and losing it is harmless.

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

/// When a turn was dealt: in microseconds of the store's clock, and after every turn that was known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Turn(i64);

impl Turn {
    /// The turn of that number, as a store kept it.
    #[must_use]
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number, for a store to keep.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Before every turn that is dealt in that millisecond.
    const fn at(now: Timestamp) -> Self {
        Self(now.as_millis().saturating_mul(1000))
    }

    const fn later_by(self, turns: i64) -> Self {
        Self(self.0.saturating_add(turns))
    }
}

/// A tenant that has jobs waiting, as a store finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub tenant: Tenant,
    /// The instant of its first job.
    pub since: Timestamp,
    /// Its last turn, of those that the store has kept.
    pub last: Option<Turn>,
}

/// What a tenant was dealt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Who.
    pub tenant: Tenant,
    /// How many jobs it may start now. None, where turns were too few for all.
    pub jobs: u32,
    /// The last of these turns, if it has any.
    pub turn: Turn,
}

/// Whose turn it is among the tenants of one kind of request.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    /// The newest turn that is known.
    newest: Turn,
    /// The last turn of each tenant, of those dealt here.
    last: BTreeMap<Tenant, Turn>,
    after: Option<Tenant>,
}

impl Turns {
    /// Tenants whose last turn is remembered.
    pub const REMEMBERED: usize = 1024;

    /// Where a store that cannot look at all tenants at once begins to look: behind this one, in the order
    /// of their names. From the first on if `None`.
    #[must_use]
    pub const fn after(&self) -> Option<&Tenant> {
        self.after.as_ref()
    }

    /// Deals `max` turns to tenants that all have jobs waiting; these are all there are.
    pub fn deal(&mut self, tenants: Vec<Waiting>, max: u32, now: Timestamp) -> Vec<Share> {
        self.after = None;
        let mut order = Vec::with_capacity(tenants.len());
        for Waiting { tenant, since, last } in tenants {
            let last = self.last.get(&tenant).copied().max(last);
            self.newest = self.newest.max(last.unwrap_or_default());
            order.push((last.unwrap_or(Turn::at(since)), tenant));
        }
        order.sort_unstable();
        self.share(order.into_iter().map(|(_, tenant)| tenant).collect(), max, now)
    }

    /// Deals `max` turns to some of the tenants, those that come next in the order of the names: each gets
    /// one before any gets another. The next look begins behind the last of them; at the first of all
    /// tenants, if these are the last ones (`are_last`) and all of them were dealt to.
    pub fn deal_part(
        &mut self,
        tenants: Vec<Tenant>,
        max: u32,
        are_last: bool,
        now: Timestamp,
    ) -> Vec<Share> {
        if are_last && tenants.len() <= max as usize {
            self.after = None;
        } else if let Some(tenant) = tenants.get((max as usize).saturating_sub(1)).or(tenants.last()) {
            self.after = Some(tenant.clone());
        }
        self.share(tenants, max, now)
    }

    /// Deals turns that are left because some tenants (`done`) had fewer jobs than turns: to those that got
    /// none so far, then to the others, in the order in which they were dealt.
    pub fn deal_again(
        &mut self,
        shares: Vec<Share>,
        done: &BTreeSet<Tenant>,
        max: u32,
        now: Timestamp,
    ) -> Vec<Share> {
        let (none_yet, some): (Vec<_>, Vec<_>) = shares
            .into_iter()
            .filter(|share| !done.contains(&share.tenant))
            .partition(|share| share.jobs == 0);
        self.share(none_yet.into_iter().chain(some).map(|share| share.tenant).collect(), max, now)
    }

    fn share(&mut self, tenants: Vec<Tenant>, max: u32, now: Timestamp) -> Vec<Share> {
        let count = u32::try_from(tenants.len()).unwrap_or(u32::MAX);
        if count == 0 || max == 0 {
            return Vec::new();
        }
        let (rounds, more) = (max / count, max % count);
        let first = Turn::at(now).max(self.newest).later_by(1);
        let mut shares = Vec::with_capacity(tenants.len());
        for (place, tenant) in (0_u32..).zip(tenants) {
            let jobs = rounds + u32::from(place < more);
            let round = i64::from(jobs.saturating_sub(1));
            let turn = first.later_by(round * i64::from(count) + i64::from(place));
            if jobs > 0 {
                self.last.insert(tenant.clone(), turn);
            }
            shares.push(Share { tenant, jobs, turn });
        }
        self.newest = first.later_by(i64::from(max) - 1);
        self.forget_some();
        shares
    }

    /// Forgets those that have waited or stayed away the longest.
    fn forget_some(&mut self) {
        if self.last.len() > Self::REMEMBERED {
            let mut turns: Vec<Turn> = self.last.values().copied().collect();
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

/// Requests for the same queues and types. They share turns, and workers that ask for others share nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(i64);

impl Kind {
    /// The kind of a request.
    #[must_use]
    pub fn of(request: &ClaimRequest) -> Self {
        let queues: BTreeSet<&str> = request.queues.iter().map(Queue::as_str).collect();
        let job_types: BTreeSet<&str> = request.job_types.iter().map(JobType::as_str).collect();
        let mut hasher = blake3::Hasher::new();
        for names in [queues, job_types] {
            for name in names {
                // Names have no control characters.
                hasher.update(name.as_bytes()).update(b"\x1f");
            }
            hasher.update(b"\x1e");
        }
        let mut number = [0; 8];
        hasher.finalize_xof().fill(&mut number);
        Self(i64::from_le_bytes(number))
    }

    /// Its number, the same in every process, for a store to keep.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

/// The turns of every kind of request.
#[derive(Debug, Default)]
pub struct Rota(BTreeMap<Kind, Turns>);

impl Rota {
    /// Kinds of requests that are remembered.
    pub const REMEMBERED: usize = 256;

    /// The turns among those that such a request can be given.
    pub fn of(&mut self, kind: Kind) -> &mut Turns {
        if self.0.len() >= Self::REMEMBERED && !self.0.contains_key(&kind) {
            self.0.clear();
        }
        self.0.entry(kind).or_default()
    }
}
