//! Can another order of the last layer's routed sums change the token at a position?
//!
//! Promises: `OrderProof` is a theorem about the float operations, not a sample; `Flippable` comes with
//! orders that were evaluated by the reference and chose another token; what is neither is `Undecided`.
//! About the orders of the last layer alone: what came before is as it was in the run.

use std::collections::BTreeMap;

use engine::format::quant::Q8_BLOCK;
use engine::rows::Rows;
use engine::sampler::argmax;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use super::Problem;
use super::interval::Bounds;
use super::layer::Reachable;
use super::sums;
use super::tail::{LogitBounds, Tail};
use super::terms::Terms;

/// Random orders that are tried before a directed search.
const RANDOM_TRIES: usize = 64;
/// Rivals that a directed search tries to lift.
const RIVALS: usize = 3;
/// Directions that are tried for codes that are not settled.
const GOALS: usize = 16;
/// Rounds of a directed search.
const ROUNDS: usize = 3;
/// Elements that are held while the others are drawn.
const HELD: usize = 4;

/// What a directed search climbs towards.
enum Goal {
    /// One logit above another.
    Lift { rival: u32, token: u32 },
    /// Another code of the last quantisation: an element against the largest of its block.
    Code { at: usize, sign: f64 },
}

/// Orders that change a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Witness {
    /// The position.
    pub position: usize,
    /// The token of the run.
    pub ordered: u32,
    /// The token of these orders.
    pub other: u32,
    /// Slots in order of arrival, for the elements that do not take slot order.
    pub orders: BTreeMap<usize, Vec<usize>>,
}

/// What is known of a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Every order gives the token of the run.
    OrderProof,
    /// These orders give another.
    Flippable(Witness),
    /// Neither was shown.
    Undecided,
}

/// A position and what was found.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The position.
    pub position: usize,
    /// The token of the run.
    pub token: u32,
    /// Whether orders can change it.
    pub decision: Decision,
    /// Codes of the last quantisation that are not settled; nothing when an interval grew without bound.
    pub open_codes: Option<usize>,
    /// Widest intervals of streams, reduced stream and normed input, in steps between floats.
    pub widest: [u64; 3],
}

/// Whether every vector inside the bounds has its largest element at `token`, lowest id among equals.
#[must_use]
pub fn always_chosen(logits: &Bounds, token: u32) -> bool {
    logits.is_finite() && rivals(logits, token).next().is_none()
}

/// Ids that may reach the token: an equal of higher id does not.
fn rivals(logits: &Bounds, token: u32) -> impl Iterator<Item = u32> {
    let least = logits.lo[token as usize];
    let reaches = move |(id, most): (u32, f32)| {
        let beaten = most < least || (most == least && id > token);
        (id != token && !beaten).then_some(id)
    };
    (0_u32..).zip(logits.hi.iter().copied()).filter_map(reaches)
}

impl Witness {
    /// The routed sum of the position in these orders.
    #[must_use]
    pub fn routed(&self, terms: &Terms) -> Vec<f32> {
        let mut of_element = Vec::new();
        let slots: Vec<usize> = (0..terms.slots).collect();
        let each = (0..terms.width()).map(|element| {
            terms.of_element(self.position - terms.start, element, &mut of_element);
            sums::in_order(&of_element, self.orders.get(&element).unwrap_or(&slots))
        });
        each.collect()
    }
}

/// A position of the last layer.
pub(super) struct Position<'a, 'h, 'm> {
    pub terms: &'a Terms,
    pub reachable: &'a Reachable,
    pub tail: &'a Tail<'h, 'm>,
    pub position: usize,
    /// Logits of the run.
    pub logits: &'a [f32],
}

impl Position<'_, '_, '_> {
    pub fn verdict(&self) -> Result<Verdict, Problem> {
        let token = argmax(self.logits, self.position)?;
        let mut verdict = Verdict {
            position: self.position,
            token,
            decision: Decision::Undecided,
            open_codes: None,
            widest: [0; 3],
        };
        let bounds = self.tail.bounds(&self.reachable.bounds(self.position));
        let Some(LogitBounds { logits, open, widest }) = bounds else { return Ok(verdict) };
        (verdict.open_codes, verdict.widest) = (Some(open.len()), widest);
        let mut rivals: Vec<u32> =
            rivals(&logits, token).filter(|id| !self.twin(token, *id)).collect();
        if rivals.is_empty() {
            verdict.decision = Decision::OrderProof;
            return Ok(verdict);
        }
        rivals.sort_by(|a, b| {
            self.logits[*b as usize].total_cmp(&self.logits[*a as usize]).then(a.cmp(b))
        });
        rivals.truncate(RIVALS);
        if let Some(witness) = self.search(token, &rivals, &open)? {
            verdict.decision = Decision::Flippable(witness);
        }
        Ok(verdict)
    }

    /// Whether an id has the logit of the token whatever the streams are, and loses the tie: same row of the
    /// output matrix, higher id.
    fn twin(&self, token: u32, id: u32) -> bool {
        let output = self.tail.output();
        id > token && output.row(id as usize) == output.row(token as usize)
    }

    /// Elements with a choice, and their values.
    fn choices(&self) -> Vec<(usize, &[f32])> {
        let each = (0..self.terms.width()).filter_map(|element| {
            let values = self.reachable.values(self.position, element)?;
            (values.len() > 1).then_some((element, values))
        });
        each.collect()
    }

    /// The sum of every element in slot order.
    fn in_slot_order(&self) -> Vec<f32> {
        let orders = BTreeMap::new();
        Witness { position: self.position, ordered: 0, other: 0, orders }.routed(self.terms)
    }

    fn search(
        &self,
        token: u32,
        rivals: &[u32],
        open: &[usize],
    ) -> Result<Option<Witness>, Problem> {
        let choices = self.choices();
        let plain = self.in_slot_order();
        let mut tries = Rows::empty(plain.len());
        tries.push(&plain);
        self.random_tries(&plain, &choices, &BTreeMap::new(), &mut tries);
        if let Some(found) = self.first_flip(token, &tries)? {
            return Ok(Some(found));
        }
        let codes = open.iter().flat_map(|at| [1.0, -1.0].map(|sign| Goal::Code { at: *at, sign }));
        let lifts = rivals.iter().map(|rival| Goal::Lift { rival: *rival, token });
        for goal in codes.take(GOALS).chain(lifts) {
            if let Some(found) = self.climb(token, &goal, &choices, &plain)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Adds sums in which each element with a choice has one of its values, those that are `held` theirs.
    fn random_tries(
        &self,
        from: &[f32],
        choices: &[(usize, &[f32])],
        held: &BTreeMap<usize, (f64, f32)>,
        tries: &mut Rows,
    ) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.position as u64);
        for _ in 0..RANDOM_TRIES {
            let mut routed = from.to_vec();
            for (element, values) in choices {
                let value = values[random.next_u32() as usize % values.len()];
                routed[*element] = held.get(element).map_or(value, |(_, held)| *held);
            }
            tries.push(&routed);
        }
    }

    /// How near these sums are to what is wanted.
    fn heights(&self, goal: &Goal, tries: &Rows) -> Vec<f64> {
        match goal {
            Goal::Lift { rival, token } => {
                let lift = |row: &[f32], id: u32| f64::from(row[id as usize]);
                let logits = self.tail.exact(tries);
                logits.iter().map(|row| lift(row, *rival) - lift(row, *token)).collect()
            }
            Goal::Code { at, sign } => {
                let block = at / Q8_BLOCK * Q8_BLOCK;
                let height = |row: &[f32]| {
                    let block = &row[block..block + Q8_BLOCK];
                    let largest = block.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
                    sign * f64::from(row[*at]) / f64::from(largest)
                };
                self.tail.exact_input(tries).iter().map(height).collect()
            }
        }
    }

    /// Gives every element the value that alone leads nearest to the goal, again from where that led; then
    /// holds the elements that matter most and draws the others.
    fn climb(
        &self,
        token: u32,
        goal: &Goal,
        choices: &[(usize, &[f32])],
        plain: &[f32],
    ) -> Result<Option<Witness>, Problem> {
        let mut from = plain.to_vec();
        for _ in 0..ROUNDS {
            let mut tries = Rows::empty(from.len());
            tries.push(&from);
            let mut changes = Vec::new();
            for (element, values) in choices {
                for value in [values[0], values[values.len() - 1]] {
                    let mut routed = from.clone();
                    routed[*element] = value;
                    tries.push(&routed);
                    changes.push((*element, value));
                }
            }
            let heights = self.heights(goal, &tries);
            let mut best: BTreeMap<usize, (f64, f32)> = BTreeMap::new();
            for ((element, value), height) in changes.iter().zip(&heights[1..]) {
                let gain = height - heights[0];
                if gain > best.get(element).map_or(0.0, |(gain, _)| *gain) {
                    best.insert(*element, (gain, *value));
                }
            }
            if best.is_empty() {
                return Ok(None);
            }
            best.iter().for_each(|(element, (_, value))| from[*element] = *value);
            tries.push(&from);
            let mut gains: Vec<f64> = best.values().map(|(gain, _)| *gain).collect();
            gains.sort_by(|a, b| b.total_cmp(a));
            let least = gains[gains.len().min(HELD) - 1];
            best.retain(|_, (gain, _)| *gain >= least);
            self.random_tries(&from, choices, &best, &mut tries);
            if let Some(found) = self.first_flip(token, &tries)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first of these sums whose token is another, as orders.
    fn first_flip(&self, token: u32, tries: &Rows) -> Result<Option<Witness>, Problem> {
        let logits = self.tail.exact(tries);
        for (routed, row) in tries.iter().zip(logits.iter()) {
            let other = argmax(row, self.position)?;
            if other != token {
                let (ordered, position) = (token, self.position);
                let orders = self.orders(routed);
                return Ok(Some(Witness { position, ordered, other, orders }));
            }
        }
        Ok(None)
    }

    /// Orders that give these values.
    fn orders(&self, routed: &[f32]) -> BTreeMap<usize, Vec<usize>> {
        let (mut orders, mut of_element) = (BTreeMap::new(), Vec::new());
        let token = self.position - self.terms.start;
        for ((element, value), plain) in routed.iter().enumerate().zip(self.in_slot_order()) {
            if value.to_bits() != plain.to_bits() {
                self.terms.of_element(token, element, &mut of_element);
                let order = sums::order_of(&of_element, *value).expect("a value of the set");
                orders.insert(element, order);
            }
        }
        orders
    }
}
