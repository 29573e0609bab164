//! Rows of 256-weight blocks with AVX2.
//!
//! Promises: the chains of `reference::matmul` for a [`Format`]. A block's groups of 32 are multiplied into
//! one register; the registers of the 8 blocks of a step become the 8 lanes of one.
//! Assumes codes of activations in -127..=127, as the encoder makes them (codes are scaled so that the
//! largest element becomes -127 and no other exceeds it in magnitude).
//! Leaves the unpacking of codes and scales to the formats.

use std::arch::x86_64::*;

use super::activations::{Encoded, K_SCALES, K_SUMS, K_UNITS, Unit};
use super::avx2::{Lanes, add_across, prefetch_block, scales, tiles, total, unit};
use super::matmul::{Item, Scratch};

/// 32 weights: magnitudes of codes, their signs (-1 or 1 a byte), and scales as 16-bit integers beside
/// the sums of two products that they multiply.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) codes: __m256i,
    pub(super) signs: __m256i,
    pub(super) scales: __m256i,
}

/// A format of 256-weight blocks.
pub(super) trait Format {
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether codes have signs.
    const SIGNED: bool;
    /// Offset of the scale.
    const D: usize;
    /// Offset of the scale of the minima, in formats that have minima.
    const D_MIN: Option<usize>;
    /// What the integers count in, as a factor that is a power of two.
    const UNIT: f32;
    /// What the groups of a block have in common.
    type Block;

    /// # Safety
    /// Needs AVX2; a whole block is at `block`.
    unsafe fn open(block: *const u8) -> Self::Block;
    /// # Safety
    /// Needs AVX2; `block` is what was opened, and `group` is below 8.
    unsafe fn group(open: &Self::Block, block: *const u8, group: usize) -> Group;
    /// Minima of the 16 groups of 16, as 16-bit integers.
    ///
    /// # Safety
    /// Needs AVX2.
    unsafe fn minima(open: &Self::Block) -> __m256i;
}

/// Where the groups of a row come from.
trait Weights {
    /// The format.
    type Format: Format;
    /// One block.
    type Block;
    /// # Safety
    /// Needs AVX2; the row has this step.
    unsafe fn open(&self, step: usize, lane: usize, offsets: &[usize; 8]) -> Self::Block;
    /// # Safety
    /// Needs AVX2; `group` is below 8.
    unsafe fn group(block: &Self::Block, group: usize) -> Group;
    /// # Safety
    /// Needs AVX2.
    unsafe fn minima(block: &Self::Block) -> __m256i;
    /// Scales of the codes and of the minima.
    ///
    /// # Safety
    /// Needs AVX2 and F16C; the row has this step.
    unsafe fn scales(&self, step: usize, offsets: &[usize; 8]) -> (__m256, __m256);
}

/// A row as stored.
struct Stored<F>(*const u8, std::marker::PhantomData<F>);

impl<F: Format> Weights for Stored<F> {
    type Format = F;
    type Block = (F::Block, *const u8);

    #[inline(always)]
    unsafe fn open(&self, _: usize, lane: usize, offsets: &[usize; 8]) -> Self::Block {
        // SAFETY: offsets are those of whole blocks of the row.
        unsafe {
            let block = self.0.add(offsets[lane]);
            prefetch_block(block, F::BYTES);
            (F::open(block), block)
        }
    }

    #[inline(always)]
    unsafe fn group(block: &Self::Block, group: usize) -> Group {
        // SAFETY: as promised by the caller.
        unsafe { F::group(&block.0, block.1, group) }
    }

    #[inline(always)]
    unsafe fn minima(block: &Self::Block) -> __m256i {
        // SAFETY: as promised by the caller.
        unsafe { F::minima(&block.0) }
    }

    #[inline(always)]
    unsafe fn scales(&self, _: usize, offsets: &[usize; 8]) -> (__m256, __m256) {
        // SAFETY: both scales lie inside a block.
        unsafe {
            let d = scales(self.0.add(F::D), *offsets);
            (d, F::D_MIN.map_or(d, |d_min| scales(self.0.add(d_min), *offsets)))
        }
    }
}

/// Units of an unpacked group, of a block and of a step.
const GROUP: usize = 3;
const BLOCK: usize = 8 * GROUP + 1;
const STEP: usize = 8 * BLOCK + 2;

/// A row that was unpacked before.
struct Unpacked<F>(*const Unit, std::marker::PhantomData<F>);

impl<F: Format> Weights for Unpacked<F> {
    type Format = F;
    type Block = *const Unit;

    #[inline(always)]
    unsafe fn open(&self, step: usize, lane: usize, _: &[usize; 8]) -> Self::Block {
        self.0.wrapping_add(step * STEP + lane * BLOCK)
    }

    #[inline(always)]
    unsafe fn group(block: &Self::Block, group: usize) -> Group {
        // SAFETY: a block has 8 groups of 3 units.
        unsafe {
            let load = |index| _mm256_load_si256(unit(*block, group * GROUP + index));
            let codes = load(0);
            Group { codes, signs: if F::SIGNED { load(1) } else { codes }, scales: load(2) }
        }
    }

    #[inline(always)]
    unsafe fn minima(block: &Self::Block) -> __m256i {
        // SAFETY: a block ends with a unit of minima.
        unsafe { _mm256_load_si256(unit(*block, BLOCK - 1)) }
    }

    #[inline(always)]
    unsafe fn scales(&self, step: usize, _: &[usize; 8]) -> (__m256, __m256) {
        // SAFETY: a step ends with two units of scales.
        unsafe {
            let load = |index| _mm256_load_ps(unit(self.0, step * STEP + index).cast());
            (load(STEP - 2), load(STEP - 1))
        }
    }
}

/// Products of one row of weights with `T` rows of activations.
///
/// # Safety
/// Needs AVX2, FMA and F16C; weights and activations have the steps of `lanes`.
#[inline(always)]
unsafe fn dots<const T: usize, W: Weights>(
    weights: &W,
    lanes: &Lanes,
    x: [*const Unit; T],
) -> [f32; T] {
    let minimal = W::Format::D_MIN.is_some();
    // SAFETY: loads are of the units of a step that both sides have.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); T];
        let mut codes = [[_mm256_setzero_si256(); 8]; T];
        let mut minima = [[_mm256_setzero_si256(); 8]; T];
        for step in 0..lanes.steps() {
            let offsets = lanes.offsets(step);
            let x: [*const Unit; T] = std::array::from_fn(|t| x[t].wrapping_add(step * K_UNITS));
            for lane in 0..8 {
                let block = weights.open(step, lane, &offsets);
                let mut sums = [_mm256_setzero_si256(); T];
                for index in 0..8 {
                    let group = W::group(&block, index);
                    for t in 0..T {
                        let mut x = _mm256_load_si256(unit(x[t], 8 * lane + index));
                        if W::Format::SIGNED {
                            x = _mm256_sign_epi8(x, group.signs);
                        }
                        let pairs = _mm256_maddubs_epi16(group.codes, x);
                        sums[t] = _mm256_add_epi32(sums[t], _mm256_madd_epi16(pairs, group.scales));
                    }
                }
                for t in 0..T {
                    codes[t][lane] = sums[t];
                    if minimal {
                        let x = _mm256_load_si256(unit(x[t], K_SUMS + lane));
                        minima[t][lane] = _mm256_madd_epi16(W::minima(&block), x);
                    }
                }
            }
            let (d, d_min) = weights.scales(step, &offsets);
            for t in 0..T {
                let x = _mm256_load_ps(unit(x[t], K_SCALES).cast());
                let mut scale = _mm256_mul_ps(d, x);
                if W::Format::UNIT != 1.0 {
                    scale = _mm256_mul_ps(scale, _mm256_set1_ps(W::Format::UNIT));
                }
                // ORDER: one chain a lane, blocks of a part left to right; codes first, then minima.
                let dot = _mm256_cvtepi32_ps(add_across(&codes[t]));
                let mut next = _mm256_fmadd_ps(scale, dot, acc[t]);
                if minimal {
                    let dot = _mm256_cvtepi32_ps(add_across(&minima[t]));
                    next = _mm256_fnmadd_ps(_mm256_mul_ps(d_min, x), dot, next);
                }
                acc[t] = lanes.keep(step, acc[t], next);
            }
        }
        let mut totals = [0.0; T];
        for t in 0..T {
            totals[t] = total(acc[t]);
        }
        totals
    }
}

/// Products of row `feature` with activation rows number `place..place + T`.
///
/// # Safety
/// As for [`dots`]; `feature` is one of the item's.
#[inline(always)]
unsafe fn tile<const T: usize, W: Weights>(
    weights: &W,
    lanes: &Lanes,
    item: &Item<'_>,
    x: &Encoded,
    feature: usize,
    place: usize,
) {
    let rows = std::array::from_fn(|t| x.row(item.job.tokens.at(place + t)).as_ptr());
    // SAFETY: rows of `x` have the steps of `lanes`; the rest as promised.
    unsafe {
        for (t, value) in dots::<T, W>(weights, lanes, rows).into_iter().enumerate() {
            item.set(place + t, feature, value);
        }
    }
}

/// Unpacks a row.
///
/// # Safety
/// Needs AVX2 and F16C; `units` has all steps of `lanes`, and so has the row.
#[inline(always)]
unsafe fn unpack<F: Format>(stored: &Stored<F>, lanes: &Lanes, units: &mut [Unit]) {
    for (step, units) in units.chunks_exact_mut(STEP).enumerate() {
        let offsets = lanes.offsets(step);
        let to = units.as_mut_ptr().cast::<__m256i>();
        // SAFETY: a chunk has the units of one step, and stores go to these.
        unsafe {
            for lane in 0..8 {
                let block = stored.open(step, lane, &offsets);
                let to = to.add(lane * BLOCK);
                for index in 0..8 {
                    let group = Stored::<F>::group(&block, index);
                    let to = to.add(index * GROUP);
                    _mm256_store_si256(to, group.codes);
                    _mm256_store_si256(to.add(1), group.signs);
                    _mm256_store_si256(to.add(2), group.scales);
                }
                _mm256_store_si256(to.add(BLOCK - 1), Stored::<F>::minima(&block));
            }
            let (d, d_min) = stored.scales(step, &offsets);
            _mm256_store_ps(to.add(STEP - 2).cast(), d);
            _mm256_store_ps(to.add(STEP - 1).cast(), d_min);
        }
    }
}

/// Runs an item.
///
/// # Safety
/// Needs AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn item<F: Format>(item: &Item<'_>, x: &Encoded, scratch: &mut Scratch) {
    let lanes = Lanes::new(x.parts, F::BYTES);
    let count = item.job.tokens.len();
    let units = scratch.units(lanes.steps() * STEP);
    for feature in item.features.clone() {
        let row = item.job.weights.row(feature);
        assert_eq!(row.len(), x.parts.blocks * F::BYTES, "bytes of a row");
        let stored = Stored::<F>(row.as_ptr(), std::marker::PhantomData);
        // SAFETY: the row has the blocks that `lanes` was made for, and so has each row of `x`.
        unsafe {
            if count <= 2 {
                tiles!(count, |place| tile(&stored, &lanes, item, x, feature, place));
                continue;
            }
            unpack(&stored, &lanes, units);
            let unpacked = Unpacked::<F>(units.as_ptr(), std::marker::PhantomData);
            tiles!(count, |place| tile(&unpacked, &lanes, item, x, feature, place));
        }
    }
}
