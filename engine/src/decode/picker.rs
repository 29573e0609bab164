//! Which token follows a row of logits.
//!
//! Promises: the choice depends on the row and its position alone, so it does not matter whether rows came
//! from one forward call or from several.

use crate::backend::Backend;
use crate::error::Result;
use crate::sampler::Sampler;

/// Chooses tokens.
#[derive(Clone, Debug)]
pub enum Picker {
    /// The largest logit, the lowest id among equals; found where the logits are.
    Greedy,
    /// Drawn.
    Sampled(Sampler),
}

impl Picker {
    /// The token that follows each row; the first row is that of the token at `start`.
    ///
    /// # Errors
    /// When a row is empty or holds a value that is not finite.
    pub fn each<B: Backend>(
        &self,
        backend: &B,
        logits: &B::Rows,
        start: usize,
    ) -> Result<Vec<u32>> {
        match self {
            Self::Greedy => Ok(backend.argmax(logits, start)?),
            Self::Sampled(sampler) => {
                let rows = backend.download(logits)?;
                let each = rows.iter().enumerate();
                Ok(each
                    .map(|(row, logits)| sampler.choose(logits, start + row))
                    .collect::<Result<_, _>>()?)
            }
        }
    }
}
