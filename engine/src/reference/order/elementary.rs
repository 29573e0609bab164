//! `exp`, `log1p` and what is built on them, in f32 arithmetic that every backend can repeat.
//!
//! **Promises.** Each function is a fixed sequence of f32 `+ - * /`, `fma` (`f32::mul_add`, one rounding),
//! comparisons, and integer operations on bit patterns; no table, no f64, no platform function.
//! Transcribed line by line (`__fadd_rn`, `__fmul_rn`, `__fdiv_rn`, `__fmaf_rn`, contraction off,
//! subnormals kept) it gives the same bits on a GPU. Every function is monotone wherever the real
//! function is, across all internal seams, and exact at zero and at the infinities. A NaN comes
//! back with the bits it came with.
//!
//! Largest error over *all* f32 inputs, infinities included, against f64 (`libm`), in units of the
//! last place of the exact value (2^-149 at the bottom), and whether any pair of neighbours is out
//! of order:
//!
//! | function   | ulp    | at input    | bits          | out of order |
//! |------------|--------|-------------|---------------|--------------|
//! | `exp`      | 0.7645 | -87.71553   | `0xc2af_6e5a` | none         |
//! | `log1p`    | 0.8309 | 0.41089574  | `0x3ed2_60ed` | none         |
//! | `sigmoid`  | 0.7767 | 0.3417529   | `0x3eae_fa3c` | none         |
//! | `silu`     | 0.8061 | -91.92543   | `0xc2b7_d9d2` | none         |
//! | `softplus` | 0.9981 | -16.637302  | `0xc185_1932` | none         |
//!
//! Where `exp` and `silu` are worst the result is subnormal and the scaling rounds a second time;
//! over the inputs from zero up `exp` stays within 0.6505 and `silu` within 0.5374.
//!
//! **Coefficients.** Each polynomial is a weighted minimax fit: Lawson's iteration (reweighted least
//! squares) on 1,500 Chebyshev nodes in f64, the target evaluated with 40 digits. The lowest
//! coefficient is then rounded to f32 and the rest refitted, one after the other.
//!
//! **Assumes.** Round to nearest even, subnormals neither flushed on input nor on output.
//!
//! **Leaves to others.** Sums over these values (softmax), and refusing NaN or infinity.

// ORDER: every expression below is evaluated exactly as written; a reordering, a contraction or a
// split `mul_add` changes bits.

/// Above this `exp` is infinite without evaluation. The true threshold, 88.72283, is found by the
/// final scaling itself.
const EXP_INFINITE_ABOVE: f32 = 89.0;
/// Below this `exp` is zero without evaluation; e^-104 is less than half of 2^-149.
const EXP_ZERO_BELOW: f32 = -104.0;
/// Beyond this magnitude `sigmoid` and `silu` have reached their limits: |x| e^-|x| is less than
/// half of 2^-149.
const SATURATED: f32 = 128.0;
/// 1 / ln 2.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
const ROUND_TO_INTEGER: f32 = 12_582_912.0;
/// ln 2 rounded to f32.
const LN_2: f32 = f32::from_bits(0x3f31_7218);
/// ln 2 - `LN_2`.
const LN_2_REST: f32 = f32::from_bits(0xb102_e308);
/// (e^r - 1 - r) / r^2 on |r| <= 0.3466, highest power first; e^r is then good to 2^-33.2 relative.
const EXP_TAIL: [f32; 6] = [
    f32::from_bits(0x394e_fdd7),
    f32::from_bits(0x3ab6_a65e),
    f32::from_bits(0x3c08_8987),
    f32::from_bits(0x3d2a_aa74),
    f32::from_bits(0x3e2a_aaaa),
    0.5,
];

/// ln 2 cut to 16 bits, so that its product with an exponent is exact.
const LN_2_HEAD: f32 = f32::from_bits(0x3f31_7200);
/// ln 2 - `LN_2_HEAD`.
const LN_2_TAIL: f32 = f32::from_bits(0x35bf_be8e);
/// (log(1 + f) - f) / f^2 on -0.2929 <= f <= 0.4142, highest power first; log(1 + f) is then good
/// to 2^-32.5 absolute.
const LOG_TAIL: [f32; 10] = [
    f32::from_bits(0x3d8a_8409),
    f32::from_bits(0xbdf1_c9f6),
    f32::from_bits(0x3df4_d86b),
    f32::from_bits(0xbdfd_adfb),
    f32::from_bits(0x3e11_79c4),
    f32::from_bits(0xbe2a_b002),
    f32::from_bits(0x3e4c_d461),
    f32::from_bits(0xbe80_0002),
    f32::from_bits(0x3eaa_aa9f),
    -0.5,
];
/// Bits of the f32 nearest to sqrt(1/2): the lower end of a reduced mantissa.
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
/// Bits of 1.
const ONE_BITS: u32 = 0x3f80_0000;
const _: () = assert!(SQRT_HALF_BITS < ONE_BITS);

/// Where `silu` is smallest: -1.27846454276107..., rounded.
const VALLEY_AT: f32 = f32::from_bits(0xbfa3_a4ba);
/// The rest of that place.
const VALLEY_AT_REST: f32 = f32::from_bits(0x325e_fb7d);
/// The smallest value of `silu`: -0.27846454276107..., rounded.
const VALLEY_FLOOR: f32 = f32::from_bits(0xbe8e_92e8);
/// The rest of that value; the same number as `VALLEY_AT_REST` because the value is the place + 1.
const VALLEY_FLOOR_REST: f32 = f32::from_bits(0x325e_fb7d);
/// How far on both sides of `VALLEY_AT` the polynomial `VALLEY` is used.
const VALLEY_HALF_WIDTH: f32 = 0.25;
/// (silu(place + t) - floor) / t^2 on |t| <= 0.25, highest power first; silu is then good to
/// 2^-34.3 absolute.
const VALLEY: [f32; 5] = [
    f32::from_bits(0xba8e_9bc0),
    f32::from_bits(0xbb47_69fd),
    f32::from_bits(0x3b9a_9ae5),
    f32::from_bits(0x3d48_396f),
    f32::from_bits(0x3ddf_0a09),
];

/// `softplus` is its argument above this and `exp` below its negative.
const SOFTPLUS_LINEAR_ABOVE: f32 = 20.0;

/// The polynomial with these coefficients, highest power first, by Horner's rule.
#[inline(always)]
fn horner<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut value = coefficients[0];
    for &coefficient in &coefficients[1..] {
        value = value.mul_add(x, coefficient);
    }
    value
}

/// 2^exponent for exponents of normal numbers; anything else gives a number nobody uses.
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}

/// value * 2^exponent for |exponent| <= 252, in two steps of which only the second can round.
#[inline(always)]
fn scale(value: f32, exponent: i32) -> f32 {
    let half = exponent >> 1;
    value * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

/// e^x as (high + low) * 2^exponent, `high` in about 0.707..1.415 being the rounded sum.
///
/// For |x| <= 128; for anything larger, or NaN, the parts mean nothing. The pair is good to about
/// 2^-28 relative.
#[inline(always)]
fn exp_split(x: f32) -> (f32, f32, i32) {
    let shifted = x.mul_add(LOG2_E, ROUND_TO_INTEGER);
    let exponent = shifted.to_bits().wrapping_sub(ROUND_TO_INTEGER.to_bits()) as i32;
    let n = shifted - ROUND_TO_INTEGER;
    // Exact: a multiple of 2^-25 below 1/2 in magnitude, or x itself when n is 0.
    let exact = n.mul_add(-LN_2, x);
    let r = n.mul_add(-LN_2_REST, exact);
    let r_rest = n.mul_add(-LN_2_REST, exact - r);
    let linear = 1.0 + r;
    let linear_rest = (r - (linear - 1.0)) + r_rest;
    let rest = (r * r).mul_add(horner(&EXP_TAIL, r), linear_rest);
    let high = linear + rest;
    let low = rest - (high - linear);
    (high, low, exponent)
}

/// e^x. Zero at -inf and wherever the result rounds to it, inf above 88.72283.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (high, _, exponent) = exp_split(x);
    let value = scale(high, exponent);
    if x > EXP_INFINITE_ABOVE {
        f32::INFINITY
    } else if x < EXP_ZERO_BELOW {
        0.0
    } else if x.is_nan() {
        x
    } else {
        value
    }
}

/// log(1 + x + x_rest) for -1 < x < inf and `x_rest` at most half an ulp of x.
///
/// 1 + x = 2^k * m with m in 0.707..1.414; the bits that 1 + x loses are kept and come back, scaled,
/// in f = m - 1 and its own rest. For k = 0 and no `x_rest`, f is x itself.
#[inline(always)]
fn log1p_pair(x: f32, x_rest: f32) -> f32 {
    let sum = 1.0 + x;
    let x_part = sum - 1.0;
    let sum_rest = ((1.0 - (sum - x_part)) + (x - x_part)) + x_rest;
    let biased = sum.to_bits().wrapping_add(ONE_BITS - SQRT_HALF_BITS);
    let k = (biased >> 23) as i32 - 127;
    let mantissa = f32::from_bits((biased & 0x007f_ffff) + SQRT_HALF_BITS);
    let head = mantissa - 1.0;
    // 2^-k is not normal beyond 126; the rest is far below the last place long before.
    let tail = sum_rest * power_of_two(-k.min(126));
    let f = head + tail;
    let f_rest = tail - (f - head);
    let k_value = k as f32;
    let k_ln_2 = k_value * LN_2_HEAD;
    let large = k_ln_2 + f;
    let large_rest = f - (large - k_ln_2);
    // log(1 + f + f_rest) - log(1 + f) is f_rest / (1 + f), here f_rest * (1 - f).
    let small = k_value.mul_add(LN_2_TAIL, large_rest) + f_rest.mul_add(-f, f_rest);
    large + (f * f).mul_add(horner(&LOG_TAIL, f), small)
}

/// log(1 + x): -inf at -1, NaN (`0x7fc0_0000`) below, inf at inf; a zero keeps its sign.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let value = log1p_pair(x, 0.0);
    if x > -1.0 && x < f32::INFINITY && x != 0.0 {
        value
    } else if x == -1.0 {
        f32::NEG_INFINITY
    } else if x < -1.0 {
        f32::from_bits(0x7fc0_0000)
    } else {
        x
    }
}

/// 1 / (1 + e^-x): 0 at -inf (reached where e^x rounds to it), 1/2 at zero, 1 at inf.
///
/// With e = e^-|x|, e / (1 + e) is divided with one correction step; the right half is 1 minus it.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let magnitude = if x.abs() > SATURATED { SATURATED } else { x.abs() };
    let (high, low, exponent) = exp_split(-magnitude);
    let e = scale(high, exponent);
    let e_rest = scale(low, exponent);
    let sum = 1.0 + e;
    let sum_rest = (e - (sum - 1.0)) + e_rest;
    let inverse = 1.0 / sum;
    let quotient = e * inverse;
    let remainder = (-quotient).mul_add(sum_rest, (-quotient).mul_add(sum, e) + e_rest);
    let tail = remainder.mul_add(inverse, quotient);
    if x < 0.0 {
        tail
    } else if x.is_nan() {
        x
    } else {
        1.0 - tail
    }
}

/// `silu` around its minimum, for |x - `VALLEY_AT`| <= `VALLEY_HALF_WIDTH`.
///
/// There neighbouring inputs differ by far less than the error of any product, so order is kept
/// only by a form whose error shrinks with the distance from the minimum.
#[inline(always)]
fn silu_valley(x: f32) -> f32 {
    let t = (x - VALLEY_AT) - VALLEY_AT_REST;
    let rise = (t * t).mul_add(horner(&VALLEY, t), VALLEY_FLOOR_REST);
    VALLEY_FLOOR + rise
}

/// x / (1 + e^-x): -0 at -inf (reached below about -108), inf at inf; a zero keeps its sign.
///
/// Falls up to x = -1.2784645 and rises from there. The product is taken before the scaling by
/// 2^exponent, so that a large -x does not magnify the rounding of a subnormal e^x.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    if x > SATURATED || x.is_nan() {
        return x;
    }
    if (x - VALLEY_AT).abs() <= VALLEY_HALF_WIDTH {
        return silu_valley(x);
    }
    let x = if x < -SATURATED { -SATURATED } else { x };
    let (high, low, exponent) = exp_split(-x.abs());
    let e = scale(high, exponent);
    let sum = 1.0 + e;
    let sum_rest = (e - (sum - 1.0)) + scale(low, exponent);
    // 1 / (1 + e) as inverse + inverse_rest.
    let inverse = 1.0 / sum;
    let remainder = (-inverse).mul_add(sum_rest, (-inverse).mul_add(sum, 1.0));
    let inverse_rest = remainder * inverse;
    // Left of zero another factor e, right of it 1.
    let (high, low, exponent) = if x < 0.0 { (high, low, exponent) } else { (1.0, 0.0, 0) };
    let product = high * inverse;
    let product_rest = high.mul_add(inverse, -product) + high.mul_add(inverse_rest, low * inverse);
    scale(x.mul_add(product, x * product_rest), exponent)
}

/// log(1 + e^x): x itself above 20, e^x below -20; 0 at -inf, inf at inf.
///
/// Between, e^x enters the logarithm with the bits that its rounding loses, so this is more
/// accurate than `log1p(exp(x))` and need not have the same bits.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    if x > SOFTPLUS_LINEAR_ABOVE || x.is_nan() {
        x
    } else if x < -SOFTPLUS_LINEAR_ABOVE {
        exp(x)
    } else {
        let (high, low, exponent) = exp_split(x);
        log1p_pair(scale(high, exponent), scale(low, exponent))
    }
}
