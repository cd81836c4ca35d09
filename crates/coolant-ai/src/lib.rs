//! Coolant's AI side: cutting text into chunks, turning chunks into vectors, and ranking what is found.
//!
//! Nothing in here knows a store, a job or a permit: a caller wraps every paid call
//! ([`embed::Embedder::upstream`] is `Some`) in a permit and a ledger row, and decides about retries.
//! Nothing in here reads the environment or retries by itself.
//!
//! - [`chunk`]: sections of clean text to chunks of bounded size, with heading path, page and offset;
//! - [`embed`]: the embedders (local and over HTTP), what they answer and how they fail, and batches;
//! - [`terms`]: the one way text and queries become full-text terms;
//! - [`rank`]: exact vector search, the bytes of a vector, and reciprocal rank fusion.

pub mod chunk;
pub mod embed;
pub mod rank;
mod secret;
pub mod terms;

pub use secret::Secret;
