//! Ranking: one list out of several.
//!
//! Everything here is deterministic: equal scores are ordered by id.

mod fusion;

pub use fusion::{RankedList, fuse, vector_weight};
