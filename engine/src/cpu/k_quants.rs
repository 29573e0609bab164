//! Q2_K and Q4_K blocks with AVX2.
//!
//! Promises: the groups of `format::quant::{q2_k_dot, q4_k_dot}`: codes, scales and minima of 16 or 32.

use std::arch::x86_64::*;

use super::k_row::{Format, Group};

/// Scales of a block, a byte each, in both halves; minima of 16 as 16-bit integers.
pub(super) struct Block {
    scales: __m256i,
    minima: __m256i,
}

/// Takes scale `low` to the 16-bit integers of the low half and scale `high` to those of the high half.
///
/// # Safety
/// Needs AVX2.
#[inline(always)]
unsafe fn spread(scales: __m256i, low: usize, high: usize) -> __m256i {
    // SAFETY: no memory is touched. An index with bit 7 set gives zero.
    unsafe {
        let both = |index: usize| _mm_set1_epi16(0x8000_u16 as i16 | index as i16);
        _mm256_shuffle_epi8(scales, _mm256_set_m128i(both(high), both(low)))
    }
}

pub(super) struct Q2K;

impl Format for Q2K {
    const BYTES: usize = 84;
    const SIGNED: bool = false;
    const D: usize = 80;
    const D_MIN: Option<usize> = Some(82);
    const UNIT: f32 = 1.0;
    type Block = Block;

    #[inline(always)]
    unsafe fn open(block: *const u8) -> Block {
        // SAFETY: a block starts with 16 bytes of scales and minima.
        unsafe {
            let bytes = _mm_loadu_si128(block.cast());
            let nibble = _mm_set1_epi8(15);
            let minima = _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble);
            Block {
                scales: _mm256_broadcastsi128_si256(_mm_and_si128(bytes, nibble)),
                minima: _mm256_cvtepu8_epi16(minima),
            }
        }
    }

    #[inline(always)]
    unsafe fn group(open: &Block, block: *const u8, group: usize) -> Group {
        // SAFETY: 64 bytes of codes follow the 16 of scales; each half serves 4 groups.
        unsafe {
            let bytes = _mm256_loadu_si256(block.add(16 + 32 * (group / 4)).cast());
            let shift = _mm256_set1_epi32(2 * (group as i32 % 4));
            let codes = _mm256_and_si256(_mm256_srlv_epi32(bytes, shift), _mm256_set1_epi8(3));
            Group { codes, signs: codes, scales: spread(open.scales, 2 * group, 2 * group + 1) }
        }
    }

    #[inline(always)]
    unsafe fn minima(open: &Block) -> __m256i {
        open.minima
    }
}

pub(super) struct Q4K;

impl Format for Q4K {
    const BYTES: usize = 144;
    const SIGNED: bool = false;
    const D: usize = 0;
    const D_MIN: Option<usize> = Some(2);
    const UNIT: f32 = 1.0;
    type Block = Block;

    #[inline(always)]
    unsafe fn open(block: *const u8) -> Block {
        // SAFETY: 12 bytes of scales and minima follow the two numbers of 2 bytes.
        unsafe {
            let word = |index: usize| block.add(4 + 4 * index).cast::<u32>().read_unaligned();
            let (a, b, c) = (word(0), word(1), word(2));
            // Groups 0 to 3 have their 6 bits in one byte; those of 4 to 7 come from two.
            let top = |word: u32| ((word >> 6) & 0x0303_0303) << 4;
            let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | top(a)];
            let minima = [b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | top(b)];
            let bytes = |words: [u32; 2]| {
                _mm_cvtsi64_si128((u64::from(words[0]) | (u64::from(words[1]) << 32)) as i64)
            };
            let minima = bytes(minima);
            Block {
                scales: _mm256_broadcastsi128_si256(bytes(scales)),
                // A minimum of 32 stands beside two sums of 16.
                minima: _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(minima, minima)),
            }
        }
    }

    #[inline(always)]
    unsafe fn group(open: &Block, block: *const u8, group: usize) -> Group {
        // SAFETY: 128 bytes of codes start at byte 16; each 32 serve two groups.
        unsafe {
            let bytes = _mm256_loadu_si256(block.add(16 + 32 * (group / 2)).cast());
            let shift = _mm256_set1_epi32(4 * (group as i32 % 2));
            let codes = _mm256_and_si256(_mm256_srlv_epi32(bytes, shift), _mm256_set1_epi8(15));
            Group { codes, signs: codes, scales: spread(open.scales, group, group) }
        }
    }

    #[inline(always)]
    unsafe fn minima(open: &Block) -> __m256i {
        open.minima
    }
}
