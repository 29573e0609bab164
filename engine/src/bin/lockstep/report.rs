//! What a generation was and how it went: one JSON object, or lines on standard error.
//!
//! Promises: every setting in force is in the object; numbers keep all of their digits; what was not
//! measured is null and not zero.

use std::collections::BTreeMap;
use std::path::Path;

use engine::decode::{Acceptance, End};
use engine::sampler::SamplerOptions;
use engine::switches::Entry;
use serde::Serialize;

use crate::mode::{Finding, Mode};
use crate::output::note;
use crate::watch;

/// The whole report.
#[derive(Serialize)]
pub struct Report {
    /// Version of the program.
    pub lockstep: &'static str,
    /// The model.
    pub model: File,
    /// Its multi-token-prediction block.
    pub mtp: Option<File>,
    /// What computed.
    pub backend: String,
    /// In which meaning.
    pub profile: &'static str,
    /// What was encoded; null where ids were given.
    pub prompt_text: Option<String>,
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// How many they are.
    pub prompt_tokens: usize,
    /// The text, without the token that stopped it; null without a tokenizer.
    pub text: Option<String>,
    /// Emitted ids, the one that stopped it too.
    pub token_ids: Vec<u32>,
    /// How many they are.
    pub generated_tokens: usize,
    /// Why no more.
    pub end: Ended,
    /// Log-probabilities, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<watch::Entry>>,
    /// How long it took.
    pub timings: Timings,
    /// Drafts; null without.
    pub drafts: Option<Drafts>,
    /// How tokens were drawn.
    pub sampler: Sampler,
    /// Tokens asked for.
    pub max_tokens: usize,
    /// Tokens that ended the generation.
    pub stop_tokens: Vec<u32>,
    /// Tokens of the prompt in one call.
    pub chunk: usize,
    /// Tokens that the sequence might have had.
    pub context: usize,
    /// Bytes that its state, and a drafter's, take.
    pub state_bytes: u64,
    /// Bytes that they might take.
    pub memory_budget: Option<u64>,
    /// Every run-time switch.
    pub switches: BTreeMap<&'static str, Entry>,
}

/// A file that was read.
#[derive(Serialize)]
pub struct File {
    path: String,
    bytes: Option<u64>,
}

impl File {
    /// The file at `path`.
    pub fn at(path: &Path) -> Self {
        let bytes = std::fs::metadata(path).ok().map(|metadata| metadata.len());
        Self { path: path.display().to_string(), bytes }
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, Serialize)]
#[serde(tag = "reason", rename_all = "lowercase")]
pub enum Ended {
    /// At a stop token.
    Stop {
        /// Which.
        token: u32,
    },
    /// At as many tokens as asked for.
    Tokens,
    /// At the end of the context.
    Context,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        match end {
            End::Stop(token) => Self::Stop { token },
            End::Tokens => Self::Tokens,
            End::Context => Self::Context,
        }
    }
}

impl Ended {
    fn words(self) -> String {
        match self {
            Self::Stop { token } => format!("ended by token {token}"),
            Self::Tokens => "ended by --max-tokens".to_owned(),
            Self::Context => "ended by a full context".to_owned(),
        }
    }
}

/// Durations and rates.
#[derive(Serialize)]
pub struct Timings {
    /// Until everything was opened.
    pub load_seconds: f64,
    /// The probe, where it ran.
    pub probe_seconds: Option<f64>,
    /// The prompt, up to the first token.
    pub prompt_seconds: f64,
    /// Tokens of the prompt over that.
    pub prompt_tokens_per_second: Option<f64>,
    /// Everything after the first token.
    pub generate_seconds: f64,
    /// Tokens after the first one over that.
    pub generated_tokens_per_second: Option<f64>,
}

/// Drafts and what became of them.
#[derive(Serialize)]
pub struct Drafts {
    drafter: String,
    depth: usize,
    verification: &'static str,
    why: String,
    probe: Option<Finding>,
    rounds: u64,
    proposed: u64,
    accepted: u64,
    places: Vec<Rate>,
}

/// Drafts at one place of a round.
#[derive(Serialize)]
struct Rate {
    place: usize,
    proposed: u64,
    accepted: u64,
    percent: Option<f64>,
}

impl Drafts {
    /// Of a generation.
    pub fn of(drafter: &str, depth: usize, mode: Mode, rounds: u64, counts: &Acceptance) -> Self {
        let rate = |index: usize| {
            let (proposed, accepted) = (counts.proposed[index], counts.accepted[index]);
            let percent = (proposed > 0).then(|| 100.0 * accepted as f64 / proposed as f64);
            Rate { place: index + 1, proposed, accepted, percent }
        };
        Self {
            drafter: drafter.to_owned(),
            depth,
            verification: mode.verification.name(),
            why: mode.why,
            probe: mode.probe.map(Finding::from),
            rounds,
            proposed: counts.proposed_total(),
            accepted: counts.accepted_total(),
            places: (0..depth).map(rate).collect(),
        }
    }
}

/// Options of the sampler.
#[derive(Serialize)]
pub struct Sampler {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    seed: u64,
}

impl From<SamplerOptions> for Sampler {
    fn from(options: SamplerOptions) -> Self {
        let SamplerOptions { temperature, top_k, top_p, min_p, seed } = options;
        Self { temperature, top_k, top_p, min_p, seed }
    }
}

impl Report {
    /// The statistics, for people.
    pub fn print(&self) {
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let timings = &self.timings;
        note(format_args!(
            "prompt     {} tokens, {:.3} s, {} tokens/s",
            self.prompt_tokens,
            timings.prompt_seconds,
            rate(timings.prompt_tokens_per_second)
        ));
        note(format_args!(
            "generated  {} tokens, {:.3} s, {} tokens/s, {}",
            self.generated_tokens,
            timings.generate_seconds,
            rate(timings.generated_tokens_per_second),
            self.end.words()
        ));
        let Some(drafts) = &self.drafts else { return };
        let Drafts { drafter, depth, rounds, proposed, accepted, verification, why, .. } = drafts;
        note(format_args!(
            "drafts     {drafter}, up to {depth} a round, {rounds} rounds, {accepted} of {proposed} \
             accepted"
        ));
        for Rate { place, proposed, accepted, percent } in
            drafts.places.iter().filter(|rate| rate.proposed > 0)
        {
            let percent = rate(*percent);
            note(format_args!("  place {place}  {accepted} of {proposed} accepted, {percent} %"));
        }
        note(format_args!("verified   {verification} ({why})"));
    }
}
