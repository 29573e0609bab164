//! Matrix products of stored weights with activations.
//!
//! Promises: `y[t][r] = sum_c W[r][c] x[t][c]`, each `y[t][r]` computed from row `r` and token `t` alone.
//! Weights in F32, F16 and BF16 meet f32 activations. Weights in quantised blocks meet activations
//! quantised to int8 ([`quantised`]) or, in profiles without that rounding, are decoded to f32 first.
//! The order of both sums is that of `order`.

use std::cell::Cell;

use super::order::{self, sum_blocks, with_fma};
use crate::format::quant::{self, K_BLOCK, Q8_BLOCK, Q8KRow, Q8Row};
use crate::format::weights::Matrix;
use crate::profile::Profile;
use crate::rows::Rows;
use crate::tensor::DType;

thread_local! {
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

/// Products that the calling thread has computed.
#[must_use]
pub fn runs() -> u64 {
    RUNS.get()
}

/// The product in the meaning of `profile`.
#[must_use]
pub fn matmul(weights: &Matrix, x: &Rows, profile: &Profile) -> Rows {
    RUNS.set(RUNS.get() + 1);
    if profile.int8_activations { quantised(weights, x) } else { float(weights, x) }
}

/// The product with weights decoded to f32 and activations as they are.
#[must_use]
pub fn float(weights: &Matrix, x: &Rows) -> Rows {
    let mut out = Rows::zeros(x.count(), weights.rows());
    let mut decoded = vec![0.0; weights.columns()];
    for row in 0..weights.rows() {
        weights.decode_row(row, &mut decoded);
        for token in 0..x.count() {
            out.row_mut(token)[row] = order::dot(&decoded, x.row(token));
        }
    }
    out
}

/// The product with activations quantised as the type of the weights asks: blocks of 32 for Q8_0,
/// blocks of 256 for the 2-bit and 4-bit types, not at all for float weights.
#[must_use]
pub fn quantised(weights: &Matrix, x: &Rows) -> Rows {
    match weights.dtype() {
        DType::Q8_0 => each_row(weights, x, Q8Row::encode, q8_0_row),
        DType::Iq2Xxs => each_row(weights, x, Q8KRow::encode, iq2_xxs_row),
        DType::Q2K => each_row(weights, x, Q8KRow::encode, q2_k_row),
        DType::Q4K => each_row(weights, x, Q8KRow::encode, q4_k_row),
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => float(weights, x),
    }
}

fn each_row<A>(
    weights: &Matrix,
    x: &Rows,
    encode: impl Fn(&[f32]) -> A,
    dot: impl Fn(&[u8], &A) -> f32,
) -> Rows {
    let encoded: Vec<A> = x.iter().map(encode).collect();
    let mut out = Rows::zeros(x.count(), weights.rows());
    for row in 0..weights.rows() {
        for (token, x) in encoded.iter().enumerate() {
            out.row_mut(token)[row] = dot(weights.row(row), x);
        }
    }
    out
}

with_fma! {
    fn q8_0_row(weights: &[u8], x: &Q8Row) -> f32 {
        sum_blocks!(x.scales.len(), |block, acc| {
            let quants = &x.quants[block * Q8_BLOCK..(block + 1) * Q8_BLOCK];
            let (d, dot) = quant::q8_0_dot(&weights[block * 34..(block + 1) * 34], quants);
            order::fma(d * x.scales[block], dot as f32, acc)
        })
    }
}

with_fma! {
    fn iq2_xxs_row(weights: &[u8], x: &Q8KRow) -> f32 {
        sum_blocks!(x.scales.len(), |block, acc| {
            let quants = &x.quants[block * K_BLOCK..(block + 1) * K_BLOCK];
            let (d, dot) = quant::iq2_xxs_dot(&weights[block * 66..(block + 1) * 66], quants);
            // The integer counts in eighths.
            order::fma(d * x.scales[block] * 0.125, dot as f32, acc)
        })
    }
}

with_fma! {
    fn q2_k_row(weights: &[u8], x: &Q8KRow) -> f32 {
        k_row(weights, x, DType::Q2K, quant::q2_k_dot)
    }
}

with_fma! {
    fn q4_k_row(weights: &[u8], x: &Q8KRow) -> f32 {
        k_row(weights, x, DType::Q4K, quant::q4_k_dot)
    }
}

#[inline(always)]
fn k_row(
    weights: &[u8],
    x: &Q8KRow,
    dtype: DType,
    dot: impl Fn(&[u8], &[i8], &[i16]) -> quant::KDot,
) -> f32 {
    sum_blocks!(x.scales.len(), |block, acc| {
        let quants = &x.quants[block * K_BLOCK..(block + 1) * K_BLOCK];
        let sums = &x.sums[block * K_BLOCK / 16..(block + 1) * K_BLOCK / 16];
        let bytes = dtype.block_bytes();
        let dot = dot(&weights[block * bytes..(block + 1) * bytes], quants, sums);
        let scale = x.scales[block];
        // ORDER: codes first, then minima.
        let acc = order::fma(dot.d * scale, dot.codes as f32, acc);
        order::fma(-(dot.d_min * scale), dot.minima as f32, acc)
    })
}
