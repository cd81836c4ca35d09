//! Leaky locks in the SQL store.

use async_trait::async_trait;
use coolant_core::lock::{LockAnswer, LockAt, LockEvent, LockStore};
use coolant_core::names::LockName;
use coolant_core::store::StoreResult;
use futures::FutureExt;

use super::SqlStore;
use crate::sql::locks;

#[async_trait]
impl LockStore for SqlStore {
    async fn change_lock(&self, key: &LockName, event: LockEvent) -> StoreResult<LockAnswer> {
        let key = key.clone();
        self.write(move |conn, now| {
            let (key, event) = (key.clone(), event.clone());
            async move { locks::change(conn, &key, &event, now).await }.boxed()
        })
        .await
    }

    async fn lock(&self, key: &LockName) -> StoreResult<LockAt> {
        let key = key.clone();
        self.read_now(move |conn, now| async move { locks::one(conn, &key, now).await }.boxed()).await
    }

    async fn forget_locks(&self, limit: u32) -> StoreResult<u32> {
        self.write(move |conn, now| locks::forget(conn, limit, now).boxed()).await
    }
}
