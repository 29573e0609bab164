//! Every value that a float sum can have when its terms arrive in any order.
//!
//! Promises: a sum starts from `+0` and adds each term once, rounding to nearest after every addition.
//! Up to [`SET_TERMS_MAX`] terms the set of values is exact; up to [`EXACT_TERMS_MAX`] its smallest and
//! largest value are; beyond, [`bound`] encloses them. Nothing is sampled.
//!
//! Why subsets are enough: the last term added to a subset is one of its members, and what was there
//! before is a value of the rest. Rounding is monotone, so the smallest value of a subset comes from the
//! smallest value of the rest.

use super::interval::Interval;

/// Most terms whose set of values is kept.
pub const SET_TERMS_MAX: usize = 8;
/// Most terms whose smallest and largest value are found exactly.
pub const EXACT_TERMS_MAX: usize = 12;

/// Lists that [`Values::of`] fills again and again.
#[derive(Debug, Default)]
pub struct Values {
    /// Values of every subset, by its bits.
    subsets: Vec<Vec<f32>>,
}

impl Values {
    /// All values of the sum, ascending, each bit pattern once.
    ///
    /// # Panics
    /// With more than [`SET_TERMS_MAX`] terms.
    pub fn of(&mut self, terms: &[f32]) -> &[f32] {
        assert!(terms.len() <= SET_TERMS_MAX, "a set of {} terms", terms.len());
        let all = 1_usize << terms.len();
        if self.subsets.len() < all {
            self.subsets.resize(all, Vec::new());
        }
        self.subsets[0].clear();
        self.subsets[0].push(0.0);
        for subset in 1..all {
            let (smaller, larger) = self.subsets.split_at_mut(subset);
            let values = &mut larger[0];
            values.clear();
            for (index, term) in terms.iter().enumerate() {
                if subset & (1 << index) != 0 {
                    for before in &smaller[subset & !(1 << index)] {
                        insert(values, before + term);
                    }
                }
            }
        }
        let last = &mut self.subsets[all - 1];
        last.sort_unstable_by(f32::total_cmp);
        last
    }
}

/// Adds a bit pattern that is not there yet. There are few, so looking at all is fastest.
fn insert(values: &mut Vec<f32>, value: f32) {
    if !values.iter().any(|other| other.to_bits() == value.to_bits()) {
        values.push(value);
    }
}

/// The smallest and the largest value of the sum; nothing known when an addition overflows.
///
/// # Panics
/// With more than [`EXACT_TERMS_MAX`] terms.
#[must_use]
pub fn extremes(terms: &[f32]) -> Interval {
    assert!(terms.len() <= EXACT_TERMS_MAX, "extremes of {} terms", terms.len());
    let mut subsets = vec![Interval::point(0.0); 1 << terms.len()];
    for subset in 1..subsets.len() {
        let mut found = Interval { lo: f32::INFINITY, hi: f32::NEG_INFINITY };
        for (index, term) in terms.iter().enumerate() {
            if subset & (1 << index) != 0 {
                let rest = subsets[subset & !(1 << index)];
                let (lo, hi) = (rest.lo + term, rest.hi + term);
                if !lo.is_finite() || !hi.is_finite() {
                    return Interval::UNKNOWN;
                }
                found = Interval { lo: found.lo.min(lo), hi: found.hi.max(hi) };
            }
        }
        subsets[subset] = found;
    }
    subsets[subsets.len() - 1]
}

/// An interval that holds every value of the sum, from its exact value and the size of its terms.
///
/// With `u = 2^-24` each addition is off by at most `u` times its result, and no partial sum exceeds
/// `(1 + u)^n` times the sum of magnitudes `m`; additions whose result is subnormal are exact. So a sum of
/// `n` terms is off by at most `((1 + u)^n - 1) m`, which is below `1.01 n u m` while `n u < 0.01`.
#[must_use]
pub fn bound(terms: &[f32]) -> Interval {
    let unit = f64::from(f32::EPSILON) / 2.0;
    let count = terms.len() as f64;
    if count * unit >= 0.01 {
        return Interval::UNKNOWN;
    }
    let (mut exact, mut magnitudes) = (0.0_f64, 0.0_f64);
    // ORDER: slots in order; the slack below is far above what another order of f64 additions could change.
    for term in terms {
        exact += f64::from(*term);
        magnitudes += f64::from(term.abs());
    }
    // 2^-40 of the magnitudes is more than 2^12 additions in f64 are off by.
    let off = magnitudes * (1.01 * count * unit + 1.0 / (1_u64 << 40) as f64);
    // Rounded outwards: a conversion is to nearest, so one step more is enough.
    let (lo, hi) = (((exact - off) as f32).next_down(), ((exact + off) as f32).next_up());
    // A partial sum may be as large as all magnitudes together.
    if magnitudes * 1.02 >= f64::from(f32::MAX) {
        return Interval::UNKNOWN;
    }
    Interval { lo, hi }
}

/// The sum in this order.
#[must_use]
pub fn in_order(terms: &[f32], order: &[usize]) -> f32 {
    // ORDER: as given, from +0.
    order.iter().fold(0.0_f32, |sum, slot| sum + terms[*slot])
}

/// An order whose sum has the bits of `value`; the first one in lexical order.
#[must_use]
pub fn order_of(terms: &[f32], value: f32) -> Option<Vec<usize>> {
    fn go(terms: &[f32], sum: f32, value: f32, order: &mut Vec<usize>) -> bool {
        if order.len() == terms.len() {
            return sum.to_bits() == value.to_bits();
        }
        for slot in 0..terms.len() {
            if !order.contains(&slot) {
                order.push(slot);
                if go(terms, sum + terms[slot], value, order) {
                    return true;
                }
                order.pop();
            }
        }
        false
    }
    let mut order = Vec::with_capacity(terms.len());
    go(terms, 0.0, value, &mut order).then_some(order)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    /// Terms of sizes some powers of two apart, of both signs.
    pub fn terms(seed: u64, count: usize) -> Vec<f32> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let term = |_| {
            let mantissa = f64::from(random.next_u32()) / 4_294_967_296.0 - 0.5;
            (mantissa * libm::exp2(f64::from(random.next_u32() % 12) - 6.0)) as f32
        };
        (0..count).map(term).collect()
    }

    /// Sums of every permutation, by Heap's method: nothing in common with subsets.
    fn brute_force(terms: &[f32]) -> Vec<f32> {
        fn permute(order: &mut Vec<usize>, k: usize, each: &mut dyn FnMut(&[usize])) {
            if k <= 1 {
                each(order);
                return;
            }
            for i in 0..k {
                permute(order, k - 1, each);
                let other = if k.is_multiple_of(2) { i } else { 0 };
                order.swap(other, k - 1);
            }
        }
        let (mut order, mut sums) = ((0..terms.len()).collect(), Vec::new());
        permute(&mut order, terms.len(), &mut |order| sums.push(in_order(terms, order)));
        sums.sort_unstable_by(f32::total_cmp);
        sums.dedup_by_key(|sum| sum.to_bits());
        sums
    }

    fn same(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    }

    #[test]
    fn every_permutation_gives_the_set_and_its_ends() {
        let (mut values, mut plural) = (Values::default(), 0);
        for seed in 0..400 {
            let terms = terms(seed, 1 + seed as usize % 7);
            let brute = brute_force(&terms);
            assert!(same(values.of(&terms), &brute), "{terms:?}");
            let ends = Interval { lo: brute[0], hi: brute[brute.len() - 1] };
            assert_eq!(extremes(&terms), ends, "{terms:?}");
            let around = bound(&terms);
            assert!(around.lo < ends.lo && ends.hi < around.hi, "{terms:?}");
            plural += usize::from(brute.len() > 1);
            for value in brute {
                let order = order_of(&terms, value).expect("an order of a value of the set");
                assert_eq!(in_order(&terms, &order).to_bits(), value.to_bits());
            }
        }
        assert!(plural > 150, "only {plural} of 400 sums depend on the order");
    }

    #[test]
    fn a_term_that_is_dropped_added_twice_or_moved_by_an_ulp_leaves_the_set() {
        let (mut values, mut outside) = (Values::default(), [0; 3]);
        for seed in 0..300 {
            let terms = terms(seed, 4);
            let set = values.of(&terms).to_vec();
            let last = in_order(&terms, &[0, 1, 2, 3]);
            let faults = [last - terms[3], last + terms[1], set[set.len() - 1].next_up()];
            for (count, fault) in outside.iter_mut().zip(faults) {
                *count += usize::from(!set.iter().any(|v| v.to_bits() == fault.to_bits()));
            }
            assert_eq!(order_of(&terms, set[0].next_down()), None);
        }
        // A term below half an ulp of the others is lost in any order, so not every one shows.
        assert!(outside[0] > 290 && outside[1] > 290 && outside[2] == 300, "{outside:?}");
    }

    #[test]
    fn an_order_that_is_left_out_is_missed() {
        // Small, small, large: only adding the small ones first keeps them.
        let terms = [16_777_216.0, 1.0, 1.0];
        let set = Values::default().of(&terms).to_vec();
        assert_eq!(set, [16_777_216.0, 16_777_218.0]);
        assert_eq!(in_order(&terms, &[0, 1, 2]), set[0]);
        assert_eq!(order_of(&terms, set[1]), Some(vec![1, 2, 0]));
        let without = |left_out: f32| set.iter().filter(|v| **v != left_out).count();
        assert!(without(set[0]) < set.len() && without(set[1]) < set.len());
    }

    #[test]
    fn overflow_and_no_terms() {
        assert_eq!(Values::default().of(&[]), [0.0]);
        assert_eq!(extremes(&[]), Interval::point(0.0));
        let large = [f32::MAX, f32::MAX, -f32::MAX];
        assert_eq!((extremes(&large), bound(&large)), (Interval::UNKNOWN, Interval::UNKNOWN));
        assert!(Values::default().of(&large).iter().any(|v| v.is_infinite()));
    }

    proptest! {
        #[test]
        fn the_bound_holds_every_order_of_many_terms(seed in any::<u64>(), count in 9_usize..40) {
            let terms = terms(seed, count);
            let (around, mut random) = (bound(&terms), Xoshiro256PlusPlus::seed_from_u64(seed));
            let mut order: Vec<usize> = (0..count).collect();
            for _ in 0..50 {
                for i in (1..count).rev() {
                    order.swap(i, random.next_u32() as usize % (i + 1));
                }
                prop_assert!(around.holds(in_order(&terms, &order)));
            }
        }
    }
}
