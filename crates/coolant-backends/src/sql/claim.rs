//! Claims: the one place where SQL chooses jobs. What becomes of the chosen ones, `lifecycle` decides; whose
//! turn it is, `turns`.
//!
//! A claim looks at the lines of open gates (`waiting`), deals its turns to the tenants it finds there, and
//! takes from each what it was dealt: rows are locked for those alone, so that two claims at the same moment
//! take different jobs and pass over no tenant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use coolant_core::gate::Gate;
use coolant_core::job::{Job, JobId};
use coolant_core::lifecycle::{Answer, Event, on};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::{ClaimRequest, Claimed, StoreResult};
use coolant_core::time::Timestamp;
use coolant_core::turns::{Given, Kind as Asked, Rota, Share, Turn, Turns, Waiting};
use coolant_core::upstream::{Desk, Starter};

use crate::conn::{Conn, Dialect, Value};
use crate::sql::candidates::{self, ByTenant, Candidate, Standing, by_tenant};
use crate::sql::effects::Effects;
use crate::sql::floor::Floors;
use crate::sql::last_turns::last_turns;
use crate::sql::lost::{Quiet, lock_expired};
use crate::sql::waiting::{Due, Found, Line, Window, lines};
use crate::sql::{delayed, jobs};

/// What a lane remembers between claims.
#[derive(Debug)]
pub(crate) struct Memory {
    floors: Floors,
    quiet: Quiet,
}

impl Memory {
    pub(crate) fn of_a_lane(dialect: Dialect) -> Self {
        Self { floors: Floors::of_a_lane(dialect), quiet: Quiet::default() }
    }

    /// Forgets where jobs begin: after a rollback, some that this lane had claimed are pending again.
    pub(crate) fn forget_floors(&mut self) {
        self.floors.forget();
    }
}

/// A tenant, and how many jobs it is to be given.
type Want = (Tenant, u32);

/// Times that a tenant is asked for the rest of its share at most: a candidate that turns out to have ended
/// makes room for another.
const ROUNDS: u32 = 10;

/// Gives jobs to a worker.
pub(crate) async fn claim(
    conn: &mut Conn,
    request: &ClaimRequest,
    now: Timestamp,
    (memory, rota): (&mut Memory, &Mutex<Rota>),
    desk: &mut Desk,
) -> StoreResult<Vec<Claimed>> {
    let asked = Asked::of(request);
    let deal = |deal: &dyn Fn(&mut Turns) -> Vec<Share>| {
        deal(rota.lock().unwrap_or_else(PoisonError::into_inner).of(asked))
    };
    let after = rota.lock().unwrap_or_else(PoisonError::into_inner).of(asked).after().cloned();
    let mut claiming = Claiming::begin(conn, (request, asked), now, memory, desk).await?;
    let mut is_first = after.is_none();
    let mut windows = after.as_ref().map_or(vec![Window::all()], |after| Window::from_behind(after).into());
    windows.reverse();
    while claiming.left > 0
        && let Some(window) = windows.pop()
    {
        let (due, seen) = claiming.look(conn, &window).await?;
        windows.extend(window.less(&seen));
        let are_all = is_first && windows.is_empty();
        claiming.is_shared |= !are_all || due.len() > 1;
        let left = claiming.left;
        let mut shares = if are_all {
            deal(&|turns| turns.deal(waiting(&due), left, now))
        } else {
            let tenants = || due.keys().cloned().collect();
            deal(&|turns| turns.deal_part(tenants(), left, seen.is_last(), now))
        };
        is_first = false;
        while claiming.left > 0 && !shares.is_empty() {
            let done = claiming.serve(conn, &shares, &due).await?;
            let left = claiming.left;
            shares = deal(&|turns| turns.deal_again(shares.clone(), &done, left, now));
        }
    }
    let mut claimed = claiming.given.in_turn();
    give_steps(conn, &mut claimed).await?;
    Ok(claimed)
}

fn waiting(due: &Due) -> Vec<Waiting> {
    let waiting = |(tenant, found): (&Tenant, &Found)| {
        found.since().map(|since| Waiting { tenant: tenant.clone(), since, last: found.last })
    };
    due.iter().filter_map(waiting).collect()
}

/// A claim under way.
struct Claiming<'c> {
    request: &'c ClaimRequest,
    asked: Asked,
    now: Timestamp,
    floors: &'c mut Floors,
    /// What upstreams and budgets let through.
    desk: &'c mut Desk,
    lines: Vec<Line>,
    /// Jobs that were put in for later and have come due, the first ones of each line; no row is locked yet.
    delayed: ByTenant,
    /// Jobs whose lease has run out, the first ones of each tenant.
    lost: ByTenant,
    /// Jobs that may still be given out.
    left: u32,
    /// Whether tenants share it: then their turns are kept.
    is_shared: bool,
    given: Given<Claimed>,
}

impl<'c> Claiming<'c> {
    async fn begin(
        conn: &mut Conn,
        (request, asked): (&'c ClaimRequest, Asked),
        now: Timestamp,
        memory: &'c mut Memory,
        desk: &'c mut Desk,
    ) -> StoreResult<Self> {
        let closed: BTreeSet<&str> =
            desk.allowances(now).filter(|(_, much)| much.of(1) == 0).map(|(name, _)| name.as_str()).collect();
        let mut lines = lines(conn, &request.queues, &request.job_types).await?;
        lines.retain(|line| line.gate.upstreams().all(|name| !closed.contains(name)));
        let lost = by_tenant(memory.quiet.expired(conn, &lines, request.max, now).await?);
        let floors = &mut memory.floors;
        let come = delayed::look(conn, &lines, now, floors).await?;
        let come = lines.iter().zip(come).flat_map(|(line, come)| come.into_iter().map(move |it| (line, it)));
        let delayed: StoreResult<Vec<_>> = come.map(|(line, come)| Candidate::delayed(line, come)).collect();
        let delayed = by_tenant(delayed?);
        let (left, given) = (request.max, Given::default());
        Ok(Self { request, asked, now, floors, desk, lines, delayed, lost, left, is_shared: false, given })
    }

    /// Tenants of a window with jobs whose instant has come and that may start, and how far the look went.
    async fn look(&mut self, conn: &mut Conn, window: &Window) -> StoreResult<(Due, Window)> {
        let asked = Some(self.asked);
        let (due, seen) = window.look(conn, &self.lines, asked, self.now, self.floors).await?;
        let due = self.startable(conn, due, &seen).await?;
        Ok((due, seen))
    }

    /// What was found of a window, with delayed and lost jobs, without what may not start, and with the last
    /// turns of these tenants.
    async fn startable(&self, conn: &mut Conn, mut due: Due, seen: &Window) -> StoreResult<Due> {
        let mut without_turn = BTreeSet::new();
        for (tenant, found) in &mut due {
            found.lines.retain(|(number, _)| self.allowed(&self.lines[*number].gate, tenant, 1) > 0);
        }
        due.retain(|_, found| !found.lines.is_empty());
        let apart = self.delayed.iter().chain(&self.lost);
        for (tenant, apart) in apart.filter(|(tenant, _)| seen.holds(tenant)) {
            let may_start = apart.iter().filter(|candidate| self.allowed(&candidate.gate, tenant, 1) > 0);
            if let Some(first) = may_start.map(|candidate| candidate.since).min() {
                if !due.contains_key(tenant) {
                    without_turn.insert(tenant.clone());
                }
                let found = due.entry(tenant.clone()).or_default();
                found.apart = found.apart.into_iter().chain([first]).min();
            }
        }
        // One that is alone needs no turn, and costs no question for it.
        let is_alone = due.len() == 1;
        without_turn.retain(|tenant| due.contains_key(tenant) && !is_alone);
        for (tenant, turn) in last_turns(conn, self.asked, &without_turn).await? {
            due.entry(tenant).or_default().last = Some(turn);
        }
        Ok(due)
    }

    /// How many jobs of a tenant behind a gate may start, of so many that want to.
    fn allowed(&self, gate: &Gate, tenant: &Tenant, want: u32) -> u32 {
        let upstreams: Vec<Upstream> =
            gate.upstreams().filter_map(|name| Upstream::parse(name).ok()).collect();
        self.desk.allowance(&upstreams, tenant, self.now).of(want)
    }

    /// Gives tenants their shares. Gives those that had fewer jobs than that.
    async fn serve(&mut self, conn: &mut Conn, shares: &[Share], due: &Due) -> StoreResult<BTreeSet<Tenant>> {
        let dealt = shares.iter().filter(|share| share.jobs > 0);
        let turns: BTreeMap<Tenant, Turn> = dealt.clone().map(|it| (it.tenant.clone(), it.turn)).collect();
        let mut wanted: Vec<Want> = dealt.map(|share| (share.tenant.clone(), share.jobs)).collect();
        let mut done: BTreeSet<Tenant> = turns.keys().cloned().collect();
        // Its place among the others is that of its turn, also where its first jobs cannot start.
        wanted.iter().for_each(|(tenant, _)| self.given.add(tenant, []));
        for _ in 0..ROUNDS {
            let chosen = self.choose(conn, &wanted, due).await?;
            let mut considered: BTreeMap<Tenant, u32> = BTreeMap::new();
            for candidate in &chosen {
                *considered.entry(candidate.tenant.clone()).or_default() += 1;
            }
            let claimed = self.take(conn, chosen, &turns).await?;
            let mut open = Vec::new();
            for (tenant, want) in wanted {
                let got = claimed.iter().filter(|claimed| claimed.record.job.spec.tenant == tenant).count();
                let missing = want.saturating_sub(u32::try_from(got).unwrap_or(u32::MAX));
                if missing == 0 {
                    done.remove(&tenant);
                } else if considered.get(&tenant) == Some(&want) {
                    open.push((tenant, missing));
                }
            }
            for claimed in claimed {
                self.left = self.left.saturating_sub(1);
                let tenant = claimed.record.job.spec.tenant.clone();
                self.given.add(&tenant, [claimed]);
            }
            wanted = open;
            if wanted.is_empty() {
                break;
            }
        }
        Ok(done)
    }

    /// The first jobs of each of these tenants, as many as it wants, their rows locked.
    async fn choose(&mut self, conn: &mut Conn, wanted: &[Want], due: &Due) -> StoreResult<Vec<Candidate>> {
        let mut rows = Vec::new();
        for (tenant, want) in wanted {
            for (number, since) in due.get(tenant).into_iter().flat_map(|found| &found.lines) {
                let line = &self.lines[*number];
                let at_most = self.allowed(&line.gate, tenant, *want);
                if at_most == 0 {
                    continue;
                }
                let mut row = Vec::from(line.values());
                let floor = since.as_millis().into();
                row.extend([tenant.as_str().into(), floor, i64::from(at_most).into()]);
                rows.push(row);
            }
        }
        let mut pending = candidates::pending(conn, rows, self.now).await?;
        pending.extend(self.lock_delayed(conn, wanted).await?);
        let mut found = by_tenant(pending);
        let mut chosen = Vec::new();
        for (tenant, want) in wanted {
            let mut of_one = Vec::from(found.remove(tenant).unwrap_or_default());
            of_one.extend(self.lost.get(tenant).into_iter().flatten().take(*want as usize).cloned());
            of_one.sort_unstable();
            let left = of_one.split_off(of_one.len().min(*want as usize));
            let lost = of_one.iter().filter(|candidate| candidate.standing == Standing::Lost).count();
            self.lost.get_mut(tenant).map(|of_tenant| of_tenant.drain(..lost));
            for delayed in left.into_iter().rev().filter(|candidate| candidate.standing == Standing::Delayed)
            {
                self.delayed.entry(tenant.clone()).or_default().push_front(delayed);
            }
            chosen.extend(of_one);
        }
        Ok(chosen)
    }

    /// Takes out the first delayed jobs of each of these tenants, as many as it wants, and locks their rows. Those
    /// that somebody else has in hand are passed over.
    async fn lock_delayed(&mut self, conn: &mut Conn, wanted: &[Want]) -> StoreResult<Vec<Candidate>> {
        let mut missing = wanted.to_vec();
        let mut locked = Vec::new();
        loop {
            let mut rows = Vec::new();
            for (tenant, want) in &missing {
                let Some(mut of_tenant) = self.delayed.remove(tenant) else { continue };
                let mut left = VecDeque::new();
                let mut taken = 0;
                while let Some(candidate) = of_tenant.pop_front() {
                    if taken < *want && self.allowed(&candidate.gate, tenant, 1) > 0 {
                        rows.push(vec![candidate.id.to_string().into(), candidate.since.as_millis().into()]);
                        taken += 1;
                    } else {
                        left.push_back(candidate);
                    }
                }
                self.delayed.insert(tenant.clone(), left);
            }
            if rows.is_empty() {
                return Ok(locked);
            }
            let found = candidates::delayed(conn, rows, self.now).await?;
            for (tenant, want) in &mut missing {
                let got = found.iter().filter(|candidate| candidate.tenant == *tenant).count();
                *want = want.saturating_sub(u32::try_from(got).unwrap_or(u32::MAX));
            }
            locked.extend(found);
        }
    }

    /// Claims the chosen jobs, as `lifecycle` says, and saves what became of them.
    async fn take(
        &mut self,
        conn: &mut Conn,
        chosen: Vec<Candidate>,
        turns: &BTreeMap<Tenant, Turn>,
    ) -> StoreResult<Vec<Claimed>> {
        let now = self.now;
        let chosen = lock_expired(conn, chosen, now).await?;
        let chosen = one_of_each_lock_key(conn, chosen, now).await?;
        let mut effects = Effects::default();
        let mut claimed = Vec::with_capacity(chosen.len());
        let mut records = jobs::records(conn, chosen.iter().map(|candidate| &candidate.id)).await?;
        for Candidate { id, gate, tenant, .. } in &chosen {
            if self.allowed(gate, tenant, 1) == 0 {
                continue;
            }
            let Some(mut record) = records.remove(id) else { continue };
            let event = Event::Claim { worker: self.request.worker.clone(), lease: self.request.lease };
            let Ok(transition) = on(&record.job, &event, now) else { continue };
            effects.add(&record.job, &event, &transition, now)?;
            record.job = transition.job;
            if let Answer::Claimed(lease) = transition.answer {
                let starter = Starter::Job { id: *id, token: lease.token };
                self.desk.start(&record.job.spec.upstreams, starter, now);
                claimed.push(Claimed { record, lease, steps: BTreeMap::new() });
            }
        }
        self.begin_attempts(&mut effects, &claimed, turns);
        // What a lost attempt paid for in vain is known only now.
        for (id, cost) in effects.save(conn).await? {
            let of_job = claimed.iter_mut().map(|claimed| &mut claimed.record.job).filter(|job| job.id == id);
            of_job.for_each(|job| job.usage.wasted = job.usage.wasted.plus(cost));
        }
        Ok(claimed)
    }

    /// Notes the attempts of claimed jobs, and with the last one of each tenant its turn.
    fn begin_attempts(&self, effects: &mut Effects, claimed: &[Claimed], turns: &BTreeMap<Tenant, Turn>) {
        let mut seen = BTreeSet::new();
        for Claimed { record, .. } in claimed.iter().rev() {
            let tenant = &record.job.spec.tenant;
            let is_last = self.is_shared && seen.insert(tenant);
            let turn = turns.get(tenant).filter(|_| is_last).map(|turn| (self.asked, *turn));
            effects.begin(&record.job, self.request, turn, self.now);
        }
    }
}

/// A first claim has no steps to get back; only later ones ask for them.
async fn give_steps(conn: &mut Conn, claimed: &mut [Claimed]) -> StoreResult<()> {
    let again: Vec<JobId> = claimed
        .iter()
        .filter(|claimed| claimed.lease.token.0 > 1)
        .map(|claimed| claimed.record.job.id)
        .collect();
    let mut steps = jobs::step_outputs(conn, &again).await?;
    for claimed in claimed {
        claimed.steps = steps.remove(&claimed.record.job.id).unwrap_or_default();
    }
    Ok(())
}

/// Leaves one candidate of each lock key, and of those only what nobody else is claiming at this moment.
async fn one_of_each_lock_key(
    conn: &mut Conn,
    chosen: Vec<Candidate>,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let mut seen = BTreeSet::new();
    let mut left = Vec::with_capacity(chosen.len());
    for candidate in chosen {
        let is_free = match &candidate.lock_key {
            None => true,
            Some(key) => {
                let lock = (candidate.tenant.to_string(), key.clone());
                seen.insert(lock.clone()) && is_mine(conn, &candidate.id, &lock, now).await?
            }
        };
        if is_free {
            left.push(candidate);
        }
    }
    Ok(left)
}

/// Two claims of two jobs of one lock key lock different rows. On PostgreSQL, where they can overlap, they
/// meet at an advisory lock, and the second looks again at what the first has left.
async fn is_mine(
    conn: &mut Conn,
    id: &JobId,
    (tenant, key): &(String, String),
    now: Timestamp,
) -> StoreResult<bool> {
    if conn.dialect() == Dialect::Postgres {
        let text = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 7070))";
        let name: Value = format!("{tenant}\u{1f}{key}").into();
        let taken = conn.query(text, &[name]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
        if taken == 0 {
            return Ok(false);
        }
    }
    let text = "SELECT count(*) FROM jobs h WHERE h.tenant = $1 AND h.lock_key = $2 AND h.lock_until > $3 \
                AND h.id <> $4";
    let params: [Value; 4] =
        [tenant.as_str().into(), key.as_str().into(), now.as_millis().into(), id.to_string().into()];
    let held = conn.query(text, &params).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    Ok(held == 0)
}

/// Whether no other job holds this job's lock key, and none can take it before the transaction ends.
pub(crate) async fn has_lock_key(conn: &mut Conn, job: &Job, now: Timestamp) -> StoreResult<bool> {
    match &job.spec.lock_key {
        None => Ok(true),
        Some(key) => {
            let lock = (job.spec.tenant.to_string(), key.to_string());
            is_mine(conn, &job.id, &lock, now).await
        }
    }
}
