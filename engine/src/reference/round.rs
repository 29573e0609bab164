//! Rounding of stored rows: FP8, FP4 with its Hadamard transform, f16.
//!
//! Promises: round trips through the formats that the model was trained with, exact to the bit:
//! scales are powers of two taken from exponent bits, codes are rounded to nearest with ties to even.
//! Assumes finite rows of whole blocks.

use half::f16;

use super::order::{ceil_log2, power_of_two};
use crate::backend::{Call, CompressedRows};
use crate::config::FP8_BLOCK;

/// Values that share one FP4 scale.
const FP4_BLOCK: usize = super::order::FP4_BLOCK;
/// The largest magnitude of E4M3.
const E4M3_MAX: f32 = 448.0;
/// The largest magnitude of E2M1.
const E2M1_MAX: f32 = 6.0;
/// Below this the scale of an FP8 block stops shrinking.
const FP8_AMAX_MIN: f32 = 1e-4;
/// Below this (6 * 2^-126) the scale of an FP4 block stops shrinking.
const FP4_AMAX_MIN: f32 = f32::from_bits(0x01c0_0000);

/// Rounds each value to f16 and back.
pub fn f16_row(row: &mut [f32]) {
    for x in row {
        *x = f16::from_f32(*x).to_f32();
    }
}

/// Rounds whole blocks of 64 to FP8 (E4M3, scale `2^ceil(log2(amax / 448))`) and back.
pub fn fp8_row(row: &mut [f32]) {
    for block in row.chunks_mut(FP8_BLOCK) {
        let exponent = ceil_log2(abs_max(block).max(FP8_AMAX_MIN) / E4M3_MAX);
        round_block(block, exponent, E4M3_MAX, e4m3);
    }
}

/// Rounds whole blocks of 32 to FP4 (E2M1, scale `2^ceil(log2(amax / 6))`) and back.
pub fn fp4_row(row: &mut [f32]) {
    for block in row.chunks_mut(FP4_BLOCK) {
        let exponent = ceil_log2(abs_max(block).max(FP4_AMAX_MIN) / E2M1_MAX);
        round_block(block, exponent, E2M1_MAX, e2m1);
    }
}

/// The Walsh-Hadamard transform in natural order, scaled to keep lengths.
///
/// # Panics
/// When the length is not a power of two.
pub fn hadamard(row: &mut [f32]) {
    assert!(row.len().is_power_of_two(), "Hadamard transform of {} values", row.len());
    let mut stride = 1;
    while stride < row.len() {
        for pair in row.chunks_exact_mut(2 * stride) {
            let (low, high) = pair.split_at_mut(stride);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
    let scale = 1.0 / (row.len() as f32).sqrt();
    for x in row {
        *x *= scale;
    }
}

/// Rounds a key row, raw or compressed, as the profile stores it.
pub fn key_row(row: &mut [f32], call: &Call<'_>) {
    if call.profile.fp8_rows {
        fp8_row(&mut row[..call.config.head_dim - call.config.rope_dim]);
    }
    if call.profile.f16_rows {
        f16_row(row);
    }
}

/// Hadamard transform and FP4 round trip of an indexer query or row, where the profile has them.
pub fn index_row(row: &mut [f32], call: &Call<'_>) {
    if call.profile.fp4_indexer {
        hadamard(row);
        fp4_row(row);
    }
}

/// Rounds a compressed row as the profile stores it.
pub fn compressed_row(rows: CompressedRows, row: &mut [f32], call: &Call<'_>) {
    match rows {
        CompressedRows::Attention => key_row(row, call),
        CompressedRows::Indexer => {
            index_row(row, call);
            if call.profile.f16_rows {
                f16_row(row);
            }
        }
    }
}

fn round_block(block: &mut [f32], exponent: i32, max: f32, code: impl Fn(f32) -> f32) {
    let scale = power_of_two(exponent);
    for x in block {
        let magnitude = code((x.abs() / scale).min(max)) * scale;
        // A zero loses its sign, as in the kernels the model was trained with.
        *x = if *x < 0.0 { -magnitude } else { magnitude };
    }
}

/// A magnitude of at most 448 rounded to E4M3: 3 bits of mantissa, smallest step 2^-9.
fn e4m3(x: f32) -> f32 {
    let exponent = ((x.to_bits() >> 23) as i32 - 127).max(-6);
    let step = power_of_two(exponent - 3);
    // Division by a power of two is exact here, so this is the one rounding.
    (x / step).round_ties_even() * step
}

/// A magnitude of at most 6 rounded to E2M1: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, ties to the even code.
fn e2m1(x: f32) -> f32 {
    let exponent = ((x.to_bits() >> 23) as i32 - 127).max(0);
    let step = power_of_two(exponent - 1);
    (x / step).round_ties_even() * step
}

fn abs_max(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |max, x| max.max(x.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All magnitudes of a format with `mantissa` bits, from code to value.
    fn codes(mantissa: i32, bias: i32, count: u32) -> Vec<f32> {
        let value = |code: u32| {
            let (exponent, fraction) = ((code >> mantissa) as i32, code & ((1 << mantissa) - 1));
            let fraction = fraction as f32 * power_of_two(-mantissa);
            if exponent == 0 {
                fraction * power_of_two(1 - bias)
            } else {
                (1.0 + fraction) * power_of_two(exponent - bias)
            }
        };
        (0..count).map(value).collect()
    }

    /// Nearest code by search, ties to the even code.
    fn nearest(x: f32, codes: &[f32]) -> f32 {
        let mut best = 0;
        for (code, value) in codes.iter().enumerate() {
            let (new, old) = ((x - value).abs(), (x - codes[best]).abs());
            if new < old || (new == old && code % 2 == 0) {
                best = code;
            }
        }
        codes[best]
    }

    #[test]
    fn rounding_is_to_the_nearest_code_with_ties_to_even() {
        let (fp8, fp4) = (codes(3, 7, 127), codes(1, 1, 8));
        assert_eq!(fp8[126], 448.0);
        assert_eq!(fp4, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        for (table, round) in [(&fp8, e4m3 as fn(f32) -> f32), (&fp4, e2m1)] {
            for pair in table.windows(2) {
                for step in 0..=64 {
                    let x = pair[0] + (pair[1] - pair[0]) * (step as f32 / 64.0);
                    assert_eq!(round(x), nearest(x, table), "{x}");
                    assert_eq!(round(x.next_up().min(pair[1])), nearest(x.next_up(), table));
                }
            }
        }
    }

    #[test]
    fn a_block_of_zeros_stays_zero_and_small_blocks_keep_the_smallest_scale() {
        let mut row = [0.0_f32, -0.0].repeat(32);
        fp8_row(&mut row);
        assert!(row.iter().all(|x| x.to_bits() == 0));
        // The smallest scale is 2^-22, its smallest step 2^-31: half of that rounds to the even code, 0.
        for (x, rounded) in [(2e-10_f32, 0.0), (power_of_two(-32), 0.0), (3e-10, power_of_two(-31))]
        {
            let mut row = vec![x; 64];
            fp8_row(&mut row);
            assert!(row.iter().all(|y| *y == rounded), "{x}: {}", row[0]);
        }
    }
}
