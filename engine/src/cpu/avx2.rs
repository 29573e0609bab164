//! Products of quantised rows with AVX2.
//!
//! Promises: the bytes of `reference::matmul`: the eight parts of a row are the eight lanes of a register, each
//! with its own chain of `fma`, added left to right at the end. A part that is shorter than another is
//! filled up with blocks of zeros at scale zero, which changes no bit: a chain starts at `+0` and so
//! never is `-0`.
//! Assumes the processor has the features that each function is compiled for, codes of activations from
//! -127 to 127 (their encoders promise it), and rows of whole blocks.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_srli_epi16,
    _mm256_abs_epi8, _mm256_add_epi32, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi16, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_hadd_epi32,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
    _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sign_epi8,
    _mm256_srli_epi16, _mm256_storeu_ps, _mm256_xor_ps,
};

use super::activations::Encoded;
use super::lanes::{LANES, Lane, Parts};
use crate::format::iq2_grid;
use crate::format::quant::K_BLOCK;

/// One row of weights, unpacked as far as that pays when several tokens meet it.
pub struct Row<'a> {
    bytes: &'a [u8],
    parts: Parts,
    scratch: &'a mut Scratch,
}

/// Room for an unpacked row.
#[derive(Default)]
pub struct Scratch {
    /// Scales by step, eight lanes each.
    scales: Vec<[f32; LANES]>,
    /// Scales of minima by step.
    minima: Vec<[f32; LANES]>,
    /// IQ2_XXS: magnitudes and signs, 32 a group, and factors, one a group.
    magnitudes: Vec<[i8; 32]>,
    signs: Vec<[i8; 32]>,
    factors: Vec<i16>,
}

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

    /// Offset of the scale in a block.
    const fn scale_at(self) -> usize {
        match self {
            Self::Q8_0 | Self::Iq2Xxs | Self::Q4K => 0,
            Self::Q2K => 80,
        }
    }
}

impl<'a> Row<'a> {
    /// Unpacks a row of weights.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn new(format: Format, bytes: &'a [u8], parts: Parts, scratch: &'a mut Scratch) -> Self {
        let size = format.block_bytes();
        scratch.scales.clear();
        scratch.minima.clear();
        let with_minima = matches!(format, Format::Q2K | Format::Q4K);
        for step in 0..parts.steps {
            let (mut scales, mut minima) = ([0_u16; LANES], [0_u16; LANES]);
            for lane in 0..LANES {
                let Some(block) = parts.block(step, lane) else { continue };
                let at = block * size + format.scale_at();
                scales[lane] = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
                if with_minima {
                    minima[lane] = u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]);
                }
            }
            scratch.scales.push(halves(&scales));
            if with_minima {
                scratch.minima.push(halves(&minima));
            }
        }
        if format == Format::Iq2Xxs {
            unpack_iq2_xxs(bytes, scratch);
        }
        Self { bytes, parts, scratch }
    }
}

/// Eight halves as floats.
#[target_feature(enable = "avx2,fma,f16c")]
fn halves(bits: &[u16; LANES]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    // SAFETY: both arrays are as long as the registers.
    unsafe {
        let value = _mm256_cvtph_ps(_mm_loadu_si128(bits.as_ptr().cast()));
        _mm256_storeu_ps(out.as_mut_ptr(), value);
    }
    out
}

/// Signs of seven bits and the eighth that makes the number of negative ones even: 1 or -1.
static SIGNS: [[i8; 8]; 128] = {
    let mut table = [[1; 8]; 128];
    let mut code = 0;
    while code < 128 {
        let bits = code as u32 | ((code as u32).count_ones() & 1) << 7;
        let mut j = 0;
        while j < 8 {
            if bits >> j & 1 == 1 {
                table[code][j] = -1;
            }
            j += 1;
        }
        code += 1;
    }
    table
};

fn unpack_iq2_xxs(bytes: &[u8], scratch: &mut Scratch) {
    scratch.magnitudes.clear();
    scratch.signs.clear();
    scratch.factors.clear();
    for block in bytes.chunks_exact(66) {
        for group in block[2..].chunks_exact(8) {
            let word = u32::from_le_bytes([group[4], group[5], group[6], group[7]]);
            let (mut magnitudes, mut signs) = ([0; 32], [0; 32]);
            for l in 0..4 {
                magnitudes[8 * l..8 * l + 8].copy_from_slice(iq2_grid::row(group[l]));
                let code = (word >> (7 * l)) as usize & 127;
                signs[8 * l..8 * l + 8].copy_from_slice(&SIGNS[code]);
            }
            scratch.magnitudes.push(magnitudes);
            scratch.signs.push(signs);
            scratch.factors.push(2 * (word >> 28) as i16 + 1);
        }
    }
}

/// 32 bytes at `offset`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load<T>(values: &[T], offset: usize) -> __m256i {
    const { assert!(size_of::<T>() == 1) };
    let values = &values[offset..offset + 32];
    // SAFETY: `values` is 32 bytes.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

/// 16 bytes at `offset`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_half(values: &[u8], offset: usize) -> __m128i {
    let values = &values[offset..offset + 16];
    // SAFETY: `values` is 16 bytes.
    unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
}

/// Eight floats.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn floats(values: &[f32; LANES]) -> __m256 {
    // SAFETY: `values` is as long as the register.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

/// The sum of each of eight registers, in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn reduce(v: &[__m256i; LANES]) -> __m256i {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    let first = _mm256_permute2x128_si256::<0x20>(low, high);
    let second = _mm256_permute2x128_si256::<0x31>(low, high);
    _mm256_add_epi32(first, second)
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

/// Products of signed bytes in pairs of pairs: eight sums of four. `a` may be -128.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn signed_products(a: __m256i, x: __m256i) -> __m256i {
    let products = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(x, a));
    _mm256_madd_epi16(products, _mm256_set1_epi16(1))
}

/// The product of a row with row `token` of the activations.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn product(format: Format, row: &Row<'_>, x: &Encoded, token: usize) -> f32 {
    match format {
        Format::Q8_0 => q8_0(row, x, token),
        Format::Iq2Xxs => iq2_xxs(row, x, token),
        Format::Q2K => q2_k(row, x, token),
        Format::Q4K => q4_k(row, x, token),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0(row: &Row<'_>, x: &Encoded, token: usize) -> f32 {
    let (quants, x_scales) = x.row(token);
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x_scales.iter().enumerate() {
        let mut sums = [_mm256_setzero_si256(); LANES];
        for (lane, sum) in sums.iter_mut().enumerate() {
            let Some(block) = row.parts.block(step, lane) else { continue };
            *sum = signed_products(load(row.bytes, block * 34 + 2), load(quants, block * 32));
        }
        let scale = _mm256_mul_ps(floats(&row.scratch.scales[step]), floats(x_scales));
        acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(reduce(&sums)), acc);
    }
    total(acc)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn iq2_xxs(row: &Row<'_>, x: &Encoded, token: usize) -> f32 {
    const GROUPS: usize = K_BLOCK / 32;
    let (quants, x_scales) = x.row(token);
    let scratch = &row.scratch;
    let mut acc = _mm256_setzero_ps();
    for (step, x_scales) in x_scales.iter().enumerate() {
        let mut sums = [_mm256_setzero_si256(); LANES];
        for (lane, sum) in sums.iter_mut().enumerate() {
            let Some(block) = row.parts.block(step, lane) else { continue };
            let groups = block * GROUPS..(block + 1) * GROUPS;
            let magnitudes = &scratch.magnitudes[groups.clone()];
            let signs = &scratch.signs[groups.clone()];
            let factors = &scratch.factors[groups];
            let quants = &quants[block * K_BLOCK..(block + 1) * K_BLOCK];
            for group in 0..GROUPS {
                let x = _mm256_sign_epi8(load(quants, 32 * group), load(&signs[group], 0));
                let products = _mm256_maddubs_epi16(load(&magnitudes[group], 0), x);
                let factor = _mm256_set1_epi16(factors[group]);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(products, factor));
            }
        }
        let scale = _mm256_mul_ps(floats(&scratch.scales[step]), floats(x_scales));
        // The integer counts in eighths.
        let scale = _mm256_mul_ps(scale, _mm256_set1_ps(0.125));
        acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(reduce(&sums)), acc);
    }
    total(acc)
}

/// One step of a format with minima: codes first, then minima.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn with_minima(
    row: &Row<'_>,
    step: usize,
    x_scales: &[f32; LANES],
    codes: &[__m256i; LANES],
    minima: &[__m256i; LANES],
    acc: __m256,
) -> __m256 {
    let x_scales = floats(x_scales);
    let scale = _mm256_mul_ps(floats(&row.scratch.scales[step]), x_scales);
    // ORDER: codes first, then minima.
    let acc = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(reduce(codes)), acc);
    let scale = _mm256_mul_ps(floats(&row.scratch.minima[step]), x_scales);
    let scale = _mm256_xor_ps(scale, _mm256_set1_ps(-0.0));
    _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(reduce(minima)), acc)
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

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q2_k(row: &Row<'_>, x: &Encoded, token: usize) -> f32 {
    let (quants, x_scales) = x.row(token);
    let group_sums = x.sums(token);
    let mut acc = _mm256_setzero_ps();
    let (two_bits, four_bits) = (_mm256_set1_epi8(3), _mm_set1_epi8(15));
    for (step, x_scales) in x_scales.iter().enumerate() {
        let mut codes = [_mm256_setzero_si256(); LANES];
        let mut minima = codes;
        for lane in 0..LANES {
            let Some(block) = row.parts.block(step, lane) else { continue };
            let bytes = &row.bytes[block * 84..(block + 1) * 84];
            let quants = &quants[block * K_BLOCK..(block + 1) * K_BLOCK];
            let packed = load_half(bytes, 0);
            let scales = _mm256_broadcastsi128_si256(_mm_and_si128(packed, four_bits));
            let mut sum = _mm256_setzero_si256();
            for pair in 0..8 {
                let plane = load(bytes, 16 + 32 * (pair / 4));
                let plane = shifted(plane, 2 * (pair % 4));
                let products = _mm256_maddubs_epi16(
                    _mm256_and_si256(plane, two_bits),
                    load(quants, 32 * pair),
                );
                let scale = _mm256_shuffle_epi8(scales, load(&SPREAD_16[pair], 0));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, scale));
            }
            codes[lane] = sum;
            let mins = _mm_and_si128(_mm_srli_epi16::<4>(packed), four_bits);
            minima[lane] =
                _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins), sums_of(group_sums, block));
        }
        acc = with_minima(row, step, x_scales, &codes, &minima, acc);
    }
    total(acc)
}

/// 16-bit lanes shifted right by 0, 2, 4 or 6.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn shifted(value: __m256i, by: usize) -> __m256i {
    match by {
        0 => value,
        2 => _mm256_srli_epi16::<2>(value),
        4 => _mm256_srli_epi16::<4>(value),
        _ => _mm256_srli_epi16::<6>(value),
    }
}

/// The 16 sums of 16 codes of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums_of(sums: &[i16], block: usize) -> __m256i {
    let sums = &sums[16 * block..16 * block + 16];
    // SAFETY: `sums` is 32 bytes.
    unsafe { _mm256_loadu_si256(sums.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q4_k(row: &Row<'_>, x: &Encoded, token: usize) -> f32 {
    let (quants, x_scales) = x.row(token);
    let group_sums = x.sums(token);
    let mut acc = _mm256_setzero_ps();
    let four_bits = _mm256_set1_epi8(15);
    for (step, x_scales) in x_scales.iter().enumerate() {
        let mut codes = [_mm256_setzero_si256(); LANES];
        let mut minima = codes;
        for lane in 0..LANES {
            let Some(block) = row.parts.block(step, lane) else { continue };
            let bytes = &row.bytes[block * 144..(block + 1) * 144];
            let quants = &quants[block * K_BLOCK..(block + 1) * K_BLOCK];
            let (scales, mins) = q4_k_scales(&bytes[4..16]);
            let mut sum = _mm256_setzero_si256();
            for group in 0..8 {
                let plane = shifted(load(bytes, 16 + 32 * (group / 2)), 4 * (group % 2));
                let products = _mm256_maddubs_epi16(
                    _mm256_and_si256(plane, four_bits),
                    load(quants, 32 * group),
                );
                let scale = _mm256_set1_epi16(i16::from(scales[group]));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, scale));
            }
            codes[lane] = sum;
            let mut doubled = [0_u8; 16];
            for group in 0..8 {
                (doubled[2 * group], doubled[2 * group + 1]) = (mins[group], mins[group]);
            }
            let mins = _mm256_cvtepu8_epi16(load_half(&doubled, 0));
            minima[lane] = _mm256_madd_epi16(mins, sums_of(group_sums, block));
        }
        acc = with_minima(row, step, x_scales, &codes, &minima, acc);
    }
    total(acc)
}

/// Scales and minima of the eight groups of a Q4_K block, six bits each.
fn q4_k_scales(s: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for group in 0..4 {
        (scales[group], mins[group]) = (s[group] & 63, s[group + 4] & 63);
        scales[group + 4] = (s[group + 8] & 15) | ((s[group] >> 6) << 4);
        mins[group + 4] = (s[group + 8] >> 4) | ((s[group + 4] >> 6) << 4);
    }
    (scales, mins)
}

/// Writes a row of halves into one lane.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn turn_f16(bytes: &[u8], lane: usize, lanes: &mut [Lane]) {
    let (chunks, rest) = bytes.as_chunks::<16>();
    let (eights, last) = lanes.as_chunks_mut::<8>();
    for (chunk, lanes) in chunks.iter().zip(eights) {
        let bits = std::array::from_fn(|i| u16::from_le_bytes([chunk[2 * i], chunk[2 * i + 1]]));
        for (lanes, value) in lanes.iter_mut().zip(halves(&bits)) {
            lanes[lane] = value;
        }
    }
    for (lanes, b) in last.iter_mut().zip(rest.as_chunks::<2>().0) {
        lanes[lane] = half::f16::from_le_bytes(*b).to_f32();
    }
}
