//! Documents and hits.

use coolant_core::documents::{Document, DocumentVersion, Published, PutOutcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::job::JobView;
use super::time::Time;
use crate::engine::JobAt;
use crate::engine::documents::Hit;

/// A kept version.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PutAnswer {
    document_id: String,
    version: i64,
    sha256: String,
    bytes: i64,
    /// Whether the bytes differ from the version before.
    new_version: bool,
}

impl PutAnswer {
    pub(crate) fn of(document_id: String, put: PutOutcome) -> Self {
        let DocumentVersion { version, sha256, bytes, .. } = put.version;
        Self { document_id, version, sha256, bytes, new_version: put.new_version }
    }
}

/// A document in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentSummary {
    document_id: String,
    /// Newest first.
    versions: Vec<VersionView>,
    /// What a search finds; null if nothing is published.
    searchable: Option<PublishedView>,
}

/// A document and the job that indexes its newest version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Document)]
pub(crate) struct DocumentView {
    document_id: String,
    /// Newest first.
    versions: Vec<VersionView>,
    /// What a search finds; null if nothing is published.
    searchable: Option<PublishedView>,
    /// The job that indexes the newest version, if there was one.
    last_job: Option<JobView>,
}

/// A version of a document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DocumentVersion)]
pub(crate) struct VersionView {
    version: i64,
    sha256: String,
    bytes: i64,
    content_type: Option<String>,
    filename: Option<String>,
    created_at: Time,
}

/// What a search finds of a document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Published)]
pub(crate) struct PublishedView {
    version: i64,
    /// How it was made.
    pipeline: String,
    chunks: i64,
    published_at: Time,
}

impl From<DocumentVersion> for VersionView {
    fn from(version: DocumentVersion) -> Self {
        let DocumentVersion { version, sha256, bytes, content_type, filename, created_at } = version;
        Self { version, sha256, bytes, content_type, filename, created_at: Time(created_at) }
    }
}

impl From<Published> for PublishedView {
    fn from(Published { version, pipeline, chunks, at }: Published) -> Self {
        Self { version, pipeline, chunks, published_at: Time(at) }
    }
}

impl From<Document> for DocumentSummary {
    fn from(document: Document) -> Self {
        Self {
            document_id: document.id.into(),
            versions: document.versions.into_iter().map(Into::into).collect(),
            searchable: document.searchable.map(Into::into),
        }
    }
}

impl From<(Document, Option<JobAt>)> for DocumentView {
    fn from((document, job): (Document, Option<JobAt>)) -> Self {
        let DocumentSummary { document_id, versions, searchable } = document.into();
        Self { document_id, versions, searchable, last_job: job.map(Into::into) }
    }
}

/// What to index.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = IndexRequest)]
#[serde(deny_unknown_fields)]
pub(crate) struct IndexBody {
    /// The newest if left out.
    pub(crate) version: Option<i64>,
    /// Takes `default`.
    pub(crate) pipeline: Option<String>,
}

/// What a search found, best first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Hits {
    pub(crate) hits: Vec<HitView>,
}

/// A chunk that was found.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hit)]
pub(crate) struct HitView {
    document_id: String,
    version: i64,
    /// Its place in the document, from 0.
    chunk: i64,
    /// Higher is better, within one search.
    score: f64,
    text: String,
    heading: Option<String>,
    /// From 1.
    page: Option<u32>,
}

impl From<Hit> for HitView {
    fn from(hit: Hit) -> Self {
        let Hit { document_id, version, chunk, score, text, heading, page } = hit;
        Self { document_id: document_id.into(), version, chunk, score, text, heading, page }
    }
}
