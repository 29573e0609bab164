//! Log-probabilities of the emitted tokens.
//!
//! Promises: those of the logits that each token was chosen from, whatever drafts stood beside them; a
//! row at the same position that was computed for a rejected draft is not used.

use std::collections::BTreeMap;

use engine::Error;
use engine::sampler::Logprobs;
use engine::tap::{Observer, Place, Site, Tap, Values};
use serde::Serialize;

use crate::error::Result;

/// A token and the natural logarithm of its probability.
#[derive(Serialize)]
pub struct Likely {
    id: u32,
    logprob: f64,
}

/// An emitted token, its log-probability and the most likely tokens at its place.
#[derive(Serialize)]
pub struct Entry {
    #[serde(flatten)]
    token: Likely,
    top: Vec<Likely>,
}

/// Looks at logits, if log-probabilities are asked for.
pub struct Watch {
    top: Option<usize>,
    /// Position of the token that the next emitted one follows.
    position: usize,
    /// Logits of the round, by position.
    rows: BTreeMap<usize, Vec<f32>>,
    entries: Vec<Entry>,
}

impl Watch {
    /// Watches a generation from a prompt of so many tokens.
    pub fn new(top: Option<usize>, prompt: usize) -> Self {
        Self { top, position: prompt - 1, rows: BTreeMap::new(), entries: Vec::new() }
    }

    /// Notes what a round emitted.
    pub fn emitted(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(count) = self.top else { return Ok(()) };
        for id in tokens {
            let row = &self.rows[&self.position];
            let logprobs = Logprobs::of(row, self.position).map_err(Error::from)?;
            let logprob = logprobs.token(*id).expect("an emitted token has a logit");
            let top = logprobs.top(count).into_iter();
            let top = top.map(|one| Likely { id: one.id, logprob: one.logprob }).collect();
            self.entries.push(Entry { token: Likely { id: *id, logprob }, top });
            self.position += 1;
        }
        self.rows.clear();
        Ok(())
    }

    /// All entries, if they were asked for.
    pub fn finish(self) -> Option<Vec<Entry>> {
        self.top.map(|_| self.entries)
    }
}

impl Observer for Watch {
    fn wants(&self, tap: Tap) -> bool {
        self.top.is_some() && tap == Tap::Logits
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        if let (Place::Output, Values::F32(row)) = (site.place, values) {
            self.rows.insert(site.position, row.to_vec());
        }
    }
}
