//! The layer sequence, written once over [`Backend`].
//!
//! Promises: streams in, streams out, state advanced; every named intermediate is shown to the taps and
//! refused when it is not finite. Token `t` of a call sees the rows of the tokens before it whether they
//! came in this call or an earlier one. No arithmetic here.

use crate::backend::{Backend, Call, CompressedRows, Entered};
use crate::config::Compression;
use crate::format::weights::{
    Compressor, Expert, HyperConnection, HyperHead, Indexer, Layer, Matrix, MtpWeights, Weights,
};
use crate::rows::Rows;
use crate::session::{Keep, RunError};
use crate::tap::{Tap, Taps};

/// Names of the intermediates around a sublayer.
struct Names {
    mixes: [Tap; 2],
    input: Tap,
    norm: Tap,
}

const ATTENTION: Names = Names {
    mixes: [Tap::AttnHyperPost, Tap::AttnHyperComb],
    input: Tap::AttnInput,
    norm: Tap::AttnNorm,
};
const EXPERTS: Names = Names {
    mixes: [Tap::FfnHyperPost, Tap::FfnHyperComb],
    input: Tap::FfnInput,
    norm: Tap::FfnNorm,
};

/// What turns streams into logits.
pub struct Head<'a> {
    /// Reduction of the streams.
    pub hyper: &'a HyperHead,
    /// Weight of the norm after it.
    pub norm: &'a [f32],
    /// The output matrix.
    pub output: &'a Matrix,
}

/// The streams before the first layer.
///
/// # Errors
/// When an embedding is not finite.
pub fn embed<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    embedding: &Matrix,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let rows = backend.embed(embedding, call.tokens);
    backend.show(taps, Tap::Embedding, call.start, &rows)?;
    Ok(backend.spread(&rows))
}

/// Runs one layer: `streams` are those before it and then those after it.
///
/// # Errors
/// When an intermediate is not finite.
pub fn layer<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    layer: &Layer,
    clamp: Option<f32>,
    state: &mut B::State,
    streams: &mut B::Rows,
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    let entered =
        enter(backend, call, &layer.attn_hyper, &layer.attn_norm, streams, &ATTENTION, taps)?;
    let output = attend(backend, call, layer, state, &entered.input, taps)?;
    backend.leave(&entered.mixes, &output, streams);
    backend.show(taps, Tap::AttnStreams, call.start, streams)?;

    let entered = enter(backend, call, &layer.ffn_hyper, &layer.ffn_norm, streams, &EXPERTS, taps)?;
    let output = experts(backend, call, layer, clamp, &entered.input, taps)?;
    backend.leave(&entered.mixes, &output, streams);
    backend.show(taps, Tap::Streams, call.start, streams)
}

/// The mixes around a sublayer and its normalised input.
fn enter<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    weights: &HyperConnection,
    norm: &[f32],
    streams: &B::Rows,
    names: &Names,
    taps: &mut Taps<'_>,
) -> Result<Entered<B>, RunError> {
    let Entered { mixes, input } = backend.enter(call, weights, streams, names.mixes, taps)?;
    backend.show(taps, names.input, call.start, &input)?;
    let input = backend.norm(&input, norm, call.config.rms_eps);
    backend.show(taps, names.norm, call.start, &input)?;
    Ok(Entered { mixes, input })
}

/// Attention of a layer, output projection included.
fn attend<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    layer: &Layer,
    state: &mut B::State,
    input: &B::Rows,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let (config, profile, start) = (call.config, call.profile, call.start);
    let compression = layer.compression;

    let query_low = backend.matmul(&layer.q_a, input, profile);
    let query_low = backend.norm(&query_low, &layer.q_a_norm, config.rms_eps);
    backend.show(taps, Tap::QueryLow, start, &query_low)?;
    let queries = backend.matmul(&layer.q_b, &query_low, profile);
    let queries = backend.queries(call, compression, queries, taps)?;
    let keys = backend.matmul(&layer.kv, input, profile);
    let keys = backend.norm(&keys, &layer.kv_norm, config.rms_eps);
    let keys = backend.keys(call, compression, keys, taps)?;

    if let Some(compressor) = &layer.compressor {
        compress(backend, call, CompressedRows::Attention, compressor, input, state, taps)?;
    }
    let chosen = match &layer.indexer {
        Some(indexer) => choose(backend, call, indexer, input, &query_low, state, taps)?,
        None => backend.all_visible(),
    };

    let heads = backend.attend(call, compression, &queries, &keys, &chosen, &layer.sinks, state);
    backend.show(taps, Tap::Heads, start, &heads)?;
    let low = backend.grouped(&layer.output_a, config.output_groups, &heads, profile);
    backend.show(taps, Tap::OutputLow, start, &low)?;
    let output = backend.matmul(&layer.output_b, &low, profile);
    backend.show(taps, Tap::AttnOutput, start, &output)?;
    Ok(output)
}

fn compress<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    rows: CompressedRows,
    weights: &Compressor,
    input: &B::Rows,
    state: &mut B::State,
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    let kv = backend.matmul(&weights.kv, input, call.profile);
    let scores = backend.matmul(&weights.gate, input, call.profile);
    backend.compress(call, rows, weights, &kv, scores, state, taps)
}

/// The compressed rows that the tokens attend to in a layer with an indexer.
fn choose<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    indexer: &Indexer,
    input: &B::Rows,
    query_low: &B::Rows,
    state: &mut B::State,
    taps: &mut Taps<'_>,
) -> Result<B::Chosen, RunError> {
    let (config, start) = (call.config, call.start);
    compress(backend, call, CompressedRows::Indexer, &indexer.compressor, input, state, taps)?;
    let visible = |token| (start + token + 1) / Compression::Ratio4.ratio();
    let last = call.tokens.len() - 1;
    if visible(last) <= config.indexer_top_k && !taps.wants(Tap::IndexerScores) {
        // Nothing to reject, so no score can be seen in the result.
        if taps.wants(Tap::IndexerChosen) {
            for token in 0..=last {
                let all: Vec<usize> = (0..visible(token)).collect();
                taps.indices(Tap::IndexerChosen, start + token, &all);
            }
        }
        return Ok(backend.all_visible());
    }
    let weights = backend.matmul(&indexer.proj, input, call.profile);
    let queries = backend.matmul(&indexer.q_b, query_low, call.profile);
    backend.choose(call, queries, weights, state, taps)
}

/// Routed experts and shared expert of a layer.
fn experts<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    layer: &Layer,
    clamp: Option<f32>,
    input: &B::Rows,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let start = call.start;
    let logits = backend.matmul(&layer.router, input, call.profile);
    backend.show(taps, Tap::RouterLogits, start, &logits)?;
    let shared = shared(backend, call, &layer.shared, clamp, input, taps)?;
    let choices = backend.route(call, &logits, &layer.routing, taps)?;
    let routed = backend.routed(call, &layer.experts, &choices, input, clamp, taps)?;
    backend.show(taps, Tap::RoutedOutput, start, &routed)?;
    let output = backend.add(routed, &shared);
    backend.show(taps, Tap::FfnOutput, start, &output)?;
    Ok(output)
}

fn shared<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    expert: &Expert,
    clamp: Option<f32>,
    input: &B::Rows,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let gate = backend.matmul(&expert.gate, input, call.profile);
    let up = backend.matmul(&expert.up, input, call.profile);
    let mid = backend.gated(gate, &up, clamp);
    backend.show(taps, Tap::SharedMid, call.start, &mid)?;
    let output = backend.matmul(&expert.down, &mid, call.profile);
    backend.show(taps, Tap::SharedOutput, call.start, &output)?;
    Ok(output)
}

/// Logits from the streams after the last layer, or after the multi-token-prediction block, for the rows
/// to `keep`.
///
/// # Errors
/// When an intermediate is not finite.
pub fn logits<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    keep: Keep,
    streams: &B::Rows,
    head: &Head<'_>,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    match keep {
        Keep::Nothing => backend.upload(Rows::empty(head.output.rows())),
        Keep::All => output(backend, call, call.start, streams, head, taps),
        Keep::Last => {
            let last = call.tokens.len() - 1;
            let streams = backend.slice(streams, last..last + 1);
            output(backend, call, call.start + last, &streams, head, taps)
        }
    }
}

fn output<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    start: usize,
    streams: &B::Rows,
    head: &Head<'_>,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let input = backend.head(call.config, head.hyper, streams);
    backend.show(taps, Tap::HeadInput, start, &input)?;
    let input = backend.norm(&input, head.norm, call.config.rms_eps);
    backend.show(taps, Tap::HeadNorm, start, &input)?;
    let logits = backend.matmul(head.output, &input, call.profile);
    backend.show(taps, Tap::Logits, start, &logits)?;
    Ok(logits)
}

/// Runs the multi-token-prediction block over the tokens of `call`, paired one to one with rows of `hidden`:
/// the streams after one token and the embedding of a token, normalised, projected and added per stream;
/// then one ordinary layer without compression. Returns the block's streams, the input of a chained draft.
/// Which token is paired with which streams is the caller's choice ([`crate::mtp::Pairing`]).
///
/// # Errors
/// When an intermediate is not finite.
pub fn mtp<B: Backend>(
    backend: &B,
    call: &Call<'_>,
    main: &Weights,
    block: &MtpWeights,
    hidden: &B::Rows,
    state: &mut B::State,
    taps: &mut Taps<'_>,
) -> Result<B::Rows, RunError> {
    let (config, profile) = (call.config, call.profile);
    let embedded = backend.embed(&main.embedding, call.tokens);
    let embedded = backend.norm(&embedded, &block.e_norm, config.rms_eps);
    let embedded = backend.matmul(&block.e_proj, &embedded, profile);
    backend.show(taps, Tap::Embedding, call.start, &embedded)?;
    // Each stream is a row of its own for the norm and the projection.
    let hidden = backend.norm(&backend.unstack(hidden), &block.h_norm, config.rms_eps);
    let hidden = backend.matmul(&block.h_proj, &hidden, profile);
    let mut streams = backend.join(&embedded, &hidden);
    // The block is clamped like the layers of the main model, which share one value.
    let clamp = config.clamps.last().copied().flatten();
    debug_assert_eq!(block.layer.compression, Compression::None);
    layer(backend, call, &block.layer, clamp, state, &mut streams, taps)?;
    Ok(streams)
}
