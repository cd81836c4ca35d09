//! Changes: read the jobs, let `lifecycle` decide, save what it decided, all in one transaction.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Job, JobId, LeaseToken, Status};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::{AttemptEnd, Event, Refusal, Transition, bars, check_lease, needs_lock, on};
use coolant_core::money::{Money, Usage, UsageTotals};
use coolant_core::store::{Applied, AuditEntry, ClaimRequest, JobChange, StoreResult};
use coolant_core::time::Timestamp;
use coolant_core::turns::{Kind as Asked, Turn};
use uuid::Uuid;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::codec::to_json;
use crate::sql::counters::Tally;
use crate::sql::stats::sum;
use crate::sql::upstreams::Dealings;
use crate::sql::waiting::Line;
use crate::sql::{claim, jobs, ledger, lines, operation, permits};

/// Rows that changes leave beside the jobs themselves.
#[derive(Default)]
pub(crate) struct Effects {
    changed: BTreeMap<JobId, (Job, i64)>,
    /// Lines of jobs that had ended and wait again.
    reopened: BTreeSet<Line>,
    begun: Vec<Vec<Value>>,
    ended: Vec<Vec<Value>>,
    used: BTreeMap<(JobId, i64), UsageTotals>,
    steps: BTreeMap<(JobId, String), Vec<Value>>,
    results: Vec<Vec<Value>>,
    ledger: Vec<Vec<Value>>,
    superseded: Vec<(JobId, String, i64)>,
    /// Attempts that ended without a result, of jobs that have paid.
    resultless: Vec<(JobId, i64)>,
    audit: Vec<AuditEntry>,
}

impl Effects {
    /// Takes over what was decided about a job.
    pub(crate) fn add(
        &mut self,
        before: &Job,
        event: &Event,
        transition: &Transition,
        now: Timestamp,
    ) -> StoreResult<()> {
        let (job, was) = (&transition.job, before.version);
        if job.usage != before.usage {
            let used = self.used.entry((job.id, transition.attempt(event))).or_default();
            *used = used.plus(&job.usage.less(&before.usage));
        }
        if let Some(end) = &transition.ended {
            if !end.keeps_calls() && job.usage.calls > 0 {
                self.resultless.push((job.id, end.number));
            }
            let AttemptEnd { number, outcome, error } = end;
            self.ended.push(vec![
                job.id.to_string().into(),
                (*number).into(),
                now.as_millis().into(),
                outcome.as_str().into(),
                error.as_ref().map(to_json).transpose()?.into(),
            ]);
        }
        if job.version != was {
            let first = self.changed.get(&job.id).map_or(was, |(_, first)| *first);
            self.changed.insert(job.id, (job.clone(), first));
        }
        if before.status().has_ended() && job.status() == Status::Pending {
            self.reopened.insert(Line::of(job));
        }
        Ok(())
    }

    /// An attempt that a claim began, and its tenant's turn among requests of that kind if it is to be kept.
    pub(crate) fn begin(
        &mut self,
        job: &Job,
        request: &ClaimRequest,
        turn: Option<(Asked, Turn)>,
        now: Timestamp,
    ) {
        self.begun.push(vec![
            job.id.to_string().into(),
            job.counters.claims.into(),
            request.worker.as_str().into(),
            now.as_millis().into(),
            request.process.map(|process| process.to_string()).into(),
            turn.map(|_| job.spec.tenant.as_str()).into(),
            turn.map(|(asked, _)| asked.number()).into(),
            turn.map(|(_, turn)| turn.number()).into(),
        ]);
    }

    fn book(&mut self, job: &Job, paid: Paid<'_>, now: Timestamp) -> StoreResult<()> {
        for usage in paid.calls {
            let entry = LedgerEntry {
                job_id: Some(job.id),
                job_type: Some(job.spec.job_type.clone()),
                attempt: paid.token.0,
                step: paid.step.map(str::to_owned),
                tenant: job.spec.tenant.clone(),
                at: now,
                wasted: usage.is_wasted(paid.kept),
                usage: usage.clone(),
            };
            self.ledger.push(ledger::row(Uuid::now_v7(), &job.spec.queue, &entry)?);
        }
        Ok(())
    }

    /// What an event carries besides its decision.
    fn carry(&mut self, event: &Event, transition: &Transition, now: Timestamp) -> StoreResult<()> {
        let job = &transition.job;
        let kept = transition.ended.as_ref().is_none_or(AttemptEnd::keeps_calls);
        match event {
            Event::SaveStep { token, name, output, usage } => {
                let output = to_json(output)?;
                self.book(job, Paid { token: *token, step: Some(name), calls: usage, kept: true }, now)?;
                let row = vec![
                    job.id.to_string().into(),
                    name.as_str().into(),
                    (output.len() as i64).into(),
                    output.into(),
                    now.as_millis().into(),
                    token.0.into(),
                ];
                self.steps.insert((job.id, name.clone()), row);
            }
            Event::Succeed { token, result, usage } => {
                self.book(job, Paid { token: *token, step: None, calls: usage, kept }, now)?;
                if job.status() == Status::Succeeded {
                    self.results.push(vec![job.id.to_string().into(), to_json(result)?.into()]);
                }
            }
            Event::Fail { token, usage, .. } | Event::Defer { token, usage, .. } => {
                self.book(job, Paid { token: *token, step: None, calls: usage, kept }, now)?;
            }
            Event::Pay { token, step, usage } => {
                let kept = check_lease(job, *token).is_ok();
                self.book(job, Paid { token: *token, step: step.as_deref(), calls: usage, kept }, now)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes a step as saved. If an earlier attempt had saved it, what that one paid was wasted.
    fn supersede(&mut self, id: JobId, event: &Event, saved: &mut Saved, transition: &mut Transition) {
        let Event::SaveStep { token, name, usage, .. } = event else { return };
        let cost = usage.iter().filter(|call| !call.is_wasted(true)).filter_map(|call| call.cost);
        let cost = cost.fold(Money::default(), Money::plus);
        if let Some((_, before)) = saved.insert((id, name.clone()), (token.0, cost)) {
            transition.job.usage.wasted = transition.job.usage.wasted.plus(before);
            self.superseded.push((id, name.clone(), token.0));
        }
    }

    /// Writes everything. Gives what attempts had paid for that ended without a result, and that no step of
    /// theirs keeps: it is added to the waste of their jobs.
    pub(crate) async fn save(mut self, conn: &mut Conn) -> StoreResult<Wasted> {
        ledger::waste(conn, std::mem::take(&mut self.superseded)).await?;
        ledger::insert(conn, std::mem::take(&mut self.ledger)).await?;
        save_steps(conn, std::mem::take(&mut self.steps)).await?;
        // Once the calls and the steps of this very group are there.
        let wasted = self.waste(conn).await?;
        let changed: Vec<_> = self.changed.into_values().collect();
        jobs::save(conn, &changed).await?;
        lines::note(conn, self.reopened).await?;
        conn.execute_rows(
            "INSERT INTO attempts (job_id, number, worker, began_at, process, turn_of, turn_among, turn) \
             SELECT id, number, worker, at, process, turn_of, turn_among, turn FROM {rows}",
            &[],
            BEGUN,
            self.begun,
        )
        .await?;
        conn.execute_rows(
            "UPDATE attempts SET ended_at = r.at, outcome = r.outcome, error = r.error {from_rows} \
             WHERE attempts.job_id = r.id AND attempts.number = r.number",
            &[],
            ENDED,
            self.ended,
        )
        .await?;
        save_usage(conn, self.used).await?;
        conn.execute_rows(
            "INSERT INTO job_results (job_id, result) SELECT id, result FROM {rows}",
            &[],
            RESULT,
            self.results,
        )
        .await?;
        operation::write_audit(conn, self.audit).await?;
        Ok(wasted)
    }

    async fn waste(&mut self, conn: &mut Conn) -> StoreResult<Wasted> {
        let mut wasted = Wasted::new();
        for (id, attempt, cost) in ledger::waste_unkept(conn, &self.resultless).await? {
            let used = self.used.entry((id, attempt)).or_default();
            used.wasted = used.wasted.plus(cost);
            if let Some((job, _)) = self.changed.get_mut(&id) {
                job.usage.wasted = job.usage.wasted.plus(cost);
            }
            let of_job = wasted.entry(id).or_default();
            *of_job = of_job.plus(cost);
        }
        Ok(wasted)
    }
}

/// Money by the job that it was wasted for.
pub(crate) type Wasted = BTreeMap<JobId, Money>;

async fn save_steps(conn: &mut Conn, steps: BTreeMap<(JobId, String), Vec<Value>>) -> StoreResult<()> {
    let text = "INSERT INTO steps (job_id, name, bytes, output, finished_at, attempt) \
                SELECT id, name, bytes, output, at, number FROM {rows} WHERE true \
                ON CONFLICT (job_id, name) DO UPDATE SET bytes = excluded.bytes, output = excluded.output, \
                finished_at = excluded.finished_at, attempt = excluded.attempt";
    conn.execute_rows(text, &[], STEP, steps.into_values().collect()).await?;
    Ok(())
}

const BEGUN: Columns<'_> = &[
    ("id", Kind::Text),
    ("number", Kind::Int),
    ("worker", Kind::Text),
    ("at", Kind::Int),
    ("process", Kind::Text),
    ("turn_of", Kind::Text),
    ("turn_among", Kind::Int),
    ("turn", Kind::Int),
];
const ENDED: Columns<'_> = &[
    ("id", Kind::Text),
    ("number", Kind::Int),
    ("at", Kind::Int),
    ("outcome", Kind::Text),
    ("error", Kind::Text),
];
const STEP: Columns<'_> = &[
    ("id", Kind::Text),
    ("name", Kind::Text),
    ("bytes", Kind::Int),
    ("output", Kind::Text),
    ("at", Kind::Int),
    ("number", Kind::Int),
];
const RESULT: Columns<'_> = &[("id", Kind::Text), ("result", Kind::Text)];
const USED: Columns<'_> = &[
    ("id", Kind::Text),
    ("number", Kind::Int),
    ("calls", Kind::Int),
    ("input", Kind::Int),
    ("output", Kind::Int),
    ("cost", Kind::Int),
    ("wasted", Kind::Int),
];
/// Paid calls of an event.
#[derive(Clone, Copy)]
struct Paid<'a> {
    token: LeaseToken,
    step: Option<&'a str>,
    calls: &'a [Usage],
    /// Whether the step or the result keeps what they gave.
    kept: bool,
}

async fn save_usage(conn: &mut Conn, used: BTreeMap<(JobId, i64), UsageTotals>) -> StoreResult<()> {
    let used = used
        .into_iter()
        .map(|((id, number), totals)| {
            vec![
                id.to_string().into(),
                number.into(),
                totals.calls.into(),
                totals.input_tokens.into(),
                totals.output_tokens.into(),
                totals.cost.as_nanos().into(),
                totals.wasted.as_nanos().into(),
            ]
        })
        .collect();
    // Sums stop at the largest number there is instead of failing the whole group.
    let added = |column: &str, more: &str| {
        format!(
            "{column} = CASE WHEN attempts.{column} > {max} - r.{more} THEN {max} \
             ELSE attempts.{column} + r.{more} END",
            max = i64::MAX
        )
    };
    let sums = [
        added("calls", "calls"),
        added("input_tokens", "input"),
        added("output_tokens", "output"),
        added("cost_nanos", "cost"),
        added("wasted_nanos", "wasted"),
    ]
    .join(", ");
    let text = format!(
        "UPDATE attempts SET {sums} {{from_rows}} WHERE attempts.job_id = r.id AND attempts.number = r.number"
    );
    conn.execute_rows(&text, &[], USED, used).await?;
    Ok(())
}

/// Makes changes and answers each in its place; changes of one job in the order given. What they have to tell
/// upstreams is left in the dealings.
pub(crate) async fn apply(
    conn: &mut Conn,
    changes: &[&JobChange],
    now: Timestamp,
    tally: &mut Tally,
    dealings: &mut Dealings,
) -> StoreResult<Vec<Result<Applied, Refusal>>> {
    let named = changes.iter().flat_map(|change| change.event.usage()).filter_map(|call| call.permit);
    let mut taken = permits::take(conn, &named.collect(), now).await?;
    let InHand { jobs: mut found, held } = take_in_hand(conn, changes).await?;
    let mut saved = steps_of_changes(conn, changes).await?;
    let mut effects = Effects::default();
    let mut answers = Vec::with_capacity(changes.len());
    let mut ends = BTreeMap::new();
    for JobChange { job_id, event, audit } in changes {
        let Some(job) = found.get(job_id) else {
            answers.push(Err(if held.contains(job_id) { Refusal::Busy } else { Refusal::NotFound }));
            continue;
        };
        let event = &*with_its_permits(event, &mut taken, dealings);
        let barred = is_barred(conn, job, event, &found, now).await?;
        let decision = if barred { Err(Refusal::LeaseLost) } else { on(job, event, now) };
        match decision {
            Ok(transition) if is_repeated_step(*job_id, event, &saved) => {
                answers.push(Ok(Applied { job: job.clone(), answer: transition.answer }));
                pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
            }
            Ok(mut transition) => {
                effects.supersede(*job_id, event, &mut saved, &mut transition);
                effects.add(job, event, &transition, now)?;
                if transition.ended.is_some() {
                    ends.insert(*job_id, answers.len());
                }
                if transition.job.version == job.version {
                    pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
                } else {
                    effects.carry(event, &transition, now)?;
                    effects.audit.extend(audit.clone().map(|audit| AuditEntry { at: now, ..audit }));
                    dealings.hear(&transition.job, event);
                    found.insert(*job_id, transition.job.clone());
                }
                answers.push(Ok(Applied { job: transition.job, answer: transition.answer }));
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::CoolingDown { .. }) {
                    tally.block(job);
                }
                answers.push(Err(refusal));
                pay_all_the_same(&mut effects, &mut found, *job_id, event, now)?;
            }
        }
    }
    tell_waste(&mut answers, &ends, &effects.save(conn).await?);
    Ok(answers)
}

/// The jobs that changes are about.
struct InHand {
    /// Locked until the transaction ends.
    jobs: BTreeMap<JobId, Job>,
    /// Those that others hold and that only beats want.
    held: BTreeSet<JobId>,
}

/// Locks jobs that are to be changed. Only beats wait for nobody: one job that somebody holds for long would
/// cost all the others of a worker their leases.
async fn take_in_hand(conn: &mut Conn, changes: &[&JobChange]) -> StoreResult<InHand> {
    let (beats, others): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| matches!(change.event, Event::Renew { .. }));
    let ids = |changes: Vec<&&JobChange>| changes.into_iter().map(|change| change.job_id).collect();
    let others: BTreeSet<JobId> = ids(others);
    let beats: BTreeSet<JobId> = &ids(beats) - &others;
    // What waits goes first: nobody may wait who holds what others wait for in the order of the ids.
    let mut jobs = jobs::load_locked(conn, &others).await?;
    jobs.extend(jobs::load_unheld(conn, &beats).await?);
    let missing: BTreeSet<JobId> = beats.into_iter().filter(|id| !jobs.contains_key(id)).collect();
    let held = jobs::load(conn, &missing).await?.into_keys().collect();
    Ok(InHand { jobs, held })
}

/// Adds what is known to be wasted only when all is written to the answers from those on by which attempts ended.
fn tell_waste(answers: &mut [Result<Applied, Refusal>], ends: &BTreeMap<JobId, usize>, wasted: &Wasted) {
    for (id, cost) in wasted {
        let since = ends.get(id).copied().unwrap_or(answers.len());
        let of_job = answers[since..].iter_mut().flatten().filter(|applied| applied.job.id == *id);
        of_job.for_each(|applied| applied.job.usage.wasted = applied.job.usage.wasted.plus(*cost));
    }
}

/// The event with those of its calls that are still to be booked.
fn with_its_permits<'e>(
    event: &'e Event,
    taken: &mut permits::Taken,
    dealings: &mut Dealings,
) -> Cow<'e, Event> {
    if event.usage().iter().all(|call| call.permit.is_none()) {
        return Cow::Borrowed(event);
    }
    let mut event = event.clone();
    permits::settle_with(&mut event, taken, dealings);
    Cow::Owned(event)
}

/// A change that is not made may carry calls whose permits were settled by it just now.
fn pay_all_the_same(
    effects: &mut Effects,
    found: &mut BTreeMap<JobId, Job>,
    id: JobId,
    event: &Event,
    now: Timestamp,
) -> StoreResult<()> {
    let Some((token, step, usage)) = event.paid_under_permits() else { return Ok(()) };
    let Some(job) = found.get(&id) else { return Ok(()) };
    let pay = Event::Pay { token, step, usage };
    if let Ok(transition) = on(job, &pay, now) {
        effects.add(job, &pay, &transition, now)?;
        effects.carry(&pay, &transition, now)?;
        found.insert(id, transition.job);
    }
    Ok(())
}

/// Whether another job has taken the lock key that an event needs: one of those in hand, which the database
/// does not know as they are now, or any other.
async fn is_barred(
    conn: &mut Conn,
    job: &Job,
    event: &Event,
    in_hand: &BTreeMap<JobId, Job>,
    now: Timestamp,
) -> StoreResult<bool> {
    if !needs_lock(job, event, now) {
        return Ok(false);
    }
    let by_one_in_hand = in_hand.values().any(|other| bars(other, job, event, now).is_some());
    Ok(by_one_in_hand || !claim::has_lock_key(conn, job, now).await?)
}

/// Steps that are there: the attempt that saved each, and what its calls cost that are not wasted yet.
type Saved = BTreeMap<(JobId, String), (i64, Money)>;

/// A worker that repeats a step whose answer it missed has paid once: the second report changes nothing.
fn is_repeated_step(id: JobId, event: &Event, saved: &Saved) -> bool {
    matches!(event, Event::SaveStep { token, name, .. }
        if saved.get(&(id, name.clone())).is_some_and(|(attempt, _)| *attempt == token.0))
}

/// Steps that these changes would save and that are there already.
async fn steps_of_changes(conn: &mut Conn, changes: &[&JobChange]) -> StoreResult<Saved> {
    let rows: Vec<Vec<Value>> = changes
        .iter()
        .filter_map(|change| match &change.event {
            Event::SaveStep { name, .. } => {
                Some(vec![change.job_id.to_string().into(), name.as_str().into()])
            }
            _ => None,
        })
        .collect();
    let columns = &[("id", Kind::Text), ("name", Kind::Text)];
    let text = format!(
        "SELECT t.job_id, t.name, t.attempt, (SELECT {} FROM ledger l WHERE l.job_id = t.job_id \
         AND l.step = t.name AND l.wasted = 0) FROM {{rows}} JOIN steps t ON t.job_id = r.id AND t.name = r.name",
        sum("l.cost_nanos")
    );
    let rows = conn.query_rows(&text, &[], columns, rows).await?;
    rows.into_iter()
        .map(|mut row| {
            let step = (crate::sql::codec::job_id(&row.text()?)?, row.text()?);
            Ok((step, (row.int()?, Money::from_nanos(row.int()?))))
        })
        .collect()
}

/// Ends what time has ended; gives how many jobs that were. What others hold is for another sweep.
pub(crate) async fn sweep(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<u32> {
    let text = "SELECT id FROM jobs WHERE gives_up_at <= $1 ORDER BY gives_up_at LIMIT $2 {skip}";
    let rows = conn.query(text, &[now.as_millis().into(), i64::from(limit).into()]).await?;
    let ids: StoreResult<BTreeSet<JobId>> =
        rows.into_iter().map(|mut row| crate::sql::codec::job_id(&row.text()?)).collect();
    let mut effects = Effects::default();
    let mut ended = 0;
    for (_, job) in jobs::load_locked(conn, &ids?).await? {
        if let Ok(transition) = on(&job, &Event::Sweep, now)
            && transition.job.version != job.version
        {
            effects.add(&job, &Event::Sweep, &transition, now)?;
            ended += 1;
        }
    }
    effects.save(conn).await?;
    Ok(ended)
}
