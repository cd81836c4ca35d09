//! The ledger over a list.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::{ModelStore, State};
use crate::ledger::{
    LedgerBy, LedgerEntry, LedgerFilter, LedgerPage, LedgerRow, LedgerStore, LedgerSum, LooseCall, in_order,
};
use crate::store::StoreResult;
use crate::time::{Timestamp, date_of};

#[async_trait]
impl LedgerStore for ModelStore {
    async fn ledger_page(&self, filter: &LedgerFilter, page: LedgerPage) -> StoreResult<Vec<LedgerRow>> {
        let state = self.state();
        let mut rows: Vec<LedgerRow> = state.ledger().filter(|row| matches(filter, &row.entry)).collect();
        let place = |row: &LedgerRow| (row.entry.at, row.id);
        rows.retain(|row| page.before.is_none_or(|before| place(row) < before));
        rows.sort_by_key(|row| std::cmp::Reverse(place(row)));
        rows.truncate(page.limit as usize);
        Ok(rows)
    }

    async fn ledger_sums(&self, by: LedgerBy, filter: &LedgerFilter) -> StoreResult<Vec<LedgerSum>> {
        let state = self.state();
        let mut sums: BTreeMap<Option<String>, LedgerSum> = BTreeMap::new();
        for LedgerRow { entry, .. } in state.ledger().filter(|row| matches(filter, &row.entry)) {
            let key = match by {
                LedgerBy::Upstream => entry.usage.upstream.clone(),
                LedgerBy::Tenant => Some(entry.tenant.to_string()),
                LedgerBy::JobType => entry.job_type.as_ref().map(ToString::to_string),
                LedgerBy::Day => Some(date_of(entry.at.day())),
            };
            sums.entry(key.clone()).or_insert_with(|| LedgerSum { key, ..LedgerSum::default() }).add(&entry);
        }
        Ok(in_order(by, sums.into_values().collect()))
    }
}

impl State {
    pub(super) fn book_loose(&mut self, call: LooseCall, now: Timestamp) {
        let entry = LedgerEntry {
            job_id: None,
            job_type: Some(call.job_type),
            attempt: 0,
            step: None,
            tenant: call.tenant,
            at: now,
            wasted: call.usage.is_wasted(true),
            usage: call.usage,
        };
        self.loose.push((call.id, call.queue, entry));
    }

    /// Every row; those of jobs are named by their place.
    fn ledger(&self) -> impl Iterator<Item = LedgerRow> {
        let of_jobs = self.rows.values().flat_map(|row| &row.ledger);
        let of_jobs = of_jobs.enumerate().map(|(at, entry)| (Uuid::from_u128(at as u128), entry));
        let loose = self.loose.iter().map(|(id, _, entry)| (*id, entry));
        of_jobs.chain(loose).map(|(id, entry)| LedgerRow { id, entry: entry.clone() })
    }
}

fn matches(filter: &LedgerFilter, entry: &LedgerEntry) -> bool {
    let day = |at: Timestamp| filter.day.is_none_or(|day| at.day() == day);
    filter.job_id.is_none_or(|id| entry.job_id == Some(id))
        && filter.upstream.as_ref().is_none_or(|name| entry.usage.upstream.as_ref() == Some(name))
        && filter.tenant.as_ref().is_none_or(|tenant| entry.tenant == *tenant)
        && day(entry.at)
}
