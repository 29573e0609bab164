//! Routed experts: tokens are grouped by expert, so that a weight is read once for all tokens that chose it.
//!
//! Promises: with [`Combine::Ordered`] the bytes of `reference::moe`: the products of a token are added in slot
//! order, whatever order they were computed in. With [`Combine::Atomic`], in calls of enough rows, each
//! thread adds the products of its expert as soon as it has them, so the order is that of arrival and
//! the bits are of one run only.

use std::sync::atomic::{AtomicU32, Ordering};

use super::activations::Activations;
use super::matmul::{Job, Kernels, Pick};
use super::view::View;
use crate::backend::Call;
use crate::format::weights::Expert;
use crate::reference::moe;
use crate::reference::order::fma;
use crate::reference::router::Choice;
use crate::rows::Rows;
use crate::session::RunError;
use crate::tap::{Tap, Taps};

/// How the down-projections of a token's experts are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// In slot order.
    Ordered,
    /// As they arrive, in calls of at least so many rows; in slot order below.
    Atomic {
        /// Rows in one forward call.
        rows: usize,
    },
}

/// One expert and the tokens that chose it.
struct Group {
    expert: usize,
    tokens: Vec<usize>,
    /// The slot of each token.
    slots: Vec<usize>,
}

/// Work of one inner activation: an exponential.
const GATE_WORK: usize = 16;
/// Rows of a down-projection that a thread computes before it adds them.
const ATOMIC_ROWS: usize = 32;

fn groups(choices: &[Choice], experts: usize) -> Vec<Group> {
    let empty = |expert| Group { expert, tokens: Vec::new(), slots: Vec::new() };
    let mut groups: Vec<Group> = (0..experts).map(empty).collect();
    for (token, choice) in choices.iter().enumerate() {
        for (slot, expert) in choice.experts.iter().enumerate() {
            groups[*expert].tokens.push(token);
            groups[*expert].slots.push(slot);
        }
    }
    groups.retain(|group| !group.tokens.is_empty());
    groups
}

/// The chosen experts of every token, added up.
///
/// # Errors
/// When an inner activation is not finite.
#[expect(clippy::too_many_arguments, reason = "what experts are made of")]
pub fn routed(
    kernels: &Kernels,
    combine: Combine,
    call: &Call<'_>,
    experts: &[Expert],
    choices: &[Choice],
    input: &Activations,
    clamp: Option<f32>,
    taps: &mut Taps<'_>,
) -> Result<Activations, RunError> {
    let int8 = call.profile.int8_activations;
    let weigh_inner = call.profile.weight_before_down;
    let groups = groups(choices, experts.len());

    // Gates and ups of all experts side by side.
    let inner_width = experts.first().map_or(1, |expert| expert.gate.rows());
    let empty = |width: usize| -> Vec<Rows> {
        groups.iter().map(|group| Rows::zeros(group.tokens.len(), width)).collect()
    };
    let (mut gates, mut ups) = (empty(inner_width), empty(inner_width));
    let mut jobs = Vec::with_capacity(2 * groups.len());
    for ((group, gate), up) in groups.iter().zip(&mut gates).zip(&mut ups) {
        let expert = &experts[group.expert];
        for (weights, out) in [(&expert.gate, gate), (&expert.up, up)] {
            let (features, tokens) = (0..weights.rows(), Pick::List(&group.tokens));
            jobs.push(Job { weights, features, x: input, tokens, out: View::of(out) });
        }
    }
    kernels.matmul_jobs(&jobs, int8);
    drop(jobs);

    let items: Vec<_> = groups.iter().zip(&mut gates).zip(&ups).collect();
    kernels.threads().each(items, inner_width * GATE_WORK, |((group, gate), up)| {
        moe::gate(gate.values_mut(), up.values(), clamp);
        if weigh_inner {
            for (index, (token, slot)) in group.tokens.iter().zip(&group.slots).enumerate() {
                let weight = choices[*token].weights[*slot];
                gate.row_mut(index).iter_mut().for_each(|value| *value *= weight);
            }
        }
    });
    show(call, choices, &groups, &gates, taps)?;

    let inner: Vec<Activations> = gates.into_iter().map(Activations::from).collect();
    let down = Down {
        kernels,
        int8,
        experts,
        groups: &groups,
        inner: &inner,
        choices,
        weigh_inner,
        hidden: input.width(),
    };
    let atomic = matches!(combine, Combine::Atomic { rows } if choices.len() >= rows);
    kernels.count_sum(atomic);
    let sums = if atomic { down.add_as_they_arrive() } else { down.add_in_slot_order() };
    Ok(sums.into())
}

/// Shows the inner activations of all slots of each token.
fn show(
    call: &Call<'_>,
    choices: &[Choice],
    groups: &[Group],
    inner: &[Rows],
    taps: &mut Taps<'_>,
) -> Result<(), RunError> {
    let (slots, width) = (call.config.experts_used, inner.first().map_or(0, Rows::width));
    let mut mids = Rows::zeros(choices.len(), slots * width);
    for (group, inner) in groups.iter().zip(inner) {
        for (row, (token, slot)) in inner.iter().zip(group.tokens.iter().zip(&group.slots)) {
            mids.row_mut(*token)[slot * width..(slot + 1) * width].copy_from_slice(row);
        }
    }
    taps.rows(Tap::ExpertMid, call.start, &mids)
}

/// The down-projections of a call.
struct Down<'a> {
    kernels: &'a Kernels,
    int8: bool,
    experts: &'a [Expert],
    groups: &'a [Group],
    /// Inner activations of each group.
    inner: &'a [Activations],
    choices: &'a [Choice],
    weigh_inner: bool,
    hidden: usize,
}

impl Down<'_> {
    /// What the product of a slot is still to be multiplied by.
    fn weight(&self, token: usize, slot: usize) -> Option<f32> {
        (!self.weigh_inner).then(|| self.choices[token].weights[slot])
    }

    fn add_in_slot_order(&self) -> Rows {
        let empty = |group: &Group| Rows::zeros(group.tokens.len(), self.hidden);
        let mut downs: Vec<Rows> = self.groups.iter().map(empty).collect();
        let job = |((group, x), out): ((&Group, _), _)| {
            Job::whole(&self.experts[group.expert].down, x, View::of(out))
        };
        let jobs: Vec<Job<'_>> =
            self.groups.iter().zip(self.inner).zip(&mut downs).map(job).collect();
        self.kernels.matmul_jobs(&jobs, self.int8);
        drop(jobs);
        // Rows of each token by slot.
        let mut slots: Vec<Vec<(usize, &[f32])>> = vec![Vec::new(); self.choices.len()];
        for (group, down) in self.groups.iter().zip(&downs) {
            for (row, (token, slot)) in down.iter().zip(group.tokens.iter().zip(&group.slots)) {
                slots[*token].push((*slot, row));
            }
        }
        let mut out = Rows::zeros(slots.len(), self.hidden);
        let items: Vec<_> =
            out.values_mut().chunks_exact_mut(self.hidden).zip(&mut slots).enumerate().collect();
        self.kernels.threads().each(items, 8 * self.hidden, |(token, (total, slots))| {
            // ORDER: slots in order, from +0.
            slots.sort_unstable_by_key(|(slot, _)| *slot);
            for (slot, row) in slots {
                let weight = self.weight(token, *slot);
                for (total, value) in total.iter_mut().zip(*row) {
                    *total = weight.map_or(*total + value, |weight| fma(*value, weight, *total));
                }
            }
        });
        out
    }

    fn add_as_they_arrive(&self) -> Rows {
        let (count, hidden) = (self.choices.len(), self.hidden);
        for (group, x) in self.groups.iter().zip(self.inner) {
            self.kernels.encode(&self.experts[group.expert].down, x, self.int8);
        }
        let total: Vec<AtomicU32> = (0..count * hidden).map(|_| AtomicU32::new(0)).collect();
        // Experts of the same rows follow each other, so they meet.
        let blocks = (0..hidden).step_by(ATOMIC_ROWS);
        let items = blocks.flat_map(|first| (0..self.groups.len()).map(move |g| (g, first)));
        self.kernels.threads().spread(items.collect(), |(index, first): (usize, usize)| {
            let (group, x) = (&self.groups[index], &self.inner[index]);
            let features = first..hidden.min(first + ATOMIC_ROWS);
            let mut down = Rows::zeros(group.tokens.len(), features.len());
            let weights = &self.experts[group.expert].down;
            let tokens = Pick::Range(0..group.tokens.len());
            let out = View::of(&mut down);
            self.kernels.matmul_here(&Job { weights, features, x, tokens, out }, self.int8);
            for (row, (token, slot)) in down.iter().zip(group.tokens.iter().zip(&group.slots)) {
                let weight = self.weight(*token, *slot).unwrap_or(1.0);
                for (total, value) in total[token * hidden + first..].iter().zip(row) {
                    add(total, weight * value);
                }
            }
        });
        let values = total.into_iter().map(|bits| f32::from_bits(bits.into_inner())).collect();
        Rows::of(hidden, values)
    }
}

/// Adds to a float that others add to at the same time.
fn add(total: &AtomicU32, value: f32) {
    let sum = |bits| Some((f32::from_bits(bits) + value).to_bits());
    // The closure never declines, so the result says nothing.
    let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}
