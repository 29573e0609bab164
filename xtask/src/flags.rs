//! Every flag of every command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::Profile;
use engine::mtp::Pairing;
use engine::switches::CommandLine;
use oracle::suites::{Against, Fault, Rendering, Suite};

use crate::switches::SwitchFlags;

/// Determinism and equivalence oracle for DeepSeek-V4 inference.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, max_term_width = 100)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare the engine with the reference, with itself and with what was accepted; say where they part.
    #[command(
        after_help = "Exit codes: 0 equal, 1 different, 2 bad usage or input, 3 nothing or not everything \
                      asked for was run."
    )]
    Verify(Verify),
    /// Run tokens through a model and write the logits.
    Logits(Logits),
    /// Print hyper-parameters and the tensor table of a model file.
    Inspect(Inspect),
    /// Print the run-time switches in force, where each came from, and what this machine can run.
    Env(Env),
    /// Make or check the files below `fixtures`.
    Fixtures(Fixtures),
    /// List, show, compare, accept and reject goldens by name.
    Golden(Golden),
    /// Change each tensor of a model in turn and show how far the logits move.
    Sensitivity(Sensitivity),
    /// Show how far one ulp goes and which rounding point carries it.
    Noise(Noise),
    /// Check the rules of the workspace that the compiler cannot.
    Tidy,
    /// Plant every known fault in engine, comparator and arms; each must turn a suite red.
    Teeth(Teeth),
    /// Everything that must hold before a merge, cheapest first.
    Ci,
}

impl Command {
    /// What the command line says about run-time switches; nothing where a command takes none.
    pub fn switches(&self) -> CommandLine {
        match self {
            Self::Verify(flags) => flags.switches.0.clone(),
            Self::Logits(flags) => flags.switches.0.clone(),
            Self::Env(flags) => flags.switches.0.clone(),
            _ => CommandLine::default(),
        }
    }
}

#[derive(Args, Debug)]
#[group(id = "suites", required = true, multiple = true)]
#[expect(clippy::struct_excessive_bools, reason = "a flag a suite")]
pub struct Suites {
    /// Everything that this machine can run.
    #[arg(long)]
    pub all: bool,
    /// The engine against the reference on whole models: intermediates, logits, state, greedy tokens.
    #[arg(long)]
    pub tensor_equivalence: bool,
    /// Speculative against plain decoding, every depth, combined and strict.
    #[arg(long)]
    pub mtp: bool,
    /// The engine against itself: runs, threads, instruction sets, chunks.
    #[arg(long)]
    pub determinism: bool,
    /// Every operation, a row alone against the same row beside others.
    #[arg(long)]
    pub width: bool,
    /// Every operation on seeded inputs against the reference.
    #[arg(long)]
    pub kernels: bool,
    /// Against accepted earlier bytes.
    #[arg(long)]
    pub goldens: bool,
    /// What orders of experts can change: shares of positions; sums of atomic runs inside their sets.
    #[arg(long)]
    pub orders: bool,
    /// Official log-probabilities in ds4's vector format, on --model.
    #[arg(long, value_name = "FILE")]
    pub logprob_vectors: Option<PathBuf>,
    /// The reference against independent implementations.
    #[arg(long)]
    pub reference: bool,
}

impl Suites {
    /// Suites asked for by name.
    pub fn named(&self) -> Vec<Suite> {
        let asked = [
            (self.tensor_equivalence, Suite::TensorEquivalence),
            (self.mtp, Suite::Mtp),
            (self.determinism, Suite::Determinism),
            (self.width, Suite::Width),
            (self.kernels, Suite::Kernels),
            (self.goldens, Suite::Goldens),
            (self.orders, Suite::Orders),
            (self.logprob_vectors.is_some(), Suite::LogprobVectors),
            (self.reference, Suite::Reference),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, suite)| suite).collect()
    }
}

#[derive(Args, Debug)]
pub struct Verify {
    #[command(flatten)]
    pub suites: Suites,
    /// With --all: a suite that must run whole; what could not run of it is exit code 3.
    #[arg(long, value_name = "SUITE", value_parser = suite)]
    pub require: Vec<Suite>,
    /// The engine under test.
    #[arg(long, value_enum, default_value = "cpu")]
    pub backend: Engine,
    /// The other side of --tensor-equivalence: reference, atomic (the engine adding up experts as they
    /// arrive) or a file of logits (.npy).
    #[arg(long, value_name = "SIDE", default_value = "reference", value_parser = against)]
    pub against: Against,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// A DeepSeek-V4 model to run on, in place of the fixtures.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Its multi-token-prediction block.
    #[arg(long, value_name = "FILE", requires = "model")]
    pub mtp_model: Option<PathBuf>,
    /// Its prompt, a JSON array of token ids [default: 64 fixed ids].
    #[arg(long, value_name = "FILE", requires = "model")]
    pub tokens: Option<PathBuf>,
    /// Greedy tokens after the prompt of that model.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "model")]
    pub steps: u32,
    /// Folder that paths of prompts in the vector file are resolved against [default: the file's].
    #[arg(long, value_name = "DIR", requires = "logprob_vectors")]
    pub prompts: Option<PathBuf>,
    /// How those prompts become tokens.
    #[arg(long, value_enum, default_value = "chat")]
    pub prompt_rendering: RenderingFlag,
    /// Runs of a check that repeats a run.
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The largest rate of differing runs, in percent, that equal runs must exclude at 95 %.
    #[arg(long, value_name = "PERCENT")]
    pub max_rate: Option<f64>,
    /// Folder of ground truth too bulky for the workspace [default: ../shared/ground-truth].
    #[arg(long, value_name = "DIR")]
    pub ground_truth: Option<PathBuf>,
    /// Plant a fault on purpose; the run must end red.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    pub plant: Option<Fault>,
    /// Print only the summary.
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub switches: SwitchFlags,
}

/// See [`Rendering`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RenderingFlag {
    /// What a user says, rendered as the model was trained.
    Chat,
    /// Text after the begin-of-sentence token.
    Plain,
    /// A rendered prompt, special tokens by their text.
    Rendered,
}

impl From<RenderingFlag> for Rendering {
    fn from(flag: RenderingFlag) -> Self {
        match flag {
            RenderingFlag::Chat => Self::Chat,
            RenderingFlag::Plain => Self::Plain,
            RenderingFlag::Rendered => Self::Rendered,
        }
    }
}

fn against(side: &str) -> Result<Against, String> {
    Ok(match side {
        "reference" => Against::Reference,
        "atomic" => Against::Atomic,
        path if std::path::Path::new(path).is_file() => Against::File(path.into()),
        path => return Err(format!("{path}: neither reference, atomic nor a file")),
    })
}

fn suite(name: &str) -> Result<Suite, String> {
    let found = Suite::ALL.into_iter().find(|suite| suite.name() == name);
    found.ok_or_else(|| format!("one of {}", Suite::ALL.map(Suite::name).join(", ")))
}

/// Engines that can be under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Vectors and threads.
    Cpu,
    /// The reference itself: every arm is the same code, which no suite calls equal.
    Reference,
    /// A GPU.
    Cuda,
}

fn fault(name: &str) -> Result<Fault, String> {
    let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    found.ok_or_else(|| format!("one of {}", Fault::ALL.map(Fault::name).join(", ")))
}

#[derive(Args, Debug)]
pub struct Logits {
    /// The model: GGUF, or safetensors with config.json beside it.
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// The multi-token-prediction block that belongs to it; needs --mtp-out.
    #[arg(long, value_name = "FILE", requires = "mtp_out")]
    pub mtp: Option<PathBuf>,
    /// Where to write the block's draft logits, f32 [rows, vocabulary] (.npy): row p drafts the token
    /// after the one it is paired with.
    #[arg(long, value_name = "FILE", requires = "mtp")]
    pub mtp_out: Option<PathBuf>,
    /// Token that the hidden state after token p-1 is paired with: the next one, as in training, or the
    /// same one.
    #[arg(long, value_enum, default_value = "previous", value_name = "HIDDEN")]
    pub mtp_pairing: PairingFlag,
    /// A JSON array of token ids.
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// What computes the logits.
    #[arg(long, value_enum, default_value = "reference")]
    pub backend: Backend,
    /// Meaning: ds4 (all rounding points), float (none), qat (those of training).
    #[arg(long, default_value = "ds4", value_parser = profile)]
    pub profile: Profile,
    /// Tokens per forward call [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: Option<u32>,
    /// Go on greedily for N tokens; the logits then have a row for each of them too.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub greedy: u32,
    /// Where to write the new ids, a JSON array.
    #[arg(long, value_name = "FILE", requires = "greedy")]
    pub tokens_out: Option<PathBuf>,
    /// Where to write the logits, f32 [tokens, vocabulary] (.npy).
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Where to write what was run, under which switches and by which build (.json).
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub switches: SwitchFlags,
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = Profile::ALL.map(|profile| profile.name).join(", ");
    Profile::named(name).ok_or_else(|| format!("one of {names}"))
}

/// Implementations that compute logits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Backend {
    /// The plain CPU code that defines every operation.
    Reference,
    /// Vectors and threads.
    Cpu,
}

/// See [`Pairing`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PairingFlag {
    /// Hidden state of the position before, as in training.
    Previous,
    /// Hidden state of the same position.
    Same,
}

impl From<PairingFlag> for Pairing {
    fn from(flag: PairingFlag) -> Self {
        match flag {
            PairingFlag::Previous => Self::Previous,
            PairingFlag::Same => Self::Same,
        }
    }
}

#[derive(Args, Debug)]
pub struct Inspect {
    /// The file, GGUF or safetensors.
    pub file: PathBuf,
}

#[derive(Args, Debug)]
pub struct Env {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub switches: SwitchFlags,
}

#[derive(Args, Debug)]
pub struct Fixtures {
    #[command(subcommand)]
    pub command: FixturesCommand,
}

#[derive(Debug, Subcommand)]
pub enum FixturesCommand {
    /// Make the seeded models, prompts and hostile files anew.
    Build,
    /// Prove that the committed files are what their recipe or their digest says.
    Check,
    /// Write a model of full Flash shapes with random weights.
    Synth(Synth),
}

#[derive(Args, Debug)]
pub struct Synth {
    /// The model file to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// The multi-token-prediction file to write beside it.
    #[arg(long, value_name = "FILE")]
    pub mtp_out: Option<PathBuf>,
    /// Layers share bytes with the layer P before them (4: 9.55 GB instead of 86.7 GB).
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pub alias_layers: Option<u32>,
    /// Replace files that are there.
    #[arg(long)]
    pub overwrite: bool,
}

#[derive(Args, Debug)]
pub struct Golden {
    #[command(subcommand)]
    pub command: GoldenCommand,
}

#[derive(Debug, Subcommand)]
pub enum GoldenCommand {
    /// List every case and its reason, what waits, and files that belong to no case.
    List,
    /// Print the golden of a case: the accepted one, or the one that waits if there is no other.
    Show {
        /// The case.
        case: String,
    },
    /// Show what moved from the accepted golden of a case to the one that waits; exit code 1 if anything.
    Diff {
        /// The case.
        case: String,
    },
    /// Accept the golden that waits for one case.
    Accept {
        /// The case.
        case: String,
        /// Why, in one line; kept in the file.
        #[arg(long)]
        reason: String,
    },
    /// Delete the golden that waits for one case.
    Reject {
        /// The case.
        case: String,
    },
    /// Delete what waits for no case; name accepted files of no case (exit code 1), which stay.
    Prune,
}

#[derive(Args, Debug)]
pub struct Sensitivity {
    /// The model [default: the tiny one].
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Its multi-token-prediction block [default: that of the tiny model].
    #[arg(long, value_name = "FILE")]
    pub mtp: Option<PathBuf>,
    /// Prompt, a JSON array of token ids [default: that of the tiny model].
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Where to write the table (.tsv).
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only the verdict.
    #[arg(long, conflicts_with = "out")]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct Teeth {
    /// Only survivors and the rate.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct Noise {
    /// The model.
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// A JSON array of token ids.
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// Recorded logits of the same tokens to compare with (.npy).
    #[arg(long, value_name = "FILE")]
    pub logits: Option<PathBuf>,
}
