//! Single operations: production against reference, a row alone against the same row beside others.
//!
//! Promises: every family of operations, on inputs for which any order is exact first, so that a
//! difference there is logic and not rounding. No model file is read.

use super::{Job, Production, Setup};
use crate::battery::{self, Case, Family, Inputs, Seen};
use crate::check::{Check, Lane, Origin, Question, Tally};
use crate::contract::{Axis, Cell, Evidence, Subject};

/// Widths that a row is computed beside others in.
const WIDTHS: std::ops::RangeInclusive<usize> = 2..=9;
/// Rows of the first call of a case that has a state.
const HISTORY: usize = 121;

/// Calls that a case is cut into against the reference: one, one a row, and uneven ones.
const CUTS: [&[usize]; 3] = [&[usize::MAX], &[1], &[HISTORY, 3, 1, 8]];

/// Every operation on every kind of input against the reference.
pub(super) fn kernels<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for inputs in Inputs::ALL {
        for family in Family::ALL {
            let name = format!("kernels/{} {}", family.name(), inputs.name());
            if !battery::all().iter().any(|case| is_of(case, family, inputs)) {
                continue;
            }
            jobs.push(Job::new(name.clone(), move || {
                let rule = match inputs {
                    Inputs::Exact => "bytes; sums exact in any order",
                    _ => "bytes",
                };
                let question = Question::new(&name, "reference", Lane::Bits, rule);
                let cases = battery::all().iter().filter(|case| is_of(case, family, inputs));
                vec![against_reference(setup, production, cases, family, question)]
            }));
        }
    }
    jobs
}

fn is_of(case: &Case, family: Family, inputs: Inputs) -> bool {
    case.operation.family() == family && case.inputs == inputs
}

fn against_reference<'c, P: Production>(
    setup: &Setup,
    production: &P,
    cases: impl Iterator<Item = &'c Case>,
    family: Family,
    question: Question,
) -> Check {
    let mut tally = setup.tally();
    let backend = match production.make(setup.variant) {
        Ok(backend) => backend,
        Err(problem) => return question.failed(problem),
    };
    let (mut count, mut exact) = (0, true);
    for case in cases {
        exact &= case.inputs == Inputs::Exact;
        let theirs = case.expected();
        for cut in CUTS {
            compare(&mut tally, case, &case.run(&backend, cut), theirs, || {
                format!("calls {cut:?}")
            });
        }
        count += 1;
    }
    let cell = Cell {
        axis: Axis::Reference,
        subject: Subject::Operations(family),
        path: setup.variant.path(),
    };
    let runs = count * CUTS.len() as u64;
    tally.prove(cell, Evidence { cases: count, elements: tally.elements() as u64, runs });
    tally.note(format!("{count} cases"));
    if exact && !tally.is_equal() {
        tally.note("logic, not rounding: these sums are exact in any order");
    }
    tally.finish(question)
}

/// Compares everything seen of a case.
pub(super) fn compare(
    tally: &mut Tally,
    case: &Case,
    ours: &Seen,
    theirs: &Seen,
    how: impl Fn() -> String,
) {
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (ours, theirs) => {
            let text = |seen: &Seen| seen.as_ref().err().cloned().unwrap_or("ran".into());
            let problem = format!("{}: {}, {}", case.name, text(ours), text(theirs));
            return tally.require(false, || problem);
        }
    };
    tally.require(ours.len() == theirs.len(), || {
        format!("{}: {} rows, {}", case.name, ours.len(), theirs.len())
    });
    for (ours, theirs) in ours.iter().zip(theirs) {
        let same = (ours.what, ours.token) == (theirs.what, theirs.token);
        tally.require(same, || format!("{}: {} at {}", case.name, ours.what, ours.token));
        if let Some(mut first) = tally.words(&ours.bits, &theirs.bits) {
            first.origin = Origin::Added;
            let place = format!("{} ({})", case.name, how());
            tally.differ(first.at(place, ours.what, ours.token));
        }
    }
}

/// Every operation, a row alone against the row in calls of 2 to 9.
pub(super) fn width<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let job = |family: Family| {
        let name = format!("width/{}", family.name());
        Job::new(name.clone(), move || {
            let rule = "a row alone = the row in calls of 2 to 9";
            let question = Question::new(&name, "itself, one row a call", Lane::Bits, rule);
            let mut tally = setup.tally();
            let backend = match production.make(setup.variant) {
                Ok(backend) => backend,
                Err(problem) => return vec![question.failed(problem)],
            };
            let mut count = 0;
            let cases = battery::all().iter().filter(|case| case.operation.family() == family);
            for case in cases {
                // A state is filled by calls of one row, too.
                let alone = case.run(&backend, &[1]);
                for width in WIDTHS {
                    let history = if case.tokens > HISTORY { HISTORY } else { width };
                    let beside = case.run(&backend, &[history, width]);
                    compare(&mut tally, case, &beside, &alone, || format!("{width} rows a call"));
                }
                count += 1;
            }
            let subject = Subject::Operations(family);
            let cell = Cell { axis: Axis::Width, subject, path: setup.variant.path() };
            let runs = count * (1 + WIDTHS.count() as u64);
            tally.prove(cell, Evidence { cases: count, elements: tally.elements() as u64, runs });
            tally.note(format!("{count} cases"));
            vec![tally.finish(question)]
        })
    };
    Family::ALL.into_iter().map(job).collect()
}
