//! The CPU as a [`Backend`]: vectors, threads, and the reference's own row functions where a row is cheap.
//!
//! Promises: the bytes of [`crate::reference::Reference`] at every SIMD level and with any number of
//! threads: work is split by rows, heads and experts, never inside a sum. The one exception is asked for
//! by name: [`Combine::Atomic`].

use std::ops::Range;

use super::activations::Activations;
use super::experts::{self, Combine};
use super::lanes::LANES;
use super::level::Level;
use super::matmul::Kernels;
use super::threads::Threads;
use super::{attention, indexer};
use crate::backend::{Backend, Call, CompressedRows, Entered};
use crate::config::{Compression, Config};
use crate::format::weights::{Compressor, Expert, HyperConnection, HyperHead, Matrix, Routing};
use crate::profile::Profile;
use crate::reference::backend::{Chosen, visible};
use crate::reference::hyper::{self, Mix};
use crate::reference::router::{self, Choice};
use crate::reference::{attention as keys_of, compressor, indexer as order_of, moe, norm, round};
use crate::rows::Rows;
use crate::sampler;
use crate::session::RunError;
use crate::state::{LayerState, StateVisitor};
use crate::switches::{MoeDown, Switches};
use crate::tap::{Tap, Taps};

/// Work of a row operation on one value, in the units of [`Threads::each`].
const PER_VALUE: usize = 4;
/// Work of the mixes of one token: mostly the divisions of Sinkhorn's iterations.
const MIX_WORK: usize = 8192;
/// Work of one inner activation: an exponential.
const GATE_WORK: usize = 16;
/// Inner activations of one item.
const GATE_PART: usize = 512;

/// The CPU backend.
pub struct Cpu {
    kernels: Kernels,
    combine: Combine,
}

/// Rows and what belongs to each, one item a token.
fn tokens(rows: &mut Rows) -> Vec<(usize, &mut [f32])> {
    let width = rows.width();
    rows.values_mut().chunks_exact_mut(width).enumerate().collect()
}

impl Cpu {
    /// A backend on these kernels, adding experts up in this way.
    #[must_use]
    pub fn new(kernels: Kernels, combine: Combine) -> Self {
        Self { kernels, combine }
    }

    /// The backend that the switches ask for.
    ///
    /// # Errors
    /// When the processor lacks the instructions or the system the threads.
    pub fn from_switches(switches: &Switches) -> Result<Self, RunError> {
        let level = Level::of(switches.simd.value)?;
        let threads = Threads::new(switches.threads.value)?;
        let combine = match switches.moe_down.value {
            MoeDown::Ordered => Combine::Ordered,
            MoeDown::Atomic => Combine::Atomic { rows: switches.atomic_threshold.value },
        };
        Ok(Self::new(Kernels::new(level, threads), combine))
    }

    fn threads(&self) -> &Threads {
        self.kernels.threads()
    }

    /// Runs `each` on every row of `rows` with its index.
    fn each_row(&self, rows: &mut Rows, each: impl Fn(usize, &mut [f32]) + Sync) {
        let work = rows.width() * PER_VALUE;
        self.threads().each(tokens(rows), work, |(token, row)| each(token, row));
    }

    /// Runs `each` on the parts of `width` values of every row, with token and part.
    fn each_part(
        &self,
        rows: &mut Rows,
        width: usize,
        work: usize,
        each: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) {
        let row_width = rows.width();
        let parts =
            rows.values_mut().chunks_exact_mut(row_width).enumerate().flat_map(|(token, row)| {
                row.chunks_mut(width).enumerate().map(move |(part, values)| (token, part, values))
            });
        self.threads()
            .each(parts.collect(), work, |(token, part, values)| each(token, part, values));
    }
}

impl Backend for Cpu {
    type Rows = Activations;
    type Mixes = Vec<Mix>;
    type Choices = Vec<Choice>;
    type Chosen = Chosen;
    type State = LayerState;

    fn name(&self) -> String {
        format!("cpu {} x{}", self.kernels.level().name(), self.threads().count())
    }

    fn kernels_run(&self) -> Vec<(String, u64)> {
        self.kernels.runs()
    }

    fn upload(&self, rows: Rows) -> Result<Activations, RunError> {
        Ok(rows.into())
    }

    fn download(&self, rows: &Activations) -> Result<Rows, RunError> {
        Ok(rows.rows().clone())
    }

    fn count(&self, rows: &Activations) -> usize {
        rows.rows().count()
    }

    fn slice(&self, rows: &Activations, range: Range<usize>) -> Activations {
        rows.rows().slice(range).into()
    }

    fn show(
        &self,
        taps: &mut Taps<'_>,
        tap: Tap,
        start: usize,
        rows: &Activations,
    ) -> Result<(), RunError> {
        taps.rows(tap, start, rows.rows())
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

    fn embed(&self, embedding: &Matrix, tokens: &[u32]) -> Activations {
        let mut rows = Rows::zeros(tokens.len(), embedding.columns());
        self.each_row(&mut rows, |token, row| embedding.decode_row(tokens[token] as usize, row));
        rows.into()
    }

    fn spread(&self, rows: &Activations) -> Activations {
        hyper::spread(rows.rows()).into()
    }

    fn enter(
        &self,
        call: &Call<'_>,
        weights: &HyperConnection,
        streams: &Activations,
        shown: [Tap; 2],
        taps: &mut Taps<'_>,
    ) -> Result<Entered<Self>, RunError> {
        let projected = self.project(&weights.mix, streams.rows(), call.config);
        let mut mixes = vec![None; projected.count()];
        let items = mixes.iter_mut().zip(projected.iter()).collect();
        self.threads().each(items, MIX_WORK, |(mix, row): (&mut Option<Mix>, &[f32])| {
            *mix = Some(Mix::new(row, weights, call.config));
        });
        let mixes: Vec<Mix> = mixes.into_iter().flatten().collect();
        for (token, mix) in mixes.iter().enumerate() {
            mix.show(shown, call.start + token, taps)?;
        }
        let mut input = Rows::zeros(mixes.len(), call.config.hidden);
        self.each_row(&mut input, |token, out| mixes[token].reduce(streams.rows().row(token), out));
        Ok(Entered { mixes, input: input.into() })
    }

    fn leave(&self, mixes: &Vec<Mix>, output: &Activations, streams: &mut Activations) {
        let before = streams.rows();
        let mut after = Rows::zeros(before.count(), before.width());
        self.each_row(&mut after, |token, out| {
            mixes[token].expand(output.rows().row(token), before.row(token), out);
        });
        *streams = after.into();
    }

    fn head(&self, config: &Config, weights: &HyperHead, streams: &Activations) -> Activations {
        let projected = self.project(&weights.mix, streams.rows(), config);
        let mut out = Rows::zeros(projected.count(), config.hidden);
        self.each_row(&mut out, |token, out| {
            hyper::reduce_head(
                projected.row(token),
                weights,
                config,
                streams.rows().row(token),
                out,
            );
        });
        out.into()
    }

    fn unstack(&self, streams: &Activations) -> Activations {
        hyper::unstack(streams.rows()).into()
    }

    fn join(&self, embedded: &Activations, hidden: &Activations) -> Activations {
        hyper::join(embedded.rows(), hidden.rows()).into()
    }

    fn norm(&self, x: &Activations, weight: &[f32], eps: f32) -> Activations {
        let x = x.rows();
        let mut out = Rows::zeros(x.count(), x.width());
        self.each_row(&mut out, |token, out| norm::weighted(x.row(token), weight, eps, out));
        out.into()
    }

    fn matmul(&self, weights: &Matrix, x: &Activations, profile: &Profile) -> Activations {
        self.kernels.matmul(weights, x, profile.int8_activations).into()
    }

    fn grouped(
        &self,
        weights: &Matrix,
        groups: usize,
        x: &Activations,
        profile: &Profile,
    ) -> Activations {
        self.kernels.grouped(weights, groups, x, profile.int8_activations).into()
    }

    fn queries(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: Activations,
        taps: &mut Taps<'_>,
    ) -> Result<Activations, RunError> {
        let mut queries = queries.into_rows();
        let (dim, eps) = (call.config.head_dim, call.config.rms_eps);
        let rotations = call.rotations(compression);
        let work = dim * PER_VALUE;
        self.each_part(&mut queries, dim, work, |_, _, head| norm::plain(head, eps));
        taps.rows(Tap::QueryUnrotated, call.start, &queries)?;
        self.each_part(&mut queries, dim, work, |token, _, head| rotations[token].rotate(head));
        taps.rows(Tap::Query, call.start, &queries)?;
        Ok(queries.into())
    }

    fn keys(
        &self,
        call: &Call<'_>,
        compression: Compression,
        keys: Activations,
        taps: &mut Taps<'_>,
    ) -> Result<Activations, RunError> {
        let mut keys = keys.into_rows();
        taps.rows(Tap::KeyUnrotated, call.start, &keys)?;
        let rotations = call.rotations(compression);
        self.each_row(&mut keys, |token, row| {
            rotations[token].rotate(row);
            round::key_row(row, call);
        });
        taps.rows(Tap::KeyRow, call.start, &keys)?;
        Ok(keys.into())
    }

    fn attend(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: &Activations,
        keys: &Activations,
        chosen: &Chosen,
        sinks: &[f32],
        state: &mut LayerState,
    ) -> Activations {
        let (config, queries, own) = (call.config, queries.rows(), keys.rows());
        let window = keys_of::Window { state, own, start: call.start };
        let each_keys = |token| {
            let position = call.start + token;
            let chosen = chosen.of(token, visible(compression, position));
            window.keys(position, config.window, &chosen)
        };
        let keys: Vec<keys_of::Keys<'_>> = (0..queries.count()).map(each_keys).collect();
        let rotations = call.rotations(compression);
        let mut heads = Rows::zeros(queries.count(), queries.width());
        let width = LANES * config.head_dim;
        // Two multiplications a value and key.
        let reach = (config.window + config.indexer_top_k).min(call.start + queries.count());
        self.each_part(&mut heads, width, 2 * width * reach, |token, part, out| {
            let first = part * width;
            let queries = &queries.row(token)[first..first + out.len()];
            let sinks = &sinks[part * LANES..][..out.len() / config.head_dim];
            attention::attend(queries, &keys[token], sinks, out);
            for head in out.chunks_exact_mut(config.head_dim) {
                rotations[token].rotate_back(head);
            }
        });
        drop(keys);
        state.store_keys(call.start, own);
        heads.into()
    }

    fn compress(
        &self,
        call: &Call<'_>,
        rows: CompressedRows,
        weights: &Compressor,
        kv: &Activations,
        scores: Activations,
        state: &mut LayerState,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError> {
        // A token of the ring waits for those before it, and few tokens complete a row: not spread.
        compressor::compress(call, rows, weights, kv.rows(), scores.into_rows(), state, taps)
    }

    fn all_visible(&self) -> Chosen {
        Chosen::All
    }

    fn choose(
        &self,
        call: &Call<'_>,
        queries: Activations,
        weights: Activations,
        state: &LayerState,
        taps: &mut Taps<'_>,
    ) -> Result<Chosen, RunError> {
        let config = call.config;
        let (mut queries, mut weights) = (queries.into_rows(), weights.into_rows());
        let rotations = call.rotations(Compression::Ratio4);
        let scale = order_of::weight_scale(config.indexer_heads, config.indexer_dim);
        self.each_row(&mut queries, |token, row| {
            for head in row.chunks_exact_mut(config.indexer_dim) {
                rotations[token].rotate(head);
                round::index_row(head, call);
            }
        });
        weights.values_mut().iter_mut().for_each(|weight| *weight *= scale);
        taps.rows(Tap::IndexerQuery, call.start, &queries)?;
        taps.rows(Tap::IndexerWeights, call.start, &weights)?;
        let rows = &state.compressor(CompressedRows::Indexer).rows;
        let mut scored = vec![(Vec::new(), Vec::new()); queries.count()];
        let work = queries.width() * visible(Compression::Ratio4, call.start + queries.count());
        let items = scored.iter_mut().enumerate().collect();
        self.threads().each(items, work, |(token, item): (usize, &mut (Vec<f32>, Vec<usize>))| {
            let visible = visible(Compression::Ratio4, call.start + token);
            item.0 = indexer::scores(queries.row(token), weights.row(token), rows, visible);
            item.1 = indexer::choose(&item.0, config.indexer_top_k);
        });
        let mut chosen = Vec::with_capacity(scored.len());
        for (token, (scores, rows)) in scored.into_iter().enumerate() {
            taps.floats(Tap::IndexerScores, call.start + token, &scores)?;
            taps.indices(Tap::IndexerChosen, call.start + token, &rows);
            chosen.push(rows);
        }
        Ok(Chosen::Rows(chosen))
    }

    fn route(
        &self,
        call: &Call<'_>,
        logits: &Activations,
        routing: &Routing,
        taps: &mut Taps<'_>,
    ) -> Result<Vec<Choice>, RunError> {
        router::route_all(call, logits.rows(), routing, taps)
    }

    fn gated(&self, gate: Activations, up: &Activations, clamp: Option<f32>) -> Activations {
        let (mut gate, up) = (gate.into_rows(), up.rows());
        let width = gate.width().min(GATE_PART);
        self.each_part(&mut gate, width, GATE_WORK * width, |token, part, gate| {
            let first = part * width;
            moe::gate(gate, &up.row(token)[first..first + gate.len()], clamp);
        });
        gate.into()
    }

    fn routed(
        &self,
        call: &Call<'_>,
        experts: &[Expert],
        choices: &Vec<Choice>,
        input: &Activations,
        clamp: Option<f32>,
        taps: &mut Taps<'_>,
    ) -> Result<Activations, RunError> {
        experts::routed(&self.kernels, self.combine, call, experts, choices, input, clamp, taps)
    }

    fn add(&self, a: Activations, b: &Activations) -> Activations {
        let mut a = a.into_rows();
        for (a, b) in a.values_mut().iter_mut().zip(b.rows().values()) {
            *a += b;
        }
        a.into()
    }

    fn argmax(&self, logits: &Activations, start: usize) -> Result<Vec<u32>, RunError> {
        let rows = logits.rows().iter().enumerate();
        rows.map(|(row, logits)| sampler::argmax(logits, start + row)).collect()
    }
}

impl Cpu {
    /// Projections of the normalised streams by a mix matrix.
    fn project(&self, mix: &Matrix, streams: &Rows, config: &Config) -> Rows {
        let mut flat = Rows::zeros(streams.count(), streams.width());
        self.each_row(&mut flat, |token, out| {
            out.copy_from_slice(streams.row(token));
            norm::plain(out, config.rms_eps);
        });
        self.kernels.matmul(mix, &flat.into(), false)
    }
}
