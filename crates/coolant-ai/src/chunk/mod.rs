//! Chunks: the pieces of a document that are embedded, searched and paid for one by one.
//!
//! Always true:
//! - the same sections and settings give the same chunks, on every machine;
//! - no chunk is empty or all space, and every other character of the input lies in exactly one chunk;
//! - a chunk is a slice of its section: `section.text[chunk.start..][..chunk.text.len()]`;
//! - a chunk never crosses a section, so it never loses its page, and never exceeds the maximum size;
//! - the time is linear in the length of the input (see `pieces`).
//!
//! Pages are not merged, not even tiny ones: a hit must be able to name its page. A document of 4,000
//! one-line pages is 4,000 chunks.
//!
//! Elsewhere: how text becomes clean (the parser), how long a batch may be (`embed`).

mod headings;
mod pieces;
mod tokens;

use text_splitter::{ChunkCapacity, ChunkConfig, MarkdownSplitter, TextSplitter};

use self::headings::Headings;
use self::tokens::Estimate;
pub use self::tokens::estimate_tokens;

/// Goes up with every change of what the chunker makes of the same input, an update of `text-splitter`
/// included: a test pins the chunks of a sample.
pub const CHUNKER_VERSION: u32 = 1;

/// One page of a document, or the whole of one that has no pages. The text is clean: see the parser.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    /// Page number from 1, if the format has pages.
    pub page: Option<u32>,
    /// Whether the text is Markdown, so that headings, lists and code blocks mean something.
    pub markdown: bool,
    /// The text itself.
    pub text: &'a str,
}

/// A part of one section, small enough to embed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Place in the document, from 0.
    pub ordinal: u32,
    /// The text, without space around it; Markdown of several lines keeps the indent of the first.
    pub text: String,
    /// The Markdown headings above it, outermost first, joined with ` > `.
    pub heading: Option<String>,
    /// The page of its section.
    pub page: Option<u32>,
    /// Byte offset into the text of its section.
    pub start: usize,
    /// [`estimate_tokens`] of the text.
    pub tokens: u32,
}

/// How large chunks are, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSettings {
    desired: u32,
    max: u32,
}

/// The sizes cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "chunk sizes `{desired}` to `{max}` tokens: want {} <= desired <= max <= {}",
    ChunkSettings::MIN_TOKENS,
    ChunkSettings::MAX_TOKENS
)]
pub struct InvalidChunkSettings {
    desired: u32,
    max: u32,
}

impl ChunkSettings {
    /// The smallest desired size. Far above one character, so that every character fits into a chunk.
    pub const MIN_TOKENS: u32 = 16;
    /// The largest maximum, so that a chunk is always smaller than a piece (see `pieces`).
    pub const MAX_TOKENS: u32 = 8192;

    /// A chunk is filled up to `desired` tokens, and further, up to `max`, if the next good place to
    /// cut lies there.
    ///
    /// # Errors
    ///
    /// If not `MIN_TOKENS <= desired <= max <= MAX_TOKENS`.
    pub fn new(desired: u32, max: u32) -> Result<Self, InvalidChunkSettings> {
        if (Self::MIN_TOKENS..=max).contains(&desired) && max <= Self::MAX_TOKENS {
            Ok(Self { desired, max })
        } else {
            Err(InvalidChunkSettings { desired, max })
        }
    }
}

impl Default for ChunkSettings {
    /// 300 to 512: the most that small local embedding models read is 512 tokens.
    fn default() -> Self {
        Self { desired: 300, max: 512 }
    }
}

/// Cuts documents into chunks. Make one and use it for many documents.
pub struct Chunker {
    settings: ChunkSettings,
    markdown: MarkdownSplitter<Estimate>,
    plain: TextSplitter<Estimate>,
}

impl Chunker {
    /// A chunker of these sizes.
    #[must_use]
    pub fn new(settings: ChunkSettings) -> Self {
        let config = || {
            let capacity = ChunkCapacity::new(settings.desired as usize)
                .with_max(settings.max as usize)
                .expect("ChunkSettings has desired <= max");
            ChunkConfig::new(capacity).with_sizer(Estimate)
        };
        Self { settings, markdown: MarkdownSplitter::new(config()), plain: TextSplitter::new(config()) }
    }

    /// The chunks of a document, given its sections in order.
    #[must_use]
    pub fn chunk(&self, sections: &[Section<'_>]) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        // A heading holds until the next one of its level, over the end of a section too.
        let mut headings = Headings::default();
        for section in sections {
            if section.markdown {
                headings.read(section.text);
            } else {
                headings = Headings::default();
            }
            for piece in pieces::cut(section.text, headings.starts(), self.max_run()) {
                self.split(section, piece.start, &section.text[piece], &headings, &mut chunks);
            }
        }
        chunks
    }

    /// Text that goes on without a break for longer than this is cut by length: about one chunk of it.
    fn max_run(&self) -> usize {
        self.settings.max as usize * 4
    }

    fn split(
        &self,
        section: &Section<'_>,
        offset: usize,
        piece: &str,
        headings: &Headings,
        into: &mut Vec<Chunk>,
    ) {
        let mut push = |(at, text): (usize, &str)| {
            let text_start = offset + at + (text.len() - text.trim_start().len());
            if !text.trim().is_empty() {
                into.push(Chunk {
                    ordinal: u32::try_from(into.len()).unwrap_or(u32::MAX),
                    text: text.to_owned(),
                    heading: headings.path_at(text_start).map(str::to_owned),
                    page: section.page,
                    start: offset + at,
                    tokens: estimate_tokens(text),
                });
            }
        };
        if section.markdown {
            self.markdown.chunk_indices(piece).for_each(&mut push);
        } else {
            self.plain.chunk_indices(piece).for_each(&mut push);
        }
    }

    /// The chunker's part of a pipeline fingerprint: version and settings, as `chunker=1,300..512`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("chunker={CHUNKER_VERSION},{}..{}", self.settings.desired, self.settings.max)
    }
}

/// The identity of a chunk's vector: what was embedded, and everything that shaped it.
///
/// The fingerprint names parser, cleaner, chunker ([`Chunker::fingerprint`]), provider, model and
/// dimension. Two chunks with the same hash have the same vector, so it is paid for once.
#[must_use]
pub fn chunk_hash(pipeline_fingerprint: &str, text: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("coolant 2026 chunk of a document, version 1");
    // The length keeps the two apart: ("a", "bc") is not ("ab", "c").
    hasher.update(&(pipeline_fingerprint.len() as u64).to_le_bytes());
    hasher.update(pipeline_fingerprint.as_bytes());
    hasher.update(text.as_bytes());
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests;
