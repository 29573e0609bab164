//! Eight sums side by side, each in the order of the contract.
//!
//! Promises: lane `l` of a result is what the reference's function gives for row `l` alone. Plain arrays of
//! eight: compiled for 256-bit registers they become one instruction each (see `with_fma`), and
//! without them the bits are the same.

use crate::reference::order::fma;

/// Rows side by side.
pub const LANES: usize = 8;

/// One value of each row.
pub type Lane = [f32; LANES];

/// Turns up to eight rows, one after the other, into lanes; absent rows are zeros.
pub fn transpose(rows: &[f32], width: usize, out: &mut Vec<Lane>) {
    out.clear();
    out.resize(width, [0.0; LANES]);
    for (lane, row) in rows.chunks_exact(width).enumerate() {
        for (out, value) in out.iter_mut().zip(row) {
            out[lane] = *value;
        }
    }
}

/// Chains that run at once: enough to hide the latency of one.
pub const CHAINS: usize = 4;

/// Sum of products of each row with `x` in segments of `SEGMENT` elements (`order::dot`, `order::dot_fp4`).
#[inline(always)]
pub fn dots<const SEGMENT: usize>(rows: &[Lane], x: &[f32]) -> Lane {
    let mut total = [0.0; LANES];
    add_dots::<SEGMENT>(rows, x, &mut total);
    total
}

/// Adds the segments of a part of the rows to a total; all parts but the last are whole segments.
#[inline(always)]
pub fn add_dots<const SEGMENT: usize>(rows: &[Lane], x: &[f32], total: &mut Lane) {
    assert_eq!(rows.len(), x.len(), "rows of a dot product");
    let whole = rows.len() / (CHAINS * SEGMENT) * (CHAINS * SEGMENT);
    let chunks = rows.chunks_exact(CHAINS * SEGMENT).zip(x.chunks_exact(CHAINS * SEGMENT));
    for (rows, x) in chunks {
        let mut acc = [[0.0; LANES]; CHAINS];
        for i in 0..SEGMENT {
            for (chain, acc) in acc.iter_mut().enumerate() {
                step(&rows[chain * SEGMENT + i], x[chain * SEGMENT + i], acc);
            }
        }
        // ORDER: segments left to right.
        for acc in &acc {
            add(acc, total);
        }
    }
    for (rows, x) in rows[whole..].chunks(SEGMENT).zip(x[whole..].chunks(SEGMENT)) {
        let mut acc = [0.0; LANES];
        for (rows, x) in rows.iter().zip(x) {
            step(rows, *x, &mut acc);
        }
        add(&acc, total);
    }
}

#[inline(always)]
fn step(rows: &Lane, x: f32, acc: &mut Lane) {
    for (acc, row) in acc.iter_mut().zip(rows) {
        *acc = fma(*row, x, *acc);
    }
}

#[inline(always)]
fn add(acc: &Lane, total: &mut Lane) {
    for (total, acc) in total.iter_mut().zip(acc) {
        *total += acc;
    }
}
