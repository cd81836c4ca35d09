//! Embedders: text to vectors, on this machine or at a provider that wants money for it.
//!
//! Always true:
//! - an answer is all right or it is an error: as many vectors as inputs, in the order of the inputs, all
//!   of one dimension, every number finite, no vector all zero;
//! - one call of [`Embedder::embed`] is at most one HTTP request: nothing is retried in here;
//! - an error carries what the provider said ([`EmbedError::evidence`]) and never the key.
//!
//! Elsewhere: permits, ledger and retries (the caller), what evidence means (`coolant_core::evidence`).

mod batch;
mod error;
mod lexical;
mod openai;
mod settings;

use async_trait::async_trait;
use serde_json::Value;

pub use self::batch::{BatchLimits, batches, provider_limits};
pub use self::error::{EmbedError, InvalidOutput, Phase, Timer, TransportFault};
pub use self::lexical::Lexical1;
pub use self::openai::{OpenAiEmbedder, install_tls_provider};
pub use self::settings::{EmbeddingSettings, InvalidSettings, Timeouts, build};

/// Which vectors can be compared with each other: those of one provider, model and dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelId {
    /// Short name of who runs it, such as `openai` or `local`, or the host of an unknown one.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
    /// Numbers a vector; `None` as long as nobody has said so. A caller pins the dimension of the first
    /// answer, as every later one must match.
    pub dimension: Option<u32>,
}

impl ModelId {
    /// The model's part of a pipeline fingerprint: `embed=openai/text-embedding-3-small@1536`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let dimension = self.dimension.map_or_else(|| "?".to_owned(), |dimension| dimension.to_string());
        format!("embed={}/{}@{dimension}", self.provider, self.model)
    }
}

/// What the vectors of an embedder know, and so how much they count in a ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbedderClass {
    /// Spelling only.
    Lexical,
    /// Meaning.
    Semantic,
}

/// What a call used up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the inputs.
    pub input_tokens: u64,
    /// `true`: the provider did not say, and `input_tokens` is our own estimate.
    pub estimated: bool,
    /// The provider's own words, for the ledger.
    pub reported: Option<Value>,
}

/// The answer to one call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Embeddings {
    /// One vector for each input, in their order.
    pub vectors: Vec<Vec<f32>>,
    /// What the call used up.
    pub usage: Usage,
    /// The model that answered, if the provider says so; it may be more precise than the one asked for.
    pub model: Option<String>,
    /// The answer's headers in lower case: rate limits come with successes too.
    pub headers: Vec<(String, String)>,
}

impl Embeddings {
    /// Numbers a vector, for the caller to pin; `None` if there were no inputs.
    #[must_use]
    pub fn dimension(&self) -> Option<usize> {
        self.vectors.first().map(Vec::len)
    }
}

/// Turns texts into vectors.
#[async_trait]
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// What the vectors are of.
    fn id(&self) -> &ModelId;

    /// What the vectors know.
    fn class(&self) -> EmbedderClass;

    /// The upstream to ask for a permit, `{provider}/{model}`; `None` if a call costs nothing and leaves
    /// nothing to wait for.
    fn upstream(&self) -> Option<&str>;

    /// How much one call takes.
    fn batch_limits(&self) -> BatchLimits;

    /// Embeds the inputs, in at most one request. No inputs cost no request.
    ///
    /// # Errors
    ///
    /// See [`EmbedError`]. Nothing of a wrong answer is returned, but it has been paid for:
    /// [`EmbedError::usage`]. If [`EmbedError::is_batch_too_large`], send the halves.
    async fn embed(&self, inputs: &[String]) -> Result<Embeddings, EmbedError>;
}
