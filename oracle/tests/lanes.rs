//! The bound lane on planted faults of matrix products: a bound derived from the terms finds all ten in at
//! least 98 of 100 trials and raises no alarm at any scale, where a constant on the mean square error misses
//! those of a single row in most trials, and every single term in some.
//!
//! A trial is a product of 32 rows of 256 terms with other weights each time. Honest runs add the same terms
//! in another order.

use oracle::reachable::sums::{bound, in_order};

const ROWS: usize = 32;
const TERMS: usize = 256;
const TRIALS: usize = 100;
/// The constant that the bound is compared with, in use elsewhere.
const MEAN_SQUARE: f64 = 5e-4;

/// A product: weights with scales of blocks of 32, and activations.
struct Product {
    weights: Vec<[f32; TERMS]>,
    scales: Vec<[f32; TERMS / 32]>,
    x: [f32; TERMS],
}

fn random(state: &mut u64) -> f32 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    ((*state >> 40) as f32 / (1 << 23) as f32) - 1.0
}

impl Product {
    fn new(seed: u64, scale: f32) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let weights = (0..ROWS).map(|_| std::array::from_fn(|_| random(&mut state))).collect();
        let size = |x: f32| (1.0 + x / 2.0) * scale;
        let scales = (0..ROWS).map(|_| std::array::from_fn(|_| size(random(&mut state)))).collect();
        Self { weights, scales, x: std::array::from_fn(|_| random(&mut state)) }
    }

    fn term(&self, row: usize, index: usize) -> f32 {
        self.weights[row][index] * self.scales[row][index / 32] * self.x[index]
    }

    fn terms(&self, row: usize) -> Vec<f32> {
        (0..TERMS).map(|index| self.term(row, index)).collect()
    }
}

/// The terms of a row as a kernel at fault makes them.
fn faulty(product: &Product, row: usize, fault: usize) -> Vec<f32> {
    let mut terms = product.terms(row);
    let (w, x) = (&product.weights[row], &product.x);
    match fault {
        0 => terms[TERMS - 1] = 0.0,           // the last term
        1 => terms[32..64].fill(0.0),          // a block
        2 => terms.push(product.term(row, 0)), // a term twice
        3 => terms[7] = -terms[7],             // a sign
        4 => (64..96).for_each(|i| terms[i] *= product.scales[row][3] / product.scales[row][2]),
        5 => terms[100] = w[100] * product.scales[row][3] * x[101], // the next activation
        6 if row == ROWS - 1 => terms = product.terms(row - 1),     // the last row
        7 if row == 5 => terms[0] = 0.0,                            // a term of one row
        8 => terms[31] = w[31] * product.scales[row][1] * x[31],    // the scale of the next block
        9 => terms[200] = w[201] * product.scales[row][6] * x[200], // the next weight
        _ => {}
    }
    terms
}

fn order(seed: u64, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed + 77;
    for last in (1..count).rev() {
        let other = ((random(&mut state) + 1.0) / 2.0 * (last + 1) as f32) as usize;
        order.swap(last, other.min(last));
    }
    order
}

/// Whether the bound, and whether the constant, sees something in a product of these terms.
fn seen(product: &Product, ours: &dyn Fn(usize) -> f32) -> [bool; 2] {
    let (mut outside, mut error, mut square) = (false, 0.0, 0.0);
    for row in 0..ROWS {
        let terms = product.terms(row);
        let exact = terms.iter().fold(0.0, |sum, term| sum + f64::from(*term));
        let ours = ours(row);
        outside |= !bound(&terms).holds(ours);
        error += (f64::from(ours) - exact).powi(2);
        square += exact * exact;
    }
    [outside, error / square > MEAN_SQUARE]
}

#[test]
fn item_4_a_derived_bound_finds_ten_faults_of_products_and_raises_no_alarm_at_three_scales() {
    for scale in [1e-4, 1.0, 1e4] {
        let mut found = [[0; 2]; 10];
        for trial in 0..TRIALS {
            let product = Product::new(trial as u64, scale);
            let order = order(trial as u64, TERMS);
            let honest = |row| in_order(&product.terms(row), &order);
            assert!(!seen(&product, &honest)[0], "an alarm at scale {scale}, trial {trial}");
            for (fault, found) in found.iter_mut().enumerate() {
                let ours = |row| faulty(&product, row, fault).iter().fold(0.0, |sum, x| sum + x);
                let [by_bound, by_constant] = seen(&product, &ours);
                found[0] += usize::from(by_bound);
                found[1] += usize::from(by_constant);
            }
        }
        for (fault, [by_bound, _]) in found.iter().enumerate() {
            assert!(*by_bound * 100 >= 98 * TRIALS, "scale {scale}, fault {fault}: {by_bound}");
        }
        let missed = found.iter().filter(|[_, by_constant]| *by_constant * 2 < TRIALS).count();
        assert!(missed >= 2, "the constant misses {missed} of 10 in most trials: {found:?}");
    }
}
