//! The comparator on pairs whose verdict is known: what every other verdict rests on.
//!
//! Promises: runs in every `verify`; a comparator that overlooks an element, a sign, a NaN, a length or a
//! row, or that passes what it did not compare, is red here before it is green elsewhere.

use super::{Job, Setup};
use crate::check::{Check, Lane, Outcome, Question, Tally};

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    let job = |name: &'static str, known: fn(&Setup) -> Vec<String>| {
        Job::new(format!("comparator/{name}"), move || {
            let case = format!("comparator/{name}");
            let question = Question::new(case, "known verdicts", Lane::Bits, "all told apart");
            let mut own = Tally::new();
            let overlooked = known(setup);
            own.count(1, 1);
            own.require(overlooked.is_empty(), || format!("overlooked: {}", overlooked.join("; ")));
            vec![own.finish(question)]
        })
    };
    vec![job("elements", elements), job("rows", rows), job("nothing", nothing)]
}

fn row() -> Vec<f32> {
    vec![1.0, -2.5, 0.0, f32::MIN_POSITIVE, 3e38, 1e-7, -1.0, 0.5]
}

/// Whether a comparison of two rows by the comparator in use is equal, and where it says they part.
fn judged(setup: &Setup, ours: &[f32], theirs: &[f32]) -> (bool, Option<usize>) {
    let mut tally = setup.tally();
    let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let first = tally.words(&bits(ours), &bits(theirs));
    let element = first.as_ref().map(|first| first.element);
    if let Some(first) = first {
        tally.differ(first);
    }
    (equal(&finish(tally)), element)
}

fn finish(tally: Tally) -> Check {
    tally.finish(Question::new("known", "known", Lane::Bits, "equal"))
}

fn equal(check: &Check) -> bool {
    check.outcome == Outcome::Equal
}

/// Every element, bit by bit; special values as patterns.
fn elements(setup: &Setup) -> Vec<String> {
    let mut overlooked = Vec::new();
    if !judged(setup, &row(), &row()).0 {
        overlooked.push("equal rows are equal".to_owned());
    }
    for index in 0..row().len() {
        for bit in [0, 22, 31] {
            let mut other = row();
            other[index] = f32::from_bits(other[index].to_bits() ^ (1 << bit));
            if judged(setup, &row(), &other) != (false, Some(index)) {
                overlooked.push(format!("bit {bit} of element {index}"));
            }
        }
    }
    let nan = f32::from_bits(0x7fc0_0001);
    let pairs = [
        ("NaN against a number", f32::NAN, 1.0),
        ("a number against NaN", 1.0, f32::NAN),
        ("payloads of NaN", f32::NAN, nan),
        ("signs of zero", 0.0, -0.0),
        ("signs of infinity", f32::INFINITY, f32::NEG_INFINITY),
    ];
    for (what, a, b) in pairs {
        if judged(setup, &[1.0, a, 2.0], &[1.0, b, 2.0]).0 {
            overlooked.push(what.to_owned());
        }
    }
    let mut two = row();
    (two[2], two[5]) = (9.0, 9.0);
    if judged(setup, &row(), &two).1 != Some(2) {
        overlooked.push("the first of two differences".to_owned());
    }
    overlooked
}

/// Every row, and the lengths of rows.
fn rows(setup: &Setup) -> Vec<String> {
    let mut overlooked = Vec::new();
    let mut longer = row();
    longer.push(0.0);
    for (ours, theirs) in [(row(), longer.clone()), (longer, row()), (row(), Vec::new())] {
        if judged(setup, &ours, &theirs).0 {
            overlooked.push(format!("{} elements against {}", ours.len(), theirs.len()));
        }
    }
    for spoiled in 0..3 {
        let mut tally = setup.tally();
        for index in 0..3 {
            let mut other = row();
            other[4] += if index == spoiled { 1e32 } else { 0.0 };
            tally.bits("row", &row(), &other);
        }
        if equal(&finish(tally)) {
            overlooked.push(format!("row {spoiled} of 3"));
        }
    }
    overlooked
}

/// What compared nothing, and what failed before it could.
fn nothing(setup: &Setup) -> Vec<String> {
    let mut overlooked = Vec::new();
    let mut tally = setup.tally();
    tally.bits("empty", &[], &[]);
    if equal(&finish(tally)) || equal(&finish(setup.tally())) {
        overlooked.push("a check that compared nothing".to_owned());
    }
    let question = Question::new("known", "known", Lane::Bits, "equal");
    let failed = setup.checked(question, || Err("as if a file were missing".to_owned()));
    if !matches!(failed[0].outcome, Outcome::Different(_)) {
        overlooked.push("a case that could not be prepared".to_owned());
    }
    overlooked
}
