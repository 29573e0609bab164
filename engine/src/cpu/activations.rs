//! Activations with the encodings that matrices have asked for so far.
//!
//! Promises: rows are encoded once, however many matrices meet them, and the codes are those of the
//! reference. Scales are laid out by step and lane, as the kernels read them.

use std::sync::OnceLock;

use super::lanes::{LANES, Parts};
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

#[derive(Clone, Default)]
struct EncodedRow {
    quants: Vec<i8>,
    scales: Vec<[f32; LANES]>,
    sums: Vec<i16>,
}

impl Encoded {
    /// How the blocks of a row fall into lanes.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Codes of a row, and their scales by step.
    #[inline(always)]
    #[must_use]
    pub fn row(&self, token: usize) -> (&[i8], &[[f32; LANES]]) {
        let row = &self.rows[token];
        (&row.quants, &row.scales)
    }

    /// Sums of 16 codes of a row.
    #[inline(always)]
    #[must_use]
    pub fn sums(&self, token: usize) -> &[i16] {
        &self.rows[token].sums
    }

    fn new(
        rows: &Rows,
        block: usize,
        threads: &Threads,
        encode: impl Fn(&[f32]) -> (Vec<i8>, Vec<f32>, Vec<i16>) + Sync,
    ) -> Self {
        let parts = Parts::new(rows.width() / block);
        let mut encoded = vec![EncodedRow::default(); rows.count()];
        let items: Vec<(&mut EncodedRow, &[f32])> = encoded.iter_mut().zip(rows.iter()).collect();
        threads.each(items, rows.width() * WORK, |(out, x)| {
            let (quants, scales, sums) = encode(x);
            let lane = |step, lane| parts.block(step, lane).map_or(0.0, |block| scales[block]);
            let step = |step| std::array::from_fn(|l| lane(step, l));
            *out = EncodedRow { quants, scales: (0..parts.steps).map(step).collect(), sums };
        });
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
            Encoded::new(&self.rows, Q8_BLOCK, threads, |x| {
                let row = Q8Row::encode(x);
                (row.quants, row.scales, Vec::new())
            })
        })
    }

    /// Codes in blocks of 256.
    pub fn q8_k(&self, threads: &Threads) -> &Encoded {
        self.q8_k.get_or_init(|| {
            Encoded::new(&self.rows, K_BLOCK, threads, |x| {
                let row = Q8KRow::encode(x);
                (row.quants, row.scales, row.sums)
            })
        })
    }
}
