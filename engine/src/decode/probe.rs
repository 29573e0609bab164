//! A measurement at start-up: is a forward call of several rows equal to as many calls of one?
//!
//! Promises: compares bits of logits, streams and state at every width up to the one asked for, on the
//! backend and the weights in use. Only one layer of each kind runs (compression and routing tell kinds
//! apart), because every layer of a kind runs the same operations; so the probe costs a few percent of
//! as many tokens. It cannot see what only other values or later positions would show.

use crate::backend::Backend;
use crate::error::Result;
use crate::format::weights::Routing;
use crate::model::Model;
use crate::profile::Profile;
use crate::rows::Rows;
use crate::session::{Keep, Session};
use crate::tap::Unobserved;

/// Tokens before the measured ones, so that a window of the ratio-4 compressor closes among them.
const PREFIX: usize = 2;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// All rows and states were equal.
    Equal {
        /// Rows compared.
        rows: usize,
    },
    /// Bits differ.
    Different {
        /// Rows in the call.
        width: usize,
        /// First row whose logits or streams differ, or the width itself when only the state does.
        row: usize,
    },
}

/// Compares calls of 2 to `width` rows with calls of one.
///
/// # Errors
/// As for [`Session::forward`].
pub fn probe<B: Backend>(
    backend: &B,
    model: &Model,
    profile: Profile,
    width: usize,
) -> Result<Probe> {
    let layers = kinds(model);
    let vocabulary = model.config.vocabulary;
    let tokens: Vec<u32> =
        (0..PREFIX + width).map(|i| ((i * 7919 + 1) % vocabulary) as u32).collect();
    let mut plain = Session::partial(backend, model, profile, &layers)?;
    plain.forward(&tokens[..1], Keep::Nothing, &mut Unobserved)?;
    plain.forward(&tokens[1..PREFIX], Keep::Nothing, &mut Unobserved)?;
    let before = plain.clone();
    let mut singles: Vec<(Rows, Rows, Vec<u32>)> = Vec::new();
    for token in &tokens[PREFIX..] {
        let output = plain.forward(&[*token], Keep::All, &mut Unobserved)?;
        let (logits, streams) =
            (backend.download(&output.logits)?, backend.download(&output.streams)?);
        singles.push((logits, streams, state_bits(&plain)));
    }
    let mut rows = 0;
    for width in 2..=width {
        let mut together = before.clone();
        let output =
            together.forward(&tokens[PREFIX..PREFIX + width], Keep::All, &mut Unobserved)?;
        let (logits, streams) =
            (backend.download(&output.logits)?, backend.download(&output.streams)?);
        for (row, single) in singles[..width].iter().enumerate() {
            let same = same_bits(logits.row(row), single.0.row(0))
                && same_bits(streams.row(row), single.1.row(0));
            if !same {
                return Ok(Probe::Different { width, row });
            }
            rows += 1;
        }
        if state_bits(&together) != singles[width - 1].2 {
            return Ok(Probe::Different { width, row: width });
        }
    }
    Ok(Probe::Equal { rows })
}

/// The first layer of each kind.
fn kinds(model: &Model) -> Vec<usize> {
    let mut seen = Vec::new();
    let mut layers = Vec::new();
    for (index, layer) in model.weights.layers.iter().enumerate() {
        let kind = (layer.compression, matches!(layer.routing, Routing::Hash(_)));
        if !seen.contains(&kind) {
            seen.push(kind);
            layers.push(index);
        }
    }
    layers
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

fn state_bits<B: Backend>(session: &Session<'_, B>) -> Vec<u32> {
    let mut bits = Vec::new();
    session.visit_state(&mut |layer, _, position, values| {
        bits.extend([layer as u32, position as u32]);
        bits.extend(values.iter().map(|value| value.to_bits()));
    });
    bits
}
