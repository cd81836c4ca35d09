//! The ledger's part of the store.

use async_trait::async_trait;
use coolant_core::ledger::{LedgerBy, LedgerFilter, LedgerPage, LedgerRow, LedgerStore, LedgerSum};
use coolant_core::store::StoreResult;
use futures::FutureExt;

use super::SqlStore;
use crate::sql::ledger;

#[async_trait]
impl LedgerStore for SqlStore {
    async fn ledger_page(&self, filter: &LedgerFilter, page: LedgerPage) -> StoreResult<Vec<LedgerRow>> {
        let filter = filter.clone();
        self.read(move |conn| async move { ledger::page(conn, &filter, page).await }.boxed()).await
    }

    async fn ledger_sums(&self, by: LedgerBy, filter: &LedgerFilter) -> StoreResult<Vec<LedgerSum>> {
        let filter = filter.clone();
        self.read(move |conn| async move { ledger::sums(conn, by, &filter).await }.boxed()).await
    }
}
