//! Compressed key rows: windows of tokens pooled by a softmax of their own for every channel.
//!
//! Promises: [`advance`] takes one token into the state and, when it completes a window, appends the
//! pooled, normalised, rotated and rounded row, visible to that token at once. Windows of 4 overlap:
//! the first half of a projected row pools with the next window, the second half with its own.
//! The result does not depend on how tokens are grouped into calls.

use super::order::{exp, fma, with_fma};
use super::rope::Frequencies;
use super::{norm, round};
use crate::backend::{Call, CompressedRows};
use crate::config::{Compression, Config};
use crate::format::weights::Compressor;
use crate::rows::Rows;
use crate::session::RunError;
use crate::state::{CompressorState, LayerState};
use crate::tap::Taps;

/// Takes the projected values and scores of all tokens of a call into the state; the place bias is not in
/// the scores yet.
///
/// # Errors
/// When a value is not finite.
pub fn compress(
    call: &Call<'_>,
    rows: CompressedRows,
    weights: &Compressor,
    kv: &Rows,
    mut scores: Rows,
    state: &mut LayerState,
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    let [kv_tap, score_tap, row_tap] = rows.taps();
    let state = state.compressor_mut(rows);
    let frequencies = call.frequencies(state.compression);
    for token in 0..kv.count() {
        let position = call.start + token;
        add_place_bias(weights, position, scores.row_mut(token));
        taps.floats(kv_tap, position, kv.row(token))?;
        taps.floats(score_tap, position, scores.row(token))?;
        let finish = |row: &mut [f32]| {
            normalise(row, position, weights, frequencies, call.config);
            round::compressed_row(rows, row, call);
        };
        if advance(state, position, kv.row(token), scores.row(token), finish) {
            taps.floats(row_tap, position, state.rows.row(state.rows.count() - 1))?;
        }
    }
    Ok(())
}

/// Takes the projected values and scores of the token at `position` into the state. Returns whether a
/// row was appended.
pub fn advance(
    state: &mut CompressorState,
    position: usize,
    kv: &[f32],
    scores: &[f32],
    finish: impl FnOnce(&mut [f32]),
) -> bool {
    state.kv.write(position, kv);
    state.scores.write(position, scores);
    let ratio = state.compression.ratio();
    if !(position + 1).is_multiple_of(ratio) {
        return false;
    }
    let mut row = vec![0.0; state.rows.width()];
    pool(state, position, &mut row);
    finish(&mut row);
    debug_assert_eq!(state.rows.count(), position / ratio);
    state.rows.push(&row);
    true
}

/// Adds the bias of the token's place in its window to its scores.
pub fn add_place_bias(weights: &Compressor, position: usize, scores: &mut [f32]) {
    let mut bias = vec![0.0; scores.len()];
    weights.ape.decode_row(position % weights.ape.rows(), &mut bias);
    for (score, bias) in scores.iter_mut().zip(bias) {
        *score += bias;
    }
}

/// Norm and rotation of a pooled row; the window that ends at `position` is rotated as its first token.
pub fn normalise(
    row: &mut [f32],
    position: usize,
    weights: &Compressor,
    frequencies: &Frequencies,
    config: &Config,
) {
    let pooled = row.to_vec();
    norm::weighted(&pooled, &weights.norm, config.rms_eps, row);
    frequencies.at(position + 1 - weights.ape.rows()).rotate(row);
}

/// The softmax-weighted mean of each channel over the window that ends at `position`.
fn pool(state: &CompressorState, position: usize, out: &mut [f32]) {
    let dim = out.len();
    let ratio = state.compression.ratio();
    let start = position + 1 - ratio;
    // Each candidate is a token of a window and the offset of its channels in the projected row.
    let overlapping = state.compression == Compression::Ratio4;
    let previous = if overlapping && start >= ratio { start - ratio..start } else { 0..0 };
    let own_offset = if overlapping { dim } else { 0 };
    // ORDER: tokens by position, the window before first.
    let candidates: Vec<(&[f32], &[f32])> = previous
        .map(|p| (p, 0))
        .chain((start..=position).map(|p| (p, own_offset)))
        .map(|(p, offset)| {
            let channels = offset..offset + dim;
            (&state.scores.row(p)[channels.clone()], &state.kv.row(p)[channels])
        })
        .collect();
    pool_channels(&candidates, out);
}

with_fma! {
    fn pool_channels(candidates: &[(&[f32], &[f32])], out: &mut [f32]) {
        for (channel, out) in out.iter_mut().enumerate() {
            let max = candidates.iter().fold(f32::NEG_INFINITY, |max, (s, _)| max.max(s[channel]));
            let (mut weights, mut values) = (0.0_f32, 0.0_f32);
            for (score, kv) in candidates {
                let weight = exp(score[channel] - max);
                weights += weight;
                values = fma(weight, kv[channel], values);
            }
            *out = values / weights;
        }
    }
}
