//! The ledger on the wire.

use coolant_core::ledger::{LedgerRow, LedgerSum};
use coolant_core::money::Money;
use coolant_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::named::LedgerByName;
use super::query::bad_cursor;
use super::time::Time;
use crate::engine::ledger::LedgerQuestion;
use crate::http::problem::{Problem, job_id};

/// Which paid calls. Everything that is set has to hold.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerQuery {
    job_id: Option<String>,
    upstream: Option<String>,
    tenant: Option<String>,
    /// Such as `2026-11-30`, UTC.
    day: Option<String>,
    /// 1 to 500; 50 if left out.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<i64>,
    /// The `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

impl LedgerQuery {
    pub(crate) fn question(self) -> Result<LedgerQuestion, Problem> {
        question(self.job_id.as_deref(), self.upstream, self.tenant, self.day)
    }
}

/// What is added up, and by what.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SummaryQuery {
    pub(crate) by: LedgerByName,
    job_id: Option<String>,
    upstream: Option<String>,
    tenant: Option<String>,
    /// Such as `2026-11-30`, UTC.
    day: Option<String>,
}

impl SummaryQuery {
    pub(crate) fn question(self) -> Result<LedgerQuestion, Problem> {
        question(self.job_id.as_deref(), self.upstream, self.tenant, self.day)
    }
}

fn question(
    of_job: Option<&str>,
    upstream: Option<String>,
    tenant: Option<String>,
    day: Option<String>,
) -> Result<LedgerQuestion, Problem> {
    let of_job = of_job.map(|text| job_id("job_id", text)).transpose()?;
    Ok(LedgerQuestion { job_id: of_job, upstream, tenant, day })
}

/// A paid call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PaidCall)]
pub(crate) struct LedgerRowView {
    id: Uuid,
    at: Time,
    /// Null for a call of no job, such as a search's question.
    job_id: Option<Uuid>,
    job_type: Option<String>,
    /// 0 without a job.
    attempt: i64,
    step: Option<String>,
    tenant: String,
    upstream: Option<String>,
    provider: Option<String>,
    /// The one that was asked.
    asked_model: Option<String>,
    /// The one that answered.
    model: Option<String>,
    /// All of them, cached ones too.
    input_tokens: i64,
    /// Of `input_tokens`.
    cached_tokens: i64,
    /// Of `input_tokens`.
    cache_write_tokens: i64,
    /// All of them, reasoning too.
    output_tokens: i64,
    /// Of `output_tokens`.
    reasoning_tokens: i64,
    /// Exact to 1e-9; null if nobody knows, which is not the same as nothing.
    cost_usd: Option<f64>,
    /// The prices that the cost comes from; null if the caller stated it.
    price: Option<String>,
    /// Whether the tokens are an estimate.
    estimated: bool,
    /// `ok`, or the failure class of an answer that was of no use.
    outcome: &'static str,
    /// Whether it was paid for nothing.
    wasted: bool,
    /// The name of the key that paid.
    credential: Option<String>,
    /// The usage in the provider's own words.
    #[schema(value_type = Option<Object>)]
    reported: Option<Value>,
}

impl From<LedgerRow> for LedgerRowView {
    fn from(LedgerRow { id, entry }: LedgerRow) -> Self {
        let usage = entry.usage;
        Self {
            id,
            at: Time(entry.at),
            job_id: entry.job_id.map(|id| id.0),
            job_type: entry.job_type.map(Into::into),
            attempt: entry.attempt,
            step: entry.step,
            tenant: entry.tenant.into(),
            upstream: usage.upstream,
            provider: usage.provider,
            asked_model: usage.asked_model,
            model: usage.model,
            input_tokens: usage.input_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            cost_usd: usage.cost.map(Money::as_usd),
            price: usage.price,
            estimated: usage.estimated,
            outcome: usage.failed.map_or("ok", |class| class.as_str()),
            wasted: entry.wasted,
            credential: usage.credential,
            reported: usage.reported,
        }
    }
}

/// Paid calls added up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PaidCalls)]
pub(crate) struct LedgerSumView {
    /// The upstream, tenant, job type or date; null for calls that have none.
    key: Option<String>,
    calls: i64,
    /// Those whose answer was of no use.
    failed_calls: i64,
    /// Those whose cost nobody knows: `cost_usd` is without them.
    unpriced_calls: i64,
    /// Those whose tokens are an estimate.
    estimated_calls: i64,
    input_tokens: i64,
    /// Of `input_tokens`.
    cached_tokens: i64,
    output_tokens: i64,
    cost_usd: f64,
    /// The part of `cost_usd` that was for nothing.
    wasted_usd: f64,
}

impl From<LedgerSum> for LedgerSumView {
    fn from(sum: LedgerSum) -> Self {
        Self {
            key: sum.key,
            calls: sum.calls,
            failed_calls: sum.failed_calls,
            unpriced_calls: sum.unpriced_calls,
            estimated_calls: sum.estimated_calls,
            input_tokens: sum.input_tokens,
            cached_tokens: sum.cached_tokens,
            output_tokens: sum.output_tokens,
            cost_usd: sum.cost.as_usd(),
            wasted_usd: sum.wasted.as_usd(),
        }
    }
}

/// The cursor of the page after that call.
pub(crate) fn ledger_cursor((at, id): (Timestamp, Uuid)) -> String {
    format!("{}-{}", at.as_millis(), id.simple())
}

/// The call after which a page begins.
pub(crate) fn read_ledger_cursor(cursor: Option<&str>) -> Result<Option<(Timestamp, Uuid)>, Problem> {
    let read = |text: &str| {
        let (at, id) = text.split_once('-')?;
        let at = at.parse().ok().filter(|at: &i64| *at >= 0)?;
        let id = Uuid::try_parse(id).ok().filter(|_| id.len() == 32)?;
        Some((Timestamp::from_millis(at), id))
    };
    cursor.map(|text| read(text).ok_or_else(bad_cursor)).transpose()
}
