//! Vectors as bytes, and the best of many by an exact scan.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A vector as little-endian 32-bit floats.
pub(crate) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The vector that [`to_bytes`] wrote.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The cosine of the angle between a vector and one kept as bytes, -1 to 1. `None` if they are not of one
/// dimension or one of them is zero.
pub(crate) fn similarity(query: &[f32], kept: &[u8]) -> Option<f32> {
    let (kept, rest) = kept.as_chunks::<4>();
    if kept.len() != query.len() || !rest.is_empty() {
        return None;
    }
    let [dot, of_query, of_kept] = products(query, kept);
    let length = (of_query * of_kept).sqrt();
    (length > 0.0).then(|| dot / length)
}

/// The dot product of two vectors, and the squares of their lengths.
fn products(a: &[f32], b: &[[u8; 4]]) -> [f32; 3] {
    // Sums side by side: one sum alone waits for each addition, and no compiler may reorder floats. The
    // order is fixed, so a score is the same on every machine.
    const LANES: usize = 16;
    let mut sums = [[0.0_f32; LANES]; 3];
    let mut add = |lane: usize, x: f32, y: f32| {
        sums[0][lane] += x * y;
        sums[1][lane] += x * x;
        sums[2][lane] += y * y;
    };
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a.iter().zip(b) {
        for lane in 0..LANES {
            add(lane, x[lane], f32::from_le_bytes(y[lane]));
        }
    }
    for (lane, (x, y)) in a_rest.iter().zip(b_rest).enumerate() {
        add(lane, *x, f32::from_le_bytes(*y));
    }
    sums.map(|lanes| lanes.iter().sum())
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
    fn the_cosine_is_that_of_the_definition_at_any_dimension() {
        for dimension in [1, 15, 16, 17, 512, 1000] {
            let a: Vec<f32> = (0..dimension).map(|n| ((n * 7 % 13) as f32) - 5.5).collect();
            let b: Vec<f32> = (0..dimension).map(|n| ((n * 5 % 11) as f32) - 4.5).collect();
            let exact = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
            };
            let expected = exact(&a, &b) / (exact(&a, &a) * exact(&b, &b)).sqrt();
            let found = f64::from(similarity(&a, &to_bytes(&b)).unwrap());
            assert!((found - expected).abs() < 1e-5, "{dimension}: {found} is not {expected}");
        }
    }

    #[test]
    fn a_vector_of_another_dimension_is_no_match() {
        let kept = to_bytes(&[3.0, 4.0]);
        assert_eq!(similarity(&[3.0, 4.0], &kept), Some(1.0));
        assert_eq!(similarity(&[3.0], &kept), None);
        assert_eq!(similarity(&[3.0], &kept[..5]), None);
        assert_eq!(similarity(&[0.0, 0.0], &kept), None);
    }
}
