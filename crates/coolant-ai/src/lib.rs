//! Coolant's AI side: cutting text into chunks, turning chunks into vectors, and ranking what is found.
//!
//! Nothing in here reads the environment or retries by itself.
//!
//! - [`chunk`]: sections of clean text to chunks of bounded size, with heading path, page and offset;
//! - [`embed`]: the embedders (local and over HTTP), what they answer and how they fail, and batches;
//! - [`terms`]: the one way text and queries become full-text terms;
//! - [`pipeline`]: reader, chunker and embedder under one name; [`index`]: the job `DOCUMENT_INDEX`;
//! - [`search`]: a question, candidates, one ranking;
//! - [`rank`]: exact vector search, the bytes of a vector, and reciprocal rank fusion.

mod bill;
pub mod chunk;
pub mod embed;
mod failure;
mod in_flight;
pub mod index;
pub mod pipeline;
pub mod rank;
pub mod search;
mod secret;
pub mod terms;

pub use secret::Secret;
