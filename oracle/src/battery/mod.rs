//! Single operations on seeded inputs: no model file, seconds, every family of a backend.
//!
//! Promises: a [`Case`] gives every backend the same weights and rows and returns everything that can be
//! seen of the operation as bits: intermediates, outputs, choices, refusals. Calls may be cut anywhere.
//! Leaves judging to the suites.

mod inputs;
mod operations;

use std::sync::{LazyLock, OnceLock};

use engine::backend::Backend;
use engine::config::RawConfig;
use engine::format::Gguf;
use engine::reference::Reference;
use engine::tensor::DType;
use engine::{Model, Profile};

use crate::fixtures::recipe::Shape;
use crate::fixtures::{Part, model_bytes};

pub use inputs::{Inputs, matrix, rows, vector};
pub use operations::{Family, Operation};

/// Seeded weights of a shape, and its meaning.
pub struct World {
    /// The name of the shape.
    pub name: &'static str,
    /// Weights of all layers.
    pub model: Model,
    /// The meaning of operations.
    pub profile: Profile,
}

impl World {
    fn of(shape: &Shape, profile: Profile) -> Self {
        let file = Gguf::from_bytes(model_bytes(shape, Part::Main)).expect("a readable recipe");
        let raw = RawConfig::from_gguf(file.metadata()).expect("a recipe of a model");
        let metadata = file.metadata().clone();
        let model = Model::from_source(&file, &raw, metadata, std::path::Path::new(shape.name));
        Self { name: shape.name, model: model.expect("a recipe of a model"), profile }
    }
}

/// The two shapes in the meaning that is served.
static WORLDS: LazyLock<[World; 2]> = LazyLock::new(|| {
    [World::of(&Shape::tiny(), Profile::DS4), World::of(&Shape::six(), Profile::DS4)]
});

/// One operation on one kind of input.
pub struct Case {
    /// What it is called in reports; unique.
    pub name: String,
    /// The operation.
    pub operation: Operation,
    /// What its inputs are like.
    pub inputs: Inputs,
    /// Rows of its inputs, all calls together.
    pub tokens: usize,
    /// The shape whose weights it uses.
    world: usize,
    /// The seed of its rows.
    seed: u64,
    /// What the reference gives, once it was asked.
    expected: OnceLock<Seen>,
}

/// One row that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is: an intermediate by name, or `output`.
    pub what: &'static str,
    /// The token it belongs to.
    pub token: usize,
    /// Bits of floats, or indices.
    pub bits: Vec<u32>,
}

/// Everything that was seen of a case, or why the backend refused.
pub type Seen = Result<Vec<Row>, String>;

impl Case {
    /// The weights that the case uses.
    #[must_use]
    pub fn world(&self) -> &'static World {
        &WORLDS[self.world]
    }

    /// What the reference gives in one call.
    pub fn expected(&self) -> &Seen {
        self.expected.get_or_init(|| self.run(&Reference, &[usize::MAX]))
    }

    /// Runs the case in calls of these lengths, the last of them repeated to the end.
    ///
    /// # Panics
    /// When there are no lengths or one is 0.
    pub fn run<B: Backend>(&self, backend: &B, cuts: &[usize]) -> Seen {
        assert!(cuts.iter().all(|cut| *cut > 0) && !cuts.is_empty(), "calls of no rows");
        let mut calls = Vec::new();
        let mut start = 0;
        while start < self.tokens {
            let length = cuts[calls.len().min(cuts.len() - 1)].min(self.tokens - start);
            calls.push(start..start + length);
            start += length;
        }
        operations::run(self, backend, &calls)
    }
}

/// Types that products are computed with, each with columns that are no multiple of anything wide.
const MATRICES: [(DType, [usize; 3]); 7] = [
    (DType::F32, [5, 96, 1030]),
    (DType::F16, [8, 257, 1030]),
    (DType::Bf16, [3, 160, 515]),
    (DType::Q8_0, [32, 544, 2080]),
    (DType::Q2K, [256, 768, 2304]),
    (DType::Q4K, [256, 768, 2304]),
    (DType::Iq2Xxs, [256, 768, 2304]),
];

/// All cases, made once.
pub fn all() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases);
    &CASES
}

/// All cases: products of every type and shape, and every other operation on both shapes.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for inputs in Inputs::ALL {
        for (dtype, columns) in MATRICES {
            for (rows, columns) in [1, 7, 33].into_iter().zip(columns) {
                let name = dtype.name();
                for int8 in [true, false] {
                    let operation = Operation::Matmul { dtype, rows, columns, int8 };
                    let suffix = if int8 { "" } else { " float" };
                    let name = format!("matmul {name} {rows}x{columns}{suffix}");
                    cases.push(Case::new(name, operation, inputs, 12, 0));
                }
            }
        }
        for world in 0..2 {
            let config = &WORLDS[world].model.config;
            for (name, operation, tokens) in operations::of_layers(config) {
                if operation.takes(inputs, config) {
                    let name = format!("{name} {}", WORLDS[world].name);
                    cases.push(Case::new(name, operation, inputs, tokens, world));
                }
            }
        }
    }
    cases
}

impl Case {
    fn new(
        name: String,
        operation: Operation,
        inputs: Inputs,
        tokens: usize,
        world: usize,
    ) -> Self {
        let name = format!("{name} {}", inputs.name());
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let expected = OnceLock::new();
        Self { name, operation, inputs, tokens, world, seed, expected }
    }
}
