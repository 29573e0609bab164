//! Rows of activations, encoded once for all matrices that they meet.
//!
//! Promises: codes, sums and scales are those of `format::quant::{Q8Row, Q8KRow}::encode`, bit for bit.
//! They are laid out for lanes: a row of `n` blocks is read in steps, and step `i` holds block `i` of
//! each of the 8 parts that `reference::order` cuts a row into, side by side. Where a part has no such
//! block, its place holds zeros.
//! Assumes, as the encoders do, that rows are whole blocks. Leaves the products to the kernels.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::threads::Threads;
use crate::format::quant::{K_BLOCK, Q8_BLOCK};
use crate::reference::order::{QUANT_SEGMENTS, quant_segment, with_fma};
use crate::rows::Rows;

/// What one register holds.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Unit(pub(super) [u8; 32]);

impl Unit {
    pub(super) const ZERO: Self = Self([0; 32]);

    fn put(&mut self, place: usize, bytes: [u8; 4]) {
        self.0[4 * place..4 * place + 4].copy_from_slice(&bytes);
    }

    pub(super) fn word(&self, place: usize) -> [u8; 4] {
        [0, 1, 2, 3].map(|byte| self.0[4 * place + byte])
    }
}

/// How the blocks of a row fall into parts and steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Blocks of the row.
    pub(super) blocks: usize,
    /// First block of each part.
    pub(super) starts: [usize; QUANT_SEGMENTS],
    /// Steps that every part has a block for.
    pub(super) full: usize,
    /// All steps: one more where some parts are longer.
    pub(super) steps: usize,
}

impl Parts {
    pub(super) fn of(blocks: usize) -> Self {
        Self {
            blocks,
            starts: std::array::from_fn(|part| quant_segment(part, blocks).start),
            full: blocks / QUANT_SEGMENTS,
            steps: blocks.div_ceil(QUANT_SEGMENTS),
        }
    }

    /// The block of a part in a step, where it has one.
    pub(super) fn block(&self, part: usize, step: usize) -> Option<usize> {
        let block = self.starts[part] + step;
        quant_segment(part, self.blocks).contains(&block).then_some(block)
    }

    /// Step and part of a block.
    pub(super) fn place(&self, block: usize) -> (usize, usize) {
        let part = self.starts.iter().rposition(|start| *start <= block).unwrap_or(0);
        (block - self.starts[part], part)
    }
}

/// Units of a step of blocks of 32: 8 of codes, unit `j` holding codes `4j..4j + 4` of each part, and one
/// of scales.
pub(super) const Q8_UNITS: usize = 9;
/// Units of a step of blocks of 256: 8 of codes for each part, one of sums for each part, one of scales.
pub(super) const K_UNITS: usize = 73;
/// Where the sums of a K step start.
pub(super) const K_SUMS: usize = 64;
/// Where the scales of a K step are.
pub(super) const K_SCALES: usize = 72;

/// Encoded rows.
#[derive(Clone)]
pub(super) struct Encoded {
    pub(super) parts: Parts,
    stride: usize,
    units: Vec<Unit>,
}

impl Encoded {
    /// The steps of a row, one after the other.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &[Unit] {
        &self.units[row * self.stride..(row + 1) * self.stride]
    }
}

/// Rows of activations.
#[derive(Clone)]
pub struct Activations {
    rows: Arc<Rows>,
    columns: Range<usize>,
    q8: OnceLock<Encoded>,
    q8_k: OnceLock<Encoded>,
}

impl From<Rows> for Activations {
    fn from(rows: Rows) -> Self {
        let columns = 0..rows.width();
        Self { rows: Arc::new(rows), columns, q8: OnceLock::new(), q8_k: OnceLock::new() }
    }
}

impl Activations {
    /// Some columns of the same rows, counted from the first of these.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn columns(&self, columns: Range<usize>) -> Self {
        assert!(columns.start <= columns.end && columns.end <= self.width(), "columns of the rows");
        let first = self.columns.start;
        let columns = first + columns.start..first + columns.end;
        let rows = Arc::clone(&self.rows);
        Self { rows, columns, q8: OnceLock::new(), q8_k: OnceLock::new() }
    }

    /// The rows, all columns of them.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The rows, encodings dropped.
    #[must_use]
    pub fn into_rows(self) -> Rows {
        Arc::try_unwrap(self.rows).unwrap_or_else(|rows| (*rows).clone())
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.count()
    }

    /// Values of each row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Values of a row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.rows.row(row)[self.columns.clone()]
    }

    /// The rows in blocks of 32.
    pub(super) fn q8(&self, threads: &Threads) -> &Encoded {
        self.q8.get_or_init(|| self.encode(threads, Q8_BLOCK, Q8_UNITS, encode_q8))
    }

    /// The rows in blocks of 256.
    pub(super) fn q8_k(&self, threads: &Threads) -> &Encoded {
        self.q8_k.get_or_init(|| self.encode(threads, K_BLOCK, K_UNITS, encode_q8_k))
    }

    fn encode(
        &self,
        threads: &Threads,
        block: usize,
        units: usize,
        row: fn(&[f32], Parts, &mut [Unit]),
    ) -> Encoded {
        assert!(self.width().is_multiple_of(block), "rows of whole blocks");
        let parts = Parts::of(self.width() / block);
        let stride = parts.steps * units;
        let mut encoded = Encoded { parts, stride, units: vec![Unit::ZERO; self.count() * stride] };
        if stride == 0 {
            return encoded;
        }
        // Rows of one thread: enough to be worth a thread.
        let rows = (ENCODE_TOGETHER / self.width()).max(1);
        threads.each_chunk(&mut encoded.units, rows * stride, &|chunk, units| {
            for (index, units) in units.chunks_exact_mut(stride).enumerate() {
                row(self.row(chunk * rows + index), parts, units);
            }
        });
        encoded
    }
}

/// Values encoded by one thread in one go.
const ENCODE_TOGETHER: usize = 16 << 10;

/// The largest magnitude; NaN counts as zero, as `f32::max` has it. Magnitudes order as their bits do.
#[inline(always)]
fn abs_max(x: &[f32]) -> f32 {
    let infinity = f32::INFINITY.to_bits();
    let magnitude = |x: &f32| {
        let bits = x.to_bits() & 0x7fff_ffff;
        if bits > infinity { 0 } else { bits }
    };
    f32::from_bits(x.iter().fold(0, |max, x| max.max(magnitude(x))))
}

with_fma! {
    fn encode_q8(x: &[f32], parts: Parts, units: &mut [Unit]) {
        for (index, block) in x.chunks_exact(Q8_BLOCK).enumerate() {
            let mut scale = abs_max(block) / 127.0;
            let mut inverse = 1.0 / scale;
            if !inverse.is_finite() {
                (scale, inverse) = (0.0, 0.0);
            }
            let mut codes = [0_u8; Q8_BLOCK];
            for (code, x) in codes.iter_mut().zip(block) {
                *code = (x * inverse).round_ties_even().clamp(-128.0, 127.0) as i8 as u8;
            }
            let (step, part) = parts.place(index);
            let units = &mut units[step * Q8_UNITS..(step + 1) * Q8_UNITS];
            for (unit, codes) in units.iter_mut().zip(codes.chunks_exact(4)) {
                unit.put(part, [codes[0], codes[1], codes[2], codes[3]]);
            }
            units[Q8_UNITS - 1].put(part, scale.to_ne_bytes());
        }
    }
}

with_fma! {
    fn encode_q8_k(x: &[f32], parts: Parts, units: &mut [Unit]) {
        for (index, block) in x.chunks_exact(K_BLOCK).enumerate() {
            let amax = abs_max(block);
            let largest = block.iter().copied().find(|x| x.abs() == amax).unwrap_or(0.0);
            let mut inverse = -127.0 / largest;
            let mut scale = 1.0 / inverse;
            if !inverse.is_finite() {
                (scale, inverse) = (0.0, 0.0);
            }
            let mut codes = [0_i8; K_BLOCK];
            for (code, x) in codes.iter_mut().zip(block) {
                *code = (inverse * x).round_ties_even().min(127.0) as i8;
            }
            let (step, part) = parts.place(index);
            let units = &mut units[step * K_UNITS..(step + 1) * K_UNITS];
            for (unit, codes) in units[8 * part..].iter_mut().zip(codes.chunks_exact(32)) {
                for (byte, code) in unit.0.iter_mut().zip(codes) {
                    *byte = *code as u8;
                }
            }
            let sums = units[K_SUMS + part].0.chunks_exact_mut(2);
            for (sum, codes) in sums.zip(codes.chunks_exact(16)) {
                let total = codes.iter().fold(0_i16, |sum, code| sum + i16::from(*code));
                sum.copy_from_slice(&total.to_ne_bytes());
            }
            units[K_SCALES].put(part, scale.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::quant::{Q8KRow, Q8Row};

    /// Every kind of value that an encoder tells apart, NaN and infinities included.
    fn values(count: usize) -> Vec<f32> {
        let odd =
            [0.0, -0.0, f32::NAN, f32::INFINITY, -f32::INFINITY, f32::MAX, 1e-40, -3e-39, 0.5];
        let mut state = 1_u64;
        (0..count)
            .map(|index| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
                let bits = (state >> 32) as u32;
                match (index / 256) % 4 {
                    0 => f32::from_bits(bits),
                    1 if bits.is_multiple_of(97) => odd[(state >> 20) as usize % odd.len()],
                    2 => odd[(state >> 20) as usize % 2],
                    _ => (bits as f32 / u32::MAX as f32 - 0.5) * 26.0,
                }
            })
            .collect()
    }

    #[test]
    fn codes_sums_and_scales_are_those_of_the_encoders() {
        let threads = Threads::new(2).unwrap();
        for blocks in [1, 2, 7, 8, 9, 16, 23] {
            let mut rows = Rows::empty(blocks * K_BLOCK);
            let all = values(3 * blocks * K_BLOCK);
            all.chunks_exact(blocks * K_BLOCK).for_each(|row| rows.push(row));
            let x = Activations::from(rows.clone());
            for (index, row) in rows.iter().enumerate() {
                small_blocks(&Q8Row::encode(row), x.q8(&threads).row(index));
                large_blocks(&Q8KRow::encode(row), x.q8_k(&threads).row(index));
            }
        }
    }

    fn small_blocks(expected: &Q8Row, units: &[Unit]) {
        let parts = Parts::of(expected.scales.len());
        for (block, scale) in expected.scales.iter().enumerate() {
            let (step, part) = parts.place(block);
            assert_eq!(parts.block(part, step), Some(block));
            let units = &units[step * Q8_UNITS..];
            assert_eq!(units[8].word(part), scale.to_ne_bytes(), "scale {block}");
            let codes = (0..8).flat_map(|j| units[j].word(part)).map(|code| code as i8);
            assert!(codes.eq(expected.quants[32 * block..32 * block + 32].iter().copied()));
        }
    }

    fn large_blocks(expected: &Q8KRow, units: &[Unit]) {
        let parts = Parts::of(expected.scales.len());
        for (block, scale) in expected.scales.iter().enumerate() {
            let (step, part) = parts.place(block);
            let units = &units[step * K_UNITS..];
            assert_eq!(units[K_SCALES].word(part), scale.to_ne_bytes(), "scale {block}");
            let codes = units[8 * part..8 * part + 8].iter().flat_map(|unit| unit.0);
            assert!(
                codes
                    .map(|code| code as i8)
                    .eq(expected.quants[256 * block..256 * block + 256].iter().copied())
            );
            let sums = units[K_SUMS + part].0.chunks_exact(2);
            assert!(
                sums.map(|sum| i16::from_ne_bytes([sum[0], sum[1]]))
                    .eq(expected.sums[16 * block..16 * block + 16].iter().copied())
            );
        }
    }
}
