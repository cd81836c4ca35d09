//! Ranking: exact vector search, and one list out of several.
//!
//! Everything here is deterministic: equal scores are ordered by id.

mod fusion;
mod vectors;

pub use fusion::{RankedList, fuse, vector_weight};
pub use vectors::{Hit, VectorError, decode_vector, decode_vector_into, encode_vector, top_k};
