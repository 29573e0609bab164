//! Root-mean-square norms.
//!
//! Promises: `y[i] = x[i] * r`, with a weight `(x[i] * r) * w[i]`, where `r = 1 / sqrt(S/n + eps)` and `S`
//! is the sum of squares in the order of float rows. Division and root are correctly rounded.

use super::order;

/// The factor `1 / sqrt(mean of squares + eps)` of a row.
#[must_use]
pub fn factor(x: &[f32], eps: f32) -> f32 {
    1.0 / (order::sum_squares(x) / x.len() as f32 + eps).sqrt()
}

/// Normalises a row in place.
pub fn plain(x: &mut [f32], eps: f32) {
    let r = factor(x, eps);
    for x in x {
        *x *= r;
    }
}

/// Normalises a row and weighs its values.
pub fn weighted(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let r = factor(x, eps);
    for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
        *out = (x * r) * w;
    }
}
