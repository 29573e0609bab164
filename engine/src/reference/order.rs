//! The order of operations: sums, rounding points and elementary functions, and nothing else.
//!
//! Promises: every float reduction of the engine is one of the functions below, so its order is
//! written down once. All of it is IEEE binary32 `+ - * / sqrt fma` with round-to-nearest-even,
//! subnormals kept; nothing depends on the number of rows in a call, on threads or on the machine.
//! Assumes lengths were checked when the model was loaded. Leaves the meaning of an operation to the
//! file of its family.
//!
//! # The contract
//!
//! * **Float rows** (F32, F16 and BF16 weights, norms, hyper-connections, attention scores): cut into
//!   segments of [`SEGMENT`] elements; inside a segment one chain of `fma` from `+0`; the segments'
//!   results are added left to right from `+0`.
//! * **Indexer scores**: the same with segments of [`FP4_BLOCK`] elements. On rows rounded to FP4 a
//!   segment is then exact, so a kernel may use integers for it.
//! * **Quantised rows**: inside a block the product is an integer and exact. A row of `n` blocks is
//!   cut into [`QUANT_SEGMENTS`] contiguous parts, part `s` being blocks `s*n/8 .. (s+1)*n/8`
//!   (some are empty in short rows); one chain of `fma(scale, integer, acc)` from `+0` inside a
//!   part; the parts' results are added left to right from `+0`.
//! * **Attention**: the maximum is exact in any order. Weights and weighted rows are summed over
//!   chunks of [`KEY_CHUNK`] keys (see `attention`), sequentially inside a chunk from `+0`, the
//!   chunks' results left to right, the denominator starting from the sink's term.
//! * **Everything else** (Sinkhorn, stream mixes, softmax pools, expert slots) is sequential in index
//!   order.
//!
//! Why these: 8 parts a row are 8 lanes of a warp or one AVX register, each reading contiguous
//! blocks; an activation row shared by several tokens changes nothing in a chain, so one token and
//! many have the same bits by construction; integer tensor cores deliver exactly one block product.

#[allow(missing_docs)]
pub mod elementary;

pub use elementary::{exp, log1p, sigmoid, silu, softplus};

use std::ops::Range;

/// Version of this contract. Raised when a bit of any result changes, with a `Numerics` line in the
/// changelog and goldens accepted anew.
pub const CONTRACT: u32 = 1;

/// Elements of one segment of a float row.
pub const SEGMENT: usize = 128;
/// Elements of one segment of an indexer score: one FP4 block.
pub const FP4_BLOCK: usize = 32;
/// Parts of a quantised row.
pub const QUANT_SEGMENTS: usize = 8;
/// Keys of one chunk of an attention sum.
pub const KEY_CHUNK: usize = 64;

/// `a*b + c`, rounded once.
#[inline(always)]
#[must_use]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Compiles a function twice: plainly, and for machines with fused multiply-add and 256-bit integers, and
/// picks at run time. The operations and their order are the same: only the library call behind
/// `mul_add` goes away and exact integer sums become wider.
macro_rules! with_fma {
    ($(#[$doc:meta])* $visibility:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        $visibility fn $name($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "fma,avx2")]
                fn fused($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") {
                    // SAFETY: the two features that `fused` is compiled for were detected above.
                    return unsafe { fused($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use with_fma;

/// Sum of products in segments of `SEGMENT` elements.
#[inline(always)]
fn dot_segmented<const SEGMENT: usize>(weights: &[f32], x: &[f32]) -> f32 {
    assert_eq!(weights.len(), x.len(), "rows of a dot product");
    let mut total = 0.0_f32;
    let pairs = weights.chunks_exact(2 * SEGMENT).zip(x.chunks_exact(2 * SEGMENT));
    for (weights, x) in pairs {
        // Two segments at a time: their chains do not meet, so this changes speed only.
        let (w, x) = (weights.split_at(SEGMENT), x.split_at(SEGMENT));
        let (mut first, mut second) = (0.0_f32, 0.0_f32);
        for i in 0..SEGMENT {
            first = fma(w.0[i], x.0[i], first);
            second = fma(w.1[i], x.1[i], second);
        }
        // ORDER: segments left to right, elements of a segment left to right.
        total += first;
        total += second;
    }
    let rest = weights.len() / (2 * SEGMENT) * (2 * SEGMENT);
    for (weights, x) in weights[rest..].chunks(SEGMENT).zip(x[rest..].chunks(SEGMENT)) {
        let mut acc = 0.0_f32;
        for (w, x) in weights.iter().zip(x) {
            acc = fma(*w, *x, acc);
        }
        total += acc;
    }
    total
}

with_fma! {
    /// Sum of products of two float rows.
    #[must_use]
    pub fn dot(weights: &[f32], x: &[f32]) -> f32 {
        dot_segmented::<SEGMENT>(weights, x)
    }
}

with_fma! {
    /// Sum of products of an indexer query and an indexer row.
    #[must_use]
    pub fn dot_fp4(query: &[f32], row: &[f32]) -> f32 {
        dot_segmented::<FP4_BLOCK>(query, row)
    }
}

with_fma! {
    /// `acc[i] = fma(scale, x[i], acc[i])`: one term of many sums, side by side.
    pub fn accumulate(acc: &mut [f32], scale: f32, x: &[f32]) {
        debug_assert_eq!(acc.len(), x.len());
        for (acc, x) in acc.iter_mut().zip(x) {
            *acc = fma(scale, *x, *acc);
        }
    }
}

/// Sum of squares of a float row.
#[must_use]
pub fn sum_squares(x: &[f32]) -> f32 {
    dot(x, x)
}

/// Blocks of part `segment` of a quantised row of `n_blocks`.
#[must_use]
pub fn quant_segment(segment: usize, n_blocks: usize) -> Range<usize> {
    segment * n_blocks / QUANT_SEGMENTS..(segment + 1) * n_blocks / QUANT_SEGMENTS
}

/// The sum over `n_blocks` blocks of a quantised row: the expression adds block `$block` to the chain
/// `$acc`. A macro, so that the expression is compiled with the features of the function around it.
macro_rules! sum_blocks {
    ($n_blocks:expr, |$block:ident, $acc:ident| $step:expr) => {{
        // ORDER: parts left to right, blocks of a part left to right.
        let mut total = 0.0_f32;
        for segment in 0..$crate::reference::order::QUANT_SEGMENTS {
            let mut $acc = 0.0_f32;
            for $block in $crate::reference::order::quant_segment(segment, $n_blocks) {
                $acc = $step;
            }
            total += $acc;
        }
        total
    }};
}
pub(crate) use sum_blocks;

/// `2^exponent` for exponents of normal and subnormal floats.
#[must_use]
pub fn power_of_two(exponent: i32) -> f32 {
    match exponent {
        128.. => f32::INFINITY,
        -126..128 => f32::from_bits(((exponent + 127) as u32) << 23),
        -149..-126 => f32::from_bits(1 << (exponent + 149)),
        _ => 0.0,
    }
}

/// The smallest `e` with `x <= 2^e`, for positive finite `x`, from the exponent bits.
#[must_use]
pub fn ceil_log2(x: f32) -> i32 {
    let bits = x.to_bits();
    let (exponent, mantissa) = ((bits >> 23) as i32, bits & 0x007f_ffff);
    if exponent == 0 {
        // Subnormal: x = mantissa * 2^-149.
        let top = 31 - mantissa.leading_zeros() as i32;
        return top - 149 + i32::from(!mantissa.is_power_of_two());
    }
    exponent - 127 + i32::from(mantissa != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_quantised_row_cover_it_once_in_order() {
        for n_blocks in 0..200 {
            let mut next = 0;
            for segment in 0..QUANT_SEGMENTS {
                let range = quant_segment(segment, n_blocks);
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert_eq!(next, n_blocks);
        }
    }

    #[test]
    fn exponents_round_up_and_invert() {
        for exponent in -149..128 {
            let x = power_of_two(exponent);
            assert_eq!(ceil_log2(x), exponent, "2^{exponent}");
            if exponent > -149 {
                assert_eq!(ceil_log2(x.next_up()), exponent + 1, "above 2^{exponent}");
            }
        }
        assert_eq!(power_of_two(-150), 0.0);
        assert_eq!(power_of_two(128), f32::INFINITY);
    }

    #[test]
    fn a_dot_adds_segments_left_to_right() {
        // 128 elements whose chain loses the small terms, then 128 whose chain keeps them.
        let mut weights = vec![1.0_f32; 256];
        weights[0] = 16_777_216.0;
        let x = vec![1.0_f32; 256];
        let (mut first, mut second) = (0.0_f32, 0.0_f32);
        for i in 0..128 {
            first = weights[i].mul_add(x[i], first);
            second = weights[128 + i].mul_add(x[128 + i], second);
        }
        assert_eq!(first, 16_777_216.0);
        assert_eq!(dot(&weights, &x), first + second);
        assert_ne!(dot(&weights, &x), first);
    }

    #[test]
    fn every_length_has_the_bits_of_the_order_as_it_is_written() {
        let weights: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37 - 185.0) * 1.000_1).collect();
        let x: Vec<f32> = (0..1000).map(|i| 1.0 / (i as f32 + 0.3)).collect();
        for length in 0..1000 {
            let mut total = 0.0_f32;
            for start in (0..length).step_by(SEGMENT) {
                let mut acc = 0.0_f32;
                for i in start..length.min(start + SEGMENT) {
                    acc = weights[i].mul_add(x[i], acc);
                }
                total += acc;
            }
            let ours = dot(&weights[..length], &x[..length]);
            assert_eq!(ours.to_bits(), total.to_bits(), "{length} elements");
        }
    }
}
