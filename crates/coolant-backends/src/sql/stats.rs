//! Listings and metrics: what people ask of the store as a whole.

use std::collections::BTreeMap;
use std::time::Duration;

use coolant_core::job::{JobId, JobRecord, Status};
use coolant_core::money::Money;
use coolant_core::names::Queue;
use coolant_core::store::{Counter, DlqGroup, JobFilter, Page, Saved, Stats, StoreResult};
use coolant_core::time::{Timestamp, millis_up};
use coolant_core::view::{Phase, without_particulars};

use crate::conn::{Conn, Dialect, Value};
use crate::sql::blocked::Closed;
use crate::sql::codec::{from_maybe_json, job_id};
use crate::sql::{counters, jobs};

/// Conditions of a listing, with their parameters.
struct Conditions {
    text: String,
    params: Vec<Value>,
}

impl Conditions {
    /// Adds a condition whose parameter is written `{}`.
    fn and(&mut self, condition: &str, param: impl Into<Value>) {
        self.params.push(param.into());
        let number = format!("${}", self.params.len());
        self.text.push_str(" AND ");
        self.text.push_str(&condition.replace("{}", &number));
    }

    /// What a filter asks for. A phase may depend on what is closed, which is read first.
    async fn of(conn: &mut Conn, filter: &JobFilter, now: Timestamp) -> StoreResult<Self> {
        let closed = match filter.phase {
            Some(Phase::Waiting | Phase::Blocked) => Closed::read(conn, now).await?,
            _ => Closed::default(),
        };
        Ok(Self::given(&closed, filter, now, conn.dialect()))
    }

    fn given(closed: &Closed, filter: &JobFilter, now: Timestamp, dialect: Dialect) -> Self {
        let mut all = Self { text: "true".into(), params: Vec::new() };
        let JobFilter {
            status,
            phase,
            job_type,
            queue,
            tenant,
            tag,
            error_code,
            idempotency_key,
            created_after,
            created_before,
        } = filter;
        if let Some(status) = status {
            // Written out, not a parameter: only so does a partial index of that status count.
            all.text.push_str(&format!(" AND j.status = '{}'", status.as_str()));
        }
        if let Some(phase) = phase {
            all.and_phase(*phase, closed, now);
        }
        let equal = [
            ("j.job_type", job_type),
            ("j.queue", queue),
            ("s.tenant", tenant),
            ("j.error_code", error_code),
            ("s.idempotency_key", idempotency_key),
        ];
        for (column, wanted) in equal {
            if let Some(wanted) = wanted {
                all.and(&format!("{column} = {{}}"), wanted.as_str());
            }
        }
        if let Some((name, value)) = tag {
            let label = match dialect {
                Dialect::Sqlite => "EXISTS (SELECT 1 FROM json_each(s.spec, '$.tags') t WHERE t.key = {}",
                Dialect::Postgres => {
                    "EXISTS (SELECT 1 FROM json_each_text(s.spec::json -> 'tags') t WHERE t.key = {}"
                }
            };
            all.and(label, name.as_str());
            all.and("t.value = {})", value.as_str());
        }
        if let Some(after) = created_after {
            all.and("j.created_at >= {}", after.as_millis());
        }
        if let Some(before) = created_before {
            all.and("j.created_at < {}", before.as_millis());
        }
        all
    }

    fn and_phase(&mut self, phase: Phase, closed: &Closed, now: Timestamp) {
        match phase {
            Phase::Waiting => {
                self.and("j.status = 'PENDING' AND j.due_at <= {}", now.as_millis());
                let blocked = closed.condition(now, &mut self.params);
                self.text.push_str(&format!(" AND NOT {blocked}"));
            }
            Phase::Blocked => {
                let blocked = closed.condition(now, &mut self.params);
                let put_back = "(j.wait = 'deferred' AND j.due_at > {})";
                self.and(&format!("j.status = 'PENDING' AND ({blocked} OR {put_back})"), now.as_millis());
            }
            Phase::Scheduled => {
                self.and("j.status = 'PENDING' AND j.wait = 'start' AND j.due_at > {}", now.as_millis());
            }
            Phase::Cooling => {
                self.and("j.status = 'PENDING' AND j.wait = 'cooling' AND j.due_at > {}", now.as_millis());
            }
            Phase::Running => self.text.push_str(" AND j.status = 'RUNNING'"),
            Phase::Succeeded => self.text.push_str(" AND j.status = 'SUCCEEDED'"),
            Phase::DeadLettered => self.text.push_str(" AND j.status = 'FAILED' AND j.reopen <> 'discarded'"),
            Phase::Discarded => self.text.push_str(" AND j.status = 'FAILED' AND j.reopen = 'discarded'"),
            Phase::Cancelled => self.text.push_str(" AND j.status = 'CANCELLED'"),
        }
    }
}

/// The id in the words that lead both databases to the index which finds the jobs soonest.
fn listed_by(filter: &JobFilter) -> &'static str {
    match filter {
        // Few at any time: they are found first and then sorted. The cast takes the primary key's order away.
        JobFilter { status: Some(Status::Running), .. } | JobFilter { phase: Some(Phase::Running), .. } => {
            "CAST(j.id AS TEXT)"
        }
        JobFilter { status: None, phase: None, tenant: Some(_), .. } => "s.job_id",
        _ => "j.id",
    }
}

/// A page of jobs, newest first.
pub(crate) async fn list(
    conn: &mut Conn,
    filter: &JobFilter,
    page: Page,
    now: Timestamp,
) -> StoreResult<Vec<JobRecord>> {
    let mut conditions = Conditions::of(conn, filter, now).await?;
    let id = listed_by(filter);
    if let Some(before) = page.before {
        conditions.and(&format!("{id} < {{}}"), before.to_string());
    }
    conditions.params.push(i64::from(page.limit).into());
    let text = format!(
        "SELECT {} FROM {} WHERE {} ORDER BY {id} DESC LIMIT ${}",
        jobs::record_columns(),
        jobs::RECORD_TABLES,
        conditions.text,
        conditions.params.len()
    );
    let rows = conn.query(&text, &conditions.params).await?;
    rows.into_iter().map(|mut row| jobs::record(&mut row)).collect()
}

/// How many dead-lettered jobs [`dlq_groups`] looks at.
const GROUPED_JOBS: i64 = 100_000;
/// How many groups it gives.
const GROUPS: usize = 500;

/// Dead-lettered jobs by what failed alike. Messages differ by ids and numbers, so they are grouped here.
pub(crate) async fn dlq_groups(
    conn: &mut Conn,
    filter: &JobFilter,
    now: Timestamp,
) -> StoreResult<Vec<DlqGroup>> {
    let filter = JobFilter { phase: Some(Phase::DeadLettered), ..filter.clone() };
    let mut conditions = Conditions::of(conn, &filter, now).await?;
    conditions.params.push(GROUPED_JOBS.into());
    let text = format!(
        "SELECT j.id, j.job_type, j.error_code, j.last_error, j.finished_at, j.cost_nanos FROM jobs j \
         JOIN job_specs s ON s.job_id = j.id WHERE {} ORDER BY j.id DESC LIMIT ${}",
        conditions.text,
        conditions.params.len()
    );
    let mut groups: BTreeMap<(String, String, String), DlqGroup> = BTreeMap::new();
    for mut row in conn.query(&text, &conditions.params).await? {
        let sample: JobId = job_id(&row.text()?)?;
        let job_type = row.text()?;
        let error_code = row.maybe_text()?.unwrap_or_default();
        let error: Option<coolant_core::failure::Failure> = from_maybe_json(row.maybe_text()?)?;
        let at = Timestamp::from_millis(row.int()?);
        let cost = Money::from_nanos(row.int()?);
        let message = without_particulars(error.as_ref().map_or("", |error| &error.message));
        groups
            .entry((job_type.clone(), error_code.clone(), message.clone()))
            .and_modify(|group| {
                group.count += 1;
                group.first_at = group.first_at.min(at);
                group.last_at = group.last_at.max(at);
                group.cost = group.cost.plus(cost);
            })
            .or_insert(DlqGroup {
                job_type,
                error_code,
                message,
                count: 1,
                first_at: at,
                last_at: at,
                sample,
                cost,
            });
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.count, group.last_at)));
    groups.truncate(GROUPS);
    Ok(groups)
}

/// The sum of an amount, each counted as nine million dollars at most: a sum that overflows would be an
/// error of the whole answer.
pub(crate) fn sum(column: &str) -> String {
    const MOST: &str = "9000000000000000";
    format!("CAST(coalesce(sum(CASE WHEN {column} > {MOST} THEN {MOST} ELSE {column} END), 0) AS BIGINT)")
}

/// Asks for numbers of one queue or of all.
struct Question<'a> {
    conn: &'a mut Conn,
    since: Timestamp,
    queue: Option<&'a Queue>,
}

impl Question<'_> {
    /// A statement that gives one row of numbers. In its text `{of_queue}` is the condition of the queue, and
    /// `{since}` the instant.
    async fn numbers<const N: usize>(&mut self, text: &str) -> StoreResult<[i64; N]> {
        self.numbers_with(text, Vec::new()).await
    }

    /// The same with more parameters, `$1` and on.
    async fn numbers_with<const N: usize>(
        &mut self,
        text: &str,
        mut params: Vec<Value>,
    ) -> StoreResult<[i64; N]> {
        let mut text = text.to_owned();
        if text.contains("{since}") {
            params.push(self.since.as_millis().into());
            text = text.replace("{since}", &format!("${}", params.len()));
        }
        // Left out where all queues are asked for, not `$2 = '' OR …`: a plan made for both is bad for each.
        let condition = self.queue.map(|queue| {
            params.push(queue.as_str().into());
            format!(" AND queue = ${}", params.len())
        });
        let text = text.replace("{of_queue}", condition.as_deref().unwrap_or_default());
        let mut numbers = [0; N];
        if let Some(mut row) = self.conn.query(&text, &params).await?.pop() {
            for number in &mut numbers {
                *number = row.int()?;
            }
        }
        Ok(numbers)
    }

    /// The nearest-rank percentile of that many durations: the smallest that at least 95 % do not exceed.
    async fn p95(&mut self, count: i64) -> StoreResult<Option<Duration>> {
        if count == 0 {
            return Ok(None);
        }
        // Counted from the longest: a twentieth of the jobs is sorted, not all of them.
        let skip = count - (count * 95 + 99) / 100;
        let text = "SELECT finished_at - started_at FROM jobs WHERE finished_at >= {since} \
                    AND started_at IS NOT NULL{of_queue} ORDER BY finished_at - started_at DESC \
                    LIMIT 1 OFFSET $1";
        let [ms] = self.numbers_with(text, vec![skip.into()]).await?;
        Ok(Some(Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
    }
}

/// The metrics of one queue or of all.
pub(crate) async fn stats(
    conn: &mut Conn,
    queue: Option<&Queue>,
    window: Duration,
    now: Timestamp,
) -> StoreResult<Stats> {
    let since = Timestamp::from_millis(now.as_millis().saturating_sub(millis_up(window)));
    let mut ask = Question { conn, since, queue };
    let [ended, failed, timed] = ask
        .numbers(
            "SELECT count(*), count(CASE WHEN status = 'FAILED' THEN 1 END), count(started_at) \
             FROM jobs WHERE finished_at >= {since}{of_queue}",
        )
        .await?;
    let job_duration_p95 = ask.p95(timed).await?;
    // These two are of now, not of the window.
    // Each half from an index of its own.
    let mut queue_depth = 0;
    for half in [0, 1] {
        let text =
            format!("SELECT count(*) FROM jobs WHERE status = 'PENDING' AND delayed = {half}{{of_queue}}");
        let [count] = ask.numbers(&text).await?;
        queue_depth += count;
    }
    let [dlq_message_count] = ask
        .numbers("SELECT count(*) FROM jobs WHERE status = 'FAILED' AND reopen <> 'discarded'{of_queue}")
        .await?;
    let [wasted] = ask
        .numbers(&format!(
            "SELECT {} FROM attempts a JOIN jobs j ON j.id = a.job_id WHERE a.ended_at >= {{since}} \
             AND a.wasted_nanos > 0{{of_queue}}",
            sum("a.wasted_nanos")
        ))
        .await?;
    let [wasted_loose] = ask
        .numbers(&format!(
            "SELECT {} FROM ledger WHERE job_id = '' AND wasted <> 0 AND at >= {{since}}{{of_queue}}",
            sum("cost_nanos")
        ))
        .await?;
    let [retry_count] = ask
        .numbers(
            "SELECT count(*) FROM attempts a JOIN jobs j ON j.id = a.job_id JOIN attempts b \
             ON b.job_id = a.job_id AND b.number = a.number - 1 AND b.outcome IN ('failed', 'lost') \
             WHERE a.number > 1 AND a.began_at >= {since}{of_queue}",
        )
        .await?;
    let [paid_calls, spent] = ask
        .numbers(&format!(
            "SELECT count(*), {} FROM ledger WHERE at >= {{since}}{{of_queue}}",
            sum("cost_nanos")
        ))
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "counts of jobs")]
    let job_failure_rate = if ended == 0 { 0.0 } else { failed as f64 / ended as f64 };
    Ok(Stats {
        queue_depth,
        job_duration_p95,
        job_failure_rate,
        retry_count,
        dlq_message_count,
        duplicate_request_count: counters::sum(conn, Counter::Duplicates, queue, since).await?,
        conflict_count: counters::sum(conn, Counter::Conflicts, queue, since).await?,
        paid_calls,
        spent: Money::from_nanos(spent),
        saved: Saved {
            by_keys: Money::from_nanos(counters::sum(conn, Counter::SavedByKeys, queue, since).await?),
            by_steps: Money::from_nanos(counters::sum(conn, Counter::SavedBySteps, queue, since).await?),
            by_content: Money::from_nanos(counters::sum(conn, Counter::SavedByContent, queue, since).await?),
            by_cooldowns: Money::from_nanos(
                counters::sum(conn, Counter::SavedByCooldowns, queue, since).await?,
            ),
        },
        blocked_calls: counters::sum(conn, Counter::BlockedStarts, queue, since).await?,
        wasted: Money::from_nanos(wasted.saturating_add(wasted_loose)),
    })
}
