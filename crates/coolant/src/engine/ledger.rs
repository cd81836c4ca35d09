//! The ledger as users ask for it: pages of paid calls, and sums.

use coolant_core::ledger::{LedgerBy, LedgerFilter, LedgerPage, LedgerRow, LedgerSum};
use coolant_core::time::Timestamp;
use uuid::Uuid;

use super::read::page_limit;
use super::submit::{tenant_of, text};
use super::{Caller, Engine, EngineError, EngineResult};

/// Which paid calls, as a user says it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerQuestion {
    /// Of this job.
    pub job_id: Option<coolant_core::job::JobId>,
    /// Paid to this upstream.
    pub upstream: Option<String>,
    /// On behalf of this tenant.
    pub tenant: Option<String>,
    /// Booked on this day, such as `2026-11-30`, UTC.
    pub day: Option<String>,
}

/// A page of paid calls, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRows {
    /// The calls.
    pub items: Vec<LedgerRow>,
    /// After which one the next page begins, if there may be one.
    pub next: Option<(Timestamp, Uuid)>,
}

impl Engine {
    /// A page of paid calls.
    ///
    /// # Errors
    /// If something asked is out of bounds or of another tenant.
    pub async fn ledger(
        &self,
        caller: &Caller,
        question: LedgerQuestion,
        limit: Option<i64>,
        before: Option<(Timestamp, Uuid)>,
    ) -> EngineResult<LedgerRows> {
        let filter = filter(caller, question)?;
        let limit = page_limit(limit)?;
        // One more than asked for tells whether another page follows.
        let page = LedgerPage { limit: limit + 1, before };
        let mut items = self.parts.store.ledger_page(&filter, page).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| more).map(|row| (row.entry.at, row.id));
        Ok(LedgerRows { items, next })
    }

    /// Paid calls added up.
    ///
    /// # Errors
    /// As for [`Self::ledger`].
    pub async fn ledger_sums(
        &self,
        caller: &Caller,
        by: LedgerBy,
        question: LedgerQuestion,
    ) -> EngineResult<Vec<LedgerSum>> {
        Ok(self.parts.store.ledger_sums(by, &filter(caller, question)?).await?)
    }
}

fn filter(caller: &Caller, question: LedgerQuestion) -> EngineResult<LedgerFilter> {
    let LedgerQuestion { job_id, upstream, tenant, day } = question;
    let is_bound = caller.tenant.is_some() || tenant.is_some();
    let tenant = is_bound.then(|| tenant_of(caller, tenant.as_deref())).transpose()?;
    if let Some(upstream) = &upstream {
        text("upstream", upstream, 1..=128)?;
    }
    let date = |text: String| {
        coolant_core::time::day_of(&text)
            .ok_or_else(|| EngineError::field("day", "takes a date such as 2026-11-30"))
    };
    Ok(LedgerFilter { job_id, upstream, tenant, day: day.map(date).transpose()? })
}
