#![allow(dead_code, reason = "each test uses a part of it")]
//! Models with a drafting block, plain runs of them, and the backends to run on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use engine::backend::Backend;
use engine::config::RawConfig;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::decode::{MtpDrafter, Options, Picker, Verification};
use engine::format::Gguf;
use engine::mtp::MtpSession;
use engine::{Model, MtpModel, Profile, Session};
use oracle::fixtures::recipe::Shape;
use oracle::fixtures::{Part, model_bytes};
use oracle::speculation::Plain;

/// Runs a check on every backend and fails if it compared nothing on one of them.
macro_rules! on_every_backend {
    ($check:expr) => {{
        let compared: usize = $check(&engine::reference::Reference);
        assert!(compared > 0, "not exercised: nothing compared on the reference");
        let compared: usize = $check(&crate::drafting::cpu());
        assert!(compared > 0, "not exercised: nothing compared on the CPU backend");
    }};
}
pub(crate) use on_every_backend;

/// The CPU backend at its best level on two threads.
pub fn cpu() -> Cpu {
    Cpu::new(Kernels::new(Level::best(), Threads::new(2).unwrap()), Combine::Ordered)
}

/// A model, its block, a meaning, a prompt.
pub struct Drafting {
    /// What failures call it.
    pub name: &'static str,
    /// The model.
    pub model: Model,
    /// Its block.
    pub block: MtpModel,
    /// The meaning.
    pub profile: Profile,
    /// Where generation starts.
    pub prompt: Vec<u32>,
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models")
}

impl Drafting {
    /// A model made in memory.
    pub fn made(shape: &Shape) -> Self {
        let open = |part| Gguf::from_bytes(model_bytes(shape, part)).unwrap();
        let (main, block) = (open(Part::Main), open(Part::Mtp));
        let raw = RawConfig::from_gguf(main.metadata()).unwrap();
        let metadata = main.metadata().clone();
        let model = Model::from_source(&main, &raw, metadata, Path::new(shape.name)).unwrap();
        let block = MtpModel::from_source(&block, &model.config).unwrap();
        let ids = (0..20).map(|i| ((i * 7919 + 13) % shape.vocabulary) as u32);
        Self { name: shape.name, model, block, profile: Profile::DS4, prompt: ids.collect() }
    }

    fn read(name: &'static str, prompt: Vec<u32>) -> Self {
        let folder = models().join(name);
        let model = Model::open(&folder.join("model.gguf")).unwrap();
        let block = MtpModel::open(&folder.join("mtp.gguf"), &model.config).unwrap();
        Self { name, model, block, profile: Profile::DS4, prompt }
    }

    /// A sequence without tokens.
    pub fn session<'m, B: Backend>(&'m self, backend: &'m B) -> Session<'m, B> {
        Session::on(backend, &self.model, self.profile).unwrap()
    }

    /// The block as a drafter.
    pub fn drafter<'m, B: Backend>(&'m self, backend: &'m B) -> MtpDrafter<'m, B> {
        let session = MtpSession::on(backend, &self.model, &self.block, self.profile).unwrap();
        MtpDrafter::new(backend, session)
    }

    /// A plain run of that many tokens, the block told of every token.
    pub fn run<B: Backend>(&self, backend: &B, picker: &Picker, tokens: usize) -> Plain {
        let options = options(0, Verification::Strict, tokens);
        let (session, mut drafter) = (self.session(backend), self.drafter(backend));
        Plain::run(session, &self.prompt, picker, &options, &mut drafter).unwrap()
    }

    /// The greedy run, made once for every number of tokens.
    pub fn plain<B: Backend>(&self, backend: &B, tokens: usize) -> Arc<Plain> {
        type Cell = Arc<OnceLock<Arc<Plain>>>;
        static RUNS: Mutex<BTreeMap<(String, &str, usize), Cell>> = Mutex::new(BTreeMap::new());
        let key = (backend.name(), self.name, tokens);
        let cell = Arc::clone(RUNS.lock().unwrap().entry(key).or_default());
        Arc::clone(cell.get_or_init(|| Arc::new(self.run(backend, &Picker::Greedy, tokens))))
    }
}

/// The shape of [`TOY`].
pub fn toy() -> Shape {
    Shape {
        name: "toy",
        vocabulary: 330,
        heads: 2,
        head_dim: 96,
        rope_dim: 32,
        q_rank: 32,
        output_groups: 2,
        indexer_heads: 2,
        indexer_dim: 64,
        experts: 4,
        experts_used: 1,
        ratios: vec![0, 4, 128],
        hash_layers: 1,
        sinkhorn_iterations: 4,
        ..Shape::tiny()
    }
}

/// Small, with a layer of every compression, so that thousands of cases take seconds. Random weights: the
/// block is as good as never right.
pub static TOY: LazyLock<Drafting> = LazyLock::new(|| Drafting::made(&toy()));

/// The trained model, whose block is often right.
pub static TRAINED: LazyLock<Drafting> = LazyLock::new(|| {
    let json = std::fs::read_to_string(models().join("trained-tiny/prompts.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let prompts = json["prompts"].as_array().unwrap();
    let prompt = prompts.iter().find(|prompt| prompt["name"] == "novel-held-short").unwrap();
    let ids = prompt["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
    Drafting::read("trained-tiny", ids.collect())
});

/// Options without stop tokens, the prompt in one call.
pub fn options(depth: usize, verification: Verification, tokens: usize) -> Options {
    Options { depth, verification, stop: Vec::new(), tokens, chunk: 512 }
}
