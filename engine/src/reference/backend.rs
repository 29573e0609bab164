//! The reference as a [`Backend`]: token after token, one thread, host memory.
//!
//! Promises: plain loops around the files of the families and nothing else, except where a family has
//! to say what a row of it is: queries, key rows, compressed rows.

use std::ops::Range;

use super::hyper::{self, Mix};
use super::router::{self, Choice};
use super::{attention, compressor, indexer, matmul, moe, norm, round};
use crate::backend::{Backend, Call, CompressedRows, Entered};
use crate::config::{Compression, Config};
use crate::format::weights::{Compressor, Expert, HyperConnection, HyperHead, Matrix, Routing};
use crate::profile::Profile;
use crate::rows::Rows;
use crate::sampler;
use crate::session::RunError;
use crate::state::{LayerState, StateVisitor};
use crate::switches::{MoeDown, Simd, Switches};
use crate::tap::{Tap, Taps};

/// The CPU reference.
#[derive(Clone, Copy, Debug)]
pub struct Reference;

impl Reference {
    /// Refuses switches that it could not obey.
    ///
    /// # Errors
    /// When experts are to be added up as they arrive, or instructions are chosen.
    pub fn accept(switches: &Switches) -> Result<(), RunError> {
        let refuse = |switch, value| {
            let backend = "reference";
            Err(RunError::Switch { switch, value, backend })
        };
        if switches.moe_down.value != MoeDown::Ordered {
            return refuse("moe-down", switches.moe_down.value.name());
        }
        if !matches!(switches.simd.value, Simd::Auto | Simd::Scalar) {
            return refuse("simd", switches.simd.value.name());
        }
        Ok(())
    }
}

/// The compressed rows that each token of a call attends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// All that are complete.
    All,
    /// These, ascending, for each token.
    Rows(Vec<Vec<usize>>),
}

impl Chosen {
    /// The rows of a token, given how many are complete.
    #[must_use]
    pub fn of(&self, token: usize, visible: usize) -> Vec<usize> {
        match self {
            Self::All => (0..visible).collect(),
            Self::Rows(rows) => rows[token].clone(),
        }
    }
}

/// Compressed rows that are complete once the token at `position` is in.
#[must_use]
pub fn visible(compression: Compression, position: usize) -> usize {
    (position + 1).checked_div(compression.ratio()).unwrap_or(0)
}

impl Backend for Reference {
    type Rows = Rows;
    type Mixes = Vec<Mix>;
    type Choices = Vec<Choice>;
    type Chosen = Chosen;
    type State = LayerState;

    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn kernels_run(&self) -> Vec<(String, u64)> {
        vec![("reference matmul".to_owned(), matmul::runs())]
    }

    fn upload(&self, rows: Rows) -> Result<Rows, RunError> {
        Ok(rows)
    }

    fn download(&self, rows: &Rows) -> Result<Rows, RunError> {
        Ok(rows.clone())
    }

    fn count(&self, rows: &Rows) -> usize {
        rows.count()
    }

    fn slice(&self, rows: &Rows, range: Range<usize>) -> Rows {
        rows.slice(range)
    }

    fn show(
        &self,
        taps: &mut Taps<'_>,
        tap: Tap,
        start: usize,
        rows: &Rows,
    ) -> Result<(), RunError> {
        taps.rows(tap, start, rows)
    }

    fn state(
        &self,
        config: &Config,
        compression: Compression,
        context: Option<usize>,
    ) -> Result<LayerState, RunError> {
        LayerState::new(config, compression, context)
    }

    fn truncate(&self, state: &mut LayerState, length: usize) {
        state.truncate(length);
    }

    fn visit(&self, state: &LayerState, length: usize, visit: &mut StateVisitor<'_>) {
        state.visit(length, visit);
    }

    fn embed(&self, embedding: &Matrix, tokens: &[u32]) -> Rows {
        let mut rows = Rows::zeros(tokens.len(), embedding.columns());
        for (token, id) in tokens.iter().enumerate() {
            embedding.decode_row(*id as usize, rows.row_mut(token));
        }
        rows
    }

    fn spread(&self, rows: &Rows) -> Rows {
        hyper::spread(rows)
    }

    fn enter(
        &self,
        call: &Call<'_>,
        weights: &HyperConnection,
        streams: &Rows,
        shown: [Tap; 2],
        taps: &mut Taps<'_>,
    ) -> Result<Entered<Self>, RunError> {
        let mixes = hyper::mixes(streams, weights, call.config);
        let mut input = Rows::zeros(streams.count(), call.config.hidden);
        for (token, mix) in mixes.iter().enumerate() {
            mix.show(shown, call.start + token, taps)?;
            mix.reduce(streams.row(token), input.row_mut(token));
        }
        Ok(Entered { mixes, input })
    }

    fn leave(&self, mixes: &Vec<Mix>, output: &Rows, streams: &mut Rows) {
        for (token, mix) in mixes.iter().enumerate() {
            let before = streams.row(token).to_vec();
            mix.expand(output.row(token), &before, streams.row_mut(token));
        }
    }

    fn head(&self, config: &Config, weights: &HyperHead, streams: &Rows) -> Rows {
        hyper::head(streams, weights, config)
    }

    fn unstack(&self, streams: &Rows) -> Rows {
        hyper::unstack(streams)
    }

    fn join(&self, embedded: &Rows, hidden: &Rows) -> Rows {
        hyper::join(embedded, hidden)
    }

    fn norm(&self, x: &Rows, weight: &[f32], eps: f32) -> Rows {
        x.map(x.width(), |x, out| norm::weighted(x, weight, eps, out))
    }

    fn matmul(&self, weights: &Matrix, x: &Rows, profile: &Profile) -> Rows {
        matmul::matmul(weights, x, profile)
    }

    fn grouped(&self, weights: &Matrix, groups: usize, x: &Rows, profile: &Profile) -> Rows {
        let (rank, width) = (weights.rows() / groups, weights.columns());
        let mut out = Rows::zeros(x.count(), weights.rows());
        for group in 0..groups {
            let input = x.map(width, |row, out| {
                out.copy_from_slice(&row[group * width..(group + 1) * width]);
            });
            let part = matmul::matmul(&weights.row_range(group * rank, rank), &input, profile);
            for token in 0..x.count() {
                let out = &mut out.row_mut(token)[group * rank..(group + 1) * rank];
                out.copy_from_slice(part.row(token));
            }
        }
        out
    }

    fn queries(
        &self,
        call: &Call<'_>,
        compression: Compression,
        mut queries: Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Rows, RunError> {
        let heads = |row: &mut Rows, token, each: &dyn Fn(&mut [f32])| {
            row.row_mut(token).chunks_exact_mut(call.config.head_dim).for_each(each);
        };
        for (token, rotation) in call.rotations(compression).iter().enumerate() {
            heads(&mut queries, token, &|head| norm::plain(head, call.config.rms_eps));
            taps.floats(Tap::QueryUnrotated, call.start + token, queries.row(token))?;
            heads(&mut queries, token, &|head| rotation.rotate(head));
            taps.floats(Tap::Query, call.start + token, queries.row(token))?;
        }
        Ok(queries)
    }

    fn keys(
        &self,
        call: &Call<'_>,
        compression: Compression,
        mut keys: Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Rows, RunError> {
        taps.rows(Tap::KeyUnrotated, call.start, &keys)?;
        for (token, rotation) in call.rotations(compression).iter().enumerate() {
            rotation.rotate(keys.row_mut(token));
            round::key_row(keys.row_mut(token), call);
        }
        taps.rows(Tap::KeyRow, call.start, &keys)?;
        Ok(keys)
    }

    fn attend(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: &Rows,
        keys: &Rows,
        chosen: &Chosen,
        sinks: &[f32],
        state: &mut LayerState,
    ) -> Rows {
        let mut heads = Rows::zeros(queries.count(), queries.width());
        for (token, rotation) in call.rotations(compression).iter().enumerate() {
            let position = call.start + token;
            let chosen = chosen.of(token, visible(compression, position));
            let window = attention::Window { state, own: keys, start: call.start };
            let keys = window.keys(position, call.config.window, &chosen);
            let mut attended = attention::attend(queries.row(token), &keys, sinks);
            for head in attended.chunks_exact_mut(call.config.head_dim) {
                rotation.rotate_back(head);
            }
            heads.row_mut(token).copy_from_slice(&attended);
        }
        state.store_keys(call.start, keys);
        heads
    }

    fn compress(
        &self,
        call: &Call<'_>,
        rows: CompressedRows,
        weights: &Compressor,
        kv: &Rows,
        scores: Rows,
        state: &mut LayerState,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError> {
        compressor::compress(call, rows, weights, kv, scores, state, taps)
    }

    fn all_visible(&self) -> Chosen {
        Chosen::All
    }

    fn choose(
        &self,
        call: &Call<'_>,
        mut queries: Rows,
        mut weights: Rows,
        state: &LayerState,
        taps: &mut Taps<'_>,
    ) -> Result<Chosen, RunError> {
        let config = call.config;
        let rows = &state.compressor(CompressedRows::Indexer).rows;
        let scale = indexer::weight_scale(config.indexer_heads, config.indexer_dim);
        let mut chosen = Vec::new();
        for (token, rotation) in call.rotations(Compression::Ratio4).iter().enumerate() {
            let position = call.start + token;
            for head in queries.row_mut(token).chunks_exact_mut(config.indexer_dim) {
                rotation.rotate(head);
                round::index_row(head, call);
            }
            for weight in weights.row_mut(token) {
                *weight *= scale;
            }
            let (queries, weights) = (queries.row(token), weights.row(token));
            taps.floats(Tap::IndexerQuery, position, queries)?;
            taps.floats(Tap::IndexerWeights, position, weights)?;
            let visible = visible(Compression::Ratio4, position);
            let scores = indexer::scores(queries, weights, rows, visible);
            taps.floats(Tap::IndexerScores, position, &scores)?;
            let best = indexer::choose(&scores, config.indexer_top_k);
            taps.indices(Tap::IndexerChosen, position, &best);
            chosen.push(best);
        }
        Ok(Chosen::Rows(chosen))
    }

    fn route(
        &self,
        call: &Call<'_>,
        logits: &Rows,
        routing: &Routing,
        taps: &mut Taps<'_>,
    ) -> Result<Vec<Choice>, RunError> {
        router::route_all(call, logits, routing, taps)
    }

    fn gated(&self, mut gate: Rows, up: &Rows, clamp: Option<f32>) -> Rows {
        moe::gate(gate.values_mut(), up.values(), clamp);
        gate
    }

    fn routed(
        &self,
        call: &Call<'_>,
        experts: &[Expert],
        choices: &Vec<Choice>,
        input: &Rows,
        clamp: Option<f32>,
        taps: &mut Taps<'_>,
    ) -> Result<Rows, RunError> {
        let mut out = Rows::zeros(input.count(), input.width());
        for (token, choice) in choices.iter().enumerate() {
            let one = input.slice(token..token + 1);
            let mut mid = Vec::new();
            let seen = &mut |inner: &[f32]| mid = inner.to_vec();
            let routed = moe::routed(experts, choice, &one, clamp, call.profile, seen);
            taps.floats(Tap::ExpertMid, call.start + token, &mid)?;
            out.row_mut(token).copy_from_slice(&routed);
        }
        Ok(out)
    }

    fn add(&self, mut a: Rows, b: &Rows) -> Rows {
        for (a, b) in a.values_mut().iter_mut().zip(b.values()) {
            *a += b;
        }
        a
    }

    fn argmax(&self, logits: &Rows, start: usize) -> Result<Vec<u32>, RunError> {
        let each = logits.iter().enumerate();
        each.map(|(row, logits)| sampler::argmax(logits, start + row)).collect()
    }
}
