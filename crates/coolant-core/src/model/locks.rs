//! Leaky locks over a map. Nothing is ever forgotten.

use async_trait::async_trait;

use super::ModelStore;
use crate::lock::{LockAnswer, LockAt, LockEvent, LockStore};
use crate::names::LockName;
use crate::store::StoreResult;

#[async_trait]
impl LockStore for ModelStore {
    async fn change_lock(&self, key: &LockName, event: LockEvent) -> StoreResult<LockAnswer> {
        let (now, mut state) = (self.now(), self.state());
        let kept = state.locks.get(key).cloned().unwrap_or_default();
        Ok(kept.on(&event, now).map(|lock| {
            let seen = lock.seen(now);
            state.locks.insert(key.clone(), lock);
            seen
        }))
    }

    async fn lock(&self, key: &LockName) -> StoreResult<LockAt> {
        let (now, state) = (self.now(), self.state());
        Ok(state.locks.get(key).cloned().unwrap_or_default().seen(now))
    }

    async fn forget_locks(&self, _: u32) -> StoreResult<u32> {
        Ok(0)
    }
}
