//! Drafters for tests: right on purpose, wrong on purpose.
//!
//! Promises: a [`ScriptedDrafter`] knows what the model will choose, because it runs the model ahead in a
//! session of its own; its script says how many drafts of a round are right. Costs as much as decoding.

use crate::backend::Backend;
use crate::decode::{Drafter, Picker};
use crate::error::Result;
use crate::session::{Keep, Session};
use crate::tap::Unobserved;

/// How many drafts of a round are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// All: the drafter is the model.
    All,
    /// None.
    Nothing,
    /// These numbers, round after round, from the start again at the end.
    Cycle(Vec<usize>),
}

impl Script {
    fn right(&self, round: usize, depth: usize) -> usize {
        match self {
            Self::All => depth,
            Self::Nothing => 0,
            Self::Cycle(counts) => counts[round % counts.len()].min(depth),
        }
    }
}

/// A drafter whose acceptance is known beforehand.
pub struct ScriptedDrafter<'m, B: Backend> {
    /// Runs ahead; what it holds beyond the committed tokens is in `ahead`.
    session: Session<'m, B>,
    ahead: Vec<u32>,
    script: Script,
    rounds: usize,
}

impl<'m, B: Backend> ScriptedDrafter<'m, B> {
    /// A drafter that has seen nothing; `session` is one without tokens.
    #[must_use]
    pub fn new(session: Session<'m, B>, script: Script) -> Self {
        Self { session, ahead: Vec::new(), script, rounds: 0 }
    }

    /// Goes back to the first `length` tokens.
    fn forget(&mut self, length: usize) -> Result<()> {
        self.ahead.clear();
        if length < self.session.length() { self.session.rollback(length) } else { Ok(()) }
    }

    fn run(&mut self, token: u32, picker: &Picker) -> Result<u32> {
        let position = self.session.length();
        let output = self.session.forward(&[token], Keep::Last, &mut Unobserved)?;
        self.ahead.push(token);
        Ok(picker.each(self.session.backend(), &output.logits, position)?[0])
    }
}

impl<B: Backend> Drafter<B> for ScriptedDrafter<'_, B> {
    fn propose(
        &mut self,
        pending: u32,
        position: usize,
        depth: usize,
        picker: &Picker,
    ) -> Result<Vec<u32>> {
        self.forget(position)?;
        let right = self.script.right(self.rounds, depth);
        self.rounds += 1;
        let vocabulary = self.session.model().config.vocabulary as u32;
        let (mut drafts, mut last) = (Vec::new(), pending);
        for place in 0..depth {
            let own = self.run(last, picker)?;
            // The first wrong draft is wrong for sure; those behind it follow from it.
            last = if place == right { (own + 1) % vocabulary } else { own };
            drafts.push(last);
        }
        Ok(drafts)
    }

    fn commit(&mut self, start: usize, tokens: &[u32], _: &B::Rows) -> Result<()> {
        let same = self.ahead.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        if same < tokens.len() {
            self.forget(start + same)?;
            self.session.forward(&tokens[same..], Keep::Nothing, &mut Unobserved)?;
        } else {
            // What is left may still be confirmed by a later commit of the same round.
            self.ahead.drain(..same);
        }
        Ok(())
    }
}
