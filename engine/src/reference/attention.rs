//! Attention of all heads over one shared key row a token, with a sink.
//!
//! Promises: for each head, weights `exp(z - m)` over the keys and the sink, `m` being the maximum of all
//! of them; the sink adds to the denominator only. Values are the key rows themselves.
//! Keys come in chunks of at most [`KEY_CHUNK`]; how keys are cut into chunks is a rule of positions
//! ([`Window::keys`]), so it does not depend on how tokens were grouped into calls.

use std::ops::Range;

use super::order::{self, KEY_CHUNK};
use crate::rows::Rows;
use crate::state::LayerState;

/// The keys of one query, in chunks.
pub type Keys<'a> = Vec<Vec<&'a [f32]>>;

/// Cuts `range` where a multiple of [`KEY_CHUNK`] lies inside it.
fn aligned(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = ((start / KEY_CHUNK + 1) * KEY_CHUNK).min(range.end);
        let chunk = start..end;
        start = end;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Where the raw key rows of a call are: earlier ones in the state, its own beside it.
pub struct Window<'a> {
    /// Key rows of earlier tokens.
    pub state: &'a LayerState,
    /// Key rows of the call.
    pub own: &'a Rows,
    /// Position of the first of them.
    pub start: usize,
}

impl<'a> Window<'a> {
    fn row(&self, position: usize) -> &'a [f32] {
        match position.checked_sub(self.start) {
            Some(token) => self.own.row(token),
            None => self.state.keys.row(position),
        }
    }

    /// The keys that the query at `position` sees: `window` raw ones, cut at multiples of 64 of the absolute
    /// position, then compressed rows, cut every 64 of `chosen` (indices, ascending).
    #[must_use]
    pub fn keys(&self, position: usize, window: usize, chosen: &[usize]) -> Keys<'a> {
        let raw = (position + 1).saturating_sub(window)..position + 1;
        let mut keys: Keys<'a> =
            aligned(raw).map(|chunk| chunk.map(|p| self.row(p)).collect()).collect();
        if let Some(compressor) = &self.state.compressor {
            let rows = |chunk: &[usize]| chunk.iter().map(|i| compressor.rows.row(*i)).collect();
            keys.extend(chosen.chunks(KEY_CHUNK).map(rows));
        }
        keys
    }
}

/// Attention of one token. `queries` holds the heads one after the other, as does the result.
#[must_use]
pub fn attend(queries: &[f32], keys: &Keys<'_>, sinks: &[f32]) -> Vec<f32> {
    let head_dim = queries.len() / sinks.len();
    let scale = 1.0 / (head_dim as f32).sqrt();
    let mut out = vec![0.0; queries.len()];
    let heads = queries.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).zip(sinks);
    for ((query, out), sink) in heads {
        attend_head(query, keys, *sink, scale, out);
    }
    out
}

fn attend_head(query: &[f32], keys: &Keys<'_>, sink: f32, scale: f32, out: &mut [f32]) {
    let scores: Vec<Vec<f32>> = keys
        .iter()
        .map(|chunk| chunk.iter().map(|key| order::dot(query, key) * scale).collect())
        .collect();
    let max = scores.iter().flatten().fold(sink, |max, z| max.max(*z));
    let mut denominator = order::exp(sink - max);
    let mut partial = vec![0.0; out.len()];
    // ORDER: chunks left to right; inside a chunk keys left to right, from +0.
    for (keys, scores) in keys.iter().zip(&scores) {
        let mut weights = 0.0_f32;
        partial.fill(0.0);
        for (key, score) in keys.iter().zip(scores) {
            let weight = order::exp(score - max);
            weights += weight;
            order::accumulate(&mut partial, weight, key);
        }
        denominator += weights;
        for (out, partial) in out.iter_mut().zip(&partial) {
            *out += partial;
        }
    }
    for out in out {
        *out /= denominator;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_cut_at_multiples_of_64_of_the_position() {
        let cuts: Vec<_> = aligned(60..193).collect();
        assert_eq!(cuts, [60..64, 64..128, 128..192, 192..193]);
        assert!(aligned(64..128).eq(std::iter::once(64..128)));
        assert_eq!(aligned(5..5).count(), 0);
    }

    #[test]
    fn a_sink_takes_its_share_and_gives_no_value() {
        let key = [1.0_f32, 0.0];
        let keys = vec![vec![&key[..]]];
        // Score 0 for the key and 0 for the sink: half the weight goes to each.
        let out = attend(&[0.0, 0.0], &keys, &[0.0]);
        assert_eq!(out, [0.5, 0.0]);
    }
}
