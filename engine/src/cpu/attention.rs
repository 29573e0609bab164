//! Attention of eight heads of a token at a time.
//!
//! Promises: the bytes of `reference::attention`. Scores of eight heads are eight lanes of one pass over a
//! key; a block of values of one head stays in registers over all keys of a chunk.

use super::lanes::{LANES, Lane, dots, transpose};
use crate::reference::attention::Keys;
use crate::reference::order::{SEGMENT, exp, fma, with_fma};

/// Values of a head that are summed in registers.
const BLOCK: usize = 64;

/// Attention of up to eight heads of one token over its keys; `queries` and `out` hold the heads one after
/// the other.
pub fn attend(queries: &[f32], keys: &Keys<'_>, sinks: &[f32], out: &mut [f32]) {
    let head_dim = queries.len() / sinks.len();
    let mut lanes = Vec::new();
    transpose(queries, head_dim, &mut lanes);
    let mut sink_lane = [0.0; LANES];
    sink_lane[..sinks.len()].copy_from_slice(sinks);
    let scale = 1.0 / (head_dim as f32).sqrt();
    let mut scores = Vec::new();
    let max = score(&lanes, keys, &sink_lane, scale, &mut scores);
    let denominator = weigh(&sink_lane, &max, keys, &mut scores);
    for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let weights: Vec<f32> = scores.iter().map(|score| score[head]).collect();
        sum(keys, &weights, denominator[head], out);
    }
}

with_fma! {
    /// Scaled scores of all keys; returns the largest of each head, sink included.
    fn score(queries: &[Lane], keys: &Keys<'_>, sinks: &Lane, scale: f32, scores: &mut Vec<Lane>) -> Lane {
        let mut max = *sinks;
        for key in keys.iter().flatten() {
            let mut lane = dots::<SEGMENT>(queries, key);
            for (max, score) in max.iter_mut().zip(&mut lane) {
                *score *= scale;
                *max = max.max(*score);
            }
            scores.push(lane);
        }
        max
    }
}

with_fma! {
    /// Turns scores into weights; returns the denominators.
    fn weigh(sinks: &Lane, max: &Lane, keys: &Keys<'_>, scores: &mut [Lane]) -> Lane {
        let mut denominator = [0.0; LANES];
        for lane in 0..LANES {
            denominator[lane] = exp(sinks[lane] - max[lane]);
        }
        let mut rest = scores;
        for chunk in keys {
            let (scores, behind) = rest.split_at_mut(chunk.len());
            let mut weights = [0.0; LANES];
            for score in scores {
                for lane in 0..LANES {
                    score[lane] = exp(score[lane] - max[lane]);
                    weights[lane] += score[lane];
                }
            }
            for lane in 0..LANES {
                denominator[lane] += weights[lane];
            }
            rest = behind;
        }
        denominator
    }
}

with_fma! {
    /// Weighted sum of the key rows of one head over its denominator.
    fn sum(keys: &Keys<'_>, weights: &[f32], denominator: f32, out: &mut [f32]) {
        let whole = out.len() / BLOCK * BLOCK;
        for start in (0..whole).step_by(BLOCK) {
            let mut total = [0.0_f32; BLOCK];
            let mut rest = weights;
            // ORDER: chunks left to right; inside a chunk keys left to right, from +0.
            for chunk in keys {
                let (weights, behind) = rest.split_at(chunk.len());
                let mut partial = [0.0_f32; BLOCK];
                for (key, weight) in chunk.iter().zip(weights) {
                    let key: &[f32; BLOCK] =
                        key[start..start + BLOCK].try_into().expect("a block of values");
                    for i in 0..BLOCK {
                        partial[i] = fma(*weight, key[i], partial[i]);
                    }
                }
                for i in 0..BLOCK {
                    total[i] += partial[i];
                }
                rest = behind;
            }
            for i in 0..BLOCK {
                out[start + i] = total[i] / denominator;
            }
        }
        for index in whole..out.len() {
            let (mut total, mut weights) = (0.0_f32, weights.iter());
            for chunk in keys {
                let pairs = chunk.iter().zip(&mut weights);
                total += pairs.fold(0.0_f32, |sum, (key, weight)| fma(*weight, key[index], sum));
            }
            out[index] = total / denominator;
        }
    }
}
