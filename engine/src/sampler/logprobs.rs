//! Log-probabilities of a row of logits.
//!
//! Promises: natural logarithms of the softmax of the logits as they are, before temperature and filters;
//! none is above 0 and their exponentials add up to 1 within rounding.
//!
//! ORDER: the normaliser is an f64 sum over ascending ids of `reference::order::exp` of f32 differences
//! to the largest logit; it is at least 1, because the largest adds exactly 1.

use super::argmax;
use crate::reference::order;
use crate::session::RunError;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub id: u32,
    /// At most 0.
    pub logprob: f64,
}

/// Log-probabilities of one row.
#[derive(Clone, Copy, Debug)]
pub struct Logprobs<'a> {
    logits: &'a [f32],
    largest: f32,
    log_total: f64,
}

impl<'a> Logprobs<'a> {
    /// Of the logits after `position`.
    ///
    /// # Errors
    /// When the row is empty or an entry is not finite; the error names `position` and the entry.
    pub fn of(logits: &'a [f32], position: usize) -> Result<Self, RunError> {
        let largest = logits[argmax(logits, position)? as usize];
        let mut total = 0.0;
        // ORDER: ids ascending.
        for logit in logits {
            total += f64::from(order::exp(logit - largest));
        }
        Ok(Self { logits, largest, log_total: libm::log(total) })
    }

    /// That of one token; none when the row has no such id.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<f64> {
        let logit = *self.logits.get(id as usize)?;
        Some(f64::from(logit) - f64::from(self.largest) - self.log_total)
    }

    /// Those of the `count` most likely tokens, most likely first, lowest id first among equals.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<Logprob> {
        if count == 0 {
            return Vec::new();
        }
        let with = |id| Some(Logprob { id, logprob: self.token(id)? });
        super::draw::ranked(self.logits, count).into_iter().filter_map(with).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    /// Softmax by the textbook in f64.
    fn expected(logits: &[f32]) -> Vec<f64> {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |max, logit| max.max(*logit));
        let powers: Vec<f64> =
            logits.iter().map(|logit| libm::exp(f64::from(*logit) - f64::from(largest))).collect();
        let total = powers.iter().fold(0.0, |sum, power| sum + power);
        powers.into_iter().map(|power| power / total).collect()
    }

    #[test]
    fn they_are_logarithms_of_the_softmax_and_never_above_zero() {
        for (seed, shift) in [(1, 0.0), (2, 40.0), (3, -40.0), (4, 3000.0)] {
            let logits: Vec<f32> = row(seed, 700).iter().map(|logit| logit * 6.0 + shift).collect();
            let of = Logprobs::of(&logits, 0).unwrap();
            let all = of.top(logits.len());
            assert_eq!(all.len(), logits.len());
            let mut sum = 0.0;
            for Logprob { id, logprob } in &all {
                assert!(*logprob <= 0.0, "{id}: {logprob}");
                let truth = libm::log(expected(&logits)[*id as usize]);
                assert!((logprob - truth).abs() < 1e-6, "{id}: {logprob} is not {truth}");
                assert_eq!(of.token(*id), Some(*logprob));
                sum += libm::exp(*logprob);
            }
            assert!((sum - 1.0).abs() < 1e-6, "add up to {sum}");
            assert_eq!(all[0].id, argmax(&logits, 0).unwrap());
            assert!(all.windows(2).all(|pair| pair[0].logprob >= pair[1].logprob));
        }
    }

    #[test]
    fn some_are_the_first_of_all_and_add_up_to_at_most_one() {
        let logits = row(5, 300);
        let of = Logprobs::of(&logits, 0).unwrap();
        let all = of.top(300);
        for count in [0, 1, 2, 20, 299, 300, 301] {
            let top = of.top(count);
            assert_eq!(top, all[..count.min(300)]);
            let sum = top.iter().fold(0.0, |sum, entry| sum + libm::exp(entry.logprob));
            assert!(sum <= 1.0 + 1e-6, "{count}: {sum}");
        }
        assert_eq!(of.token(300), None);
    }

    #[test]
    fn hand_computed_rows() {
        let quarter = Logprobs::of(&[3.0; 4], 0).unwrap().top(2);
        let log = -2.0 * std::f64::consts::LN_2;
        assert_eq!(quarter, [0, 1].map(|id| Logprob { id, logprob: log }), "ties by id");
        let certain = Logprobs::of(&[-500.0, 500.0, -3e38], 0).unwrap();
        assert_eq!(certain.top(1), [Logprob { id: 1, logprob: 0.0 }]);
        assert_eq!(certain.token(0), Some(-1000.0), "no underflow in the logarithm");
        let widest = Logprobs::of(&[f32::MAX, f32::MIN], 0).unwrap();
        assert_eq!(widest.token(0), Some(0.0));
        assert!(widest.token(1).unwrap().is_finite());
    }

    #[test]
    fn rows_without_a_distribution_are_errors_that_name_position_and_id() {
        assert!(matches!(Logprobs::of(&[], 0), Err(RunError::NoLogits)));
        let text = Logprobs::of(&[0.0, f32::NAN], 9).unwrap_err().to_string();
        assert!(text.contains("position 9") && text.contains("element 1"), "{text}");
    }
}
