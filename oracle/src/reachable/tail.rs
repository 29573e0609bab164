//! From the routed sum of the last layer to the logits of one position: exactly, and for a whole box.
//!
//! Promises: [`Tail::exact`] is the reference's own functions, and has the bits of the run
//! ([`Tail::check`]); [`Tail::bounds`] holds the logits of every routed sum in the box.
//!
//! The steps and why their intervals are sound (`interval` says the same of each operation):
//!
//! 1. shared expert added: one addition, increasing;
//! 2. leaving the hyper-connection: `y * weight`, then streams that do not depend on `y` added by fma:
//!    monotone in the one `y` behind each output, so two evaluations of the reference are the ends;
//! 3. reduction to one stream: the norm's factor depends on all 4 * hidden values through the sum of
//!    squares, which is increasing in magnitudes; projections by exact weights; `sigmoid` is monotone over
//!    all floats, seams included (`reference::order::elementary`); weights times streams by corners;
//! 4. the output's norm, as in 3;
//! 5. int8 codes of the profile: a code that differs over the box is kept as a range of integers;
//! 6. output projection: integers exact, scales by corners, chains of fma increasing in what came before.

use engine::format::weights::Matrix;
use engine::model::Model;
use engine::profile::Profile;
use engine::reference::hyper::{self, Mix};
use engine::reference::{matmul, norm, order};
use engine::rows::Rows;
use engine::tap::{Place, Site, Tap};
use engine::tensor::DType;

use super::Problem;
use super::interval::{Bounds, Codes, Interval, weigh};
use super::terms::{row, same_bits};
use crate::record::Record;

/// The head of a model, decoded once.
pub struct Head<'m> {
    model: &'m Model,
    profile: Profile,
    mix: Vec<Vec<f32>>,
    /// Rows of the output matrix, where activations meet it unrounded.
    output: Vec<Vec<f32>>,
}

fn decoded(matrix: &Matrix) -> Vec<Vec<f32>> {
    let each = (0..matrix.rows()).map(|row| {
        let mut values = vec![0.0; matrix.columns()];
        matrix.decode_row(row, &mut values);
        values
    });
    each.collect()
}

impl<'m> Head<'m> {
    /// The head of this model in this meaning.
    ///
    /// # Errors
    /// When the output matrix is of a type whose int8 product has no interval here.
    pub fn new(model: &'m Model, profile: Profile) -> Result<Self, Problem> {
        let output = &model.weights.output;
        let as_is = match output.dtype() {
            DType::F32 | DType::F16 | DType::Bf16 => true,
            DType::Q8_0 => !profile.int8_activations,
            _ if profile.int8_activations => {
                return Err(Problem::Output { dtype: output.dtype().name() });
            }
            _ => true,
        };
        let output = if as_is { decoded(output) } else { Vec::new() };
        Ok(Self { model, profile, mix: decoded(&model.weights.head.mix), output })
    }
}

/// What one position needs between its routed sum and its logits.
pub struct Tail<'h, 'm> {
    head: &'h Head<'m>,
    position: usize,
    mix: Mix,
    /// Streams after attention.
    streams: &'h [f32],
    shared: &'h [f32],
}

/// Logits of a box.
#[derive(Clone, Debug)]
pub struct LogitBounds {
    /// An interval for every id.
    pub logits: Bounds,
    /// Elements whose code in the last quantisation is not settled.
    pub open: Vec<usize>,
    /// Widest intervals, in steps between floats: streams, reduced stream, after the norm.
    pub widest: [u64; 3],
}

impl<'h, 'm> Tail<'h, 'm> {
    /// The tail of a position that the run showed.
    ///
    /// # Errors
    /// When a row is missing.
    pub fn new(head: &'h Head<'m>, record: &'h Record, position: usize) -> Result<Self, Problem> {
        let layer = head.model.config.layers.len() - 1;
        let place = Place::Layer(layer);
        let streams = row(record, place, Tap::AttnStreams, position)?;
        let shared = row(record, place, Tap::SharedOutput, position)?;
        let weights = &head.model.weights.layers[layer].ffn_hyper;
        let rows = Rows::of(streams.len(), streams.to_vec());
        let mut mixes = hyper::mixes(&rows, weights, &head.model.config);
        let mix = mixes.pop().expect("the mix of one row");
        Ok(Self { head, position, mix, streams, shared })
    }

    /// The output matrix.
    pub(super) fn output(&self) -> &Matrix {
        &self.head.model.weights.output
    }

    fn leave(&self, routed: &[f32]) -> Vec<f32> {
        let output: Vec<f32> = routed.iter().zip(self.shared).map(|(a, b)| a + b).collect();
        let mut streams = vec![0.0; self.streams.len()];
        self.mix.expand(&output, self.streams, &mut streams);
        streams
    }

    /// The input of the output matrix for each of these routed sums, by the reference's functions.
    #[must_use]
    pub fn exact_input(&self, routed: &Rows) -> Rows {
        let (config, weights) = (&self.head.model.config, &self.head.model.weights);
        let streams = routed.map(self.streams.len(), |routed, streams| {
            streams.copy_from_slice(&self.leave(routed));
        });
        let input = hyper::head(&streams, &weights.head, config);
        input.map(input.width(), |x, out| norm::weighted(x, &weights.norm, config.rms_eps, out))
    }

    /// The logits of each of these routed sums, by the reference's functions.
    #[must_use]
    pub fn exact(&self, routed: &Rows) -> Rows {
        matmul::matmul(self.output(), &self.exact_input(routed), &self.head.profile)
    }

    /// The input of the output matrix: streams, reduced stream, after the norm.
    fn input(&self, routed: &Bounds) -> [Bounds; 3] {
        let (config, weights) = (&self.head.model.config, &self.head.model.weights);
        let streams = routed.map_monotone(|routed| self.leave(routed));
        let normed = streams.scaled(streams.norm_factor(config.rms_eps));
        let stream_weight = |(row, base): (&Vec<f32>, &f32)| {
            let projected = normed.dot(row);
            // One fma, monotone in the projection; its direction is the sign of the scale.
            let ends = Bounds::of([projected]).map_monotone(|x| {
                let logit = order::fma(x[0], weights.head.scale, *base);
                vec![order::sigmoid(logit) + config.hyper_eps]
            });
            ends.at(0)
        };
        let stream_weights: Vec<Interval> =
            self.head.mix.iter().zip(&weights.head.base).map(stream_weight).collect();
        let reduced = weigh(&streams, &stream_weights);
        let factor = reduced.norm_factor(config.rms_eps);
        let input = reduced.scaled(factor).weighted(&weights.norm);
        [streams, reduced, input]
    }

    /// What the output matrix meets, for a test that plants a near tie there.
    #[cfg(test)]
    pub(super) fn head_input(&self, routed: &Bounds) -> Bounds {
        let [_, _, input] = self.input(routed);
        input
    }

    /// Logits that every routed sum of the box stays between; nothing when an interval grew without bound.
    #[must_use]
    pub fn bounds(&self, routed: &Bounds) -> Option<LogitBounds> {
        if !routed.is_finite() {
            return None;
        }
        let steps = self.input(routed);
        let widest = std::array::from_fn(|step| steps[step].widest());
        let [_, _, input] = steps;
        let (logits, open) = if self.head.output.is_empty() {
            let codes = Codes::of(&input);
            (codes.matmul(self.output()), codes.open_elements())
        } else {
            (Bounds::of(self.head.output.iter().map(|row| input.dot(row))), Vec::new())
        };
        logits.is_finite().then_some(LogitBounds { logits, open, widest })
    }

    /// Requires that both ways give the logits of the run, bit for bit, from its own routed sum.
    ///
    /// # Errors
    /// Names the first logit that differs.
    pub fn check(&self, record: &Record) -> Result<usize, Problem> {
        let place = Place::Layer(self.head.model.config.layers.len() - 1);
        let routed = row(record, place, Tap::RoutedOutput, self.position)?;
        let site = Site { place: Place::Output, tap: Tap::Logits, position: self.position };
        let theirs = row(record, site.place, site.tap, site.position)?;
        let exact = self.exact(&Rows::of(routed.len(), routed.to_vec()));
        same_bits(site, exact.row(0), theirs)?;
        let point = self.bounds(&Bounds::point(routed)).ok_or(Problem::Unbounded { site })?;
        same_bits(site, &point.logits.lo, theirs)?;
        same_bits(site, &point.logits.hi, theirs)?;
        Ok(theirs.len())
    }
}
