//! Products of quantised rows with AVX2.
//!
//! Promises: the bytes of `reference::matmul`: the eight parts of a row are the eight lanes of a register, each
//! with its own chain of `fma`, added left to right at the end. A part that is shorter than another is
//! filled up with blocks of scale zero, which changes no bit: a chain starts at `+0` and so never is
//! `-0`.
//! Assumes the processor has the features that each function is compiled for, codes of activations from
//! -127 to 127 (their encoders promise it), and rows of whole blocks.

use std::arch::x86_64::*;

use super::activations::EncodedRow;
use super::lanes::{LANES, Lane, Parts};
use crate::format::iq2_grid;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 32 int8 a block.
    Q8_0,
    /// 256 from a grid.
    Iq2Xxs,
    /// 256 of 2 bits.
    Q2K,
    /// 256 of 4 bits.
    Q4K,
}

impl Format {
    const fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Iq2Xxs => 66,
            Self::Q2K => 84,
            Self::Q4K => 144,
        }
    }
}

/// A block of any format whose scales are zero.
static NOTHING: [u8; 144] = [0; 144];

/// Where the blocks of a row are.
struct Blocks<'a> {
    row: &'a [u8],
    size: usize,
    parts: &'a Parts,
    /// First block of each lane.
    starts: [*const u8; LANES],
}

/// Rows between the one in work and the one that is fetched.
const AHEAD: usize = 2;

impl Blocks<'_> {
    /// Asks for the bytes that the same step of a later row will read: eight places of a row at once are no
    /// pattern that the processor would see by itself.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fetch_ahead(&self, step: usize) {
        let bytes = LANES * self.size;
        let first = self.row.as_ptr().wrapping_add(AHEAD * self.row.len() + step * bytes);
        for offset in (0..bytes).step_by(64) {
            // A fetch ahead never faults, wherever it points.
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(offset).cast());
        }
    }

    /// The blocks of a row of this format.
    ///
    /// # Panics
    /// When the row is not as long as its parts.
    fn new<'a>(format: Format, row: &'a [u8], parts: &'a Parts) -> Blocks<'a> {
        let size = format.block_bytes();
        assert_eq!(row.len(), parts.count() * size, "bytes of a row");
        let starts = std::array::from_fn(|lane| row[parts.start(lane) * size..].as_ptr());
        Blocks { row, size, parts, starts }
    }

    /// The eight blocks of a step, one a lane: whole blocks of the format.
    #[inline(always)]
    fn at(&self, step: usize) -> [*const u8; LANES] {
        std::array::from_fn(|lane| {
            // A block of a part is inside the row, as `new` has checked.
            let block = self.starts[lane].wrapping_add(step * self.size);
            if step < self.parts.length(lane) { block } else { NOTHING.as_ptr() }
        })
    }
}

/// Room for the groups of an unpacked row of IQ2_XXS.
#[derive(Default)]
pub struct Scratch(Vec<Group>);

/// Magnitudes, signs (1 or -1) and factor of a group of 32 of IQ2_XXS.
#[derive(Clone, Copy)]
struct Group {
    magnitudes: __m256i,
    signs: __m256i,
    factor: __m256i,
}

/// What all groups of a block of IQ2_XXS share.
struct Iq2Block {
    block: *const u8,
    /// Four bytes of signs a group, 1 where the weight is negative.
    signs: [u32; 8],
    /// Factors of the groups as 16-bit lanes, in either half.
    factors: __m256i,
}

impl Iq2Block {
    /// # Safety
    /// `block` points to a whole block.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn new(block: *const u8) -> Self {
        // SAFETY: eight groups of eight bytes follow the scale of a block.
        let (low, high) = unsafe { (load(block.add(2)), load(block.add(34))) };
        // The second word of each group: four codes of seven signs, a factor of four bits.
        let words = _mm256_shuffle_ps::<0xdd>(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
        let words = _mm256_permute4x64_epi64::<0xd8>(_mm256_castps_si256(words));
        let mut signs = [0; 8];
        // SAFETY: `signs` is as long as the register.
        unsafe { _mm256_storeu_si256(signs.as_mut_ptr().cast(), iq2_signs(words)) };
        let factors = _mm256_srli_epi32::<28>(words);
        let factors = _mm256_add_epi32(_mm256_add_epi32(factors, factors), _mm256_set1_epi32(1));
        let factors = _mm256_permute4x64_epi64::<0x88>(_mm256_packs_epi32(factors, factors));
        Self { block, signs, factors }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn group(&self, group: usize) -> Group {
        let grid = |l: usize| {
            // SAFETY: eight groups of eight bytes follow the scale of a block, the first four of
            // each being indices.
            let index = unsafe { *self.block.add(2 + 8 * group + l) };
            i64::from_le_bytes(iq2_grid::row(index).map(|b| b as u8))
        };
        // Byte `i` gets the bits of its eight, then the one of its own.
        let spread = _mm256_set_epi64x(
            0x0303_0303_0303_0303,
            0x0202_0202_0202_0202,
            0x0101_0101_0101_0101,
            0,
        );
        let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let bits = _mm256_shuffle_epi8(_mm256_set1_epi32(self.signs[group] as i32), spread);
        let negative = _mm256_cmpeq_epi8(_mm256_and_si256(bits, own), own);
        let pick = _mm256_set1_epi16((2 * group | (2 * group + 1) << 8) as i16);
        Group {
            magnitudes: _mm256_set_epi64x(grid(3), grid(2), grid(1), grid(0)),
            signs: _mm256_or_si256(negative, _mm256_set1_epi8(1)),
            factor: _mm256_shuffle_epi8(self.factors, pick),
        }
    }
}

/// The sign bits of eight groups: each code of seven bits, and the eighth that makes their number even.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_signs(words: __m256i) -> __m256i {
    let code = |shifted, mask| _mm256_and_si256(shifted, _mm256_set1_epi32(mask));
    let low = _mm256_or_si256(code(words, 0x7f), code(_mm256_slli_epi32::<1>(words), 0x7f00));
    let high = _mm256_or_si256(
        code(_mm256_slli_epi32::<2>(words), 0x7f_0000),
        code(_mm256_slli_epi32::<3>(words), 0x7f00_0000),
    );
    let codes = _mm256_or_si256(low, high);
    // 0x80 for nibbles with an odd number of ones.
    let odd = _mm256_broadcastsi128_si256(_mm_set_epi8(
        0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0,
    ));
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_shuffle_epi8(odd, _mm256_and_si256(codes, nibble));
    let high = _mm256_srli_epi16::<4>(codes);
    let high = _mm256_shuffle_epi8(odd, _mm256_and_si256(high, nibble));
    _mm256_or_si256(codes, _mm256_xor_si256(low, high))
}

/// Bytes 32 from `values` on.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<T>(values: *const T) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe { _mm256_loadu_si256(values.cast()) }
}

/// The halves at `offset` of eight blocks, as floats.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales(blocks: &[*const u8; LANES], offset: usize) -> __m256 {
    // SAFETY: as the caller promises.
    let half = |lane: usize| unsafe { blocks[lane].add(offset).cast::<i16>().read_unaligned() };
    let halves =
        _mm_set_epi16(half(7), half(6), half(5), half(4), half(3), half(2), half(1), half(0));
    _mm256_cvtph_ps(halves)
}

/// Eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn floats(values: &Lane) -> __m256 {
    // SAFETY: `values` is as long as the register.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// The sum of each of eight registers, in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn reduce(v: [__m256i; LANES]) -> __m256 {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    let first = _mm256_permute2x128_si256::<0x20>(low, high);
    let second = _mm256_permute2x128_si256::<0x31>(low, high);
    _mm256_cvtepi32_ps(_mm256_add_epi32(first, second))
}

/// The lanes added left to right, from `+0`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn total(acc: __m256) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    // SAFETY: `lanes` is as long as the register.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), acc) };
    // ORDER: parts left to right.
    lanes.iter().fold(0.0, |total, part| total + part)
}

/// The products of a row of weights with rows `tokens` of the activations.
///
/// # Panics
/// When the row is not as long as the activations.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn products<'x>(
    format: Format,
    row: &[u8],
    parts: &Parts,
    tokens: impl ExactSizeIterator<Item = &'x EncodedRow>,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let blocks = Blocks::new(format, row, parts);
    let several = tokens.len() > 1;
    if several && format == Format::Iq2Xxs {
        unpack(&blocks, scratch);
    }
    for (x, out) in tokens.zip(out) {
        assert!(x.covers(parts), "codes of a row");
        // SAFETY: the lengths of the row and of the codes were checked above.
        *out = unsafe {
            match format {
                Format::Q8_0 => q8_0(&blocks, x),
                Format::Iq2Xxs if several => iq2_xxs_unpacked(&blocks, scratch, x),
                Format::Iq2Xxs => iq2_xxs(&blocks, x),
                Format::Q2K => q2_k(&blocks, x),
                Format::Q4K => q4_k(&blocks, x),
            }
        };
    }
}

/// # Safety
/// `x` covers the parts of `blocks`.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q8_0(blocks: &Blocks<'_>, x: &EncodedRow) -> f32 {
    let (mut quants, ones) = (x.quants.as_ptr(), _mm256_set1_epi16(1));
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x.scales.iter().enumerate() {
        blocks.fetch_ahead(step);
        let at = blocks.at(step);
        let mut sums = [_mm256_setzero_si256(); LANES];
        // SAFETY: blocks are whole, and `x` has eight blocks of codes a step.
        let weights = unsafe {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let (w, x) = (load(at[lane].add(2)), load(quants.add(32 * lane)));
                // The magnitude of -128 is 128, which is a byte without sign.
                let products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                *sum = _mm256_madd_epi16(products, ones);
            }
            quants = quants.add(32 * LANES);
            scales(&at, 0)
        };
        acc = _mm256_fmadd_ps(_mm256_mul_ps(weights, floats(x_scales)), reduce(sums), acc);
    }
    total(acc)
}

/// Adds the products of one group to the sum of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_group(sum: __m256i, group: &Group, x: __m256i) -> __m256i {
    let products = _mm256_maddubs_epi16(group.magnitudes, _mm256_sign_epi8(x, group.signs));
    _mm256_add_epi32(sum, _mm256_madd_epi16(products, group.factor))
}

/// `acc` with the products of a step of IQ2_XXS, which count in eighths.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_eighths(weights: __m256, x_scales: &Lane, sums: [__m256i; LANES], acc: __m256) -> __m256 {
    let scale = _mm256_mul_ps(weights, floats(x_scales));
    _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_set1_ps(0.125)), reduce(sums), acc)
}

/// # Safety
/// `x` covers the parts of `blocks`.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq2_xxs(blocks: &Blocks<'_>, x: &EncodedRow) -> f32 {
    let mut quants = x.quants.as_ptr();
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x.scales.iter().enumerate() {
        blocks.fetch_ahead(step);
        let at = blocks.at(step);
        let mut sums = [_mm256_setzero_si256(); LANES];
        // SAFETY: blocks are whole, and `x` has eight blocks of codes a step.
        let weights = unsafe {
            for (block, sum) in at.iter().zip(&mut sums) {
                let block = Iq2Block::new(*block);
                let mut acc = _mm256_setzero_si256();
                for group in 0..8 {
                    acc = add_group(acc, &block.group(group), load(quants.add(32 * group)));
                }
                *sum = acc;
                quants = quants.add(256);
            }
            scales(&at, 0)
        };
        acc = add_eighths(weights, x_scales, sums, acc);
    }
    total(acc)
}

/// Unpacks a row of IQ2_XXS, block after block of every step.
#[target_feature(enable = "avx2,fma,f16c")]
fn unpack(blocks: &Blocks<'_>, scratch: &mut Scratch) {
    scratch.0.clear();
    for step in 0..blocks.parts.steps {
        for block in blocks.at(step) {
            // SAFETY: blocks are whole.
            let block = unsafe { Iq2Block::new(block) };
            for group in 0..8 {
                scratch.0.push(block.group(group));
            }
        }
    }
}

/// # Safety
/// `x` covers the parts of `blocks`.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn iq2_xxs_unpacked(blocks: &Blocks<'_>, scratch: &Scratch, x: &EncodedRow) -> f32 {
    let mut quants = x.quants.as_ptr();
    let mut groups = scratch.0.chunks_exact(8);
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x.scales.iter().enumerate() {
        let mut sums = [_mm256_setzero_si256(); LANES];
        // SAFETY: blocks are whole, and `x` has eight blocks of codes a step.
        let weights = unsafe {
            for (sum, groups) in sums.iter_mut().zip(&mut groups) {
                let mut acc = _mm256_setzero_si256();
                for (index, group) in groups.iter().enumerate() {
                    acc = add_group(acc, group, load(quants.add(32 * index)));
                }
                *sum = acc;
                quants = quants.add(256);
            }
            scales(&blocks.at(step), 0)
        };
        acc = add_eighths(weights, x_scales, sums, acc);
    }
    total(acc)
}

/// One step of a format with minima.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn add_with_minima(
    weights: [__m256; 2],
    x_scales: &Lane,
    codes: [__m256i; LANES],
    minima: [__m256i; LANES],
    acc: __m256,
) -> __m256 {
    let x_scales = floats(x_scales);
    // ORDER: codes first, then minima.
    let acc = _mm256_fmadd_ps(_mm256_mul_ps(weights[0], x_scales), reduce(codes), acc);
    let scale = _mm256_mul_ps(weights[1], x_scales);
    _mm256_fmadd_ps(_mm256_xor_ps(scale, _mm256_set1_ps(-0.0)), reduce(minima), acc)
}

/// For each of 8 pairs of groups of 16: bytes that spread its two scales over a register of 16-bit lanes.
static SPREAD_16: [[u8; 32]; 8] = {
    let mut table = [[0x80; 32]; 8];
    let mut pair = 0;
    while pair < 8 {
        let mut i = 0;
        while i < 16 {
            table[pair][2 * i] = (2 * pair + i / 8) as u8;
            i += 1;
        }
        pair += 1;
    }
    table
};

/// # Safety
/// `x` covers the parts of `blocks`.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q2_k(blocks: &Blocks<'_>, x: &EncodedRow) -> f32 {
    let (mut quants, mut group_sums) = (x.quants.as_ptr(), x.sums.as_ptr());
    let four_bits = _mm_set1_epi8(15);
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x.scales.iter().enumerate() {
        blocks.fetch_ahead(step);
        let at = blocks.at(step);
        let mut codes = [_mm256_setzero_si256(); LANES];
        let mut minima = codes;
        // SAFETY: blocks are whole, and `x` has eight blocks of codes and of their sums a step.
        let weights = unsafe {
            for lane in 0..LANES {
                let packed: __m128i = _mm_loadu_si128(at[lane].cast());
                let group_scales = _mm256_broadcastsi128_si256(_mm_and_si128(packed, four_bits));
                codes[lane] = q2_k_codes(at[lane], quants, group_scales);
                let mins = _mm_and_si128(_mm_srli_epi16::<4>(packed), four_bits);
                minima[lane] = _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins), load(group_sums));
                (quants, group_sums) = (quants.add(256), group_sums.add(16));
            }
            [scales(&at, 80), scales(&at, 82)]
        };
        acc = add_with_minima(weights, x_scales, codes, minima, acc);
    }
    total(acc)
}

/// Scaled products of the codes of one block of Q2_K.
///
/// # Safety
/// `block` points to a whole block and `quants` to 256 codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q2_k_codes(block: *const u8, quants: *const i8, group_scales: __m256i) -> __m256i {
    let two_bits = _mm256_set1_epi8(3);
    let mut sum = _mm256_setzero_si256();
    for half in 0..2 {
        // SAFETY: as the caller promises.
        let mut plane = unsafe { load(block.add(16 + 32 * half)) };
        for quarter in 0..4 {
            let pair = 4 * half + quarter;
            // SAFETY: as the caller promises; a row of the table is 32 bytes.
            let (x, spread) =
                unsafe { (load(quants.add(32 * pair)), load(SPREAD_16[pair].as_ptr())) };
            let products = _mm256_maddubs_epi16(_mm256_and_si256(plane, two_bits), x);
            let scale = _mm256_shuffle_epi8(group_scales, spread);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, scale));
            plane = _mm256_srli_epi16::<2>(plane);
        }
    }
    sum
}

/// # Safety
/// `x` covers the parts of `blocks`.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_k(blocks: &Blocks<'_>, x: &EncodedRow) -> f32 {
    let (mut quants, mut group_sums) = (x.quants.as_ptr(), x.sums.as_ptr());
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x.scales.iter().enumerate() {
        blocks.fetch_ahead(step);
        let at = blocks.at(step);
        let mut codes = [_mm256_setzero_si256(); LANES];
        let mut minima = codes;
        // SAFETY: blocks are whole, and `x` has eight blocks of codes and of their sums a step.
        let weights = unsafe {
            for lane in 0..LANES {
                let packed = at[lane].add(4).cast::<[u8; 12]>().read();
                let (group_scales, mins) = q4_k_scales(&packed);
                codes[lane] = q4_k_codes(at[lane], quants, &group_scales);
                let mins = _mm256_cvtepu8_epi16(_mm_loadu_si128(mins.as_ptr().cast()));
                minima[lane] = _mm256_madd_epi16(mins, load(group_sums));
                (quants, group_sums) = (quants.add(256), group_sums.add(16));
            }
            [scales(&at, 0), scales(&at, 2)]
        };
        acc = add_with_minima(weights, x_scales, codes, minima, acc);
    }
    total(acc)
}

/// Scaled products of the codes of one block of Q4_K.
///
/// # Safety
/// `block` points to a whole block and `quants` to 256 codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn q4_k_codes(block: *const u8, quants: *const i8, group_scales: &[u8; 8]) -> __m256i {
    let four_bits = _mm256_set1_epi8(15);
    let mut sum = _mm256_setzero_si256();
    for pair in 0..4 {
        // SAFETY: as the caller promises.
        let (plane, x) = unsafe {
            let x = quants.add(64 * pair);
            (load(block.add(16 + 32 * pair)), [load(x), load(x.add(32))])
        };
        for (nibble, x) in [plane, _mm256_srli_epi16::<4>(plane)].into_iter().zip(x).enumerate() {
            let (plane, x) = x;
            let products = _mm256_maddubs_epi16(_mm256_and_si256(plane, four_bits), x);
            let scale = _mm256_set1_epi16(i16::from(group_scales[2 * pair + nibble]));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, scale));
        }
    }
    sum
}

/// Scales of the eight groups of a Q4_K block, six bits each, and its minima, each twice: once for either
/// sum of 16 codes.
#[inline]
fn q4_k_scales(s: &[u8; 12]) -> ([u8; 8], [u8; 16]) {
    let (mut scales, mut mins) = ([0; 8], [0; 16]);
    for group in 0..4 {
        scales[group] = s[group] & 63;
        scales[group + 4] = (s[group + 8] & 15) | ((s[group] >> 6) << 4);
        mins[2 * group..][..2].fill(s[group + 4] & 63);
        mins[2 * group + 8..][..2].fill((s[group + 8] >> 4) | ((s[group + 4] >> 6) << 4));
    }
    (scales, mins)
}

/// Turns eight rows of halves into lanes.
///
/// # Panics
/// When a row is shorter than the lanes.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn turn_f16(rows: &[&[u8]; LANES], lanes: &mut [Lane]) {
    assert!(rows.iter().all(|row| row.len() == 2 * lanes.len()), "rows as long as the lanes");
    let (blocks, rest) = lanes.as_chunks_mut::<LANES>();
    for (block, out) in blocks.iter_mut().enumerate() {
        // SAFETY: every row has 16 bytes for every block of lanes.
        let values = rows.map(|row| unsafe {
            _mm256_cvtph_ps(_mm_loadu_si128(row.as_ptr().add(2 * LANES * block).cast()))
        });
        for (out, lane) in out.iter_mut().zip(transpose(values)) {
            // SAFETY: a lane is as long as the register.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), lane) };
        }
    }
    let start = blocks.len() * LANES;
    for (index, out) in rest.iter_mut().enumerate() {
        for (out, row) in out.iter_mut().zip(rows) {
            let at = 2 * (start + index);
            *out = half::f16::from_le_bytes([row[at], row[at + 1]]).to_f32();
        }
    }
}

/// Eight rows of eight as eight columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose(r: [__m256; 8]) -> [__m256; 8] {
    let pairs: [[__m256; 2]; 4] = std::array::from_fn(|i| {
        [_mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1])]
    });
    let fours: [[__m256; 4]; 2] = std::array::from_fn(|i| {
        let (a, b) = (pairs[2 * i], pairs[2 * i + 1]);
        [
            _mm256_shuffle_ps::<0x44>(a[0], b[0]),
            _mm256_shuffle_ps::<0xee>(a[0], b[0]),
            _mm256_shuffle_ps::<0x44>(a[1], b[1]),
            _mm256_shuffle_ps::<0xee>(a[1], b[1]),
        ]
    });
    std::array::from_fn(|column| {
        let (low, high) = (fours[0][column % 4], fours[1][column % 4]);
        if column < 4 {
            _mm256_permute2f128_ps::<0x20>(low, high)
        } else {
            _mm256_permute2f128_ps::<0x31>(low, high)
        }
    })
}
