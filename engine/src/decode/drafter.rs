//! Who proposes drafts: nobody, or the multi-token-prediction block.
//!
//! Promises: the state of [`MtpDrafter`] after a commit is a function of the committed tokens alone: rows
//! made while drafting, from streams of the block itself, are taken back and made again from the main
//! model's. So it does not depend on what was drafted or rejected, and drafts see the whole context.

use crate::backend::Backend;
use crate::decode::Picker;
use crate::error::Result;
use crate::mtp::MtpSession;
use crate::session::Keep;
use crate::tap::Unobserved;

/// Proposes tokens and learns which ones the model chose.
pub trait Drafter<B: Backend> {
    /// At most `depth` tokens to follow `pending`, which is to stand at `position`.
    ///
    /// # Errors
    /// When drafting fails.
    fn propose(
        &mut self,
        pending: u32,
        position: usize,
        depth: usize,
        picker: &Picker,
    ) -> Result<Vec<u32>>;

    /// Learns that `tokens` are now in the sequence from position `start` on, with the streams after
    /// each. Calls follow each other without gaps, the prompt first.
    ///
    /// # Errors
    /// When the drafter's own model fails on them.
    fn commit(&mut self, start: usize, tokens: &[u32], streams: &B::Rows) -> Result<()>;
}

/// Proposes nothing: plain decoding.
pub struct NoDrafts;

impl<B: Backend> Drafter<B> for NoDrafts {
    fn propose(&mut self, _: u32, _: usize, _: usize, _: &Picker) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: usize, _: &[u32], _: &B::Rows) -> Result<()> {
        Ok(())
    }
}

/// Tokens with the streams after them that the block has not seen: the last one lacks its next token.
struct Unseen<B: Backend> {
    tokens: Vec<u32>,
    streams: B::Rows,
}

/// Drafts of the multi-token-prediction block, paired as it was trained: the streams after a token with the
/// token after it.
pub struct MtpDrafter<'m, B: Backend> {
    backend: &'m B,
    session: MtpSession<'m, B>,
    unseen: Option<Unseen<B>>,
}

impl<'m, B: Backend> MtpDrafter<'m, B> {
    /// A drafter that has seen nothing; `session` is one without rows.
    #[must_use]
    pub fn new(backend: &'m B, session: MtpSession<'m, B>) -> Self {
        Self { backend, session, unseen: None }
    }

    /// The block's side of the sequence: one row a committed token, less the last ones that it has not
    /// seen yet.
    #[must_use]
    pub fn session(&self) -> &MtpSession<'m, B> {
        &self.session
    }

    /// Runs the unseen rows, the last one paired with `next`.
    fn see(&mut self, next: u32, keep: Keep) -> Result<Option<crate::session::Forward<B::Rows>>> {
        let Some(unseen) = self.unseen.take() else { return Ok(None) };
        let mut paired = unseen.tokens[1..].to_vec();
        paired.push(next);
        self.session.forward(&paired, &unseen.streams, keep, &mut Unobserved).map(Some)
    }
}

impl<B: Backend> Drafter<B> for MtpDrafter<'_, B> {
    fn propose(
        &mut self,
        pending: u32,
        position: usize,
        depth: usize,
        picker: &Picker,
    ) -> Result<Vec<u32>> {
        let mut drafts = Vec::new();
        if depth == 0 {
            return Ok(drafts);
        }
        let Some(mut output) = self.see(pending, Keep::Last)? else { return Ok(drafts) };
        debug_assert_eq!(self.session.length(), position);
        loop {
            // A draft is picked as the model would pick: at the position of the token before it.
            let before = position + drafts.len();
            let draft = picker.each(self.backend, &output.logits, before)?[0];
            drafts.push(draft);
            if drafts.len() == depth {
                return Ok(drafts);
            }
            let last = self.backend.count(&output.streams) - 1;
            let streams = self.backend.slice(&output.streams, last..last + 1);
            output = self.session.forward(&[draft], &streams, Keep::Last, &mut Unobserved)?;
        }
    }

    fn commit(&mut self, start: usize, tokens: &[u32], streams: &B::Rows) -> Result<()> {
        if self.see(tokens[0], Keep::Nothing)?.is_none() {
            // The rows before were seen when drafting; those chained behind them go.
            self.session.rollback(start)?;
        }
        debug_assert_eq!(self.session.length(), start);
        self.unseen = Some(Unseen { tokens: tokens.to_vec(), streams: streams.clone() });
        Ok(())
    }
}
