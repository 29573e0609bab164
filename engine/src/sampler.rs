//! Choosing a token from a row of logits.
//!
//! Promises: the largest logit wins, the lowest id among equals; a row that is empty or holds NaN or
//! infinity is an error, never a token. Sampling is in `draw`, log-probabilities in `logprobs`; both
//! refuse the same rows.

mod draw;
mod logprobs;

pub use draw::{Sampler, SamplerOptions};
pub use logprobs::{Logprob, Logprobs};

use crate::session::RunError;
use crate::tap::{Place, Site, Tap};

/// The greedy choice.
///
/// # Errors
/// When the row is empty or an entry is not finite; `position` is what the error names.
pub fn argmax(logits: &[f32], position: usize) -> Result<u32, RunError> {
    let mut best = *logits.first().ok_or(RunError::NoLogits)?;
    let mut id = 0;
    for (index, logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            let site = Site { place: Place::Output, tap: Tap::Logits, position };
            return Err(RunError::NotFinite { site, index, bits: logit.to_bits() });
        }
        if *logit > best {
            (best, id) = (*logit, index);
        }
    }
    Ok(u32::try_from(id).expect("a vocabulary has at most 2^24 entries"))
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{RngCore, SeedableRng};

    use super::*;

    /// A seeded row of logits in `[-1, 1)`, with many ties.
    pub fn row(seed: u64, width: usize) -> Vec<f32> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..width).map(|_| (random.next_u32() >> 24) as f32 / 128.0 - 1.0).collect()
    }

    #[test]
    fn ties_go_to_the_lowest_id() {
        let mut row = vec![-1.0_f32; 512];
        for (a, b) in [(5, 256), (255, 256), (5, 261), (0, 511)] {
            row.fill(-1.0);
            (row[a], row[b]) = (2.0, 2.0);
            assert_eq!(argmax(&row, 0).unwrap() as usize, a);
        }
        row.fill(0.0);
        assert_eq!(argmax(&row, 0).unwrap(), 0);
        assert_eq!(argmax(&[-0.0, 0.0], 0).unwrap(), 0, "zeros of both signs are equal");
    }

    #[test]
    fn nan_and_infinity_are_errors_that_name_position_and_id() {
        for (index, value) in [(0, f32::NAN), (200, f32::INFINITY), (511, f32::NEG_INFINITY)] {
            let mut row = vec![1.0_f32; 512];
            row[index] = value;
            let error = argmax(&row, 77).unwrap_err();
            assert!(matches!(error, RunError::NotFinite { index: i, .. } if i == index));
            let text = error.to_string();
            assert!(text.contains("position 77") && text.contains(&format!("element {index}")));
        }
        assert!(matches!(argmax(&[], 0), Err(RunError::NoLogits)));
    }
}
