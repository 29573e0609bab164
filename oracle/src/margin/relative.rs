//! Relative differences with a meaning for every pair of values.
//!
//! Promises: every pair is counted once, and what has no relative difference is counted by reason, not
//! turned into NaN or left out in silence. Two zeros differ by 0. A reference of 0 against anything else has
//! no relative difference, but its absolute one is kept.

use serde::{Deserialize, Serialize};

/// Relative differences of two rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relative {
    /// Pairs with a relative difference, pairs of zeros included.
    pub compared: u64,
    /// Pairs of zeros, of either sign.
    pub both_zero: u64,
    /// Excluded: the reference is 0 and the candidate is not.
    pub reference_zero: u64,
    /// Excluded: a side is not finite.
    pub not_finite: u64,
    /// Excluded: one side has no such entry.
    pub unpaired: u64,
    /// The largest relative difference; nothing when no pair has one.
    pub largest: Option<f64>,
    /// The largest absolute difference of finite pairs, those with a reference of 0 included.
    pub largest_absolute: Option<f64>,
}

impl Relative {
    /// Compares two rows.
    #[must_use]
    pub fn of(reference: &[f32], candidate: &[f32]) -> Self {
        let unpaired = reference.len().abs_diff(candidate.len()) as u64;
        let mut found = Self { unpaired, ..Self::default() };
        for (r, c) in reference.iter().zip(candidate) {
            found.add(f64::from(*r), f64::from(*c));
        }
        found
    }

    fn add(&mut self, reference: f64, candidate: f64) {
        if !reference.is_finite() || !candidate.is_finite() {
            self.not_finite += 1;
            return;
        }
        let absolute = (candidate - reference).abs();
        self.largest_absolute = Some(self.largest_absolute.map_or(absolute, |l| l.max(absolute)));
        let relative = match (reference == 0.0, candidate == 0.0) {
            (true, true) => {
                self.both_zero += 1;
                0.0
            }
            (true, false) => {
                self.reference_zero += 1;
                return;
            }
            (false, _) => absolute / reference.abs(),
        };
        self.compared += 1;
        self.largest = Some(self.largest.map_or(relative, |largest| largest.max(relative)));
    }

    /// Pairs without a relative difference.
    #[must_use]
    pub fn excluded(&self) -> u64 {
        self.reference_zero + self.not_finite + self.unpaired
    }
}
