//! A store of documents under test, and short words for what is done with it.

use std::sync::Arc;

use coolant_backends::SqlStore;
use coolant_core::documents::{
    ChunkRef, DocumentStore, FinishedStep, HashedVector, NewChunk, NewDocument, Publication, PutOutcome,
    SearchCandidates, SearchRequest, SearchTerm, VectorBatch,
};
use coolant_core::job::{JobId, LeaseToken};
use coolant_core::lifecycle::Refusal;
use coolant_core::names::{DocumentId, Queue, Tenant};
use coolant_core::store::{ClaimRequest, Store};
use uuid::Uuid;

use super::jobs::{claim_of, job_with, submitted};

pub(crate) const MODEL: &str = "it's a \\ model";

/// A tenant's documents in a store.
#[derive(Clone)]
pub(crate) struct Documents {
    pub(crate) store: Arc<SqlStore>,
    pub(crate) tenant: Tenant,
}

/// What a chunk says, as terms, and its vector.
pub(crate) type Text<'a> = (&'a str, &'a [f32]);

pub(crate) fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0_u8; 32];
    for (n, byte) in text.bytes().enumerate() {
        hash[n % 32] = hash[n % 32].wrapping_mul(31).wrapping_add(byte);
    }
    hash
}

pub(crate) fn id(name: &str) -> DocumentId {
    DocumentId::parse(name).unwrap()
}

impl Documents {
    pub(crate) fn of(&self, tenant: &str) -> Self {
        Self { tenant: Tenant::parse(tenant).unwrap(), ..self.clone() }
    }

    pub(crate) async fn put(&self, name: &str, bytes: &str) -> PutOutcome {
        let document = NewDocument {
            tenant: self.tenant.clone(),
            id: id(name),
            bytes: bytes.into(),
            content_type: None,
            filename: None,
        };
        self.store.put_document(document).await.unwrap()
    }

    /// A claimed job: whoever has it may publish.
    pub(crate) async fn lease(&self) -> (JobId, LeaseToken) {
        let queue = Queue::parse(Uuid::now_v7().to_string()).unwrap();
        let job = job_with(|spec| (spec.queue, spec.tenant) = (queue.clone(), self.tenant.clone()));
        let id = submitted(&self.store, job).await;
        let request = ClaimRequest { queues: vec![queue], ..claim_of(1) };
        (id, self.store.claim(request).await.unwrap()[0].lease.token)
    }

    pub(crate) fn batch(&self, texts: &[Text<'_>], step: Option<FinishedStep>) -> VectorBatch {
        let vectors = texts
            .iter()
            .map(|(text, vector)| HashedVector { hash: hash(text), vector: vector.to_vec() })
            .collect();
        VectorBatch { tenant: self.tenant.clone(), model: MODEL.into(), vectors, step }
    }

    pub(crate) fn publication(
        &self,
        name: &str,
        version: i64,
        texts: &[Text<'_>],
        lease: (JobId, LeaseToken),
    ) -> Publication {
        let chunks = texts.iter().map(|(text, _)| NewChunk {
            hash: hash(text),
            text: format!("{name} v{version}: {text}"),
            terms: (*text).into(),
            heading: Some("Guide".into()),
            page: Some(1),
        });
        Publication {
            tenant: self.tenant.clone(),
            id: id(name),
            version,
            pipeline: "p".into(),
            model: MODEL.into(),
            chunks: chunks.collect(),
            lease,
        }
    }

    /// Keeps a version and publishes it. Gives its number.
    pub(crate) async fn add(&self, name: &str, texts: &[Text<'_>]) -> i64 {
        let version = self.put(name, &Uuid::now_v7().to_string()).await.version.version;
        self.store.save_vectors(self.batch(texts, None)).await.unwrap().unwrap();
        self.publish(name, version, texts).await.unwrap();
        version
    }

    pub(crate) async fn publish(&self, name: &str, version: i64, texts: &[Text<'_>]) -> Result<(), Refusal> {
        let lease = self.lease().await;
        self.store.publish(self.publication(name, version, texts, lease)).await.unwrap()
    }

    /// Brings the index up to date, if there is one.
    pub(crate) async fn tend(&self) {
        while self.store.tend_index().await.unwrap() {}
    }

    pub(crate) fn request(&self, terms: &[&str], vector: Option<&[f32]>) -> SearchRequest {
        SearchRequest {
            tenant: self.tenant.clone(),
            document_id: None,
            terms: terms
                .iter()
                .map(|term| match term.strip_suffix('*') {
                    Some(text) => SearchTerm { text: text.into(), prefix: true },
                    None => SearchTerm { text: (*term).into(), prefix: false },
                })
                .collect(),
            vector: vector.map(|vector| (MODEL.into(), vector.to_vec())),
            candidates: 10,
        }
    }

    /// Searches, and once more after the index was brought up to date: the answers are the same.
    pub(crate) async fn search(&self, request: SearchRequest) -> SearchCandidates {
        let before = self.store.search(request.clone()).await.unwrap();
        self.tend().await;
        let after = self.store.search(request).await.unwrap();
        assert_eq!(places(&before.by_text), places(&after.by_text));
        assert_eq!(places(&before.by_vector), places(&after.by_vector));
        after
    }

    pub(crate) async fn by_words(&self, terms: &[&str]) -> Vec<String> {
        places(&self.search(self.request(terms, None)).await.by_text)
    }

    pub(crate) async fn by_vector(&self, vector: &[f32]) -> Vec<String> {
        places(&self.search(self.request(&[], Some(vector))).await.by_vector)
    }
}

/// `document:chunk`, short to compare.
pub(crate) fn places(refs: &[ChunkRef]) -> Vec<String> {
    refs.iter().map(|at| format!("{}:{}", at.document_id, at.chunk)).collect()
}

/// Vectors with no pattern, the same every time for a seed.
pub(crate) fn random_vectors(seed: u64, count: usize, dimensions: usize) -> Vec<Vec<f32>> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut number = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| (0..dimensions).map(|_| number()).collect()).collect()
}

pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Numbers of the vectors nearest to a question, best first.
pub(crate) fn nearest(all: &[Vec<f32>], question: &[f32], count: usize) -> Vec<usize> {
    let mut scored: Vec<(f32, usize)> =
        all.iter().enumerate().map(|(n, vector)| (cosine(vector, question), n)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(count).map(|(_, n)| n).collect()
}
