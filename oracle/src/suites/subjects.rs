//! Models and prompts that whole-model suites run on.
//!
//! Promises: by default every prompt of the fixture set; with a model of the user's, that model alone.
//! A prompt is at least one token and inside the model's vocabulary, or an error that says so.

use std::path::{Path, PathBuf};

use engine::config::RawConfig;
use engine::format::Gguf;
use engine::{Model, MtpModel};

use super::{Prepared, Setup, text, token_ids, trained_tiny};
use crate::fixtures::recipe::Shape;
use crate::fixtures::{Part, model_bytes};

/// A model of the user's.
#[derive(Clone, Debug)]
pub struct OwnModel {
    /// The model file.
    pub model: PathBuf,
    /// Its multi-token-prediction block.
    pub block: Option<PathBuf>,
    /// Token ids of the prompt, a JSON array; by default a fixed pseudo-random prompt.
    pub tokens: Option<PathBuf>,
    /// Greedy tokens after the prompt.
    pub steps: usize,
}

/// Where a model comes from.
#[derive(Clone, Debug)]
enum Source {
    Files {
        model: PathBuf,
        block: Option<PathBuf>,
    },
    /// Made in memory; the recipe is checked where the file is made.
    Made(fn() -> Shape),
}

/// A model and a prompt.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The name in cases.
    pub name: String,
    source: Source,
    prompt: Prompt,
    /// Greedy tokens after the prompt.
    pub steps: usize,
}

#[derive(Clone, Debug)]
enum Prompt {
    Trained(&'static str),
    File(PathBuf),
    /// So many fixed ids.
    Fixed(usize),
}

/// A model with its block, opened.
pub(super) struct Opened {
    pub(super) model: Model,
    pub(super) block: Option<MtpModel>,
    pub(super) prompt: Vec<u32>,
}

/// Tokens of the prompt that a user's model gets when none is given.
const FIXED: usize = 64;
/// Greedy tokens after each fixture prompt.
const STEPS: usize = 24;

/// All subjects of this run, longest first.
pub(super) fn all(setup: &Setup) -> Vec<Subject> {
    if let Some(own) = &setup.own {
        let prompt = own.tokens.clone().map_or(Prompt::Fixed(FIXED), Prompt::File);
        let stem = own.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let source = Source::Files { model: own.model.clone(), block: own.block.clone() };
        return vec![Subject { name: stem, source, prompt, steps: own.steps }];
    }
    let models = setup.fixtures.join("models");
    let files = |name: &str| Source::Files {
        model: models.join(name).join("model.gguf"),
        block: Some(models.join(name).join("mtp.gguf")),
    };
    let ids = |name: &str| Prompt::File(setup.fixtures.join(format!("prompts/{name}.json")));
    let trained = |name: &'static str| Subject {
        name: format!("trained-tiny/{name}"),
        source: files("trained-tiny"),
        prompt: Prompt::Trained(name),
        steps: STEPS,
    };
    let mut all: Vec<Subject> = trained_tiny::PROMPTS.into_iter().map(trained).collect();
    let tiny =
        |name: &str, source, prompt| Subject { name: name.to_owned(), source, prompt, steps: 16 };
    all.insert(1, tiny("tiny/tiny-400", files("tiny"), ids("tiny-400")));
    all.insert(2, tiny("six/six-400", Source::Made(Shape::six), ids("six-400")));
    all
}

/// The subject that suites use when one will do: the trained model on a short text.
pub(super) fn one(setup: &Setup, name: &str) -> Vec<Subject> {
    let all = all(setup);
    if setup.own.is_some() {
        return all;
    }
    all.into_iter().filter(|subject| subject.name == name).collect()
}

impl Subject {
    /// Opens the model, plants what is to be planted in it, and reads the prompt.
    pub(super) fn open(&self, setup: &Setup) -> Prepared<Opened> {
        let (model, block) = match &self.source {
            Source::Files { model, block } => {
                let model = setup.model(model)?;
                let open = |path: &PathBuf| MtpModel::open(path, &model.config).map_err(text);
                let block = block.as_ref().map(open).transpose()?;
                (model, block)
            }
            Source::Made(shape) => made(&shape())?,
        };
        let prompt = match &self.prompt {
            Prompt::Trained(name) => trained_tiny::prompt(setup, name)?,
            Prompt::File(path) => token_ids(path, &[])?,
            Prompt::Fixed(count) => {
                let id = |index: usize| (index * 7919 + 13) % model.config.vocabulary;
                (0..*count).map(|index| id(index) as u32).collect()
            }
        };
        if prompt.is_empty() {
            return Err(format!("{}: the prompt has no tokens", self.name));
        }
        Ok(Opened { model, block, prompt })
    }
}

fn made(shape: &Shape) -> Prepared<(Model, Option<MtpModel>)> {
    let read = |part| Gguf::from_bytes(model_bytes(shape, part)).map_err(text);
    let (file, block) = (read(Part::Main)?, read(Part::Mtp)?);
    let raw = RawConfig::from_gguf(file.metadata()).map_err(text)?;
    let (metadata, path) = (file.metadata().clone(), Path::new(shape.name));
    let model = Model::from_source(&file, &raw, metadata, path).map_err(text)?;
    let block = MtpModel::from_source(&block, &model.config).map_err(text)?;
    Ok((model, Some(block)))
}
