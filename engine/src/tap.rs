//! Named intermediates that can be observed without changing a bit.
//!
//! Promises: an observer sees every value of every row of the taps it wants, and cannot write to them;
//! the same call that shows a value refuses it when it is not finite, observed or not, naming tensor,
//! layer and position. A token is never chosen from a NaN.

use crate::session::RunError;

macro_rules! taps {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// An intermediate of the forward pass; shapes are per token.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Tap {
            $($(#[$doc])* $variant,)*
        }

        impl Tap {
            /// All taps, in the order in which a layer reaches them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in tables, files and errors.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

taps! {
    /// Embedding of the token, `[hidden]`; in the MTP block the projected embedding.
    Embedding = "embedding",
    /// Output weights of the attention hyper-connection, `[4]`.
    AttnHyperPost = "attn_hyper_post",
    /// Stream matrix of the attention hyper-connection, `[4][4]`, source by destination.
    AttnHyperComb = "attn_hyper_comb",
    /// Streams reduced for attention, `[hidden]`.
    AttnInput = "attn_input",
    /// The same after its norm, `[hidden]`.
    AttnNorm = "attn_norm",
    /// Low-rank query after its norm, `[q_rank]`.
    QueryLow = "query_low",
    /// Queries after the per-head norm, before rotation, `[heads][head_dim]`.
    QueryUnrotated = "query_unrotated",
    /// Key row after its norm, before rotation, `[head_dim]`.
    KeyUnrotated = "key_unrotated",
    /// Queries as attention uses them, `[heads][head_dim]`.
    Query = "query",
    /// Key row as stored, `[head_dim]`.
    KeyRow = "key_row",
    /// Values projected by the compressor, `[projected]`.
    CompressorKv = "compressor_kv",
    /// Scores of the compressor with their place bias, `[projected]`.
    CompressorScore = "compressor_score",
    /// Compressed row as stored, `[head_dim]`; position is that of the last token of its window.
    CompressedRow = "compressed_row",
    /// Values projected by the indexer's compressor, `[2 * indexer_dim]`.
    IndexerKv = "indexer_kv",
    /// Scores of the indexer's compressor with their place bias, `[2 * indexer_dim]`.
    IndexerScore = "indexer_score",
    /// Indexer row as stored, `[indexer_dim]`.
    IndexerRow = "indexer_row",
    /// Indexer queries as scored, `[indexer_heads][indexer_dim]`.
    IndexerQuery = "indexer_query",
    /// Head weights of the indexer, `[indexer_heads]`.
    IndexerWeights = "indexer_weights",
    /// Scores of the visible rows, `[rows]`.
    IndexerScores = "indexer_scores",
    /// Chosen rows, ascending.
    IndexerChosen = "indexer_chosen",
    /// Heads after attention and inverse rotation, `[heads][head_dim]`.
    Heads = "heads",
    /// Low-rank output, `[groups][output_rank]`.
    OutputLow = "output_low",
    /// Output of attention, `[hidden]`.
    AttnOutput = "attn_output",
    /// Streams after attention, `[4][hidden]`.
    AttnStreams = "attn_streams",
    /// Output weights of the feed-forward hyper-connection, `[4]`.
    FfnHyperPost = "ffn_hyper_post",
    /// Stream matrix of the feed-forward hyper-connection, `[4][4]`, source by destination.
    FfnHyperComb = "ffn_hyper_comb",
    /// Streams reduced for the experts, `[hidden]`.
    FfnInput = "ffn_input",
    /// The same after its norm, `[hidden]`.
    FfnNorm = "ffn_norm",
    /// Router logits, `[experts]`.
    RouterLogits = "router_logits",
    /// Chosen experts in slot order.
    RouterExperts = "router_experts",
    /// Their weights in slot order, `[experts_used]`.
    RouterWeights = "router_weights",
    /// Inner activations of the chosen experts, `[experts_used][expert_dim]`.
    ExpertMid = "expert_mid",
    /// Sum of the routed experts, `[hidden]`.
    RoutedOutput = "routed_output",
    /// Inner activations of the shared expert, `[expert_dim]`.
    SharedMid = "shared_mid",
    /// Output of the shared expert, `[hidden]`.
    SharedOutput = "shared_output",
    /// Both together, `[hidden]`.
    FfnOutput = "ffn_output",
    /// Streams after the layer, `[4][hidden]`.
    Streams = "streams",
    /// Streams reduced for the output, `[hidden]`.
    HeadInput = "head_input",
    /// The same after its norm, `[hidden]`.
    HeadNorm = "head_norm",
    /// Logits, `[vocabulary]`.
    Logits = "logits",
}

/// Where in the model a tap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before the first layer.
    Input,
    /// In a layer of the main model.
    Layer(usize),
    /// After the last layer.
    Output,
    /// In the multi-token-prediction block.
    Mtp,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input => f.write_str("input"),
            Self::Layer(index) => write!(f, "layer {index}"),
            Self::Output => f.write_str("output"),
            Self::Mtp => f.write_str("mtp"),
        }
    }
}

/// One observed row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Which layer.
    pub place: Place,
    /// Which intermediate.
    pub tap: Tap,
    /// Absolute position of the token.
    pub position: usize,
}

/// The values of a row.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Floats.
    F32(&'a [f32]),
    /// Indices: experts or rows.
    Index(&'a [usize]),
}

/// Somebody who looks at intermediates.
pub trait Observer {
    /// Whether rows of this tap should be shown.
    fn wants(&self, tap: Tap) -> bool;
    /// Shows one row.
    fn observe(&mut self, site: Site, values: Values<'_>);
}

/// Nobody.
pub struct Unobserved;

impl Observer for Unobserved {
    fn wants(&self, _: Tap) -> bool {
        false
    }

    fn observe(&mut self, _: Site, _: Values<'_>) {}
}

/// Taps of one place in the model, at consecutive positions.
pub struct Taps<'a> {
    observer: &'a mut dyn Observer,
    place: Place,
}

impl<'a> Taps<'a> {
    /// Taps of `place`, shown to `observer`.
    pub fn new(observer: &'a mut dyn Observer, place: Place) -> Self {
        Self { observer, place }
    }

    /// Whether rows of this tap are shown to somebody.
    #[must_use]
    pub fn wants(&self, tap: Tap) -> bool {
        self.observer.wants(tap)
    }

    /// Shows a row of floats.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn floats(&mut self, tap: Tap, position: usize, values: &[f32]) -> Result<(), RunError> {
        let site = Site { place: self.place, tap, position };
        // All of them first, without a way out in the middle: that takes vectors.
        let finite = values.iter().fold(true, |finite, value| finite & value.is_finite());
        if !finite && let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(RunError::NotFinite { site, index, bits: values[index].to_bits() });
        }
        if self.observer.wants(tap) {
            self.observer.observe(site, Values::F32(values));
        }
        Ok(())
    }

    /// Shows rows of floats at consecutive positions from `start`.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn rows(
        &mut self,
        tap: Tap,
        start: usize,
        rows: &crate::rows::Rows,
    ) -> Result<(), RunError> {
        rows.iter().enumerate().try_for_each(|(i, row)| self.floats(tap, start + i, row))
    }

    /// Shows a row of indices.
    pub fn indices(&mut self, tap: Tap, position: usize, values: &[usize]) {
        if self.observer.wants(tap) {
            let site = Site { place: self.place, tap, position };
            self.observer.observe(site, Values::Index(values));
        }
    }
}
