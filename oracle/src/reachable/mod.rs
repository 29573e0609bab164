//! What the order of experts can change: a derived statement, without luck.
//!
//! With experts added up as they arrive, every element of a token's routed sum has as many values as its
//! terms have distinguishable orders. `sums` finds them, `layer` keeps them for every element of a layer,
//! `tail` carries them through every operation after the last layer's sum to an interval for each logit,
//! and `proof` says of a position whether any order of the last layer can change its token.
//!
//! Promises: everything is made again from what a run showed, and nothing is said of a run whose ordered
//! sums and logits do not come out with the run's bits ([`of_ordered`]). A run in arrival order is held
//! operation by operation against the sets of its own inputs ([`check_arrival`]).
//! Leaves to others: orders of earlier layers, whose effect goes through attention and routing.
//!
//! Reading order: `sums`, `terms`, `layer`, `interval`, `tail`, `proof`.

pub mod interval;
pub mod layer;
pub mod proof;
pub mod sums;
pub mod tail;
pub mod terms;
#[cfg(test)]
mod tests;

use engine::Profile;
use engine::backend::Backend;
use engine::model::Model;
use engine::session::{Keep, RunError, Session};
use engine::tap::{Place, Site, Tap};
use serde::Serialize;

pub use layer::{Known, LayerFigures, Reachable};
pub use proof::{Decision, Verdict, Witness};
pub use tail::{Head, Tail};
pub use terms::Terms;

use crate::record::Record;

/// Taps that a run has to show.
pub const TAPS: [Tap; 7] = [
    Tap::AttnStreams,
    Tap::RouterExperts,
    Tap::RouterWeights,
    Tap::ExpertMid,
    Tap::RoutedOutput,
    Tap::SharedOutput,
    Tap::Logits,
];

fn at(site: &Site) -> String {
    format!("{}, {}, position {}", site.place, site.tap.name(), site.position)
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The run showed no token of a layer.
    #[error("layer {layer}: the run showed no token")]
    NoTokens {
        /// The layer.
        layer: usize,
    },
    /// The run did not show a row.
    #[error("{}: not shown by the run", at(site))]
    Missing {
        /// The row.
        site: Site,
    },
    /// A row has another length.
    #[error("{}: {ours} elements made again, {theirs} in the run", at(site))]
    Width {
        /// The row.
        site: Site,
        /// Elements made again.
        ours: usize,
        /// Elements of the run.
        theirs: usize,
    },
    /// What was made again is not what the run showed.
    #[error("{}, element {element}: bits {ours:08x} made again, {theirs:08x} in the run", at(site))]
    Recomputed {
        /// The row.
        site: Site,
        /// The element.
        element: usize,
        /// Bits made again.
        ours: u32,
        /// Bits of the run.
        theirs: u32,
    },
    /// A value of an atomic run that no order gives.
    #[error("{}, element {element}: bits {bits:08x} are reached by no order", at(site))]
    Unreachable {
        /// The row.
        site: Site,
        /// The element.
        element: usize,
        /// Its bits.
        bits: u32,
    },
    /// An expert that the layer does not have.
    #[error("layer {index}: expert {expert} does not exist")]
    Expert {
        /// The layer.
        index: usize,
        /// The expert.
        expert: usize,
    },
    /// An interval of a single value grew without bound.
    #[error("{}: no finite interval", at(site))]
    Unbounded {
        /// The row.
        site: Site,
    },
    /// The output matrix is of a type whose int8 product has no interval.
    #[error("output matrix: {dtype} with int8 activations has no interval")]
    Output {
        /// The type.
        dtype: &'static str,
    },
    /// The engine refused something.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// A call failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Shares of positions, of those looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Positions.
    pub positions: usize,
    /// Those that no order of the last layer can change.
    pub order_proof: usize,
    /// Those that an evaluated order changes.
    pub flippable: usize,
    /// The others.
    pub undecided: usize,
}

impl Shares {
    /// Counts one more.
    pub fn count(&mut self, decision: &Decision) {
        self.positions += 1;
        match decision {
            Decision::OrderProof => self.order_proof += 1,
            Decision::Flippable(_) => self.flippable += 1,
            Decision::Undecided => self.undecided += 1,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            positions: self.positions + other.positions,
            order_proof: self.order_proof + other.order_proof,
            flippable: self.flippable + other.flippable,
            undecided: self.undecided + other.undecided,
        }
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { positions, order_proof, flippable, undecided } = self;
        let share = 100.0 * *order_proof as f64 / *positions as f64;
        write!(
            f,
            "{positions} positions: {order_proof} order-proof ({share:.2} %), {flippable} flippable, \
             {undecided} undecided"
        )
    }
}

/// Everything that is said of one run in slot order.
pub struct Orders {
    /// Reachable sums of every layer.
    pub layers: Vec<Reachable>,
    /// Products of the last layer, which a witness is evaluated with.
    pub last: Terms,
    /// Every position.
    pub verdicts: Vec<Verdict>,
    /// Elements whose ordered sum, and logits, were made again with the bits of the run.
    pub compared: usize,
}

impl Orders {
    /// Shares over all positions.
    #[must_use]
    pub fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        self.verdicts.iter().for_each(|verdict| shares.count(&verdict.decision));
        shares
    }

    /// Figures of every layer.
    #[must_use]
    pub fn figures(&self) -> Vec<LayerFigures> {
        self.layers.iter().map(Reachable::figures).collect()
    }

    /// Whether some order gives an element of a routed sum this value, given the inputs of this run. Nothing
    /// when there is no such element.
    #[must_use]
    pub fn contains(
        &self,
        layer: usize,
        position: usize,
        element: usize,
        value: f32,
    ) -> Option<bool> {
        self.layers.get(layer)?.contains(position, element, value)
    }
}

/// Runs tokens in one call and keeps what the functions here need.
///
/// # Errors
/// When the call fails.
pub fn record<B: Backend>(
    backend: &B,
    model: &Model,
    profile: Profile,
    tokens: &[u32],
) -> Result<Record, Problem> {
    let mut record = Record::of(&TAPS);
    Session::on(backend, model, profile)?.forward(tokens, Keep::All, &mut record)?;
    Ok(record)
}

/// Reachable sums of every layer and a verdict on every position of a run in slot order.
///
/// # Errors
/// When the run lacks a row, or its sums or logits do not come out with the same bits.
pub fn of_ordered<B: Backend>(
    backend: &B,
    model: &Model,
    profile: Profile,
    record: &Record,
) -> Result<Orders, Problem> {
    let (mut layers, mut last, mut compared) = (Vec::new(), None, 0);
    for layer in 0..model.config.layers.len() {
        let terms = Terms::of(backend, model, &profile, layer, record)?;
        compared += terms.check_ordered(record)?;
        layers.push(Reachable::of(&terms));
        last = Some(terms);
    }
    let last = last.ok_or(Problem::NoTokens { layer: 0 })?;
    let head = Head::new(model, profile)?;
    let reachable = &layers[layers.len() - 1];
    let mut verdicts = Vec::new();
    for position in reachable.positions() {
        let tail = Tail::new(&head, record, position)?;
        compared += tail.check(record)?;
        let logits = terms::row(record, Place::Output, Tap::Logits, position)?;
        let position = proof::Position { terms: &last, reachable, tail: &tail, position, logits };
        verdicts.push(position.verdict()?);
    }
    Ok(Orders { layers, last, verdicts, compared })
}

/// What was seen of a run whose experts were added as they arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// Elements that were looked up in the set of their own inputs.
    pub elements: usize,
    /// Those with more than one reachable value.
    pub plural: usize,
    /// Those that are not the sum in slot order.
    pub reordered: usize,
}

/// Holds every routed sum of a run in arrival order against what its own inputs can reach: every layer, so
/// nothing is inherited from the layer before.
///
/// # Errors
/// Names the first element that no order gives.
pub fn check_arrival<B: Backend>(
    backend: &B,
    model: &Model,
    profile: Profile,
    record: &Record,
) -> Result<Arrival, Problem> {
    let mut arrival = Arrival::default();
    for layer in 0..model.config.layers.len() {
        let terms = Terms::of(backend, model, &profile, layer, record)?;
        let reachable = Reachable::of(&terms);
        arrival.plural += reachable.figures().plural;
        inside(&reachable, record, &mut arrival)?;
    }
    Ok(arrival)
}

/// Looks every routed sum of a layer up.
fn inside(reachable: &Reachable, record: &Record, arrival: &mut Arrival) -> Result<(), Problem> {
    let place = Place::Layer(reachable.layer());
    for position in reachable.positions() {
        let site = Site { place, tap: Tap::RoutedOutput, position };
        let row = terms::row(record, place, site.tap, position)?;
        let ordered = reachable.ordered(position);
        if row.len() != ordered.len() {
            let (ours, theirs) = (ordered.len(), row.len());
            return Err(Problem::Width { site, ours, theirs });
        }
        for (element, value) in row.iter().enumerate() {
            if reachable.contains(position, element, *value) != Some(true) {
                return Err(Problem::Unreachable { site, element, bits: value.to_bits() });
            }
            arrival.elements += 1;
            arrival.reordered += usize::from(value.to_bits() != ordered[element].to_bits());
        }
    }
    Ok(())
}
