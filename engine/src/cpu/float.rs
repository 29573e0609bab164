//! Products of float rows: eight rows of weights side by side.
//!
//! Promises: the bytes of `reference::matmul::float` for every stored type. Weights are turned into lanes a
//! few kilobytes at a time and met by all tokens there.

use super::lanes::{CHAINS, LANES, Lane, add_dots};
use super::level::Level;
use crate::format::weights::Matrix;
use crate::reference::order::{SEGMENT, with_fma};
use crate::rows::Rows;
use crate::tensor::DType;

/// Columns that are turned at a time.
const SLAB: usize = CHAINS * SEGMENT;

/// Products of `weights` with the rows `tokens` of `x`: `out[row][token]`.
pub fn products(weights: &Matrix, x: &Rows, tokens: &[usize], out: &mut [f32]) {
    let columns = weights.columns();
    let mut lanes: Vec<Lane> = Vec::with_capacity(SLAB);
    let mut decoded = Vec::new();
    let mut totals: Vec<Lane> = vec![[0.0; LANES]; tokens.len()];
    for (group, out) in out.chunks_mut(LANES * tokens.len()).enumerate() {
        let first = group * LANES;
        let count = out.len() / tokens.len();
        let in_place = match weights.dtype() {
            DType::F16 => count == LANES,
            dtype => dtype == DType::F32,
        };
        if !in_place {
            decoded.resize(count * columns, 0.0);
            for (row, decoded) in decoded.chunks_exact_mut(columns).enumerate() {
                weights.decode_row(first + row, decoded);
            }
        }
        totals.fill([0.0; LANES]);
        for start in (0..columns).step_by(SLAB) {
            let end = columns.min(start + SLAB);
            lanes.clear();
            lanes.resize(end - start, [0.0; LANES]);
            let bytes =
                |row: usize, size: usize| &weights.row(first + row)[size * start..size * end];
            match weights.dtype() {
                DType::F16 if count == LANES => {
                    turn_f16(&std::array::from_fn(|row| bytes(row, 2)), &mut lanes);
                }
                DType::F32 => (0..count).for_each(|row| turn_f32(bytes(row, 4), row, &mut lanes)),
                _ => {
                    for (row, decoded) in decoded.chunks_exact(columns).enumerate() {
                        turn(&decoded[start..end], row, &mut lanes);
                    }
                }
            }
            meet(&lanes, x, tokens, start, &mut totals);
        }
        for (row, out) in out.chunks_exact_mut(tokens.len()).enumerate() {
            for (out, total) in out.iter_mut().zip(&totals) {
                *out = total[row];
            }
        }
    }
}

with_fma! {
    /// Adds a slab of columns from `start` to the totals of all tokens.
    fn meet(lanes: &[Lane], x: &Rows, tokens: &[usize], start: usize, totals: &mut [Lane]) {
        for (token, total) in tokens.iter().zip(totals) {
            add_dots::<SEGMENT>(lanes, &x.row(*token)[start..start + lanes.len()], total);
        }
    }
}

fn turn(values: &[f32], lane: usize, lanes: &mut [Lane]) {
    for (lanes, value) in lanes.iter_mut().zip(values) {
        lanes[lane] = *value;
    }
}

fn turn_f32(bytes: &[u8], lane: usize, lanes: &mut [Lane]) {
    for (lanes, b) in lanes.iter_mut().zip(bytes.as_chunks::<4>().0) {
        lanes[lane] = f32::from_le_bytes(*b);
    }
}

fn turn_f16(rows: &[&[u8]; LANES], lanes: &mut [Lane]) {
    #[cfg(target_arch = "x86_64")]
    if Level::avx2().is_some() {
        // SAFETY: the level can only be had where the processor has its features.
        unsafe { super::avx2::turn_f16(rows, lanes) };
        return;
    }
    for (lane, row) in rows.iter().enumerate() {
        for (lanes, b) in lanes.iter_mut().zip(row.as_chunks::<2>().0) {
            lanes[lane] = half::f16::from_le_bytes(*b).to_f32();
        }
    }
}
