//! What differs between published implementations of the same model.
//!
//! Promises: a [`Profile`] is a closed list of rounding points and placements; everything not in it is
//! the same in all profiles. [`Profile::DS4`] is what the engine serves; the other two exist to be held
//! against independent implementations that lack those rounding points.

/// Choices of meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of meaning")]
pub struct Profile {
    /// The name on the command line and in result files.
    pub name: &'static str,
    /// Quantise activations to int8 before matrices stored in quantised blocks.
    pub int8_activations: bool,
    /// Round the unrotated part of key rows and compressed rows to FP8 and back.
    pub fp8_rows: bool,
    /// Hadamard transform and FP4 round trip on indexer queries and rows.
    pub fp4_indexer: bool,
    /// Round stored rows to f16.
    pub f16_rows: bool,
    /// Multiply by the router's weight before the down-projection, not after it.
    pub weight_before_down: bool,
    /// How the router's denominator is kept from zero.
    pub router_floor: RouterFloor,
}

/// How the sum of the chosen experts' scores is kept from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterFloor {
    /// At least 2^-14.
    AtLeast,
    /// Plus 1e-20.
    Plus,
}

impl Profile {
    /// The meaning of ds4's CPU path: all rounding points.
    pub const DS4: Self = Self {
        name: "ds4",
        int8_activations: true,
        fp8_rows: true,
        fp4_indexer: true,
        f16_rows: true,
        weight_before_down: true,
        router_floor: RouterFloor::AtLeast,
    };

    /// The meaning of Hugging Face's implementation: no rounding points.
    pub const FLOAT: Self = Self {
        name: "float",
        int8_activations: false,
        fp8_rows: false,
        fp4_indexer: false,
        f16_rows: false,
        weight_before_down: false,
        router_floor: RouterFloor::Plus,
    };

    /// `FLOAT` with the roundings that the model was trained with.
    pub const QAT: Self = Self { name: "qat", fp8_rows: true, fp4_indexer: true, ..Self::FLOAT };

    /// All profiles.
    pub const ALL: [Self; 3] = [Self::DS4, Self::FLOAT, Self::QAT];

    /// The profile of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }
}
