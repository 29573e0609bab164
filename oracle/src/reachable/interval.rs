//! Intervals of f32 values through the operations after the routed sum.
//!
//! Promises: for every vector inside the input box, the value that the engine's operation computes lies in
//! the output interval. No interval is rounded outwards, and none needs to be: an operation is a chain of
//! single f32 steps, rounding to nearest is monotone, so a step that is monotone in each argument has its
//! extremes at the ends, where it is evaluated as the engine does. What is not monotone says so below.
//! Correlations between elements are forgotten, which only widens.
//! Assumes finite ends. Leaves the sequence of operations to `tail`.

use engine::format::quant::{self, Q8_BLOCK};
use engine::format::weights::Matrix;
use engine::reference::{norm, order};

/// All values from `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The smallest.
    pub lo: f32,
    /// The largest.
    pub hi: f32,
}

impl Interval {
    /// Any value at all.
    pub const UNKNOWN: Self = Self { lo: f32::NEG_INFINITY, hi: f32::INFINITY };

    /// One value.
    #[must_use]
    pub fn point(value: f32) -> Self {
        Self { lo: value, hi: value }
    }

    /// Whether the value is inside; NaN never is.
    #[must_use]
    pub fn holds(self, value: f32) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Whether both ends are numbers.
    #[must_use]
    pub fn is_finite(self) -> bool {
        self.lo.is_finite() && self.hi.is_finite()
    }

    /// Values between the two ends, as steps from one float to the next.
    #[must_use]
    pub fn ulps(self) -> u64 {
        crate::margin::ulps_between(self.lo, self.hi)
    }

    /// The smallest interval with this value in it too.
    #[must_use]
    pub fn with(self, value: f32) -> Self {
        Self { lo: self.lo.min(value), hi: self.hi.max(value) }
    }

    /// `x * factor`, rounded once: monotone in either argument for a fixed sign of the other, so one of the
    /// four corners is the smallest and one the largest.
    fn times(self, factor: Self) -> Self {
        let corners = [self.lo * factor.lo, self.lo * factor.hi, self.hi * factor.lo];
        corners.into_iter().fold(Self::point(self.hi * factor.hi), Self::with)
    }

    /// `fma(x, factor, self)`, rounded once: the exact value is bilinear in `x` and `factor` and increasing
    /// in `self`, so the corners are extreme.
    fn plus_product(self, x: Self, factor: Self) -> Self {
        let corner = |x: f32, factor: f32| Self {
            lo: order::fma(x, factor, self.lo),
            hi: order::fma(x, factor, self.hi),
        };
        let mut found = corner(x.lo, factor.lo);
        if x.lo == x.hi && factor.lo == factor.hi {
            return found;
        }
        for (x, factor) in [(x.lo, factor.hi), (x.hi, factor.lo), (x.hi, factor.hi)] {
            let corner = corner(x, factor);
            found = Self { lo: found.lo.min(corner.lo), hi: found.hi.max(corner.hi) };
        }
        found
    }
}

/// An interval for every element of a vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// Smallest values.
    pub lo: Vec<f32>,
    /// Largest values.
    pub hi: Vec<f32>,
}

impl Bounds {
    /// One vector.
    #[must_use]
    pub fn point(values: &[f32]) -> Self {
        Self { lo: values.to_vec(), hi: values.to_vec() }
    }

    /// From intervals.
    pub fn of(intervals: impl IntoIterator<Item = Interval>) -> Self {
        let (lo, hi) = intervals.into_iter().map(|x| (x.lo, x.hi)).unzip();
        Self { lo, hi }
    }

    /// What a function that is monotone in each element alone makes of the two ends.
    ///
    /// The direction may differ from element to element, so the ends are put in order afterwards.
    #[must_use]
    pub fn map_monotone(&self, mut map: impl FnMut(&[f32]) -> Vec<f32>) -> Self {
        let (a, b) = (map(&self.lo), map(&self.hi));
        let ends = a.iter().zip(&b);
        Self::of(ends.map(|(a, b)| Interval { lo: a.min(*b), hi: a.max(*b) }))
    }

    /// Element by element.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Interval> {
        self.lo.iter().zip(&self.hi).map(|(lo, hi)| Interval { lo: *lo, hi: *hi })
    }

    /// One element.
    #[must_use]
    pub fn at(&self, index: usize) -> Interval {
        Interval { lo: self.lo[index], hi: self.hi[index] }
    }

    /// Whether every end is a number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.iter().all(Interval::is_finite)
    }

    /// The widest element, as steps from one float to the next.
    #[must_use]
    pub fn widest(&self) -> u64 {
        self.iter().map(Interval::ulps).max().unwrap_or(0)
    }

    /// The smallest and the largest magnitude of each element.
    fn magnitudes(&self) -> Self {
        Self::of(self.iter().map(|x| {
            let (a, b) = (x.lo.abs(), x.hi.abs());
            Interval { lo: if x.lo <= 0.0 && x.hi >= 0.0 { 0.0 } else { a.min(b) }, hi: a.max(b) }
        }))
    }

    /// The factor of a root-mean-square norm.
    ///
    /// Not monotone in an element, but in its magnitude: squares enter a chain of fma one by one, and mean,
    /// root and reciprocal follow. So the smallest magnitudes give the largest factor.
    #[must_use]
    pub fn norm_factor(&self, eps: f32) -> Interval {
        let magnitudes = self.magnitudes();
        Interval { lo: norm::factor(&magnitudes.hi, eps), hi: norm::factor(&magnitudes.lo, eps) }
    }

    /// Each element times one factor.
    #[must_use]
    pub fn scaled(&self, factor: Interval) -> Self {
        Self::of(self.iter().map(|x| x.times(factor)))
    }

    /// Each element times its own exact weight.
    #[must_use]
    pub fn weighted(&self, weights: &[f32]) -> Self {
        Self::of(self.iter().zip(weights).map(|(x, w)| x.times(Interval::point(*w))))
    }

    /// The dot product with exact weights: increasing in elements whose weight is positive, decreasing in
    /// the others, so each end is one evaluation of the engine's own dot.
    #[must_use]
    pub fn dot(&self, weights: &[f32]) -> Interval {
        let pick = |positive: &[f32], negative: &[f32]| -> Vec<f32> {
            let ends = positive.iter().zip(negative).zip(weights);
            ends.map(|((p, n), w)| if *w >= 0.0 { *p } else { *n }).collect()
        };
        let (low, high) = (pick(&self.lo, &self.hi), pick(&self.hi, &self.lo));
        Interval { lo: order::dot(weights, &low), hi: order::dot(weights, &high) }
    }
}

/// Streams added up with weights that are intervals too, from `+0` in index order.
#[must_use]
pub fn weigh(streams: &Bounds, weights: &[Interval]) -> Bounds {
    let width = streams.lo.len() / weights.len();
    Bounds::of((0..width).map(|i| {
        let terms = weights.iter().enumerate();
        // ORDER: streams in index order, from +0, as `reference::hyper`.
        terms.fold(Interval::point(0.0), |sum, (stream, weight)| {
            sum.plus_product(*weight, streams.at(stream * width + i))
        })
    }))
}

/// A row quantised to int8 in blocks of 32, where the row is a box.
#[derive(Clone, Debug)]
pub struct Codes {
    /// The smallest code of each element.
    pub(super) low: Vec<i8>,
    /// Elements whose code is not settled: block, place in it, how far above the smallest it can be.
    pub(super) open: Vec<(usize, usize, i32)>,
    /// Scales of the blocks.
    scales: Vec<Interval>,
}

impl Codes {
    /// The codes of every row in the box.
    ///
    /// The largest magnitude of a block is increasing in every magnitude, the scale in it, the inverse
    /// scale decreasing; a code is increasing in `x * inverse`. A block whose inverse scale is finite for
    /// some rows and not for others has all codes and a scale from 0 up.
    #[must_use]
    pub fn of(x: &Bounds) -> Self {
        let magnitudes = x.magnitudes();
        let blocks = x.lo.len() / Q8_BLOCK;
        let mut codes = Self {
            low: vec![0; x.lo.len()],
            open: Vec::new(),
            scales: vec![Interval::point(0.0); blocks],
        };
        for block in 0..blocks {
            let range = block * Q8_BLOCK..(block + 1) * Q8_BLOCK;
            let largest = |values: &[f32]| values.iter().fold(0.0_f32, |max, x| max.max(*x));
            let scale = Interval {
                lo: largest(&magnitudes.lo[range.clone()]) / 127.0,
                hi: largest(&magnitudes.hi[range.clone()]) / 127.0,
            };
            let inverse = Interval { lo: 1.0 / scale.hi, hi: 1.0 / scale.lo };
            if !inverse.lo.is_finite() {
                continue;
            }
            let settled = inverse.hi.is_finite();
            codes.scales[block] = if settled { scale } else { Interval { lo: 0.0, ..scale } };
            for (place, index) in range.enumerate() {
                let code = |x: f32| x.round_ties_even().clamp(-128.0, 127.0) as i8;
                let product = x.at(index).times(inverse);
                let (low, high) =
                    if settled { (code(product.lo), code(product.hi)) } else { (-128, 127) };
                codes.low[index] = low;
                if low != high {
                    codes.open.push((block, place, i32::from(high) - i32::from(low)));
                }
            }
        }
        codes
    }

    /// Elements whose code is not settled.
    #[must_use]
    pub fn open_elements(&self) -> Vec<usize> {
        self.open.iter().map(|(block, place, _)| block * Q8_BLOCK + place).collect()
    }

    /// The product with a Q8_0 row.
    fn dot(&self, row: &[u8]) -> Interval {
        let n_blocks = self.scales.len();
        let mut open = self.open.iter().peekable();
        let mut total = Interval::point(0.0);
        // ORDER: parts left to right, blocks of a part left to right, as `reference::order`.
        for segment in 0..order::QUANT_SEGMENTS {
            let mut acc = Interval::point(0.0);
            for block in order::quant_segment(segment, n_blocks) {
                let weights = &row[block * 34..(block + 1) * 34];
                let codes = &self.low[block * Q8_BLOCK..(block + 1) * Q8_BLOCK];
                let (d, exact) = quant::q8_0_dot(weights, codes);
                // Integers: exact, so the codes' ends give those of the product.
                let (mut low, mut high) = (exact, exact);
                while let Some((_, place, above)) = open.next_if(|open| open.0 == block) {
                    let change = i32::from(weights[2 + place] as i8) * above;
                    low += change.min(0);
                    high += change.max(0);
                }
                let scale = self.scales[block].times(Interval::point(d));
                acc = acc.plus_product(scale, Interval { lo: low as f32, hi: high as f32 });
            }
            // Increasing in both.
            total = Interval { lo: total.lo + acc.lo, hi: total.hi + acc.hi };
        }
        total
    }

    /// The product with every row of a Q8_0 matrix.
    #[must_use]
    pub fn matmul(&self, weights: &Matrix) -> Bounds {
        Bounds::of((0..weights.rows()).map(|row| self.dot(weights.row(row))))
    }
}

#[cfg(test)]
mod tests {
    use engine::format::quant::{Q8Row, encode_q8_0};
    use engine::reference::matmul::quantised;
    use engine::rows::Rows;
    use engine::tensor::{Bytes, DType};
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::super::sums::tests::terms;
    use super::*;

    const WIDTH: usize = 320;

    /// A box around random values, `ulps` wide, now and then around zero or a point.
    fn around(seed: u64, ulps: u32) -> Bounds {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 77);
        Bounds::of(terms(seed, WIDTH).into_iter().map(|x| {
            let wide = random.next_u32() % (ulps + 1);
            match random.next_u32() % 16 {
                0 => Interval { lo: -x.abs(), hi: x.abs() * 0.5 },
                1 => Interval::point(x),
                _ => {
                    let other = f32::from_bits(x.to_bits() + wide);
                    Interval { lo: x.min(other), hi: x.max(other) }
                }
            }
        }))
    }

    /// A vector in the box: any float between the ends, or an end.
    fn inside(bounds: &Bounds, random: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let pick = |x: Interval| {
            let part = f64::from(random.next_u32()) / 4_294_967_295.0;
            let between = f64::from(x.lo) + part * (f64::from(x.hi) - f64::from(x.lo));
            [x.lo, x.hi, (between as f32).clamp(x.lo, x.hi)][random.next_u32() as usize % 3]
        };
        bounds.iter().map(pick).collect()
    }

    fn holds(bounds: &Bounds, values: &[f32]) -> bool {
        values.len() == bounds.lo.len() && bounds.iter().zip(values).all(|(x, v)| x.holds(*v))
    }

    fn q8_0(seed: u64, rows: usize) -> Matrix {
        let bytes = (0..rows as u64).flat_map(|row| encode_q8_0(&terms(seed + row, WIDTH)));
        Matrix::new(DType::Q8_0, rows, WIDTH, Bytes::owned(bytes.collect())).unwrap()
    }

    /// Every operation on one vector of the box, with the engine's functions.
    fn evaluated(x: &[f32], weights: &[f32], matrix: &Matrix) -> (f32, Vec<f32>, f32, Vec<f32>) {
        let mut normed = vec![0.0; WIDTH];
        norm::weighted(x, weights, 1e-6, &mut normed);
        let product = quantised(matrix, &Rows::of(WIDTH, x.to_vec()));
        (norm::factor(x, 1e-6), normed, order::dot(weights, x), product.row(0).to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn every_vector_of_a_box_stays_inside(seed in any::<u64>(), ulps in 0_u32..200_000) {
            let (x, weights) = (around(seed, ulps), terms(seed ^ 5, WIDTH));
            let matrix = q8_0(seed ^ 9, 12);
            let factor = x.norm_factor(1e-6);
            let (normed, dot) = (x.scaled(factor).weighted(&weights), x.dot(&weights));
            let codes = Codes::of(&x);
            let product = codes.matmul(&matrix);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            for _ in 0..40 {
                let vector = inside(&x, &mut random);
                let (f, n, d, p) = evaluated(&vector, &weights, &matrix);
                prop_assert!(factor.holds(f) && holds(&normed, &n) && dot.holds(d));
                prop_assert!(holds(&product, &p));
                let row = Q8Row::encode(&vector);
                for (index, code) in row.quants.iter().enumerate() {
                    let place = (index / Q8_BLOCK, index % Q8_BLOCK);
                    let open = codes.open.iter().find(|open| (open.0, open.1) == place);
                    let above = i32::from(*code) - i32::from(codes.low[index]);
                    prop_assert!((0..=open.map_or(0, |open| open.2)).contains(&above));
                }
            }
        }

        #[test]
        fn a_point_has_the_bits_of_the_engine(seed in any::<u64>()) {
            let (x, weights, matrix) = (terms(seed, WIDTH), terms(!seed, WIDTH), q8_0(seed, 12));
            let point = Bounds::point(&x);
            let normed = point.scaled(point.norm_factor(1e-6)).weighted(&weights);
            let (_, n, d, p) = evaluated(&x, &weights, &matrix);
            prop_assert_eq!((normed.lo, normed.hi), (n.clone(), n));
            prop_assert_eq!(point.dot(&weights), Interval::point(d));
            let product = Codes::of(&point).matmul(&matrix);
            prop_assert_eq!((product.lo, product.hi), (p.clone(), p));
        }
    }

    #[test]
    fn a_box_that_is_too_small_is_left() {
        let (mut left, weights, matrix) = ([0; 3], terms(1, WIDTH), q8_0(2, 12));
        for seed in 0..40 {
            let x = around(seed, 4000);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let vector = inside(&x, &mut random);
            let small = Bounds::point(&vector);
            let product = Codes::of(&small).matmul(&matrix);
            let (_, n, d, p) = evaluated(&inside(&x, &mut random), &weights, &matrix);
            let normed = small.scaled(small.norm_factor(1e-6)).weighted(&weights);
            left[0] += usize::from(!holds(&normed, &n));
            left[1] += usize::from(!small.dot(&weights).holds(d));
            left[2] += usize::from(!holds(&product, &p));
        }
        assert!(left.iter().all(|left| *left > 35), "{left:?} of 40 were seen");
    }

    #[test]
    fn blocks_of_nothing_and_of_next_to_nothing() {
        let tiny = f32::from_bits(3);
        let mut x = Bounds::point(&[0.0; 64]);
        assert_eq!(Codes::of(&x).open.len(), 0);
        // Below the smallest magnitude with a finite inverse scale every code is zero, above it none need be.
        x.hi[5] = tiny;
        assert_eq!(Codes::of(&x).open.len(), 0);
        x.hi[5] = 1.0;
        let codes = Codes::of(&x);
        assert_eq!((codes.open.len(), codes.scales[0].lo), (32, 0.0));
        assert_eq!(codes.scales[1], Interval::point(0.0));
    }

    #[test]
    fn weighing_takes_corners_of_both() {
        let streams = Bounds { lo: vec![-1.0, 2.0], hi: vec![1.0, 3.0] };
        let weights = [Interval { lo: 0.5, hi: 2.0 }, Interval { lo: 1.0, hi: 1.0 }];
        let found = weigh(&streams, &weights);
        assert_eq!((found.lo, found.hi), (vec![0.0], vec![5.0]));
    }
}
