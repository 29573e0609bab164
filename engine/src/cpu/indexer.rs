//! Scores of compressed rows for eight indexer heads at a time, and the best of them.
//!
//! Promises: the bytes and the choice of `reference::indexer`.

use std::cmp::Ordering;

use super::lanes::{LANES, Lane, dots, transpose};
use crate::reference::order::{FP4_BLOCK, fma, with_fma};
use crate::rows::Rows;

/// Scores of the first `visible` rows for one token; `queries` holds the heads one after the other.
#[must_use]
pub fn scores(queries: &[f32], weights: &[f32], rows: &Rows, visible: usize) -> Vec<f32> {
    let mut scores = vec![0.0; visible];
    let mut lanes = Vec::new();
    let heads = queries.chunks(LANES * rows.width()).zip(weights.chunks(LANES));
    for (queries, weights) in heads {
        transpose(queries, rows.width(), &mut lanes);
        // ORDER: heads in index order.
        add_heads(&lanes, weights, rows, &mut scores);
    }
    scores
}

with_fma! {
    fn add_heads(queries: &[Lane], weights: &[f32], rows: &Rows, scores: &mut [f32]) {
        for (score, row) in scores.iter_mut().zip(rows.iter()) {
            let products = dots::<FP4_BLOCK>(queries, row);
            for (product, weight) in products.iter().zip(weights) {
                *score = fma(product.max(0.0), *weight, *score);
            }
        }
    }
}

/// The indices of the `count` largest scores, ascending; lower index first among equals.
#[must_use]
pub fn choose(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    if count < order.len() {
        let larger_first = |a: &usize, b: &usize| {
            scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
        };
        order.select_nth_unstable_by(count, larger_first);
        order.truncate(count);
        order.sort_unstable();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn equal_scores_go_to_the_lower_row_whatever_their_number() {
        // 100 distinct positive scores among zeros: all of them, then the lowest rows.
        let mut scores = vec![0.0_f32; 2048];
        (0..100).for_each(|i| scores[2047 - 20 * i] = 1.0 + i as f32);
        let chosen = choose(&scores, 512);
        let mut expected: Vec<usize> = (0..100).map(|i| 2047 - 20 * i).collect();
        expected.extend((0..2048).filter(|i| scores[*i] == 0.0).take(412));
        expected.sort_unstable();
        assert_eq!(chosen, expected);
        for count in [1, 2, 100, 2047, 2048, 4000] {
            let reference = crate::reference::indexer::choose(&scores, count);
            assert_eq!(choose(&scores, count), reference, "{count} rows");
        }
    }
}
