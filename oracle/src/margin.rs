//! Margins of the greedy choice, and what a change of that choice means.
//!
//! Promises: gaps are measured, in value and in steps between floats, and no margin is a constant here. Rows
//! are refused before anything is compared when an entry is not finite, so a NaN can neither agree nor be
//! explained. Two sides with the same order of operations have a derived bound or none: then any change
//! that is not an exact tie is a defect. Sides of different precision are held against noise that is
//! measured at that very position, on entries that did not take part in the change.
//! Leaves to others: deriving bounds (`reachable`), reading other engines' vectors (`vectors`).

mod flips;
mod histogram;
mod relative;
#[cfg(test)]
mod tests;

pub use flips::Flips;
pub use histogram::Histogram;
pub use relative::Relative;

use engine::sampler;
use engine::session::RunError;
use serde::{Deserialize, Serialize};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarginError {
    /// A row is empty or an entry is not finite.
    #[error(transparent)]
    Row(#[from] RunError),
    /// A row has no second entry.
    #[error("position {position}: a row of one logit has no margin")]
    Alone {
        /// The position.
        position: usize,
    },
    /// Two rows differ in length.
    #[error("position {position}: {reference} logits against {candidate}")]
    Widths {
        /// The position.
        position: usize,
        /// Entries of the reference.
        reference: usize,
        /// Entries of the candidate.
        candidate: usize,
    },
    /// A chosen token is not in the row.
    #[error("position {position}: token {id} of {entries} logits")]
    Chosen {
        /// The position.
        position: usize,
        /// The token.
        id: u32,
        /// Entries of the row.
        entries: usize,
    },
}

/// Steps from one float to the next between two values; zeros of both signs are one.
#[must_use]
pub fn ulps_between(a: f32, b: f32) -> u64 {
    let rank = |x: f32| {
        let magnitude = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -magnitude } else { magnitude }
    };
    rank(a).abs_diff(rank(b))
}

/// The distance of the two largest logits of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Margin {
    /// The greedy choice: the largest, the lowest id among equals.
    pub best: u32,
    /// The greedy choice without it.
    pub second: u32,
    /// Difference of the two.
    pub value: f64,
    /// Floats from one to the other.
    pub ulps: u64,
}

impl Margin {
    /// The margin of the logits after `position`.
    ///
    /// # Errors
    /// When an entry is not finite or there is no second one.
    pub fn of(row: &[f32], position: usize) -> Result<Self, MarginError> {
        let best = sampler::argmax(row, position)?;
        let mut second: Option<u32> = None;
        for (id, logit) in (0_u32..).zip(row) {
            let better = second.is_none_or(|second| *logit > row[second as usize]);
            if id != best && better {
                second = Some(id);
            }
        }
        let second = second.ok_or(MarginError::Alone { position })?;
        let (largest, next) = (row[best as usize], row[second as usize]);
        let value = f64::from(largest) - f64::from(next);
        Ok(Self { best, second, value, ulps: ulps_between(largest, next) })
    }

    /// Whether the id decided.
    #[must_use]
    pub fn is_exact_tie(&self) -> bool {
        self.ulps == 0
    }
}

/// A row of logits and the token that was chosen from it.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Logits.
    pub row: &'a [f32],
    /// The token, which another engine may have chosen by another rule.
    pub chosen: u32,
}

impl<'a> Side<'a> {
    /// A row with its greedy choice.
    ///
    /// # Errors
    /// When the row is empty or an entry is not finite.
    pub fn greedy(row: &'a [f32], position: usize) -> Result<Self, MarginError> {
        Ok(Self { row, chosen: sampler::argmax(row, position)? })
    }

    /// Refuses what cannot be compared.
    fn check(&self, position: usize) -> Result<(), MarginError> {
        sampler::argmax(self.row, position)?;
        let entries = self.row.len();
        if self.chosen as usize >= entries {
            return Err(MarginError::Chosen { position, id: self.chosen, entries });
        }
        Ok(())
    }

    /// How far this side prefers its choice to another token; below 0 when it does not.
    fn preference(&self, other: u32) -> f64 {
        f64::from(self.row[self.chosen as usize]) - f64::from(self.row[other as usize])
    }
}

/// What a change of the greedy choice is.
///
/// `gap` is how far the difference of the two logits moved from one side to the other: what the reference
/// prefers its choice by, plus what the candidate prefers its own by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Flip {
    /// Both sides have the two logits equal, and one rule of choice is not the other's.
    ExactTie,
    /// No farther than the derived bound allows.
    InsideBound {
        /// See above.
        gap: f64,
        /// What was allowed.
        bound: f64,
    },
    /// Farther than anything explains.
    Defect {
        /// See above.
        gap: f64,
        /// What was allowed; 0 where nothing is known.
        bound: f64,
    },
    /// No farther than other pairs of logits moved at this position.
    NearTieUnderQuantisation {
        /// See above.
        gap: f64,
        /// The farthest that a pair of others moved.
        noise: f64,
    },
    /// No farther than the reference moves against itself: it does not say which token is right.
    UndecidableNearTie {
        /// See above.
        gap: f64,
        /// The farthest that the reference moves a pair against itself.
        noise: f64,
    },
}

impl Flip {
    /// How far the difference of the two logits moved.
    #[must_use]
    pub fn gap(&self) -> f64 {
        match *self {
            Self::ExactTie => 0.0,
            Self::InsideBound { gap, .. }
            | Self::Defect { gap, .. }
            | Self::NearTieUnderQuantisation { gap, .. }
            | Self::UndecidableNearTie { gap, .. } => gap,
        }
    }

    /// Whether nothing explains it.
    #[must_use]
    pub fn is_defect(&self) -> bool {
        matches!(self, Self::Defect { .. })
    }
}

/// How far logits move at a position without anybody being wrong, as differences of two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The reference against itself, another batch or build: the farthest that a pair moved.
    pub own: Option<f64>,
    /// The candidate against the reference: the farthest that a pair moved, of entries that take no part in
    /// the change.
    pub between: Option<f64>,
    /// Root mean square of such movements, for reports.
    pub rms: f64,
    /// Entries that were measured.
    pub entries: usize,
}

impl Noise {
    /// Measures two sides on the entries of both; `without` are the ids whose change is to be judged.
    ///
    /// Nothing is known when fewer than two entries are left, when an entry is not finite, or when the two
    /// sides are no more alike than two entries of one of them: rows of different positions differ by more
    /// than the reference's own entries do, and may not explain anything.
    #[must_use]
    pub fn between(entries: &[(u32, f64, f64)], without: &[u32]) -> Self {
        let kept: Vec<(f64, f64)> = entries
            .iter()
            .filter(|(id, _, _)| !without.contains(id))
            .map(|(_, reference, candidate)| (*reference, *candidate))
            .collect();
        let moved: Vec<f64> = kept.iter().map(|(r, c)| c - r).collect();
        let finite = kept.iter().all(|(r, c)| r.is_finite() && c.is_finite());
        if kept.len() < 2 || !finite {
            return Self { entries: kept.len(), ..Self::default() };
        }
        let reference: Vec<f64> = kept.iter().map(|(r, _)| *r).collect();
        let (rms, spread) = (pair_rms(&moved), pair_rms(&reference));
        let ends = moved.iter().fold((f64::MAX, f64::MIN), |(lo, hi), x| (lo.min(*x), hi.max(*x)));
        let between = (rms < spread).then_some(ends.1 - ends.0);
        Self { own: None, between, rms, entries: kept.len() }
    }

    /// The same with the reference's noise against itself.
    #[must_use]
    pub fn with_own(self, own: f64) -> Self {
        Self { own: Some(own), ..self }
    }
}

/// Root mean square difference of two entries of a list: the square root of two times the standard deviation.
fn pair_rms(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    // ORDER: in the order of the list; this explains and decides no bytes.
    let mean = values.iter().fold(0.0, |sum, x| sum + x) / count;
    let squares = values.iter().fold(0.0, |sum, x| sum + (x - mean) * (x - mean));
    (2.0 * squares / count).sqrt()
}

/// What a change of the choice is between two sides with the same order of operations; nothing when both
/// chose the same token. `bound` is a derived limit on the difference of any one logit at this position.
///
/// # Errors
/// When a row is empty or of another length, an entry is not finite or a chosen token is outside.
pub fn classify(
    reference: Side<'_>,
    candidate: Side<'_>,
    bound: Option<f64>,
    position: usize,
) -> Result<Option<Flip>, MarginError> {
    let Some((r, c)) = preferences(reference, candidate, position)? else { return Ok(None) };
    // Two logits may each move by the bound.
    let (gap, bound) = (r + c, 2.0 * bound.unwrap_or(0.0));
    // A side that prefers the other's token did not choose from its own logits.
    Ok(Some(if r < 0.0 || c < 0.0 {
        Flip::Defect { gap: r.abs().max(c.abs()), bound: 0.0 }
    } else if gap == 0.0 {
        Flip::ExactTie
    } else if gap <= bound {
        Flip::InsideBound { gap, bound }
    } else {
        Flip::Defect { gap, bound }
    }))
}

/// By how much each side prefers its own choice, when they differ.
fn preferences(
    reference: Side<'_>,
    candidate: Side<'_>,
    position: usize,
) -> Result<Option<(f64, f64)>, MarginError> {
    // Finite first: a comparison with NaN is false either way round.
    reference.check(position)?;
    candidate.check(position)?;
    if reference.row.len() != candidate.row.len() {
        let (reference, candidate) = (reference.row.len(), candidate.row.len());
        return Err(MarginError::Widths { position, reference, candidate });
    }
    let differ = reference.chosen != candidate.chosen;
    Ok(differ
        .then(|| (reference.preference(candidate.chosen), candidate.preference(reference.chosen))))
}

/// What a change of the choice is between sides of different precision, given by how much each prefers its
/// own token. Where no noise is known, it is a defect unless both are tied.
#[must_use]
pub fn classify_gaps(reference: f64, candidate: f64, noise: &Noise) -> Flip {
    let gap = reference + candidate;
    if !gap.is_finite() || reference < 0.0 || candidate < 0.0 {
        let gap = reference.abs().max(candidate.abs());
        return Flip::Defect { gap, bound: 0.0 };
    }
    if gap == 0.0 {
        return Flip::ExactTie;
    }
    if let Some(noise) = noise.own.filter(|own| gap <= *own) {
        return Flip::UndecidableNearTie { gap, noise };
    }
    match noise.between {
        Some(noise) if gap <= noise => Flip::NearTieUnderQuantisation { gap, noise },
        between => {
            Flip::Defect { gap, bound: between.unwrap_or(0.0).max(noise.own.unwrap_or(0.0)) }
        }
    }
}

/// [`classify`] for sides of different precision: the noise is that of all other logits at this position,
/// and the reference's own where it is known.
///
/// # Errors
/// As for [`classify`].
pub fn classify_precision(
    reference: Side<'_>,
    candidate: Side<'_>,
    own: Option<f64>,
    position: usize,
) -> Result<Option<Flip>, MarginError> {
    let Some((r, c)) = preferences(reference, candidate, position)? else { return Ok(None) };
    let rows = (0_u32..).zip(reference.row.iter().zip(candidate.row));
    let entries: Vec<(u32, f64, f64)> =
        rows.map(|(id, (r, c))| (id, f64::from(*r), f64::from(*c))).collect();
    let noise = Noise::between(&entries, &[reference.chosen, candidate.chosen]);
    Ok(Some(classify_gaps(r, c, &Noise { own, ..noise })))
}
