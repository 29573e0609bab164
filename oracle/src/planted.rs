//! A backend with a fault that shows only in calls of one width.
//!
//! Promises: [`Planted`] gives the bytes of the backend it wraps, except for one element of one operation
//! family, which is off by one unit in the last place in calls of the given number of rows. It is what a
//! kernel chosen by row count does to a result; checks of speculation must find it.

use std::ops::Range;

use engine::backend::{Backend, Call, CompressedRows, Entered};
use engine::config::{Compression, Config};
use engine::format::weights::{Compressor, Expert, HyperConnection, HyperHead, Matrix, Routing};
use engine::profile::Profile;
use engine::rows::Rows;
use engine::session::RunError;
use engine::state::StateVisitor;
use engine::tap::{Tap, Taps};

/// The operation that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Products with a matrix.
    Matmul,
    /// Root-mean-square norms.
    Norm,
    /// Attention.
    Attention,
    /// Routed experts.
    Experts,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Matmul, Self::Norm, Self::Attention, Self::Experts];
}

/// A backend at fault.
pub struct Planted<'a, B> {
    sound: &'a B,
    family: Family,
    width: usize,
}

impl<'a, B: Backend> Planted<'a, B> {
    /// `sound`, but for `family` in calls of `width` rows.
    #[must_use]
    pub fn new(sound: &'a B, family: Family, width: usize) -> Self {
        Self { sound, family, width }
    }

    /// The largest element of the first row one step up, if this is the call that is at fault.
    fn spoil(&self, family: Family, rows: B::Rows) -> B::Rows {
        if family != self.family || self.sound.count(&rows) != self.width {
            return rows;
        }
        let mut values = self.sound.download(&rows).expect("rows can be read");
        let largest = values.row_mut(0).iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs()));
        if let Some(value) = largest {
            *value = value.next_up();
        }
        self.sound.upload(values).expect("there was room for these rows")
    }
}

impl<B: Backend> Backend for Planted<'_, B> {
    type Rows = B::Rows;
    type Mixes = B::Mixes;
    type Choices = B::Choices;
    type Chosen = B::Chosen;
    type State = B::State;

    fn name(&self) -> String {
        format!("{}, {:?} at fault in calls of {} rows", self.sound.name(), self.family, self.width)
    }

    fn kernels_run(&self) -> Vec<(String, u64)> {
        self.sound.kernels_run()
    }

    fn upload(&self, rows: Rows) -> Result<Self::Rows, RunError> {
        self.sound.upload(rows)
    }

    fn download(&self, rows: &Self::Rows) -> Result<Rows, RunError> {
        self.sound.download(rows)
    }

    fn count(&self, rows: &Self::Rows) -> usize {
        self.sound.count(rows)
    }

    fn slice(&self, rows: &Self::Rows, range: Range<usize>) -> Self::Rows {
        self.sound.slice(rows, range)
    }

    fn show(
        &self,
        taps: &mut Taps<'_>,
        tap: Tap,
        start: usize,
        rows: &Self::Rows,
    ) -> Result<(), RunError> {
        self.sound.show(taps, tap, start, rows)
    }

    fn state(
        &self,
        config: &Config,
        compression: Compression,
        context: Option<usize>,
    ) -> Result<Self::State, RunError> {
        self.sound.state(config, compression, context)
    }

    fn truncate(&self, state: &mut Self::State, length: usize) {
        self.sound.truncate(state, length);
    }

    fn visit(&self, state: &Self::State, length: usize, visit: &mut StateVisitor<'_>) {
        self.sound.visit(state, length, visit);
    }

    fn embed(&self, embedding: &Matrix, tokens: &[u32]) -> Self::Rows {
        self.sound.embed(embedding, tokens)
    }

    fn spread(&self, rows: &Self::Rows) -> Self::Rows {
        self.sound.spread(rows)
    }

    fn enter(
        &self,
        call: &Call<'_>,
        weights: &HyperConnection,
        streams: &Self::Rows,
        shown: [Tap; 2],
        taps: &mut Taps<'_>,
    ) -> Result<Entered<Self>, RunError> {
        let Entered { mixes, input } = self.sound.enter(call, weights, streams, shown, taps)?;
        Ok(Entered { mixes, input })
    }

    fn leave(&self, mixes: &Self::Mixes, output: &Self::Rows, streams: &mut Self::Rows) {
        self.sound.leave(mixes, output, streams);
    }

    fn head(&self, config: &Config, weights: &HyperHead, streams: &Self::Rows) -> Self::Rows {
        self.sound.head(config, weights, streams)
    }

    fn unstack(&self, streams: &Self::Rows) -> Self::Rows {
        self.sound.unstack(streams)
    }

    fn join(&self, embedded: &Self::Rows, hidden: &Self::Rows) -> Self::Rows {
        self.sound.join(embedded, hidden)
    }

    fn norm(&self, x: &Self::Rows, weight: &[f32], eps: f32) -> Self::Rows {
        self.spoil(Family::Norm, self.sound.norm(x, weight, eps))
    }

    fn matmul(&self, weights: &Matrix, x: &Self::Rows, profile: &Profile) -> Self::Rows {
        self.spoil(Family::Matmul, self.sound.matmul(weights, x, profile))
    }

    fn grouped(
        &self,
        weights: &Matrix,
        groups: usize,
        x: &Self::Rows,
        profile: &Profile,
    ) -> Self::Rows {
        self.sound.grouped(weights, groups, x, profile)
    }

    fn queries(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError> {
        self.sound.queries(call, compression, queries, taps)
    }

    fn keys(
        &self,
        call: &Call<'_>,
        compression: Compression,
        keys: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError> {
        self.sound.keys(call, compression, keys, taps)
    }

    fn attend(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: &Self::Rows,
        keys: &Self::Rows,
        chosen: &Self::Chosen,
        sinks: &[f32],
        state: &mut Self::State,
    ) -> Self::Rows {
        let heads = self.sound.attend(call, compression, queries, keys, chosen, sinks, state);
        self.spoil(Family::Attention, heads)
    }

    fn compress(
        &self,
        call: &Call<'_>,
        rows: CompressedRows,
        weights: &Compressor,
        kv: &Self::Rows,
        scores: Self::Rows,
        state: &mut Self::State,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError> {
        self.sound.compress(call, rows, weights, kv, scores, state, taps)
    }

    fn all_visible(&self) -> Self::Chosen {
        self.sound.all_visible()
    }

    fn choose(
        &self,
        call: &Call<'_>,
        queries: Self::Rows,
        weights: Self::Rows,
        state: &Self::State,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Chosen, RunError> {
        self.sound.choose(call, queries, weights, state, taps)
    }

    fn route(
        &self,
        call: &Call<'_>,
        logits: &Self::Rows,
        routing: &Routing,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Choices, RunError> {
        self.sound.route(call, logits, routing, taps)
    }

    fn gated(&self, gate: Self::Rows, up: &Self::Rows, clamp: Option<f32>) -> Self::Rows {
        self.sound.gated(gate, up, clamp)
    }

    fn routed(
        &self,
        call: &Call<'_>,
        experts: &[Expert],
        choices: &Self::Choices,
        input: &Self::Rows,
        clamp: Option<f32>,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError> {
        let rows = self.sound.routed(call, experts, choices, input, clamp, taps)?;
        Ok(self.spoil(Family::Experts, rows))
    }

    fn add(&self, a: Self::Rows, b: &Self::Rows) -> Self::Rows {
        self.sound.add(a, b)
    }

    fn argmax(&self, logits: &Self::Rows, start: usize) -> Result<Vec<u32>, RunError> {
        self.sound.argmax(logits, start)
    }
}
