//! Hyper-parameters: as a file states them ([`RawConfig`]) and as the engine may rely on them
//! ([`Config`]).
//!
//! Promises: every dimension comes from the file, and [`Config::new`] is the only place where they are
//! checked: what the operations need (whole blocks of 64 for FP8, powers of two for the Hadamard
//! transform, heads that divide into groups) and what bounds memory. Block multiples of a tensor's own
//! type are checked where the tensor is found (`format::weights`).
//! Key names: `deepseek4.*` of GGUF, and the fields of Hugging Face's `config.json`.

use crate::format::{Metadata, Value};

/// Refusals of hyper-parameters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A required key is not there.
    #[error("{key}: missing")]
    Missing {
        /// The key.
        key: String,
    },
    /// A key holds a value of another type.
    #[error("{key}: expected {expected}, found {found}")]
    Type {
        /// The key.
        key: String,
        /// The type the engine reads.
        expected: &'static str,
        /// What the file holds.
        found: String,
    },
    /// A value cannot be used.
    #[error("{key} = {value}: {rule}")]
    Value {
        /// The key.
        key: String,
        /// The value found.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
}

fn refuse(key: &str, value: impl ToString, rule: &'static str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), value: value.to_string(), rule }
}

/// Streams of the hyper-connection.
pub const STREAMS: usize = 4;
/// Outputs of a hyper-connection's mix: input weights, output weights, stream-to-stream matrix.
pub const MIX: usize = 2 * STREAMS + STREAMS * STREAMS;
/// Elements that share one FP8 scale.
pub const FP8_BLOCK: usize = 64;

/// What a layer attends to beside its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    None,
    /// Overlapping windows of 4 tokens, chosen by an indexer.
    Ratio4,
    /// Windows of 128 tokens, all of them.
    Ratio128,
}

impl Compression {
    /// Tokens per compressed row; 0 where there are none.
    #[must_use]
    pub const fn ratio(self) -> usize {
        match self {
            Self::None => 0,
            Self::Ratio4 => 4,
            Self::Ratio128 => 128,
        }
    }

    /// Width of a projected row of the compressor, for rows of `dim` values.
    #[must_use]
    pub const fn projected(self, dim: usize) -> usize {
        match self {
            Self::Ratio4 => 2 * dim,
            _ => dim,
        }
    }
}

/// YaRN interpolation of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Factor by which low frequencies are divided.
    pub factor: f64,
    /// Context length of the original training.
    pub original_context: f64,
    /// Rotations above which a frequency is left alone.
    pub beta_fast: f64,
    /// Rotations below which a frequency is divided in full.
    pub beta_slow: f64,
}

/// Hyper-parameters as a file states them, unchecked.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields of Config, before the checks")]
pub struct RawConfig {
    pub layers: u64,
    pub hidden: u64,
    pub vocabulary: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    pub value_dim: u64,
    pub rope_dim: u64,
    pub q_rank: u64,
    pub output_rank: u64,
    pub output_groups: u64,
    pub window: u64,
    pub ratios: Vec<i64>,
    pub indexer_heads: u64,
    pub indexer_dim: u64,
    pub indexer_top_k: u64,
    pub experts: u64,
    pub experts_used: u64,
    pub shared_experts: u64,
    pub expert_dim: u64,
    pub hash_layers: u64,
    pub routed_scale: f64,
    pub normalise_weights: bool,
    pub clamps: Vec<f64>,
    pub streams: u64,
    pub sinkhorn_iterations: u64,
    pub hyper_eps: f64,
    pub rms_eps: f64,
    pub rope_base: f64,
    pub compressed_rope_base: f64,
    pub yarn: Yarn,
    pub context: u64,
}

/// Checked hyper-parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of a stream (`D`).
    pub hidden: usize,
    /// Rows of the embedding and of the output (`V`).
    pub vocabulary: usize,
    /// Query heads (`H`).
    pub heads: usize,
    /// Width of a query head and of a key row (`HD`).
    pub head_dim: usize,
    /// Rotated values at the end of a head (`R`).
    pub rope_dim: usize,
    /// Rank of the query projection (`QL`).
    pub q_rank: usize,
    /// Rank of the output projection, per group (`OL`).
    pub output_rank: usize,
    /// Groups of the output projection (`G`).
    pub output_groups: usize,
    /// Uncompressed rows a query sees, its own included (`W`).
    pub window: usize,
    /// What each layer attends to beside its window; one entry a layer.
    pub layers: Vec<Compression>,
    /// Heads of the indexer (`IH`).
    pub indexer_heads: usize,
    /// Width of an indexer head (`ID`).
    pub indexer_dim: usize,
    /// Compressed rows the indexer keeps.
    pub indexer_top_k: usize,
    /// Routed experts (`E`).
    pub experts: usize,
    /// Experts used per token (`K`).
    pub experts_used: usize,
    /// Inner width of an expert (`FF`).
    pub expert_dim: usize,
    /// Leading layers whose experts are chosen by token id.
    pub hash_layers: usize,
    /// Factor on the normalised expert weights.
    pub routed_scale: f32,
    /// SwiGLU clamp of each layer; `None` where there is none.
    pub clamps: Vec<Option<f32>>,
    /// Rounds of Sinkhorn normalisation.
    pub sinkhorn_iterations: usize,
    /// Added to hyper-connection weights and sums.
    pub hyper_eps: f32,
    /// Added to mean squares.
    pub rms_eps: f32,
    /// Rotary base of layers without compression.
    pub rope_base: f64,
    /// Rotary base of layers with compression.
    pub compressed_rope_base: f64,
    /// Interpolation in layers with compression.
    pub yarn: Yarn,
    /// Positions the model may be run to.
    pub context: usize,
}

/// Reads typed values of one family of keys.
struct Keys<'a> {
    metadata: &'a Metadata,
}

impl Keys<'_> {
    fn value(&self, name: &str) -> Result<(&Value, String), ConfigError> {
        let key = format!("deepseek4.{name}");
        match self.metadata.get(&key) {
            Some(value) => Ok((value, key)),
            None => Err(ConfigError::Missing { key }),
        }
    }

    fn count(&self, name: &str) -> Result<u64, ConfigError> {
        let (value, key) = self.value(name)?;
        match *value {
            Value::U32(v) => Ok(u64::from(v)),
            Value::U64(v) => Ok(v),
            _ => Err(mistyped(key, "u32", value)),
        }
    }

    fn real(&self, name: &str) -> Result<f64, ConfigError> {
        let (value, key) = self.value(name)?;
        match *value {
            Value::F32(v) => Ok(f64::from(v)),
            Value::F64(v) => Ok(v),
            Value::U32(v) => Ok(f64::from(v)),
            Value::I32(v) => Ok(f64::from(v)),
            _ => Err(mistyped(key, "f32", value)),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        let (value, key) = self.value(name)?;
        match *value {
            Value::Bool(v) => Ok(v),
            _ => Err(mistyped(key, "bool", value)),
        }
    }

    fn integers(&self, name: &str) -> Result<Vec<i64>, ConfigError> {
        let (value, key) = self.value(name)?;
        match value {
            Value::U32Array(v) => Ok(v.iter().map(|v| i64::from(*v)).collect()),
            Value::I32Array(v) => Ok(v.iter().map(|v| i64::from(*v)).collect()),
            _ => Err(mistyped(key, "array of u32 or i32", value)),
        }
    }

    fn reals(&self, name: &str) -> Result<Vec<f64>, ConfigError> {
        let (value, key) = self.value(name)?;
        match value {
            Value::F32Array(v) => Ok(v.iter().map(|v| f64::from(*v)).collect()),
            Value::F64Array(v) => Ok(v.clone()),
            _ => Err(mistyped(key, "array of f32 or f64", value)),
        }
    }

    /// Refuses an optional count that is there with another value than the one the engine implements.
    fn only(&self, name: &str, implemented: u64, rule: &'static str) -> Result<(), ConfigError> {
        match self.count(name) {
            Err(ConfigError::Missing { .. }) => Ok(()),
            Ok(value) if value == implemented => Ok(()),
            Ok(value) => Err(refuse(&format!("deepseek4.{name}"), value, rule)),
            Err(error) => Err(error),
        }
    }
}

impl Keys<'_> {
    /// Refuses another kind of scaling than the one the engine implements.
    fn only_yarn(&self) -> Result<(), ConfigError> {
        const RULE: &str = "only \"yarn\" is implemented";
        match self.value("rope.scaling.type") {
            Err(_) => Ok(()),
            Ok((Value::String(kind), _)) if kind == "yarn" => Ok(()),
            Ok((Value::String(kind), key)) => Err(refuse(&key, kind, RULE)),
            Ok((other, key)) => Err(mistyped(key, "string", other)),
        }
    }

    /// Refuses a clamp of the shared expert that differs from that of the routed ones.
    fn only_shared_clamp(&self) -> Result<(), ConfigError> {
        const NAME: &str = "swiglu_clamp_shexp";
        let shared = match self.value(NAME) {
            Err(_) => return Ok(()),
            Ok(_) => self.reals(NAME).or_else(|_| self.real(NAME).map(|clamp| vec![clamp]))?,
        };
        let routed = self.reals("swiglu_clamp_exp")?;
        match shared.iter().find(|clamp| !routed.contains(clamp)) {
            None => Ok(()),
            Some(clamp) => {
                let rule = "must equal swiglu_clamp_exp, which the engine uses for both";
                Err(refuse(&format!("deepseek4.{NAME}"), clamp, rule))
            }
        }
    }
}

fn mistyped(key: String, expected: &'static str, found: &Value) -> ConfigError {
    ConfigError::Type { key, expected, found: found.type_name().to_owned() }
}

impl RawConfig {
    /// Hyper-parameters of a GGUF file.
    ///
    /// # Errors
    /// Names the key that is missing, of another type, or of a value the engine does not implement.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, ConfigError> {
        match metadata.get("general.architecture") {
            Some(Value::String(name)) if name == "deepseek4" => {}
            Some(Value::String(name)) => {
                return Err(refuse("general.architecture", name, "only deepseek4 is implemented"));
            }
            Some(other) => return Err(mistyped("general.architecture".into(), "string", other)),
            None => return Err(ConfigError::Missing { key: "general.architecture".into() }),
        }
        let keys = Keys { metadata };
        keys.only("expert_group_count", 0, "expert groups are not implemented")?;
        keys.only("expert_group_used_count", 0, "expert groups are not implemented")?;
        keys.only("expert_gating_func", 4, "only 4, the root of softplus, is implemented")?;
        keys.only_yarn()?;
        keys.only_shared_clamp()?;
        Ok(Self {
            layers: keys.count("block_count")?,
            hidden: keys.count("embedding_length")?,
            vocabulary: keys.count("vocab_size")?,
            heads: keys.count("attention.head_count")?,
            kv_heads: keys.count("attention.head_count_kv")?,
            head_dim: keys.count("attention.key_length")?,
            value_dim: keys.count("attention.value_length")?,
            rope_dim: keys.count("rope.dimension_count")?,
            q_rank: keys.count("attention.q_lora_rank")?,
            output_rank: keys.count("attention.output_lora_rank")?,
            output_groups: keys.count("attention.output_group_count")?,
            window: keys.count("attention.sliding_window")?,
            ratios: keys.integers("attention.compress_ratios")?,
            indexer_heads: keys.count("attention.indexer.head_count")?,
            indexer_dim: keys.count("attention.indexer.key_length")?,
            indexer_top_k: keys.count("attention.indexer.top_k")?,
            experts: keys.count("expert_count")?,
            experts_used: keys.count("expert_used_count")?,
            shared_experts: keys.count("expert_shared_count")?,
            expert_dim: keys.count("expert_feed_forward_length")?,
            hash_layers: keys.count("hash_layer_count")?,
            routed_scale: keys.real("expert_weights_scale")?,
            normalise_weights: keys.flag("expert_weights_norm")?,
            clamps: keys.reals("swiglu_clamp_exp")?,
            streams: keys.count("hyper_connection.count")?,
            sinkhorn_iterations: keys.count("hyper_connection.sinkhorn_iterations")?,
            hyper_eps: keys.real("hyper_connection.epsilon")?,
            rms_eps: keys.real("attention.layer_norm_rms_epsilon")?,
            rope_base: keys.real("rope.freq_base")?,
            compressed_rope_base: keys.real("attention.compress_rope_freq_base")?,
            yarn: Yarn {
                factor: keys.real("rope.scaling.factor")?,
                original_context: keys.count("rope.scaling.original_context_length")? as f64,
                beta_fast: keys.real("rope.scaling.yarn_beta_fast")?,
                beta_slow: keys.real("rope.scaling.yarn_beta_slow")?,
            },
            context: keys.count("context_length")?,
        })
    }
}

/// The largest count that any single dimension may have; it keeps every product of two in 64 bits.
const DIMENSION_MAX: u64 = 1 << 24;

impl Config {
    /// Checks hyper-parameters.
    ///
    /// # Errors
    /// Names the key, its value and the rule it breaks. Keys are named as in GGUF.
    pub fn new(raw: &RawConfig) -> Result<Self, ConfigError> {
        let dim = |key: &str, value: u64| match usize::try_from(value) {
            Ok(value @ 1..) if value as u64 <= DIMENSION_MAX => Ok(value),
            _ => Err(refuse(key, value, "must be from 1 to 16777216")),
        };
        let config = Self {
            hidden: dim("embedding_length", raw.hidden)?,
            vocabulary: dim("vocab_size", raw.vocabulary)?,
            heads: dim("attention.head_count", raw.heads)?,
            head_dim: dim("attention.key_length", raw.head_dim)?,
            rope_dim: dim("rope.dimension_count", raw.rope_dim)?,
            q_rank: dim("attention.q_lora_rank", raw.q_rank)?,
            output_rank: dim("attention.output_lora_rank", raw.output_rank)?,
            output_groups: dim("attention.output_group_count", raw.output_groups)?,
            window: dim("attention.sliding_window", raw.window)?,
            layers: layers(raw)?,
            indexer_heads: dim("attention.indexer.head_count", raw.indexer_heads)?,
            indexer_dim: dim("attention.indexer.key_length", raw.indexer_dim)?,
            indexer_top_k: dim("attention.indexer.top_k", raw.indexer_top_k)?,
            experts: dim("expert_count", raw.experts)?,
            experts_used: dim("expert_used_count", raw.experts_used)?,
            expert_dim: dim("expert_feed_forward_length", raw.expert_dim)?,
            hash_layers: usize::try_from(raw.hash_layers).unwrap_or(usize::MAX),
            routed_scale: positive("expert_weights_scale", raw.routed_scale)? as f32,
            clamps: clamps(raw)?,
            sinkhorn_iterations: dim(
                "hyper_connection.sinkhorn_iterations",
                raw.sinkhorn_iterations,
            )?,
            hyper_eps: positive("hyper_connection.epsilon", raw.hyper_eps)? as f32,
            rms_eps: positive("attention.layer_norm_rms_epsilon", raw.rms_eps)? as f32,
            rope_base: positive("rope.freq_base", raw.rope_base)?,
            compressed_rope_base: positive(
                "attention.compress_rope_freq_base",
                raw.compressed_rope_base,
            )?,
            yarn: Yarn {
                factor: positive("rope.scaling.factor", raw.yarn.factor)?,
                original_context: positive(
                    "rope.scaling.original_context_length",
                    raw.yarn.original_context,
                )?,
                beta_fast: positive("rope.scaling.yarn_beta_fast", raw.yarn.beta_fast)?,
                beta_slow: positive("rope.scaling.yarn_beta_slow", raw.yarn.beta_slow)?,
            },
            context: dim("context_length", raw.context)?,
        };
        config.check_fixed(raw)?;
        config.check_shapes()?;
        Ok(config)
    }

    /// What the engine implements in one way only.
    fn check_fixed(&self, raw: &RawConfig) -> Result<(), ConfigError> {
        if raw.kv_heads != 1 {
            let rule = "keys and values are one row shared by all heads";
            return Err(refuse("attention.head_count_kv", raw.kv_heads, rule));
        }
        if raw.value_dim != raw.head_dim {
            let rule = "must equal attention.key_length: keys are the values";
            return Err(refuse("attention.value_length", raw.value_dim, rule));
        }
        if raw.shared_experts != 1 {
            return Err(refuse("expert_shared_count", raw.shared_experts, "must be 1"));
        }
        if !raw.normalise_weights {
            return Err(refuse("expert_weights_norm", false, "must be true"));
        }
        if raw.streams != STREAMS as u64 {
            return Err(refuse("hyper_connection.count", raw.streams, "must be 4"));
        }
        Ok(())
    }

    /// What the operations need of the dimensions.
    fn check_shapes(&self) -> Result<(), ConfigError> {
        let rule = |holds: bool, key: &str, value: usize, rule: &'static str| {
            if holds { Ok(()) } else { Err(refuse(key, value, rule)) }
        };
        let (head, rope) = (self.head_dim, self.rope_dim);
        rule(
            rope.is_multiple_of(2),
            "rope.dimension_count",
            rope,
            "must be even: rotated in pairs",
        )?;
        rule(rope < head, "rope.dimension_count", rope, "must be below attention.key_length")?;
        rule(
            (head - rope).is_multiple_of(FP8_BLOCK),
            "attention.key_length",
            head,
            "less rope.dimension_count must be a multiple of 64, the FP8 block",
        )?;
        rule(
            self.indexer_dim.is_power_of_two() && self.indexer_dim >= 32,
            "attention.indexer.key_length",
            self.indexer_dim,
            "must be a power of two of at least 32: Hadamard transform, FP4 block",
        )?;
        rule(
            rope <= self.indexer_dim,
            "rope.dimension_count",
            rope,
            "must not exceed attention.indexer.key_length",
        )?;
        rule(
            self.heads.is_multiple_of(self.output_groups),
            "attention.head_count",
            self.heads,
            "must be a multiple of attention.output_group_count",
        )?;
        rule(
            self.experts_used <= self.experts,
            "expert_used_count",
            self.experts_used,
            "must not exceed expert_count",
        )?;
        rule(
            self.hash_layers <= self.layers.len(),
            "hash_layer_count",
            self.hash_layers,
            "must not exceed block_count",
        )?;
        // Positions are turned into angles as f32, where integers are exact up to 2^24 (DIMENSION_MAX).
        rule(
            self.window <= 1 << 20,
            "attention.sliding_window",
            self.window,
            "must not exceed 1048576",
        )
    }

    /// Width of all query heads.
    #[must_use]
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all streams.
    #[must_use]
    pub fn stream_dim(&self) -> usize {
        STREAMS * self.hidden
    }

    /// Width of the heads of one output group.
    #[must_use]
    pub fn group_dim(&self) -> usize {
        self.q_dim() / self.output_groups
    }
}

fn layers(raw: &RawConfig) -> Result<Vec<Compression>, ConfigError> {
    const KEY: &str = "attention.compress_ratios";
    if !(1..=4096).contains(&raw.layers) {
        return Err(refuse("block_count", raw.layers, "must be from 1 to 4096"));
    }
    let count = raw.layers as usize;
    if raw.ratios.len() < count {
        let rule = "entries: must have one a layer (block_count)";
        return Err(refuse(KEY, raw.ratios.len(), rule));
    }
    raw.ratios[..count]
        .iter()
        .map(|ratio| match ratio {
            0 => Ok(Compression::None),
            4 => Ok(Compression::Ratio4),
            128 => Ok(Compression::Ratio128),
            _ => Err(refuse(KEY, ratio, "only the ratios 0, 4 and 128 are implemented")),
        })
        .collect()
}

fn clamps(raw: &RawConfig) -> Result<Vec<Option<f32>>, ConfigError> {
    const KEY: &str = "swiglu_clamp_exp";
    let count = usize::try_from(raw.layers).unwrap_or(usize::MAX);
    if raw.clamps.len() < count {
        let rule = "entries: must have one a layer (block_count)";
        return Err(refuse(KEY, raw.clamps.len(), rule));
    }
    let clamp = |value: &f64| match *value {
        v if !v.is_finite() || v < 0.0 => Err(refuse(KEY, v, "must be finite and not negative")),
        v if v <= 1e-6 => Ok(None),
        v => Ok(Some(v as f32)),
    };
    raw.clamps[..count].iter().map(clamp).collect()
}

fn positive(key: &str, value: f64) -> Result<f64, ConfigError> {
    let rule = "must be positive and in the range of f32";
    let narrowed = value as f32;
    if narrowed > 0.0 && narrowed.is_finite() { Ok(value) } else { Err(refuse(key, value, rule)) }
}
