//! Permits: given, settled, and found to have lapsed.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Job, JobId, LeaseToken};
use coolant_core::ledger::LooseCall;
use coolant_core::lifecycle::{Event, Refusal, paying_lease};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::{Counter, JobChange, StoreError, StoreResult};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Denial, Denied, Desk, NoPermit, PERMIT_LIFE, Permit, PermitId, PermitRequest, PermitSettlement,
    SettledPermit, Spending, Verdict,
};

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::name;
use crate::sql::counters::Tally;
use crate::sql::jobs;
use crate::sql::upstreams::{Dealings, HOLDS, Needs};

const ID: Columns<'_> = &[("id", Kind::Text)];

/// How long a permit is kept after it was given: a settle that comes later finds none.
const KEPT_MS: i64 = 2 * 86_400_000;
/// After that long a permit is looked at whether it still holds.
const LAPSES_MS: i64 = 120_000;

pub(crate) fn permit_id(text: &str) -> StoreResult<PermitId> {
    text.parse().map_err(|_| StoreError::Broken(format!("`{text}` is no permit's id")))
}

const COLUMNS: &str = "id, upstream, tenant, job_id, token, step, tokens, cost_nanos";

fn spending(row: &mut Row) -> StoreResult<Spending> {
    let id = permit_id(&row.text()?)?;
    let upstream = name(Upstream::parse(row.text()?))?;
    let tenant = name(Tenant::parse(row.text()?))?;
    let job = row.maybe_text()?.map(|id| crate::sql::codec::job_id(&id)).transpose()?;
    let token = row.maybe_int()?.map(LeaseToken);
    Ok(Spending {
        id,
        upstream,
        tenant,
        job: job.zip(token),
        step: row.maybe_text()?,
        tokens: u64::try_from(row.int()?).unwrap_or_default(),
        cost: Money::from_nanos(row.int()?),
    })
}

/// What a permit was given for.
pub(crate) async fn read(conn: &mut Conn, id: PermitId) -> StoreResult<Option<Spending>> {
    let text = format!("SELECT {COLUMNS} FROM permits WHERE id = $1");
    conn.query(&text, &[id.to_string().into()]).await?.pop().map(|mut row| spending(&mut row)).transpose()
}

/// Permits that are settled by this transaction.
#[derive(Default)]
pub(crate) struct Taken {
    /// Settled now; whoever books one takes it out.
    pub(crate) fresh: BTreeMap<PermitId, Spending>,
    /// There, but settled before.
    pub(crate) repeated: BTreeSet<PermitId>,
}

/// Marks permits as settled, each once.
pub(crate) async fn take(conn: &mut Conn, ids: &BTreeSet<PermitId>, now: Timestamp) -> StoreResult<Taken> {
    let rows = |ids: &mut dyn Iterator<Item = &PermitId>| -> Vec<Vec<Value>> {
        ids.map(|id| vec![id.to_string().into()]).collect()
    };
    let mut taken = Taken::default();
    if ids.is_empty() {
        return Ok(taken);
    }
    // Locked in one order first: an update by itself locks as it comes.
    let text = "SELECT p.id FROM {rows} JOIN permits p ON p.id = r.id ORDER BY p.id {lock_permits}";
    let found = conn.query_rows(text, &[], ID, rows(&mut ids.iter())).await?;
    let text = format!(
        "UPDATE permits SET settled_at = $1 {{from_rows}} WHERE permits.id = r.id \
         AND permits.settled_at IS NULL RETURNING {}",
        COLUMNS.split(", ").map(|column| format!("permits.{column}")).collect::<Vec<_>>().join(", ")
    );
    for mut row in conn.query_rows(&text, &[now.as_millis().into()], ID, rows(&mut ids.iter())).await? {
        let call = spending(&mut row)?;
        taken.fresh.insert(call.id, call);
    }
    for mut row in found {
        let id = permit_id(&row.text()?)?;
        if !taken.fresh.contains_key(&id) {
            taken.repeated.insert(id);
        }
    }
    Ok(taken)
}

/// Settles the permits that an event's calls name, and leaves of the calls what is still to be booked.
pub(crate) fn settle_with(event: &mut Event, taken: &mut Taken, dealings: &mut Dealings) {
    let Some(calls) = event.usage_mut() else { return };
    calls.retain_mut(|call| {
        let Some(id) = call.permit else { return true };
        if let Some(spending) = taken.fresh.remove(&id) {
            taken.repeated.insert(id);
            let verdict = Verdict::Ok { room: call.room.clone() };
            dealings.settled.push((spending, PermitSettlement { id, verdict, usage: call.clone() }));
            return true;
        }
        if taken.repeated.contains(&id) {
            return false;
        }
        call.permit = None;
        true
    });
}

/// What settlements come to: an answer or a place in the dealings for each, and what is to be booked.
pub(crate) struct Settling {
    answers: Vec<Option<Option<SettledPermit>>>,
    /// To be applied to jobs.
    pub(crate) payments: Vec<JobChange>,
    /// Calls that belong to no job, for the ledger.
    pub(crate) loose: Vec<LooseCall>,
}

impl Settling {
    /// The answers, with those that the desk gave to the calls that were settled now.
    pub(crate) fn answers(
        self,
        told: &mut impl Iterator<Item = SettledPermit>,
    ) -> Vec<Option<SettledPermit>> {
        self.answers.into_iter().map(|answer| answer.unwrap_or_else(|| told.next())).collect()
    }
}

/// Marks the permits of settlements and says what is to be booked for them.
pub(crate) async fn settle(
    conn: &mut Conn,
    settlements: &[&PermitSettlement],
    now: Timestamp,
    dealings: &mut Dealings,
) -> StoreResult<Settling> {
    let ids = settlements.iter().map(|settlement| settlement.id).collect();
    let mut taken = take(conn, &ids, now).await?;
    let mut settling = Settling { answers: Vec::new(), payments: Vec::new(), loose: Vec::new() };
    for settlement in settlements {
        let Some(call) = taken.fresh.remove(&settlement.id) else {
            let repeated = SettledPermit { class: settlement.class(), closed: None, repeated: true };
            settling.answers.push(Some(taken.repeated.contains(&settlement.id).then_some(repeated)));
            continue;
        };
        taken.repeated.insert(settlement.id);
        settling.answers.push(None);
        if settlement.is_paid() {
            let usage =
                Usage { upstream: Some(call.upstream.to_string()), ..settlement.usage.clone().booked() };
            match call.job {
                Some((id, token)) => {
                    let event = Event::Pay { token, step: call.step.clone(), usage: vec![usage] };
                    settling.payments.push(JobChange::new(id, event));
                }
                None => settling.loose.push(call.loose(usage)),
            }
        }
        dealings.settled.push((call, (*settlement).clone()));
    }
    Ok(settling)
}

/// Requests for permits, with what has to be known about them before anything is locked.
pub(crate) struct Asking<'r> {
    requests: Vec<&'r PermitRequest>,
    jobs: BTreeMap<JobId, Job>,
    /// Permits that were given under the same id before.
    given: BTreeMap<PermitId, Timestamp>,
    /// Calls in flight of jobs that may make only so many.
    out: BTreeMap<JobId, i64>,
}

impl<'r> Asking<'r> {
    pub(crate) async fn read(conn: &mut Conn, requests: Vec<&'r PermitRequest>) -> StoreResult<Self> {
        let ids: BTreeSet<JobId> = requests.iter().filter_map(|request| Some(request.job?.0)).collect();
        let jobs = jobs::load(conn, &ids).await?;
        let rows = requests.iter().map(|request| vec![request.id.to_string().into()]).collect();
        let text = "SELECT p.id, p.expires_at FROM {rows} JOIN permits p ON p.id = r.id";
        let mut given = BTreeMap::new();
        for mut row in conn.query_rows(text, &[], ID, rows).await? {
            given.insert(permit_id(&row.text()?)?, Timestamp::from_millis(row.int()?));
        }
        Ok(Self { requests, jobs, given, out: BTreeMap::new() })
    }

    /// How many calls jobs have made that may make only so many: asked under the locks, and what is in flight
    /// first, so that a call that is settled meanwhile is counted twice rather than not at all.
    async fn count_calls(&mut self, conn: &mut Conn, now: Timestamp) -> StoreResult<()> {
        let limited = self.jobs.values().filter(|job| job.spec.policy.max_paid_calls.is_some());
        let ids: BTreeSet<JobId> = limited.map(|job| job.id).collect();
        let rows = ids.iter().map(|id| vec![id.to_string().into()]).collect();
        let text = format!(
            "SELECT p.job_id, count(*) FROM {{rows}} JOIN permits p ON p.job_id = r.id \
             JOIN jobs j ON j.id = p.job_id WHERE {HOLDS} GROUP BY p.job_id"
        );
        for mut row in conn.query_rows(&text, &[now.as_millis().into()], ID, rows).await? {
            self.out.insert(crate::sql::codec::job_id(&row.text()?)?, row.int()?);
        }
        self.jobs.extend(jobs::load(conn, &ids).await?);
        Ok(())
    }

    /// What is locked for them.
    pub(crate) fn need(&self, needs: &mut Needs) {
        for request in &self.requests {
            needs.upstreams.insert(request.upstream.clone());
            let job = request.job.and_then(|(id, _)| self.jobs.get(&id));
            needs.tenants.insert(job.map_or(&request.tenant, |job| &job.spec.tenant).clone());
        }
    }

    /// Decides, and keeps the permits that are given.
    pub(crate) async fn answer(
        mut self,
        conn: &mut Conn,
        desk: &mut Desk,
        now: Timestamp,
        tally: &mut Tally,
    ) -> StoreResult<Vec<Result<Permit, NoPermit>>> {
        self.count_calls(conn, now).await?;
        let mut rows = Vec::new();
        let mut answers = Vec::with_capacity(self.requests.len());
        for request in std::mem::take(&mut self.requests) {
            let answer = self.decide(request, desk, now);
            if matches!(&answer, Err(NoPermit::Denied(denied)) if denied.denial == Denial::UpstreamClosed) {
                let job = request.job.and_then(|(id, _)| self.jobs.get(&id));
                let queue = job.map(|job| job.spec.queue.clone()).unwrap_or_default();
                tally.add(Counter::BlockedStarts, &queue, 1);
            }
            answers.push(answer.map(|(permit, given)| {
                if let Some(call) = given {
                    self.given.insert(call.id, permit.expires_at);
                    if let Some((id, _)) = call.job {
                        *self.out.entry(id).or_default() += 1;
                    }
                    rows.push(row(&call, &permit, now));
                }
                permit
            }));
        }
        let text = format!(
            "INSERT INTO permits ({COLUMNS}, acquired_at, expires_at) \
             SELECT {COLUMNS}, at, until FROM {{rows}}"
        );
        conn.execute_rows(&text, &[], PERMIT, rows).await?;
        Ok(answers)
    }

    /// A permit, and what it spends if it is a new one.
    fn decide(
        &self,
        request: &PermitRequest,
        desk: &mut Desk,
        now: Timestamp,
    ) -> Result<(Permit, Option<Spending>), NoPermit> {
        if let Some(until) = self.given.get(&request.id) {
            return Ok((Permit { id: request.id, expires_at: *until }, None));
        }
        let mut call = Spending::of(request);
        let (mut expires_at, mut claimed_at) = (now.plus(PERMIT_LIFE), None);
        if let Some((id, token)) = request.job {
            let job = self.jobs.get(&id).ok_or(NoPermit::Refused(Refusal::NotFound))?;
            let lease = paying_lease(job, token).map_err(NoPermit::Refused)?;
            call.tenant = job.spec.tenant.clone();
            expires_at = lease.until;
            claimed_at = job.spec.upstreams.contains(&request.upstream).then_some(lease.started_at);
            let calls = job.usage.calls.saturating_add(self.out.get(&id).copied().unwrap_or(0));
            if let Some(denied) = Denied::paid_call_limit(job, calls) {
                return Err(NoPermit::Denied(denied));
            }
        }
        desk.acquire(&call, claimed_at, now).map_err(NoPermit::Denied)?;
        Ok((Permit { id: call.id, expires_at }, Some(call)))
    }
}

const PERMIT: Columns<'_> = &[
    ("id", Kind::Text),
    ("upstream", Kind::Text),
    ("tenant", Kind::Text),
    ("job_id", Kind::Text),
    ("token", Kind::Int),
    ("step", Kind::Text),
    ("tokens", Kind::Int),
    ("cost_nanos", Kind::Int),
    ("at", Kind::Int),
    ("until", Kind::Int),
];

fn row(call: &Spending, permit: &Permit, now: Timestamp) -> Vec<Value> {
    vec![
        call.id.to_string().into(),
        call.upstream.as_str().into(),
        call.tenant.as_str().into(),
        call.job.map(|(id, _)| id.to_string()).into(),
        call.job.map(|(_, token)| token.0).into(),
        call.step.as_deref().into(),
        i64::try_from(call.tokens).unwrap_or(i64::MAX).into(),
        call.cost.as_nanos().into(),
        now.as_millis().into(),
        permit.expires_at.as_millis().into(),
    ]
}

/// Marks permits whose attempt has ended, and forgets old ones: this many of each at most.
pub(crate) async fn sweep(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<()> {
    let text = format!(
        "UPDATE permits SET lapsed_at = $1 WHERE id IN (SELECT p.id FROM permits p \
         LEFT JOIN jobs j ON j.id = p.job_id WHERE p.acquired_at <= $2 AND p.settled_at IS NULL \
         AND p.lapsed_at IS NULL AND NOT ({HOLDS}) LIMIT $3)"
    );
    let limit = Value::from(i64::from(limit));
    let now = now.as_millis();
    conn.execute(&text, &[now.into(), (now - LAPSES_MS).into(), limit.clone()]).await?;
    let text = "DELETE FROM permits WHERE id IN (SELECT id FROM permits WHERE acquired_at <= $1 LIMIT $2)";
    conn.execute(text, &[(now - KEPT_MS).into(), limit]).await?;
    Ok(())
}
