//! The indexer: which compressed rows of ratio 4 a token attends to.
//!
//! Promises: the score of a row is the sum over heads, in order, of `max(0, row . query) * weight`; the
//! rows kept are those of largest score, lower index first among equals, returned in ascending order, so
//! the way of selecting cannot be seen in a sum.

use std::cmp::Ordering;

use super::order::{dot_fp4, fma};
use crate::rows::Rows;

/// The factor of projected head weights: `1 / sqrt(heads * dim)`.
#[must_use]
pub fn weight_scale(heads: usize, dim: usize) -> f32 {
    1.0 / ((dim * heads) as f32).sqrt()
}

/// Scores of the first `visible` rows for one token; `queries` holds the heads one after the other.
#[must_use]
pub fn scores(queries: &[f32], weights: &[f32], rows: &Rows, visible: usize) -> Vec<f32> {
    let score = |row: &[f32]| {
        // ORDER: heads in index order.
        let heads = queries.chunks_exact(row.len()).zip(weights);
        heads.fold(0.0, |sum, (query, weight)| fma(dot_fp4(query, row).max(0.0), *weight, sum))
    };
    rows.iter().take(visible).map(score).collect()
}

/// The indices of the `count` largest scores, best first, lower index first among equals.
#[must_use]
pub fn best(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| {
        scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal).then(a.cmp(b))
    });
    order.truncate(count);
    order
}

/// The rows a token attends to, ascending.
#[must_use]
pub fn choose(scores: &[f32], count: usize) -> Vec<usize> {
    let mut chosen = best(scores, count);
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_go_to_the_lower_row_and_the_choice_is_ascending() {
        let scores = [1.0, 3.0, 2.0, 3.0, 2.0, -1.0];
        assert_eq!(best(&scores, 3), [1, 3, 2]);
        assert_eq!(choose(&scores, 3), [1, 2, 3]);
        assert_eq!(choose(&scores, 9), [0, 1, 2, 3, 4, 5]);
        assert_eq!(choose(&[0.0, -0.0, 0.0], 2), [0, 1]);
    }
}
