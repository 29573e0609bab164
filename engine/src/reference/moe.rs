//! Routed experts and the shared expert.
//!
//! Promises: an expert is `down(silu(min(gate, clamp)) * clamp(up, -clamp, clamp))`; the experts of a token
//! are added in slot order. The router's weight multiplies the inner activations before the
//! down-projection or its result after it, as the profile says.
//! ORDER: each expert's product is complete before it is added; the sum starts from `+0`.

use super::matmul::matmul;
use super::order::{fma, silu, with_fma};
use super::router::Choice;
use crate::format::weights::Expert;
use crate::profile::Profile;
use crate::rows::Rows;

with_fma! {
    /// Turns `gate` into `silu(min(gate, clamp)) * clamp(up, -clamp, clamp)`.
    pub fn gate(gate: &mut [f32], up: &[f32], clamp: Option<f32>) {
        // No clamp is one that changes nothing.
        let clamp = clamp.unwrap_or(f32::INFINITY);
        for (gate, up) in gate.iter_mut().zip(up) {
            // A comparison, because `min` would put the clamp in place of a NaN.
            let clamped = if *gate > clamp { clamp } else { *gate };
            *gate = silu(clamped) * up.clamp(-clamp, clamp);
        }
    }
}

/// Inner activations of an expert, `[n][expert_dim]`.
#[must_use]
pub fn inner(expert: &Expert, x: &Rows, clamp: Option<f32>, profile: &Profile) -> Rows {
    let mut out = matmul(&expert.gate, x, profile);
    gate(out.values_mut(), matmul(&expert.up, x, profile).values(), clamp);
    out
}

/// The chosen experts of one token, added up. Shows the inner activations of all slots to `seen`.
pub fn routed(
    experts: &[Expert],
    choice: &Choice,
    x: &Rows,
    clamp: Option<f32>,
    profile: &Profile,
    seen: &mut dyn FnMut(&[f32]),
) -> Vec<f32> {
    let mut total = vec![0.0_f32; x.width()];
    let mut inners = Vec::new();
    for (expert, weight) in choice.experts.iter().zip(&choice.weights) {
        let expert = &experts[*expert];
        let mut mid = inner(expert, x, clamp, profile);
        if profile.weight_before_down {
            for value in mid.row_mut(0) {
                *value *= weight;
            }
        }
        inners.extend_from_slice(mid.row(0));
        let down = matmul(&expert.down, &mid, profile);
        for (total, value) in total.iter_mut().zip(down.row(0)) {
            *total = if profile.weight_before_down {
                *total + value
            } else {
                fma(*value, *weight, *total)
            };
        }
    }
    seen(&inners);
    total
}
