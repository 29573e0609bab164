//! Routed experts: tokens are grouped by expert, so that a weight is read once for all tokens that chose it.
//!
//! Promises: with [`Combine::Ordered`] the bytes of `reference::moe`: the products of a token are added in slot
//! order, whatever order they were computed in. With [`Combine::Atomic`], in calls of enough rows, each
//! thread adds the products of its expert as soon as it has them, so the order is that of arrival and
//! the bits are of one run only.

use std::sync::atomic::{AtomicU32, Ordering};

use super::activations::Activations;
use super::matmul::{Job, Kernels};
use crate::backend::Call;
use crate::format::weights::{Expert, Matrix};
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
    let job = |group: &Group, weights: &Matrix| Job {
        weights: weights.clone(),
        x: input,
        tokens: group.tokens.clone(),
    };
    let gates = groups.iter().map(|group| job(group, &experts[group.expert].gate));
    let ups = groups.iter().map(|group| job(group, &experts[group.expert].up));
    let mut gates = kernels.products(&gates.chain(ups).collect::<Vec<_>>(), int8);
    let ups = gates.split_off(groups.len());

    let width = ups.first().map_or(0, Rows::width);
    let items: Vec<_> = groups.iter().zip(&mut gates).zip(&ups).collect();
    kernels.threads().each(items, width * GATE_WORK, |((group, gate), up)| {
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
    let job = |(group, x): (&Group, _)| Job {
        weights: experts[group.expert].down.clone(),
        x,
        tokens: (0..group.tokens.len()).collect(),
    };
    let downs = kernels.products(&groups.iter().zip(&inner).map(job).collect::<Vec<_>>(), int8);
    let weight = |token: usize, slot: usize| (!weigh_inner).then(|| choices[token].weights[slot]);
    let (count, hidden) = (choices.len(), input.rows().width());
    let sums = match combine {
        Combine::Atomic { rows } if count >= rows => {
            add_as_they_arrive(kernels, &groups, &downs, weight, count, hidden)
        }
        _ => add_in_slot_order(kernels, &groups, &downs, weight, count, hidden),
    };
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

fn add_in_slot_order(
    kernels: &Kernels,
    groups: &[Group],
    downs: &[Rows],
    weight: impl Fn(usize, usize) -> Option<f32> + Sync,
    count: usize,
    hidden: usize,
) -> Rows {
    // Rows of each token by slot.
    let mut slots: Vec<Vec<(usize, &[f32])>> = vec![Vec::new(); count];
    for (group, down) in groups.iter().zip(downs) {
        for (row, (token, slot)) in down.iter().zip(group.tokens.iter().zip(&group.slots)) {
            slots[*token].push((*slot, row));
        }
    }
    let mut out = Rows::zeros(count, hidden);
    let items: Vec<_> =
        out.values_mut().chunks_exact_mut(hidden).zip(&mut slots).enumerate().collect();
    kernels.threads().each(items, 8 * hidden, |(token, (total, slots))| {
        // ORDER: slots in order, from +0.
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        for (slot, row) in slots {
            let weight = weight(token, *slot);
            for (total, value) in total.iter_mut().zip(*row) {
                *total = weight.map_or(*total + value, |weight| fma(*value, weight, *total));
            }
        }
    });
    out
}

fn add_as_they_arrive(
    kernels: &Kernels,
    groups: &[Group],
    downs: &[Rows],
    weight: impl Fn(usize, usize) -> Option<f32> + Sync,
    count: usize,
    hidden: usize,
) -> Rows {
    let total: Vec<AtomicU32> = (0..count * hidden).map(|_| AtomicU32::new(0)).collect();
    kernels.threads().spread(groups.iter().zip(downs).collect(), |(group, down)| {
        for (row, (token, slot)) in down.iter().zip(group.tokens.iter().zip(&group.slots)) {
            let weight = weight(*token, *slot).unwrap_or(1.0);
            for (total, value) in total[token * hidden..].iter().zip(row) {
                add(total, weight * value);
            }
        }
    });
    let values = total.into_iter().map(|bits| f32::from_bits(bits.into_inner())).collect();
    Rows::of(hidden, values)
}

/// Adds to a float that others add to at the same time.
fn add(total: &AtomicU32, value: f32) {
    let sum = |bits| Some((f32::from_bits(bits) + value).to_bits());
    // The closure never declines, so the result says nothing.
    let _ = total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
}
