//! What the AVX2 kernels share.
//!
//! Promises: lane `p` of a register is part `p` of a row throughout, and [`total`] adds the lanes as
//! `reference::order` adds the parts. Assumes that callers are compiled with AVX2, FMA and F16C, which
//! [`item`] alone enters. Leaves blocks to the kernel of their type.

use std::arch::x86_64::*;

use super::activations::{Parts, Unit};
use super::matmul::{Input, Item, Scratch};
use super::{float, iq2_xxs, k_quants, k_row, q8_0};
use crate::tensor::DType;

/// Runs an item.
pub(super) fn item(item: &Item<'_>, scratch: &mut Scratch) {
    let dtype = item.job.weights.dtype();
    // SAFETY: `Level::Avx2` is made by detection of the three features only, so they are there.
    unsafe {
        match (item.input, dtype) {
            (Input::Quantised(x), DType::Q8_0) => q8_0::item(item, x, scratch),
            (Input::Quantised(x), DType::Iq2Xxs) => {
                k_row::item::<iq2_xxs::Iq2Xxs>(item, x, scratch);
            }
            (Input::Quantised(x), DType::Q2K) => k_row::item::<k_quants::Q2K>(item, x, scratch),
            (Input::Quantised(x), DType::Q4K) => k_row::item::<k_quants::Q4K>(item, x, scratch),
            (Input::Quantised(_), _) => unreachable!("{} has no blocks", dtype.name()),
            (Input::Float(x), DType::F32) => float::item::<float::F32>(item, x, scratch),
            (Input::Float(x), DType::F16) => float::item::<float::F16>(item, x, scratch),
            (Input::Float(x), DType::Bf16) => float::item::<float::Bf16>(item, x, scratch),
            (Input::Float(x), _) => float::item::<float::Decoded>(item, x, scratch),
        }
    }
}

/// Where the blocks of a step are in a stored row.
pub(super) struct Lanes {
    parts: Parts,
    bytes: usize,
    /// Lanes that have a block in the last step, if that is not a full one.
    pub(super) mask: [i32; 8],
}

impl Lanes {
    pub(super) fn new(parts: Parts, bytes: usize) -> Self {
        let has = |part| parts.block(part, parts.full).is_some();
        Self { parts, bytes, mask: std::array::from_fn(|part| -i32::from(has(part))) }
    }

    /// Offset of the block of each lane. A lane without one gets the row's first block: its product
    /// is masked out.
    #[inline(always)]
    pub(super) fn offsets(&self, step: usize) -> [usize; 8] {
        if step < self.parts.full {
            return self.parts.starts.map(|start| (start + step) * self.bytes);
        }
        std::array::from_fn(|part| {
            if self.mask[part] == 0 { 0 } else { (self.parts.starts[part] + step) * self.bytes }
        })
    }

    #[inline(always)]
    pub(super) fn steps(&self) -> usize {
        self.parts.steps
    }

    /// `next` where lanes have a block in this step, else `acc`.
    ///
    /// # Safety
    /// Needs AVX2.
    #[inline(always)]
    pub(super) unsafe fn keep(&self, step: usize, acc: __m256, next: __m256) -> __m256 {
        if step < self.parts.full {
            return next;
        }
        // SAFETY: the mask has 32 bytes.
        unsafe { _mm256_blendv_ps(acc, next, _mm256_loadu_ps(self.mask.as_ptr().cast())) }
    }
}

/// Bytes from what is read to what is asked for, at least.
const AHEAD: usize = 4096;

/// Asks for what will be read a while after step `step` of `row`. Steps read 8 places of a row in turn,
/// which the machine's own prefetching does not recognise as one stream; rows follow each other.
#[inline(always)]
pub(super) fn prefetch<const BYTES: usize>(row: *const u8, lanes: &Lanes, step: usize) {
    // A whole row or more: the last part of a row is read from its first step on.
    let ahead = AHEAD.max(lanes.parts.blocks * BYTES);
    let from = row.wrapping_add(ahead + step * 8 * BYTES);
    for line in 0..(8 * BYTES).div_ceil(64) {
        // SAFETY: a prefetch of any address is a hint and reads nothing; SSE is always there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(64 * line).cast()) };
    }
}

/// Asks for what will be read a while after a large block.
#[inline(always)]
pub(super) fn prefetch_block(block: *const u8, bytes: usize) {
    for line in 0..bytes.div_ceil(64) {
        // SAFETY: a prefetch of any address is a hint and reads nothing; SSE is always there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(AHEAD + 64 * line).cast()) };
    }
}

/// The f16 numbers at `offsets` of `row`, as f32.
///
/// # Safety
/// Needs AVX2 and F16C; two bytes at each offset must be readable.
#[inline(always)]
pub(super) unsafe fn scales(row: *const u8, offsets: [usize; 8]) -> __m256 {
    // SAFETY: as promised by the caller; f16 numbers in blocks need no alignment here.
    unsafe {
        let at = |lane: usize| row.add(offsets[lane]).cast::<i16>().read_unaligned();
        _mm256_cvtph_ps(_mm_set_epi16(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0)))
    }
}

/// The lanes added left to right.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn total(lanes: __m256) -> f32 {
    let mut parts = [0.0_f32; 8];
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_storeu_ps(parts.as_mut_ptr(), lanes) };
    // ORDER: parts left to right from +0.
    let mut total = 0.0;
    for part in parts {
        total += part;
    }
    total
}

/// The sum of the 8 lanes of each of 8 registers, as the 8 lanes of one.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
pub(super) unsafe fn add_across(v: &[__m256i; 8]) -> __m256i {
    // SAFETY: no memory is touched.
    unsafe {
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
        _mm256_add_epi32(
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        )
    }
}

/// Calls `$tile::<T>` for tokens `$place..` in tiles of 4, 2 and 1, until `$count`.
macro_rules! tiles {
    ($count:expr, |$place:ident| $tile:ident($($arg:expr),*)) => {{
        let mut $place = 0;
        while $place + 4 <= $count {
            $tile::<4, _>($($arg),*);
            $place += 4;
        }
        if $place + 2 <= $count {
            $tile::<2, _>($($arg),*);
            $place += 2;
        }
        if $place < $count {
            $tile::<1, _>($($arg),*);
        }
    }};
}
pub(super) use tiles;

/// Address of unit `index`, for aligned loads.
#[inline(always)]
pub(super) fn unit(units: *const Unit, index: usize) -> *const __m256i {
    units.wrapping_add(index).cast()
}
