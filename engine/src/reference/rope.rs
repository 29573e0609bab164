//! Rotary position embedding of the last values of a head.
//!
//! Promises: pairs `(2j, 2j+1)` of the rotated tail turn by `position * frequency[j]`. Frequencies are
//! computed in f64 and rounded once to f32; the angle is one f32 product; sine and cosine of that f32
//! value are computed in f64 by a portable implementation and rounded to f32. They are computed on the
//! host only: devices get values, not functions.
//! YaRN changes frequencies only; its magnitude factor is 1 (it cancels in every implementation).

use super::order::{fma, with_fma};
use crate::config::{Compression, Config};

/// Rotary frequencies of one kind of layer, one a pair.
#[derive(Clone, Debug)]
pub struct Frequencies(Vec<f32>);

/// Cosines and sines of one position.
#[derive(Clone, Debug)]
pub struct Rotation {
    cos_sin: Vec<(f32, f32)>,
}

impl Frequencies {
    /// Frequencies of a layer with this compression.
    #[must_use]
    pub fn new(config: &Config, compression: Compression) -> Self {
        match compression {
            Compression::None => Self::plain(config.rope_dim, config.rope_base),
            Compression::Ratio4 | Compression::Ratio128 => Self::yarn(config),
        }
    }

    fn plain(dim: usize, base: f64) -> Self {
        Self((0..dim / 2).map(|j| raw(base, j, dim) as f32).collect())
    }

    fn yarn(config: &Config) -> Self {
        let (dim, base, yarn) = (config.rope_dim, config.compressed_rope_base, config.yarn);
        let correction = |beta: f64| {
            let turns = yarn.original_context / (beta * 2.0 * std::f64::consts::PI);
            dim as f64 * libm::log(turns) / (2.0 * libm::log(base))
        };
        let low = libm::floor(correction(yarn.beta_fast)).max(0.0);
        let high = libm::ceil(correction(yarn.beta_slow)).min(dim as f64 - 1.0);
        let span = (high - low).max(0.001);
        let blended = |j: usize| {
            let whole = raw(base, j, dim);
            let kept = 1.0 - ((j as f64 - low) / span).clamp(0.0, 1.0);
            (whole / yarn.factor * (1.0 - kept) + whole * kept) as f32
        };
        Self((0..dim / 2).map(blended).collect())
    }

    /// The rotation at `position`.
    #[must_use]
    pub fn at(&self, position: usize) -> Rotation {
        let turn = |frequency: &f32| {
            let angle = f64::from(position as f32 * frequency);
            (libm::cos(angle) as f32, libm::sin(angle) as f32)
        };
        Rotation { cos_sin: self.0.iter().map(turn).collect() }
    }
}

/// `base^(-2j/dim)`.
fn raw(base: f64, j: usize, dim: usize) -> f64 {
    libm::pow(base, -((2 * j) as f64) / dim as f64)
}

impl Rotation {
    /// Rotates the tail of a head.
    pub fn rotate(&self, head: &mut [f32]) {
        self.turn(head, 1.0);
    }

    /// Rotates the tail of a head back.
    pub fn rotate_back(&self, head: &mut [f32]) {
        self.turn(head, -1.0);
    }

    fn turn(&self, head: &mut [f32], sign: f32) {
        let tail = head.len() - 2 * self.cos_sin.len();
        turn_pairs(&mut head[tail..], &self.cos_sin, sign);
    }
}

with_fma! {
    fn turn_pairs(pairs: &mut [f32], cos_sin: &[(f32, f32)], sign: f32) {
        for (pair, (cos, sin)) in pairs.chunks_exact_mut(2).zip(cos_sin) {
            let (x, y, sin) = (pair[0], pair[1], sin * sign);
            // ORDER: the cosine term is the fused one.
            pair[0] = fma(x, *cos, -(y * sin));
            pair[1] = fma(y, *cos, x * sin);
        }
    }
}
