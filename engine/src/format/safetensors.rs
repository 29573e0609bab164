//! Models in safetensors with Hugging Face's names, read as if they were GGUF files.
//!
//! Promises: tensors come out under GGUF names and in GGUF order of dimensions; fused gate and up
//! projections are taken apart; 64-bit expert tables become 32-bit. The values do not change.
//! Meant for ground truth: converted tensors are copied to memory.
//! Leaves parsing of the container to the `safetensors` crate.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;

use super::weights::TensorSource;
use crate::config::{RawConfig, Yarn};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Bytes, DType, Storage, Tensor};

/// The largest `config.json` that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

fn refuse(field: impl Into<String>, problem: impl ToString) -> Error {
    ErrorKind::Safetensors { field: field.into(), problem: problem.to_string() }.into()
}

/// Tensors of a safetensors file under GGUF names.
pub struct SafetensorsFile {
    tensors: BTreeMap<String, Tensor>,
}

impl SafetensorsFile {
    /// Maps the file at `path` and converts its names.
    ///
    /// # Errors
    /// Names the tensor at fault.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(path).map_err(|error| error.in_file(path))
    }

    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read only; as with every memory map, a file that another process cuts
        // short while it is in use is outside what can be checked.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        let storage = Arc::new(Storage::Map(map));
        let parsed = SafeTensors::deserialize(&storage).map_err(|e| refuse("header", e))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in parsed.iter() {
            let start = view.data().as_ptr() as usize - storage.as_ptr() as usize;
            let bytes = Bytes::new(Arc::clone(&storage), start..start + view.data().len());
            let bytes = bytes.ok_or_else(|| refuse(name, "data outside the file"))?;
            for tensor in convert(name, view.dtype(), view.shape(), bytes)? {
                tensors.insert(tensor.name().to_owned(), tensor);
            }
        }
        Ok(Self { tensors })
    }
}

impl TensorSource for SafetensorsFile {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        self.tensors.get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }
}

fn convert(name: &str, dtype: Dtype, shape: &[usize], bytes: Bytes) -> Result<Vec<Tensor>> {
    let dims: Vec<usize> = shape.iter().rev().copied().collect();
    let (dtype, bytes) = match dtype {
        Dtype::F32 => (DType::F32, bytes),
        Dtype::F16 => (DType::F16, bytes),
        Dtype::BF16 => (DType::Bf16, bytes),
        Dtype::I32 => (DType::I32, bytes),
        Dtype::I64 => (DType::I32, Bytes::owned(narrow(name, &bytes)?)),
        other => return Err(refuse(name, format!("type {other:?} is not read"))),
    };
    let tensor = |name: &str, dims: Vec<usize>, bytes: Bytes| {
        Tensor::new(name, dtype, dims, bytes)
            .ok_or_else(|| refuse(name, "length differs from the shape"))
    };
    let gguf = gguf_name(name);
    if let Some(layer) = gguf.strip_suffix(FUSED) {
        let [columns, fused, experts] = dims[..] else {
            return Err(refuse(name, "must have three dimensions"));
        };
        if bytes.is_empty() || !fused.is_multiple_of(2) {
            return Err(refuse(name, "must have an even number of rows, and some"));
        }
        let half = bytes.len() / experts / 2;
        let mut tensors = Vec::new();
        for (part, target) in ["ffn_gate_exps.weight", "ffn_up_exps.weight"].iter().enumerate() {
            let rows: Vec<u8> =
                bytes.chunks_exact(half).skip(part).step_by(2).flatten().copied().collect();
            let dims = vec![columns, fused / 2, experts];
            tensors.push(tensor(&format!("{layer}{target}"), dims, Bytes::owned(rows))?);
        }
        return Ok(tensors);
    }
    Ok(vec![tensor(&gguf, dims, bytes)?])
}

fn narrow(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() / 2);
    for value in bytes.chunks_exact(8) {
        let value = i64::from_le_bytes(value.try_into().expect("eight bytes"));
        let value =
            i32::try_from(value).map_err(|_| refuse(name, format!("{value} exceeds i32")))?;
        out.extend(value.to_le_bytes());
    }
    Ok(out)
}

/// Where the fused gate and up projections of a layer go before they are taken apart.
const FUSED: &str = "ffn_gate_up_exps.weight";

/// Hugging Face's names without `model.layers.N.`, and what GGUF calls them.
const LAYER_NAMES: &[(&str, &str)] = &[
    ("attn_hc.fn", "hc_attn_fn.weight"),
    ("attn_hc.base", "hc_attn_base.weight"),
    ("attn_hc.scale", "hc_attn_scale.weight"),
    ("ffn_hc.fn", "hc_ffn_fn.weight"),
    ("ffn_hc.base", "hc_ffn_base.weight"),
    ("ffn_hc.scale", "hc_ffn_scale.weight"),
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_norm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_proj.weight", "attn_kv.weight"),
    ("self_attn.kv_norm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.sinks", "attn_sinks.weight"),
    ("self_attn.o_a_proj.weight", "attn_output_a.weight"),
    ("self_attn.o_b_proj.weight", "attn_output_b.weight"),
    ("self_attn.compressor.kv_proj.weight", "attn_compressor_kv.weight"),
    ("self_attn.compressor.gate_proj.weight", "attn_compressor_gate.weight"),
    ("self_attn.compressor.position_bias", "attn_compressor_ape.weight"),
    ("self_attn.compressor.kv_norm.weight", "attn_compressor_norm.weight"),
    ("self_attn.compressor.indexer.q_b_proj.weight", "indexer.attn_q_b.weight"),
    ("self_attn.compressor.indexer.scorer.weights_proj.weight", "indexer.proj.weight"),
    ("self_attn.compressor.indexer.kv_proj.weight", "indexer_compressor_kv.weight"),
    ("self_attn.compressor.indexer.gate_proj.weight", "indexer_compressor_gate.weight"),
    ("self_attn.compressor.indexer.position_bias", "indexer_compressor_ape.weight"),
    ("self_attn.compressor.indexer.kv_norm.weight", "indexer_compressor_norm.weight"),
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.tid2eid", "ffn_gate_tid2eid.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
    ("mlp.experts.gate_up_proj", FUSED),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
];

/// Hugging Face's names outside the layers, and what GGUF calls them.
const GLOBAL_NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("model.hc_head.hc_fn", "output_hc_fn.weight"),
    ("model.hc_head.hc_base", "output_hc_base.weight"),
    ("model.hc_head.hc_scale", "output_hc_scale.weight"),
    ("lm_head.weight", "output.weight"),
];

/// The GGUF name of a Hugging Face name; names it does not know stay as they are.
fn gguf_name(name: &str) -> String {
    let renamed = |names: &[(&str, &'static str)], name: &str| {
        names.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
    };
    if let Some((layer, rest)) =
        name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'))
        && let Some(to) = renamed(LAYER_NAMES, rest)
    {
        return format!("blk.{layer}.{to}");
    }
    renamed(GLOBAL_NAMES, name).unwrap_or(name).to_owned()
}

/// Reads hyper-parameters from the `config.json` at `path`.
///
/// # Errors
/// Names the field that is missing or of another type.
pub fn read_config(path: &Path) -> Result<RawConfig> {
    let read = || {
        let length = std::fs::metadata(path)?.len();
        if length > CONFIG_BYTES_MAX {
            return Err(refuse("length", format!("{length} bytes, at most {CONFIG_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path)?;
        let json: Json = serde_json::from_str(&text).map_err(|e| refuse("json", e))?;
        raw_config(&json)
    };
    read().map_err(|error| error.in_file(path))
}

fn raw_config(json: &Json) -> Result<RawConfig> {
    let field = |path: &str| {
        let found = path.split('.').try_fold(json, |json, key| json.get(key));
        found.ok_or_else(|| refuse(path, "missing"))
    };
    let count = |path: &str| {
        field(path)?.as_u64().ok_or_else(|| refuse(path, "must be a non-negative integer"))
    };
    let real = |path: &str| field(path)?.as_f64().ok_or_else(|| refuse(path, "must be a number"));
    let layers = count("num_hidden_layers")?;
    let names = |path: &str| {
        let list = field(path)?.as_array().ok_or_else(|| refuse(path, "must be an array"))?;
        let name = |name: &Json| name.as_str().map(str::to_owned);
        list.iter().map(name).collect::<Option<Vec<_>>>().ok_or_else(|| refuse(path, "of strings"))
    };
    let ratios = names("layer_types")?
        .iter()
        .map(|kind| match kind.as_str() {
            "sliding_attention" => Ok(0),
            "compressed_sparse_attention" => Ok(4),
            "heavily_compressed_attention" => Ok(128),
            other => Err(refuse("layer_types", format!("{other:?} is not implemented"))),
        })
        .collect::<Result<Vec<i64>>>()?;
    let kinds = names("mlp_layer_types")?;
    let hash_layers = kinds.iter().take_while(|kind| *kind == "hash_moe").count();
    if kinds.iter().skip(hash_layers).any(|kind| kind != "moe") {
        return Err(refuse("mlp_layer_types", "hash_moe layers must come first, then moe"));
    }
    if field("scoring_func")?.as_str() != Some("sqrtsoftplus") {
        return Err(refuse("scoring_func", "only sqrtsoftplus is implemented"));
    }
    Ok(RawConfig {
        layers,
        hidden: count("hidden_size")?,
        vocabulary: count("vocab_size")?,
        heads: count("num_attention_heads")?,
        kv_heads: count("num_key_value_heads")?,
        head_dim: count("head_dim")?,
        value_dim: count("head_dim")?,
        rope_dim: count("qk_rope_head_dim")?,
        q_rank: count("q_lora_rank")?,
        output_rank: count("o_lora_rank")?,
        output_groups: count("o_groups")?,
        window: count("sliding_window")?,
        ratios,
        indexer_heads: count("index_n_heads")?,
        indexer_dim: count("index_head_dim")?,
        indexer_top_k: count("index_topk")?,
        experts: count("n_routed_experts")?,
        experts_used: count("num_experts_per_tok")?,
        shared_experts: count("n_shared_experts")?,
        expert_dim: count("moe_intermediate_size")?,
        hash_layers: hash_layers as u64,
        routed_scale: real("routed_scaling_factor")?,
        normalise_weights: field("norm_topk_prob")?.as_bool() == Some(true),
        clamps: vec![real("swiglu_limit")?; usize::try_from(layers.min(4096)).unwrap_or(0)],
        streams: count("hc_mult")?,
        sinkhorn_iterations: count("hc_sinkhorn_iters")?,
        hyper_eps: real("hc_eps")?,
        rms_eps: real("rms_norm_eps")?,
        rope_base: real("rope_parameters.main.rope_theta")?,
        compressed_rope_base: real("rope_parameters.compress.rope_theta")?,
        yarn: Yarn {
            factor: real("rope_parameters.compress.factor")?,
            original_context: real("rope_parameters.compress.original_max_position_embeddings")?,
            beta_fast: real("rope_parameters.compress.beta_fast")?,
            beta_slow: real("rope_parameters.compress.beta_slow")?,
        },
        context: count("max_position_embeddings")?,
    })
}
