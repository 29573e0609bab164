//! How far one ulp goes, and which rounding point carries it.
//!
//! Promises: two figures for every meaning: how far its logits are from a recording when one is given, and
//! how far they move when every other weight of the first norm moves by one ulp, which is what another order of
//! one sum would do. Figures explain; nothing
//! here is a verdict.

use engine::rows::Rows;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{Model, Profile, Session};

use crate::npy::Array;
use crate::stats::{self, Distances};
use crate::suites::text;

/// One meaning and how it moved.
pub struct Row {
    /// What the meaning is.
    pub meaning: String,
    /// Distance to the recording.
    pub recorded: Option<Distances>,
    /// Distance to the same meaning with weights of one norm one ulp larger.
    pub one_ulp: Distances,
}

/// Meanings between `ds4` and `float`: each rounding point alone, and all but one.
fn meanings() -> Vec<(String, Profile)> {
    type Switch = (&'static str, fn(&mut Profile, bool));
    let switches: [Switch; 4] = [
        ("int8 activations", |p, on| p.int8_activations = on),
        ("FP8 rows", |p, on| p.fp8_rows = on),
        ("FP4 indexer", |p, on| p.fp4_indexer = on),
        ("f16 rows", |p, on| p.f16_rows = on),
    ];
    let mut meanings: Vec<(String, Profile)> =
        Profile::ALL.into_iter().map(|profile| (profile.name.to_owned(), profile)).collect();
    for (name, set) in switches {
        for (words, mut profile, on) in
            [("ds4 without", Profile::DS4, false), ("float with", Profile::FLOAT, true)]
        {
            set(&mut profile, on);
            meanings.push((format!("{words} {name}"), profile));
        }
    }
    meanings
}

/// Runs every meaning twice.
///
/// # Errors
/// In words, when a run fails or the recording has another number of rows.
pub fn table(
    model: &mut Model,
    tokens: &[u32],
    recording: Option<&Array>,
    done: &dyn Fn(),
) -> Result<Vec<Row>, String> {
    if let Some(rows) = recording.map(Array::count).filter(|rows| *rows != tokens.len()) {
        return Err(format!("{rows} rows of logits for {} tokens", tokens.len()));
    }
    let run = |model: &Model, profile: Profile| -> Result<Rows, String> {
        let mut session = Session::new(model, profile);
        Ok(session.forward(tokens, Keep::All, &mut Unobserved).map_err(text)?.logits)
    };
    let mut rows = Vec::new();
    for (meaning, profile) in meanings() {
        let plain = run(model, profile)?;
        let weights = model.weights.layers[0].attn_norm.clone();
        for weight in model.weights.layers[0].attn_norm.iter_mut().step_by(2) {
            *weight = weight.next_up();
        }
        let moved = run(model, profile);
        model.weights.layers[0].attn_norm = weights;
        let values = stats::widen(plain.values());
        let array = Array { shape: vec![plain.count(), plain.width()], values };
        rows.push(Row {
            meaning,
            recorded: recording.map(|recording| stats::between(&plain, recording)),
            one_ulp: stats::between(&moved?, &array),
        });
        done();
    }
    Ok(rows)
}

/// Meanings that [`table`] runs.
#[must_use]
pub fn count() -> usize {
    meanings().len()
}
