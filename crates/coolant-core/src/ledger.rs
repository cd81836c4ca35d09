//! The ledger: every paid call, what it used, what it cost, and whether it was for nothing.
//!
//! A row is of a call, not of a job, and is written in the transaction that keeps what the call gave. Rows
//! are added, never taken back. Only `wasted` may change: from no to yes, where a later attempt paid again
//! for the same step.
//!
//! Elsewhere: what a call used (`money`, `usage`), what it costs (`prices`), the rows of a job
//! (`Store::ledger`).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::job::JobId;
use crate::money::{Money, Usage};
use crate::names::{JobType, Queue, Tenant};
use crate::store::StoreResult;
use crate::time::Timestamp;

/// A paid call as the ledger keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    /// The job it was made for; `None` for a call that belongs to none, such as a search's question.
    pub job_id: Option<JobId>,
    /// That job's type, or what the call was for.
    pub job_type: Option<JobType>,
    /// The attempt that made it; 0 without a job.
    pub attempt: i64,
    /// The step it was for, if any.
    pub step: Option<String>,
    /// On whose behalf.
    pub tenant: Tenant,
    /// When it was booked.
    pub at: Timestamp,
    /// What it used.
    pub usage: Usage,
    /// Whether it was paid for nothing: its answer was of no use, no attempt kept it, or a later attempt paid
    /// for the same step again.
    pub wasted: bool,
}

/// An entry and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// Unique.
    pub id: Uuid,
    /// The call.
    pub entry: LedgerEntry,
}

/// A paid call without a job, to be booked.
#[derive(Debug, Clone, PartialEq)]
pub struct LooseCall {
    /// Its name: a call that is booked again under it is booked once.
    pub id: Uuid,
    /// On whose behalf.
    pub tenant: Tenant,
    /// In whose statistics it counts.
    pub queue: Queue,
    /// What it was for.
    pub job_type: JobType,
    /// What it used.
    pub usage: Usage,
}

/// Which entries. Everything that is set has to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerFilter {
    /// Of this job.
    pub job_id: Option<JobId>,
    /// Paid to this upstream.
    pub upstream: Option<String>,
    /// On behalf of this tenant.
    pub tenant: Option<Tenant>,
    /// Booked on this day, counted from 1970-01-01, UTC.
    pub day: Option<i64>,
}

/// A page of the ledger, newest first: by time, then by id, both descending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerPage {
    /// This many at most, 1 to 1000.
    pub limit: u32,
    /// Older than this row.
    pub before: Option<(Timestamp, Uuid)>,
}

/// What sums are made by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerBy {
    /// Whom it was paid to.
    Upstream,
    /// On whose behalf.
    Tenant,
    /// What kind of job it was for.
    JobType,
    /// When, by days of UTC.
    Day,
}

impl LedgerBy {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Upstream, Self::Tenant, Self::JobType, Self::Day];

    /// `upstream` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Tenant => "tenant",
            Self::JobType => "job_type",
            Self::Day => "day",
        }
    }
}

/// Most lines of a summary.
pub const MAX_SUMS: usize = 1000;

/// Some entries added up. Amounts stop at the largest number instead of wrapping.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerSum {
    /// The upstream, tenant, job type or date (`2026-11-30`); `None` for entries that have none.
    pub key: Option<String>,
    /// Paid calls.
    pub calls: i64,
    /// Of them: those whose answer was of no use.
    pub failed_calls: i64,
    /// Of them: those whose cost nobody knows. `cost` is without them.
    pub unpriced_calls: i64,
    /// Of them: those whose tokens are an estimate.
    pub estimated_calls: i64,
    /// Tokens in.
    pub input_tokens: i64,
    /// Of them: read from a cache.
    pub cached_tokens: i64,
    /// Tokens out.
    pub output_tokens: i64,
    /// What is known to have been paid.
    pub cost: Money,
    /// The part of `cost` that was for nothing.
    pub wasted: Money,
}

impl LedgerSum {
    /// Adds an entry.
    pub fn add(&mut self, entry: &LedgerEntry) {
        let usage = &entry.usage;
        self.calls += 1;
        self.failed_calls += i64::from(usage.failed.is_some());
        self.unpriced_calls += i64::from(usage.cost.is_none());
        self.estimated_calls += i64::from(usage.estimated);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(usage.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        let cost = usage.cost.unwrap_or_default();
        self.cost = self.cost.plus(cost);
        self.wasted = self.wasted.plus(if entry.wasted { cost } else { Money::default() });
    }
}

/// Reads the ledger. What is booked comes by `Store::apply` and by `UpstreamStore::settle_permits`.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// A page of the ledger, newest first.
    async fn ledger_page(&self, filter: &LedgerFilter, page: LedgerPage) -> StoreResult<Vec<LedgerRow>>;

    /// The entries added up, the highest cost first, then by key, entries without a key last; by days, the
    /// newest first. [`MAX_SUMS`] lines at most.
    async fn ledger_sums(&self, by: LedgerBy, filter: &LedgerFilter) -> StoreResult<Vec<LedgerSum>>;
}

/// Puts sums into the order of [`LedgerStore::ledger_sums`] and keeps as many as it gives.
#[must_use]
pub fn in_order(by: LedgerBy, mut sums: Vec<LedgerSum>) -> Vec<LedgerSum> {
    use std::cmp::Reverse;
    match by {
        LedgerBy::Day => sums.sort_by(|a, b| b.key.cmp(&a.key)),
        _ => sums.sort_by_cached_key(|sum| (Reverse(sum.cost), sum.key.is_none(), sum.key.clone())),
    }
    sums.truncate(MAX_SUMS);
    sums
}
