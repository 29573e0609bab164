//! One layer over the tokens of a call, and the output after the last one.
//!
//! Promises: streams in, streams out, state advanced; every named intermediate is shown to the taps and
//! refused when it is not finite. Token `t` of a call sees the rows of the tokens before it whether they
//! came in this call or an earlier one.

use super::hyper::{self, Mix};
use super::rope::{Frequencies, Rotation};
use super::state::{CompressorState, LayerState};
use super::{attention, compressor, indexer, matmul, moe, norm, round, router};
use crate::config::{Compression, Config};
use crate::format::weights::{Compressor, HyperConnection, HyperHead, Indexer, Layer, Matrix};
use crate::profile::Profile;
use crate::rows::Rows;
use crate::session::RunError;
use crate::tap::{Tap, Taps};

/// What the tokens of a call share in every layer.
pub struct Call<'a> {
    /// Hyper-parameters.
    pub config: &'a Config,
    /// Choice of meaning.
    pub profile: &'a Profile,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Position of the first one.
    pub start: usize,
}

/// Runs one layer: `streams` are those before it and then those after it.
///
/// # Errors
/// When an intermediate is not finite.
pub fn forward(
    call: &Call<'_>,
    layer: &Layer,
    clamp: Option<f32>,
    state: &mut LayerState,
    streams: &mut Rows,
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    const ATTENTION: [Tap; 4] =
        [Tap::AttnHyperPost, Tap::AttnHyperComb, Tap::AttnInput, Tap::AttnNorm];
    const EXPERTS: [Tap; 4] = [Tap::FfnHyperPost, Tap::FfnHyperComb, Tap::FfnInput, Tap::FfnNorm];

    let (mixes, input) =
        enter(call, &layer.attn_hyper, &layer.attn_norm, streams, ATTENTION, taps)?;
    let output = attend(call, layer, state, &input, taps)?;
    leave(&mixes, &output, streams);
    taps.rows(Tap::AttnStreams, call.start, streams)?;

    let (mixes, input) = enter(call, &layer.ffn_hyper, &layer.ffn_norm, streams, EXPERTS, taps)?;
    let output = experts(call, layer, clamp, &input, taps)?;
    leave(&mixes, &output, streams);
    taps.rows(Tap::Streams, call.start, streams)
}

/// The mixes around a sublayer and its normalised input.
fn enter(
    call: &Call<'_>,
    weights: &HyperConnection,
    norm_weight: &[f32],
    streams: &Rows,
    names: [Tap; 4],
    taps: &mut Taps<'_>,
) -> Result<(Vec<Mix>, Rows), RunError> {
    let mixes = hyper::mixes(streams, weights, call.config);
    let mut input = Rows::zeros(streams.count(), call.config.hidden);
    for (token, mix) in mixes.iter().enumerate() {
        taps.floats(names[0], call.start + token, &mix.output)?;
        taps.floats(names[1], call.start + token, mix.streams.as_flattened())?;
        mix.reduce(streams.row(token), input.row_mut(token));
    }
    taps.rows(names[2], call.start, &input)?;
    let normed = normalise(&input, norm_weight, call.config);
    taps.rows(names[3], call.start, &normed)?;
    Ok((mixes, normed))
}

/// Adds the output of a sublayer to the streams.
fn leave(mixes: &[Mix], output: &Rows, streams: &mut Rows) {
    for (token, mix) in mixes.iter().enumerate() {
        let before = streams.row(token).to_vec();
        mix.expand(output.row(token), &before, streams.row_mut(token));
    }
}

fn normalise(x: &Rows, weight: &[f32], config: &Config) -> Rows {
    x.map(x.width(), |x, out| norm::weighted(x, weight, config.rms_eps, out))
}

/// Attention of a layer, output projection included.
fn attend(
    call: &Call<'_>,
    layer: &Layer,
    state: &mut LayerState,
    input: &Rows,
    taps: &mut Taps<'_>,
) -> Result<Rows, RunError> {
    let (config, profile, start) = (call.config, call.profile, call.start);
    let compression = state.compressor.as_ref().map_or(Compression::None, |c| c.compression);
    let frequencies = Frequencies::new(config, compression);

    let query_low = matmul::matmul(&layer.q_a, input, profile);
    let query_low = normalise(&query_low, &layer.q_a_norm, config);
    taps.rows(Tap::QueryLow, start, &query_low)?;
    let mut queries = matmul::matmul(&layer.q_b, &query_low, profile);
    let key_rows = matmul::matmul(&layer.kv, input, profile);
    let mut key_rows = normalise(&key_rows, &layer.kv_norm, config);
    let compressed = Projected::new(layer.compressor.as_ref(), input, start, profile);
    let index = IndexInputs::new(layer.indexer.as_ref(), input, &query_low, call);

    let mut heads = Rows::zeros(input.count(), config.q_dim());
    for token in 0..input.count() {
        let position = start + token;
        let rotation = frequencies.at(position);
        let queries = queries.row_mut(token);
        for head in queries.chunks_exact_mut(config.head_dim) {
            norm::plain(head, config.rms_eps);
        }
        taps.floats(Tap::QueryUnrotated, position, queries)?;
        for head in queries.chunks_exact_mut(config.head_dim) {
            rotation.rotate(head);
        }
        taps.floats(Tap::Query, position, queries)?;
        store_key(call, key_rows.row_mut(token), position, &rotation, state, taps)?;

        if let (Some(projected), Some(state)) = (&compressed, &mut state.compressor) {
            projected.advance(call, token, &frequencies, state, &ATTENTION_ROWS, taps)?;
        }
        if let (Some(index), Some(state)) = (&index, &mut state.indexer) {
            index.projected.advance(call, token, &frequencies, state, &INDEXER_ROWS, taps)?;
        }
        let chosen = match (&index, &state.indexer) {
            (Some(index), Some(state)) => index.choose(call, token, &rotation, state, taps)?,
            _ => (0..state.compressor.as_ref().map_or(0, |c| c.rows.count())).collect(),
        };
        let keys = attention::chunks(state, position, config.window, &chosen);
        let mut attended = attention::attend(queries, &keys, &layer.sinks);
        for head in attended.chunks_exact_mut(config.head_dim) {
            rotation.rotate_back(head);
        }
        heads.row_mut(token).copy_from_slice(&attended);
    }
    taps.rows(Tap::Heads, start, &heads)?;
    let low = grouped(&layer.output_a, &heads, config, profile);
    taps.rows(Tap::OutputLow, start, &low)?;
    let output = matmul::matmul(&layer.output_b, &low, profile);
    taps.rows(Tap::AttnOutput, start, &output)?;
    Ok(output)
}

/// Rotates, rounds and stores the key row of a token.
fn store_key(
    call: &Call<'_>,
    row: &mut [f32],
    position: usize,
    rotation: &Rotation,
    state: &mut LayerState,
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    taps.floats(Tap::KeyUnrotated, position, row)?;
    rotation.rotate(row);
    round_key(row, call);
    taps.floats(Tap::KeyRow, position, row)?;
    state.keys.write(position, row);
    Ok(())
}

/// Rounds a key row, raw or compressed, as the profile stores it.
fn round_key(row: &mut [f32], call: &Call<'_>) {
    if call.profile.fp8_rows {
        round::fp8_row(&mut row[..call.config.head_dim - call.config.rope_dim]);
    }
    if call.profile.f16_rows {
        round::f16_row(row);
    }
}

/// Hadamard transform and FP4 round trip of an indexer row or query, where the profile has them.
fn round_index(row: &mut [f32], call: &Call<'_>) {
    if call.profile.fp4_indexer {
        round::hadamard(row);
        round::fp4_row(row);
    }
}

/// Each output group projects its own heads.
fn grouped(weights: &Matrix, heads: &Rows, config: &Config, profile: &Profile) -> Rows {
    let (rank, groups) = (config.output_rank, config.output_groups);
    let mut low = Rows::zeros(heads.count(), groups * rank);
    for group in 0..groups {
        let range = group * config.group_dim()..(group + 1) * config.group_dim();
        let input = heads.map(config.group_dim(), |row, out| {
            out.copy_from_slice(&row[range.clone()]);
        });
        let part = matmul::matmul(&weights.row_range(group * rank, rank), &input, profile);
        for token in 0..heads.count() {
            low.row_mut(token)[group * rank..(group + 1) * rank].copy_from_slice(part.row(token));
        }
    }
    low
}

/// What tells the two compressors of a layer apart.
struct RowKind {
    kv: Tap,
    score: Tap,
    row: Tap,
    round: fn(&mut [f32], &Call<'_>),
}

const ATTENTION_ROWS: RowKind = RowKind {
    kv: Tap::CompressorKv,
    score: Tap::CompressorScore,
    row: Tap::CompressedRow,
    round: round_key,
};

const INDEXER_ROWS: RowKind = RowKind {
    kv: Tap::IndexerKv,
    score: Tap::IndexerScore,
    row: Tap::IndexerRow,
    round: |row, call| {
        round_index(row, call);
        if call.profile.f16_rows {
            round::f16_row(row);
        }
    },
};

/// Inputs of a compressor for all tokens of a call.
struct Projected<'a> {
    weights: &'a Compressor,
    kv: Rows,
    scores: Rows,
}

impl<'a> Projected<'a> {
    fn new(
        weights: Option<&'a Compressor>,
        input: &Rows,
        start: usize,
        profile: &Profile,
    ) -> Option<Self> {
        let weights = weights?;
        let kv = matmul::matmul(&weights.kv, input, profile);
        let mut scores = matmul::matmul(&weights.gate, input, profile);
        for token in 0..scores.count() {
            compressor::add_place_bias(weights, start + token, scores.row_mut(token));
        }
        Some(Self { weights, kv, scores })
    }

    /// Takes a token into the state; shows a row that it completes.
    fn advance(
        &self,
        call: &Call<'_>,
        token: usize,
        frequencies: &Frequencies,
        state: &mut CompressorState,
        kind: &RowKind,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError> {
        let position = call.start + token;
        let (kv, scores) = (self.kv.row(token), self.scores.row(token));
        taps.floats(kind.kv, position, kv)?;
        taps.floats(kind.score, position, scores)?;
        let finish = |row: &mut [f32]| {
            compressor::normalise(row, position, self.weights, frequencies, call.config);
            (kind.round)(row, call);
        };
        if compressor::advance(state, position, kv, scores, finish) {
            taps.floats(kind.row, position, state.rows.row(state.rows.count() - 1))?;
        }
        Ok(())
    }
}

/// Inputs of the indexer for all tokens of a call.
struct IndexInputs<'a> {
    projected: Projected<'a>,
    queries: Rows,
    weights: Rows,
}

impl<'a> IndexInputs<'a> {
    fn new(
        indexer: Option<&'a Indexer>,
        input: &Rows,
        query_low: &Rows,
        call: &Call<'_>,
    ) -> Option<Self> {
        let indexer = indexer?;
        let (config, profile) = (call.config, call.profile);
        let scale = 1.0 / ((config.indexer_dim * config.indexer_heads) as f32).sqrt();
        let mut weights = matmul::matmul(&indexer.proj, input, profile);
        for token in 0..weights.count() {
            for weight in weights.row_mut(token) {
                *weight *= scale;
            }
        }
        Some(Self {
            projected: Projected::new(Some(&indexer.compressor), input, call.start, profile)?,
            queries: matmul::matmul(&indexer.q_b, query_low, profile),
            weights,
        })
    }

    /// The compressed rows that a token attends to, ascending.
    fn choose(
        &self,
        call: &Call<'_>,
        token: usize,
        rotation: &Rotation,
        state: &CompressorState,
        taps: &mut Taps<'_>,
    ) -> Result<Vec<usize>, RunError> {
        let position = call.start + token;
        let visible = state.rows.count();
        let everything = visible <= call.config.indexer_top_k;
        if everything && !taps.wants(Tap::IndexerScores) {
            // Nothing to reject, so no score can be seen in the result.
            let chosen: Vec<usize> = (0..visible).collect();
            taps.indices(Tap::IndexerChosen, position, &chosen);
            return Ok(chosen);
        }
        let mut queries = self.queries.row(token).to_vec();
        for head in queries.chunks_exact_mut(call.config.indexer_dim) {
            rotation.rotate(head);
            round_index(head, call);
        }
        taps.floats(Tap::IndexerQuery, position, &queries)?;
        taps.floats(Tap::IndexerWeights, position, self.weights.row(token))?;
        let scores = indexer::scores(&queries, self.weights.row(token), &state.rows);
        taps.floats(Tap::IndexerScores, position, &scores)?;
        let chosen = indexer::choose(&scores, call.config.indexer_top_k);
        taps.indices(Tap::IndexerChosen, position, &chosen);
        Ok(chosen)
    }
}

/// Routed experts and shared expert of a layer.
fn experts(
    call: &Call<'_>,
    layer: &Layer,
    clamp: Option<f32>,
    input: &Rows,
    taps: &mut Taps<'_>,
) -> Result<Rows, RunError> {
    let (config, profile, start) = (call.config, call.profile, call.start);
    let logits = matmul::matmul(&layer.router, input, profile);
    taps.rows(Tap::RouterLogits, start, &logits)?;
    let shared_mid = moe::inner(&layer.shared, input, clamp, profile);
    taps.rows(Tap::SharedMid, start, &shared_mid)?;
    let shared = matmul::matmul(&layer.shared.down, &shared_mid, profile);
    taps.rows(Tap::SharedOutput, start, &shared)?;
    let mut output = Rows::zeros(input.count(), config.hidden);
    for (token, id) in call.tokens.iter().enumerate() {
        let position = start + token;
        let choice = router::route(logits.row(token), *id, &layer.routing, config, profile);
        taps.indices(Tap::RouterExperts, position, &choice.experts);
        taps.floats(Tap::RouterWeights, position, &choice.weights)?;
        let mut one = Rows::empty(config.hidden);
        one.push(input.row(token));
        let mut mid = Vec::new();
        let routed = moe::routed(&layer.experts, &choice, &one, clamp, profile, &mut |inner| {
            mid = inner.to_vec();
        });
        taps.floats(Tap::ExpertMid, position, &mid)?;
        taps.floats(Tap::RoutedOutput, position, &routed)?;
        let sum = routed.iter().zip(shared.row(token)).map(|(routed, shared)| routed + shared);
        for (output, sum) in output.row_mut(token).iter_mut().zip(sum) {
            *output = sum;
        }
    }
    taps.rows(Tap::FfnOutput, start, &output)?;
    Ok(output)
}

/// Logits from the streams after the last layer, or after the multi-token-prediction block.
///
/// # Errors
/// When an intermediate is not finite.
pub fn output(
    call: &Call<'_>,
    streams: &Rows,
    head: &HyperHead,
    norm_weight: &[f32],
    output: &Matrix,
    taps: &mut Taps<'_>,
) -> Result<Rows, RunError> {
    let input = hyper::head(streams, head, call.config);
    taps.rows(Tap::HeadInput, call.start, &input)?;
    let normed = normalise(&input, norm_weight, call.config);
    taps.rows(Tap::HeadNorm, call.start, &normed)?;
    let logits = matmul::matmul(output, &normed, call.profile);
    taps.rows(Tap::Logits, call.start, &logits)?;
    Ok(logits)
}
