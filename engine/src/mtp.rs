//! Drafting with the multi-token-prediction block.
//!
//! Promises: an [`MtpSession`] holds the block's own key rows and can be rolled back like a main session.
//! Row `s` of the block sees rows `s - window + 1 ..= s`. Positions count the streams: the pair made of
//! the streams after token `s` is rotated as position `s` whatever token it is paired with, so a chained
//! draft follows at `s + 1`.

use crate::error::Result;
use crate::model::{Model, MtpModel};
use crate::profile::Profile;
use crate::reference::layer::Call;
use crate::reference::mtp::{self, MtpOutput};
use crate::reference::state::LayerState;
use crate::rows::Rows;
use crate::session::{Progress, RunError};
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
#[derive(Clone)]
pub struct MtpSession<'m> {
    model: &'m Model,
    block: &'m MtpModel,
    profile: Profile,
    state: LayerState,
    progress: Progress,
}

impl<'m> MtpSession<'m> {
    /// A sequence without rows.
    #[must_use]
    pub fn new(model: &'m Model, block: &'m MtpModel, profile: Profile) -> Self {
        let state = LayerState::new(&model.config, crate::config::Compression::None);
        Self { model, block, profile, state, progress: Progress::default() }
    }

    /// Rows in.
    #[must_use]
    pub fn length(&self) -> usize {
        self.progress.length()
    }

    /// Runs rows of `streams`, each paired with one of `tokens`.
    ///
    /// # Errors
    /// As for [`crate::session::Session::forward`], and when rows and tokens differ in number.
    pub fn forward(
        &mut self,
        tokens: &[u32],
        streams: &Rows,
        observer: &mut dyn Observer,
    ) -> Result<MtpOutput> {
        if streams.count() != tokens.len() {
            let (streams, tokens) = (streams.count(), tokens.len());
            return Err(RunError::Pairs { streams, tokens }.into());
        }
        self.progress.begin(tokens, self.model)?;
        let call = Call {
            config: &self.model.config,
            profile: &self.profile,
            tokens,
            start: self.length(),
        };
        let mut taps = Taps::new(observer, Place::Mtp);
        let (main, block) = (&self.model.weights, &self.block.weights);
        let output = mtp::forward(&call, main, block, streams, &mut self.state, &mut taps)?;
        self.progress.commit(tokens.len());
        Ok(output)
    }

    /// Goes back to the first `length` rows.
    ///
    /// # Errors
    /// As for [`crate::session::Session::rollback`].
    pub fn rollback(&mut self, length: usize) -> Result<()> {
        self.progress.rollback(length)?;
        self.state.truncate(length);
        Ok(())
    }

    /// Shows every row that a later one can read: kind, position, values.
    pub fn visit_state(&self, visit: &mut dyn FnMut(&'static str, usize, &[f32])) {
        self.state.visit(self.length(), visit);
    }
}
