//! Seeded inputs of single operations.
//!
//! Promises: row `t` depends on the seed and on `t` alone, never on the rows beside it, so a call can be
//! cut anywhere. [`Inputs::Exact`] makes sums of products of integers and powers of two below 2^24, exact
//! in any order: a difference there is logic, never rounding.

use std::ops::Range;

use engine::format::weights::Matrix;
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};
use half::{bf16, f16};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// What numbers are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inputs {
    /// Small integers and powers of two.
    Exact,
    /// Uniform in -1..1.
    Random,
    /// Zeros of both signs, subnormals, large numbers that cancel, ties.
    Hostile,
}

impl Inputs {
    /// All of them, exact ones first.
    pub const ALL: [Self; 3] = [Self::Exact, Self::Random, Self::Hostile];

    /// The name in cases.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Random => "random",
            Self::Hostile => "hostile",
        }
    }
}

/// Values of one row or matrix.
pub(super) struct Source {
    random: Xoshiro256PlusPlus,
    inputs: Inputs,
    /// Which mixture a hostile row is.
    kind: usize,
}

impl Source {
    pub(super) fn new(inputs: Inputs, seed: u64, row: usize) -> Self {
        let mixed = seed ^ (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { random: Xoshiro256PlusPlus::seed_from_u64(mixed), inputs, kind: row % 4 }
    }

    pub(super) fn word(&mut self) -> u64 {
        self.random.next_u64() >> 8
    }

    /// Uniform in -1..1, of 24 bits.
    fn uniform(&mut self) -> f32 {
        ((self.word() >> 31) as f32) / ((1_u32 << 24) as f32) - 1.0
    }

    pub(super) fn value(&mut self) -> f32 {
        match self.inputs {
            Inputs::Exact => (self.word() % 7) as f32 - 3.0,
            Inputs::Random => self.uniform(),
            Inputs::Hostile => self.hostile(),
        }
    }

    fn hostile(&mut self) -> f32 {
        let word = self.word();
        match (self.kind, word % 8) {
            // Zeros of both signs, with a rare number among them.
            (0, 0) => self.uniform(),
            (0, other) => [0.0, -0.0][(other % 2) as usize],
            // Subnormal and the smallest normal numbers.
            (1, 0) => f32::MIN_POSITIVE,
            (1, _) => f32::from_bits((word >> 8) as u32 & 0x807f_ffff),
            // Large numbers that cancel, with small ones between them.
            (2, 0..=2) => 1e15 * self.uniform().signum(),
            (2, _) => self.uniform(),
            // Many equal values.
            (_, other) => [-1.0, 0.0, 1.0, 1.0][(other % 4) as usize],
        }
    }
}

/// Rows of activations. A row of exact ones has 127 in each 32 values, so that int8 rounding keeps it.
#[must_use]
pub fn rows(inputs: Inputs, seed: u64, tokens: Range<usize>, width: usize) -> Rows {
    let mut out = Rows::zeros(tokens.len(), width);
    for (place, token) in tokens.enumerate() {
        let mut source = Source::new(inputs, seed, token);
        for (index, value) in out.row_mut(place).iter_mut().enumerate() {
            *value = source.value();
            if inputs == Inputs::Exact && index % 32 == 5 {
                *value = if source.word().is_multiple_of(2) { 127.0 } else { -127.0 };
            }
        }
    }
    out
}

/// A vector of weights, as of a norm.
#[must_use]
pub fn vector(inputs: Inputs, seed: u64, width: usize) -> Vec<f32> {
    let mut source = Source::new(inputs, seed, 3);
    (0..width).map(|_| source.value()).collect()
}

/// A stored matrix. Scales of blocks differ from block to block, so that a scale of another block shows.
///
/// # Panics
/// When rows of `columns` are no whole blocks.
#[must_use]
pub fn matrix(inputs: Inputs, seed: u64, dtype: DType, rows: usize, columns: usize) -> Matrix {
    let mut bytes = Vec::new();
    for row in 0..rows {
        let mut source = Source::new(inputs, seed ^ 0x5eed, row);
        for block in 0..columns / dtype.block_elements() {
            push_block(dtype, &mut source, row + block, &mut bytes);
        }
    }
    Matrix::new(dtype, rows, columns, Bytes::owned(bytes)).expect("whole blocks")
}

/// Offsets of the f16 numbers that scale a block.
fn scales(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q8_0 | DType::Iq2Xxs => &[0],
        DType::Q2K => &[80, 82],
        DType::Q4K => &[0, 2],
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => &[],
    }
}

fn push_block(dtype: DType, source: &mut Source, place: usize, bytes: &mut Vec<u8>) {
    match dtype {
        DType::F32 => return bytes.extend(source.value().to_le_bytes()),
        DType::F16 => return bytes.extend(f16::from_f32(small(source)).to_le_bytes()),
        DType::Bf16 => return bytes.extend(bf16::from_f32(source.value()).to_le_bytes()),
        _ => {}
    }
    let start = bytes.len();
    bytes.extend((0..dtype.block_bytes()).map(|_| source.word() as u8));
    for (index, offset) in scales(dtype).iter().enumerate() {
        let scale = f16::from_f32(match source.inputs {
            // 1, 2 and 4 in turn.
            Inputs::Exact => (1 << ((place + index) % 3)) as f32,
            Inputs::Random => source.uniform() / 64.0,
            Inputs::Hostile => match source.word() % 4 {
                0 => 0.0,
                1 => f16::from_bits(1 + (source.word() % 0x3ff) as u16).to_f32(),
                2 => -1000.0,
                _ => source.uniform(),
            },
        });
        bytes[start + offset..start + offset + 2].copy_from_slice(&scale.to_le_bytes());
    }
}

/// A value that f16 can hold.
fn small(source: &mut Source) -> f32 {
    source.value().clamp(-60_000.0, 60_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_same_whatever_is_beside_it() {
        for inputs in Inputs::ALL {
            let all = rows(inputs, 7, 0..9, 64);
            let part = rows(inputs, 7, 3..5, 64);
            let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(all.row(3)), bits(part.row(0)));
            assert_ne!(bits(all.row(3)), bits(all.row(7)), "rows differ");
            assert!(all.values().iter().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn exact_sums_are_exact_in_any_order() {
        let x = rows(Inputs::Exact, 1, 0..1, 2304);
        for dtype in [DType::F16, DType::Q8_0, DType::Q2K, DType::Q4K, DType::Iq2Xxs] {
            let matrix = matrix(Inputs::Exact, 2, dtype, 4, 2304);
            let mut decoded = vec![0.0; 2304];
            for row in 0..4 {
                matrix.decode_row(row, &mut decoded);
                let terms = || decoded.iter().zip(x.row(0)).map(|(w, x)| w * x);
                let forward = terms().fold(0.0_f32, |sum, term| sum + term);
                let backward = terms().rev().fold(0.0_f32, |sum, term| sum + term);
                let exact = terms().fold(0.0_f64, |sum, term| sum + f64::from(term));
                assert_eq!(forward.to_bits(), backward.to_bits(), "{}", dtype.name());
                assert!(f64::from(forward) == exact && exact != 0.0, "{}", dtype.name());
            }
        }
    }
}
