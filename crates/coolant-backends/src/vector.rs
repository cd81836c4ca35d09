//! Vectors as bytes, and the best of many by an exact scan.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A vector as little-endian 32-bit floats.
pub(crate) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The vector that [`to_bytes`] wrote.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The cosine of the angle between a vector and one kept as bytes, -1 to 1. `None` if they are not of one
/// dimension or one of them is zero.
pub(crate) fn similarity(query: &[f32], kept: &[u8]) -> Option<f32> {
    if kept.len() != query.len() * 4 {
        return None;
    }
    let (mut dot, mut of_query, mut of_kept) = (0.0_f32, 0.0_f32, 0.0_f32);
    for (x, bytes) in query.iter().zip(kept.chunks_exact(4)) {
        let y = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        dot += x * y;
        of_query += x * x;
        of_kept += y * y;
    }
    let length = (of_query * of_kept).sqrt();
    (length > 0.0).then(|| dot / length)
}

/// Something with a score; at equal scores the smaller thing is better, so that an order is the same every
/// time.
struct Scored<T>(f32, T);

impl<T: Ord> Ord for Scored<T> {
    /// Better is less.
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then_with(|| self.1.cmp(&other.1))
    }
}

impl<T: Ord> PartialOrd for Scored<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> PartialEq for Scored<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Ord> Eq for Scored<T> {}

/// The best of many, without keeping the rest.
pub(crate) struct Best<T> {
    room: usize,
    worst_first: BinaryHeap<Scored<T>>,
}

impl<T: Ord> Best<T> {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, worst_first: BinaryHeap::with_capacity(room + 1) }
    }

    pub(crate) fn offer(&mut self, score: f32, thing: T) {
        self.worst_first.push(Scored(score, thing));
        if self.worst_first.len() > self.room {
            self.worst_first.pop();
        }
    }

    /// Best first.
    pub(crate) fn into_sorted(self) -> Vec<(f32, T)> {
        self.worst_first.into_sorted_vec().into_iter().map(|Scored(score, thing)| (score, thing)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first_and_ties_have_one_order() {
        let mut best = Best::new(3);
        for (score, name) in [(0.1, "d"), (0.9, "b"), (0.9, "a"), (0.5, "c"), (0.2, "e")] {
            best.offer(score, name);
        }
        assert_eq!(best.into_sorted(), [(0.9, "a"), (0.9, "b"), (0.5, "c")]);
    }

    #[test]
    fn a_vector_of_another_dimension_is_no_match() {
        let kept = to_bytes(&[3.0, 4.0]);
        assert_eq!(similarity(&[3.0, 4.0], &kept), Some(1.0));
        assert_eq!(similarity(&[3.0], &kept), None);
        assert_eq!(similarity(&[0.0, 0.0], &kept), None);
    }
}
