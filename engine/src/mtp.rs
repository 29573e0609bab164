//! Drafting with the multi-token-prediction block.
//!
//! Promises: an [`MtpSession`] holds the block's own key rows and can be rolled back like a main session.
//! Row `s` of the block sees rows `s - window + 1 ..= s`. Positions count the streams: the pair made of
//! the streams after token `s` is rotated as position `s` whatever token it is paired with, so a chained
//! draft follows at `s + 1`.

use crate::backend::{Backend, Call};
use crate::config::Compression;
use crate::error::Result;
use crate::forward::{self, Head};
use crate::model::{Model, MtpModel};
use crate::profile::Profile;
use crate::reference::Reference;
use crate::session::{Forward, Keep, Progress, RunError};
use crate::tap::{Observer, Place, Taps};

/// Which token the streams after a token are paired with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Streams after token `p - 1` with token `p`: the convention of training. Drafts token `p + 1`
    /// before the main model has seen token `p`.
    Previous,
    /// Streams after token `p` with token `p` itself, as ds4's plain path does.
    Same,
}

impl Pairing {
    /// The tokens to pair with the rows of `streams`, given that row `i` came after `tokens[i]`; the last
    /// row has no partner yet under [`Pairing::Previous`].
    #[must_use]
    pub fn tokens(self, tokens: &[u32]) -> &[u32] {
        match self {
            Self::Previous => tokens.get(1..).unwrap_or_default(),
            Self::Same => tokens,
        }
    }
}

/// The block's side of a sequence in progress.
pub struct MtpSession<'m, B: Backend = Reference> {
    model: &'m Model,
    block: &'m MtpModel,
    backend: &'m B,
    profile: Profile,
    state: B::State,
    progress: Progress,
}

impl<B: Backend> Clone for MtpSession<'_, B> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), progress: self.progress.clone(), ..*self }
    }
}

impl<'m> MtpSession<'m> {
    /// A sequence without rows, run by the reference.
    #[must_use]
    pub fn new(model: &'m Model, block: &'m MtpModel, profile: Profile) -> Self {
        Self::on(&Reference, model, block, profile).expect("a state without rows")
    }
}

impl<'m, B: Backend> MtpSession<'m, B> {
    /// A sequence without rows, run by `backend`.
    ///
    /// # Errors
    /// When the backend has no room for its state.
    pub fn on(
        backend: &'m B,
        model: &'m Model,
        block: &'m MtpModel,
        profile: Profile,
    ) -> Result<Self> {
        let state = backend.state(&model.config, Compression::None, None)?;
        let progress = Progress::new(model.config.context);
        Ok(Self { model, block, backend, profile, state, progress })
    }

    /// Rows in.
    #[must_use]
    pub fn length(&self) -> usize {
        self.progress.length()
    }

    /// Runs rows of `streams`, each paired with one of `tokens`. The streams returned are the input of a
    /// chained draft.
    ///
    /// # Errors
    /// As for [`crate::session::Session::forward`], and when rows and tokens differ in number.
    pub fn forward(
        &mut self,
        tokens: &[u32],
        streams: &B::Rows,
        keep: Keep,
        observer: &mut dyn Observer,
    ) -> Result<Forward<B::Rows>> {
        let count = self.backend.count(streams);
        if count != tokens.len() {
            return Err(RunError::Pairs { streams: count, tokens: tokens.len() }.into());
        }
        self.progress.begin(tokens, self.model)?;
        let call = Call::new(&self.model.config, &self.profile, tokens, self.progress.length());
        let mut taps = Taps::new(observer, Place::Mtp);
        let (main, block) = (&self.model.weights, &self.block.weights);
        let state = &mut self.state;
        let streams = forward::mtp(self.backend, &call, main, block, streams, state, &mut taps)?;
        let head = Head { hyper: &block.head, norm: &block.norm, output: &main.output };
        let logits = forward::logits(self.backend, &call, keep, &streams, &head, &mut taps)?;
        self.progress.commit(tokens.len());
        Ok(Forward { logits, streams })
    }

    /// Goes back to the first `length` rows.
    ///
    /// # Errors
    /// As for [`crate::session::Session::rollback`].
    pub fn rollback(&mut self, length: usize) -> Result<()> {
        self.progress.rollback(length)?;
        self.backend.truncate(&mut self.state, length);
        Ok(())
    }

    /// Shows every row that a later one can read: kind, position, values.
    pub fn visit_state(&self, visit: &mut dyn FnMut(&'static str, usize, &[f32])) {
        self.backend.visit(&self.state, self.length(), visit);
    }
}
