//! `generate`: a prompt through a model, token by token.
//!
//! Promises: the tokens do not depend on drafts, their verification or the size of the calls. Everything
//! that can be refused is refused before the first token is computed. With `--json` standard output is one
//! object, otherwise it is the text and nothing else.

use std::time::Instant;

use engine::backend::Backend;
use engine::config::Compression;
use engine::cpu::Cpu;
use engine::decode::{
    Decoder, Drafter, End, MtpDrafter, NoDrafts, Options, Round, ScriptedDrafter, Verification,
    probe,
};
use engine::format::Tokenizer;
use engine::mtp::MtpSession;
use engine::reference::Reference;
use engine::session::{self, Limits};
use engine::state::LayerState;
use engine::{Model, MtpModel, Session, Switches};

use crate::error::{Failure, Result};
use crate::flags::{self, Generate};
use crate::input::{self, Prompt};
use crate::mode::Mode;
use crate::output::{self, Text, warn};
use crate::report::{Drafts, File, Report, Timings};
use crate::request::{self, Request};
use crate::watch::Watch;

/// Carries the command out.
pub fn run(flags: &Generate, switches: &Switches) -> Result<()> {
    let request = Request::check(flags)?;
    match flags.backend {
        flags::Backend::Reference => {
            request::check_reference(switches)?;
            generate(&Reference, flags, &request, switches)
        }
        flags::Backend::Cpu => {
            let cpu = Cpu::from_switches(switches).map_err(engine::Error::from)?;
            generate(&cpu, flags, &request, switches)
        }
    }
}

/// Measures durations.
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "durations are reported and decide nothing")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Everything that was read.
struct Loaded {
    model: Model,
    block: Option<MtpModel>,
    tokenizer: Option<Tokenizer>,
    prompt: Prompt,
    stop: Vec<u32>,
    limits: Limits,
    state_bytes: u64,
}

impl Loaded {
    fn open(flags: &Generate, request: &Request) -> Result<Self> {
        let tokens = input::tokens(flags)?;
        let text = input::text(flags)?;
        let model = Model::open(&flags.model)?;
        warn_unclaimed(&flags.model, &model.unclaimed);
        let block = match &flags.drafting.mtp {
            Some(path) => {
                let block = MtpModel::open(path, &model.config)?;
                warn_unclaimed(path, &block.unclaimed);
                Some(block)
            }
            None => None,
        };
        let tokenizer = tokenizer(flags, &model)?;
        let (prompt, from) = match (tokens, text, &tokenizer) {
            (Some(ids), _, _) => {
                (Prompt { ids, text: None }, flags.tokens[0].display().to_string())
            }
            (None, Some((text, from)), Some(tokenizer)) => {
                (input::encode(flags, tokenizer, &text, &from)?, from)
            }
            _ => unreachable!("a prompt is required, and so is the tokenizer of a text"),
        };
        input::check(&model, &prompt.ids, &from)?;
        let stop = stop_tokens(flags, &model, tokenizer.as_ref())?;
        let (limits, state_bytes) = limits(flags, request, &model, &prompt, &from)?;
        Ok(Self { model, block, tokenizer, prompt, stop, limits, state_bytes })
    }
}

fn warn_unclaimed(path: &std::path::Path, names: &[String]) {
    if !names.is_empty() {
        warn(format_args!("{}: tensors not read: {}", path.display(), names.join(", ")));
    }
}

/// The tokenizer; only ids to ids, as JSON, can do without.
fn tokenizer(flags: &Generate, model: &Model) -> Result<Option<Tokenizer>> {
    let absent = !model.metadata.keys().any(|key| key.starts_with("tokenizer."));
    if absent && flags.json && !flags.tokens.is_empty() {
        warn(format_args!("{}: no tokenizer, so no text and no end token", flags.model.display()));
        return Ok(None);
    }
    match model.tokenizer() {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(error) if absent => Err(Failure::option(
            error.to_string(),
            "without a tokenizer only --tokens with --json runs",
        )),
        Err(error) => Err(error.into()),
    }
}

fn stop_tokens(flags: &Generate, model: &Model, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>> {
    let vocabulary = model.config.vocabulary;
    let mut stop = flags.stop_token.clone();
    if let Some(id) = stop.iter().find(|id| **id as usize >= vocabulary) {
        let problem = format!("the vocabulary has {vocabulary}");
        return Err(Failure::option(format!("--stop-token {id}"), problem));
    }
    stop.extend(tokenizer.filter(|_| !flags.ignore_end).map(|tokenizer| tokenizer.specials().eos));
    stop.sort_unstable();
    stop.dedup();
    Ok(stop)
}

/// How long the sequence may become, and the bytes that it and its drafter then take.
fn limits(
    flags: &Generate,
    request: &Request,
    model: &Model,
    prompt: &Prompt,
    from: &str,
) -> Result<(Limits, u64)> {
    let (config, length) = (&model.config, prompt.ids.len());
    let context = match flags.context {
        Some(context) if context as usize > config.context => {
            let problem = format!("the model holds {}", config.context);
            return Err(Failure::option(format!("--context {context}"), problem));
        }
        Some(context) => context as usize,
        None => config.context.min(length + flags.max_tokens as usize),
    };
    if length > context {
        let whose = if flags.context.is_some() { "--context" } else { "the context of the model" };
        let problem = format!("{length} tokens, {whose} is {context}");
        return Err(Failure::option(from, problem));
    }
    let own = session::plan(config, context);
    let drafter = match &request.drafter {
        None => 0,
        Some(flags::Drafter::Mtp) => LayerState::plan(config, Compression::None, context),
        Some(flags::Drafter::Scripted(..)) => own,
    };
    let (bytes, budget) = (own + drafter, flags.memory_budget.unwrap_or(u64::MAX));
    if bytes > budget {
        let problem = format!(
            "the state of {context} tokens takes {bytes} bytes ({own} of the model, {drafter} of the \
             drafter)"
        );
        return Err(Failure::option(format!("--memory-budget {budget}"), problem));
    }
    Ok((Limits { context, state_bytes: budget }, bytes))
}

/// Who drafts.
fn drafter<'m, B: Backend>(
    backend: &'m B,
    loaded: &'m Loaded,
    flags: &Generate,
    request: &Request,
) -> Result<Box<dyn Drafter<B> + 'm>> {
    let (model, profile) = (&loaded.model, flags.profile);
    Ok(match (&request.drafter, &loaded.block) {
        (Some(flags::Drafter::Scripted(_, script)), _) => {
            let session = Session::within(backend, model, profile, loaded.limits)?;
            Box::new(ScriptedDrafter::new(session, script.clone()))
        }
        (Some(flags::Drafter::Mtp), Some(block)) => {
            let session = MtpSession::on(backend, model, block, profile)?;
            Box::new(MtpDrafter::new(backend, session))
        }
        _ => Box::new(NoDrafts),
    })
}

/// Decides how drafts are verified, and says so when it is not what was asked for.
fn mode<B: Backend>(
    backend: &B,
    loaded: &Loaded,
    flags: &Generate,
    request: &Request,
    switches: &Switches,
) -> Result<Option<Mode>> {
    if request.drafter.is_none() {
        return Ok(None);
    }
    let width = 1 + request.depth;
    let mode = Mode::decide(switches.mtp_strict, || {
        probe(backend, &loaded.model, flags.profile, width)
            .map_err(|error| error.in_file(&flags.model))
    })?;
    if mode.fell_back() {
        warn(format_args!("{}: drafts are verified one token at a time", mode.why));
    }
    Ok(Some(mode))
}

/// What a generation gave.
struct Outcome {
    text: Option<String>,
    token_ids: Vec<u32>,
    end: End,
    rounds: u64,
    acceptance: engine::decode::Acceptance,
    logprobs: Option<Vec<crate::watch::Entry>>,
    prompt_seconds: f64,
    generate_seconds: f64,
}

/// Runs the decoder to its end.
fn decode<B: Backend>(
    backend: &B,
    loaded: &Loaded,
    flags: &Generate,
    request: &Request,
    verification: Verification,
) -> Result<Outcome> {
    let named = |error: engine::Error| error.in_file(&flags.model);
    let mut drafter = drafter(backend, loaded, flags, request)?;
    let session = Session::within(backend, &loaded.model, flags.profile, loaded.limits)?;
    let options = Options {
        depth: request.depth,
        verification,
        stop: loaded.stop.clone(),
        tokens: flags.max_tokens as usize,
        chunk: flags.chunk as usize,
    };
    let prompt = &loaded.prompt.ids;
    let mut watch = Watch::new(flags.logprobs.map(|top| top as usize), prompt.len());
    let mut text = loaded.tokenizer.as_ref().map(|tokenizer| Text::new(tokenizer, !flags.json));
    let (picker, clock) = (request.picker.clone(), Clock::start());
    let decoder = Decoder::start(session, prompt, picker, options, drafter.as_mut(), &mut watch);
    let mut decoder = decoder.map_err(named)?;
    let prompt_seconds = clock.seconds();
    let (mut token_ids, mut rounds, clock) = (Vec::new(), 0, Clock::start());
    let mut emitted = vec![decoder.pending()];
    loop {
        watch.emitted(&emitted)?;
        if let Some(text) = &mut text {
            text.push(&emitted, decoder.end())?;
        }
        token_ids.append(&mut emitted);
        if let Some(end) = decoder.end() {
            return Ok(Outcome {
                text: text.map(Text::finish).transpose()?,
                token_ids,
                end,
                rounds,
                acceptance: decoder.acceptance().clone(),
                logprobs: watch.finish(),
                prompt_seconds,
                generate_seconds: clock.seconds(),
            });
        }
        let round: Round = decoder.round(drafter.as_mut(), &mut watch).map_err(named)?;
        rounds += 1;
        emitted = round.emitted;
    }
}

/// The same sequence of steps on every backend.
fn generate<B: Backend>(
    backend: &B,
    flags: &Generate,
    request: &Request,
    switches: &Switches,
) -> Result<()> {
    let clock = Clock::start();
    let loaded = Loaded::open(flags, request)?;
    let load_seconds = clock.seconds();
    let clock = Clock::start();
    let mode = mode(backend, &loaded, flags, request, switches)?;
    let probe_seconds = mode.as_ref().and_then(|mode| mode.probe).map(|_| clock.seconds());
    let verification = mode.as_ref().map_or(Verification::Combined, |mode| mode.verification);
    let outcome = decode(backend, &loaded, flags, request, verification)?;
    let rate = |tokens: usize, seconds: f64| {
        (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
    };
    let prompt_tokens = loaded.prompt.ids.len();
    let timings = Timings {
        load_seconds,
        probe_seconds,
        prompt_seconds: outcome.prompt_seconds,
        prompt_tokens_per_second: rate(prompt_tokens, outcome.prompt_seconds),
        generate_seconds: outcome.generate_seconds,
        generated_tokens_per_second: rate(outcome.token_ids.len() - 1, outcome.generate_seconds),
    };
    let drafts = request.drafter.as_ref().zip(mode).map(|(drafter, mode)| {
        Drafts::of(drafter.name(), request.depth, mode, outcome.rounds, &outcome.acceptance)
    });
    let report = Report {
        lockstep: env!("CARGO_PKG_VERSION"),
        model: File::at(&flags.model),
        mtp: flags.drafting.mtp.as_deref().map(File::at),
        backend: backend.name(),
        profile: flags.profile.name,
        prompt_text: loaded.prompt.text,
        prompt_ids: loaded.prompt.ids,
        prompt_tokens,
        text: outcome.text,
        generated_tokens: outcome.token_ids.len(),
        token_ids: outcome.token_ids,
        end: outcome.end.into(),
        logprobs: outcome.logprobs,
        timings,
        drafts,
        sampler: request.sampler.into(),
        max_tokens: flags.max_tokens as usize,
        stop_tokens: loaded.stop,
        chunk: flags.chunk as usize,
        context: loaded.limits.context,
        state_bytes: loaded.state_bytes,
        memory_budget: flags.memory_budget,
        switches: switches.record(),
    };
    report.print();
    if flags.json {
        let text = serde_json::to_string_pretty(&report);
        output::write(&(text.map_err(|error| Failure::Output(error.into()))? + "\n"))?;
    }
    Ok(())
}
