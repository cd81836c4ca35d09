//! Vectors in bytes, and the exact scan over them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A stored vector, or a query, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VectorError {
    /// Another model's vector, or a damaged one.
    #[error("a vector of `{found}` numbers where `{expected}` are wanted")]
    WrongDimension {
        /// What the query or the model has.
        expected: usize,
        /// What was found.
        found: usize,
    },
    /// The bytes are not a whole number of floats.
    #[error("`{bytes}` bytes are no vector")]
    Torn {
        /// How many there are.
        bytes: usize,
    },
    /// A number is infinite or NaN.
    #[error("number `{index}` of a vector is not finite")]
    NotFinite {
        /// Its place.
        index: usize,
    },
}

/// The vector as IEEE 754 singles, little endian, 4 bytes each.
#[must_use]
pub fn encode_vector(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Reads back what [`encode_vector`] wrote.
///
/// # Errors
///
/// If the bytes are not `dimension` finite numbers.
pub fn decode_vector(bytes: &[u8], dimension: usize) -> Result<Vec<f32>, VectorError> {
    let mut vector = Vec::with_capacity(dimension);
    decode_vector_into(bytes, dimension, &mut vector)?;
    Ok(vector)
}

/// [`decode_vector`] into a buffer that a scan uses again and again; what it held is dropped.
///
/// # Errors
///
/// As [`decode_vector`]; the buffer is then empty.
pub fn decode_vector_into(bytes: &[u8], dimension: usize, into: &mut Vec<f32>) -> Result<(), VectorError> {
    into.clear();
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(VectorError::Torn { bytes: bytes.len() });
    }
    if numbers.len() != dimension {
        return Err(VectorError::WrongDimension { expected: dimension, found: numbers.len() });
    }
    into.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
    if let Some(index) = into.iter().position(|x| !x.is_finite()) {
        into.clear();
        return Err(VectorError::NotFinite { index });
    }
    Ok(())
}

/// One result of a scan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit<Id> {
    /// What was found.
    pub id: Id,
    /// Cosine similarity, -1 to 1.
    pub score: f32,
}

impl<Id: Ord> Eq for Hit<Id> {}

impl<Id: Ord> PartialOrd for Hit<Id> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<Id: Ord> Ord for Hit<Id> {
    /// The better hit is less, so that the top of a heap is its worst.
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.id.cmp(&other.id))
    }
}

/// The `k` vectors nearest to the query by cosine, best first, ids of equal score in ascending order.
/// Looks at every vector once; a vector of zeros has score 0.
///
/// # Errors
///
/// If a vector has another dimension than the query, or the query has a number that is not finite.
pub fn top_k<'a, Id: Ord>(
    query: &[f32],
    vectors: impl IntoIterator<Item = (Id, &'a [f32])>,
    k: usize,
) -> Result<Vec<Hit<Id>>, VectorError> {
    if let Some(index) = query.iter().position(|x| !x.is_finite()) {
        return Err(VectorError::NotFinite { index });
    }
    let query_norm = dot_and_norm(query, query).1.sqrt();
    let mut best = BinaryHeap::new();
    for (id, vector) in vectors {
        if vector.len() != query.len() {
            return Err(VectorError::WrongDimension { expected: query.len(), found: vector.len() });
        }
        let (dot, norm) = dot_and_norm(query, vector);
        let score = dot / (query_norm * norm.sqrt());
        // Zeros have no direction, and sums of huge numbers overflow: neither may come out on top.
        let score = if score.is_finite() { score } else { 0.0 };
        best.push(Hit { id, score });
        if best.len() > k {
            best.pop();
        }
    }
    Ok(best.into_sorted_vec())
}

/// The dot product, and the square of the length of `b`.
fn dot_and_norm(a: &[f32], b: &[f32]) -> (f32, f32) {
    // Sixteen sums side by side: one sum alone waits for each addition and cannot be vectorised, as the
    // compiler may not reorder floats. The order is fixed, so the result is the same everywhere.
    const LANES: usize = 16;
    let (mut dots, mut norms) = ([0.0_f32; LANES], [0.0_f32; LANES]);
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            dots[lane] += x[lane] * y[lane];
            norms[lane] += y[lane] * y[lane];
        }
    }
    let rest_dot: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    let rest_norm: f32 = b_rest.iter().map(|y| y * y).sum();
    (dots.iter().sum::<f32>() + rest_dot, norms.iter().sum::<f32>() + rest_norm)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_come_first_and_equals_by_id() {
        let stored = [
            (3, [1.0_f32, 0.0].as_slice()),
            (1, &[2.0, 0.0]),
            (2, &[0.0, 1.0]),
            (4, &[-1.0, 0.0]),
            (5, &[0.0, 0.0]),
        ];
        let hits = top_k(&[5.0, 0.0], stored, 4).unwrap();
        let found: Vec<(i32, f32)> = hits.iter().map(|hit| (hit.id, hit.score)).collect();
        assert_eq!(found, [(1, 1.0), (3, 1.0), (2, 0.0), (5, 0.0)]);
        assert_eq!(top_k(&[5.0, 0.0], stored, 0).unwrap(), []);
    }

    #[test]
    fn vectors_of_another_model_are_refused() {
        let wrong = VectorError::WrongDimension { expected: 2, found: 1 };
        assert_eq!(top_k(&[1.0, 0.0], [(1, [1.0_f32].as_slice())], 1), Err(wrong.clone()));
        assert_eq!(decode_vector(&[0; 4], 2), Err(wrong));
        assert_eq!(decode_vector(&[0; 7], 2), Err(VectorError::Torn { bytes: 7 }));
        let nan = encode_vector(&[1.0, f32::NAN]);
        assert_eq!(decode_vector(&nan, 2), Err(VectorError::NotFinite { index: 1 }));
        assert_eq!(
            top_k(&[f32::NAN], [(1, [1.0_f32].as_slice())], 1),
            Err(VectorError::NotFinite { index: 0 })
        );
    }

    #[test]
    fn the_bytes_are_little_endian() {
        assert_eq!(encode_vector(&[1.0, -2.5]), [0, 0, 128, 63, 0, 0, 32, 192]);
    }

    proptest! {
        #[test]
        fn bytes_read_back(vector in prop::collection::vec(-1e30_f32..1e30, 0..50)) {
            prop_assert_eq!(decode_vector(&encode_vector(&vector), vector.len()), Ok(vector));
        }

        #[test]
        fn the_scan_is_a_full_sort_cut_at_k(
            query in prop::collection::vec(-1.0_f32..1.0, 37),
            vectors in prop::collection::vec(prop::collection::vec(-1.0_f32..1.0, 37), 0..40),
            k in 0_usize..50,
        ) {
            let items = || vectors.iter().map(Vec::as_slice).enumerate();
            let mut all = top_k(&query, items(), usize::MAX).unwrap();
            prop_assert!(all.is_sorted_by(|a, b| a.score >= b.score));
            prop_assert!(all.iter().all(|hit| hit.score.abs() <= 1.0 + 1e-5));
            all.truncate(k);
            prop_assert_eq!(top_k(&query, items(), k).unwrap(), all);
        }
    }
}
