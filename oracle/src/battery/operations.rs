//! Every operation of a backend, called the way a layer calls it.
//!
//! Promises: an operation's inputs are seeded, not computed by other operations, except for the state of
//! attention, compressors and indexers and the mixes of a sublayer, which only they can make.

use std::ops::Range;

use engine::backend::{Backend, Call, CompressedRows, Entered};
use engine::config::{Compression, Config};
use engine::format::weights::{Layer, Matrix};
use engine::rows::Rows;
use engine::session::RunError;
use engine::tap::{Observer, Place, Site, Tap, Taps, Values};
use engine::tensor::DType;

use super::inputs::{Inputs, Source, matrix, rows, vector};
use super::{Case, Row, Seen};

/// An operation, with the layer whose weights it uses where it uses any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the methods of a backend")]
pub enum Operation {
    Embed,
    Spread,
    Enter(usize),
    Leave(usize),
    Head,
    Unstack,
    Join,
    Norm,
    Matmul { dtype: DType, rows: usize, columns: usize, int8: bool },
    Grouped(usize),
    Queries(usize),
    Keys(usize),
    Attend(usize),
    Compress(usize, CompressedRows),
    Choose(usize),
    Route(usize),
    Gated,
    Routed(usize),
    Add,
    Argmax,
}

/// A family of operations, as [`Backend`] groups them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as the families of a backend")]
pub enum Family {
    Embed,
    Hyper,
    Norm,
    Matmul,
    Attention,
    Compressor,
    Indexer,
    Router,
    Moe,
    Sampler,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 10] = [
        Self::Embed,
        Self::Hyper,
        Self::Norm,
        Self::Matmul,
        Self::Attention,
        Self::Compressor,
        Self::Indexer,
        Self::Router,
        Self::Moe,
        Self::Sampler,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Hyper => "hyper",
            Self::Norm => "norm",
            Self::Matmul => "matmul",
            Self::Attention => "attention",
            Self::Compressor => "compressor",
            Self::Indexer => "indexer",
            Self::Router => "router",
            Self::Moe => "moe",
            Self::Sampler => "sampler",
        }
    }

    /// The family that computes an intermediate.
    #[must_use]
    pub const fn of_tap(tap: Tap) -> Self {
        match tap {
            Tap::Embedding => Self::Embed,
            Tap::AttnHyperPost
            | Tap::AttnHyperComb
            | Tap::AttnInput
            | Tap::AttnStreams
            | Tap::FfnHyperPost
            | Tap::FfnHyperComb
            | Tap::FfnInput
            | Tap::Streams
            | Tap::HeadInput => Self::Hyper,
            Tap::AttnNorm | Tap::FfnNorm | Tap::HeadNorm => Self::Norm,
            Tap::QueryLow
            | Tap::KeyUnrotated
            | Tap::OutputLow
            | Tap::AttnOutput
            | Tap::RouterLogits
            | Tap::SharedOutput
            | Tap::Logits => Self::Matmul,
            Tap::QueryUnrotated | Tap::Query | Tap::KeyRow | Tap::Heads => Self::Attention,
            Tap::CompressorKv | Tap::CompressorScore | Tap::CompressedRow => Self::Compressor,
            Tap::IndexerKv
            | Tap::IndexerScore
            | Tap::IndexerRow
            | Tap::IndexerQuery
            | Tap::IndexerWeights
            | Tap::IndexerScores
            | Tap::IndexerChosen => Self::Indexer,
            Tap::RouterExperts | Tap::RouterWeights => Self::Router,
            Tap::ExpertMid | Tap::RoutedOutput | Tap::SharedMid | Tap::FfnOutput => Self::Moe,
        }
    }
}

impl Operation {
    /// The family that it belongs to.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Embed => Family::Embed,
            Self::Spread
            | Self::Enter(_)
            | Self::Leave(_)
            | Self::Head
            | Self::Unstack
            | Self::Join => Family::Hyper,
            Self::Norm => Family::Norm,
            Self::Matmul { .. } | Self::Grouped(_) => Family::Matmul,
            Self::Queries(_) | Self::Keys(_) | Self::Attend(_) => Family::Attention,
            Self::Compress(..) => Family::Compressor,
            Self::Choose(_) => Family::Indexer,
            Self::Route(_) => Family::Router,
            Self::Gated | Self::Routed(_) | Self::Add => Family::Moe,
            Self::Argmax => Family::Sampler,
        }
    }

    /// Whether there are inputs of this kind: exact ones only where every order of the operation's sums
    /// is exact on them.
    pub(super) fn takes(self, inputs: Inputs, config: &Config) -> bool {
        let exact = match self {
            Self::Embed
            | Self::Spread
            | Self::Unstack
            | Self::Join
            | Self::Norm
            | Self::Matmul { .. }
            | Self::Add
            | Self::Argmax => true,
            // Equal scores give equal weights; compressed rows are no integers.
            Self::Attend(layer) => config.layers[layer] == Compression::None,
            _ => false,
        };
        // A row of the embedding is what it is: one kind is enough.
        let seeded = self != Self::Embed || inputs == Inputs::Exact;
        seeded && (exact || inputs != Inputs::Exact)
    }
}

/// Operations that use weights or hyper-parameters of a model, with names and numbers of rows: past the
/// window and past a compressed row of 128 tokens where there is a state.
pub(super) fn of_layers(config: &Config) -> Vec<(String, Operation, usize)> {
    let flat = [
        ("embed", Operation::Embed),
        ("spread", Operation::Spread),
        ("head", Operation::Head),
        ("unstack", Operation::Unstack),
        ("join", Operation::Join),
        ("norm", Operation::Norm),
        ("gated", Operation::Gated),
        ("add", Operation::Add),
        ("argmax", Operation::Argmax),
    ];
    let mut all: Vec<(String, Operation, usize)> =
        flat.into_iter().map(|(name, operation)| (name.to_owned(), operation, 12)).collect();
    for (index, compression) in config.layers.iter().enumerate() {
        let mut add = |name: &str, operation, tokens| {
            all.push((format!("{name} layer {index}"), operation, tokens));
        };
        add("enter", Operation::Enter(index), 12);
        add("leave", Operation::Leave(index), 12);
        add("grouped", Operation::Grouped(index), 12);
        add("queries", Operation::Queries(index), 12);
        add("keys", Operation::Keys(index), 12);
        add("route", Operation::Route(index), 12);
        add("routed", Operation::Routed(index), 12);
        add("attend", Operation::Attend(index), 148);
        if *compression != Compression::None {
            let rows = CompressedRows::Attention;
            add("compress", Operation::Compress(index, rows), 148);
        }
        if *compression == Compression::Ratio4 {
            let rows = CompressedRows::Indexer;
            add("compress index", Operation::Compress(index, rows), 148);
            add("choose", Operation::Choose(index), 148);
        }
    }
    all
}

/// Keeps everything shown, in order.
#[derive(Default)]
struct Shown(Vec<Row>);

impl Observer for Shown {
    fn wants(&self, _: Tap) -> bool {
        true
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        let bits = match values {
            Values::F32(values) => values.iter().map(|value| value.to_bits()).collect(),
            Values::Index(values) => values.iter().map(|index| *index as u32).collect(),
        };
        self.0.push(Row { what: site.tap.name(), token: site.position, bits });
    }
}

pub(super) fn run<B: Backend>(case: &Case, backend: &B, calls: &[Range<usize>]) -> Seen {
    let mut bench = Bench { case, backend, shown: Shown::default() };
    let refused = |error: RunError| error.to_string();
    if let Operation::Attend(layer) | Operation::Compress(layer, _) | Operation::Choose(layer) =
        case.operation
    {
        bench.with_state(layer, calls).map_err(refused)?;
    } else {
        for tokens in calls {
            bench.without_state(tokens.clone()).map_err(refused)?;
        }
    }
    // Intermediates come by call; calls are cut anywhere.
    bench.shown.0.sort_by_key(|row| row.token);
    Ok(bench.shown.0)
}

/// A case on a backend.
struct Bench<'a, B> {
    case: &'a Case,
    backend: &'a B,
    shown: Shown,
}

impl<B: Backend> Bench<'_, B> {
    fn config(&self) -> &'static Config {
        &self.case.world().model.config
    }

    fn layer(&self, index: usize) -> &'static Layer {
        &self.case.world().model.weights.layers[index]
    }

    /// Input number `which` of the operation, uploaded.
    fn input(&self, which: u64, tokens: &Range<usize>, width: usize) -> Result<B::Rows, RunError> {
        let seed = self.case.seed.wrapping_add(which);
        self.backend.upload(rows(self.case.inputs, seed, tokens.clone(), width))
    }

    /// Rows of zeros in exact cases, where any other score would make an exponential.
    fn scored(&self, which: u64, tokens: &Range<usize>, width: usize) -> Result<B::Rows, RunError> {
        if self.case.inputs == Inputs::Exact {
            return self.backend.upload(Rows::zeros(tokens.len(), width));
        }
        self.input(which, tokens, width)
    }

    fn output(&mut self, tokens: &Range<usize>, rows: &B::Rows) -> Result<(), RunError> {
        let rows = self.backend.download(rows)?;
        // Each token has the same number of rows.
        let each = (rows.count() / tokens.len()).max(1);
        for (index, row) in rows.iter().enumerate() {
            let bits = row.iter().map(|value| value.to_bits()).collect();
            self.shown.0.push(Row { what: "output", token: tokens.start + index / each, bits });
        }
        Ok(())
    }

    fn ids(&self, tokens: &Range<usize>) -> Vec<u32> {
        let vocabulary = self.config().vocabulary as u64;
        let id =
            |token| (Source::new(Inputs::Random, self.case.seed, token).word() % vocabulary) as u32;
        tokens.clone().map(id).collect()
    }

    fn without_state(&mut self, tokens: Range<usize>) -> Result<(), RunError> {
        let (config, backend) = (self.config(), self.backend);
        let (hidden, profile) = (config.hidden, self.case.world().profile);
        let ids = self.ids(&tokens);
        let weights = &self.case.world().model.weights;
        let output = match self.case.operation {
            Operation::Embed => backend.embed(&weights.embedding, &ids),
            Operation::Spread => backend.spread(&self.input(1, &tokens, hidden)?),
            Operation::Unstack => backend.unstack(&self.input(1, &tokens, 4 * hidden)?),
            Operation::Join => {
                let streams = self.input(2, &(4 * tokens.start..4 * tokens.end), hidden)?;
                backend.join(&self.input(1, &tokens, hidden)?, &streams)
            }
            Operation::Head => {
                backend.head(config, &weights.head, &self.input(1, &tokens, 4 * hidden)?)
            }
            Operation::Norm => {
                let weight = vector(self.case.inputs, self.case.seed, hidden);
                backend.norm(&self.input(1, &tokens, hidden)?, &weight, config.rms_eps)
            }
            Operation::Matmul { dtype, rows, columns, int8 } => {
                let weights: Matrix =
                    matrix(self.case.inputs, self.case.seed, dtype, rows, columns);
                let profile = engine::Profile { int8_activations: int8, ..profile };
                backend.matmul(&weights, &self.input(1, &tokens, columns)?, &profile)
            }
            Operation::Grouped(layer) => {
                let (weights, groups) = (&self.layer(layer).output_a, config.output_groups);
                let x = self.input(1, &tokens, groups * weights.columns())?;
                backend.grouped(weights, groups, &x, &profile)
            }
            Operation::Gated => {
                let [gate, up] = [1, 2].map(|which| self.input(which, &tokens, hidden));
                backend.gated(gate?, &up?, Some(2.5))
            }
            Operation::Add => {
                let [a, b] = [1, 2].map(|which| self.input(which, &tokens, hidden));
                backend.add(a?, &b?)
            }
            Operation::Argmax => {
                let seed = self.case.seed.wrapping_add(1);
                let mut logits = rows(self.case.inputs, seed, tokens.clone(), config.vocabulary);
                // The first and the last entry win now and then.
                for (row, token) in tokens.clone().enumerate() {
                    match token % 5 {
                        1 => logits.row_mut(row)[0] = 1e20,
                        3 => logits.row_mut(row)[config.vocabulary - 1] = 1e20,
                        _ => {}
                    }
                }
                let ids = backend.argmax(&backend.upload(logits)?, tokens.start)?;
                for (token, id) in tokens.zip(ids) {
                    self.shown.0.push(Row { what: "output", token, bits: vec![id] });
                }
                return Ok(());
            }
            other => self.in_a_call(other, &tokens, &ids)?,
        };
        self.output(&tokens, &output)
    }

    /// Operations that need to know what the tokens of a call share.
    fn in_a_call(
        &mut self,
        operation: Operation,
        tokens: &Range<usize>,
        ids: &[u32],
    ) -> Result<B::Rows, RunError> {
        let (config, backend) = (self.config(), self.backend);
        let profile = self.case.world().profile;
        let call = Call::new(config, &profile, ids, tokens.start);
        let heads = self.input(1, tokens, config.heads * config.head_dim)?;
        let [streams, logits, x] =
            [(3, 4 * config.hidden), (4, config.experts), (5, config.hidden)]
                .map(|(which, width)| self.input(which, tokens, width));
        let seed = self.case.seed.wrapping_add(2);
        let mut key = rows(self.case.inputs, seed, tokens.clone(), config.head_dim);
        // Key rows are stored in f16; what does not fit is an error, not an input.
        key.values_mut().iter_mut().for_each(|value| *value = value.clamp(-3e4, 3e4));
        let key = backend.upload(key);
        let mut shown = std::mem::take(&mut self.shown);
        let index = match operation {
            Operation::Enter(index)
            | Operation::Leave(index)
            | Operation::Queries(index)
            | Operation::Keys(index)
            | Operation::Route(index)
            | Operation::Routed(index) => index,
            other => unreachable!("{other:?} is run elsewhere"),
        };
        let (layer, clamp) = (self.layer(index), config.clamps[index]);
        let mut taps = Taps::new(&mut shown, Place::Layer(index));
        let hyper = [Tap::AttnHyperPost, Tap::AttnHyperComb];
        let output = match operation {
            Operation::Queries(_) => backend.queries(&call, layer.compression, heads, &mut taps)?,
            Operation::Keys(_) => backend.keys(&call, layer.compression, key?, &mut taps)?,
            Operation::Route(_) | Operation::Routed(_) => {
                let choices = backend.route(&call, &logits?, &layer.routing, &mut taps)?;
                if matches!(operation, Operation::Route(_)) {
                    x?
                } else {
                    let experts = &layer.experts;
                    backend.routed(&call, experts, &choices, &x?, clamp, &mut taps)?
                }
            }
            _ => {
                let mut streams = streams?;
                let Entered { mixes, input } =
                    backend.enter(&call, &layer.attn_hyper, &streams, hyper, &mut taps)?;
                if matches!(operation, Operation::Leave(_)) {
                    backend.leave(&mixes, &x?, &mut streams);
                    streams
                } else {
                    input
                }
            }
        };
        self.shown = shown;
        Ok(output)
    }

    /// Attention, compressors and indexers: calls follow each other over one state.
    fn with_state(&mut self, index: usize, calls: &[Range<usize>]) -> Result<(), RunError> {
        let (config, layer, backend) = (self.config(), self.layer(index), self.backend);
        let compression = layer.compression;
        let mut state = backend.state(config, compression, None)?;
        for tokens in calls {
            let ids = self.ids(tokens);
            let profile = self.case.world().profile;
            let call = Call::new(config, &profile, &ids, tokens.start);
            let chosen = self.fill(index, &call, tokens, &mut state)?;
            if let Operation::Attend(_) = self.case.operation {
                let queries = self.scored(11, tokens, config.heads * config.head_dim)?;
                let keys = self.input(12, tokens, config.head_dim)?;
                let sinks = match self.case.inputs {
                    Inputs::Exact => vec![0.0; config.heads],
                    _ => layer.sinks.clone(),
                };
                let heads = backend.attend(
                    &call,
                    compression,
                    &queries,
                    &keys,
                    &chosen,
                    &sinks,
                    &mut state,
                );
                self.output(tokens, &heads)?;
            }
        }
        Ok(())
    }

    /// Compressed rows of a call and the choice among them.
    fn fill(
        &mut self,
        index: usize,
        call: &Call<'_>,
        tokens: &Range<usize>,
        state: &mut B::State,
    ) -> Result<B::Chosen, RunError> {
        let (config, layer, backend) = (self.config(), self.layer(index), self.backend);
        let operation = self.case.operation;
        let indexed = |rows| {
            matches!(operation, Operation::Attend(_) | Operation::Choose(_))
                || operation == Operation::Compress(index, rows)
        };
        let kinds = [
            (CompressedRows::Attention, layer.compressor.as_ref(), config.head_dim),
            (
                CompressedRows::Indexer,
                layer.indexer.as_ref().map(|indexer| &indexer.compressor),
                config.indexer_dim,
            ),
        ];
        for (which, (rows, weights, dim)) in kinds.into_iter().enumerate() {
            let Some(weights) = weights.filter(|_| indexed(rows)) else { continue };
            let width = layer.compression.projected(dim);
            let kv = self.input(13 + which as u64, tokens, width)?;
            let scores = self.scored(15 + which as u64, tokens, width)?;
            let mut taps = Taps::new(&mut self.shown, Place::Layer(index));
            backend.compress(call, rows, weights, &kv, scores, state, &mut taps)?;
        }
        if layer.indexer.is_none() || !indexed(CompressedRows::Indexer) {
            return Ok(backend.all_visible());
        }
        if let Operation::Compress(..) = operation {
            return Ok(backend.all_visible());
        }
        let queries = self.input(17, tokens, config.indexer_heads * config.indexer_dim)?;
        let weights = self.input(18, tokens, config.indexer_heads)?;
        let mut taps = Taps::new(&mut self.shown, Place::Layer(index));
        backend.choose(call, queries, weights, state, &mut taps)
    }
}
