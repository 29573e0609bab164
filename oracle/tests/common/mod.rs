//! Models and helpers that several tests share.

use std::path::{Path, PathBuf};

use engine::rows::Rows;
use engine::{Model, Profile};

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
