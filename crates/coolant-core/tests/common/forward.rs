//! A test double of a store that leaves everything but jobs to the store inside it.

/// Implements every part of a store that has nothing to do with jobs or upstreams for `$double`, by its field `$inner`.
macro_rules! forward_parts {
    ($double:ty, $inner:ident) => {
        const _: () = {
            use coolant_core::ledger::{
                LedgerBy, LedgerFilter, LedgerPage, LedgerRow, LedgerStore, LedgerSum,
            };
            use coolant_core::lock::{LockAnswer, LockAt, LockEvent, LockStore};
            use coolant_core::names::{LockName, ScheduleName, Tenant};
            use coolant_core::process::{Burial, Process, ProcessId, ProcessLock, ProcessStore};
            use coolant_core::schedule::{Schedule, ScheduleStore};
            use coolant_core::store::{NewJob, StoreResult};
            use coolant_core::time::Timestamp;

            #[::async_trait::async_trait]
            impl LedgerStore for $double {
                async fn ledger_page(
                    &self,
                    filter: &LedgerFilter,
                    page: LedgerPage,
                ) -> StoreResult<Vec<LedgerRow>> {
                    self.$inner.ledger_page(filter, page).await
                }
                async fn ledger_sums(
                    &self,
                    by: LedgerBy,
                    filter: &LedgerFilter,
                ) -> StoreResult<Vec<LedgerSum>> {
                    self.$inner.ledger_sums(by, filter).await
                }
            }

            #[::async_trait::async_trait]
            impl ScheduleStore for $double {
                async fn save_schedule(&self, schedule: Schedule, jobs: Vec<NewJob>) -> StoreResult<bool> {
                    self.$inner.save_schedule(schedule, jobs).await
                }
                async fn schedule(
                    &self,
                    tenant: &Tenant,
                    name: &ScheduleName,
                ) -> StoreResult<Option<Schedule>> {
                    self.$inner.schedule(tenant, name).await
                }
                async fn schedules(
                    &self,
                    tenant: &Tenant,
                    after: Option<&ScheduleName>,
                    limit: u32,
                ) -> StoreResult<Vec<Schedule>> {
                    self.$inner.schedules(tenant, after, limit).await
                }
                async fn delete_schedule(&self, tenant: &Tenant, name: &ScheduleName) -> StoreResult<bool> {
                    self.$inner.delete_schedule(tenant, name).await
                }
                async fn due_schedules(&self, limit: u32) -> StoreResult<Vec<Schedule>> {
                    self.$inner.due_schedules(limit).await
                }
            }

            #[::async_trait::async_trait]
            impl LockStore for $double {
                async fn change_lock(&self, key: &LockName, event: LockEvent) -> StoreResult<LockAnswer> {
                    self.$inner.change_lock(key, event).await
                }
                async fn lock(&self, key: &LockName) -> StoreResult<LockAt> {
                    self.$inner.lock(key).await
                }
                async fn forget_locks(&self, limit: u32) -> StoreResult<u32> {
                    self.$inner.forget_locks(limit).await
                }
            }

            #[::async_trait::async_trait]
            impl ProcessStore for $double {
                async fn renew_process(&self, id: ProcessId) -> StoreResult<()> {
                    self.$inner.renew_process(id).await
                }
                async fn lock_process(&self, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>> {
                    self.$inner.lock_process(id).await
                }
                async fn processes(&self) -> StoreResult<(Timestamp, Vec<Process>)> {
                    self.$inner.processes().await
                }
                async fn bury_process(&self, process: Process, limit: u32) -> StoreResult<Burial> {
                    self.$inner.bury_process(process, limit).await
                }
                async fn forget_process(&self, id: ProcessId) -> StoreResult<()> {
                    self.$inner.forget_process(id).await
                }
            }
        };
    };
}
pub(crate) use forward_parts;

/// Implements the part of a store that keeps upstreams.
#[allow(unused_macros, reason = "not every double leaves them alone")]
macro_rules! forward_upstreams {
    ($double:ty, $inner:ident) => {
        const _: () = {
            use coolant_core::names::{Tenant, Upstream};
            use coolant_core::store::{AuditEntry, StoreResult};
            use coolant_core::upstream::{
                Control, Limits, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement, SettledPermit,
                Spending, TenantNow, UpstreamNow, UpstreamSettings, UpstreamStore,
            };

            #[::async_trait::async_trait]
            impl UpstreamStore for $double {
                async fn set_upstream(
                    &self,
                    name: &Upstream,
                    settings: UpstreamSettings,
                ) -> StoreResult<UpstreamNow> {
                    self.$inner.set_upstream(name, settings).await
                }
                async fn upstreams(&self, names: Option<&[Upstream]>) -> StoreResult<Vec<UpstreamNow>> {
                    self.$inner.upstreams(names).await
                }
                async fn control_upstream(
                    &self,
                    name: &Upstream,
                    control: Control,
                    audit: AuditEntry,
                ) -> StoreResult<UpstreamNow> {
                    self.$inner.control_upstream(name, control, audit).await
                }
                async fn set_tenant(&self, tenant: &Tenant, limits: Limits) -> StoreResult<TenantNow> {
                    self.$inner.set_tenant(tenant, limits).await
                }
                async fn tenant(&self, tenant: &Tenant) -> StoreResult<Option<TenantNow>> {
                    self.$inner.tenant(tenant).await
                }
                async fn acquire_permits(
                    &self,
                    requests: Vec<PermitRequest>,
                ) -> StoreResult<Vec<Result<Permit, NoPermit>>> {
                    self.$inner.acquire_permits(requests).await
                }
                async fn permit(&self, id: PermitId) -> StoreResult<Option<Spending>> {
                    self.$inner.permit(id).await
                }
                async fn settle_permits(
                    &self,
                    settlements: Vec<PermitSettlement>,
                ) -> StoreResult<Vec<Option<SettledPermit>>> {
                    self.$inner.settle_permits(settlements).await
                }
                async fn breakers_stir(&self) -> StoreResult<bool> {
                    self.$inner.breakers_stir().await
                }
            }
        };
    };
}
#[allow(unused_imports, reason = "not every double leaves them alone")]
pub(crate) use forward_upstreams;
