//! Elementary functions: error against f64, order of neighbours, special values, frozen bits.
//!
//! Promises: every binade of both signs is sampled (every 251st mantissa, both ends densely), and
//! every internal seam with its neighbourhood, each function within the bound stated here and in
//! order. Assumes that `libm` in f64 is good to far less than an ulp of f32. Leaves to others: the
//! exhaustive run over all inputs, whose results stand in the module's documentation; `scan` over
//! `FIRST_KEY..=LAST_KEY` is that run.

use engine::reference::order::elementary::{exp, log1p, sigmoid, silu, softplus};

/// An f32 that is not NaN as an integer that grows with it; -0 is -1 and +0 is 0.
fn key_of(x: f32) -> i64 {
    let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -1 - magnitude } else { magnitude }
}

/// The inverse of `key_of`.
fn value_of(key: i64) -> f32 {
    let sign = if key < 0 { 0x8000_0000 } else { 0 };
    let magnitude = if key < 0 { -1 - key } else { key };
    f32::from_bits(sign | u32::try_from(magnitude).expect("key of an f32"))
}

/// Key of -inf.
const FIRST_KEY: i64 = -1 - 0x7f80_0000;
/// Key of inf.
const LAST_KEY: i64 = 0x7f80_0000;

/// The distance of `result` from `exact` in units of the last place of `exact`; an infinite result
/// counts as 2^128, and is exact where f32 rounds `exact` to infinity.
fn error_in_ulp(result: f32, exact: f64) -> f64 {
    let wide = f64::from(result);
    if wide == exact || (result.is_infinite() && result == exact as f32) {
        return 0.0;
    }
    let end = 2.0_f64.powi(128);
    let finite = |value: f64| if value.is_infinite() { end.copysign(value) } else { value };
    let exponent = ((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let ulp = 2.0_f64.powi(exponent.clamp(-126, 127) - 23);
    (finite(wide) - finite(exact)).abs() / ulp
}

/// A function, its truth in f64, and what is demanded of it.
struct Subject {
    name: &'static str,
    function: fn(f32) -> f32,
    truth: fn(f64) -> f64,
    /// Largest error allowed, in ulp.
    bound: f64,
    /// The function is defined from here.
    from: f32,
    /// It falls up to here and rises afterwards.
    falls_until: f32,
}

/// What a scan saw.
#[derive(Default)]
struct Report {
    samples: u64,
    worst: f64,
    worst_at: f32,
    not_numbers: u64,
    out_of_order: u64,
    first_out_of_order: Option<f32>,
}

/// Why a scan is no success.
#[derive(Debug, PartialEq)]
enum Finding {
    /// Nothing was looked at.
    NoSamples,
    /// A result or an error is NaN.
    NotANumber,
    /// The bound is exceeded; the worst input.
    Error(f32),
    /// A value runs against the direction of the function; the first such input.
    OutOfOrder(f32),
}

/// Evaluates the subject at ascending keys: the error of each value, and its order with respect to
/// the value before, which is its neighbour wherever the keys are consecutive.
fn scan(subject: &Subject, keys: impl Iterator<Item = i64>) -> Report {
    let mut report = Report::default();
    let mut before: Option<(f32, f32)> = None;
    for x in keys.map(value_of).filter(|&x| x >= subject.from) {
        let y = (subject.function)(x);
        let error = error_in_ulp(y, (subject.truth)(f64::from(x)));
        report.samples += 1;
        report.not_numbers += u64::from(y.is_nan() || error.is_nan());
        if error > report.worst {
            (report.worst, report.worst_at) = (error, x);
        }
        if let Some((x_before, y_before)) = before {
            assert!(key_of(x_before) < key_of(x), "keys ascend");
            let wrong = if x <= subject.falls_until {
                y > y_before
            } else {
                x_before >= subject.falls_until && y < y_before
            };
            if wrong {
                report.out_of_order += 1;
                report.first_out_of_order.get_or_insert(x);
            }
        }
        before = Some((x, y));
    }
    report
}

/// The reasons why this report is no success; none means success.
fn findings(subject: &Subject, report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    if report.samples == 0 {
        found.push(Finding::NoSamples);
    }
    if report.not_numbers > 0 {
        found.push(Finding::NotANumber);
    }
    if report.worst > subject.bound {
        found.push(Finding::Error(report.worst_at));
    }
    found.extend(report.first_out_of_order.map(Finding::OutOfOrder));
    found
}

/// Inputs around which an implementation changes its course: reductions, thresholds, limits.
fn seams() -> Vec<f64> {
    let ln_2 = core::f64::consts::LN_2;
    let mut seams = vec![0.0, 0.5, 1.0, 20.0, 88.722_839, 89.0, 103.972_08, 104.0, 128.0];
    seams.extend([1.028_464_5, 1.278_464_5, 1.528_464_5]);
    for n in 0..190 {
        seams.push((f64::from(n) + 0.5) * ln_2);
    }
    seams.extend(seams.clone().iter().map(|seam| -seam));
    for k in -24..=128 {
        let seam = core::f64::consts::FRAC_1_SQRT_2 * 2.0_f64.powi(k) - 1.0;
        seams.push(seam);
        seams.push(2.0_f64.powi(k) - 1.0);
        if seam > 0.0 {
            seams.push(libm::log(seam));
        }
    }
    seams
}

/// The sampled keys, ascending and without repetition.
fn sampled_keys() -> Vec<i64> {
    const MANTISSAS: i64 = 1 << 23;
    let mut keys = vec![FIRST_KEY, LAST_KEY];
    for exponent in 0..255 {
        let first = exponent * MANTISSAS;
        let ends = (0..64).chain(MANTISSAS - 64..MANTISSAS);
        for key in (0..MANTISSAS).step_by(251).chain(ends).map(|mantissa| first + mantissa) {
            keys.extend([key, -1 - key]);
        }
    }
    for seam in seams() {
        let centre = key_of(seam as f32);
        keys.extend(((centre - 1024)..=(centre + 1024)).filter(|&key| key.abs() <= LAST_KEY));
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn true_sigmoid(x: f64) -> f64 {
    if x < 0.0 {
        let e = libm::exp(x);
        e / (1.0 + e)
    } else {
        1.0 / (1.0 + libm::exp(-x))
    }
}

fn true_silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * true_sigmoid(x) }
}

fn true_softplus(x: f64) -> f64 {
    (if x > 0.0 { x } else { 0.0 }) + libm::log1p(libm::exp(-x.abs()))
}

const ALWAYS_RISES: f32 = f32::NEG_INFINITY;
const EXP: Subject = Subject {
    name: "exp",
    function: exp,
    truth: libm::exp,
    bound: 0.765,
    from: f32::NEG_INFINITY,
    falls_until: ALWAYS_RISES,
};
const LOG1P: Subject =
    Subject { name: "log1p", function: log1p, truth: libm::log1p, bound: 0.831, from: -1.0, ..EXP };
const SIGMOID: Subject =
    Subject { name: "sigmoid", function: sigmoid, truth: true_sigmoid, bound: 0.777, ..EXP };
/// The f32 nearest to the minimum of `silu`.
const SILU_LOWEST_AT: f32 = f32::from_bits(0xbfa3_a4ba);
const SILU: Subject = Subject {
    name: "silu",
    function: silu,
    truth: true_silu,
    bound: 0.807,
    falls_until: SILU_LOWEST_AT,
    ..EXP
};
const SOFTPLUS: Subject =
    Subject { name: "softplus", function: softplus, truth: true_softplus, bound: 0.999, ..EXP };

#[expect(clippy::print_stdout, reason = "the measured maxima are for the reader of a test log")]
fn check(subject: &Subject) {
    let report = scan(subject, sampled_keys().into_iter());
    println!(
        "{}: {} samples, at most {:.4} ulp at {:e} ({:#010x}), {} out of order",
        subject.name,
        report.samples,
        report.worst,
        report.worst_at,
        report.worst_at.to_bits(),
        report.out_of_order
    );
    assert_eq!(findings(subject, &report), [], "{}", subject.name);
}

#[test]
fn exp_is_accurate_and_monotone() {
    check(&EXP);
}

#[test]
fn log1p_is_accurate_and_monotone() {
    check(&LOG1P);
}

#[test]
fn sigmoid_is_accurate_and_monotone() {
    check(&SIGMOID);
}

#[test]
fn silu_is_accurate_and_monotone_on_both_sides_of_its_minimum() {
    check(&SILU);
}

#[test]
fn softplus_is_accurate_and_monotone() {
    check(&SOFTPLUS);
}

/// One row: the function's name, the function, an input and the demanded bits.
type Row = (&'static str, fn(f32) -> f32, f32, u32);

#[test]
fn special_values() {
    let inf = f32::INFINITY;
    let infinite = inf.to_bits();
    let (zero, minus_zero, one, half) = (0, 0x8000_0000, 0x3f80_0000, 0x3f00_0000);
    let ln_2 = core::f32::consts::LN_2.to_bits();
    let largest = libm::exp(f64::from(f32::from_bits(0x42b1_7217))) as f32;
    let rows: [Row; 42] = [
        ("exp", exp, 0.0, one),
        ("exp", exp, -0.0, one),
        ("exp", exp, f32::from_bits(1), one),
        ("exp", exp, -inf, zero),
        ("exp", exp, inf, infinite),
        ("exp", exp, f32::MAX, infinite),
        ("exp", exp, f32::MIN, zero),
        // The largest finite result, the smallest, and their neighbours.
        ("exp", exp, f32::from_bits(0x42b1_7217), largest.to_bits()),
        ("exp", exp, f32::from_bits(0x42b1_7218), infinite),
        ("exp", exp, f32::from_bits(0xc2cf_f1b4), 1),
        ("exp", exp, f32::from_bits(0xc2cf_f1b5), zero),
        ("log1p", log1p, 0.0, zero),
        ("log1p", log1p, -0.0, minus_zero),
        ("log1p", log1p, 1.0, ln_2),
        ("log1p", log1p, -1.0, (-inf).to_bits()),
        ("log1p", log1p, f32::from_bits(0xbf80_0001), 0x7fc0_0000),
        ("log1p", log1p, -inf, 0x7fc0_0000),
        ("log1p", log1p, inf, infinite),
        ("log1p", log1p, f32::from_bits(1), 1),
        ("log1p", log1p, f32::from_bits(0x8000_0001), 0x8000_0001),
        ("log1p", log1p, f32::MAX, 0x42b1_7218),
        ("sigmoid", sigmoid, 0.0, half),
        ("sigmoid", sigmoid, -0.0, half),
        ("sigmoid", sigmoid, inf, one),
        ("sigmoid", sigmoid, -inf, zero),
        ("sigmoid", sigmoid, f32::MAX, one),
        ("sigmoid", sigmoid, f32::MIN, zero),
        ("silu", silu, 0.0, zero),
        ("silu", silu, -0.0, minus_zero),
        ("silu", silu, inf, infinite),
        ("silu", silu, -inf, minus_zero),
        ("silu", silu, f32::MAX, f32::MAX.to_bits()),
        ("silu", silu, f32::MIN, minus_zero),
        ("silu", silu, f32::from_bits(2), 1),
        ("silu", silu, SILU_LOWEST_AT, 0xbe8e_92e8),
        ("softplus", softplus, 0.0, ln_2),
        ("softplus", softplus, -0.0, ln_2),
        ("softplus", softplus, inf, infinite),
        ("softplus", softplus, -inf, zero),
        ("softplus", softplus, 20.0, 20.0_f32.to_bits()),
        ("softplus", softplus, f32::MAX, f32::MAX.to_bits()),
        ("softplus", softplus, f32::MIN, zero),
    ];
    for (name, function, x, bits) in rows {
        assert_eq!(function(x).to_bits(), bits, "{name} at {x:e}");
    }
}

#[test]
fn a_nan_comes_back_with_its_bits() {
    for bits in [0x7fc0_0000, 0xffc0_0000, 0x7fff_ffff, 0xffd2_3456, 0x7fc0_0001] {
        for function in [exp, log1p, sigmoid, silu, softplus] {
            assert_eq!(function(f32::from_bits(bits)).to_bits(), bits);
        }
    }
}

/// FNV-1a, 64 bits wide, over the little-endian bytes of the results at a fixed set of inputs: every
/// 65,537th f32 and the multiples of 1/512 up to 128 in magnitude.
fn digest(function: fn(f32) -> f32, from: f32) -> u64 {
    let everywhere = (FIRST_KEY..=LAST_KEY).step_by(65_537).map(value_of);
    let grid = (-65_536_i32..=65_536).map(|i| i as f32 / 512.0);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for x in everywhere.chain(grid).filter(|&x| x >= from) {
        for byte in function(x).to_bits().to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

/// A change here is a change of the numbers that every backend must repeat: a deliberate act.
#[test]
fn bits_are_frozen() {
    let found = [EXP, LOG1P, SIGMOID, SILU, SOFTPLUS].map(|s| (s.name, digest(s.function, s.from)));
    let frozen = [
        ("exp", 0xa0a1_3268_9de5_99c8),
        ("log1p", 0x4d7c_b5ae_2aa6_58c3),
        ("sigmoid", 0x05e9_f57d_125d_acad),
        ("silu", 0x6175_fd1e_b895_a5ce),
        ("softplus", 0xa9bf_acb6_c9dd_ec97),
    ];
    assert_eq!(found, frozen, "found {found:#x?}");
}

/// Keys of a stretch where the results of `exp` are coarser than its inputs.
fn stretch() -> std::ops::Range<i64> {
    key_of(0.26)..key_of(0.26) + 4096
}

#[test]
fn an_exp_three_ulps_off_is_noticed() {
    fn off(x: f32) -> f32 {
        f32::from_bits(exp(x).to_bits() + 3)
    }
    let subject = Subject { function: off, bound: 2.0, ..EXP };
    let found = findings(&subject, &scan(&subject, stretch()));
    assert!(matches!(found[..], [Finding::Error(_)]), "{found:?}");
    assert_eq!(findings(&EXP, &scan(&EXP, stretch())), []);
}

#[test]
fn a_single_step_back_is_noticed() {
    fn dented(x: f32) -> f32 {
        let y = exp(x);
        if key_of(x) == key_of(0.26) + 2048 { f32::from_bits(y.to_bits() - 1) } else { y }
    }
    let dent = value_of(key_of(0.26) + 2048);
    let subject = Subject { function: dented, bound: 2.0, ..EXP };
    let found = findings(&subject, &scan(&subject, stretch()));
    assert_eq!(found, [Finding::OutOfOrder(dent)]);
}

#[test]
fn a_silu_that_rises_left_of_its_minimum_is_noticed() {
    fn mirrored(x: f32) -> f32 {
        if x < SILU_LOWEST_AT { -silu(x) } else { silu(x) }
    }
    let subject = Subject { function: mirrored, bound: f64::INFINITY, ..SILU };
    let found = findings(&subject, &scan(&subject, key_of(-4.0)..key_of(-4.0) + 4096));
    assert!(matches!(found[..], [Finding::OutOfOrder(_)]), "{found:?}");
}

#[test]
fn a_nan_is_noticed() {
    let subject = Subject { function: |_| f32::NAN, ..EXP };
    assert_eq!(findings(&subject, &scan(&subject, stretch())), [Finding::NotANumber]);
}

#[test]
fn looking_at_nothing_is_no_success() {
    assert_eq!(findings(&EXP, &scan(&EXP, std::iter::empty())), [Finding::NoSamples]);
    let below_the_domain = scan(&LOG1P, key_of(-3.0)..key_of(-2.0));
    assert_eq!(findings(&LOG1P, &below_the_domain), [Finding::NoSamples]);
}
