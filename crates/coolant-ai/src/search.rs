//! Search: a question, candidates by words and by vector, one ranking.

use std::sync::Arc;

use coolant_core::documents::{
    ChunkRef, DocumentStore, FoundChunk, HashedVector, SearchRequest, SearchTerm, VectorBatch,
};
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::handler::{HandlerError, PaidCall, Payer};
use coolant_core::names::{DocumentId, Tenant};
use coolant_core::store::StoreError;

use crate::chunk::{chunk_hash, estimate_tokens};
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
    payer: Arc<dyn Payer>,
    pipeline: Arc<Pipeline>,
}

/// Candidates of each kind for every hit that is asked for, so that the fusion has something to weigh.
const CANDIDATES_PER_HIT: u32 = 5;
/// At least this many of each.
const LEAST_CANDIDATES: u32 = 50;

impl Search {
    /// A search over that store. Questions are paid for through that payer.
    #[must_use]
    pub fn new(documents: Arc<dyn DocumentStore>, payer: Arc<dyn Payer>, pipeline: Arc<Pipeline>) -> Self {
        Self { documents, payer, pipeline }
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
        let vector = self.ask(tenant, question).await?;
        if embedder.upstream().is_some() {
            let vectors = vec![HashedVector { hash, vector: vector.clone() }];
            let batch = VectorBatch { tenant: tenant.clone(), model, vectors, step: None };
            // No step, no lease: there is nothing to refuse.
            let _ = self.documents.save_vectors(batch).await?;
        }
        Ok(vector)
    }

    /// One call of the embedder, under a permit if it costs anything.
    async fn ask(&self, tenant: &Tenant, question: &str) -> Result<Vec<f32>, SearchFault> {
        let embedder = &self.pipeline.embedder;
        let call = match embedder.upstream() {
            Some(upstream) => {
                let call = PaidCall::new(SEARCH, upstream).embeddings().tenant(tenant.clone());
                let call = call.tokens(u64::from(estimate_tokens(question)), 0);
                Some(call.begin(Arc::clone(&self.payer)).await.map_err(not_now)?)
            }
            None => None,
        };
        let inputs = [question.to_owned()];
        match embedder.embed(&inputs).await {
            Ok(answer) => {
                if let Some(call) = call {
                    call.done(self.pipeline.bill(&answer.usage, answer.model), answer.headers).await;
                }
                Ok(answer.vectors.into_iter().next().unwrap_or_default())
            }
            Err(error) => Err(SearchFault::Embedding(self.pipeline.failed(call, &error, &inputs).await)),
        }
    }
}

/// What the ledger knows a search's question by.
const SEARCH: &str = "SEARCH";

/// Why a question may not be paid for at the moment.
fn not_now(error: HandlerError) -> SearchFault {
    let unpaid = |class, message: String| Failure::new(class, "EMBEDDING_OVERLOADED", message);
    SearchFault::Embedding(match error {
        HandlerError::Failed(failure) => failure,
        HandlerError::Defer { wait, reason } => {
            unpaid(FailureClass::Overloaded, reason).with_retry_after(Some(wait))
        }
        HandlerError::Gone(refusal) => unpaid(FailureClass::HandlerError, refusal.to_string()),
    })
}

fn hit(chunks: &[FoundChunk], at: &ChunkRef, score: f64) -> Option<Ranked> {
    let chunk = chunks.iter().find(|chunk| chunk.at == *at)?;
    Some(Ranked { chunk: chunk.clone(), score })
}
