//! IQ2_XXS blocks with AVX2.
//!
//! Promises: the groups of `format::quant::iq2_xxs_dot`: grid magnitudes, signs, and `2 * scale + 1`.
//! The 32 sign bytes of a block are completed at once, their parity from two tables of nibbles.

use std::arch::x86_64::*;

use super::k_row::{Format, Group};
use crate::format::iq2_grid;

/// Codes of 8 groups, each with signs and scales in the same place of two more arrays.
pub(super) struct Block {
    /// Four sign bytes a group.
    signs: [u32; 8],
    /// The odd factor of each group, twice.
    scales: [u32; 8],
}

pub(super) struct Iq2Xxs;

/// Bit 7 set for nibbles with an odd number of bits.
const ODD: [i8; 16] = [0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0];

/// Where the words of group `g` are after `vshufps` of two registers has put the odd words together.
const PLACE: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

impl Format for Iq2Xxs {
    const BYTES: usize = 66;
    const SIGNED: bool = true;
    const D: usize = 0;
    const D_MIN: Option<usize> = None;
    const UNIT: f32 = 0.125;
    type Block = Block;

    #[inline(always)]
    unsafe fn open(block: *const u8) -> Block {
        let mut open = Block { signs: [0; 8], scales: [0; 8] };
        // SAFETY: a block has 66 bytes, the last 64 being groups of 8; the arrays have 32 bytes each.
        unsafe {
            let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(
                _mm256_loadu_ps(block.add(2).cast()),
                _mm256_loadu_ps(block.add(34).cast()),
            ));
            let field =
                |shifted: __m256i, mask: i32| _mm256_and_si256(shifted, _mm256_set1_epi32(mask));
            let seven = _mm256_or_si256(
                _mm256_or_si256(field(words, 0x7f), field(_mm256_slli_epi32::<1>(words), 0x7f00)),
                _mm256_or_si256(
                    field(_mm256_slli_epi32::<2>(words), 0x7f_0000),
                    field(_mm256_slli_epi32::<3>(words), 0x7f00_0000),
                ),
            );
            let odd = _mm256_broadcastsi128_si256(_mm_loadu_si128(ODD.as_ptr().cast()));
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_shuffle_epi8(odd, _mm256_and_si256(seven, nibble));
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(seven), nibble);
            let parity = _mm256_xor_si256(low, _mm256_shuffle_epi8(odd, high));
            let signs = _mm256_or_si256(seven, parity);
            // 2 * scale + 1 in both halves of a word.
            let scale = _mm256_srli_epi32::<28>(words);
            let factor = _mm256_or_si256(_mm256_add_epi32(scale, scale), _mm256_set1_epi32(1));
            let factors = _mm256_or_si256(factor, _mm256_slli_epi32::<16>(factor));
            _mm256_storeu_si256(open.signs.as_mut_ptr().cast(), signs);
            _mm256_storeu_si256(open.scales.as_mut_ptr().cast(), factors);
        }
        open
    }

    #[inline(always)]
    unsafe fn group(open: &Block, block: *const u8, group: usize) -> Group {
        // SAFETY: grid rows have 8 bytes; the four indices of a group lie inside the block.
        unsafe {
            let indices = block.add(2 + 8 * group).cast::<u32>().read_unaligned();
            let row = |l: usize| {
                let index = indices.to_le_bytes()[l];
                iq2_grid::row(index).as_ptr().cast::<i64>().read_unaligned()
            };
            let codes = _mm256_set_epi64x(row(3), row(2), row(1), row(0));
            let spread = _mm256_setr_epi64x(
                0,
                0x0101_0101_0101_0101,
                0x0202_0202_0202_0202,
                0x0303_0303_0303_0303,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let signs = _mm256_set1_epi32(open.signs[PLACE[group]] as i32);
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(signs, spread), bit);
            let negative = _mm256_cmpeq_epi8(bits, bit);
            Group {
                codes,
                signs: _mm256_or_si256(negative, _mm256_set1_epi8(1)),
                scales: _mm256_set1_epi32(open.scales[PLACE[group]] as i32),
            }
        }
    }

    #[inline(always)]
    unsafe fn minima(_: &Block) -> __m256i {
        // SAFETY: no memory is touched.
        unsafe { _mm256_setzero_si256() }
    }
}
