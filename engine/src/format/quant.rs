//! Block formats: what stored blocks decode to, what activations are encoded to.
//!
//! Promises: [`decode_row`] gives the value of every weight with each product rounded to f32, in the
//! order that ggml's own decoders use, so the bits agree with theirs; the `*_dot` functions give the
//! exact integers of a block product. Encoders say how ties go. Formulas: section 6 and 4.2 of the
//! GGUF block layouts as published with ggml and ds4.
//! Assumes slices of whole blocks (checked when a tensor is loaded).
//! Leaves the sum over blocks to `reference::order`.

use half::{bf16, f16};

use super::iq2_grid;
use crate::reference::order::with_fma;
use crate::tensor::DType;

/// Elements of a Q8_0 block and of an activation block beside it.
pub const Q8_BLOCK: usize = 32;
/// Elements of a K-quant block and of an activation block beside it.
pub const K_BLOCK: usize = 256;

#[inline(always)]
fn f16_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

/// Decodes whole blocks of `dtype` to f32.
///
/// # Panics
/// When `out` is not as long as the blocks say, or for I32, which holds no weights.
pub fn decode_row(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(dtype.row_bytes(out.len()), Some(bytes.len()), "row length of {}", dtype.name());
    match dtype {
        DType::F32 => {
            each_block::<4, 1>(bytes, out, |b, out| {
                out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            });
        }
        DType::F16 => each_block::<2, 1>(bytes, out, |b, out| out[0] = f16_at(b, 0)),
        DType::Bf16 => each_block::<2, 1>(bytes, out, |b, out| {
            out[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32();
        }),
        DType::Q8_0 => each_block::<34, 32>(bytes, out, decode_q8_0),
        DType::Q2K => each_block::<84, 256>(bytes, out, decode_q2_k),
        DType::Q4K => each_block::<144, 256>(bytes, out, decode_q4_k),
        DType::Iq2Xxs => each_block::<66, 256>(bytes, out, decode_iq2_xxs),
        DType::I32 => panic!("I32 tensors hold indices, not weights"),
    }
}

/// Runs `decode` on each block of `BYTES` bytes and its `ELEMENTS` values.
#[inline(always)]
fn each_block<const BYTES: usize, const ELEMENTS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8], &mut [f32]),
) {
    for (block, out) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut(ELEMENTS)) {
        decode(block, out);
    }
}

fn decode_q8_0(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(*q as i8) * d;
    }
}

fn decode_q2_k(block: &[u8], out: &mut [f32]) {
    let view = Q2K::new(block);
    for (group, out) in out.chunks_exact_mut(16).enumerate() {
        let (scale, min) = view.scale_min(group);
        let (scale, min) = (view.d * f32::from(scale), view.d_min * f32::from(min));
        for (l, out) in out.iter_mut().enumerate() {
            *out = scale * f32::from(view.quant(16 * group + l)) - min;
        }
    }
}

fn decode_q4_k(block: &[u8], out: &mut [f32]) {
    let view = Q4K::new(block);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = view.scale_min(group);
        let (scale, min) = (view.d * f32::from(scale), view.d_min * f32::from(min));
        for (l, out) in out.iter_mut().enumerate() {
            *out = scale * f32::from(view.quant(32 * group + l)) - min;
        }
    }
}

fn decode_iq2_xxs(block: &[u8], out: &mut [f32]) {
    let d = f16_at(block, 0);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (values, scale) = iq2_group(block, group);
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        for (out, value) in out.iter_mut().zip(values) {
            *out = scale * f32::from(value);
        }
    }
}

/// The signed grid values of a group of 32 weights and its 4-bit scale.
#[inline(always)]
fn iq2_group(block: &[u8], group: usize) -> ([i8; 32], u8) {
    let bytes = &block[2 + 8 * group..10 + 8 * group];
    let word = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let mut values = [0; 32];
    for l in 0..4 {
        let low = word.wrapping_shr(7 * l) & 127;
        // The eighth sign makes the number of negative weights even.
        let signs = low | ((low.count_ones() & 1) << 7);
        let (start, magnitudes) = (8 * l as usize, iq2_grid::row(bytes[l as usize]));
        for j in 0..8 {
            // 1 or -1; magnitudes are at most 43, so nothing wraps.
            let sign = 1 - 2 * (signs.wrapping_shr(j) & 1) as i8;
            values[start + j as usize] = magnitudes[j as usize].wrapping_mul(sign);
        }
    }
    (values, (word >> 28) as u8)
}

/// Fields of a Q2_K block.
struct Q2K<'a> {
    scales: &'a [u8],
    quants: &'a [u8],
    d: f32,
    d_min: f32,
}

impl<'a> Q2K<'a> {
    #[inline(always)]
    fn new(block: &'a [u8]) -> Self {
        Self {
            scales: &block[..16],
            quants: &block[16..80],
            d: f16_at(block, 80),
            d_min: f16_at(block, 82),
        }
    }

    /// Scale and minimum of a group of 16.
    #[inline(always)]
    fn scale_min(&self, group: usize) -> (u8, u8) {
        (self.scales[group] & 15, self.scales[group] >> 4)
    }

    /// The 2-bit code of element `i`.
    #[inline(always)]
    fn quant(&self, i: usize) -> u8 {
        (self.quants[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3
    }
}

/// Fields of a Q4_K block.
struct Q4K<'a> {
    scales: &'a [u8],
    quants: &'a [u8],
    d: f32,
    d_min: f32,
}

impl<'a> Q4K<'a> {
    #[inline(always)]
    fn new(block: &'a [u8]) -> Self {
        Self {
            scales: &block[4..16],
            quants: &block[16..144],
            d: f16_at(block, 0),
            d_min: f16_at(block, 2),
        }
    }

    /// Scale and minimum of a group of 32.
    #[inline(always)]
    fn scale_min(&self, group: usize) -> (u8, u8) {
        let s = self.scales;
        if group < 4 {
            return (s[group] & 63, s[group + 4] & 63);
        }
        (
            (s[group + 4] & 15) | ((s[group - 4] >> 6) << 4),
            (s[group + 4] >> 4) | ((s[group] >> 6) << 4),
        )
    }

    /// The 4-bit code of element `i`.
    #[inline(always)]
    fn quant(&self, i: usize) -> u8 {
        let byte = self.quants[i / 64 * 32 + i % 32];
        if (i / 32).is_multiple_of(2) { byte & 15 } else { byte >> 4 }
    }
}

/// A row of activations in blocks of 32 int8 with one f32 scale each.
pub struct Q8Row {
    /// Codes, 32 a block.
    pub quants: Vec<i8>,
    /// Scales, one a block.
    pub scales: Vec<f32>,
}

impl Q8Row {
    /// Encodes activations: scale `amax/127` kept as f32, codes rounded half to even, so that no
    /// code is below -127.
    #[must_use]
    pub fn encode(x: &[f32]) -> Self {
        let mut row = Self { quants: vec![0; x.len()], scales: vec![0.0; x.len() / Q8_BLOCK] };
        encode_q8_blocks(x, &mut row.quants, &mut row.scales);
        row
    }
}

with_fma! {
    fn encode_q8_blocks(x: &[f32], quants: &mut [i8], scales: &mut [f32]) {
        let blocks = x.chunks_exact(Q8_BLOCK).zip(quants.chunks_exact_mut(Q8_BLOCK));
        for ((x, quants), out) in blocks.zip(scales) {
            let amax = abs_max(x);
            let mut scale = amax / 127.0;
            let mut inverse = 1.0 / scale;
            if !inverse.is_finite() {
                // A block of zeros, or so near that its inverse scale overflows, is a block of zeros.
                (scale, inverse) = (0.0, 0.0);
            }
            *out = scale;
            for (quant, x) in quants.iter_mut().zip(x) {
                *quant = (x * inverse).round_ties_even().clamp(-128.0, 127.0) as i8;
            }
        }
    }
}

/// A row of activations in blocks of 256 int8 with one f32 scale and sums of 16 codes each (Q8_K).
pub struct Q8KRow {
    /// Codes, 256 a block.
    pub quants: Vec<i8>,
    /// Scales, one a block; negative where the largest element is positive.
    pub scales: Vec<f32>,
    /// Sums of 16 codes, 16 a block.
    pub sums: Vec<i16>,
}

impl Q8KRow {
    /// Encodes activations: the first element of largest magnitude becomes -127, codes are rounded
    /// half to even, the scale is the reciprocal of the rounded inverse scale. No code is below -127.
    #[must_use]
    pub fn encode(x: &[f32]) -> Self {
        let mut row = Self {
            quants: vec![0; x.len()],
            scales: vec![0.0; x.len() / K_BLOCK],
            sums: vec![0; x.len() / 16],
        };
        encode_q8_k_blocks(x, &mut row.quants, &mut row.scales);
        for (sum, group) in row.sums.iter_mut().zip(row.quants.chunks_exact(16)) {
            *sum = group.iter().fold(0_i16, |sum, q| sum + i16::from(*q));
        }
        row
    }
}

with_fma! {
    fn encode_q8_k_blocks(x: &[f32], quants: &mut [i8], scales: &mut [f32]) {
        let blocks = x.chunks_exact(K_BLOCK).zip(quants.chunks_exact_mut(K_BLOCK));
        for ((x, quants), out) in blocks.zip(scales) {
            let amax = abs_max(x);
            let largest = x.iter().copied().find(|x| x.abs() == amax).unwrap_or(0.0);
            let mut inverse = -127.0 / largest;
            let mut scale = 1.0 / inverse;
            if !inverse.is_finite() {
                (scale, inverse) = (0.0, 0.0);
            }
            *out = scale;
            for (quant, x) in quants.iter_mut().zip(x) {
                *quant = (inverse * x).round_ties_even().min(127.0) as i8;
            }
        }
    }
}

/// Encodes weights as stored Q8_0: scale `amax/127` rounded to f16, codes from the unrounded scale,
/// ties away from zero.
///
/// # Panics
/// When `x` is not whole blocks of 32.
#[must_use]
pub fn encode_q8_0(x: &[f32]) -> Vec<u8> {
    assert!(x.len().is_multiple_of(Q8_BLOCK), "Q8_0 rows are whole blocks of 32");
    let mut out = Vec::with_capacity(x.len() / Q8_BLOCK * 34);
    for block in x.chunks_exact(Q8_BLOCK) {
        let scale = abs_max(block) / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        out.extend(f16::from_f32(scale).to_le_bytes());
        out.extend(block.iter().map(|x| (x * inverse).round() as i8 as u8));
    }
    out
}

#[inline(always)]
fn abs_max(x: &[f32]) -> f32 {
    // Eight maxima side by side, which a maximum does not mind.
    let mut max = [0.0_f32; 8];
    let (chunks, rest) = x.as_chunks::<8>();
    for chunk in chunks {
        for (max, x) in max.iter_mut().zip(chunk) {
            *max = max.max(x.abs());
        }
    }
    rest.iter().chain(&max).fold(0.0, |max: f32, x| max.max(x.abs()))
}

/// The sum of products of at most 256 codes, which is far below 2^31; wrapping only spares the check.
#[inline(always)]
fn products(weights: impl Iterator<Item = i8>, x: &[i8]) -> i32 {
    weights
        .zip(x)
        .fold(0_i32, |sum, (w, x)| sum.wrapping_add(i32::from(w).wrapping_mul(i32::from(*x))))
}

/// Exact products of one Q8_0 block: the scale of the weights and the integer.
#[inline(always)]
#[must_use]
pub fn q8_0_dot(block: &[u8], quants: &[i8]) -> (f32, i32) {
    let weights = block[2..34].iter().map(|w| *w as i8);
    (f16_at(block, 0), products(weights, quants))
}

/// Exact products of one IQ2_XXS block with Q8_K codes: the scale of the weights and the integer,
/// which counts in eighths.
#[inline(always)]
#[must_use]
pub fn iq2_xxs_dot(block: &[u8], quants: &[i8]) -> (f32, i32) {
    let mut sum = 0_i32;
    for (group, x) in quants.chunks_exact(32).enumerate() {
        let (values, scale) = iq2_group(block, group);
        let dot = products(values.into_iter(), x);
        sum += (2 * i32::from(scale) + 1) * dot;
    }
    (f16_at(block, 0), sum)
}

/// Exact products of one K-quant block: scale and minimum of the weights, integer of the codes and
/// integer of the minima.
#[derive(Clone, Copy, Debug)]
pub struct KDot {
    /// Scale of the codes.
    pub d: f32,
    /// Scale of the minima.
    pub d_min: f32,
    /// Sum of scale times code times activation.
    pub codes: i32,
    /// Sum of minimum times activation.
    pub minima: i32,
}

/// Exact products of one Q2_K block with Q8_K codes and their sums of 16.
#[inline(always)]
#[must_use]
pub fn q2_k_dot(block: &[u8], quants: &[i8], sums: &[i16]) -> KDot {
    let view = Q2K::new(block);
    let (mut codes, mut minima) = (0_i32, 0_i32);
    for (group, x) in quants.chunks_exact(16).enumerate() {
        let (scale, min) = view.scale_min(group);
        let dot = products((0..16).map(|l| view.quant(16 * group + l) as i8), x);
        codes += i32::from(scale) * dot;
        minima += i32::from(min) * i32::from(sums[group]);
    }
    KDot { d: view.d, d_min: view.d_min, codes, minima }
}

/// Exact products of one Q4_K block with Q8_K codes and their sums of 16.
#[inline(always)]
#[must_use]
pub fn q4_k_dot(block: &[u8], quants: &[i8], sums: &[i16]) -> KDot {
    let view = Q4K::new(block);
    let (mut codes, mut minima) = (0_i32, 0_i32);
    for (group, x) in quants.chunks_exact(32).enumerate() {
        let (scale, min) = view.scale_min(group);
        let dot = products((0..32).map(|l| view.quant(32 * group + l) as i8), x);
        codes += i32::from(scale) * dot;
        minima += i32::from(min) * (i32::from(sums[2 * group]) + i32::from(sums[2 * group + 1]));
    }
    KDot { d: view.d, d_min: view.d_min, codes, minima }
}
