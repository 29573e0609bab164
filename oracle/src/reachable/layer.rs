//! The reachable values of the routed sum of one layer, element by element.
//!
//! Promises: of up to [`SET_TERMS_MAX`](sums::SET_TERMS_MAX) slots every reachable value is kept; of more,
//! an interval that holds them. [`Reachable::contains`] never says yes to what was not kept.

use engine::rows::Rows;
use serde::Serialize;

use super::interval::{Bounds, Interval};
use super::sums::{self, Values};
use super::terms::Terms;

/// How the values of a layer are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// All of them.
    Set,
    /// The smallest and the largest.
    Extremes,
    /// An interval around them.
    Bound,
}

/// Reachable values of the routed sums of a layer.
#[derive(Clone, Debug)]
pub struct Reachable {
    layer: usize,
    start: usize,
    width: usize,
    known: Known,
    /// Where the values of each element begin; one more than there are elements. Empty unless sets are known.
    begins: Vec<usize>,
    values: Vec<f32>,
    /// Smallest and largest value of each element in any order.
    ends: Vec<Interval>,
    /// The sums in slot order.
    ordered: Rows,
    ordered_is_an_order: bool,
}

/// Figures of one layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerFigures {
    /// The layer.
    pub layer: usize,
    /// How its values are known.
    pub known: Known,
    /// Elements of all tokens.
    pub elements: usize,
    /// Elements with more than one reachable value.
    pub plural: usize,
    /// Most values of one element, where sets are known.
    pub values_max: usize,
    /// The widest interval, as steps from one float to the next.
    pub widest_ulps: u64,
}

impl Reachable {
    /// Every order of these terms.
    #[must_use]
    pub fn of(terms: &Terms) -> Self {
        let known = if terms.slots <= sums::SET_TERMS_MAX {
            Known::Set
        } else if terms.slots <= sums::EXACT_TERMS_MAX {
            Known::Extremes
        } else {
            Known::Bound
        };
        let elements = terms.count() * terms.width();
        let mut found = Self {
            layer: terms.layer,
            start: terms.start,
            width: terms.width(),
            known,
            begins: Vec::new(),
            values: Vec::new(),
            ends: Vec::with_capacity(elements),
            ordered: Rows::empty(terms.width()),
            ordered_is_an_order: terms.ordered_is_an_order(),
        };
        let (mut lists, mut of_element) = (Values::default(), Vec::new());
        for token in 0..terms.count() {
            found.ordered.push(&terms.ordered(token));
            for element in 0..terms.width() {
                terms.of_element(token, element, &mut of_element);
                found.add(&of_element, &mut lists);
            }
        }
        if known == Known::Set {
            found.begins.push(found.values.len());
        }
        found
    }

    fn add(&mut self, terms: &[f32], lists: &mut Values) {
        let ends = match self.known {
            Known::Set => {
                let values = lists.of(terms);
                self.begins.push(self.values.len());
                self.values.extend_from_slice(values);
                let ends = Interval { lo: values[0], hi: values[values.len() - 1] };
                if values.iter().all(|v| v.is_finite()) { ends } else { Interval::UNKNOWN }
            }
            Known::Extremes => sums::extremes(terms),
            Known::Bound => sums::bound(terms),
        };
        self.ends.push(ends);
    }

    /// The layer.
    #[must_use]
    pub fn layer(&self) -> usize {
        self.layer
    }

    /// Positions of the tokens.
    #[must_use]
    pub fn positions(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.ends.len() / self.width
    }

    fn index(&self, position: usize, element: usize) -> Option<usize> {
        let inside = self.positions().contains(&position) && element < self.width;
        inside.then(|| (position - self.start) * self.width + element)
    }

    /// The reachable values of an element, ascending; nothing where only intervals are known or there is no
    /// such element.
    #[must_use]
    pub fn values(&self, position: usize, element: usize) -> Option<&[f32]> {
        let index = self.index(position, element)?;
        let (from, to) = (self.begins.get(index)?, self.begins.get(index + 1)?);
        Some(&self.values[*from..*to])
    }

    /// Whether some order gives this value to this element: by its bits where all values are known, by the
    /// interval otherwise. Nothing when there is no such element.
    #[must_use]
    pub fn contains(&self, position: usize, element: usize, value: f32) -> Option<bool> {
        if self.known == Known::Set {
            let values = self.values(position, element)?;
            return Some(values.iter().any(|known| known.to_bits() == value.to_bits()));
        }
        Some(self.ends[self.index(position, element)?].holds(value))
    }

    /// The sums of a token in slot order.
    ///
    /// # Panics
    /// When there is no such position.
    #[must_use]
    pub fn ordered(&self, position: usize) -> &[f32] {
        self.ordered.row(position - self.start)
    }

    /// The smallest box that holds every order of a token, the ordered sum included.
    ///
    /// # Panics
    /// When there is no such position.
    #[must_use]
    pub fn bounds(&self, position: usize) -> Bounds {
        let first = (position - self.start) * self.width;
        let ends = &self.ends[first..first + self.width];
        Bounds::of(ends.iter().zip(self.ordered(position)).map(|(ends, value)| ends.with(*value)))
    }

    /// Whether the sum in slot order is one of the orders, not a sum of another kind.
    #[must_use]
    pub fn ordered_is_an_order(&self) -> bool {
        self.ordered_is_an_order
    }

    /// What the layer looks like.
    #[must_use]
    pub fn figures(&self) -> LayerFigures {
        let sizes = self.begins.windows(2).map(|pair| pair[1] - pair[0]);
        LayerFigures {
            layer: self.layer,
            known: self.known,
            elements: self.ends.len(),
            plural: self.ends.iter().filter(|ends| ends.lo != ends.hi).count(),
            values_max: sizes.max().unwrap_or(0),
            widest_ulps: self.ends.iter().map(|ends| ends.ulps()).max().unwrap_or(0),
        }
    }

    /// Forgets the largest value of every element that has several: an order that was not covered.
    #[cfg(test)]
    pub(super) fn forget_largest(&mut self) {
        for index in 0..self.ends.len() {
            let (from, to) = (self.begins[index], self.begins[index + 1]);
            for value in from + 1..to {
                if value + 1 == to {
                    self.values[value] = self.values[from];
                }
            }
        }
    }
}
