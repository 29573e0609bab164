//! A sequence in progress: its state, forward calls and rollback.
//!
//! Promises: [`Session::forward`] takes any number of tokens and leaves the state that one token at a time
//! would leave; [`Session::rollback`] leaves the state that never having gone there would leave. A
//! session whose forward call failed refuses further use.
//! Leaves the meaning of a layer to `reference`.

use crate::error::Result;
use crate::model::Model;
use crate::profile::Profile;
use crate::reference::layer::{self, Call};
use crate::reference::state::{LayerState, ROLLBACK_MAX, StateVisitor};
use crate::rows::Rows;
use crate::tap::{Observer, Place, Site, Tap, Taps};

/// Refusals of a forward call or of a rollback.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No token was given.
    #[error("tokens: none given")]
    NoTokens,
    /// A token is not in the vocabulary.
    #[error("token {index} = {id}: the vocabulary has {vocabulary}")]
    TokenOutOfRange {
        /// Its place in the call.
        index: usize,
        /// The token.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// The tokens do not fit behind those already in.
    #[error("{tokens} tokens after {length}: the context holds {context}")]
    ContextFull {
        /// Tokens in the call.
        tokens: usize,
        /// Tokens already in.
        length: usize,
        /// The most the model may be run to.
        context: usize,
    },
    /// A rollback to a length that the state no longer holds or does not hold yet.
    #[error("rollback from {length} to {target} tokens: from {oldest} to {length} is possible")]
    Rollback {
        /// Tokens in.
        length: usize,
        /// Tokens asked for.
        target: usize,
        /// The smallest length that can be gone back to.
        oldest: usize,
    },
    /// The rows of streams and the tokens to pair with them differ in number.
    #[error("{streams} rows of streams for {tokens} tokens")]
    Pairs {
        /// Rows given.
        streams: usize,
        /// Tokens given.
        tokens: usize,
    },
    /// An intermediate is NaN or infinite.
    #[error(
        "{}: {} at position {}, element {index} is not finite (bits {bits:08x})",
        site.place, site.tap.name(), site.position
    )]
    NotFinite {
        /// Layer, intermediate and position.
        site: Site,
        /// Element of the row.
        index: usize,
        /// Its bits.
        bits: u32,
    },
    /// A row to choose a token from is empty.
    #[error("logits: no entries")]
    NoLogits,
    /// An earlier forward call of this session failed.
    #[error("session: an earlier forward call failed, its state is not usable")]
    Failed,
}

/// How far a sequence is, and how far back it can go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    length: usize,
    /// One past the highest position ever written.
    written: usize,
    failed: bool,
}

impl Progress {
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Checks a call; until [`Progress::commit`] the session counts as failed.
    pub(crate) fn begin(&mut self, tokens: &[u32], model: &Model) -> Result<(), RunError> {
        let (context, vocabulary) = (model.config.context, model.config.vocabulary);
        if self.failed {
            return Err(RunError::Failed);
        }
        if tokens.is_empty() {
            return Err(RunError::NoTokens);
        }
        if let Some(index) = tokens.iter().position(|id| *id as usize >= vocabulary) {
            return Err(RunError::TokenOutOfRange { index, id: tokens[index], vocabulary });
        }
        if tokens.len() > context - self.length {
            let (tokens, length) = (tokens.len(), self.length);
            return Err(RunError::ContextFull { tokens, length, context });
        }
        self.failed = true;
        Ok(())
    }

    pub(crate) fn commit(&mut self, tokens: usize) {
        self.length += tokens;
        self.written = self.written.max(self.length);
        self.failed = false;
    }

    pub(crate) fn rollback(&mut self, target: usize) -> Result<(), RunError> {
        if self.failed {
            return Err(RunError::Failed);
        }
        let oldest = self.written.saturating_sub(ROLLBACK_MAX);
        if !(oldest..=self.length).contains(&target) {
            return Err(RunError::Rollback { length: self.length, target, oldest });
        }
        self.length = target;
        Ok(())
    }
}

/// Which logits a forward call computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Those after every token.
    All,
    /// Those after the last token.
    Last,
}

/// What a forward call returns.
pub struct Forward {
    /// Logits, `[n or 1][vocabulary]`.
    pub logits: Rows,
    /// Streams after the last layer, `[n][4 * hidden]`.
    pub streams: Rows,
}

/// Receives layer, kind, position (or index of a compressed row) and values of a live row.
pub type LayerVisitor<'a> = dyn FnMut(usize, &'static str, usize, &[f32]) + 'a;

/// A sequence in progress.
#[derive(Clone)]
pub struct Session<'m> {
    model: &'m Model,
    profile: Profile,
    layers: Vec<LayerState>,
    progress: Progress,
}

impl<'m> Session<'m> {
    /// A sequence without tokens.
    #[must_use]
    pub fn new(model: &'m Model, profile: Profile) -> Self {
        let state = |compression: &_| LayerState::new(&model.config, *compression);
        let layers = model.config.layers.iter().map(state).collect();
        Self { model, profile, layers, progress: Progress::default() }
    }

    /// Tokens in.
    #[must_use]
    pub fn length(&self) -> usize {
        self.progress.length()
    }

    /// Runs `tokens` through the model.
    ///
    /// # Errors
    /// When there are none, one is not in the vocabulary, they do not fit the context, an
    /// intermediate is not finite, or an earlier call failed.
    pub fn forward(
        &mut self,
        tokens: &[u32],
        keep: Keep,
        observer: &mut dyn Observer,
    ) -> Result<Forward> {
        self.progress.begin(tokens, self.model)?;
        let (config, weights) = (&self.model.config, &self.model.weights);
        let start = self.length();
        let call = Call { config, profile: &self.profile, tokens, start };
        let mut streams = Rows::zeros(tokens.len(), config.stream_dim());
        let mut embedding = vec![0.0; config.hidden];
        for (token, id) in tokens.iter().enumerate() {
            weights.embedding.decode_row(*id as usize, &mut embedding);
            let mut taps = Taps::new(observer, Place::Input);
            taps.floats(Tap::Embedding, start + token, &embedding)?;
            for stream in streams.row_mut(token).chunks_exact_mut(config.hidden) {
                stream.copy_from_slice(&embedding);
            }
        }
        for (index, (layer, state)) in weights.layers.iter().zip(&mut self.layers).enumerate() {
            let mut taps = Taps::new(observer, Place::Layer(index));
            layer::forward(&call, layer, config.clamps[index], state, &mut streams, &mut taps)?;
        }
        let mut taps = Taps::new(observer, Place::Output);
        let last = tokens.len() - 1;
        let (first, rows) = match keep {
            Keep::All => (0, streams.clone()),
            Keep::Last => (last, streams.slice(last..tokens.len())),
        };
        let tail = Call { start: start + first, tokens: &tokens[first..], ..call };
        let output = &weights.output;
        let logits = layer::output(&tail, &rows, &weights.head, &weights.norm, output, &mut taps)?;
        self.progress.commit(tokens.len());
        Ok(Forward { logits, streams })
    }

    /// Goes back to the first `length` tokens.
    ///
    /// # Errors
    /// When more than [`ROLLBACK_MAX`] tokens were written past `length`, or fewer than that are in.
    pub fn rollback(&mut self, length: usize) -> Result<()> {
        self.progress.rollback(length)?;
        for state in &mut self.layers {
            state.truncate(length);
        }
        Ok(())
    }

    /// Shows every row that a later token can read: layer, kind, position or index, values.
    pub fn visit_state(&self, visit: &mut LayerVisitor<'_>) {
        for (index, state) in self.layers.iter().enumerate() {
            let visit: &mut StateVisitor<'_> =
                &mut |kind, position, values| visit(index, kind, position, values);
            state.visit(self.length(), visit);
        }
    }
}
