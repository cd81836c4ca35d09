//! What decisions about jobs leave behind, gathered and then written in one go: the jobs, attempts, steps, results,
//! ledger and audit.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Job, JobId, LeaseToken, Status};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::{AttemptEnd, Event, Transition, check_lease};
use coolant_core::money::{Money, Usage, UsageTotals};
use coolant_core::store::{AuditEntry, ClaimRequest, StoreResult};
use coolant_core::time::Timestamp;
use coolant_core::turns::{Kind as Asked, Turn};
use uuid::Uuid;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::codec::to_json;
use crate::sql::waiting::Line;
use crate::sql::{jobs, ledger, lines, operation};

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
    pub(crate) audit: Vec<AuditEntry>,
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
    pub(crate) fn carry(
        &mut self,
        event: &Event,
        transition: &Transition,
        now: Timestamp,
    ) -> StoreResult<()> {
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
    pub(crate) fn supersede(
        &mut self,
        id: JobId,
        event: &Event,
        saved: &mut Saved,
        transition: &mut Transition,
    ) {
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

/// Steps that are there: the attempt that saved each, and what its calls cost that are not wasted yet.
pub(crate) type Saved = BTreeMap<(JobId, String), (i64, Money)>;

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
