//! What a model file must hold: hyper-parameters and tensors, each refusal by name.

use std::path::{Path, PathBuf};

use engine::config::{Config, ConfigError, RawConfig};
use engine::format::weights::TensorSource;
use engine::format::{Gguf, Metadata, Value, WeightsError};
use engine::tensor::{Bytes, DType, Tensor};
use engine::{ErrorKind, Model, MtpModel};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models/trained-tiny")
}

fn trained() -> Gguf {
    Gguf::open(&folder().join("model.gguf")).unwrap()
}

fn config_of(metadata: &Metadata) -> Result<Config, ConfigError> {
    Config::new(&RawConfig::from_gguf(metadata)?)
}

#[test]
fn every_unusable_hyper_parameter_is_refused_by_key_and_value() {
    let good = trained().metadata().clone();
    config_of(&good).unwrap();
    let rows: &[(&str, Value, &str)] = &[
        ("block_count", Value::U32(0), "block_count = 0"),
        ("block_count", Value::U32(7), "attention.compress_ratios = 6"),
        ("block_count", Value::U32(u32::MAX), "block_count = 4294967295"),
        ("embedding_length", Value::U32(0), "embedding_length = 0"),
        ("embedding_length", Value::U32(1 << 25), "embedding_length = 33554432"),
        ("attention.head_count", Value::U32(7), "attention.head_count = 7"),
        ("attention.head_count_kv", Value::U32(2), "attention.head_count_kv = 2"),
        ("attention.key_length", Value::U32(200), "attention.value_length = 192"),
        ("rope.dimension_count", Value::U32(63), "rope.dimension_count = 63"),
        ("rope.dimension_count", Value::U32(66), "attention.key_length = 192"),
        ("rope.dimension_count", Value::U32(192), "rope.dimension_count = 192"),
        ("attention.indexer.key_length", Value::U32(96), "attention.indexer.key_length = 96"),
        ("attention.indexer.key_length", Value::U32(32), "rope.dimension_count = 64"),
        ("attention.indexer.top_k", Value::U32(0), "attention.indexer.top_k = 0"),
        ("attention.sliding_window", Value::U32(1 << 21), "attention.sliding_window = 2097152"),
        (
            "attention.compress_ratios",
            Value::U32Array(vec![0, 0, 4, 128, 4, 8]),
            "attention.compress_ratios = 8",
        ),
        (
            "attention.compress_ratios",
            Value::I32Array(vec![0, 0, 4, 128, 4, -4]),
            "attention.compress_ratios = -4",
        ),
        ("expert_used_count", Value::U32(13), "expert_used_count = 13"),
        ("expert_shared_count", Value::U32(2), "expert_shared_count = 2"),
        ("expert_group_count", Value::U32(4), "deepseek4.expert_group_count = 4"),
        ("expert_gating_func", Value::U32(2), "deepseek4.expert_gating_func = 2"),
        ("expert_weights_norm", Value::Bool(false), "expert_weights_norm = false"),
        ("expert_weights_scale", Value::F32(f32::NAN), "expert_weights_scale = NaN"),
        ("hash_layer_count", Value::U32(7), "hash_layer_count = 7"),
        ("swiglu_clamp_exp", Value::F32Array(vec![10.0; 5]), "swiglu_clamp_exp = 5"),
        ("swiglu_clamp_exp", Value::F32Array(vec![-1.0; 6]), "swiglu_clamp_exp = -1"),
        ("hyper_connection.count", Value::U32(2), "hyper_connection.count = 2"),
        ("attention.layer_norm_rms_epsilon", Value::F32(0.0), "layer_norm_rms_epsilon = 0"),
        ("rope.freq_base", Value::F32(f32::INFINITY), "rope.freq_base = inf"),
        ("rope.scaling.type", Value::String("linear".into()), "rope.scaling.type = linear"),
        ("swiglu_clamp_shexp", Value::F32Array(vec![7.0; 6]), "swiglu_clamp_shexp = 7"),
        ("swiglu_clamp_shexp", Value::F32(7.0), "swiglu_clamp_shexp = 7"),
    ];
    for (key, value, expected) in rows {
        let mut metadata = good.clone();
        metadata.insert(format!("deepseek4.{key}"), value.clone());
        let error = config_of(&metadata).expect_err(key).to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
}

#[test]
fn every_required_key_is_missed_and_its_type_is_checked() {
    let good = trained().metadata().clone();
    let optional = [
        "expert_group_count",
        "expert_group_used_count",
        "expert_gating_func",
        "rope.scaling.type",
    ];
    let mut required = 0;
    for key in good.keys().filter(|key| key.starts_with("deepseek4.")) {
        let name = key.strip_prefix("deepseek4.").unwrap();
        let mut metadata = good.clone();
        metadata.remove(key);
        if let Err(error) = config_of(&metadata) {
            assert_eq!(error.to_string(), format!("{key}: missing"));
            metadata.insert(key.clone(), Value::String("x".into()));
            let error = config_of(&metadata).unwrap_err();
            assert!(matches!(&error, ConfigError::Type { key: k, .. } if k == key), "{error}");
            required += 1;
        } else {
            assert!(optional.contains(&name), "{key} is not read");
        }
    }
    assert_eq!(required, 35, "keys that the engine reads");
    let mut metadata = good;
    metadata.insert("general.architecture".into(), Value::String("llama".into()));
    assert!(config_of(&metadata).unwrap_err().to_string().contains("llama"));
}

/// A file with one tensor replaced, removed (`None`) or added.
struct Edited<'a> {
    file: &'a Gguf,
    name: &'a str,
    tensor: Option<Tensor>,
}

impl TensorSource for Edited<'_> {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        if name == self.name { self.tensor.clone() } else { self.file.tensor(name).cloned() }
    }

    fn names(&self) -> Vec<String> {
        let mut names = TensorSource::names(self.file);
        names.retain(|name| name != self.name);
        names.extend(self.tensor.iter().map(|tensor| tensor.name().to_owned()));
        names
    }
}

fn open_edited(file: &Gguf, name: &str, tensor: Option<Tensor>) -> engine::Result<Model> {
    let raw = RawConfig::from_gguf(file.metadata()).unwrap();
    let source = Edited { file, name, tensor };
    Model::from_source(&source, &raw, Metadata::new(), Path::new("edited.gguf"))
}

/// B89: a naming mismatch must not load with tensors left out.
#[test]
fn every_missing_tensor_is_refused_by_name_and_an_unknown_one_is_reported() {
    let file = trained();
    for tensor in file.tensors() {
        let error = open_edited(&file, tensor.name(), None).err().expect("a missing tensor");
        let expected = format!("edited.gguf: tensor `{}`: missing", tensor.name());
        assert_eq!(error.to_string(), expected);
    }
    assert!(open_edited(&file, "no-such", None).unwrap().unclaimed.is_empty());
    let bytes = Bytes::owned(vec![0; 4]);
    let extra = Tensor::new("blk.0.surplus.weight", DType::F32, vec![1], bytes).unwrap();
    let model = open_edited(&file, "blk.0.surplus.weight", Some(extra)).unwrap();
    assert_eq!(model.unclaimed, ["blk.0.surplus.weight"]);
}

fn tensor(file: &Gguf, name: &str, dtype: DType, dims: Vec<usize>) -> Tensor {
    let mut bytes = file.tensor(name).unwrap().bytes().to_vec();
    bytes.resize(dtype.tensor_bytes(&dims).unwrap(), 0);
    Tensor::new(name, dtype, dims, Bytes::owned(bytes)).unwrap()
}

#[test]
fn shapes_types_and_elements_are_checked() {
    let file = trained();
    let kind = |name: &str, dtype, dims: &[usize]| {
        let edited = tensor(&file, name, dtype, dims.to_vec());
        let error = open_edited(&file, name, Some(edited)).err().expect(name);
        assert!(error.to_string().contains(name), "{error}");
        match error.kind() {
            ErrorKind::Weights(WeightsError::Shape { .. }) => "shape",
            ErrorKind::Weights(WeightsError::Type { .. }) => "type",
            ErrorKind::Weights(WeightsError::Element { .. }) => "element",
            other => panic!("{other}"),
        }
    };
    assert_eq!(kind("output_norm.weight", DType::F32, &[255]), "shape");
    assert_eq!(kind("output_norm.weight", DType::F32, &[256, 1]), "shape");
    assert_eq!(kind("token_embd.weight", DType::F16, &[1024, 256]), "shape");
    assert_eq!(kind("blk.2.ffn_down_exps.weight", DType::Q2K, &[256, 256, 11]), "shape");
    assert_eq!(kind("output_norm.weight", DType::I32, &[256]), "type");
    assert_eq!(kind("blk.0.ffn_gate_tid2eid.weight", DType::F32, &[4, 1024]), "type");

    for expert in [-1_i32, 12] {
        let name = "blk.1.ffn_gate_tid2eid.weight";
        let mut bytes = file.tensor(name).unwrap().bytes().to_vec();
        bytes[40..44].copy_from_slice(&expert.to_le_bytes());
        let table = Tensor::new(name, DType::I32, vec![4, 1024], Bytes::owned(bytes)).unwrap();
        let error = open_edited(&file, name, Some(table)).err().unwrap().to_string();
        assert!(error.contains(&format!("element 10 = {expert}")), "{error}");
    }
    let name = "blk.3.exp_probs_b.bias";
    let mut bytes = file.tensor(name).unwrap().bytes().to_vec();
    bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    let bias = Tensor::new(name, DType::F32, vec![12], Bytes::owned(bytes)).unwrap();
    let error = open_edited(&file, name, Some(bias)).err().unwrap().to_string();
    assert!(error.contains("element 2 = NaN"), "{error}");
}

/// B86: a cut-off draft file must fail when it is opened, with a good main file beside it.
#[test]
fn a_cut_off_mtp_file_is_refused_at_start_and_a_whole_one_opens() {
    let main = Model::open(&folder().join("model.gguf")).unwrap();
    let path = folder().join("mtp.gguf");
    let block = MtpModel::open(&path, &main.config).unwrap();
    assert!(block.unclaimed.is_empty());
    let bytes = std::fs::read(&path).unwrap();
    let cut = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    for length in [bytes.len() - 400_000, bytes.len() / 2, 100] {
        std::fs::write(cut.path(), &bytes[..length]).unwrap();
        let error = MtpModel::open(cut.path(), &main.config).err().expect("cut off").to_string();
        assert!(error.contains(&cut.path().display().to_string()), "{error}");
    }
    // The main file is no draft file and the other way round.
    assert!(MtpModel::open(&folder().join("model.gguf"), &main.config).is_err());
    assert!(Model::open(&path).is_err());
}

#[test]
fn a_safetensors_model_without_its_config_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let header = br#"{"lm_head.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([0; 4]);
    std::fs::write(&path, &bytes).unwrap();
    let error = Model::open(&path).err().unwrap().to_string();
    assert!(error.contains("config.json"), "{error}");
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let error = Model::open(&path).err().unwrap().to_string();
    assert!(error.contains("num_hidden_layers: missing"), "{error}");
    std::fs::write(&path, &bytes[..20]).unwrap();
    let error = Model::open(&path).err().unwrap().to_string();
    assert!(error.contains("model.safetensors"), "{error}");
}
