//! The ledger: rows of paid calls, pages and sums of them.

use coolant_core::failure::FailureClass;
use coolant_core::job::JobId;
use coolant_core::ledger::{
    LedgerBy, LedgerEntry, LedgerFilter, LedgerPage, LedgerRow, LedgerSum, LooseCall, in_order,
};
use coolant_core::money::{Money, Usage};
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::{DAY_MS, Timestamp, date_of};
use coolant_core::upstream::Room;
use uuid::Uuid;

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::{from_maybe_json, job_id, name, to_json};
use crate::sql::stats::sum;

/// Columns of a new row, in the order of [`row`].
const COLUMNS: Columns<'_> = &[
    ("id", Kind::Text),
    ("job_id", Kind::Text),
    ("job_type", Kind::Text),
    ("attempt", Kind::Int),
    ("step", Kind::Text),
    ("tenant", Kind::Text),
    ("queue", Kind::Text),
    ("at", Kind::Int),
    ("wasted", Kind::Int),
    ("upstream", Kind::Text),
    ("provider", Kind::Text),
    ("asked_model", Kind::Text),
    ("model", Kind::Text),
    ("input_tokens", Kind::Int),
    ("cached_tokens", Kind::Int),
    ("cache_write_tokens", Kind::Int),
    ("output_tokens", Kind::Int),
    ("reasoning_tokens", Kind::Int),
    ("cost_nanos", Kind::Int),
    ("price", Kind::Text),
    ("estimated", Kind::Int),
    ("failed", Kind::Text),
    ("credential", Kind::Text),
    ("reported", Kind::Text),
];

/// A row as it is written. `queue` is whose statistics it counts in.
pub(crate) fn row(id: Uuid, queue: &Queue, entry: &LedgerEntry) -> StoreResult<Vec<Value>> {
    let usage = &entry.usage;
    Ok(vec![
        id.to_string().into(),
        entry.job_id.map_or_else(String::new, |id| id.to_string()).into(),
        entry.job_type.as_ref().map(JobType::as_str).into(),
        entry.attempt.into(),
        entry.step.as_deref().into(),
        entry.tenant.as_str().into(),
        queue.as_str().into(),
        entry.at.as_millis().into(),
        i64::from(entry.wasted).into(),
        usage.upstream.as_deref().into(),
        usage.provider.as_deref().into(),
        usage.asked_model.as_deref().into(),
        usage.model.as_deref().into(),
        usage.input_tokens.into(),
        usage.cached_tokens.into(),
        usage.cache_write_tokens.into(),
        usage.output_tokens.into(),
        usage.reasoning_tokens.into(),
        usage.cost.map(Money::as_nanos).into(),
        usage.price.as_deref().into(),
        i64::from(usage.estimated).into(),
        usage.failed.map(FailureClass::as_str).into(),
        usage.credential.as_deref().into(),
        usage.reported.as_ref().map(to_json).transpose()?.into(),
    ])
}

/// Adds rows; one whose id is there already is left as it is.
pub(crate) async fn insert(conn: &mut Conn, rows: Vec<Vec<Value>>) -> StoreResult<()> {
    let names: Vec<_> = COLUMNS.iter().map(|(column, _)| *column).collect();
    let names = names.join(", ");
    let text = format!(
        "INSERT INTO ledger ({names}) SELECT {names} FROM {{rows}} WHERE true ON CONFLICT DO NOTHING"
    );
    conn.execute_rows(&text, &[], COLUMNS, rows).await?;
    Ok(())
}

/// Books calls of no job.
pub(crate) async fn book(conn: &mut Conn, calls: &[LooseCall], now: Timestamp) -> StoreResult<()> {
    let rows = calls.iter().map(|call| {
        let entry = LedgerEntry {
            job_id: None,
            job_type: Some(call.job_type.clone()),
            attempt: 0,
            step: None,
            tenant: call.tenant.clone(),
            at: now,
            wasted: call.usage.is_wasted(true),
            usage: call.usage.clone(),
        };
        row(call.id, &call.queue, &entry)
    });
    insert(conn, rows.collect::<StoreResult<_>>()?).await
}

/// Marks the calls of steps that a later attempt paid for again: (job, step, that attempt).
pub(crate) async fn waste(conn: &mut Conn, steps: Vec<(JobId, String, i64)>) -> StoreResult<()> {
    let columns = &[("job_id", Kind::Text), ("step", Kind::Text), ("attempt", Kind::Int)];
    let rows =
        steps.into_iter().map(|(id, step, attempt)| vec![id.to_string().into(), step.into(), attempt.into()]);
    let text = "UPDATE ledger SET wasted = 1 {from_rows} WHERE ledger.job_id = r.job_id \
                AND ledger.step = r.step AND ledger.attempt < r.attempt";
    conn.execute_rows(text, &[], columns, rows.collect()).await?;
    Ok(())
}

/// Marks the calls of attempts, each (job, attempt), that no step which the attempt saved keeps. A call that names
/// no step counts as one of whichever it saved. Gives what each of them cost.
pub(crate) async fn waste_unkept(
    conn: &mut Conn,
    attempts: &[(JobId, i64)],
) -> StoreResult<Vec<(JobId, i64, Money)>> {
    let columns = &[("job_id", Kind::Text), ("attempt", Kind::Int)];
    let rows = attempts.iter().map(|(id, attempt)| vec![id.to_string().into(), (*attempt).into()]);
    let text = "UPDATE ledger SET wasted = 1 {from_rows} WHERE ledger.job_id = r.job_id \
                AND ledger.attempt = r.attempt AND ledger.wasted = 0 AND NOT EXISTS (SELECT 1 FROM steps t \
                WHERE t.job_id = ledger.job_id AND t.attempt = ledger.attempt \
                AND (ledger.step IS NULL OR t.name = ledger.step)) \
                RETURNING ledger.job_id, ledger.attempt, ledger.cost_nanos";
    let marked = conn.query_rows(text, &[], columns, rows.collect()).await?;
    marked
        .into_iter()
        .map(|mut row| {
            let (id, attempt) = (job_id(&row.text()?)?, row.int()?);
            Ok((id, attempt, Money::from_nanos(row.maybe_int()?.unwrap_or_default())))
        })
        .collect()
}

/// What [`entry`] reads; the type of a row of before comes from its job.
const READ: &str = "l.id, l.job_id, coalesce(l.job_type, (SELECT j.job_type FROM jobs j WHERE j.id = l.job_id)), \
    l.attempt, l.step, l.tenant, l.at, l.wasted, l.upstream, l.provider, l.asked_model, l.model, \
    l.input_tokens, l.cached_tokens, l.cache_write_tokens, l.output_tokens, l.reasoning_tokens, l.cost_nanos, \
    l.price, l.estimated, l.failed, l.credential, l.reported";

fn entry(row: &mut Row) -> StoreResult<LedgerRow> {
    let id = row.text()?;
    let id = Uuid::parse_str(&id).map_err(|_| StoreError::Broken(format!("a ledger row is named `{id}`")))?;
    let of_job = row.text()?;
    let entry = LedgerEntry {
        job_id: if of_job.is_empty() { None } else { Some(job_id(&of_job)?) },
        job_type: row.maybe_text()?.map(|text| name(JobType::parse(text))).transpose()?,
        attempt: row.int()?,
        step: row.maybe_text()?,
        tenant: name(Tenant::parse(row.text()?))?,
        at: Timestamp::from_millis(row.int()?),
        wasted: row.int()? != 0,
        usage: Usage {
            upstream: row.maybe_text()?,
            provider: row.maybe_text()?,
            asked_model: row.maybe_text()?,
            model: row.maybe_text()?,
            input_tokens: row.int()?,
            cached_tokens: row.int()?,
            cache_write_tokens: row.int()?,
            output_tokens: row.int()?,
            reasoning_tokens: row.int()?,
            cost: row.maybe_int()?.map(Money::from_nanos),
            price: row.maybe_text()?,
            estimated: row.int()? != 0,
            failed: row.maybe_text()?.map(|text| class(&text)).transpose()?,
            credential: row.maybe_text()?,
            reported: from_maybe_json(row.maybe_text()?)?,
            permit: None,
            room: Room::default(),
        },
    };
    Ok(LedgerRow { id, entry })
}

fn class(text: &str) -> StoreResult<FailureClass> {
    FailureClass::parse(text).ok_or_else(|| StoreError::Broken(format!("`{text}` is no class of failures")))
}

/// The paid calls of a job, oldest first.
pub(crate) async fn of_job(conn: &mut Conn, id: JobId) -> StoreResult<Vec<LedgerEntry>> {
    let text = format!("SELECT {READ} FROM ledger l WHERE l.job_id = $1 ORDER BY l.at, l.id");
    let rows = conn.query(&text, &[id.to_string().into()]).await?;
    rows.into_iter().map(|mut row| entry(&mut row).map(|row| row.entry)).collect()
}

/// A filter in SQL.
struct Conditions {
    texts: Vec<String>,
    params: Vec<Value>,
}

impl Conditions {
    fn of(filter: &LedgerFilter) -> Self {
        let mut conditions = Self { texts: Vec::new(), params: Vec::new() };
        if let Some(id) = filter.job_id {
            conditions.and("l.job_id = {}", id.to_string());
        }
        if let Some(upstream) = &filter.upstream {
            conditions.and("l.upstream = {}", upstream.as_str());
        }
        if let Some(tenant) = &filter.tenant {
            conditions.and("l.tenant = {}", tenant.as_str());
        }
        if let Some(day) = filter.day {
            conditions.and("l.at >= {}", Timestamp::start_of_day(day).as_millis());
            conditions.and("l.at < {}", Timestamp::start_of_day(day.saturating_add(1)).as_millis());
        }
        conditions
    }

    /// A condition with a hole for its parameter.
    fn and(&mut self, text: &str, param: impl Into<Value>) {
        self.params.push(param.into());
        self.texts.push(text.replace("{}", &format!("${}", self.params.len())));
    }

    fn text(&self) -> String {
        if self.texts.is_empty() { "true".to_owned() } else { self.texts.join(" AND ") }
    }
}

/// A page of the ledger, newest first.
pub(crate) async fn page(
    conn: &mut Conn,
    filter: &LedgerFilter,
    page: LedgerPage,
) -> StoreResult<Vec<LedgerRow>> {
    let (text, params) = page_question(filter, page);
    let rows = conn.query(&text, &params).await?;
    rows.into_iter().map(|mut row| entry(&mut row)).collect()
}

fn page_question(filter: &LedgerFilter, page: LedgerPage) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    if let Some((at, id)) = page.before {
        // A condition on the time alone first: it is what the index finds.
        conditions.and("l.at <= {}", at.as_millis());
        let last = conditions.params.len();
        conditions.and(&format!("(l.at < ${last} OR l.id < {{}})"), id.to_string());
    }
    conditions.params.push(i64::from(page.limit).into());
    let text = format!(
        "SELECT {READ} FROM ledger l WHERE {} ORDER BY l.at DESC, l.id DESC LIMIT ${}",
        conditions.text(),
        conditions.params.len()
    );
    (text, conditions.params)
}

/// The entries added up.
pub(crate) async fn sums(
    conn: &mut Conn,
    by: LedgerBy,
    filter: &LedgerFilter,
) -> StoreResult<Vec<LedgerSum>> {
    let key = match by {
        LedgerBy::Upstream => "l.upstream".to_owned(),
        LedgerBy::Tenant => "l.tenant".to_owned(),
        LedgerBy::JobType => "coalesce(l.job_type, j.job_type)".to_owned(),
        // Whole days since 1970; the ledger has no rows of before.
        LedgerBy::Day => format!("CAST(l.at / {DAY_MS} AS TEXT)"),
    };
    let jobs = if by == LedgerBy::JobType { "LEFT JOIN jobs j ON j.id = l.job_id" } else { "" };
    let conditions = Conditions::of(filter);
    let text = format!(
        "SELECT {key}, count(*), count(l.failed), count(*) - count(l.cost_nanos), \
         CAST(sum(l.estimated) AS BIGINT), {}, {}, {}, {}, {} FROM ledger l {jobs} WHERE {} GROUP BY 1",
        sum("l.input_tokens"),
        sum("l.cached_tokens"),
        sum("l.output_tokens"),
        sum("l.cost_nanos"),
        sum("CASE WHEN l.wasted <> 0 THEN l.cost_nanos END"),
        conditions.text()
    );
    let rows = conn.query(&text, &conditions.params).await?;
    let sums = rows.into_iter().map(|mut row| {
        let key = row.maybe_text()?;
        Ok(LedgerSum {
            key: if by == LedgerBy::Day { key.map(|day| date(&day)).transpose()? } else { key },
            calls: row.int()?,
            failed_calls: row.int()?,
            unpriced_calls: row.int()?,
            estimated_calls: row.int()?,
            input_tokens: row.int()?,
            cached_tokens: row.int()?,
            output_tokens: row.int()?,
            cost: Money::from_nanos(row.int()?),
            wasted: Money::from_nanos(row.int()?),
        })
    });
    Ok(in_order(by, sums.collect::<StoreResult<_>>()?))
}

fn date(day: &str) -> StoreResult<String> {
    day.parse().map(date_of).map_err(|_| StoreError::Broken(format!("`{day}` is no day")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::plan;

    #[test]
    fn sqlite_reads_a_page_by_the_index_of_what_is_asked_for() {
        let all = LedgerFilter::default;
        let tenant = Some(Tenant::default());
        let filters = [
            (all(), "ledger_by_time"),
            (LedgerFilter { upstream: Some("u".into()), ..all() }, "ledger_by_upstream (upstream=?)"),
            (LedgerFilter { tenant, ..all() }, "ledger_by_tenant (tenant=?)"),
        ];
        for (filter, index) in filters {
            let (text, params) = page_question(&filter, LedgerPage { limit: 10, before: None });
            let plan = plan::of(&text, params.len(), &[]);
            assert!(plan.contains(index), "{filter:?}: {plan}");
        }
    }
}
