//! Faults of an engine, planted at run time, so that a green light can be distrusted.
//!
//! Promises: [`Planted`] computes what the backend it wraps computes, but for one [`Fault`]; no fault is in the
//! engine itself, so what is shipped and what is tested are the same code. A fault is what a changed
//! kernel or a careless refactoring does: one unit in the last place, a constant, an index, an order, a
//! state that is not rolled back.
//! Leaves what must see a fault to `teeth`.

mod backend;

use engine::config::Compression;

pub use backend::Planted;

/// A method of a backend that computes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the methods of a backend")]
pub enum Op {
    Embed,
    Spread,
    Enter,
    Leave,
    Head,
    Unstack,
    Join,
    Norm,
    Matmul,
    Grouped,
    Queries,
    Keys,
    Attend,
    Compress,
    Choose,
    Route,
    Gated,
    Routed,
    Add,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Embed,
        Self::Spread,
        Self::Enter,
        Self::Leave,
        Self::Head,
        Self::Unstack,
        Self::Join,
        Self::Norm,
        Self::Matmul,
        Self::Grouped,
        Self::Queries,
        Self::Keys,
        Self::Attend,
        Self::Compress,
        Self::Choose,
        Self::Route,
        Self::Gated,
        Self::Routed,
        Self::Add,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Spread => "spread",
            Self::Enter => "enter",
            Self::Leave => "leave",
            Self::Head => "head",
            Self::Unstack => "unstack",
            Self::Join => "join",
            Self::Norm => "norm",
            Self::Matmul => "matmul",
            Self::Grouped => "grouped",
            Self::Queries => "queries",
            Self::Keys => "keys",
            Self::Attend => "attend",
            Self::Compress => "compress",
            Self::Choose => "choose",
            Self::Route => "route",
            Self::Gated => "gated",
            Self::Routed => "routed",
            Self::Add => "add",
        }
    }
}

/// The calls in which an operation is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Those of so many rows.
    Width(usize),
    /// Those of an engine on three threads.
    ThreeThreads,
    /// Those of an engine without vectors.
    Scalar,
    /// Those of every other engine that is made.
    EveryOther,
}

macro_rules! slips {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A slip in the code of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Slip {
            $($(#[$doc])* $variant,)*
        }

        impl Slip {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

slips! {
    /// One logit is NaN.
    LogitNan = "logit-nan",
    /// The highest id wins a tie.
    TieHighest = "tie-highest",
    /// The last entry of the vocabulary cannot win.
    ArgmaxShort = "argmax-short",
    /// In calls of several rows each gets the choice of the row before it.
    ArgmaxShifted = "argmax-shifted",
    /// The window is one row short.
    WindowShort = "window-short",
    /// The window is one row long.
    WindowLong = "window-long",
    /// The indexer keeps one row less.
    TopKShort = "top-k-short",
    /// The indexer keeps one row more.
    TopKLong = "top-k-long",
    /// The choice of the indexer is ignored.
    ChoiceIgnored = "choice-ignored",
    /// The clamp of gated networks is twice as high.
    ClampDoubled = "clamp-doubled",
    /// There is no clamp.
    ClampIgnored = "clamp-ignored",
    /// Two experts have changed places.
    ExpertsSwapped = "experts-swapped",
    /// Gate and up have changed places.
    GateUpSwapped = "gate-up-swapped",
    /// Blocks are scaled by the scale of the next one.
    ScaleOfNext = "scale-of-next",
    /// The last block of each row of a matrix is not read.
    LastBlock = "last-block",
    /// The last row of a matrix is not read.
    LastRow = "last-row",
    /// Blocks with minima are decoded without them.
    MinimaIgnored = "minima-ignored",
    /// Groups of the output projection meet the heads of the next group.
    GroupsRotated = "groups-rotated",
    /// Attention has no sinks.
    SinksIgnored = "sinks-ignored",
    /// Nothing is added to mean squares.
    EpsIgnored = "eps-ignored",
    /// Norms have no weight.
    WeightIgnored = "norm-weight-ignored",
    /// One round of Sinkhorn normalisation less.
    SinkhornShort = "sinkhorn-short",
    /// Experts are chosen without bias.
    RouterBiasIgnored = "router-bias-ignored",
    /// Experts by token id are those of the next id.
    HashShifted = "hash-shifted",
    /// Weights of experts are not scaled.
    RoutedScaleIgnored = "routed-scale-ignored",
    /// Scores of a compressor have no place bias.
    PlaceIgnored = "place-ignored",
    /// Compressed rows have a norm without weight.
    CompressorWeight = "compressor-weight-ignored",
    /// The embedding is that of the next id.
    NextToken = "next-token",
    /// The shared expert is not added.
    SharedDropped = "shared-dropped",
    /// Activations are not rounded to int8.
    Int8Ignored = "int8-ignored",
    /// Key rows are not rounded to FP8.
    Fp8Ignored = "fp8-ignored",
    /// The indexer is not rounded to FP4.
    Fp4Ignored = "fp4-ignored",
    /// Key rows are not rounded to f16.
    F16Ignored = "f16-ignored",
    /// Experts are weighed after the down-projection.
    WeighedAfter = "weighed-after",
    /// Queries are rotated with another base.
    QueryBase = "query-rope-base",
    /// Key rows are rotated with another base.
    KeyBase = "key-rope-base",
    /// Heads are rotated back with another base.
    BackBase = "back-rope-base",
    /// Low frequencies are not interpolated.
    YarnIgnored = "yarn-ignored",
    /// Experts are added up as they arrive.
    AtomicDown = "atomic-down",
    /// In calls of several rows the last key row is stored with another last bit.
    StoredKey = "stored-key",
    /// In calls of several tokens the drafting block gets the streams of the token before.
    BlockShifted = "block-shifted",
    /// Rows of a part of a call are those of the row before.
    SliceShifted = "slice-shifted",
}

/// What goes wrong when a session forgets tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Nothing is forgotten.
    Nothing,
    /// One token too few is forgotten.
    OneLess,
    /// One token too many is forgotten.
    OneMore,
    /// Four tokens too many are forgotten.
    FourMore,
    /// Every other time nothing is forgotten.
    EveryOther,
}

/// A fault of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One element of an operation's result, one unit in the last place up.
    Ulp(Op, When),
    /// A slip of the code.
    Slip(Slip),
    /// A session does not forget as it should, in layers of this compression.
    Rollback(Stale, Compression),
}

impl Fault {
    /// All faults that an engine can be given.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Op::ALL.map(|op| Self::Ulp(op, When::Always)).to_vec();
        let sometimes = [
            (Op::Matmul, When::Width(2)),
            (Op::Matmul, When::Width(3)),
            (Op::Norm, When::Width(5)),
            (Op::Attend, When::Width(4)),
            (Op::Routed, When::Width(9)),
            (Op::Matmul, When::ThreeThreads),
            (Op::Attend, When::ThreeThreads),
            (Op::Matmul, When::Scalar),
            (Op::Norm, When::Scalar),
            (Op::Routed, When::EveryOther),
        ];
        all.extend(sometimes.map(|(op, when)| Self::Ulp(op, when)));
        all.extend(Slip::ALL.iter().map(|slip| Self::Slip(*slip)));
        all.extend(Self::rollbacks());
        all
    }

    /// Faults of forgetting tokens.
    #[must_use]
    pub fn rollbacks() -> Vec<Self> {
        let stale =
            [Stale::Nothing, Stale::OneLess, Stale::OneMore, Stale::FourMore, Stale::EveryOther];
        let of = |stale| {
            [Compression::Ratio4, Compression::Ratio128].map(|ratio| Self::Rollback(stale, ratio))
        };
        stale.into_iter().flat_map(of).collect()
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Ulp(op, When::Always) => format!("ulp-{}", op.name()),
            Self::Ulp(op, When::Width(width)) => format!("ulp-{}-width-{width}", op.name()),
            Self::Ulp(op, When::ThreeThreads) => format!("ulp-{}-three-threads", op.name()),
            Self::Ulp(op, When::Scalar) => format!("ulp-{}-scalar", op.name()),
            Self::Ulp(op, When::EveryOther) => format!("ulp-{}-every-other", op.name()),
            Self::Slip(slip) => slip.name().to_owned(),
            Self::Rollback(stale, compression) => {
                let what = match stale {
                    Stale::Nothing => "nothing",
                    Stale::OneLess => "one-less",
                    Stale::OneMore => "one-more",
                    Stale::FourMore => "four-more",
                    Stale::EveryOther => "every-other",
                };
                format!("forgets-{what}-{}", compression.ratio())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = Fault::all().into_iter().map(Fault::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count >= 60, "{count} faults");
    }
}
