//! Float rows with AVX2.
//!
//! Promises: the chains of `reference::order::dot`. Lanes are 8 rows of the matrix; a lane's chain runs
//! over one segment, and the results of segments are added left to right.
//! Weights of quantised types come decoded by `format::quant` (profiles without int8 activations).
//! Assumes nothing of the number of rows or columns: lanes beyond the last row repeat it and are dropped.

use std::arch::x86_64::*;

use super::activations::{Activations, Unit};
use super::matmul::{Item, Scratch};
use crate::reference::order::SEGMENT;

/// Segments decoded together, so that as many chains are in flight.
const SEGMENTS: usize = 4;
/// Lanes, and columns that are transposed together.
const LANES: usize = 8;

/// How one weight is stored.
pub(super) trait Source {
    /// Bytes of a weight; 0 where rows have to be decoded first.
    const BYTES: usize;
    /// # Safety
    /// Needs AVX2 and F16C; 8 weights are at `at`.
    unsafe fn eight(at: *const u8) -> __m256;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
/// Rows of other types, decoded to f32.
pub(super) struct Decoded;

impl Source for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 32 bytes are there.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

impl Source for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes are there.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
}

impl Source for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes are there.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
}

impl Source for Decoded {
    const BYTES: usize = 0;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 32 bytes are there.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }
}

/// Rows become columns.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn transpose(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: no memory is touched.
    unsafe {
        let (a, b) = (four([r[0], r[1], r[2], r[3]]), four([r[4], r[5], r[6], r[7]]));
        [
            _mm256_permute2f128_ps::<0x20>(a[0], b[0]),
            _mm256_permute2f128_ps::<0x20>(a[1], b[1]),
            _mm256_permute2f128_ps::<0x20>(a[2], b[2]),
            _mm256_permute2f128_ps::<0x20>(a[3], b[3]),
            _mm256_permute2f128_ps::<0x31>(a[0], b[0]),
            _mm256_permute2f128_ps::<0x31>(a[1], b[1]),
            _mm256_permute2f128_ps::<0x31>(a[2], b[2]),
            _mm256_permute2f128_ps::<0x31>(a[3], b[3]),
        ]
    }
}

/// Column `i` of 4 rows in the low half of register `i`, column `i + 4` in its high half.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn four(r: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: no memory is touched.
    unsafe {
        let (a, b) = (_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
        let (c, d) = (_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
        [
            _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
            _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
            _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
            _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
        ]
    }
}

/// Decodes columns `first..first + count` of 8 rows: unit `c` has column `first + c` of each.
///
/// # Safety
/// Needs AVX2 and F16C; the rows have these columns and `tile` has `count` units or more.
#[inline(always)]
unsafe fn decode<S: Source>(rows: &[*const u8; 8], first: usize, count: usize, tile: *mut Unit) {
    let bytes = if S::BYTES == 0 { 4 } else { S::BYTES };
    let whole = count / LANES * LANES;
    // SAFETY: columns are inside the rows; the last ones go through a copy of 8.
    unsafe {
        for c in (0..whole).step_by(LANES) {
            let columns = transpose(rows.map(|row| S::eight(row.add((first + c) * bytes))));
            for (i, column) in columns.into_iter().enumerate() {
                _mm256_store_ps(tile.add(c + i).cast(), column);
            }
        }
        if whole < count {
            let columns = transpose(rows.map(|row| {
                let mut copy = [0_u8; 32];
                let from = row.add((first + whole) * bytes);
                copy.as_mut_ptr().copy_from_nonoverlapping(from, (count - whole) * bytes);
                S::eight(copy.as_ptr())
            }));
            for (i, column) in columns.into_iter().take(count - whole).enumerate() {
                _mm256_store_ps(tile.add(whole + i).cast(), column);
            }
        }
    }
}

/// Chains of `S` segments of 8 rows with `T` rows of activations, added to `totals` in order.
///
/// # Safety
/// Needs AVX2 and FMA; `tile` has `S` segments of `length` units, `SEGMENT` apart, and each of `x` as
/// many values; `totals` has a unit for each of `x`.
#[inline(always)]
unsafe fn chains<const S: usize, const T: usize>(
    tile: *const Unit,
    length: usize,
    x: [*const f32; T],
    totals: *mut Unit,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut acc = [[_mm256_setzero_ps(); T]; S];
        for c in 0..length {
            for (s, acc) in acc.iter_mut().enumerate() {
                let weights = _mm256_load_ps(tile.add(s * SEGMENT + c).cast());
                for (acc, x) in acc.iter_mut().zip(&x) {
                    let x = _mm256_broadcast_ss(&*x.add(s * SEGMENT + c));
                    *acc = _mm256_fmadd_ps(weights, x, *acc);
                }
            }
        }
        // ORDER: segments left to right, which is the outer loop.
        for acc in acc {
            for (t, acc) in acc.into_iter().enumerate() {
                let total = totals.add(t).cast::<f32>();
                _mm256_store_ps(total, _mm256_add_ps(_mm256_load_ps(total), acc));
            }
        }
    }
}

/// The segments of a tile with `T` rows of activations, `S` segments at a time.
///
/// # Safety
/// As for [`chains`], for all of `count` columns.
#[inline(always)]
unsafe fn segments<const S: usize, const T: usize>(
    tile: *const Unit,
    count: usize,
    x: [*const f32; T],
    totals: *mut Unit,
) {
    let mut start = 0;
    // SAFETY: every call stays inside `count` columns.
    unsafe {
        let from = |start: usize| x.map(|x| x.wrapping_add(start));
        while start + S * SEGMENT <= count {
            chains::<S, T>(tile.add(start), SEGMENT, from(start), totals);
            start += S * SEGMENT;
        }
        while start < count {
            let length = SEGMENT.min(count - start);
            chains::<1, T>(tile.add(start), length, from(start), totals);
            start += length;
        }
    }
}

/// A tile with all of an item's rows of activations.
///
/// # Safety
/// Needs AVX2 and FMA; `tile` has columns `first..first + count` of `x`, `totals` a unit for each row of
/// activations of the item.
#[inline(always)]
unsafe fn tokens(
    item: &Item<'_>,
    x: &Activations,
    tile: *const Unit,
    columns: std::ops::Range<usize>,
    totals: *mut Unit,
) {
    let picked = &item.job.tokens;
    let row = |place: usize| x.row(picked.at(place))[columns.clone()].as_ptr();
    let (count, mut place) = (picked.len(), 0);
    // SAFETY: rows of activations have these columns, which the slices above have checked.
    unsafe {
        while place + 8 <= count {
            let x = std::array::from_fn(|t| row(place + t));
            segments::<1, 8>(tile, columns.len(), x, totals.add(place));
            place += 8;
        }
        while place + 4 <= count {
            let x = std::array::from_fn(|t| row(place + t));
            segments::<2, 4>(tile, columns.len(), x, totals.add(place));
            place += 4;
        }
        while place < count {
            segments::<SEGMENTS, 1>(tile, columns.len(), [row(place)], totals.add(place));
            place += 1;
        }
    }
}

/// Runs an item.
///
/// # Safety
/// Needs AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn item<S: Source>(item: &Item<'_>, x: &Activations, scratch: &mut Scratch) {
    let weights = item.job.weights;
    let (width, count) = (weights.columns(), item.job.tokens.len());
    let mut decoded = std::mem::take(&mut scratch.floats);
    let units = scratch.units(SEGMENTS * SEGMENT + count);
    let (tile, totals) = units.split_at_mut(SEGMENTS * SEGMENT);
    for first in item.features.clone().step_by(LANES) {
        let features = item.features.end.min(first + LANES) - first;
        // Lanes beyond the last row repeat it.
        let feature = |lane: usize| first + lane.min(features - 1);
        let rows: [*const u8; 8] = if S::BYTES == 0 {
            decoded.resize(LANES * width, 0.0);
            for lane in 0..features {
                weights.decode_row(feature(lane), &mut decoded[lane * width..][..width]);
            }
            std::array::from_fn(|lane| decoded[lane.min(features - 1) * width..].as_ptr().cast())
        } else {
            std::array::from_fn(|lane| {
                let row = weights.row(feature(lane));
                assert_eq!(row.len(), width * S::BYTES, "bytes of a row");
                row.as_ptr()
            })
        };
        totals.fill(Unit::ZERO);
        for start in (0..width).step_by(SEGMENTS * SEGMENT) {
            let columns = start..width.min(start + SEGMENTS * SEGMENT);
            // SAFETY: rows have `width` columns, the tile has units for those of 4 segments.
            unsafe {
                decode::<S>(&rows, start, columns.len(), tile.as_mut_ptr());
                tokens(item, x, tile.as_ptr(), columns, totals.as_mut_ptr());
            }
        }
        for (place, total) in totals.iter().enumerate() {
            for lane in 0..features {
                // SAFETY: the row is one of the item's, and this is the thread that runs it.
                unsafe { item.set(place, first + lane, f32::from_ne_bytes(total.word(lane))) };
            }
        }
    }
    scratch.floats = decoded;
}
