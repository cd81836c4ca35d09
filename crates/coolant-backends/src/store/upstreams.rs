//! The contract of upstreams and permits, on either database.

use async_trait::async_trait;
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::{AuditEntry, StoreError, StoreResult};
use coolant_core::upstream::{
    Control, Limits, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement, SettledPermit, Spending,
    TenantNow, UpstreamNow, UpstreamSettings, UpstreamStore,
};
use futures::FutureExt;

use super::{SqlStore, mixed_up};
use crate::batch::{Request, Response};
use crate::sql::{permits, upstreams};

/// What was just written is there to be read.
fn gone() -> StoreError {
    StoreError::Broken("a row that was just written is not there".into())
}

#[async_trait]
impl UpstreamStore for SqlStore {
    async fn set_upstream(&self, name: &Upstream, settings: UpstreamSettings) -> StoreResult<UpstreamNow> {
        let name = name.clone();
        let set = self.write(move |conn, now| {
            let (name, settings) = (name.clone(), settings.clone());
            async move { upstreams::set(conn, &name, &settings, now).await }.boxed()
        });
        set.await?.ok_or_else(gone)
    }

    async fn upstreams(&self, names: Option<&[Upstream]>) -> StoreResult<Vec<UpstreamNow>> {
        let names = names.map(<[Upstream]>::to_vec);
        self.read_now(move |conn, now| {
            async move { upstreams::read(conn, names.as_deref(), now).await }.boxed()
        })
        .await
    }

    async fn control_upstream(
        &self,
        name: &Upstream,
        control: Control,
        audit: AuditEntry,
    ) -> StoreResult<UpstreamNow> {
        self.batcher.run(Request::ControlUpstream(name.clone(), control, audit)).await?;
        self.hints.tell();
        self.upstreams(Some(std::slice::from_ref(name))).await?.pop().ok_or_else(gone)
    }

    async fn set_tenant(&self, tenant: &Tenant, limits: Limits) -> StoreResult<TenantNow> {
        let tenant = tenant.clone();
        let set = self.write(move |conn, now| {
            let (tenant, limits) = (tenant.clone(), limits.clone());
            async move { upstreams::set_tenant(conn, &tenant, &limits, now).await }.boxed()
        });
        set.await?.ok_or_else(gone)
    }

    async fn tenant(&self, tenant: &Tenant) -> StoreResult<Option<TenantNow>> {
        let tenant = tenant.clone();
        self.read_now(move |conn, now| async move { upstreams::tenant(conn, &tenant, now).await }.boxed())
            .await
    }

    async fn acquire_permits(
        &self,
        requests: Vec<PermitRequest>,
    ) -> StoreResult<Vec<Result<Permit, NoPermit>>> {
        match self.batcher.run(Request::AcquirePermits(requests)).await? {
            Response::Permits(answers) => Ok(answers),
            _ => Err(mixed_up()),
        }
    }

    async fn permit(&self, id: PermitId) -> StoreResult<Option<Spending>> {
        self.read(move |conn| async move { permits::read(conn, id).await }.boxed()).await
    }

    async fn settle_permits(
        &self,
        settlements: Vec<PermitSettlement>,
    ) -> StoreResult<Vec<Option<SettledPermit>>> {
        match self.batcher.run(Request::SettlePermits(settlements)).await? {
            Response::SettledPermits(answers) => Ok(answers),
            _ => Err(mixed_up()),
        }
    }

    async fn breakers_stir(&self) -> StoreResult<bool> {
        self.read_now(move |conn, now| async move { upstreams::stir(conn, now).await }.boxed()).await
    }
}
