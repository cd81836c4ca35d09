//! Reciprocal rank fusion.

use std::collections::BTreeMap;

use crate::embed::EmbedderClass;

/// The constant of the formula, from Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms
/// Condorcet and individual rank learning methods" (SIGIR 2009).
const K: f64 = 60.0;

/// One search's answer, best first.
#[derive(Debug, Clone, Copy)]
pub struct RankedList<'a, Id> {
    /// The ids; if one comes twice, its first place counts.
    pub ids: &'a [Id],
    /// How much the list counts: finite and at least 0; full text has 1.
    pub weight: f64,
}

/// The weight of a vector list beside full text of weight 1.
///
/// Equal weights drag a strong embedder down to the text search, and a lexical one sees little that the
/// text search does not. The two numbers are judgements, not measurements.
#[must_use]
pub fn vector_weight(class: EmbedderClass) -> f64 {
    match class {
        EmbedderClass::Lexical => 0.5,
        EmbedderClass::Semantic => 2.0,
    }
}

/// The best `limit` ids of all lists with their scores, best first: the sum over the lists of
/// `weight / (60 + rank)`, with ranks from 1. Ids of equal score come in ascending order.
#[must_use]
pub fn fuse<Id: Ord + Clone>(lists: &[RankedList<'_, Id>], limit: usize) -> Vec<(Id, f64)> {
    // A map in order of id, and sums in order of the lists: no result depends on a hash or a thread.
    let mut scores: BTreeMap<&Id, (usize, f64)> = BTreeMap::new();
    for (index, list) in lists.iter().enumerate() {
        for (rank, id) in (1_u32..).zip(list.ids) {
            let (lists_seen, score) = scores.entry(id).or_insert((0, 0.0));
            if *lists_seen <= index {
                *lists_seen = index + 1;
                *score += list.weight / (K + f64::from(rank));
            }
        }
    }
    let mut fused: Vec<(&Id, f64)> = scores.into_iter().map(|(id, (_, score))| (id, score)).collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1));
    fused.truncate(limit);
    fused.into_iter().map(|(id, score)| (id.clone(), score)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(ids: &[u32], weight: f64) -> RankedList<'_, u32> {
        RankedList { ids, weight }
    }

    #[test]
    fn an_id_of_both_lists_wins() {
        let fused = fuse(&[list(&[1, 2, 3], 1.0), list(&[4, 2], 1.0)], 10);
        assert_eq!(fused[0], (2, 1.0 / 62.0 + 1.0 / 62.0));
        assert_eq!(fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 1, 4, 3]);
    }

    #[test]
    fn a_heavier_list_leads_and_equal_scores_go_by_id() {
        let ids = |fused: Vec<(u32, f64)>| fused.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(fuse(&[list(&[9], 1.0), list(&[1], 1.0)], 2)), [1, 9]);
        assert_eq!(ids(fuse(&[list(&[9], 2.0), list(&[1], 1.0)], 2)), [9, 1]);
        assert_eq!(ids(fuse(&[list(&[5, 6, 6], 1.0)], 9)), [5, 6]);
        assert!(vector_weight(EmbedderClass::Lexical) < vector_weight(EmbedderClass::Semantic));
    }

    proptest! {
        #[test]
        fn fusion_keeps_every_id_once_in_order(
            a in prop::collection::vec(0_u32..30, 0..20),
            b in prop::collection::vec(0_u32..30, 0..20),
            limit in 0_usize..40,
        ) {
            let fused = fuse(&[list(&a, 1.0), list(&b, 0.5)], limit);
            let all: std::collections::BTreeSet<u32> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(fused.len(), all.len().min(limit));
            prop_assert!(fused.is_sorted_by(|x, y| x.1 > y.1 || (x.1 == y.1 && x.0 < y.0)));
        }
    }
}
