//! Sampling: filters, and a draw that depends on seed and position only.
//!
//! Promises: a token is a function of options, logits and position. The random number of a position is
//! made from the seed and that position alone, so rows may be asked about in any order, again, or not
//! at all (drafts that are thrown away) and every other row has the token it would have had.
//!
//! # The order
//!
//! Candidates are ordered by logit, largest first, lowest id first among equals; zeros of both signs
//! are equal. Every filter keeps the front part of that order:
//!
//! 1. **temperature**: weight `exp((logit - largest) / temperature)`; difference and quotient in f64,
//!    rounded once to f32 for `reference::order::exp`. The first candidate weighs exactly 1.
//! 2. **top-k**: the first `top_k` candidates. A tie at the cut goes to the lower ids.
//! 3. **top-p**: the fewest candidates whose weights reach `top_p` times the weight of what top-k left.
//! 4. **min-p**: candidates that weigh at least `min_p` times the first. Equals stay or go together.
//! 5. **draw**: the first candidate at which the running sum of weights exceeds `u` times their total.
//!
//! ORDER: all sums are f64, from zero, in the order of the candidates. Temperature 0 is `argmax`: no
//! filter and no random number takes part.

use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use super::argmax;
use crate::reference::order;
use crate::session::RunError;

/// What is left of a distribution before a token is drawn from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; finite, 0 or more. 0 is the greedy choice.
    pub temperature: f32,
    /// Most candidates; 0 is no limit.
    pub top_k: usize,
    /// Share of the probability to keep, above 0, at most 1; 1 keeps all.
    pub top_p: f32,
    /// Least probability in parts of the largest, 0 or more, below 1; 0 keeps all.
    pub min_p: f32,
    /// Seed of every random number.
    pub seed: u64,
}

impl Default for SamplerOptions {
    /// The greedy choice, and filters that keep everything.
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

impl SamplerOptions {
    fn check(&self) -> Result<(), RunError> {
        let Self { temperature, top_p, min_p, .. } = *self;
        let finite = temperature.is_finite() && temperature >= 0.0;
        let rules = [
            ("temperature", temperature, finite, "finite and 0 or more"),
            ("top_p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1"),
            ("min_p", min_p, (0.0..1.0).contains(&min_p), "0 or more and below 1"),
        ];
        for (field, value, holds, rule) in rules {
            if !holds {
                return Err(RunError::Sampling { field, value, rule });
            }
        }
        Ok(())
    }
}

/// Draws tokens; holds no state that a draw changes.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    id: u32,
    /// Probability in parts of the largest.
    weight: f32,
}

impl Sampler {
    /// A sampler of these options.
    ///
    /// # Errors
    /// When an option is not a number or outside its range.
    pub fn new(options: SamplerOptions) -> Result<Self, RunError> {
        options.check()?;
        Ok(Self { options })
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// The token after `position`, whose logits these are.
    ///
    /// # Errors
    /// When the row is empty or an entry is not finite; the error names `position` and the entry.
    pub fn choose(&self, logits: &[f32], position: usize) -> Result<u32, RunError> {
        let best = argmax(logits, position)?;
        if self.options.temperature == 0.0 {
            return Ok(best);
        }
        let kept = self.kept(logits, logits[best as usize]);
        Ok(pick(&kept, uniform(self.options.seed, position)))
    }

    /// The candidates that pass all filters, in their order.
    fn kept(&self, logits: &[f32], largest: f32) -> Vec<Candidate> {
        let SamplerOptions { temperature, top_k, top_p, min_p, .. } = self.options;
        let weight = |logit: f32| {
            let distance = f64::from(logit) - f64::from(largest);
            order::exp((distance / f64::from(temperature)) as f32)
        };
        let candidate = |id: u32| Candidate { id, weight: weight(logits[id as usize]) };
        let mut kept: Vec<_> = ranked(logits, top_k).into_iter().map(candidate).collect();
        if top_p < 1.0 {
            let enough = f64::from(top_p) * total(&kept);
            let mut sum = 0.0;
            // ORDER: candidates in their order.
            let reached = kept.iter().position(|candidate| {
                sum += f64::from(candidate.weight);
                sum >= enough
            });
            kept.truncate(reached.map_or(kept.len(), |last| last + 1));
        }
        let light = kept.iter().position(|candidate| candidate.weight < min_p);
        kept.truncate(light.unwrap_or(kept.len()));
        kept
    }
}

/// The ids of the `limit` largest logits (0: of all), largest first, lowest id first among equals.
pub(super) fn ranked(logits: &[f32], limit: usize) -> Vec<u32> {
    // One integer a candidate, smaller for the better one: sorting is exact and has no ties.
    let key = |(id, logit): (usize, &f32)| {
        // Adding zero makes zeros of both signs one.
        let bits = (logit + 0.0).to_bits();
        let rising = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        (u64::from(!rising) << 32) | id as u64
    };
    let mut keys: Vec<u64> = logits.iter().enumerate().map(key).collect();
    if (1..keys.len()).contains(&limit) {
        keys.select_nth_unstable(limit - 1);
        keys.truncate(limit);
    }
    keys.sort_unstable();
    keys.into_iter().map(|key| key as u32).collect()
}

fn total(candidates: &[Candidate]) -> f64 {
    // ORDER: candidates in their order, from zero.
    candidates.iter().fold(0.0, |sum, candidate| sum + f64::from(candidate.weight))
}

/// The first candidate at which the running sum of weights exceeds `u` times their total.
fn pick(kept: &[Candidate], u: f64) -> u32 {
    let target = u * total(kept);
    let (mut sum, mut chosen) = (0.0, kept[0].id);
    for candidate in kept {
        // A weight that is zero moves no sum. If rounding brings the target up to the total, the last
        // candidate that weighs anything is taken.
        if candidate.weight > 0.0 {
            chosen = candidate.id;
        }
        sum += f64::from(candidate.weight);
        if sum > target {
            break;
        }
    }
    chosen
}

/// A number in `[0, 1)` from seed and position: the seed is mixed before the position meets it and both
/// are mixed again, so that neither neighbours nor a swap of the two share anything; the first 53 bits of
/// the generator that this seeds are taken.
fn uniform(seed: u64, position: usize) -> f64 {
    let mixed = |word: u64| SplitMix64::seed_from_u64(word).next_u64();
    let word = mixed(mixed(seed) ^ position as u64);
    let bits = Xoshiro256PlusPlus::seed_from_u64(word).next_u64() >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
