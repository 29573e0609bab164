//! Every flag of every command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::Profile;
use engine::mtp::Pairing;
use engine::switches::CommandLine;
use oracle::suites::Fault;

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
    /// Compare the reference with independent ground truth and with its own goldens.
    #[command(
        after_help = "Exit codes: 0 equal, 1 different, 2 bad usage or input, 3 nothing was run."
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
    /// List goldens, or accept one by name.
    Golden(Golden),
    /// Change each tensor of a model in turn and show how far the logits move.
    Sensitivity(Sensitivity),
    /// Show how far one ulp goes and which rounding point carries it.
    Noise(Noise),
    /// Check the rules of the workspace that the compiler cannot.
    Tidy,
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
pub struct Verify {
    /// Logits, intermediates, choices and rounding of the reference.
    #[arg(long, required = true)]
    pub tensor_equivalence: bool,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Folder of ground truth too bulky for the workspace [default: ../shared/ground-truth].
    #[arg(long, value_name = "DIR")]
    pub ground_truth: Option<PathBuf>,
    /// Plant a fault on purpose; the run must end red.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    pub plant: Option<Fault>,
    #[command(flatten)]
    pub switches: SwitchFlags,
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
    /// List accepted goldens and those that wait.
    List,
    /// Accept the golden that waits for one case.
    Accept {
        /// The case.
        case: String,
        /// Why, in one line; kept in the file.
        #[arg(long)]
        reason: String,
    },
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
