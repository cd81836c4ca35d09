//! Schedules in the SQL store.

use std::sync::Arc;

use async_trait::async_trait;
use coolant_core::names::{ScheduleName, Tenant};
use coolant_core::schedule::{Schedule, ScheduleStore};
use coolant_core::store::{NewJob, StoreResult};
use futures::FutureExt;

use super::SqlStore;
use crate::sql::schedules;

#[async_trait]
impl ScheduleStore for SqlStore {
    async fn save_schedule(&self, schedule: Schedule, jobs: Vec<NewJob>) -> StoreResult<bool> {
        let has_jobs = !jobs.is_empty();
        let save = Arc::new((schedule, jobs));
        let saved = self.write(move |conn, now| {
            let save = Arc::clone(&save);
            async move { schedules::save(conn, &save.0, &save.1, now).await }.boxed()
        });
        let saved = saved.await?;
        if saved && has_jobs {
            self.hints.tell();
        }
        Ok(saved)
    }

    async fn schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<Option<Schedule>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.read(move |conn| async move { schedules::one(conn, &tenant, &name).await }.boxed()).await
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        after: Option<&ScheduleName>,
        limit: u32,
    ) -> StoreResult<Vec<Schedule>> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        self.read(move |conn| {
            async move { schedules::list(conn, &tenant, after.as_ref(), limit).await }.boxed()
        })
        .await
    }

    async fn delete_schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<bool> {
        let key = Arc::new((tenant.clone(), name.clone()));
        self.write(move |conn, _| {
            let key = Arc::clone(&key);
            async move { schedules::delete(conn, &key.0, &key.1).await }.boxed()
        })
        .await
    }

    async fn due_schedules(&self, limit: u32) -> StoreResult<Vec<Schedule>> {
        self.read_now(move |conn, now| async move { schedules::due(conn, limit, now).await }.boxed()).await
    }
}
