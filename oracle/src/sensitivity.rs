//! Does every tensor matter? Each is changed in turn, and the logits must move.
//!
//! Promises: nothing but the named tensor differs between the two runs; a tensor that changes no bit of
//! any logit is dead code or was never read.
//! How a tensor is changed: floats get noise of a tenth of their spread (half of it where only choices
//! read them: indexer, router, router bias), blocks get scales off by up to a tenth, tables of experts
//! are turned by one token.

use engine::config::RawConfig;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::format::quant;
use engine::format::weights::TensorSource;
use engine::format::{Gguf, Metadata};
use engine::mtp::{MtpSession, Pairing};
use engine::rows::Rows;
use engine::session::{Keep, RunError};
use engine::tap::Unobserved;
use engine::tensor::{Bytes, DType, Tensor};
use engine::{Model, MtpModel, Profile, Session};
use half::f16;

use crate::suites::{Prepared, in_parallel, text};

/// How far the logits moved when a tensor was changed.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The tensor.
    pub tensor: String,
    /// Its type.
    pub dtype: &'static str,
    /// Its dimensions, contiguous first.
    pub dims: Vec<usize>,
    /// Largest change of a logit.
    pub largest: f32,
    /// Share of positions at which some logit changed a bit.
    pub positions: f64,
}

/// A file in which one tensor is another.
struct Replaced<'a> {
    file: &'a Gguf,
    tensor: Tensor,
}

impl TensorSource for Replaced<'_> {
    fn tensor(&self, name: &str) -> Option<Tensor> {
        if name == self.tensor.name() {
            return Some(self.tensor.clone());
        }
        self.file.tensor(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        TensorSource::names(self.file)
    }
}

/// Noise from -1 to 1 that depends on the index alone.
fn noise(index: usize) -> f32 {
    // SplitMix64's mixing of a counter.
    let mut z = (index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z >> 40) as f32 / 8_388_608.0) - 1.0
}

/// Byte offsets of the f16 scales in a block.
fn scale_offsets(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q8_0 | DType::Iq2Xxs => &[0],
        DType::Q2K => &[80, 82],
        DType::Q4K => &[0, 2],
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => &[],
    }
}

/// The same tensor, changed.
fn changed(tensor: &Tensor) -> Tensor {
    let mut bytes = tensor.bytes().to_vec();
    let name = tensor.name();
    match tensor.dtype() {
        DType::I32 => bytes.rotate_left(4 * tensor.dims()[0]),
        DType::F32 | DType::F16 | DType::Bf16 => {
            let by_choice =
                ["indexer", "ffn_gate_inp", "exp_probs_b"].iter().any(|part| name.contains(part));
            add_noise(tensor, &mut bytes, if by_choice { 0.5 } else { 0.1 });
        }
        dtype => {
            for (index, block) in bytes.chunks_exact_mut(dtype.block_bytes()).enumerate() {
                for offset in scale_offsets(dtype) {
                    let scale = f16::from_le_bytes([block[*offset], block[offset + 1]]);
                    let scale = f16::from_f32(scale.to_f32() * (1.0 + 0.1 * noise(index)));
                    block[*offset..offset + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
    Tensor::new(name, tensor.dtype(), tensor.dims().to_vec(), Bytes::owned(bytes))
        .expect("bytes of the same length")
}

fn add_noise(tensor: &Tensor, bytes: &mut [u8], share: f32) {
    let dtype = tensor.dtype();
    let count = bytes.len() / dtype.block_bytes();
    let mut values = vec![0.0_f32; count];
    quant::decode_row(dtype, tensor.bytes(), &mut values);
    let mean = values.iter().fold(0.0, |sum, x| sum + x) / count as f32;
    let squares = values.iter().fold(0.0, |sum, x| sum + (x - mean) * (x - mean));
    // A tensor of equal values has no spread; then its size is the scale.
    let spread = (squares / count as f32).sqrt().max(0.1 * mean.abs());
    for (index, (value, bytes)) in
        values.iter().zip(bytes.chunks_exact_mut(dtype.block_bytes())).enumerate()
    {
        let value = value + share * spread * noise(index);
        match dtype {
            DType::F32 => bytes.copy_from_slice(&value.to_le_bytes()),
            DType::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            _ => bytes.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
        }
    }
}

fn effect(tensor: &Tensor, before: &Rows, after: &Rows) -> Effect {
    let mut largest = 0.0_f32;
    let mut moved = 0;
    for (before, after) in before.iter().zip(after.iter()) {
        let differs = before.iter().zip(after).any(|(a, b)| a.to_bits() != b.to_bits());
        moved += usize::from(differs);
        largest = before.iter().zip(after).fold(largest, |max, (a, b)| max.max((a - b).abs()));
    }
    Effect {
        tensor: tensor.name().to_owned(),
        dtype: tensor.dtype().name(),
        dims: tensor.dims().to_vec(),
        largest,
        positions: moved as f64 / before.count() as f64,
    }
}

/// Changes every tensor of a model and of its multi-token-prediction block in turn.
///
/// # Errors
/// In words, when a run fails.
pub fn table(
    main: &Gguf,
    block: &Gguf,
    tokens: &[u32],
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Effect>, String> {
    let raw = RawConfig::from_gguf(main.metadata()).map_err(text)?;
    let open = |source: &dyn TensorSource| {
        Model::from_source(source, &raw, Metadata::new(), std::path::Path::new("changed model"))
            .map_err(text)
    };
    // The engine has the reference's bytes and takes a fifth of its time; tensors are spread over threads.
    let alone = || Ok(Kernels::new(Level::best(), Threads::new(1)?));
    let cpu = Cpu::new(alone().map_err(|e: RunError| text(e))?, Combine::Ordered);
    let run = |model: &Model| -> Prepared<[Rows; 2]> {
        let mut session = Session::on(&cpu, model, Profile::DS4).map_err(text)?;
        let forward = session.forward(tokens, Keep::All, &mut Unobserved).map_err(text)?;
        Ok([forward.logits.into_rows(), forward.streams.into_rows()])
    };
    let model = open(main)?;
    let [logits, streams] = run(&model)?;
    let draft = |block: &MtpModel| -> Prepared<Rows> {
        let paired = Pairing::Previous.tokens(tokens);
        let mut session = MtpSession::on(&cpu, &model, block, Profile::DS4).map_err(text)?;
        let streams = streams.slice(0..paired.len()).into();
        let forward = session.forward(paired, &streams, Keep::All, &mut Unobserved);
        Ok(forward.map_err(text)?.logits.into_rows())
    };
    let drafts = draft(&MtpModel::from_source(block, &model.config).map_err(text)?)?;
    let tensors: Vec<(&Tensor, bool)> = main
        .tensors()
        .iter()
        .map(|tensor| (tensor, true))
        .chain(block.tensors().iter().map(|tensor| (tensor, false)))
        .collect();
    let effects = in_parallel(&tensors, threads, &|(tensor, in_main)| -> Prepared<Effect> {
        let file = if *in_main { main } else { block };
        let source = Replaced { file, tensor: changed(tensor) };
        let effect = if *in_main {
            effect(tensor, &logits, &run(&open(&source)?)?[0])
        } else {
            let block = MtpModel::from_source(&source, &model.config).map_err(text)?;
            effect(tensor, &drafts, &draft(&block)?)
        };
        done();
        Ok(effect)
    });
    effects.into_iter().collect()
}

/// Names of tensors that moved nothing.
#[must_use]
pub fn without_effect(effects: &[Effect]) -> Vec<&str> {
    effects.iter().filter(|e| e.positions == 0.0).map(|e| e.tensor.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_that_moves_nothing_is_named_and_one_bit_is_enough_to_move() {
        let bytes = Bytes::owned(vec![0; 4]);
        let tensor = Tensor::new("dead.weight", DType::F32, vec![1], bytes).unwrap();
        let mut before = Rows::zeros(3, 2);
        before.row_mut(1).copy_from_slice(&[1.0, 2.0]);
        let dead = effect(&tensor, &before, &before);
        assert_eq!(without_effect(&[dead]), ["dead.weight"]);
        let mut after = before.clone();
        after.row_mut(1)[1] = 2.0_f32.next_up();
        let live = effect(&tensor, &before, &after);
        assert!(without_effect(std::slice::from_ref(&live)).is_empty());
        assert!(live.largest > 0.0 && (live.positions - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn every_kind_of_tensor_is_changed_and_keeps_its_length() {
        for dtype in DType::ALL {
            let dims = vec![dtype.block_elements() * 4, 2];
            let length = dtype.tensor_bytes(&dims).unwrap();
            let bytes: Vec<u8> = (0..length).map(|i| 0x3c + (i % 7) as u8).collect();
            let tensor = Tensor::new("x", dtype, dims, Bytes::owned(bytes.clone())).unwrap();
            let other = changed(&tensor);
            assert_eq!(other.bytes().len(), length, "{}", dtype.name());
            assert_ne!(other.bytes().to_vec(), bytes, "{}", dtype.name());
        }
    }
}
