//! The contract between the layer sequence and whoever computes it.
//!
//! Promises: [`Backend`] has one method an operation family; `forward` calls nothing else, so the sequence of
//! a layer is written once. Every implementation gives the bytes of `reference`, for any number of
//! rows in a call: row `i` of a call of many equals the call of one (see `reference::order`).
//! Assumes shapes were checked when the model was loaded and tokens when the call began.
//! Leaves to `session` what may be called, to `state` what a layer remembers on the host.

use std::ops::Range;

use crate::config::{Compression, Config};
use crate::format::weights::{Compressor, Expert, HyperConnection, HyperHead, Matrix, Routing};
use crate::profile::Profile;
use crate::reference::rope::{Frequencies, Rotation};
use crate::rows::Rows;
use crate::session::RunError;
use crate::state::StateVisitor;
use crate::tap::{Tap, Taps};

/// What the tokens of a call share in every layer.
pub struct Call<'a> {
    /// Hyper-parameters.
    pub config: &'a Config,
    /// Choice of meaning.
    pub profile: &'a Profile,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Position of the first one.
    pub start: usize,
    plain: Rope,
    compressed: Rope,
}

/// Frequencies of one kind of layer, and the rotations of the tokens of a call.
struct Rope {
    frequencies: Frequencies,
    rotations: Vec<Rotation>,
}

impl Rope {
    fn new(config: &Config, compression: Compression, start: usize, count: usize) -> Self {
        let frequencies = Frequencies::new(config, compression);
        let rotations = (start..start + count).map(|p| frequencies.at(p)).collect();
        Self { frequencies, rotations }
    }
}

impl<'a> Call<'a> {
    /// A call of `tokens` at positions from `start`.
    #[must_use]
    pub fn new(config: &'a Config, profile: &'a Profile, tokens: &'a [u32], start: usize) -> Self {
        let rope = |compression| Rope::new(config, compression, start, tokens.len());
        let (plain, compressed) = (rope(Compression::None), rope(Compression::Ratio4));
        Self { config, profile, tokens, start, plain, compressed }
    }

    fn rope(&self, compression: Compression) -> &Rope {
        match compression {
            Compression::None => &self.plain,
            Compression::Ratio4 | Compression::Ratio128 => &self.compressed,
        }
    }

    /// Rotations of the tokens, one each, in layers of this compression.
    #[must_use]
    pub fn rotations(&self, compression: Compression) -> &[Rotation] {
        &self.rope(compression).rotations
    }

    /// Rotary frequencies of layers of this compression, for positions other than the tokens' own.
    #[must_use]
    pub fn frequencies(&self, compression: Compression) -> &Frequencies {
        &self.rope(compression).frequencies
    }
}

/// The two kinds of compressed rows that a layer can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressedRows {
    /// Those that attention reads, `[head_dim]`.
    Attention,
    /// Those that the indexer scores, `[indexer_dim]`.
    Indexer,
}

impl CompressedRows {
    /// Names of projected values, projected scores and finished rows.
    #[must_use]
    pub const fn taps(self) -> [Tap; 3] {
        match self {
            Self::Attention => [Tap::CompressorKv, Tap::CompressorScore, Tap::CompressedRow],
            Self::Indexer => [Tap::IndexerKv, Tap::IndexerScore, Tap::IndexerRow],
        }
    }
}

/// A sublayer's input, and the mixes that its output will need.
pub struct Entered<B: Backend + ?Sized> {
    /// Hyper-connection weights of the tokens.
    pub mixes: B::Mixes,
    /// The streams reduced, `[n][hidden]`.
    pub input: B::Rows,
}

/// Computes the operations of the model.
///
/// Shapes: `n` is the number of tokens of the call. Methods that have intermediates worth naming show them
/// to `taps`, which refuses what is not finite.
pub trait Backend: Sync {
    /// Activations where the backend keeps them, `[n][width]`.
    type Rows: Clone + Send;
    /// Hyper-connection weights of the tokens of a call.
    type Mixes;
    /// Experts of the tokens of a call and their weights.
    type Choices;
    /// Compressed rows that each token of a call attends to.
    type Chosen;
    /// What a layer remembers of the tokens before a call.
    type State: Clone;

    /// The name in reports.
    fn name(&self) -> String;

    /// Kernels that ran so far, each with how often: what proves which code a run took, whatever its
    /// options said. Kernels of a thread count where they ran for the calling thread.
    fn kernels_run(&self) -> Vec<(String, u64)>;

    // Buffers and state.

    /// Rows made on the host.
    ///
    /// # Errors
    /// When the backend has no room for them.
    fn upload(&self, rows: Rows) -> Result<Self::Rows, RunError>;

    /// The values of rows, for the host.
    ///
    /// # Errors
    /// When the device fails.
    fn download(&self, rows: &Self::Rows) -> Result<Rows, RunError>;

    /// Number of rows.
    fn count(&self, rows: &Self::Rows) -> usize;

    /// Rows `range` alone.
    fn slice(&self, rows: &Self::Rows, range: Range<usize>) -> Self::Rows;

    /// Shows rows at positions from `start`; refuses values that are not finite, shown or not.
    ///
    /// # Errors
    /// When a value is not finite.
    fn show(
        &self,
        taps: &mut Taps<'_>,
        tap: Tap,
        start: usize,
        rows: &Self::Rows,
    ) -> Result<(), RunError>;

    /// The state of a layer before the first token. With a `context`, room for that many tokens is taken
    /// now.
    ///
    /// # Errors
    /// When there is no room for it.
    fn state(
        &self,
        config: &Config,
        compression: Compression,
        context: Option<usize>,
    ) -> Result<Self::State, RunError>;

    /// Forgets every token from position `length` on.
    fn truncate(&self, state: &mut Self::State, length: usize);

    /// Shows every row of the state that a later token can read, in a fixed order.
    fn visit(&self, state: &Self::State, length: usize, visit: &mut StateVisitor<'_>);

    // Family `embed`.

    /// Rows of the embedding matrix, `[n][hidden]`.
    fn embed(&self, embedding: &Matrix, tokens: &[u32]) -> Self::Rows;

    // Family `hyper`: four residual streams a token, `[n][4 * hidden]`.

    /// Each row as all four streams.
    fn spread(&self, rows: &Self::Rows) -> Self::Rows;

    /// Enters a sublayer: the mixes of every token and its streams reduced by them. Shows the output
    /// weights and the stream matrix under the two names of `shown`.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    fn enter(
        &self,
        call: &Call<'_>,
        weights: &HyperConnection,
        streams: &Self::Rows,
        shown: [Tap; 2],
        taps: &mut Taps<'_>,
    ) -> Result<Entered<Self>, RunError>;

    /// Leaves a sublayer: mixes the streams and adds the sublayer's output to them.
    fn leave(&self, mixes: &Self::Mixes, output: &Self::Rows, streams: &mut Self::Rows);

    /// The streams reduced for the output, `[n][hidden]`.
    fn head(&self, config: &Config, weights: &HyperHead, streams: &Self::Rows) -> Self::Rows;

    /// Each stream as a row of its own, `[4 * n][hidden]`.
    fn unstack(&self, streams: &Self::Rows) -> Self::Rows;

    /// The streams of the multi-token-prediction block: stream `s` of token `t` is
    /// `embedded[t] + hidden[4 * t + s]`.
    fn join(&self, embedded: &Self::Rows, hidden: &Self::Rows) -> Self::Rows;

    // Family `norm`.

    /// Root-mean-square norm of each row, times `weight`.
    fn norm(&self, x: &Self::Rows, weight: &[f32], eps: f32) -> Self::Rows;

    // Family `matmul`.

    /// `y[t] = W x[t]`.
    fn matmul(&self, weights: &Matrix, x: &Self::Rows, profile: &Profile) -> Self::Rows;

    /// `groups` products side by side: rows `g * r ..` of the matrix meet part `g` of each row of `x`,
    /// where `r` is the number of rows of the matrix over `groups`.
    fn grouped(
        &self,
        weights: &Matrix,
        groups: usize,
        x: &Self::Rows,
        profile: &Profile,
    ) -> Self::Rows;

    // Family `attention`.

    /// Queries as attention uses them: each head normalised without weight and rotated.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    fn queries(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError>;

    /// Key rows as they are stored: rotated and rounded as the profile says.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    fn keys(
        &self,
        call: &Call<'_>,
        compression: Compression,
        keys: Self::Rows,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError>;

    /// Attention of every token over its window (earlier tokens from `state`, those of the call from
    /// `keys`) and its `chosen` compressed rows, rotated back; then puts `keys` into the state.
    #[expect(clippy::too_many_arguments, reason = "what attention is made of")]
    fn attend(
        &self,
        call: &Call<'_>,
        compression: Compression,
        queries: &Self::Rows,
        keys: &Self::Rows,
        chosen: &Self::Chosen,
        sinks: &[f32],
        state: &mut Self::State,
    ) -> Self::Rows;

    // Family `compressor`.

    /// Takes the projected values and scores of the tokens into the state and appends the rows that they
    /// complete. Adds the place bias to the scores first.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    #[expect(clippy::too_many_arguments, reason = "what a compressor is made of")]
    fn compress(
        &self,
        call: &Call<'_>,
        rows: CompressedRows,
        weights: &Compressor,
        kv: &Self::Rows,
        scores: Self::Rows,
        state: &mut Self::State,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError>;

    // Family `indexer`.

    /// All compressed rows that are complete at each token.
    fn all_visible(&self) -> Self::Chosen;

    /// The compressed rows of largest score for each token. `queries` are as projected, `[n][heads * dim]`,
    /// `weights` the projected head weights, `[n][heads]`.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    fn choose(
        &self,
        call: &Call<'_>,
        queries: Self::Rows,
        weights: Self::Rows,
        state: &Self::State,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Chosen, RunError>;

    // Family `router`.

    /// Experts and weights of every token from its router logits.
    ///
    /// # Errors
    /// When a weight is not finite.
    fn route(
        &self,
        call: &Call<'_>,
        logits: &Self::Rows,
        routing: &Routing,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Choices, RunError>;

    // Family `moe`.

    /// Inner activations of a gated network: `silu(min(gate, clamp)) * clamp(up)`.
    fn gated(&self, gate: Self::Rows, up: &Self::Rows, clamp: Option<f32>) -> Self::Rows;

    /// The chosen experts of every token, added up in slot order (or as they arrive, where that is
    /// switched on and the call is large enough), `[n][hidden]`.
    ///
    /// # Errors
    /// When an intermediate is not finite.
    fn routed(
        &self,
        call: &Call<'_>,
        experts: &[Expert],
        choices: &Self::Choices,
        input: &Self::Rows,
        clamp: Option<f32>,
        taps: &mut Taps<'_>,
    ) -> Result<Self::Rows, RunError>;

    /// `a + b`.
    fn add(&self, a: Self::Rows, b: &Self::Rows) -> Self::Rows;

    // Family `sampler`.

    /// The greedy token of each row, lowest id among equals; `start` is the position that the first row
    /// follows.
    ///
    /// # Errors
    /// When a row is empty or an entry is not finite.
    fn argmax(&self, logits: &Self::Rows, start: usize) -> Result<Vec<u32>, RunError>;
}
