//! The router: which experts a token uses, and with what weight.
//!
//! Promises: scores are `sqrt(softplus(logit))`; experts come in slot order, by score plus bias descending
//! and index ascending among equals, or as the hash table lists them; weights are the unbiased scores of
//! the chosen, normalised and scaled.

use super::indexer;
use super::order::{softplus, with_fma};
use crate::backend::Call;
use crate::config::Config;
use crate::format::weights::Routing;
use crate::profile::{Profile, RouterFloor};
use crate::rows::Rows;
use crate::session::RunError;
use crate::tap::{Tap, Taps};

/// Smallest denominator of `RouterFloor::AtLeast`: 2^-14.
const FLOOR: f32 = 1.0 / 16384.0;

/// Experts of one token in slot order, and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Expert indices.
    pub experts: Vec<usize>,
    /// Weight of each.
    pub weights: Vec<f32>,
}

impl Choice {
    /// Shows experts and weights.
    ///
    /// # Errors
    /// When a weight is not finite.
    pub fn show(&self, position: usize, taps: &mut Taps<'_>) -> Result<(), RunError> {
        taps.indices(Tap::RouterExperts, position, &self.experts);
        taps.floats(Tap::RouterWeights, position, &self.weights)
    }
}

with_fma! {
    fn scores(logits: &[f32]) -> Vec<f32> {
        logits.iter().map(|logit| softplus(*logit).sqrt()).collect()
    }
}

/// Chooses the experts of a token.
#[must_use]
pub fn route(
    logits: &[f32],
    token: u32,
    routing: &Routing,
    config: &Config,
    profile: &Profile,
) -> Choice {
    let scores = scores(logits);
    let experts: Vec<usize> = match routing {
        Routing::Bias(bias) => {
            let biased: Vec<f32> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
            indexer::best(&biased, config.experts_used)
        }
        Routing::Hash(table) => {
            let start = token as usize * config.experts_used;
            table[start..start + config.experts_used].iter().map(|e| *e as usize).collect()
        }
    };
    // ORDER: slots in order.
    let sum = experts.iter().fold(0.0_f32, |sum, expert| sum + scores[*expert]);
    let denominator = match profile.router_floor {
        RouterFloor::AtLeast => sum.max(FLOOR),
        RouterFloor::Plus => sum + 1e-20,
    };
    let weights =
        experts.iter().map(|expert| scores[*expert] / denominator * config.routed_scale).collect();
    Choice { experts, weights }
}

/// Chooses the experts of all tokens of a call.
///
/// # Errors
/// When a weight is not finite.
pub fn route_all(
    call: &Call<'_>,
    logits: &Rows,
    routing: &Routing,
    taps: &mut Taps<'_>,
) -> Result<Vec<Choice>, RunError> {
    let mut choices = Vec::with_capacity(call.tokens.len());
    for (token, id) in call.tokens.iter().enumerate() {
        let choice = route(logits.row(token), *id, routing, call.config, call.profile);
        choice.show(call.start + token, taps)?;
        choices.push(choice);
    }
    Ok(choices)
}
