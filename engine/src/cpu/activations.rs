//! Activations with the encodings that matrices have asked for so far.
//!
//! Promises: rows are encoded once, however many matrices meet them, and the codes are those of the
//! reference. Scales are laid out by step and lane, as the kernels read them.

use std::sync::OnceLock;

use super::lanes::{LANES, Lane, Parts};
use super::threads::Threads;
use crate::format::quant::{K_BLOCK, Q8_BLOCK, Q8KRow, Q8Row};
use crate::rows::Rows;

/// Work of encoding a value.
const WORK: usize = 4;

/// Rows of activations.
#[derive(Clone)]
pub struct Activations {
    rows: Rows,
    q8: OnceLock<Encoded>,
    q8_k: OnceLock<Encoded>,
}

/// Rows of int8 codes.
#[derive(Clone)]
pub struct Encoded {
    parts: Parts,
    rows: Vec<EncodedRow>,
}

/// Codes of one row in the order in which kernels meet them: by step, eight blocks each, absent ones zero.
#[derive(Clone, Default)]
pub struct EncodedRow {
    /// Codes.
    pub quants: Vec<i8>,
    /// Scales.
    pub scales: Vec<Lane>,
    /// Sums of 16 codes, in blocks of 256.
    pub sums: Vec<i16>,
    block: usize,
}

impl EncodedRow {
    fn new(parts: &Parts, block: usize, quants: &[i8], scales: &[f32], sums: &[i16]) -> Self {
        let blocks = parts.steps * LANES;
        let mut row = Self {
            quants: vec![0; blocks * block],
            scales: vec![[0.0; LANES]; parts.steps],
            sums: vec![0; if sums.is_empty() { 0 } else { blocks * block / 16 }],
            block,
        };
        for index in 0..blocks {
            let (step, lane) = (index / LANES, index % LANES);
            let Some(from) = parts.block(step, lane) else { continue };
            let codes = &quants[from * block..(from + 1) * block];
            row.quants[index * block..(index + 1) * block].copy_from_slice(codes);
            row.scales[step][lane] = scales[from];
            if !sums.is_empty() {
                let groups = block / 16;
                let sums = &sums[from * groups..(from + 1) * groups];
                row.sums[index * groups..(index + 1) * groups].copy_from_slice(sums);
            }
        }
        row
    }

    /// Whether there are codes, and sums where blocks have them, for every block of the parts.
    #[inline(always)]
    #[must_use]
    pub fn covers(&self, parts: &Parts) -> bool {
        let codes = parts.steps * LANES * self.block;
        let sums = if self.block == K_BLOCK { codes / 16 } else { 0 };
        self.scales.len() == parts.steps && self.quants.len() == codes && self.sums.len() == sums
    }
}

impl Encoded {
    /// How the blocks of a row fall into lanes.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// One row.
    #[inline(always)]
    #[must_use]
    pub fn row(&self, token: usize) -> &EncodedRow {
        &self.rows[token]
    }

    fn new(
        rows: &Rows,
        block: usize,
        threads: &Threads,
        encode: impl Fn(&[f32], &Parts) -> EncodedRow + Sync,
    ) -> Self {
        let parts = Parts::new(rows.width() / block);
        let mut encoded = vec![EncodedRow::default(); rows.count()];
        let items: Vec<(&mut EncodedRow, &[f32])> = encoded.iter_mut().zip(rows.iter()).collect();
        threads.each(items, rows.width() * WORK, |(out, x)| *out = encode(x, &parts));
        Self { parts, rows: encoded }
    }
}

impl From<Rows> for Activations {
    fn from(rows: Rows) -> Self {
        Self { rows, q8: OnceLock::new(), q8_k: OnceLock::new() }
    }
}

impl Activations {
    /// The values.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The values, encodings dropped.
    #[must_use]
    pub fn into_rows(self) -> Rows {
        self.rows
    }

    /// Codes in blocks of 32.
    pub fn q8(&self, threads: &Threads) -> &Encoded {
        self.q8.get_or_init(|| {
            Encoded::new(&self.rows, Q8_BLOCK, threads, |x, parts| {
                let row = Q8Row::encode(x);
                EncodedRow::new(parts, Q8_BLOCK, &row.quants, &row.scales, &[])
            })
        })
    }

    /// Codes in blocks of 256.
    pub fn q8_k(&self, threads: &Threads) -> &Encoded {
        self.q8_k.get_or_init(|| {
            Encoded::new(&self.rows, K_BLOCK, threads, |x, parts| {
                let row = Q8KRow::encode(x);
                EncodedRow::new(parts, K_BLOCK, &row.quants, &row.scales, &row.sums)
            })
        })
    }
}
