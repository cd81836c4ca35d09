//! `DOCUMENT_INDEX`: parse, chunk, embed, publish.
//!
//! Always true:
//! - a vector is kept in the transaction that books its call, before the next call starts;
//! - a chunk whose content has a vector of the same model is not embedded again, whichever version or
//!   document of the tenant it came from, also if another job of this process embeds it just now;
//! - the new version is published whole, under the job's lease, and only with a vector for every chunk;
//! - in all jobs of a process together, no more inputs are in flight at a provider than one batch holds: a
//!   process that dies has at most one batch to pay again.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use coolant_core::documents::{
    ContentHash, DocumentStore, FinishedStep, HashedVector, NewChunk, Publication, VectorBatch,
};
use coolant_core::failure::FailureClass;
use coolant_core::handler::{Context, Handler, HandlerError, PaidCall};
use coolant_core::money::Usage;
use coolant_core::names::{DocumentId, Tenant};
use coolant_core::store::{Counter, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chunk::{Chunk, Section, chunk_hash};
use crate::embed::batches;
use crate::in_flight::InFlight;
use crate::pipeline::{Pipeline, Text};
use crate::terms;

/// Runs `DOCUMENT_INDEX`.
pub struct DocumentIndex {
    documents: Arc<dyn DocumentStore>,
    store: Arc<dyn Store>,
    pipeline: Arc<Pipeline>,
    in_flight: InFlight,
}

/// What to index.
#[derive(Debug, Deserialize)]
pub struct IndexPayload {
    document_id: String,
    version: i64,
    #[serde(default)]
    pipeline: Option<String>,
}

/// What was indexed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indexed {
    /// Chunks of the version.
    pub chunks: u64,
    /// Chunks that were embedded for it, over all attempts.
    pub embedded: u64,
    /// Chunks whose content had a vector already.
    pub reused: u64,
    /// Pages, or 1 for a document that has none.
    pub pages: u64,
    /// Unicode characters.
    pub characters: u64,
}

/// What the step `parse` keeps: not the text, which the same bytes give again for nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Parsed {
    format: String,
    pages: u64,
    characters: u64,
}

/// What the step of an embedding batch keeps: the vectors are in the index, under their content.
#[derive(Debug, Serialize, Deserialize)]
struct EmbeddedBatch {
    embedded: u64,
}

/// What became of a batch.
enum Batch {
    /// Its vectors are kept.
    Kept,
    /// The provider takes only fewer inputs at a time.
    TooLarge,
}

/// Names of embedding steps begin so.
const STEP: &str = "embed-";

#[async_trait]
impl Handler for DocumentIndex {
    type Payload = IndexPayload;
    type Output = Indexed;

    fn job_type(&self) -> &str {
        "DOCUMENT_INDEX"
    }

    async fn run(&self, ctx: &Context, payload: IndexPayload) -> Result<Indexed, HandlerError> {
        let tenant = ctx.record().job.spec.tenant.clone();
        let id = DocumentId::parse(payload.document_id.clone()).map_err(invalid)?;
        if payload.pipeline.as_deref().is_some_and(|name| name != "default") {
            return Err(invalid("`pipeline` takes only `default`"));
        }
        let text = self.read(ctx, &tenant, &id, payload.version).await?;
        let pages = text.pages.len() as u64;
        let characters = text.characters;
        let chunks = self.chunks(text).await?;
        let embedded = self.embed(ctx, &tenant, &chunks).await?;
        let count = chunks.len() as u64;
        self.publish(ctx, tenant, id, payload.version, chunks).await?;
        ctx.progress(count, Some(count), "chunks");
        let embedded = embedded.min(count);
        Ok(Indexed { chunks: count, embedded, reused: count - embedded, pages, characters })
    }
}

fn invalid(reason: impl std::fmt::Display) -> HandlerError {
    HandlerError::failed(FailureClass::InvalidRequest, "INVALID_PAYLOAD", reason)
}

/// A chunk on its way into the index.
struct Prepared {
    chunk: Chunk,
    hash: ContentHash,
}

impl DocumentIndex {
    /// A handler over that store of documents; what it saves is counted in the store of jobs.
    #[must_use]
    pub fn new(documents: Arc<dyn DocumentStore>, store: Arc<dyn Store>, pipeline: Arc<Pipeline>) -> Self {
        let in_flight = InFlight::new(pipeline.embedder.batch_limits().items);
        Self { documents, store, pipeline, in_flight }
    }

    async fn read(
        &self,
        ctx: &Context,
        tenant: &Tenant,
        id: &DocumentId,
        version: i64,
    ) -> Result<Text, HandlerError> {
        let Some((about, bytes)) = self.documents.source(tenant, id, version).await? else {
            let message = format!("version {version} of the document is not there, or was deleted");
            return Err(HandlerError::failed(FailureClass::InvalidRequest, "DOCUMENT_NOT_FOUND", message));
        };
        let text = self.pipeline.reader.read(bytes, about.filename, about.content_type).await?;
        let parsed = Parsed {
            format: text.format.clone(),
            pages: text.pages.len() as u64,
            characters: text.characters,
        };
        ctx.step("parse", async || Ok(parsed.clone())).await?;
        Ok(text)
    }

    async fn chunks(&self, text: Text) -> Result<Vec<Prepared>, HandlerError> {
        let pipeline = Arc::clone(&self.pipeline);
        // A long document keeps a core busy for a while; heartbeats and other jobs go on meanwhile.
        let prepared = tokio::task::spawn_blocking(move || {
            let sections: Vec<Section<'_>> = text
                .pages
                .iter()
                .map(|page| Section { page: page.number, markdown: text.markdown, text: &page.text })
                .collect();
            let fingerprint = pipeline.embedding_fingerprint();
            pipeline
                .chunker
                .chunk(&sections)
                .into_iter()
                .map(|chunk| Prepared { hash: chunk_hash(&fingerprint, &chunk.text), chunk })
                .collect::<Vec<_>>()
        });
        let prepared = prepared.await?;
        if prepared.is_empty() {
            let message = "the document holds no text";
            return Err(HandlerError::failed(FailureClass::InvalidDocument, "DOCUMENT_NO_TEXT", message));
        }
        Ok(prepared)
    }

    /// Sees to it that every chunk has a vector; gives how many were made for this job, over all attempts.
    async fn embed(&self, ctx: &Context, tenant: &Tenant, chunks: &[Prepared]) -> Result<u64, HandlerError> {
        let mut embedded: u64 = ctx
            .finished_steps()
            .iter()
            .filter(|(name, _)| name.starts_with(STEP))
            .filter_map(|(_, output)| EmbeddedBatch::deserialize(output).ok())
            .map(|batch| batch.embedded)
            .sum();
        let total = chunks.len() as u64;
        let mut seen = HashSet::new();
        let each: Vec<&Prepared> = chunks.iter().filter(|prepared| seen.insert(prepared.hash)).collect();
        let tokens =
            |chunks: &[&Prepared]| chunks.iter().map(|prepared| u64::from(prepared.chunk.tokens)).sum();
        let all: u64 = tokens(&each);
        let mut missing = self.unknown(tenant, each).await?;
        self.count_known(ctx, all - tokens(&missing)).await;
        let mut left = missing.len();
        // Once for the chunks that are this job's to embed, then for those that another one had in flight.
        while !missing.is_empty() {
            let mut elsewhere = Vec::new();
            let tokens: Vec<u32> = missing.iter().map(|prepared| prepared.chunk.tokens).collect();
            for range in batches(&tokens, self.pipeline.embedder.batch_limits()) {
                let batch = &missing[range];
                ctx.progress(total - left as u64, Some(total), "chunks");
                let (made, others) = self.embed_batch(ctx, tenant, batch).await?;
                embedded += made;
                left -= batch.len() - others.len();
                elsewhere.extend(others);
            }
            self.in_flight.gone(tenant, &hashes(&elsewhere)).await;
            missing = self.unknown(tenant, elsewhere).await?;
            left = missing.len();
        }
        Ok(embedded)
    }

    /// Counts what need not be paid, since its content has vectors already. What an earlier attempt of this
    /// very job made has been counted with its steps.
    async fn count_known(&self, ctx: &Context, tokens: u64) {
        let is_first = ctx.lease().1.0 == 1;
        let Some(worth) = self.pipeline.worth(tokens).filter(|worth| is_first && worth.as_nanos() > 0) else {
            return;
        };
        let queue = ctx.record().job.spec.queue.clone();
        if let Err(error) = self.store.count(vec![(Counter::SavedByContent, queue, worth.as_nanos())]).await {
            tracing::debug!(%error, "what the index saved was not counted");
        }
    }

    /// Those of the chunks whose content has no vector yet.
    async fn unknown<'a>(
        &self,
        tenant: &Tenant,
        mut chunks: Vec<&'a Prepared>,
    ) -> Result<Vec<&'a Prepared>, HandlerError> {
        let model = self.pipeline.embedding_fingerprint();
        let known = self.documents.known_vectors(tenant, &model, &hashes(&chunks)).await?;
        let known: HashSet<ContentHash> = known.into_iter().collect();
        chunks.retain(|prepared| !known.contains(&prepared.hash));
        Ok(chunks)
    }

    /// Embeds some chunks in one call, or in halves where the provider finds them too many. Gives how many
    /// it embedded, and those that another job has in flight.
    async fn embed_batch<'a>(
        &self,
        ctx: &Context,
        tenant: &Tenant,
        batch: &[&'a Prepared],
    ) -> Result<(u64, Vec<&'a Prepared>), HandlerError> {
        // Held until the vectors are kept: only then is the batch out of danger.
        let room = self.in_flight.room(batch.len()).await?;
        let taken = self.in_flight.take(tenant, &hashes(batch));
        let ours: HashSet<ContentHash> = taken.hashes().into_iter().collect();
        let (ours, others): (Vec<_>, Vec<_>) =
            batch.iter().copied().partition(|prepared| ours.contains(&prepared.hash));
        // Another job may have finished some of them since they were looked up.
        let ours = self.unknown(tenant, ours).await?;
        let mut waiting = vec![ours.as_slice()];
        while let Some(batch) = waiting.pop().filter(|batch| !batch.is_empty()) {
            match self.pay(ctx, tenant, batch).await? {
                Batch::Kept => {}
                Batch::TooLarge => {
                    let (first, second) = batch.split_at(batch.len() / 2);
                    waiting.extend([second, first]);
                }
            }
        }
        drop((taken, room));
        Ok((ours.len() as u64, others))
    }

    /// One call of the embedder under a permit, if it costs anything, and its vectors kept.
    async fn pay(&self, ctx: &Context, tenant: &Tenant, batch: &[&Prepared]) -> Result<Batch, HandlerError> {
        let inputs: Vec<String> = batch.iter().map(|prepared| prepared.chunk.text.clone()).collect();
        let step = format!("{STEP}{}", digest(batch));
        let mut call = match self.pipeline.upstream() {
            Some(upstream) => {
                let tokens = batch.iter().map(|prepared| u64::from(prepared.chunk.tokens)).sum();
                let call = PaidCall::new(&step, upstream).embeddings().tokens(tokens, 0);
                Some(ctx.begin_call(call).await?)
            }
            None => None,
        };
        match self.pipeline.embedder.embed(&inputs).await {
            Ok(answer) => {
                let usage = self.pipeline.bill(&answer.usage, answer.model);
                let usage = call.as_mut().map(|call| call.answered(usage, answer.headers));
                self.keep(ctx, tenant, batch, answer.vectors, (step, usage)).await?;
                if let Some(call) = call {
                    call.kept();
                }
                Ok(Batch::Kept)
            }
            Err(error) => {
                let failure = self.pipeline.failed(call, &error, &inputs).await;
                let splits = error.is_batch_too_large() && batch.len() > 1;
                if splits { Ok(Batch::TooLarge) } else { Err(failure.into()) }
            }
        }
    }

    async fn keep(
        &self,
        ctx: &Context,
        tenant: &Tenant,
        batch: &[&Prepared],
        vectors: Vec<Vec<f32>>,
        (step, usage): (String, Option<Usage>),
    ) -> Result<(), HandlerError> {
        let step = FinishedStep {
            lease: ctx.lease(),
            name: step,
            output: json!(EmbeddedBatch { embedded: batch.len() as u64 }),
            usage: usage.into_iter().collect(),
        };
        let vectors = batch
            .iter()
            .zip(vectors)
            .map(|(prepared, vector)| HashedVector { hash: prepared.hash, vector })
            .collect();
        let batch = VectorBatch {
            tenant: tenant.clone(),
            model: self.pipeline.embedding_fingerprint(),
            vectors,
            step: Some(step),
        };
        loop {
            match self.documents.save_vectors(batch.clone()).await {
                Ok(kept) => return kept.map_err(HandlerError::Gone),
                Err(error) => ctx.outlast(error).await?,
            }
        }
    }

    async fn publish(
        &self,
        ctx: &Context,
        tenant: Tenant,
        id: DocumentId,
        version: i64,
        chunks: Vec<Prepared>,
    ) -> Result<(), HandlerError> {
        let chunks = chunks
            .into_iter()
            .map(|Prepared { chunk, hash }| NewChunk {
                hash,
                terms: terms::index_text(&searchable(&chunk)),
                text: chunk.text,
                heading: chunk.heading,
                page: chunk.page,
            })
            .collect();
        let publication = Publication {
            tenant,
            id,
            version,
            pipeline: self.pipeline.version(),
            model: self.pipeline.embedding_fingerprint(),
            chunks,
            lease: ctx.lease(),
        };
        loop {
            match self.documents.publish(publication.clone()).await {
                Ok(published) => return published.map_err(HandlerError::Gone),
                Err(error) => ctx.outlast(error).await?,
            }
        }
    }
}

fn hashes(chunks: &[&Prepared]) -> Vec<ContentHash> {
    chunks.iter().map(|prepared| prepared.hash).collect()
}

/// A short name of the contents of a batch.
fn digest(batch: &[&Prepared]) -> String {
    blake3::hash(&hashes(batch).concat()).to_hex()[..16].to_owned()
}

/// What full text search finds a chunk by: the headings above it, too, where it does not begin with them.
fn searchable(chunk: &Chunk) -> String {
    match &chunk.heading {
        Some(heading) => format!("{heading}\n{}", chunk.text),
        None => chunk.text.clone(),
    }
}
