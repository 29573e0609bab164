//! Faults planted on purpose, so that a green light can be distrusted.
//!
//! Promises: each fault changes what the reference computes, not what it is compared with; a run with a
//! planted fault must end red.

use super::Suite;
use engine::Model;
use engine::rows::Rows;

/// A fault that `verify --plant` puts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The lowest bit of one logit is flipped: only a comparison of bytes can see it.
    LogitBit,
    /// One logit is NaN.
    LogitNan,
    /// The logits of every row are those of the row before.
    LogitShift,
    /// The attention window is one row short.
    Window,
    /// The indexer keeps one row less.
    TopK,
    /// The SwiGLU clamp is twice as high.
    Clamp,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 6] =
        [Self::LogitBit, Self::LogitNan, Self::LogitShift, Self::Window, Self::TopK, Self::Clamp];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogitBit => "logit-bit",
            Self::LogitNan => "logit-nan",
            Self::LogitShift => "logit-shift",
            Self::Window => "window",
            Self::TopK => "top-k",
            Self::Clamp => "clamp",
        }
    }

    /// Changes a model.
    pub(super) fn into_model(self, model: &mut Model) {
        let config = &mut model.config;
        match self {
            Self::Window => config.window -= 1,
            Self::TopK => config.indexer_top_k -= 1,
            Self::Clamp => {
                config.clamps.iter_mut().flatten().for_each(|clamp| *clamp *= 2.0);
            }
            Self::LogitBit | Self::LogitNan | Self::LogitShift => {}
        }
    }

    /// Changes logits.
    pub(super) fn into_logits(self, logits: &mut Rows) {
        let row = logits.count() / 2;
        let logit = &mut logits.row_mut(row)[1];
        match self {
            Self::LogitBit => *logit = f32::from_bits(logit.to_bits() ^ 1),
            Self::LogitNan => *logit = f32::NAN,
            Self::LogitShift => {
                for row in (1..logits.count()).rev() {
                    let before = logits.row(row - 1).to_vec();
                    logits.row_mut(row).copy_from_slice(&before);
                }
            }
            Self::Window | Self::TopK | Self::Clamp => {}
        }
    }
}

/// A fault and the cases that must see it.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// The fault.
    pub fault: Fault,
    /// The suite of the cases.
    pub suite: Suite,
    /// Cases whose name contains this; all of them small and in the workspace.
    pub case: &'static str,
}

const fn canary(fault: Fault, suite: Suite, case: &'static str) -> Canary {
    Canary { fault, suite, case }
}

/// What every run before a merge plants: each kind of fault in a comparison of bytes, and those that an
/// independent implementation must see in a comparison with it.
pub const CANARIES: &[Canary] = &[
    canary(Fault::LogitBit, Suite::Goldens, "golden/trained-tiny/code"),
    canary(Fault::LogitNan, Suite::Goldens, "golden/trained-tiny/code"),
    canary(Fault::LogitNan, Suite::Reference, "trained-tiny/logits-chat-result"),
    canary(Fault::LogitShift, Suite::Goldens, "golden/trained-tiny/code"),
    canary(Fault::LogitShift, Suite::Reference, "trained-tiny/code"),
    canary(Fault::LogitShift, Suite::Reference, "trained-tiny/logits-chat-result"),
    canary(Fault::Window, Suite::Goldens, "golden/trained-tiny/json"),
    canary(Fault::Window, Suite::Reference, "trained-tiny/logits-chat-result"),
    canary(Fault::TopK, Suite::Goldens, "golden/trained-tiny/recall-100"),
    canary(Fault::TopK, Suite::Reference, "trained-tiny/logits-chat-result"),
    canary(Fault::Clamp, Suite::Goldens, "golden/tiny/tiny-400"),
];
