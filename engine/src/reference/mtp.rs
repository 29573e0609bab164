//! The multi-token-prediction block: a layer of its own that drafts the token after next.
//!
//! Promises: its input pairs the streams after one token with the embedding of a token, projected and
//! added per stream; then one ordinary layer without compression; then the block's own reduction and
//! norm and the main model's output matrix. Which token is paired with which streams is the caller's
//! choice ([`crate::mtp::Pairing`]).

use super::layer::{self, Call};
use super::matmul;
use super::norm;
use super::state::LayerState;
use crate::config::STREAMS;
use crate::format::weights::{MtpWeights, Weights};
use crate::rows::Rows;
use crate::session::RunError;
use crate::tap::{Tap, Taps};

/// Streams and logits after the block.
pub struct MtpOutput {
    /// Streams, the input of a chained draft, `[n][4 * hidden]`.
    pub streams: Rows,
    /// Draft logits, `[n][vocabulary]`.
    pub logits: Rows,
}

/// Runs the block over the tokens of `call`, paired one to one with rows of `hidden`.
///
/// # Errors
/// When an intermediate is not finite.
pub fn forward(
    call: &Call<'_>,
    main: &Weights,
    mtp: &MtpWeights,
    hidden: &Rows,
    state: &mut LayerState,
    taps: &mut Taps<'_>,
) -> Result<MtpOutput, RunError> {
    let config = call.config;
    let mut embedded = Rows::zeros(call.tokens.len(), config.hidden);
    for (token, id) in call.tokens.iter().enumerate() {
        main.embedding.decode_row(*id as usize, embedded.row_mut(token));
    }
    let embedded = embedded.map(config.hidden, |x, out| {
        norm::weighted(x, &mtp.e_norm, config.rms_eps, out);
    });
    let embedded = matmul::matmul(&mtp.e_proj, &embedded, call.profile);
    taps.rows(Tap::Embedding, call.start, &embedded)?;
    // Each stream is a row of its own for the norm and the projection.
    let mut each = Rows::empty(config.hidden);
    for stream in hidden.values().chunks_exact(config.hidden) {
        each.push(stream);
    }
    let each =
        each.map(config.hidden, |x, out| norm::weighted(x, &mtp.h_norm, config.rms_eps, out));
    let projected = matmul::matmul(&mtp.h_proj, &each, call.profile);
    let mut streams = Rows::zeros(call.tokens.len(), config.stream_dim());
    for token in 0..call.tokens.len() {
        for (stream, out) in streams.row_mut(token).chunks_exact_mut(config.hidden).enumerate() {
            let hidden = projected.row(token * STREAMS + stream);
            for ((out, e), h) in out.iter_mut().zip(embedded.row(token)).zip(hidden) {
                *out = e + h;
            }
        }
    }
    // The block is clamped like the layers of the main model, which share one value.
    let clamp = config.clamps.last().copied().flatten();
    layer::forward(call, &mtp.layer, clamp, state, &mut streams, taps)?;
    let logits = layer::output(call, &streams, &mtp.head, &mtp.norm, &main.output, taps)?;
    Ok(MtpOutput { streams, logits })
}
