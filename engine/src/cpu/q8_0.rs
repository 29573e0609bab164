//! Q8_0 rows with AVX2.
//!
//! Promises: the chain of `reference::matmul` for Q8_0. The 8 blocks of a step are transposed by words of
//! 4 codes, so that every lane adds up one block and no sum crosses lanes.
//! Assumes codes of activations in -127..=127, which is what the encoder makes (its largest element
//! becomes 127 or -127): `vpsignb` cannot negate -128. Codes of weights may be anything: 128 * 127 * 2
//! fits the 16 bits of `vpmaddubsw`.

use std::arch::x86_64::*;

use super::activations::{Encoded, Q8_UNITS, Unit};
use super::avx2::{Lanes, prefetch, scales, tiles, total, unit};
use super::matmul::{Item, Scratch};

const BYTES: usize = 34;

/// Weights of one step: words of 4 codes of each lane, and scales.
trait Weights {
    type Step;
    /// # Safety
    /// Needs AVX2 and F16C; `step` is one of the row's.
    unsafe fn step(&self, step: usize) -> Self::Step;
    /// # Safety
    /// Needs AVX2; `j` is below 8.
    unsafe fn words(step: &Self::Step, j: usize) -> __m256i;
    /// # Safety
    /// Needs AVX2.
    unsafe fn scales(step: &Self::Step) -> __m256;
}

/// A row as stored.
struct Stored<'a> {
    row: *const u8,
    lanes: &'a Lanes,
}

impl Weights for Stored<'_> {
    type Step = ([__m256i; 8], __m256);

    #[inline(always)]
    unsafe fn step(&self, step: usize) -> Self::Step {
        let offsets = self.lanes.offsets(step);
        prefetch::<BYTES>(self.row, self.lanes, step);
        // SAFETY: every offset is that of a whole block of the row: 2 bytes of scale, 32 codes.
        unsafe {
            let half = |first: usize, at: usize| {
                let load = |lane: usize| _mm_loadu_si128(self.row.add(offsets[lane] + at).cast());
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(first)), load(first + 4))
            };
            let (a, b) = (
                transpose([half(0, 2), half(1, 2), half(2, 2), half(3, 2)]),
                transpose([half(0, 18), half(1, 18), half(2, 18), half(3, 18)]),
            );
            let words = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]];
            (words, scales(self.row, offsets))
        }
    }

    #[inline(always)]
    unsafe fn words(step: &Self::Step, j: usize) -> __m256i {
        step.0[j]
    }

    #[inline(always)]
    unsafe fn scales(step: &Self::Step) -> __m256 {
        step.1
    }
}

/// In each half, words `i` of registers 0 to 3 become register `i`.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn transpose(v: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: no memory is touched.
    unsafe {
        let (a, b) = (_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
        let (c, d) = (_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
        [
            _mm256_unpacklo_epi64(a, c),
            _mm256_unpackhi_epi64(a, c),
            _mm256_unpacklo_epi64(b, d),
            _mm256_unpackhi_epi64(b, d),
        ]
    }
}

/// A row that was transposed before, laid out as activations are.
struct Transposed(*const Unit);

impl Weights for Transposed {
    type Step = *const Unit;

    #[inline(always)]
    unsafe fn step(&self, step: usize) -> Self::Step {
        self.0.wrapping_add(step * Q8_UNITS)
    }

    #[inline(always)]
    unsafe fn words(step: &Self::Step, j: usize) -> __m256i {
        // SAFETY: a step has 8 units of words.
        unsafe { _mm256_load_si256(unit(*step, j)) }
    }

    #[inline(always)]
    unsafe fn scales(step: &Self::Step) -> __m256 {
        // SAFETY: the ninth unit of a step has the scales.
        unsafe { _mm256_load_ps(unit(*step, Q8_UNITS - 1).cast()) }
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
    // SAFETY: loads are of the units of a step that both sides have.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let mut acc = [_mm256_setzero_ps(); T];
        for step in 0..lanes.steps() {
            let weights = weights.step(step);
            let mut dots = [_mm256_setzero_si256(); T];
            for j in 0..8 {
                let words = W::words(&weights, j);
                let magnitudes = _mm256_abs_epi8(words);
                for t in 0..T {
                    let x = _mm256_load_si256(unit(x[t], step * Q8_UNITS + j));
                    let pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(x, words));
                    dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(pairs, ones));
                }
            }
            let d = W::scales(&weights);
            for t in 0..T {
                let x = _mm256_load_ps(unit(x[t], step * Q8_UNITS + Q8_UNITS - 1).cast());
                let dot = _mm256_cvtepi32_ps(dots[t]);
                // ORDER: one chain a lane, blocks of a part left to right.
                let next = _mm256_fmadd_ps(_mm256_mul_ps(d, x), dot, acc[t]);
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

/// Runs an item.
///
/// # Safety
/// Needs AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn item(item: &Item<'_>, x: &Encoded, scratch: &mut Scratch) {
    let lanes = Lanes::new(x.parts, BYTES);
    let count = item.job.tokens.len();
    let units = scratch.units(lanes.steps() * Q8_UNITS);
    for feature in item.features.clone() {
        let row = item.job.weights.row(feature);
        assert_eq!(row.len(), x.parts.blocks * BYTES, "bytes of a row");
        let stored = Stored { row: row.as_ptr(), lanes: &lanes };
        // SAFETY: the row has the blocks that `lanes` was made for, and so has each row of `x`.
        unsafe {
            if count <= 2 {
                tiles!(count, |place| tile(&stored, &lanes, item, x, feature, place));
                continue;
            }
            for (step, units) in units.chunks_exact_mut(Q8_UNITS).enumerate() {
                let (words, scales) = stored.step(step);
                let to = units.as_mut_ptr().cast::<__m256i>();
                for (j, words) in words.into_iter().enumerate() {
                    _mm256_store_si256(to.add(j), words);
                }
                _mm256_store_ps(to.add(Q8_UNITS - 1).cast(), scales);
            }
            let transposed = Transposed(units.as_ptr());
            tiles!(count, |place| tile(&transposed, &lanes, item, x, feature, place));
        }
    }
}
