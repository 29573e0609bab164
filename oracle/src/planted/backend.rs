//! A backend at fault.
//!
//! Promises: every call goes to the wrapped backend; the fault changes what goes in or what comes out.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use engine::backend::{Backend, Call, CompressedRows, Entered};
use engine::config::{Compression, Config};
use engine::format::weights::{Compressor, Expert, HyperConnection, HyperHead, Matrix, Routing};
use engine::profile::{Profile, RouterFloor};
use engine::rows::Rows;
use engine::session::RunError;
use engine::state::StateVisitor;
use engine::tap::{Tap, Taps};
use engine::tensor::{Bytes, DType};

use super::{Fault, Op, Slip, Stale, When};

/// A backend at fault, by reference or owned in a box.
pub struct Planted<P> {
    sound: P,
    fault: Fault,
    /// Whether the engine is one that the fault shows in.
    active: bool,
}

/// The state of a layer, and what kind of layer it is.
#[derive(Clone)]
pub struct Tagged<S> {
    compression: Compression,
    inner: S,
    /// Times that tokens were forgotten.
    forgotten: usize,
}

impl<P> Planted<P>
where
    P: Deref + Sync,
    P::Target: Backend,
{
    /// `sound` with a fault.
    #[must_use]
    pub fn new(sound: P, fault: Fault) -> Self {
        Self::if_active(sound, fault, true)
    }

    /// The same; without the fault where it does not show in this engine.
    #[must_use]
    pub fn if_active(sound: P, fault: Fault, active: bool) -> Self {
        Self { sound, fault, active }
    }

    fn slips(&self, slip: Slip) -> bool {
        self.active && self.fault == Fault::Slip(slip)
    }

    fn is_off(&self, op: Op, rows: usize) -> bool {
        let Fault::Ulp(own, when) = self.fault else { return false };
        self.active && own == op && when.holds(rows)
    }

    /// Changes rows on the host.
    fn change(&self, rows: RowsOf<P>, change: impl FnOnce(&mut Rows)) -> RowsOf<P> {
        let mut values = self.sound.download(&rows).expect("rows can be read");
        change(&mut values);
        self.sound.upload(values).expect("there was room for these rows")
    }

    /// The largest element of the first row one step up, if this is a call that is at fault.
    fn spoil(&self, op: Op, rows: RowsOf<P>) -> RowsOf<P> {
        if !self.is_off(op, self.sound.count(&rows)) {
            return rows;
        }
        self.change(rows, |values| step_up(values, 0))
    }

    /// Hyper-parameters and meaning as the fault has them for an operation.
    fn altered(&self, op: Op, config: &Config, profile: &Profile) -> Option<(Config, Profile)> {
        if !self.active {
            return None;
        }
        let Fault::Slip(slip) = self.fault else { return None };
        let (mut config, mut profile) = (config.clone(), *profile);
        match (slip, op) {
            (Slip::WindowShort, Op::Attend) => config.window -= 1,
            (Slip::WindowLong, Op::Attend) => config.window += 1,
            (Slip::TopKShort, Op::Choose) => config.indexer_top_k -= 1,
            (Slip::TopKLong, Op::Choose) => config.indexer_top_k += 1,
            (Slip::SinkhornShort, Op::Enter) => config.sinkhorn_iterations -= 1,
            (Slip::EpsIgnored, Op::Queries | Op::Enter | Op::Compress | Op::Head) => {
                config.rms_eps = 0.0;
            }
            (Slip::RoutedScaleIgnored, Op::Route) => config.routed_scale = 1.0,
            (Slip::QueryBase, Op::Queries)
            | (Slip::KeyBase, Op::Keys)
            | (Slip::BackBase, Op::Attend) => {
                config.rope_base *= 1.5;
                config.compressed_rope_base *= 1.5;
            }
            (Slip::YarnIgnored, Op::Queries | Op::Keys | Op::Attend | Op::Choose) => {
                config.yarn.factor = 1.0;
            }
            (Slip::Int8Ignored, Op::Routed) => profile.int8_activations = false,
            (Slip::Fp8Ignored, Op::Keys | Op::Compress) => profile.fp8_rows = false,
            (Slip::Fp4Ignored, Op::Choose | Op::Compress) => profile.fp4_indexer = false,
            (Slip::F16Ignored, Op::Keys | Op::Compress) => profile.f16_rows = false,
            (Slip::WeighedAfter, Op::Routed) => profile.weight_before_down = false,
            _ => return None,
        }
        // A floor is never met in ordinary rows, so it goes with another slip.
        if slip == Slip::RoutedScaleIgnored {
            profile.router_floor = RouterFloor::Plus;
        }
        Some((config, profile))
    }

    /// Runs an operation in the call as the fault has it.
    fn in_call<T>(&self, op: Op, call: &Call<'_>, run: impl FnOnce(&Call<'_>) -> T) -> T {
        match self.altered(op, call.config, call.profile) {
            Some((config, profile)) => run(&Call::new(&config, &profile, call.tokens, call.start)),
            None => run(call),
        }
    }

    fn weights<'a>(&self, weights: &'a Matrix) -> Cow<'a, Matrix> {
        let slip = match self.fault {
            Fault::Slip(slip) if self.active => slip,
            _ => return Cow::Borrowed(weights),
        };
        spoiled(weights, slip).map_or(Cow::Borrowed(weights), Cow::Owned)
    }

    fn clamp(&self, clamp: Option<f32>) -> Option<f32> {
        if self.slips(Slip::ClampIgnored) {
            None
        } else if self.slips(Slip::ClampDoubled) {
            clamp.map(|clamp| 2.0 * clamp)
        } else {
            clamp
        }
    }
}

type RowsOf<P> = <<P as Deref>::Target as Backend>::Rows;

impl When {
    fn holds(self, rows: usize) -> bool {
        match self {
            Self::Width(width) => rows == width,
            Self::Always | Self::ThreeThreads | Self::Scalar | Self::EveryOther => true,
        }
    }
}

/// The largest element of a row one step up.
fn step_up(values: &mut Rows, row: usize) {
    let largest = values.row_mut(row).iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs()));
    if let Some(value) = largest {
        *value = value.next_up();
    }
}

/// A matrix as a slip reads it; `None` where it reads it rightly.
fn spoiled(weights: &Matrix, slip: Slip) -> Option<Matrix> {
    let (dtype, rows, columns) = (weights.dtype(), weights.rows(), weights.columns());
    let (block, scale): (usize, &[usize]) = match dtype {
        DType::Q8_0 | DType::Iq2Xxs => (dtype.block_bytes(), &[0]),
        DType::Q2K => (dtype.block_bytes(), &[80]),
        DType::Q4K => (dtype.block_bytes(), &[0]),
        _ => (dtype.block_bytes(), &[]),
    };
    let minimum: &[usize] = match dtype {
        DType::Q2K => &[82],
        DType::Q4K => &[2],
        _ => &[],
    };
    let mut bytes: Vec<u8> = (0..rows).flat_map(|row| weights.row(row).to_vec()).collect();
    let row_bytes = bytes.len() / rows;
    let zero = |bytes: &mut [u8], at: usize, length: usize| bytes[at..at + length].fill(0);
    match slip {
        Slip::LastRow => zero(&mut bytes, (rows - 1) * row_bytes, row_bytes),
        Slip::LastBlock => {
            (1..=rows).for_each(|row| zero(&mut bytes, row * row_bytes - block, block));
        }
        Slip::MinimaIgnored if !minimum.is_empty() => {
            for start in (0..bytes.len()).step_by(block) {
                minimum.iter().for_each(|at| zero(&mut bytes, start + at, 2));
            }
        }
        Slip::ScaleOfNext if !scale.is_empty() => {
            let sound = bytes.clone();
            for start in (0..bytes.len() - block).step_by(block) {
                for at in scale {
                    let next = start + block + at;
                    bytes[start + at..start + at + 2].copy_from_slice(&sound[next..next + 2]);
                }
            }
        }
        _ => return None,
    }
    Matrix::new(dtype, rows, columns, Bytes::owned(bytes))
}

impl<P> Backend for Planted<P>
where
    P: Deref + Sync,
    P::Target: Backend,
{
    type Rows = RowsOf<P>;
    type Mixes = <P::Target as Backend>::Mixes;
    type Choices = <P::Target as Backend>::Choices;
    type Chosen = <P::Target as Backend>::Chosen;
    type State = Tagged<<P::Target as Backend>::State>;

    fn name(&self) -> String {
        format!("{}, at fault: {}", self.sound.name(), self.fault.name())
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
        let by = usize::from(self.slips(Slip::SliceShifted) && range.start > 0);
        self.sound.slice(rows, range.start - by..range.end - by)
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
        let inner = self.sound.state(config, compression, context)?;
        Ok(Tagged { compression, inner, forgotten: 0 })
    }

    fn truncate(&self, state: &mut Self::State, length: usize) {
        let length = match self.fault {
            Fault::Rollback(stale, compression)
                if self.active && compression == state.compression =>
            {
                match stale {
                    Stale::Nothing => return,
                    Stale::OneLess => length + 1,
                    Stale::OneMore => length.saturating_sub(1),
                    Stale::FourMore => length.saturating_sub(4),
                    Stale::EveryOther => {
                        // Layers forget in turn, so each layer counts for itself.
                        state.forgotten += 1;
                        if state.forgotten % 2 == 0 {
                            return;
                        }
                        length
                    }
                }
            }
            _ => length,
        };
        self.sound.truncate(&mut state.inner, length);
    }

    fn visit(&self, state: &Self::State, length: usize, visit: &mut StateVisitor<'_>) {
        self.sound.visit(&state.inner, length, visit);
    }

    fn embed(&self, embedding: &Matrix, tokens: &[u32]) -> Self::Rows {
        let by = usize::from(self.slips(Slip::NextToken));
        let shifted = |token: &u32| ((*token as usize + by) % embedding.rows()) as u32;
        let tokens: Vec<u32> = tokens.iter().map(shifted).collect();
        self.spoil(Op::Embed, self.sound.embed(embedding, &tokens))
    }

    fn spread(&self, rows: &Self::Rows) -> Self::Rows {
        self.spoil(Op::Spread, self.sound.spread(rows))
    }

    fn enter(
        &self,
        call: &Call<'_>,
        weights: &HyperConnection,
        streams: &Self::Rows,
        shown: [Tap; 2],
        taps: &mut Taps<'_>,
    ) -> Result<Entered<Self>, RunError> {
        let Entered { mixes, input } = self.in_call(Op::Enter, call, |call| {
            self.sound.enter(call, weights, streams, shown, taps)
        })?;
        Ok(Entered { mixes, input: self.spoil(Op::Enter, input) })
    }

    fn leave(&self, mixes: &Self::Mixes, output: &Self::Rows, streams: &mut Self::Rows) {
        self.sound.leave(mixes, output, streams);
        *streams = self.spoil(Op::Leave, streams.clone());
    }

    fn head(&self, config: &Config, weights: &HyperHead, streams: &Self::Rows) -> Self::Rows {
        let altered = self.altered(Op::Head, config, &Profile::DS4);
        let config = altered.as_ref().map_or(config, |(config, _)| config);
        self.spoil(Op::Head, self.sound.head(config, weights, streams))
    }

    fn unstack(&self, streams: &Self::Rows) -> Self::Rows {
        if self.slips(Slip::BlockShifted) && self.sound.count(streams) > 1 {
            let shifted = self.change(streams.clone(), |rows| {
                let width = rows.width();
                rows.values_mut().rotate_right(width);
            });
            return self.sound.unstack(&shifted);
        }
        self.spoil(Op::Unstack, self.sound.unstack(streams))
    }

    fn join(&self, embedded: &Self::Rows, hidden: &Self::Rows) -> Self::Rows {
        self.spoil(Op::Join, self.sound.join(embedded, hidden))
    }

    fn norm(&self, x: &Self::Rows, weight: &[f32], eps: f32) -> Self::Rows {
        let ones = vec![1.0; weight.len()];
        let weight = if self.slips(Slip::WeightIgnored) { &ones } else { weight };
        let eps = if self.slips(Slip::EpsIgnored) { 0.0 } else { eps };
        self.spoil(Op::Norm, self.sound.norm(x, weight, eps))
    }

    fn matmul(&self, weights: &Matrix, x: &Self::Rows, profile: &Profile) -> Self::Rows {
        let mut profile = *profile;
        if self.slips(Slip::Int8Ignored) {
            profile.int8_activations = false;
        }
        let product = self.sound.matmul(&self.weights(weights), x, &profile);
        if self.slips(Slip::LogitNan) && weights.rows() > weights.columns() {
            return self.change(product, |rows| rows.row_mut(0)[1] = f32::NAN);
        }
        self.spoil(Op::Matmul, product)
    }

    fn grouped(
        &self,
        weights: &Matrix,
        groups: usize,
        x: &Self::Rows,
        profile: &Profile,
    ) -> Self::Rows {
        let weights = self.weights(weights);
        let product = if self.slips(Slip::GroupsRotated) {
            let x = self.change(x.clone(), |rows| {
                let width = rows.width() / groups;
                (0..rows.count()).for_each(|row| rows.row_mut(row).rotate_left(width));
            });
            self.sound.grouped(&weights, groups, &x, profile)
        } else {
            self.sound.grouped(&weights, groups, x, profile)
        };
        self.spoil(Op::Grouped, product)
    }

    fn queries(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError> {
        let queries = self.in_call(Op::Queries, call, |call| {
            self.sound.queries(call, compression, queries, taps)
        });
        Ok(self.spoil(Op::Queries, queries?))
    }

    fn keys(
        &self,
        call: &Call<'_>,
        compression: Compression,
        keys: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError> {
        let keys =
            self.in_call(Op::Keys, call, |call| self.sound.keys(call, compression, keys, taps));
        Ok(self.spoil(Op::Keys, keys?))
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
        let none = vec![-1e30; sinks.len()];
        let sinks = if self.slips(Slip::SinksIgnored) { &none } else { sinks };
        let all = self.sound.all_visible();
        let chosen = if self.slips(Slip::ChoiceIgnored) { &all } else { chosen };
        let stored = self.slips(Slip::StoredKey) && call.tokens.len() > 1;
        let before = stored.then(|| state.inner.clone());
        let run = |keys: &Self::Rows, state: &mut _| {
            self.in_call(Op::Attend, call, |call| {
                self.sound.attend(call, compression, queries, keys, chosen, sinks, state)
            })
        };
        let heads = run(keys, &mut state.inner);
        if let Some(before) = before {
            let last = call.tokens.len() - 1;
            let keys = self.change(keys.clone(), |keys| step_up(keys, last));
            state.inner = before;
            let _ = run(&keys, &mut state.inner);
        }
        self.spoil(Op::Attend, heads)
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
        let mut weights = weights.clone();
        if self.slips(Slip::CompressorWeight) {
            weights.norm.fill(1.0);
        }
        if self.slips(Slip::PlaceIgnored) {
            let (ape, zeros) = (&weights.ape, weights.ape.rows() * weights.ape.columns());
            let bytes = vec![0; zeros * ape.dtype().block_bytes()];
            let (dtype, bytes) = (ape.dtype(), Bytes::owned(bytes));
            let none = Matrix::new(dtype, ape.rows(), ape.columns(), bytes);
            weights.ape = none.expect("a table of the same shape");
        }
        let kv = self.spoil(Op::Compress, kv.clone());
        self.in_call(Op::Compress, call, |call| {
            self.sound.compress(call, rows, &weights, &kv, scores, &mut state.inner, taps)
        })
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
        let weights = self.spoil(Op::Choose, weights);
        self.in_call(Op::Choose, call, |call| {
            self.sound.choose(call, queries, weights, &state.inner, taps)
        })
    }

    fn route(
        &self,
        call: &Call<'_>,
        logits: &Self::Rows,
        routing: &Routing,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Choices, RunError> {
        let routing = match routing {
            Routing::Bias(bias) if self.slips(Slip::RouterBiasIgnored) => {
                Routing::Bias(vec![0.0; bias.len()])
            }
            Routing::Hash(table) if self.slips(Slip::HashShifted) => {
                let mut table = table.clone();
                table.rotate_left(call.config.experts_used);
                Routing::Hash(table)
            }
            routing => routing.clone(),
        };
        let logits = self.spoil(Op::Route, logits.clone());
        self.in_call(Op::Route, call, |call| self.sound.route(call, &logits, &routing, taps))
    }

    fn gated(&self, gate: Self::Rows, up: &Self::Rows, clamp: Option<f32>) -> Self::Rows {
        let clamp = self.clamp(clamp);
        let mid = if self.slips(Slip::GateUpSwapped) {
            self.sound.gated(up.clone(), &gate, clamp)
        } else {
            self.sound.gated(gate, up, clamp)
        };
        self.spoil(Op::Gated, mid)
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
        let mut experts = Cow::Borrowed(experts);
        if self.slips(Slip::ExpertsSwapped) {
            experts.to_mut().swap(0, 1);
        }
        if self.slips(Slip::GateUpSwapped) {
            let swap = |expert: &mut Expert| std::mem::swap(&mut expert.gate, &mut expert.up);
            experts.to_mut().iter_mut().for_each(swap);
        }
        if matches!(self.fault, Fault::Slip(Slip::ScaleOfNext | Slip::MinimaIgnored)) {
            for expert in experts.to_mut() {
                expert.down = self.weights(&expert.down).into_owned();
            }
        }
        let clamp = self.clamp(clamp);
        let rows = self.in_call(Op::Routed, call, |call| {
            self.sound.routed(call, &experts, choices, input, clamp, taps)
        });
        Ok(self.spoil(Op::Routed, rows?))
    }

    fn add(&self, a: Self::Rows, b: &Self::Rows) -> Self::Rows {
        if self.slips(Slip::SharedDropped) {
            return a;
        }
        self.spoil(Op::Add, self.sound.add(a, b))
    }

    fn argmax(&self, logits: &Self::Rows, start: usize) -> Result<Vec<u32>, RunError> {
        let mut logits = logits.clone();
        if self.slips(Slip::ArgmaxShort) {
            logits = self.change(logits, |rows| {
                (0..rows.count()).for_each(|row| {
                    *rows.row_mut(row).last_mut().expect("a vocabulary") = f32::MIN;
                });
            });
        }
        let mut picked = self.sound.argmax(&logits, start)?;
        if self.slips(Slip::TieHighest) {
            let rows = self.sound.download(&logits)?;
            for (row, id) in rows.iter().zip(&mut picked) {
                let best = row[*id as usize];
                *id = row.iter().rposition(|value| *value == best).unwrap_or(0) as u32;
            }
        }
        if self.slips(Slip::ArgmaxShifted) {
            picked.rotate_right(1);
        }
        Ok(picked)
    }
}
