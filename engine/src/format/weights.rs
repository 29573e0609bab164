//! The tensors of a model by their role.
//!
//! Promises: every tensor that the forward pass reads is found, of a type the operations take and of
//! exactly the shape that the hyper-parameters ask for, before anything runs; a missing or misshapen
//! one is refused by name. Tensors that no role claims are listed, not ignored silently.
//! Names are those of ds4's GGUF files, whatever the container.
//! Leaves the container to `gguf` and `safetensors`, and arithmetic to `reference`.

use std::collections::BTreeSet;

use super::gguf::Gguf;
use super::quant;
use crate::config::{Compression, Config, MIX, STREAMS};
use crate::tensor::{Bytes, DType, Tensor};

/// Refusals of a model's tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A tensor that the model needs is not in the file.
    #[error("tensor `{name}`: missing")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has other dimensions than the hyper-parameters ask for.
    #[error("tensor `{name}`: dimensions {found:?}, expected {expected:?} (contiguous first)")]
    Shape {
        /// Its name.
        name: String,
        /// Dimensions in the file.
        found: Vec<usize>,
        /// Dimensions asked for.
        expected: Vec<usize>,
    },
    /// A tensor is stored in a type that its operation does not take.
    #[error("tensor `{name}`: type {found}, expected {expected}")]
    Type {
        /// Its name.
        name: String,
        /// Type in the file.
        found: &'static str,
        /// Types taken.
        expected: &'static str,
    },
    /// A value inside a tensor cannot be used.
    #[error("tensor `{name}`, element {index} = {value}: {rule}")]
    Element {
        /// Its name.
        name: String,
        /// Linear index of the element.
        index: usize,
        /// The value there.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
}

/// A file that holds tensors under GGUF names.
pub trait TensorSource {
    /// The tensor of that name.
    fn tensor(&self, name: &str) -> Option<Tensor>;
    /// The names of all tensors.
    fn names(&self) -> Vec<String>;
}

impl TensorSource for Gguf {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.tensor(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.tensors().iter().map(|tensor| tensor.name().to_owned()).collect()
    }
}

/// A matrix as stored: `rows` output features of `columns` contiguous inputs.
#[derive(Clone)]
pub struct Matrix {
    dtype: DType,
    rows: usize,
    columns: usize,
    row_bytes: usize,
    bytes: Bytes,
}

impl Matrix {
    /// A matrix of these bytes; `None` when rows are not whole blocks or the bytes are not `rows` of them.
    #[must_use]
    pub fn new(dtype: DType, rows: usize, columns: usize, bytes: Bytes) -> Option<Self> {
        let row_bytes = dtype.row_bytes(columns)?;
        (row_bytes.checked_mul(rows)? == bytes.len()).then_some(Self {
            dtype,
            rows,
            columns,
            row_bytes,
            bytes,
        })
    }

    /// The stored type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Output features.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of each output feature.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The stored bytes of one output feature.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes..(row + 1) * self.row_bytes]
    }

    /// `count` output features from `first` on.
    ///
    /// # Panics
    /// When they are not inside the matrix.
    #[must_use]
    pub fn row_range(&self, first: usize, count: usize) -> Self {
        let bytes = self.bytes.slice(first * self.row_bytes..(first + count) * self.row_bytes);
        Self { rows: count, bytes: bytes.expect("rows inside the matrix"), ..self.clone() }
    }

    /// One output feature decoded into `out`.
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        quant::decode_row(self.dtype, self.row(row), out);
    }
}

/// Weights of one hyper-connection.
#[derive(Clone)]
pub struct HyperConnection {
    /// Mix of the streams: `[24][4 * hidden]`.
    pub mix: Matrix,
    /// Scales of input weights, output weights and stream matrix.
    pub scale: Vec<f32>,
    /// Biases of the 24 mixes.
    pub base: Vec<f32>,
}

/// Weights that reduce the streams before an output.
#[derive(Clone)]
pub struct HyperHead {
    /// Mix of the streams: `[4][4 * hidden]`.
    pub mix: Matrix,
    /// The one scale.
    pub scale: f32,
    /// Biases of the 4 mixes.
    pub base: Vec<f32>,
}

/// Weights of one compressor.
#[derive(Clone)]
pub struct Compressor {
    /// Values: `[width][hidden]`.
    pub kv: Matrix,
    /// Scores: `[width][hidden]`.
    pub gate: Matrix,
    /// Score bias per place in a window: `[ratio][width]`.
    pub ape: Matrix,
    /// Norm of a pooled row.
    pub norm: Vec<f32>,
}

/// Weights of one indexer.
#[derive(Clone)]
pub struct Indexer {
    /// Queries: `[heads * dim][q_rank]`.
    pub q_b: Matrix,
    /// Head weights: `[heads][hidden]`.
    pub proj: Matrix,
    /// The compressor of its rows.
    pub compressor: Compressor,
}

/// How a layer chooses experts.
#[derive(Clone)]
pub enum Routing {
    /// By score plus this bias, one entry an expert.
    Bias(Vec<f32>),
    /// By token id: `experts_used` experts for each id.
    Hash(Vec<u32>),
}

/// A gated feed-forward network: shared expert, or one routed expert.
#[derive(Clone)]
pub struct Expert {
    /// Gate projection: `[expert_dim][hidden]`.
    pub gate: Matrix,
    /// Up projection: `[expert_dim][hidden]`.
    pub up: Matrix,
    /// Down projection: `[hidden][expert_dim]`.
    pub down: Matrix,
}

/// Weights of one layer.
#[derive(Clone)]
#[expect(missing_docs, reason = "named as in the GGUF file")]
pub struct Layer {
    pub compression: Compression,
    pub attn_hyper: HyperConnection,
    pub attn_norm: Vec<f32>,
    pub q_a: Matrix,
    pub q_a_norm: Vec<f32>,
    pub q_b: Matrix,
    pub kv: Matrix,
    pub kv_norm: Vec<f32>,
    pub sinks: Vec<f32>,
    pub output_a: Matrix,
    pub output_b: Matrix,
    pub compressor: Option<Compressor>,
    pub indexer: Option<Indexer>,
    pub ffn_hyper: HyperConnection,
    pub ffn_norm: Vec<f32>,
    pub router: Matrix,
    pub routing: Routing,
    pub experts: Vec<Expert>,
    pub shared: Expert,
}

/// Weights of the main model.
#[derive(Clone)]
pub struct Weights {
    /// Token embeddings: `[vocabulary][hidden]`.
    pub embedding: Matrix,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Reduction of the streams before the output.
    pub head: HyperHead,
    /// Norm before the output.
    pub norm: Vec<f32>,
    /// Output: `[vocabulary][hidden]`.
    pub output: Matrix,
}

/// Weights of the multi-token-prediction block.
#[derive(Clone)]
pub struct MtpWeights {
    /// Projection of the embedding: `[hidden][hidden]`.
    pub e_proj: Matrix,
    /// Projection of a stream: `[hidden][hidden]`.
    pub h_proj: Matrix,
    /// Norm of the embedding.
    pub e_norm: Vec<f32>,
    /// Norm of a stream.
    pub h_norm: Vec<f32>,
    /// The block's own layer.
    pub layer: Layer,
    /// Reduction of the streams before the output.
    pub head: HyperHead,
    /// Norm before the main model's output.
    pub norm: Vec<f32>,
}

/// Finds tensors and remembers which were claimed.
struct Finder<'a> {
    source: &'a dyn TensorSource,
    claimed: BTreeSet<String>,
}

impl Finder<'_> {
    fn tensor(&mut self, name: String, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let Some(tensor) = self.source.tensor(&name) else {
            return Err(WeightsError::Missing { name });
        };
        if tensor.dims() != expected {
            let (found, expected) = (tensor.dims().to_vec(), expected.to_vec());
            return Err(WeightsError::Shape { name, found, expected });
        }
        self.claimed.insert(name);
        Ok(tensor)
    }

    fn weights(&mut self, name: String, expected: &[usize]) -> Result<Tensor, WeightsError> {
        let tensor = self.tensor(name, expected)?;
        if tensor.dtype() == DType::I32 {
            let (name, found) = (tensor.name().to_owned(), tensor.dtype().name());
            return Err(WeightsError::Type { name, found, expected: "a type of weights" });
        }
        Ok(tensor)
    }

    fn matrix(
        &mut self,
        name: String,
        columns: usize,
        rows: usize,
    ) -> Result<Matrix, WeightsError> {
        let tensor = self.weights(name, &[columns, rows])?;
        Ok(part(&tensor, columns, rows, 0))
    }

    /// One matrix per expert from a tensor of three dimensions.
    fn matrices(
        &mut self,
        name: String,
        columns: usize,
        rows: usize,
        count: usize,
    ) -> Result<Vec<Matrix>, WeightsError> {
        let tensor = self.weights(name, &[columns, rows, count])?;
        Ok((0..count).map(|index| part(&tensor, columns, rows, index)).collect())
    }

    fn vector(&mut self, name: String, length: usize) -> Result<Vec<f32>, WeightsError> {
        let tensor = self.weights(name, &[length])?;
        let mut values = vec![0.0; length];
        quant::decode_row(tensor.dtype(), tensor.bytes(), &mut values);
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            let (name, value) = (tensor.name().to_owned(), values[index].to_string());
            return Err(WeightsError::Element { name, index, value, rule: "must be finite" });
        }
        Ok(values)
    }

    fn hyper(&mut self, prefix: &str, config: &Config) -> Result<HyperConnection, WeightsError> {
        Ok(HyperConnection {
            mix: self.matrix(format!("{prefix}_fn.weight"), config.stream_dim(), MIX)?,
            scale: self.vector(format!("{prefix}_scale.weight"), 3)?,
            base: self.vector(format!("{prefix}_base.weight"), MIX)?,
        })
    }

    fn head(&mut self, prefix: &str, config: &Config) -> Result<HyperHead, WeightsError> {
        Ok(HyperHead {
            mix: self.matrix(format!("{prefix}_fn.weight"), config.stream_dim(), STREAMS)?,
            scale: self.vector(format!("{prefix}_scale.weight"), 1)?[0],
            base: self.vector(format!("{prefix}_base.weight"), STREAMS)?,
        })
    }

    fn compressor(
        &mut self,
        prefix: &str,
        config: &Config,
        compression: Compression,
        dim: usize,
    ) -> Result<Compressor, WeightsError> {
        let (width, hidden) = (compression.projected(dim), config.hidden);
        Ok(Compressor {
            kv: self.matrix(format!("{prefix}_kv.weight"), hidden, width)?,
            gate: self.matrix(format!("{prefix}_gate.weight"), hidden, width)?,
            ape: self.matrix(format!("{prefix}_ape.weight"), width, compression.ratio())?,
            norm: self.vector(format!("{prefix}_norm.weight"), dim)?,
        })
    }

    fn hash_table(&mut self, name: String, config: &Config) -> Result<Vec<u32>, WeightsError> {
        let tensor = self.tensor(name, &[config.experts_used, config.vocabulary])?;
        if tensor.dtype() != DType::I32 {
            let (name, found) = (tensor.name().to_owned(), tensor.dtype().name());
            return Err(WeightsError::Type { name, found, expected: "I32" });
        }
        let expert = |(index, bytes): (usize, &[u8])| {
            let value = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            u32::try_from(value)
                .ok()
                .filter(|expert| (*expert as usize) < config.experts)
                .ok_or_else(|| WeightsError::Element {
                    name: tensor.name().to_owned(),
                    index,
                    value: value.to_string(),
                    rule: "must be an expert, from 0 to expert_count - 1",
                })
        };
        tensor.bytes().chunks_exact(4).enumerate().map(expert).collect()
    }

    fn layer(
        &mut self,
        prefix: &str,
        config: &Config,
        compression: Compression,
        hashed: bool,
    ) -> Result<Layer, WeightsError> {
        let named = |name: &str| format!("{prefix}.{name}");
        let (hidden, inner) = (config.hidden, config.expert_dim);
        let low = config.output_groups * config.output_rank;
        let compressor = match compression {
            Compression::None => None,
            _ => Some(self.compressor(
                &named("attn_compressor"),
                config,
                compression,
                config.head_dim,
            )?),
        };
        let indexer = match compression {
            Compression::Ratio4 => Some(self.indexer(prefix, config)?),
            _ => None,
        };
        let routing = if hashed {
            Routing::Hash(self.hash_table(named("ffn_gate_tid2eid.weight"), config)?)
        } else {
            Routing::Bias(self.vector(named("exp_probs_b.bias"), config.experts)?)
        };
        let count = config.experts;
        let gates = self.matrices(named("ffn_gate_exps.weight"), hidden, inner, count)?;
        let ups = self.matrices(named("ffn_up_exps.weight"), hidden, inner, count)?;
        let downs = self.matrices(named("ffn_down_exps.weight"), inner, hidden, count)?;
        let experts = gates.into_iter().zip(ups).zip(downs);
        Ok(Layer {
            compression,
            attn_hyper: self.hyper(&named("hc_attn"), config)?,
            attn_norm: self.vector(named("attn_norm.weight"), hidden)?,
            q_a: self.matrix(named("attn_q_a.weight"), hidden, config.q_rank)?,
            q_a_norm: self.vector(named("attn_q_a_norm.weight"), config.q_rank)?,
            q_b: self.matrix(named("attn_q_b.weight"), config.q_rank, config.q_dim())?,
            kv: self.matrix(named("attn_kv.weight"), hidden, config.head_dim)?,
            kv_norm: self.vector(named("attn_kv_a_norm.weight"), config.head_dim)?,
            sinks: self.vector(named("attn_sinks.weight"), config.heads)?,
            output_a: self.matrix(named("attn_output_a.weight"), config.group_dim(), low)?,
            output_b: self.matrix(named("attn_output_b.weight"), low, hidden)?,
            compressor,
            indexer,
            ffn_hyper: self.hyper(&named("hc_ffn"), config)?,
            ffn_norm: self.vector(named("ffn_norm.weight"), hidden)?,
            router: self.matrix(named("ffn_gate_inp.weight"), hidden, config.experts)?,
            routing,
            experts: experts.map(|((gate, up), down)| Expert { gate, up, down }).collect(),
            shared: Expert {
                gate: self.matrix(named("ffn_gate_shexp.weight"), hidden, inner)?,
                up: self.matrix(named("ffn_up_shexp.weight"), hidden, inner)?,
                down: self.matrix(named("ffn_down_shexp.weight"), inner, hidden)?,
            },
        })
    }

    fn indexer(&mut self, prefix: &str, config: &Config) -> Result<Indexer, WeightsError> {
        let named = |name: &str| format!("{prefix}.{name}");
        let (heads, dim) = (config.indexer_heads, config.indexer_dim);
        Ok(Indexer {
            q_b: self.matrix(named("indexer.attn_q_b.weight"), config.q_rank, heads * dim)?,
            proj: self.matrix(named("indexer.proj.weight"), config.hidden, heads)?,
            compressor: self.compressor(
                &named("indexer_compressor"),
                config,
                Compression::Ratio4,
                dim,
            )?,
        })
    }

    /// Names that nothing claimed, in order.
    fn unclaimed(&self) -> Vec<String> {
        let mut names = self.source.names();
        names.retain(|name| !self.claimed.contains(name));
        names.sort();
        names
    }
}

/// Matrix number `index` of a tensor that holds one or several of the same shape.
fn part(tensor: &Tensor, columns: usize, rows: usize, index: usize) -> Matrix {
    let dtype = tensor.dtype();
    let row_bytes = dtype.row_bytes(columns).expect("a tensor's rows are whole blocks");
    let length = row_bytes * rows;
    let bytes = tensor.bytes().slice(index * length..(index + 1) * length);
    Matrix { dtype, rows, columns, row_bytes, bytes: bytes.expect("inside a tensor of that shape") }
}

/// Tensors found, and the names of those that no role claims.
pub struct Found<T> {
    /// What was asked for.
    pub weights: T,
    /// Names of tensors that nothing reads.
    pub unclaimed: Vec<String>,
}

/// Finds the tensors of the main model.
///
/// # Errors
/// Names the tensor that is missing, misshapen, of a type its operation does not take, or that holds
/// an unusable value.
pub fn main_weights(
    source: &dyn TensorSource,
    config: &Config,
) -> Result<Found<Weights>, WeightsError> {
    let mut finder = Finder { source, claimed: BTreeSet::new() };
    let mut layers = Vec::new();
    for (index, compression) in config.layers.iter().enumerate() {
        let hashed = index < config.hash_layers;
        layers.push(finder.layer(&format!("blk.{index}"), config, *compression, hashed)?);
    }
    let weights = Weights {
        embedding: finder.matrix("token_embd.weight".into(), config.hidden, config.vocabulary)?,
        layers,
        head: finder.head("output_hc", config)?,
        norm: finder.vector("output_norm.weight".into(), config.hidden)?,
        output: finder.matrix("output.weight".into(), config.hidden, config.vocabulary)?,
    };
    Ok(Found { weights, unclaimed: finder.unclaimed() })
}

/// Finds the tensors of the multi-token-prediction block that belongs to a model of `config`.
///
/// # Errors
/// As for [`main_weights`].
pub fn mtp_weights(
    source: &dyn TensorSource,
    config: &Config,
) -> Result<Found<MtpWeights>, WeightsError> {
    let mut finder = Finder { source, claimed: BTreeSet::new() };
    let hidden = config.hidden;
    let weights = MtpWeights {
        e_proj: finder.matrix("mtp.0.e_proj.weight".into(), hidden, hidden)?,
        h_proj: finder.matrix("mtp.0.h_proj.weight".into(), hidden, hidden)?,
        e_norm: finder.vector("mtp.0.enorm.weight".into(), hidden)?,
        h_norm: finder.vector("mtp.0.hnorm.weight".into(), hidden)?,
        layer: finder.layer("mtp.0", config, Compression::None, false)?,
        head: finder.head("mtp.0.hc_head", config)?,
        norm: finder.vector("mtp.0.norm.weight".into(), hidden)?,
    };
    Ok(Found { weights, unclaimed: finder.unclaimed() })
}
