//! Hyper-connections: four residual streams, mixed before and after every sublayer.
//!
//! Promises: [`Mix::new`] computes input weights, output weights and the doubly normalised stream matrix
//! of one token; [`Mix::reduce`] and [`Mix::expand`] apply them. The stream matrix is indexed source by
//! destination: it is row-softmaxed over the destination and consumed by summing over the source.
//! Everything is sequential in index order.

use super::matmul;
use super::norm;
use super::order::{accumulate, exp, fma, sigmoid};
use crate::config::{Config, STREAMS};
use crate::format::weights::{HyperConnection, HyperHead, Matrix};
use crate::rows::Rows;
use crate::session::RunError;
use crate::tap::{Tap, Taps};

/// Weights by which one token's streams are mixed around a sublayer.
#[derive(Clone, Debug)]
pub struct Mix {
    input: [f32; STREAMS],
    /// Weight of the sublayer's output in each stream.
    pub output: [f32; STREAMS],
    /// Stream matrix, source by destination.
    pub streams: [[f32; STREAMS]; STREAMS],
}

/// Projections of the normalised streams by a mix matrix: `[n][rows of mix]`.
fn project(streams: &Rows, mix: &Matrix, eps: f32) -> Rows {
    let flat = streams.map(streams.width(), |row, out| {
        out.copy_from_slice(row);
        norm::plain(out, eps);
    });
    matmul::float(mix, &flat)
}

/// Each row as all four streams.
#[must_use]
pub fn spread(rows: &Rows) -> Rows {
    rows.map(STREAMS * rows.width(), |row, out| {
        for stream in out.chunks_exact_mut(row.len()) {
            stream.copy_from_slice(row);
        }
    })
}

/// Each stream as a row of its own.
#[must_use]
pub fn unstack(streams: &Rows) -> Rows {
    let mut out = Rows::empty(streams.width() / STREAMS);
    for stream in streams.values().chunks_exact(out.width()) {
        out.push(stream);
    }
    out
}

/// Stream `s` of token `t` is `embedded[t] + hidden[4 * t + s]`.
#[must_use]
pub fn join(embedded: &Rows, hidden: &Rows) -> Rows {
    let width = embedded.width();
    let mut out = Rows::zeros(embedded.count(), STREAMS * width);
    for (token, e) in embedded.iter().enumerate() {
        for (stream, out) in out.row_mut(token).chunks_exact_mut(width).enumerate() {
            for ((out, e), h) in out.iter_mut().zip(e).zip(hidden.row(token * STREAMS + stream)) {
                *out = e + h;
            }
        }
    }
    out
}

/// The mixes of all tokens of a call.
#[must_use]
pub fn mixes(streams: &Rows, weights: &HyperConnection, config: &Config) -> Vec<Mix> {
    let projected = project(streams, &weights.mix, config.rms_eps);
    projected.iter().map(|row| Mix::new(row, weights, config)).collect()
}

impl Mix {
    /// The mix of one token from the projections of its normalised streams.
    #[must_use]
    pub fn new(projected: &[f32], weights: &HyperConnection, config: &Config) -> Self {
        let logit = |index: usize, scale: usize| {
            fma(projected[index], weights.scale[scale], weights.base[index])
        };
        let mut mix = Self {
            input: [0.0; STREAMS],
            output: [0.0; STREAMS],
            streams: [[0.0; STREAMS]; STREAMS],
        };
        for i in 0..STREAMS {
            mix.input[i] = sigmoid(logit(i, 0)) + config.hyper_eps;
            mix.output[i] = 2.0 * sigmoid(logit(STREAMS + i, 1));
            for j in 0..STREAMS {
                mix.streams[i][j] = logit(2 * STREAMS + STREAMS * i + j, 2);
            }
        }
        sinkhorn(&mut mix.streams, config.sinkhorn_iterations, config.hyper_eps);
        mix
    }

    /// Shows output weights and stream matrix under these names.
    ///
    /// # Errors
    /// When a value is not finite.
    pub fn show(
        &self,
        names: [Tap; 2],
        position: usize,
        taps: &mut Taps<'_>,
    ) -> Result<(), RunError> {
        taps.floats(names[0], position, &self.output)?;
        taps.floats(names[1], position, self.streams.as_flattened())
    }

    /// The input of a sublayer: `sum_h X[h] * input[h]`.
    pub fn reduce(&self, streams: &[f32], out: &mut [f32]) {
        weigh(streams, &self.input, out);
    }

    /// The streams after a sublayer: `X'[b] = y * output[b] + sum_a C[a][b] * X[a]`.
    pub fn expand(&self, y: &[f32], streams: &[f32], out: &mut [f32]) {
        for (b, out) in out.chunks_exact_mut(y.len()).enumerate() {
            let column = std::array::from_fn(|a| self.streams[a][b]);
            // ORDER: the sublayer's output first, then the streams in index order.
            scaled(y, self.output[b], out);
            add_streams(streams, &column, out);
        }
    }
}

fn weigh(streams: &[f32], weights: &[f32; STREAMS], out: &mut [f32]) {
    // ORDER: streams in index order, from +0.
    out.fill(0.0);
    add_streams(streams, weights, out);
}

fn scaled(x: &[f32], scale: f32, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * scale;
    }
}

/// Adds the weighted streams in index order.
fn add_streams(streams: &[f32], weights: &[f32; STREAMS], out: &mut [f32]) {
    for (stream, weight) in streams.chunks_exact(out.len()).zip(weights) {
        accumulate(out, *weight, stream);
    }
}

/// Softmax of each row plus `eps`, then alternating column and row normalisation, columns last.
fn sinkhorn(c: &mut [[f32; STREAMS]; STREAMS], iterations: usize, eps: f32) {
    for row in c.iter_mut() {
        let max = row.iter().fold(f32::NEG_INFINITY, |max, x| max.max(*x));
        let mut sum = 0.0;
        for x in row.iter_mut() {
            *x = exp(*x - max);
            sum += *x;
        }
        for x in row.iter_mut() {
            *x = *x / sum + eps;
        }
    }
    normalise_columns(c, eps);
    for _ in 1..iterations {
        for row in c.iter_mut() {
            let mut sum = 0.0;
            for x in row.iter() {
                sum += x;
            }
            for x in row.iter_mut() {
                *x /= sum + eps;
            }
        }
        normalise_columns(c, eps);
    }
}

fn normalise_columns(c: &mut [[f32; STREAMS]; STREAMS], eps: f32) {
    for j in 0..STREAMS {
        let mut sum = 0.0;
        for row in c.iter() {
            sum += row[j];
        }
        for row in c.iter_mut() {
            row[j] /= sum + eps;
        }
    }
}

/// The streams of all tokens reduced for the output.
#[must_use]
pub fn head(streams: &Rows, weights: &HyperHead, config: &Config) -> Rows {
    let projected = project(streams, &weights.mix, config.rms_eps);
    let mut out = Rows::zeros(streams.count(), config.hidden);
    for token in 0..streams.count() {
        let (projected, streams) = (projected.row(token), streams.row(token));
        reduce_head(projected, weights, config, streams, out.row_mut(token));
    }
    out
}

/// The streams of one token reduced for the output, given their projections.
pub fn reduce_head(
    projected: &[f32],
    weights: &HyperHead,
    config: &Config,
    streams: &[f32],
    out: &mut [f32],
) {
    let mut stream_weights = [0.0; STREAMS];
    for (i, weight) in stream_weights.iter_mut().enumerate() {
        let logit = fma(projected[i], weights.scale, weights.base[i]);
        *weight = sigmoid(logit) + config.hyper_eps;
    }
    weigh(streams, &stream_weights, out);
}
