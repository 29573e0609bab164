//! A sequence in progress: its state, forward calls and rollback.
//!
//! Promises: [`Session::forward`] takes any number of tokens and leaves the state that one token at a time
//! would leave; [`Session::rollback`] leaves the state that never having gone there would leave; a clone
//! is a snapshot. A session whose forward call failed refuses further use. What a state will take is
//! known before it is made ([`plan`]).
//! Leaves the sequence of a layer to `forward`, its arithmetic to a backend. One sequence a call.

use crate::backend::{Backend, Call};
use crate::config::Config;
use crate::error::Result;
use crate::forward::{self, Head};
use crate::model::Model;
use crate::profile::Profile;
use crate::reference::Reference;
use crate::rows::Rows;
use crate::state::{LayerState, ROLLBACK_MAX, StateVisitor};
use crate::tap::{Observer, Place, Site, Taps};

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
    /// A state would take more than it may.
    #[error("state of {context} tokens: {bytes} bytes, budget {budget} bytes")]
    Budget {
        /// Tokens to hold.
        context: usize,
        /// Bytes that takes.
        bytes: u64,
        /// Bytes allowed.
        budget: u64,
    },
    /// There is no memory for a state.
    #[error("state of a layer: no memory for {bytes} bytes")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A backend cannot do what a switch asks for.
    #[error("{switch} {value}: the {backend} backend has no such way")]
    Switch {
        /// The switch.
        switch: &'static str,
        /// Its value.
        value: &'static str,
        /// The backend.
        backend: &'static str,
    },
    /// The system has no such number of threads.
    #[error("threads {count}: the system has no more")]
    Threads {
        /// The number asked for.
        count: usize,
    },
    /// The processor, or this engine, lacks vector instructions that were asked for.
    #[error("simd {simd}: not on this processor, or not in this engine")]
    Simd {
        /// The level asked for.
        simd: &'static str,
    },
    /// An option of the sampler is outside its range.
    #[error("{field} {value}: must be {rule}")]
    Sampling {
        /// The option.
        field: &'static str,
        /// Its value.
        value: f32,
        /// What the option may be.
        rule: &'static str,
    },
    /// An earlier forward call of this session failed.
    #[error("session: an earlier forward call failed, its state is not usable")]
    Failed,
}

/// How far a sequence is, and how far back it can go.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    length: usize,
    /// One past the highest position ever written.
    written: usize,
    context: usize,
    failed: bool,
}

impl Progress {
    /// At the start of a sequence of at most `context` tokens.
    pub(crate) fn new(context: usize) -> Self {
        Self { length: 0, written: 0, context, failed: false }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Checks a call; until [`Progress::commit`] the session counts as failed.
    pub(crate) fn begin(&mut self, tokens: &[u32], model: &Model) -> Result<(), RunError> {
        let (context, vocabulary) = (self.context, model.config.vocabulary);
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

    pub(crate) fn room(&self) -> usize {
        self.context - self.length
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
    /// None.
    Nothing,
}

/// What a forward call returns.
pub struct Forward<R = Rows> {
    /// Logits, `[n, 1 or 0][vocabulary]`.
    pub logits: R,
    /// Streams after the last layer, `[n][4 * hidden]`.
    pub streams: R,
}

/// Receives layer, kind, position (or index of a compressed row) and values of a live row.
pub type LayerVisitor<'a> = dyn FnMut(usize, &'static str, usize, &[f32]) + 'a;

/// Bytes that the state of a sequence of `context` tokens takes.
#[must_use]
pub fn plan(config: &Config, context: usize) -> u64 {
    config.layers.iter().fold(0, |sum, layer| sum + LayerState::plan(config, *layer, context))
}

/// How long a sequence may become and what its state may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens at most; room for them is taken at the start.
    pub context: usize,
    /// Bytes that the state may take.
    pub state_bytes: u64,
}

impl Limits {
    /// Refuses what does not fit the model or the budget.
    fn check(self, config: &Config) -> std::result::Result<(), RunError> {
        if self.context > config.context {
            let (tokens, context) = (self.context, config.context);
            return Err(RunError::ContextFull { tokens, length: 0, context });
        }
        let bytes = plan(config, self.context);
        if bytes > self.state_bytes {
            let (context, budget) = (self.context, self.state_bytes);
            return Err(RunError::Budget { context, bytes, budget });
        }
        Ok(())
    }
}

/// A sequence in progress.
pub struct Session<'m, B: Backend = Reference> {
    model: &'m Model,
    backend: &'m B,
    profile: Profile,
    /// Layers that run, by index, each with its state.
    layers: Vec<(usize, B::State)>,
    progress: Progress,
}

impl<B: Backend> Clone for Session<'_, B> {
    fn clone(&self) -> Self {
        Self { layers: self.layers.clone(), progress: self.progress.clone(), ..*self }
    }
}

impl<'m> Session<'m> {
    /// A sequence without tokens, run by the reference.
    #[must_use]
    pub fn new(model: &'m Model, profile: Profile) -> Self {
        Self::on(&Reference, model, profile).expect("a state without rows")
    }
}

impl<'m, B: Backend> Session<'m, B> {
    /// A sequence without tokens, run by `backend`. Its state grows with it.
    ///
    /// # Errors
    /// When the backend has no room for it.
    pub fn on(backend: &'m B, model: &'m Model, profile: Profile) -> Result<Self> {
        let layers: Vec<usize> = (0..model.config.layers.len()).collect();
        Self::build(backend, model, profile, &layers, None)
    }

    /// A sequence without tokens that never takes more memory than it takes now.
    ///
    /// # Errors
    /// When the limits ask for more than the model's context, the budget or the memory.
    pub fn within(
        backend: &'m B,
        model: &'m Model,
        profile: Profile,
        limits: Limits,
    ) -> Result<Self> {
        limits.check(&model.config)?;
        let layers: Vec<usize> = (0..model.config.layers.len()).collect();
        Self::build(backend, model, profile, &layers, Some(limits.context))
    }

    /// A sequence that runs only some of the layers: other logits than the model's, the same operations.
    pub(crate) fn partial(
        backend: &'m B,
        model: &'m Model,
        profile: Profile,
        layers: &[usize],
    ) -> Result<Self> {
        Self::build(backend, model, profile, layers, None)
    }

    fn build(
        backend: &'m B,
        model: &'m Model,
        profile: Profile,
        layers: &[usize],
        context: Option<usize>,
    ) -> Result<Self> {
        let config = &model.config;
        let layers = layers
            .iter()
            .map(|index| Ok((*index, backend.state(config, config.layers[*index], context)?)));
        let layers = layers.collect::<std::result::Result<_, RunError>>()?;
        let progress = Progress::new(context.unwrap_or(config.context));
        Ok(Self { model, backend, profile, layers, progress })
    }

    /// The model that it runs.
    #[must_use]
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// The backend that runs it.
    #[must_use]
    pub fn backend(&self) -> &'m B {
        self.backend
    }

    /// The meaning in which it runs.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Tokens in.
    #[must_use]
    pub fn length(&self) -> usize {
        self.progress.length()
    }

    /// Tokens that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.progress.room()
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
    ) -> Result<Forward<B::Rows>> {
        self.progress.begin(tokens, self.model)?;
        let (config, weights) = (&self.model.config, &self.model.weights);
        let call = Call::new(config, &self.profile, tokens, self.progress.length());
        let mut taps = Taps::new(observer, Place::Input);
        let mut streams = forward::embed(self.backend, &call, &weights.embedding, &mut taps)?;
        for (index, state) in &mut self.layers {
            let mut taps = Taps::new(observer, Place::Layer(*index));
            let (layer, clamp) = (&weights.layers[*index], config.clamps[*index]);
            forward::layer(self.backend, &call, layer, clamp, state, &mut streams, &mut taps)?;
        }
        let mut taps = Taps::new(observer, Place::Output);
        let head = Head { hyper: &weights.head, norm: &weights.norm, output: &weights.output };
        let logits = forward::logits(self.backend, &call, keep, &streams, &head, &mut taps)?;
        self.progress.commit(tokens.len());
        Ok(Forward { logits, streams })
    }

    /// Goes back to the first `length` tokens.
    ///
    /// # Errors
    /// When more than [`ROLLBACK_MAX`] tokens were written past `length`, or fewer than that are in.
    pub fn rollback(&mut self, length: usize) -> Result<()> {
        self.progress.rollback(length)?;
        for (_, state) in &mut self.layers {
            self.backend.truncate(state, length);
        }
        Ok(())
    }

    /// Shows every row that a later token can read: layer, kind, position or index, values.
    pub fn visit_state(&self, visit: &mut LayerVisitor<'_>) {
        for (index, state) in &self.layers {
            let visit: &mut StateVisitor<'_> =
                &mut |kind, position, values| visit(*index, kind, position, values);
            self.backend.visit(state, self.length(), visit);
        }
    }
}
