//! Search: a question, candidates by words and by vector, one ranking.

use std::sync::Arc;

use coolant_core::documents::{
    ChunkRef, DocumentStore, FoundChunk, HashedVector, SearchRequest, SearchTerm, VectorBatch,
};
use coolant_core::failure::Failure;
use coolant_core::ledger::{LedgerStore, LooseCall};
use coolant_core::money::Usage;
use coolant_core::names::{DocumentId, JobType, Queue, Tenant};
use coolant_core::store::StoreError;

use crate::chunk::chunk_hash;
use crate::failure::embedding_failure;
use crate::pipeline::Pipeline;
use crate::rank::{RankedList, fuse, vector_weight};
use crate::terms;

/// By what a search goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Words and vectors, joined.
    Both,
    /// Vectors alone.
    Vector,
    /// Words alone.
    Text,
}

/// A published chunk and its place in the ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// The chunk.
    pub chunk: FoundChunk,
    /// Higher is better; only good for comparing hits of one search.
    pub score: f64,
}

/// Why a search gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchFault {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The question could not be embedded.
    #[error("the question could not be embedded")]
    Embedding(Failure),
}

/// Searches what a pipeline has indexed.
pub struct Search {
    documents: Arc<dyn DocumentStore>,
    ledger: Arc<dyn LedgerStore>,
    pipeline: Arc<Pipeline>,
}

/// Candidates of each kind for every hit that is asked for, so that the fusion has something to weigh.
const CANDIDATES_PER_HIT: u32 = 5;
/// At least this many of each.
const LEAST_CANDIDATES: u32 = 50;

impl Search {
    /// A search over that store. Questions that are paid for are booked in that ledger.
    #[must_use]
    pub fn new(
        documents: Arc<dyn DocumentStore>,
        ledger: Arc<dyn LedgerStore>,
        pipeline: Arc<Pipeline>,
    ) -> Self {
        Self { documents, ledger, pipeline }
    }

    /// The best `k` hits, best first. In a joined search, words alone answer while the provider of the
    /// embeddings does not.
    ///
    /// # Errors
    /// The store did not answer, or a search by vector could not embed its question.
    pub async fn search(
        &self,
        tenant: &Tenant,
        question: &str,
        k: u32,
        document_id: Option<DocumentId>,
        by: By,
    ) -> Result<Vec<Ranked>, SearchFault> {
        let terms = if by == By::Vector { Vec::new() } else { terms::query_terms(question) };
        let vector = match by {
            By::Text => None,
            By::Vector => Some(self.embed(tenant, question).await?),
            By::Both => match self.embed(tenant, question).await {
                Ok(vector) => Some(vector),
                Err(SearchFault::Embedding(failure)) => {
                    tracing::warn!(error.code = failure.code, "searching by words alone");
                    None
                }
                Err(fault) => return Err(fault),
            },
        };
        let request = SearchRequest {
            tenant: tenant.clone(),
            document_id,
            terms: terms
                .into_iter()
                .map(|term| SearchTerm { text: term.text, prefix: term.prefix })
                .collect(),
            vector: vector.map(|vector| (self.pipeline.embedding_fingerprint(), vector)),
            candidates: k.saturating_mul(CANDIDATES_PER_HIT).max(LEAST_CANDIDATES),
        };
        let found = self.documents.search(request).await?;
        let weight = vector_weight(self.pipeline.embedder.class());
        let lists =
            [RankedList { ids: &found.by_text, weight: 1.0 }, RankedList { ids: &found.by_vector, weight }];
        let ranked = fuse(&lists, k as usize);
        Ok(ranked.into_iter().filter_map(|(at, score)| hit(&found.chunks, &at, score)).collect())
    }

    /// The question's vector. One that was paid for is kept like any other, so that a question asked again
    /// is not paid again.
    async fn embed(&self, tenant: &Tenant, question: &str) -> Result<Vec<f32>, SearchFault> {
        let embedder = &self.pipeline.embedder;
        let model = self.pipeline.embedding_fingerprint();
        let hash = chunk_hash(&model, question);
        if embedder.upstream().is_some()
            && let Some(vector) = self.documents.vector(tenant, &model, &hash).await?
        {
            return Ok(vector);
        }
        let inputs = [question.to_owned()];
        let answer = match embedder.embed(&inputs).await {
            Ok(answer) => answer,
            Err(error) => {
                self.book(tenant, self.pipeline.bill_failure(&error, &inputs)).await;
                return Err(SearchFault::Embedding(embedding_failure(&error, embedder.upstream())));
            }
        };
        self.book(tenant, self.pipeline.bill(&answer.usage, answer.model)).await;
        let vector = answer.vectors.into_iter().next().unwrap_or_default();
        if embedder.upstream().is_some() {
            let vectors = vec![HashedVector { hash, vector: vector.clone() }];
            let batch = VectorBatch { tenant: tenant.clone(), model, vectors, step: None };
            // No step, no lease: there is nothing to refuse.
            let _ = self.documents.save_vectors(batch).await?;
        }
        Ok(vector)
    }
}

/// What the ledger knows a search's question by.
const SEARCH: &str = "SEARCH";

impl Search {
    /// Books a paid question. A search is not refused because its bill could not be kept.
    async fn book(&self, tenant: &Tenant, usage: Option<Usage>) {
        let (Some(usage), Ok(job_type)) = (usage, JobType::parse(SEARCH)) else { return };
        let (id, queue) = (uuid::Uuid::now_v7(), Queue::default());
        let call = LooseCall { id, tenant: tenant.clone(), queue, job_type, usage };
        if let Err(error) = self.ledger.book(vec![call]).await {
            tracing::warn!(%error, "a paid question could not be booked");
        }
    }
}

fn hit(chunks: &[FoundChunk], at: &ChunkRef, score: f64) -> Option<Ranked> {
    let chunk = chunks.iter().find(|chunk| chunk.at == *at)?;
    Some(Ranked { chunk: chunk.clone(), score })
}
