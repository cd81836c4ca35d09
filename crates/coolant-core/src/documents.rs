//! Documents and their index: versions of bytes, chunks, vectors, and search over what is published.
//!
//! Always true:
//! - a search sees whole versions only: [`DocumentStore::publish`] swaps the old for the new at once;
//! - a vector that was paid for is kept under the hash of what it was made from, at once;
//! - publishing needs the lease of the job that made the version, so a stale worker publishes nothing.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobId, LeaseToken};
use crate::lifecycle::Refusal;
use crate::money::Usage;
use crate::names::{DocumentId, Tenant};
use crate::store::StoreResult;
use crate::time::Timestamp;

/// The blake3 hash that names a chunk's content together with how it was made.
pub type ContentHash = [u8; 32];

/// Bytes to be kept as a version of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// On whose behalf.
    pub tenant: Tenant,
    /// The caller's name for it.
    pub id: DocumentId,
    /// The file.
    pub bytes: Vec<u8>,
    /// What the caller called its type.
    pub content_type: Option<String>,
    /// What the caller called the file.
    pub filename: Option<String>,
}

/// A version of a document, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentVersion {
    /// From 1.
    pub version: i64,
    /// SHA-256 of the bytes, 64 hex digits.
    pub sha256: String,
    /// Size of the file, in bytes.
    pub bytes: i64,
    /// What the caller called its type.
    pub content_type: Option<String>,
    /// What the caller called the file.
    pub filename: Option<String>,
    /// When it came.
    pub created_at: Timestamp,
}

/// A kept version, and whether it is a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOutcome {
    /// The version of these bytes.
    pub version: DocumentVersion,
    /// Whether the document is new.
    pub new_document: bool,
    /// Whether these bytes differ from the newest version's.
    pub new_version: bool,
}

/// A document with its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The caller's name for it.
    pub id: DocumentId,
    /// Its versions, newest first.
    pub versions: Vec<DocumentVersion>,
    /// The version that a search finds, if one is published.
    pub searchable: Option<Published>,
}

/// What a search finds of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The version.
    pub version: i64,
    /// How it was made.
    pub pipeline: String,
    /// Its chunks.
    pub chunks: i64,
    /// When it was published.
    pub at: Timestamp,
}

/// A chunk of a version to be published. Its vector is found by its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChunk {
    /// Its content and how it is made.
    pub hash: ContentHash,
    /// The text.
    pub text: String,
    /// The same text as terms for full text search, separated by spaces.
    pub terms: String,
    /// The headings it stands under: `Guide > Set-up`.
    pub heading: Option<String>,
    /// Its page, from 1.
    pub page: Option<u32>,
}

/// A version to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// On whose behalf.
    pub tenant: Tenant,
    /// Which document.
    pub id: DocumentId,
    /// Which version of it.
    pub version: i64,
    /// How it was made.
    pub pipeline: String,
    /// The embedding model of its vectors.
    pub model: String,
    /// Its chunks, in reading order.
    pub chunks: Vec<NewChunk>,
    /// The job that made it, and its lease.
    pub lease: (JobId, LeaseToken),
}

/// A vector and the hash of what it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct HashedVector {
    /// The content.
    pub hash: ContentHash,
    /// The vector.
    pub vector: Vec<f32>,
}

/// Vectors that were just made, and the step of a job that made them.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorBatch {
    /// On whose behalf.
    pub tenant: Tenant,
    /// The model.
    pub model: String,
    /// The vectors.
    pub vectors: Vec<HashedVector>,
    /// The step that made them, kept in the same transaction; `None` outside a job.
    pub step: Option<FinishedStep>,
}

/// A step of a job and the paid calls that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedStep {
    /// The job and its lease.
    pub lease: (JobId, LeaseToken),
    /// The step's name.
    pub name: String,
    /// What it gave.
    pub output: Value,
    /// What it paid.
    pub usage: Vec<Usage>,
}

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRequest {
    /// On whose behalf.
    pub tenant: Tenant,
    /// In this document alone.
    pub document_id: Option<DocumentId>,
    /// Terms for full text search; none to leave it out.
    pub terms: Vec<SearchTerm>,
    /// The query's vector and its model; `None` to leave it out.
    pub vector: Option<(String, Vec<f32>)>,
    /// This many from each of the two, 1 to 1000.
    pub candidates: u32,
}

/// A term to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchTerm {
    /// Letters and digits only, as the index has them.
    pub text: String,
    /// Find every term that starts so.
    pub prefix: bool,
}

/// Where a chunk is, so that two rankings can be joined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkRef {
    /// Its document.
    pub document_id: DocumentId,
    /// Its place in the document, from 0.
    pub chunk: i64,
}

/// What was found, best first, apart by how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchCandidates {
    /// By full text.
    pub by_text: Vec<ChunkRef>,
    /// By vector.
    pub by_vector: Vec<ChunkRef>,
    /// Everything about the chunks found, from the same snapshot.
    pub chunks: Vec<FoundChunk>,
}

/// A published chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundChunk {
    /// Where it is.
    pub at: ChunkRef,
    /// The version it belongs to.
    pub version: i64,
    /// The text.
    pub text: String,
    /// The headings it stands under.
    pub heading: Option<String>,
    /// Its page, from 1.
    pub page: Option<u32>,
}

/// What the index holds and whether it agrees with itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexHealth {
    /// Documents.
    pub documents: i64,
    /// Published versions.
    pub published: i64,
    /// Published chunks.
    pub chunks: i64,
    /// Kept vectors.
    pub vectors: i64,
    /// Published chunks without a vector.
    pub chunks_without_vector: i64,
    /// Published chunks that full text search does not know.
    pub chunks_without_terms: i64,
}

/// Keeps documents, vectors and the index. See the module for what every one holds to.
#[async_trait]
pub trait DocumentStore: Send + Sync + 'static {
    /// Keeps bytes: as a new version if they differ from the newest.
    async fn put_document(&self, document: NewDocument) -> StoreResult<PutOutcome>;

    /// A document with its versions.
    async fn document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<Option<Document>>;

    /// Documents by name, after that name, this many at most.
    async fn documents(
        &self,
        tenant: &Tenant,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> StoreResult<Vec<Document>>;

    /// Removes a document, its versions and its place in the index. `false` if there was none.
    async fn delete_document(&self, tenant: &Tenant, id: &DocumentId) -> StoreResult<bool>;

    /// A version's bytes with what is known about them.
    async fn source(
        &self,
        tenant: &Tenant,
        id: &DocumentId,
        version: i64,
    ) -> StoreResult<Option<(DocumentVersion, Vec<u8>)>>;

    /// Which of these contents have a vector of that model already.
    async fn known_vectors(
        &self,
        tenant: &Tenant,
        model: &str,
        hashes: &[ContentHash],
    ) -> StoreResult<Vec<ContentHash>>;

    /// The vector of one content, if there is one.
    async fn vector(&self, tenant: &Tenant, model: &str, hash: &ContentHash)
    -> StoreResult<Option<Vec<f32>>>;

    /// Keeps vectors, and the step that made them. A vector that is there already stays. The vectors are
    /// kept also where the step's lease is lost: they are paid for, and true whoever made them.
    async fn save_vectors(&self, batch: VectorBatch) -> StoreResult<Result<(), Refusal>>;

    /// Swaps the published version for this one, at once and whole, under the job's lease. An older
    /// version than the published one is not put in its place.
    async fn publish(&self, publication: Publication) -> StoreResult<Result<(), Refusal>>;

    /// Candidates by full text and by vector, from one snapshot.
    async fn search(&self, request: SearchRequest) -> StoreResult<SearchCandidates>;

    /// Counts the index.
    async fn index_health(&self) -> StoreResult<IndexHealth>;

    /// Does some of what makes searches fast and is too slow for a publication. To be called from time to
    /// time by every process; searches find the same without it. Gives whether there is more to do at once.
    async fn tend_index(&self) -> StoreResult<bool> {
        Ok(false)
    }
}
