//! The production engine against itself: repeated runs, threads, instructions, chunks of the prompt.
//!
//! Promises: what was never seen to differ is said with the rate that the number of runs can exclude, never
//! as certainty; a claim that needs more runs than were asked for is refused, with the number.

use engine::backend::Backend;
use engine::cpu::Level;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{Profile, Session, sampler};

use super::kernels::compare;
use super::subjects::{self, Opened, Subject};
use super::{Job, Prepared, Production, Setup, Variant, text};
use crate::battery::{self, Family};
use crate::check::{Check, Lane, Question, Tally};
use crate::contract::{self, Axis, Cell, Evidence};

/// Numbers of threads that runs are repeated with.
const THREADS: [usize; 4] = [1, 2, 3, 7];
/// Tokens of a prompt in one call: all widths that drafting uses, and those around a boundary.
const CHUNKS: [usize; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 127, 128, 129];
/// Runs without a difference that bound its rate by `3 / n` at 95 %.
const RULE_OF_THREE: f64 = 3.0;

/// Runs that are needed to exclude a rate, none of them differing, at 95 %.
#[must_use]
pub fn runs_needed(rate: f64) -> usize {
    (RULE_OF_THREE / rate).ceil() as usize
}

/// The rate that so many equal runs exclude at 95 %.
#[must_use]
pub fn excluded_rate(runs: usize) -> f64 {
    RULE_OF_THREE / runs as f64
}

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    let names = ["trained-tiny/novel-held-100", "tiny/tiny-400"];
    let subjects = if setup.own.is_some() {
        subjects::all(setup)
    } else {
        names.iter().flat_map(|name| subjects::one(setup, name)).collect()
    };
    for subject in subjects {
        for axis in [Axis::Run, Axis::Threads, Axis::Simd, Axis::Chunk] {
            let subject = subject.clone();
            let name = format!("determinism/{} {}", axis.name(), subject.name);
            jobs.push(Job::new(name.clone(), move || {
                let question = Question::new(&name, "itself", Lane::Bits, rule(axis));
                let run = || whole_model(setup, production, &subject, axis, question.clone());
                setup.checked(question.clone(), run)
            }));
        }
    }
    for family in Family::ALL {
        let name = format!("determinism/{}", family.name());
        jobs.push(Job::new(name.clone(), move || {
            let rule = "threads 1, 2, 3, 7 and all instruction sets";
            let question = Question::new(&name, "itself", Lane::Bits, rule);
            let run = || operations(setup, production, family, question.clone());
            setup.checked(question.clone(), run)
        }));
    }
    jobs
}

const fn rule(axis: Axis) -> &'static str {
    match axis {
        Axis::Run => "bytes of every run",
        Axis::Threads => "bytes with 1, 2, 3, 7 threads",
        Axis::Simd => "bytes with every instruction set",
        _ => "bytes with prompts cut into 1 to 129 tokens",
    }
}

/// What a run leaves: logits of the prompt and of every step, greedy tokens, state.
#[derive(PartialEq, Eq)]
struct Trace {
    logits: Vec<Vec<u32>>,
    tokens: Vec<u32>,
    state: Vec<u32>,
}

fn trace<B: Backend>(backend: &B, opened: &Opened, chunk: usize, steps: usize) -> Prepared<Trace> {
    let mut session = Session::on(backend, &opened.model, Profile::DS4).map_err(text)?;
    let mut trace = Trace { logits: Vec::new(), tokens: Vec::new(), state: Vec::new() };
    let mut next = Vec::new();
    let calls = opened.prompt.chunks(chunk).map(<[u32]>::to_vec).chain(vec![Vec::new(); steps]);
    for call in calls {
        let call = if call.is_empty() { std::mem::take(&mut next) } else { call };
        let forward = session.forward(&call, Keep::All, &mut Unobserved).map_err(text)?;
        let rows = backend.download(&forward.logits).map_err(text)?;
        let row = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect();
        trace.logits.extend(rows.iter().map(row));
        let last = rows.row(rows.count() - 1);
        next = vec![sampler::argmax(last, session.length() - 1).map_err(text)?];
        trace.tokens.extend(&next);
    }
    // Greedy tokens inside the prompt depend on how it was cut.
    trace.tokens.drain(..trace.tokens.len() - steps - 1);
    session.visit_state(&mut |_, _, _, values| {
        trace.state.extend(values.iter().map(|value| value.to_bits()));
    });
    Ok(trace)
}

/// Variants and chunks of the runs that are held against the first.
fn variations(setup: &Setup, axis: Axis, prompt: usize) -> Vec<(Variant, usize)> {
    let base = setup.variant;
    match axis {
        Axis::Run => vec![(base, prompt); setup.runs],
        Axis::Threads => THREADS.map(|threads| (Variant { threads, ..base }, prompt)).to_vec(),
        Axis::Simd => {
            let level = |level| (Variant { level, ..base }, prompt);
            Level::available().into_iter().map(level).collect()
        }
        _ => CHUNKS.map(|chunk| (base, chunk)).to_vec(),
    }
}

fn whole_model<P: Production>(
    setup: &Setup,
    production: &P,
    subject: &Subject,
    axis: Axis,
    question: Question,
) -> Prepared<Check> {
    let opened = subject.open(setup)?;
    let mut tally = setup.tally();
    let (prompt, steps) = (opened.prompt.len(), subject.steps);
    let first = trace(&production.make(setup.variant)?, &opened, prompt, steps)?;
    let variations = variations(setup, axis, prompt);
    let mut differing = 0_usize;
    for (variant, chunk) in &variations {
        let other = trace(&production.make(*variant)?, &opened, *chunk, steps)?;
        differing += usize::from(first != other);
        let how = || format!("{}, chunks of {chunk}", variant.name());
        hold(&mut tally, &other, &first, how);
    }
    let runs = variations.len();
    let cell = Cell { axis, subject: contract::Subject::Model, path: setup.variant.path() };
    let (elements, cases) = (tally.elements() as u64, 1);
    let evidence = Evidence { cases, elements, runs: runs as u64 };
    tally.prove(cell, evidence);
    if axis == Axis::Chunk {
        // The chunks have every width, and all of them equal the same first run.
        tally.prove(Cell { axis: Axis::Width, ..cell }, evidence);
    }
    tally.note(if axis == Axis::Run && differing == 0 {
        let rate = 100.0 * excluded_rate(runs);
        format!("0 of {runs} differ: below {rate:.2} % at 95 %")
    } else {
        format!("{differing} of {runs} differ")
    });
    Ok(tally.finish(question))
}

fn hold(tally: &mut Tally, ours: &Trace, theirs: &Trace, how: impl Fn() -> String) {
    let rows = [ours, theirs].map(|trace| trace.logits.len());
    tally.require(rows[0] == rows[1], || format!("{}: {rows:?} rows of logits", how()));
    for (row, (a, b)) in ours.logits.iter().zip(&theirs.logits).enumerate() {
        if let Some(first) = tally.words(a, b) {
            tally.differ(first.at(how(), "logits", row));
        }
    }
    if let Some(first) = tally.words(&ours.state, &theirs.state) {
        tally.differ(first.at(how(), "state", rows[0]));
    }
    tally.choices(&format!("{}: greedy token", how()), &ours.tokens, &theirs.tokens);
}

/// Operations of a family in every variant against one thread without vectors.
fn operations<P: Production>(
    setup: &Setup,
    production: &P,
    family: Family,
    question: Question,
) -> Prepared<Check> {
    let mut tally = setup.tally();
    let base = Variant { level: Level::Scalar, threads: 1, combine: setup.variant.combine };
    let first = production.make(base)?;
    let mut others = Vec::new();
    for level in Level::available() {
        for threads in THREADS {
            let variant = Variant { level, threads, ..base };
            others.push((variant, production.make(variant)?));
        }
    }
    let mut count = 0;
    for case in battery::all().iter().filter(|case| case.operation.family() == family) {
        let theirs = case.run(&first, &[usize::MAX]);
        for (variant, backend) in &others {
            let ours = case.run(backend, &[usize::MAX]);
            compare(&mut tally, case, &ours, &theirs, || variant.name());
        }
        count += 1;
    }
    let (elements, runs) = (tally.elements() as u64, count * others.len() as u64);
    for axis in [Axis::Threads, Axis::Simd] {
        let subject = contract::Subject::Operations(family);
        let cell = Cell { axis, subject, path: setup.variant.path() };
        tally.prove(cell, Evidence { cases: count, elements, runs });
    }
    tally.note(format!("{count} cases"));
    Ok(tally.finish(question))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_its_number_of_runs() {
        assert_eq!(runs_needed(0.006), 500);
        assert!(excluded_rate(50) > 0.006 && excluded_rate(500) <= 0.006);
    }
}
