//! Documents and search: bytes in, an index job, hits out.

use std::time::Duration;

use async_trait::async_trait;
use coolant_core::documents::{Document, NewDocument, PutOutcome};
use coolant_core::job::Status;
use coolant_core::names::{DocumentId, IdempotencyKey, Tenant};
use coolant_core::store::IfFailed;
use coolant_core::time::Timestamp;
use serde_json::json;

use super::read::page_limit;
use super::submit::{SubmitAnswer, SubmitRequest, text, whole};
use super::{Caller, Engine, EngineError, EngineResult, JobAt};

/// Largest document, in bytes.
pub const MAX_DOCUMENT: usize = 64 * 1024 * 1024;
/// Longest document id in bytes: with version and pipeline it still makes an idempotency key.
const MAX_ID: usize = 384;
/// The job type of an indexing.
pub const DOCUMENT_INDEX: &str = "DOCUMENT_INDEX";

/// Finds published chunks for a query.
#[async_trait]
pub trait Searcher: Send + Sync + 'static {
    /// The best hits, best first. The query is not empty, `k` is 1 to 100.
    async fn search(&self, query: SearchQuery) -> Result<Vec<Hit>, SearchError>;
}

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchQuery {
    /// On whose behalf.
    pub tenant: Tenant,
    /// The question, as somebody typed it.
    pub q: String,
    /// This many hits at most.
    pub k: u32,
    /// In this document alone.
    pub document_id: Option<DocumentId>,
    /// How.
    pub mode: SearchMode,
}

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchMode {
    /// By both, joined.
    #[default]
    Hybrid,
    /// By meaning.
    Vector,
    /// By words.
    Text,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Its document.
    pub document_id: DocumentId,
    /// The version it belongs to.
    pub version: i64,
    /// Its place in the document, from 0.
    pub chunk: i64,
    /// Higher is better; only good for comparing hits of one search.
    pub score: f64,
    /// The text.
    pub text: String,
    /// The headings it stands under.
    pub heading: Option<String>,
    /// Its page, from 1.
    pub page: Option<u32>,
}

/// Why a search gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] coolant_core::store::StoreError),
    /// The query could not be embedded: its upstream is closed, failing or not configured.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
        /// When to try again, where known.
        retry_after: Option<Duration>,
    },
}

impl From<SearchError> for EngineError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Store(error) => Self::Store(error),
            SearchError::Unavailable { reason, retry_after } => {
                Self::SearchUnavailable { reason, retry_after }
            }
        }
    }
}

/// A page of documents, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentsPage {
    /// The documents.
    pub items: Vec<Document>,
    /// The name after which the next page begins, if there may be one.
    pub next: Option<DocumentId>,
}

impl Engine {
    /// Keeps a document's bytes; the same bytes make no new version.
    ///
    /// # Errors
    /// If the id or the size is out of bounds.
    pub async fn put_document(
        &self,
        caller: &Caller,
        id: &str,
        bytes: Vec<u8>,
        content_type: Option<String>,
        filename: Option<String>,
    ) -> EngineResult<PutOutcome> {
        let id = DocumentId::parse(id)?;
        text("document_id", id.as_str(), 1..=MAX_ID)?;
        text("Content-Type", content_type.as_deref().unwrap_or_default(), 0..=255)?;
        text("X-Filename", filename.as_deref().unwrap_or_default(), 0..=1024)?;
        if bytes.len() > MAX_DOCUMENT {
            return Err(EngineError::TooLarge {
                what: "document".into(),
                bytes: bytes.len(),
                max: MAX_DOCUMENT,
            });
        }
        let document = NewDocument { tenant: caller.own_tenant(), id, bytes, content_type, filename };
        Ok(self.parts.documents.put_document(document).await?)
    }

    /// A document and the job that indexes its newest version, if there was one.
    ///
    /// # Errors
    /// If there is no such document.
    pub async fn document(&self, caller: &Caller, id: &str) -> EngineResult<(Document, Option<JobAt>)> {
        let (tenant, id) = (caller.own_tenant(), DocumentId::parse(id)?);
        let document = self.parts.documents.document(&tenant, &id).await?;
        let document = document.ok_or(EngineError::DocumentNotFound)?;
        let Some(newest) = document.versions.first() else { return Ok((document, None)) };
        let key = IdempotencyKey::parse(self.index_key(&id, newest.version))?;
        let job = match self.parts.store.by_key(&tenant, &key).await? {
            Some(record) => Some(self.at_now(record).await?),
            None => None,
        };
        Ok((document, job))
    }

    /// Does some of what keeps searches fast. Gives whether there is more to do at once.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn tend_index(&self) -> EngineResult<bool> {
        Ok(self.parts.documents.tend_index().await?)
    }

    /// A page of documents by name.
    ///
    /// # Errors
    /// If the limit is out of bounds.
    pub async fn documents(
        &self,
        caller: &Caller,
        limit: Option<i64>,
        after: Option<DocumentId>,
    ) -> EngineResult<DocumentsPage> {
        let limit = page_limit(limit)?;
        let tenant = caller.own_tenant();
        let mut items = self.parts.documents.documents(&tenant, after.as_ref(), limit + 1).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| more).map(|document| document.id.clone());
        Ok(DocumentsPage { items, next })
    }

    /// Removes a document; a search does not find it any more.
    ///
    /// # Errors
    /// If there is no such document.
    pub async fn delete_document(&self, caller: &Caller, id: &str) -> EngineResult<()> {
        let id = DocumentId::parse(id)?;
        match self.parts.documents.delete_document(&caller.own_tenant(), &id).await? {
            true => Ok(()),
            false => Err(EngineError::DocumentNotFound),
        }
    }

    /// Submits the job that indexes a version, the newest if `None`. Asked again for the same version and
    /// pipeline it gives the same job; one that failed is tried again once its cooldown is over.
    ///
    /// # Errors
    /// If there is no such version or pipeline.
    pub async fn index_document(
        &self,
        caller: &Caller,
        id: &str,
        version: Option<i64>,
        pipeline: Option<&str>,
        trace_id: Option<String>,
    ) -> EngineResult<SubmitAnswer> {
        let pipeline = pipeline.unwrap_or("default");
        if pipeline != "default" {
            return Err(EngineError::field("pipeline", "takes only `default`"));
        }
        let (tenant, id) = (caller.own_tenant(), DocumentId::parse(id)?);
        let document = self.parts.documents.document(&tenant, &id).await?;
        let document = document.ok_or(EngineError::DocumentNotFound)?;
        let known = |version: &i64| document.versions.iter().any(|kept| kept.version == *version);
        let newest = document.versions.first().map(|newest| newest.version);
        let version = version.or(newest).filter(known).ok_or(EngineError::DocumentNotFound)?;
        let request = SubmitRequest {
            job_type: DOCUMENT_INDEX.into(),
            payload: Some(json!({"document_id": id.as_str(), "version": version, "pipeline": pipeline})),
            idempotency_key: Some(self.index_key(&id, version)),
            tenant: Some(tenant.clone().into()),
            upstreams: self.parts.pipeline.upstreams.iter().map(ToString::to_string).collect(),
            if_failed: IfFailed::Retry,
            trace_id,
            ..SubmitRequest::default()
        };
        let answer = self.submit(caller, request.clone()).await?;
        if answer.job.record.job.status() != Status::Succeeded {
            return Ok(answer);
        }
        match self.replaced_at(&tenant, &id, version).await? {
            None => Ok(answer),
            Some(at) => {
                let key = format!("{}:{}", self.index_key(&id, version), at.as_millis());
                self.submit(caller, SubmitRequest { idempotency_key: Some(key), ..request }).await
            }
        }
    }

    /// When another pipeline took the place of what this one had published of the version, if one did: then
    /// its job is done, and its work is not there any more. One key for each time that happened.
    async fn replaced_at(
        &self,
        tenant: &Tenant,
        id: &DocumentId,
        version: i64,
    ) -> EngineResult<Option<Timestamp>> {
        let document = self.parts.documents.document(tenant, id).await?;
        let published = document.and_then(|document| document.searchable);
        let replaced = published.filter(|published| {
            published.version == version && published.pipeline != self.parts.pipeline.version
        });
        Ok(replaced.map(|published| published.at))
    }

    fn index_key(&self, id: &DocumentId, version: i64) -> String {
        format!("{id}:v{version}:{}", self.parts.pipeline.version)
    }

    /// Searches what is published.
    ///
    /// # Errors
    /// If something about the query is out of bounds, or it cannot be embedded at the moment.
    pub async fn search(
        &self,
        caller: &Caller,
        q: &str,
        k: Option<i64>,
        document_id: Option<&str>,
        mode: SearchMode,
    ) -> EngineResult<Vec<Hit>> {
        if q.trim().is_empty() || q.len() > 8 * 1024 {
            return Err(EngineError::field("q", "takes 1 to 8192 bytes that are not all blank"));
        }
        let query = SearchQuery {
            tenant: caller.own_tenant(),
            q: q.to_owned(),
            k: whole("k", k, 1..=100)?.unwrap_or(10),
            document_id: document_id.map(DocumentId::parse).transpose()?,
            mode,
        };
        Ok(self.parts.searcher.search(query).await?)
    }
}
