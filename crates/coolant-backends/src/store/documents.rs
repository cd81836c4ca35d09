//! The contract of documents, on either database.

use std::sync::Arc;

use async_trait::async_trait;
use coolant_core::documents::{
    ContentHash, Document, DocumentStore, DocumentVersion, IndexHealth, NewDocument, Publication, PutOutcome,
    SearchCandidates, SearchRequest, VectorBatch,
};
use coolant_core::lifecycle::Refusal;
use coolant_core::names::{DocumentId, Tenant};
use coolant_core::store::{StoreError, StoreResult};
use futures::FutureExt;

use super::{Readers, Request, SqlStore};
use crate::conn::Conn;
use crate::postgres;
use crate::sql::{documents, search, vector_index};

#[async_trait]
impl DocumentStore for SqlStore {
    async fn put_document(&self, document: NewDocument) -> StoreResult<PutOutcome> {
        let document = Arc::new(document);
        self.write_long(move |conn, now| {
            let document = Arc::clone(&document);
            async move { documents::put(conn, &document, now).await }.boxed()
        })
        .await
    }

    async fn document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<Option<Document>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |conn| {
            async move { Ok(documents::list(conn, &tenant, Some(&id), 1, true).await?.pop()) }.boxed()
        })
        .await
    }

    async fn documents(
        &self,
        tenant: &Tenant,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> StoreResult<Vec<Document>> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        self.read(move |conn| {
            async move { documents::list(conn, &tenant, after.as_ref(), limit, false).await }.boxed()
        })
        .await
    }

    async fn delete_document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<bool> {
        let key = Arc::new((tenant.clone(), id.clone()));
        self.write_long(move |conn, now| {
            let key = Arc::clone(&key);
            async move { documents::delete(conn, &key.0, &key.1, now).await }.boxed()
        })
        .await
    }

    async fn source(
        &self,
        tenant: &Tenant,
        id: &DocumentId,
        version: i64,
    ) -> StoreResult<Option<(DocumentVersion, Vec<u8>)>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |conn| async move { documents::source(conn, &tenant, &id, version).await }.boxed())
            .await
    }

    async fn known_vectors(
        &self,
        tenant: &Tenant,
        model: &str,
        hashes: &[ContentHash],
    ) -> StoreResult<Vec<ContentHash>> {
        let (tenant, model, hashes) = (tenant.clone(), model.to_owned(), hashes.to_vec());
        self.read(move |conn| {
            async move { documents::known_vectors(conn, &tenant, &model, &hashes).await }.boxed()
        })
        .await
    }

    async fn vector(
        &self,
        tenant: &Tenant,
        model: &str,
        hash: &ContentHash,
    ) -> StoreResult<Option<Vec<f32>>> {
        let (tenant, model, hash) = (tenant.clone(), model.to_owned(), *hash);
        self.read(move |conn| async move { documents::vector(conn, &tenant, &model, &hash).await }.boxed())
            .await
    }

    async fn save_vectors(&self, batch: VectorBatch) -> StoreResult<Result<(), Refusal>> {
        let batch = Arc::new(batch);
        self.write_and_deal(Request::LongCustom, move |conn, dealings, now| {
            let batch = Arc::clone(&batch);
            async move { documents::save_vectors(conn, &batch, now, dealings).await }.boxed()
        })
        .await
    }

    async fn publish(&self, publication: Publication) -> StoreResult<Result<(), Refusal>> {
        let publication = Arc::new(publication);
        self.write_long(move |conn, now| {
            let publication = Arc::clone(&publication);
            async move { documents::publish(conn, &publication, now).await }.boxed()
        })
        .await
    }

    async fn search(&self, request: SearchRequest) -> StoreResult<SearchCandidates> {
        self.read(move |conn| async move { search::search(conn, &request).await }.boxed()).await
    }

    async fn index_health(&self) -> StoreResult<IndexHealth> {
        self.read(|conn| documents::health(conn).boxed()).await
    }
    async fn tend_index(&self) -> StoreResult<bool> {
        let Readers::Pool(pool) = &self.readers else { return Ok(false) };
        let pool = pool.clone();
        // A task, so that a caller who goes away does not leave a connection locked in the pool.
        let task = self.runtime.spawn(async move {
            let mut conn = Conn::Postgres(pool.get().await.map_err(postgres::pool_error)?);
            // An index of many vectors takes its time.
            let outcome = match conn.script("SET statement_timeout = 0").await {
                Ok(()) => vector_index::tend(&mut conn).await,
                Err(error) => Err(error),
            };
            let outcome = match conn.script("RESET statement_timeout").await {
                Ok(()) => outcome,
                Err(error) => outcome.and(Err(error)),
            };
            if outcome.is_err()
                && let Conn::Postgres(client) = conn
            {
                drop(deadpool_postgres::Object::take(client));
            }
            outcome
        });
        task.await.map_err(|error| StoreError::Broken(error.to_string()))?
    }
}
