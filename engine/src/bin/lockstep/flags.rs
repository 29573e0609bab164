//! Every flag of every command.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use engine::Profile;
use engine::decode::{DEPTH_MAX, Script};

use crate::switches::SwitchFlags;

/// Inference engine for DeepSeek-V4 whose every bit can be checked.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, max_term_width = 100)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate text from a prompt.
    #[command(after_help = "Exit codes: 0 done, 2 bad usage or input.")]
    Generate(Generate),
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source").args(["prompt", "prompt_file", "tokens"]).required(true))]
pub struct Generate {
    /// The model: GGUF, or safetensors with config.json beside it.
    #[arg(long, value_name = "FILE")]
    pub model: PathBuf,
    /// The prompt, as it is, behind the token that begins every prompt.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Vec<String>,
    /// A file with the prompt, all of it, the last line end too.
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Vec<PathBuf>,
    /// A JSON array of token ids, which are the whole prompt.
    #[arg(long, value_name = "FILE")]
    pub tokens: Vec<PathBuf>,
    /// The prompt is what a user says; render it as the model was trained.
    #[arg(long, conflicts_with = "tokens")]
    pub chat: bool,
    /// Instructions before it.
    #[arg(long, value_name = "TEXT", requires = "chat", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Whether the assistant reasons first.
    #[arg(long, value_enum, value_name = "on|off", requires = "chat", hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub think: Option<Think>,
    /// Tokens to generate at most.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 128,
        allow_negative_numbers = true
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: u32,
    /// Tokens that the sequence may have [default: prompt and --max-tokens, or what the model holds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Option<u32>,
    /// Bytes that the state of the sequence may take, also as 512M or 4G [default: no limit].
    #[arg(long, value_name = "BYTES", value_parser = bytes, allow_negative_numbers = true)]
    pub memory_budget: Option<u64>,
    /// Print one JSON object instead of the text.
    #[arg(long)]
    pub json: bool,
    /// In the JSON: each token's log-probability and the N most likely ones, before temperature.
    #[arg(long, value_name = "N", requires = "json")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub logprobs: Option<u32>,
    /// Tokens of the prompt in one forward call; no bit depends on it.
    #[arg(long, value_name = "N", default_value_t = 512, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub chunk: u32,
    /// A token that ends the generation too; may be repeated.
    #[arg(long, value_name = "ID", allow_negative_numbers = true)]
    pub stop_token: Vec<u32>,
    /// Go on behind the model's end token.
    #[arg(long)]
    pub ignore_end: bool,
    /// Meaning: ds4 (all rounding points), float (none), qat (those of training).
    #[arg(long, default_value = "ds4", value_parser = profile)]
    pub profile: Profile,
    /// What computes.
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    #[command(flatten)]
    pub sampling: Sampling,
    #[command(flatten)]
    pub drafting: Drafting,
    #[command(flatten)]
    pub switches: SwitchFlags,
    #[command(flatten)]
    pub not_built: NotBuilt,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Sampling")]
pub struct Sampling {
    /// Divides the logits; 0 always takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub temperature: f32,
    /// Draw from the K most likely tokens; 0 is no limit.
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub top_k: u32,
    /// Draw from the most likely tokens that reach this share of the probability.
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub top_p: f32,
    /// Draw from tokens with at least this part of the largest probability.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub min_p: f32,
    /// Seed of every random number.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub seed: u64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Drafts")]
pub struct Drafting {
    /// The multi-token-prediction block that belongs to the model; it drafts.
    #[arg(long, value_name = "FILE")]
    pub mtp: Option<PathBuf>,
    /// Tokens drafted in a round [default: 2].
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=DEPTH_MAX as i64))]
    pub mtp_draft: Option<u8>,
    /// Who drafts: mtp, or for tests self (always right), hostile (always wrong), scripted:1,0,2 (so many
    /// right in each round) [default: mtp with --mtp].
    #[arg(long, value_name = "WHO", value_parser = drafter)]
    pub drafter: Option<Drafter>,
}

/// Options that say by name what is absent.
#[derive(Args, Debug)]
pub struct NotBuilt {
    #[arg(long, hide = true, default_value_t = 1)]
    pub parallel: u32,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "")]
    pub save_session: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "")]
    pub load_session: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "")]
    pub prefix_cache: Option<String>,
}

/// Implementations of the operations.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum Backend {
    /// The plain CPU code that defines every operation.
    Reference,
    /// The same bytes with vectors and threads.
    #[default]
    Cpu,
}

/// Whether the assistant reasons.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Think {
    On,
    Off,
}

/// Who drafts.
#[derive(Clone, Debug)]
pub enum Drafter {
    /// The multi-token-prediction block.
    Mtp,
    /// The model itself, right and wrong on purpose; with the name it was given.
    Scripted(String, Script),
}

impl Drafter {
    /// As on the command line.
    pub fn name(&self) -> &str {
        match self {
            Self::Mtp => "mtp",
            Self::Scripted(name, _) => name,
        }
    }
}

fn drafter(name: &str) -> Result<Drafter, String> {
    let scripted = |script| Ok(Drafter::Scripted(name.to_owned(), script));
    match name {
        "mtp" => Ok(Drafter::Mtp),
        "self" => scripted(Script::All),
        "hostile" => scripted(Script::Nothing),
        _ => {
            let counts = name.strip_prefix("scripted:");
            let counts = counts.ok_or("mtp, self, hostile or scripted:COUNTS")?;
            let count = |text: &str| text.parse().ok().filter(|count| *count <= DEPTH_MAX);
            let counts: Option<Vec<usize>> = counts.split(',').map(count).collect();
            let rule = || format!("counts from 0 to {DEPTH_MAX} with commas between");
            scripted(Script::Cycle(counts.ok_or_else(rule)?))
        }
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    let names = Profile::ALL.map(|profile| profile.name).join(", ");
    Profile::named(name).ok_or_else(|| format!("one of {names}"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number = || {
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok());
        number.flatten().and_then(|number: u64| number.checked_mul(1 << shift))
    };
    number().ok_or_else(|| "a number of bytes below 2^64, as it is or with K, M or G".to_owned())
}
