//! What the flags of a generation ask for, checked before a file is opened.
//!
//! Promises: what is absent is refused by name; options that contradict each other are refused; options
//! without effect are named in a warning. Leaves values that depend on the model to `generate`.

use engine::ErrorKind;
use engine::decode::Picker;
use engine::reference::Reference;
use engine::sampler::{Sampler, SamplerOptions};
use engine::session::RunError;
use engine::switches::{MoeDown, Setting, Simd, Source};
use engine::{Error, Switches};

use crate::error::{Failure, Result};
use crate::flags::{Drafter, Drafting, Generate, NotBuilt, Sampling};
use crate::output::warn;

/// Drafts of a round when nobody says how many.
const DEPTH: usize = 2;

/// A generation that can be asked for.
pub struct Request {
    /// Who drafts; nobody decodes plainly.
    pub drafter: Option<Drafter>,
    /// Drafts of a round at most.
    pub depth: usize,
    /// How tokens are drawn.
    pub sampler: SamplerOptions,
    /// Who draws them.
    pub picker: Picker,
}

impl Request {
    /// Checks the flags.
    pub fn check(flags: &Generate) -> Result<Self> {
        refuse_not_built(flags)?;
        let drafter = drafter(&flags.drafting)?;
        let depth = match &drafter {
            Some(_) => flags.drafting.mtp_draft.map_or(DEPTH, usize::from),
            None => 0,
        };
        let (sampler, picker) = sampling(&flags.sampling)?;
        Ok(Self { drafter, depth, sampler, picker })
    }
}

fn refuse_not_built(flags: &Generate) -> Result<()> {
    let refuse = |what: String, instead| Err(Failure::NotBuilt { what, instead });
    let sources = [
        ("--prompt", flags.prompt.len()),
        ("--prompt-file", flags.prompt_file.len()),
        ("--tokens", flags.tokens.len()),
    ];
    for (option, count) in sources {
        if count > 1 {
            let what = format!("{option} {count} times: several sequences in one call");
            return refuse(what, "run the program once for each");
        }
    }
    let NotBuilt { parallel, save_session, load_session, prefix_cache } = &flags.not_built;
    if *parallel != 1 {
        return refuse(format!("--parallel {parallel}"), "one sequence runs at a time");
    }
    let absent = [
        ("--save-session", save_session, "a sequence ends with the program"),
        ("--load-session", load_session, "a sequence begins with its prompt"),
        ("--prefix-cache", prefix_cache, "every prompt is computed from its first token on"),
    ];
    for (option, given, instead) in absent {
        if given.is_some() {
            return refuse(option.to_owned(), instead);
        }
    }
    Ok(())
}

fn drafter(flags: &Drafting) -> Result<Option<Drafter>> {
    let drafter = flags.drafter.clone().or_else(|| flags.mtp.as_ref().map(|_| Drafter::Mtp));
    match (&drafter, &flags.mtp) {
        (Some(Drafter::Mtp), None) => {
            Err(Failure::option("--drafter mtp", "needs the block, --mtp FILE"))
        }
        (Some(Drafter::Scripted(name, _)), Some(_)) => {
            Err(Failure::option("--mtp", format!("not used by --drafter {name}")))
        }
        (None, None) if flags.mtp_draft.is_some() => {
            Err(Failure::option("--mtp-draft", "nobody drafts; it needs --mtp FILE or --drafter"))
        }
        _ => Ok(drafter),
    }
}

fn sampling(flags: &Sampling) -> Result<(SamplerOptions, Picker)> {
    let Sampling { temperature, top_k, top_p, min_p, seed } = *flags;
    let options = SamplerOptions { temperature, top_k: top_k as usize, top_p, min_p, seed };
    let sampler = Sampler::new(options).map_err(|error| match error {
        RunError::Sampling { field, value, rule } => {
            let option = format!("--{} {value}", field.replace('_', "-"));
            Failure::option(option, format!("must be {rule}"))
        }
        other => Error::from(ErrorKind::from(other)).into(),
    })?;
    if temperature != 0.0 {
        return Ok((options, Picker::Sampled(sampler)));
    }
    let greedy = SamplerOptions::default();
    for (option, set) in [
        ("--top-k", options.top_k != greedy.top_k),
        ("--top-p", top_p != greedy.top_p),
        ("--min-p", min_p != greedy.min_p),
        ("--seed", seed != greedy.seed),
    ] {
        if set {
            warn(format_args!("{option}: no effect at --temperature 0"));
        }
    }
    Ok((options, Picker::Greedy))
}

/// Refuses switches that the reference does not obey.
pub fn check_reference(switches: &Switches) -> Result<()> {
    let name = engine::backend::Backend::name(&Reference);
    let refuse = |option: &str, value: &str, source: Source| {
        let problem = format!("the backend {name} does not have it ({source})");
        Err(Failure::option(format!("{option} {value}"), problem))
    };
    let Setting { value, source } = switches.moe_down;
    if value != MoeDown::Ordered {
        return refuse("--moe-down", value.name(), source);
    }
    let Setting { value, source } = switches.simd;
    if value != Simd::Auto {
        return refuse("--simd", value.name(), source);
    }
    let Setting { value, source } = switches.threads;
    if source != Source::Default && value != 1 {
        warn(format_args!("threads {value} ({source}): the backend {name} uses one"));
    }
    Ok(())
}
