//! Changes of the greedy choice over many rows: rate, kinds and distribution.
//!
//! Promises: every row is compared or excluded, and both are counted; the rate is beside the histogram of
//! all margins and of the gaps that were crossed. [`Flips::strict`] is red at a rate above zero, however
//! small the worst gap; nothing compared is red, and so is a row that was excluded.

use serde::{Deserialize, Serialize};

use super::{Flip, Histogram, Margin, MarginError, Side, classify, classify_precision};
use crate::check::Outcome;

/// Counts of changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flips {
    /// Rows whose choices were compared.
    pub compared: u64,
    /// Rows that could not be, with the first reason.
    pub excluded: u64,
    /// Why the first of them was not.
    pub first_excluded: Option<String>,
    /// Changes by exact ties.
    pub exact_ties: u64,
    /// Changes inside a derived bound.
    pub inside_bound: u64,
    /// Changes inside the noise of another precision.
    pub near_ties: u64,
    /// Changes inside the reference's own noise.
    pub undecidable: u64,
    /// Changes that nothing explains.
    pub defects: u64,
    /// Position and kind of the first defect.
    pub first_defect: Option<(usize, Flip)>,
    /// The widest gap that was crossed.
    pub worst_gap: f64,
    /// Gaps that were crossed.
    pub gaps: Histogram,
    /// Margins of the reference, at all rows.
    pub margins: Histogram,
}

/// Both rows with their greedy choices.
fn sides<'a>(
    reference: &'a [f32],
    candidate: &'a [f32],
    position: usize,
) -> Result<[Side<'a>; 2], MarginError> {
    Ok([Side::greedy(reference, position)?, Side::greedy(candidate, position)?])
}

impl Flips {
    /// Counts a row of two sides with the same order of operations.
    pub fn add(
        &mut self,
        reference: &[f32],
        candidate: &[f32],
        bound: Option<f64>,
        position: usize,
    ) {
        let flip = sides(reference, candidate, position)
            .and_then(|[reference, candidate]| classify(reference, candidate, bound, position));
        self.judge(reference, position, flip);
    }

    /// Counts a row of two sides of different precision.
    pub fn add_precision(
        &mut self,
        reference: &[f32],
        candidate: &[f32],
        own: Option<f64>,
        position: usize,
    ) {
        let flip = sides(reference, candidate, position).and_then(|[reference, candidate]| {
            classify_precision(reference, candidate, own, position)
        });
        self.judge(reference, position, flip);
    }

    fn judge(
        &mut self,
        reference: &[f32],
        position: usize,
        flip: Result<Option<Flip>, MarginError>,
    ) {
        match Margin::of(reference, position) {
            Ok(margin) => self.margins.add(&margin),
            Err(_) => self.margins.exclude(),
        }
        match flip {
            Ok(flip) => self.count(position, flip),
            Err(error) => self.exclude(error.to_string()),
        }
    }

    /// Counts a row that was judged elsewhere.
    pub fn count(&mut self, position: usize, flip: Option<Flip>) {
        self.compared += 1;
        let Some(flip) = flip else { return };
        match flip {
            Flip::ExactTie => self.exact_ties += 1,
            Flip::InsideBound { .. } => self.inside_bound += 1,
            Flip::NearTieUnderQuantisation { .. } => self.near_ties += 1,
            Flip::UndecidableNearTie { .. } => self.undecidable += 1,
            Flip::Defect { .. } => {
                self.defects += 1;
                self.first_defect.get_or_insert((position, flip));
            }
        }
        self.gaps.add_gap(flip.gap());
        self.worst_gap = self.worst_gap.max(flip.gap());
    }

    /// Counts a row that cannot be compared.
    pub fn exclude(&mut self, reason: String) {
        self.excluded += 1;
        self.first_excluded.get_or_insert(reason);
    }

    /// Changes of any kind.
    #[must_use]
    pub fn flips(&self) -> u64 {
        self.gaps.rows + self.gaps.excluded
    }

    /// Changes for each row compared; nothing when none was.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.compared > 0).then(|| self.flips() as f64 / self.compared as f64)
    }

    /// Why nothing can be green: no row, or one that could not be compared.
    fn unusable(&self) -> Option<Outcome> {
        if self.excluded > 0 {
            let reason = self.first_excluded.as_deref().unwrap_or("no reason given");
            return Some(Outcome::Different(format!("{} rows excluded: {reason}", self.excluded)));
        }
        (self.compared == 0).then(|| Outcome::Different("no row was compared".into()))
    }

    /// Green when no choice changed.
    #[must_use]
    pub fn strict(&self) -> Outcome {
        self.unusable().unwrap_or_else(|| match self.flips() {
            0 => Outcome::Equal,
            _ => Outcome::Different(self.to_string()),
        })
    }

    /// Green when every change is explained by a tie, a bound or noise.
    #[must_use]
    pub fn explained(&self) -> Outcome {
        self.unusable().unwrap_or_else(|| match self.first_defect {
            None => Outcome::Equal,
            Some((position, flip)) => {
                Outcome::Different(format!("{self}; first defect at {position}: {flip:?}"))
            }
        })
    }
}

impl std::fmt::Display for Flips {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = 100.0 * self.rate().unwrap_or(f64::NAN);
        write!(
            f,
            "{} of {} choices changed ({rate:.2} %): {} exact ties, {} inside bound, {} near ties, {} \
             undecidable, {} defects; worst gap {:e}",
            self.flips(),
            self.compared,
            self.exact_ties,
            self.inside_bound,
            self.near_ties,
            self.undecidable,
            self.defects,
            self.worst_gap
        )
    }
}
