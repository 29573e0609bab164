//! Generating tokens: plainly, or speculatively with drafts that the model verifies.
//!
//! Promises: a [`Decoder`] emits the same tokens, and leaves the same state after every round, whatever
//! drafter proposes and however many drafts a round has. *Combined* verification runs the pending token
//! and its drafts in one forward call and takes back what was rejected; *strict* verification runs one
//! token a call, which is plain decoding. The emitted token of a position depends on the logits there and
//! on the position alone.
//! Leaves proposing to a [`Drafter`], the choice of one token to a [`Picker`].

mod drafter;
mod picker;
mod probe;
mod scripted;

pub use drafter::{Drafter, MtpDrafter, NoDrafts};
pub use picker::Picker;
pub use probe::{Probe, probe};
pub use scripted::{Script, ScriptedDrafter};

use crate::backend::Backend;
use crate::error::Result;
use crate::session::{Keep, Session};
use crate::state::ROLLBACK_MAX;
use crate::tap::Observer;

/// The most drafts that a round can have: all of them can be taken back.
pub const DEPTH_MAX: usize = ROLLBACK_MAX;

/// How the drafts of a round are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Pending token and drafts in one forward call.
    Combined,
    /// One token a forward call, as without drafts.
    Strict,
}

impl Verification {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Combined => "combined",
            Self::Strict => "strict",
        }
    }
}

/// How to generate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Drafts of a round at most, 0 to [`DEPTH_MAX`].
    pub depth: usize,
    /// How they are verified.
    pub verification: Verification,
    /// Tokens that end the generation; the one that does is emitted.
    pub stop: Vec<u32>,
    /// Tokens to emit at most.
    pub tokens: usize,
    /// Tokens of the prompt in one forward call.
    pub chunk: usize,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop token was emitted.
    Stop(u32),
    /// As many tokens as asked for were emitted.
    Tokens,
    /// The context is full.
    Context,
}

/// What a round did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Tokens emitted: accepted drafts, then the model's own.
    pub emitted: Vec<u32>,
    /// Drafts proposed.
    pub proposed: usize,
    /// How many of them, from the first on, the model chose too.
    pub accepted: usize,
}

/// Drafts proposed and accepted at each place of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// Rounds that had a draft at this place.
    pub proposed: [u64; DEPTH_MAX],
    /// Rounds whose draft at this place was accepted.
    pub accepted: [u64; DEPTH_MAX],
}

impl Acceptance {
    fn count(&mut self, round: &Round) {
        self.proposed[..round.proposed].iter_mut().for_each(|count| *count += 1);
        self.accepted[..round.accepted].iter_mut().for_each(|count| *count += 1);
    }

    /// Drafts proposed in all.
    #[must_use]
    pub fn proposed_total(&self) -> u64 {
        total(&self.proposed)
    }

    /// Drafts accepted in all.
    #[must_use]
    pub fn accepted_total(&self) -> u64 {
        total(&self.accepted)
    }

    /// Drafts rejected in all: those behind a rejected one are not judged and count as rejected.
    #[must_use]
    pub fn rejected_total(&self) -> u64 {
        self.proposed_total() - self.accepted_total()
    }
}

fn total(counts: &[u64; DEPTH_MAX]) -> u64 {
    let mut total = 0;
    for count in counts {
        total += count;
    }
    total
}

/// A generation in progress: everything emitted is in the session, but for the pending token.
pub struct Decoder<'m, B: Backend> {
    session: Session<'m, B>,
    picker: Picker,
    options: Options,
    pending: u32,
    emitted: usize,
    end: Option<End>,
    acceptance: Acceptance,
}

impl<'m, B: Backend> Decoder<'m, B> {
    /// Runs `prompt` and emits the first token ([`Decoder::pending`]).
    ///
    /// # Errors
    /// As for [`Session::forward`], and when the options cannot be met.
    ///
    /// # Panics
    /// When the options ask for chunks of no tokens, for no tokens at all or for more than [`DEPTH_MAX`]
    /// drafts.
    pub fn start(
        mut session: Session<'m, B>,
        prompt: &[u32],
        picker: Picker,
        options: Options,
        drafter: &mut dyn Drafter<B>,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        assert!(options.chunk > 0 && options.tokens > 0 && options.depth <= DEPTH_MAX);
        let chunks = prompt.len().div_ceil(options.chunk).max(1);
        let mut pending = 0;
        for index in 0..chunks {
            let end = prompt.len().min((index + 1) * options.chunk);
            let tokens = &prompt[index * options.chunk..end];
            let start = session.length();
            let keep = if index + 1 == chunks { Keep::Last } else { Keep::Nothing };
            let output = session.forward(tokens, keep, observer)?;
            drafter.commit(start, tokens, &output.streams)?;
            if keep == Keep::Last {
                pending = picker.each(session.backend(), &output.logits, session.length() - 1)?[0];
            }
        }
        let mut decoder = Self {
            session,
            picker,
            options,
            pending,
            emitted: 0,
            end: None,
            acceptance: Acceptance::default(),
        };
        decoder.emit(pending);
        Ok(decoder)
    }

    /// The token emitted last, which the session does not hold yet.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.pending
    }

    /// Why the generation ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// The sequence: the prompt and everything emitted but the pending token.
    #[must_use]
    pub fn session(&self) -> &Session<'m, B> {
        &self.session
    }

    /// Drafts proposed and accepted so far.
    #[must_use]
    pub fn acceptance(&self) -> &Acceptance {
        &self.acceptance
    }

    /// Emits a token and notes whether it is the last one.
    fn emit(&mut self, token: u32) {
        self.pending = token;
        self.emitted += 1;
        self.end = if self.options.stop.contains(&token) {
            Some(End::Stop(token))
        } else if self.emitted == self.options.tokens {
            Some(End::Tokens)
        } else if self.session.room() == 0 {
            Some(End::Context)
        } else {
            None
        };
    }

    /// Runs the pending token with the drafts that `drafter` proposes to follow it. Emits at least one
    /// token, unless the generation has ended.
    ///
    /// # Errors
    /// As for [`Session::forward`]; no token was emitted then.
    pub fn round(
        &mut self,
        drafter: &mut dyn Drafter<B>,
        observer: &mut dyn Observer,
    ) -> Result<Round> {
        if self.end.is_some() {
            return Ok(Round { emitted: Vec::new(), proposed: 0, accepted: 0 });
        }
        // A draft past the last token to emit, or past the context, could never be committed.
        let left = self.options.tokens - self.emitted - 1;
        let depth = self.options.depth.min(left).min(self.session.room() - 1);
        let mut drafts =
            drafter.propose(self.pending, self.session.length(), depth, &self.picker)?;
        drafts.truncate(depth);
        let round = match self.options.verification {
            Verification::Combined => self.combined(&drafts, drafter, observer)?,
            Verification::Strict => self.strict(&drafts, drafter, observer)?,
        };
        self.acceptance.count(&round);
        Ok(round)
    }

    fn combined(
        &mut self,
        drafts: &[u32],
        drafter: &mut dyn Drafter<B>,
        observer: &mut dyn Observer,
    ) -> Result<Round> {
        let start = self.session.length();
        let tokens: Vec<u32> =
            std::iter::once(self.pending).chain(drafts.iter().copied()).collect();
        let output = self.session.forward(&tokens, Keep::All, observer)?;
        let picked = self.picker.each(self.session.backend(), &output.logits, start)?;
        let accepted = drafts.iter().zip(&picked).take_while(|(draft, own)| draft == own).count();
        // Nothing may follow a stop token, so a draft behind one is not accepted.
        let stop = |token: &u32| self.options.stop.contains(token);
        let accepted = drafts[..accepted].iter().position(stop).unwrap_or(accepted);
        let kept = accepted + 1;
        self.session.rollback(start + kept)?;
        let streams = self.session.backend().slice(&output.streams, 0..kept);
        drafter.commit(start, &tokens[..kept], &streams)?;
        let emitted = picked[..kept].to_vec();
        emitted.iter().for_each(|token| self.emit(*token));
        Ok(Round { emitted, proposed: drafts.len(), accepted })
    }

    fn strict(
        &mut self,
        drafts: &[u32],
        drafter: &mut dyn Drafter<B>,
        observer: &mut dyn Observer,
    ) -> Result<Round> {
        let mut round = Round { emitted: Vec::new(), proposed: drafts.len(), accepted: 0 };
        loop {
            let (start, token) = (self.session.length(), [self.pending]);
            let output = self.session.forward(&token, Keep::Last, observer)?;
            let picked = self.picker.each(self.session.backend(), &output.logits, start)?[0];
            drafter.commit(start, &token, &output.streams)?;
            self.emit(picked);
            round.emitted.push(picked);
            if self.end.is_some() || drafts.get(round.accepted) != Some(&picked) {
                return Ok(round);
            }
            round.accepted += 1;
        }
    }
}
