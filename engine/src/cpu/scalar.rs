//! Products for machines that no other kernel is for.
//!
//! Promises: the same functions that the reference calls for a block or a float row, in the same order.

use super::activations::{Encoded, K_SCALES, K_SUMS, K_UNITS, Q8_UNITS};
use super::matmul::{Input, Item, Scratch};
use crate::format::quant::{self, K_BLOCK, KDot, Q8_BLOCK};
use crate::reference::order::{self, sum_blocks};
use crate::tensor::DType;

/// Runs an item.
pub(super) fn item(item: &Item<'_>, scratch: &mut Scratch) {
    let weights = item.job.weights;
    for feature in item.features.clone() {
        let bytes = weights.row(feature);
        if let Input::Float(_) = item.input {
            scratch.floats.resize(weights.columns(), 0.0);
            weights.decode_row(feature, &mut scratch.floats);
        }
        for place in 0..item.job.tokens.len() {
            let token = item.job.tokens.at(place);
            let value = match item.input {
                Input::Float(x) => order::dot(&scratch.floats, x.row(token)),
                Input::Quantised(x) => row(weights.dtype(), bytes, x, token),
            };
            // SAFETY: `feature` is one of the item's, and this is the thread that runs it.
            unsafe { item.set(place, feature, value) };
        }
    }
}

/// The product of a stored row and an encoded row.
fn row(dtype: DType, bytes: &[u8], x: &Encoded, token: usize) -> f32 {
    let length = dtype.block_bytes();
    let block = |index: usize| &bytes[index * length..(index + 1) * length];
    match dtype {
        DType::Q8_0 => sum_blocks!(x.parts.blocks, |index, acc| {
            let (codes, scale) = small_block(x, token, index);
            let (d, dot) = quant::q8_0_dot(block(index), &codes);
            order::fma(d * scale, dot as f32, acc)
        }),
        DType::Iq2Xxs => sum_blocks!(x.parts.blocks, |index, acc| {
            let x = large_block(x, token, index);
            let (d, dot) = quant::iq2_xxs_dot(block(index), &x.codes);
            order::fma(d * x.scale * 0.125, dot as f32, acc)
        }),
        DType::Q2K => k_row(x, token, |index, x| quant::q2_k_dot(block(index), &x.codes, &x.sums)),
        DType::Q4K => k_row(x, token, |index, x| quant::q4_k_dot(block(index), &x.codes, &x.sums)),
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => unreachable!("no blocks"),
    }
}

fn k_row(x: &Encoded, token: usize, dot: impl Fn(usize, &LargeBlock) -> KDot) -> f32 {
    sum_blocks!(x.parts.blocks, |index, acc| {
        let x = large_block(x, token, index);
        let dot = dot(index, &x);
        // ORDER: codes first, then minima.
        let acc = order::fma(dot.d * x.scale, dot.codes as f32, acc);
        order::fma(-(dot.d_min * x.scale), dot.minima as f32, acc)
    })
}

/// A block of 32 codes taken out of its step, and its scale.
fn small_block(x: &Encoded, token: usize, index: usize) -> ([i8; Q8_BLOCK], f32) {
    let (step, part) = x.parts.place(index);
    let units = &x.row(token)[step * Q8_UNITS..(step + 1) * Q8_UNITS];
    let mut codes = [0; Q8_BLOCK];
    for (codes, unit) in codes.chunks_exact_mut(4).zip(units) {
        codes.copy_from_slice(&unit.word(part).map(|code| code as i8));
    }
    (codes, f32::from_ne_bytes(units[Q8_UNITS - 1].word(part)))
}

struct LargeBlock {
    codes: [i8; K_BLOCK],
    sums: [i16; K_BLOCK / 16],
    scale: f32,
}

/// A block of 256 codes taken out of its step.
fn large_block(x: &Encoded, token: usize, index: usize) -> LargeBlock {
    let (step, part) = x.parts.place(index);
    let units = &x.row(token)[step * K_UNITS..(step + 1) * K_UNITS];
    let mut codes = [0; K_BLOCK];
    for (codes, unit) in codes.chunks_exact_mut(32).zip(&units[8 * part..]) {
        codes.copy_from_slice(&unit.0.map(|code| code as i8));
    }
    let sums = &units[K_SUMS + part].0;
    LargeBlock {
        codes,
        sums: std::array::from_fn(|i| i16::from_ne_bytes([sums[2 * i], sums[2 * i + 1]])),
        scale: f32::from_ne_bytes(units[K_SCALES].word(part)),
    }
}
