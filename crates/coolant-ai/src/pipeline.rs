//! The pipeline: everything that decides what a document becomes in the index.

use std::sync::Arc;

use async_trait::async_trait;
use coolant_core::failure::Failure;
use coolant_core::prices::Prices;

use crate::chunk::{ChunkSettings, Chunker};
use crate::embed::Embedder;

/// A document as text: what a [`Reader`] makes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Whether the pages are Markdown, so that headings mean something.
    pub markdown: bool,
    /// What the bytes turned out to be: `pdf`, `html` and so on.
    pub format: String,
    /// Its pages in reading order, or one for a document that has none.
    pub pages: Vec<TextPage>,
    /// Unicode characters in all pages together.
    pub characters: u64,
}

/// A page of a [`Text`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPage {
    /// From 1, if the format has pages.
    pub number: Option<u32>,
    /// Clean text.
    pub text: String,
}

/// Turns files into text. What it does to hostile ones is its own affair; it ends within limits.
#[async_trait]
pub trait Reader: Send + Sync + 'static {
    /// Names everything in it that changes a document's text.
    fn version(&self) -> String;

    /// Reads a file.
    ///
    /// # Errors
    /// A failure with one of the `DOCUMENT_…` codes if the file is at fault.
    async fn read(
        &self,
        bytes: Vec<u8>,
        filename: Option<String>,
        content_type: Option<String>,
    ) -> Result<Text, Failure>;
}

/// Reader, chunker and embedder, and the name of them all.
pub struct Pipeline {
    pub(crate) reader: Arc<dyn Reader>,
    pub(crate) chunker: Chunker,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) prices: Prices,
}

impl Pipeline {
    /// A pipeline with chunks of the default size. Calls are booked at these prices.
    #[must_use]
    pub fn new(reader: Arc<dyn Reader>, embedder: Arc<dyn Embedder>, prices: Prices) -> Arc<Self> {
        Arc::new(Self { reader, chunker: Chunker::new(ChunkSettings::default()), embedder, prices })
    }

    /// What makes a vector: text that was cut in the same way and embedded by the same model has the same
    /// one, whatever read it.
    #[must_use]
    pub fn embedding_fingerprint(&self) -> String {
        self.embedder.id().fingerprint()
    }

    /// A short name of everything that changes the result, for keys: 16 hex digits.
    #[must_use]
    pub fn version(&self) -> String {
        let all = [self.reader.version(), self.chunker.fingerprint(), self.embedding_fingerprint()].join("|");
        blake3::hash(all.as_bytes()).to_hex().chars().take(16).collect()
    }

    /// The paid service it uses, if it uses one.
    #[must_use]
    pub fn upstream(&self) -> Option<&str> {
        self.embedder.upstream()
    }

    /// The embedder.
    #[must_use]
    pub fn embedder(&self) -> &Arc<dyn Embedder> {
        &self.embedder
    }
}
