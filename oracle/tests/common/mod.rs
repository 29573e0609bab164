//! Models and helpers that several tests share.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::backend::Backend;
use engine::rows::Rows;
use engine::{Model, Profile, Session};
use oracle::digest;

/// A model, a meaning and a prompt.
pub struct Setting {
    /// What failures call it.
    pub name: String,
    /// The model.
    pub model: Model,
    /// The meaning.
    pub profile: Profile,
    /// Token ids.
    pub tokens: Vec<u32>,
}

/// The folder of fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// The tiny model with all rounding points and with none, and the second shape.
pub fn settings() -> Vec<Setting> {
    let tokens = |name: &str| -> Vec<u32> {
        let path = fixtures().join(format!("prompts/{name}.json"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let tiny = fixtures().join("models/tiny/model.gguf");
    let six = oracle::fixtures::six_model(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("six"));
    [
        ("tiny ds4", tiny.clone(), Profile::DS4, "tiny-400"),
        ("tiny float", tiny, Profile::FLOAT, "tiny-400"),
        ("six ds4", six.unwrap(), Profile::DS4, "six-400"),
    ]
    .into_iter()
    .map(|(name, path, profile, prompt)| Setting {
        name: name.to_owned(),
        model: Model::open(&path).unwrap(),
        profile,
        tokens: tokens(prompt),
    })
    .collect()
}

/// The bits of all values.
pub fn bits(rows: &Rows) -> Vec<u32> {
    rows.values().iter().map(|value| value.to_bits()).collect()
}

/// A digest of every live row of a session.
pub fn state_digest<B: Backend>(session: &Session<'_, B>) -> String {
    let mut bytes = Vec::new();
    session.visit_state(&mut |layer, kind, position, values| {
        bytes.extend(layer.to_le_bytes());
        bytes.extend(kind.as_bytes());
        bytes.extend(position.to_le_bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    });
    assert!(!bytes.is_empty(), "a state with no rows proves nothing");
    digest::of_bytes(&bytes)
}

/// Runs `each` on every item over two threads; a panic in one is a panic of the test.
pub fn in_parallel<T: Sync>(items: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(item);
                }
            });
        }
    });
}
