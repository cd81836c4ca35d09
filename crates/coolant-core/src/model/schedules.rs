//! Schedules over a map.

use async_trait::async_trait;

use super::ModelStore;
use crate::names::{ScheduleName, Tenant};
use crate::schedule::{Schedule, ScheduleStore};
use crate::store::{NewJob, StoreResult};

#[async_trait]
impl ScheduleStore for ModelStore {
    async fn save_schedule(&self, schedule: Schedule, jobs: Vec<NewJob>) -> StoreResult<bool> {
        let (now, mut state) = (self.now(), self.state());
        let key = (schedule.tenant.clone(), schedule.name.clone());
        let is_as_read = match state.schedules.get(&key) {
            Some(kept) => (kept.id, kept.version) == (schedule.id, schedule.version),
            None => schedule.version == 0,
        };
        if !is_as_read {
            return Ok(false);
        }
        state.schedules.insert(key, Schedule { version: schedule.version + 1, ..schedule });
        let counters = state.counters.clone();
        for job in jobs {
            state.submit(job, now);
        }
        // A tick whose key is taken is no duplicate that somebody sent.
        state.counters = counters;
        Ok(true)
    }

    async fn schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<Option<Schedule>> {
        Ok(self.state().schedules.get(&(tenant.clone(), name.clone())).cloned())
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        after: Option<&ScheduleName>,
        limit: u32,
    ) -> StoreResult<Vec<Schedule>> {
        let state = self.state();
        let listed = state
            .schedules
            .iter()
            .filter(|((owner, name), _)| owner == tenant && after.is_none_or(|after| name > after));
        Ok(listed.take(limit as usize).map(|(_, schedule)| schedule.clone()).collect())
    }

    async fn delete_schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<bool> {
        Ok(self.state().schedules.remove(&(tenant.clone(), name.clone())).is_some())
    }

    async fn due_schedules(&self, limit: u32) -> StoreResult<Vec<Schedule>> {
        let (now, state) = (self.now(), self.state());
        let mut due: Vec<_> = state
            .schedules
            .values()
            .filter(|schedule| schedule.next_at.is_some_and(|at| at <= now))
            .cloned()
            .collect();
        due.sort_by_key(|schedule| schedule.next_at);
        due.truncate(limit as usize);
        Ok(due)
    }
}
