//! What is added up in the routed sum of every token: one product a slot.
//!
//! Promises: products are made again from the inner activations that a run showed, with the engine's own
//! matrix product; [`Terms::check_ordered`] requires the bits of the run when they are added in slot order.
//! What is added when experts arrive in any order: where the router's weight is applied before the
//! down-projection, the product; where after it, the product times the weight, rounded, while the ordered
//! sum uses one fma. So in those profiles the ordered sum is one more value and no order of the others.

use std::collections::BTreeMap;

use engine::Profile;
use engine::backend::Backend;
use engine::model::Model;
use engine::reference::order::fma;
use engine::rows::Rows;
use engine::tap::{Place, Site, Tap};

use super::Problem;
use crate::record::Record;

/// Products of one layer.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The layer.
    pub layer: usize,
    /// Position of the first token.
    pub start: usize,
    /// Terms of each sum.
    pub slots: usize,
    /// Products, `[tokens * slots][hidden]`.
    products: Rows,
    /// Weights still to be applied, `[tokens][slots]`.
    weights: Option<Rows>,
}

/// A row of floats that a run showed.
pub(super) fn row(
    record: &Record,
    place: Place,
    tap: Tap,
    position: usize,
) -> Result<&[f32], Problem> {
    let site = Site { place, tap, position };
    record.floats.get(&site).map(Vec::as_slice).ok_or(Problem::Missing { site })
}

/// Fails at the first element of which two rows differ in a bit.
pub(super) fn same_bits(site: Site, ours: &[f32], theirs: &[f32]) -> Result<(), Problem> {
    if ours.len() != theirs.len() {
        return Err(Problem::Width { site, ours: ours.len(), theirs: theirs.len() });
    }
    let differs = ours.iter().zip(theirs).position(|(a, b)| a.to_bits() != b.to_bits());
    differs.map_or(Ok(()), |element| {
        let (ours, theirs) = (ours[element].to_bits(), theirs[element].to_bits());
        Err(Problem::Recomputed { site, element, ours, theirs })
    })
}

impl Terms {
    /// The products of layer `index` of every token that the run showed.
    ///
    /// # Errors
    /// When the run showed no token, a row is missing or of another length, or its positions have a gap.
    ///
    /// # Panics
    /// When the model has no such layer.
    pub fn of<B: Backend>(
        backend: &B,
        model: &Model,
        profile: &Profile,
        index: usize,
        record: &Record,
    ) -> Result<Self, Problem> {
        let (config, weights) = (&model.config, &model.weights.layers[index]);
        let place = Place::Layer(index);
        let positions: Vec<usize> = record
            .floats
            .keys()
            .filter(|site| site.place == place && site.tap == Tap::ExpertMid)
            .map(|site| site.position)
            .collect();
        let start = *positions.first().ok_or(Problem::NoTokens { layer: index })?;
        let mut slots_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let (slots, inner) = (config.experts_used, config.experts_used * config.expert_dim);
        let (mut mids, mut router) = (Vec::new(), Vec::new());
        for (token, position) in positions.iter().enumerate() {
            let site = |tap| Site { place, tap, position: start + token };
            if *position != start + token {
                return Err(Problem::Missing { site: site(Tap::ExpertMid) });
            }
            let chosen = site(Tap::RouterExperts);
            let experts = record.indices.get(&chosen).ok_or(Problem::Missing { site: chosen })?;
            let mid = row(record, place, Tap::ExpertMid, *position)?;
            let router_weights = row(record, place, Tap::RouterWeights, *position)?;
            let lengths =
                [(experts.len(), slots), (router_weights.len(), slots), (mid.len(), inner)];
            if let Some((theirs, ours)) = lengths.into_iter().find(|(theirs, ours)| theirs != ours)
            {
                return Err(Problem::Width { site: site(Tap::ExpertMid), ours, theirs });
            }
            for (slot, expert) in experts.iter().enumerate() {
                slots_of.entry(*expert).or_default().push(token * slots + slot);
            }
            mids.extend_from_slice(mid);
            router.extend_from_slice(router_weights);
        }
        let width = config.expert_dim;
        let mids = Rows::of(width, mids);
        let hidden = weights.shared.down.rows();
        let mut products = Rows::zeros(mids.count(), hidden);
        for (expert, rows) in slots_of {
            let mut inner = Rows::empty(width);
            rows.iter().for_each(|row| inner.push(mids.row(*row)));
            let expert = weights.experts.get(expert).ok_or(Problem::Expert { index, expert })?;
            let down = backend.matmul(&expert.down, &backend.upload(inner)?, profile);
            let down = backend.download(&down)?;
            rows.iter().zip(down.iter()).for_each(|(row, down)| {
                products.row_mut(*row).copy_from_slice(down);
            });
        }
        let weights = (!profile.weight_before_down).then(|| Rows::of(slots, router));
        Ok(Self { layer: index, start, slots, products, weights })
    }

    /// Tokens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.products.count() / self.slots
    }

    /// Elements of each sum's vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.products.width()
    }

    /// Whether the ordered sum is one of the orders, not a sum of another kind.
    #[must_use]
    pub fn ordered_is_an_order(&self) -> bool {
        self.weights.is_none()
    }

    /// What is added to an element of a token when its slots arrive one by one, in slot order.
    pub fn of_element(&self, token: usize, element: usize, out: &mut Vec<f32>) {
        out.clear();
        for slot in 0..self.slots {
            let product = self.products.row(token * self.slots + slot)[element];
            // As `cpu::experts` adds: the weight times the product, or the product itself.
            let weight = self.weights.as_ref().map_or(1.0, |weights| weights.row(token)[slot]);
            out.push(weight * product);
        }
    }

    /// The routed sum of a token in slot order, as the reference adds it.
    #[must_use]
    pub fn ordered(&self, token: usize) -> Vec<f32> {
        let mut total = vec![0.0_f32; self.width()];
        for slot in 0..self.slots {
            let products = self.products.row(token * self.slots + slot);
            let weight = self.weights.as_ref().map(|weights| weights.row(token)[slot]);
            // ORDER: slots in order, from +0, as `reference::moe`.
            for (total, product) in total.iter_mut().zip(products) {
                *total = weight.map_or(*total + product, |weight| fma(*product, weight, *total));
            }
        }
        total
    }

    /// Requires that the ordered sums are those of the run, bit for bit; returns how many elements were
    /// compared.
    ///
    /// # Errors
    /// Names the first element that differs.
    pub fn check_ordered(&self, record: &Record) -> Result<usize, Problem> {
        let place = Place::Layer(self.layer);
        for token in 0..self.count() {
            let site = Site { place, tap: Tap::RoutedOutput, position: self.start + token };
            let theirs = row(record, place, Tap::RoutedOutput, site.position)?;
            same_bits(site, &self.ordered(token), theirs)?;
        }
        Ok(self.count() * self.width())
    }

    /// Products made by a test.
    #[cfg(test)]
    pub(super) fn made(slots: usize, products: Rows) -> Self {
        Self { layer: 0, start: 0, slots, products, weights: None }
    }

    /// Puts zero in place of one slot's products everywhere: a fault to be seen.
    #[cfg(test)]
    pub(super) fn drop_slot(&mut self, slot: usize) {
        for token in 0..self.count() {
            self.products.row_mut(token * self.slots + slot).fill(0.0);
        }
    }
}
