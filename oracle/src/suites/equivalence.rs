//! The production engine against the reference on whole models: every intermediate, logit and live row of
//! the state, and the greedy tokens, over prefill and decoding.
//!
//! Promises: both arms run the same tokens; the two are proved to be different code by the kernels that ran,
//! or the check is red. The first difference is the first in the order of computation, so whatever was seen
//! before it is equal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::backend::Backend;
use engine::cpu::Combine;
use engine::reference::Reference;
use engine::rows::Rows;
use engine::session::Keep;
use engine::tap::{Observer, Place, Site, Tap, Unobserved, Values};
use engine::{Profile, Session, sampler};

use super::subjects::{self, Opened, Subject};
use super::{Job, Prepared, Production, Setup, Variant, text};
use crate::battery::Family;
use crate::check::{Check, Lane, Origin, Question, Tally, ulp_distance};
use crate::contract::{self, Axis, Cell, Evidence};
use crate::margin::Margin;
use crate::npy::read_npy;

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let job = |subject: Subject| {
        let name = format!("tensor-equivalence/{}", subject.name);
        Job::new(name.clone(), move || {
            let rule = "bytes: taps, logits, state, greedy tokens";
            let question = Question::new(&name, setup.against.name(), Lane::Bits, rule);
            setup.checked(question.clone(), || compare(setup, production, &subject, question))
        })
    };
    subjects::all(setup).into_iter().map(job).collect()
}

/// The other side of whole-model checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Against {
    /// The reference.
    Reference,
    /// The engine under test, adding up experts as they arrive.
    Atomic,
    /// Logits in a file (.npy).
    File(PathBuf),
}

impl Against {
    /// The name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Reference => "reference".to_owned(),
            Self::Atomic => "atomic".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Rows in the order in which they were shown.
#[derive(Default)]
struct Expected {
    rows: BTreeMap<Site, Vec<u32>>,
}

fn bits(values: Values<'_>) -> Vec<u32> {
    match values {
        Values::F32(values) => values.iter().map(|value| value.to_bits()).collect(),
        Values::Index(values) => values.iter().map(|index| *index as u32).collect(),
    }
}

impl Observer for Expected {
    fn wants(&self, _: Tap) -> bool {
        true
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        self.rows.insert(site, bits(values));
    }
}

/// Holds what is shown against what is expected and keeps the first difference.
struct Held<'a> {
    expected: &'a BTreeMap<Site, Vec<u32>>,
    tally: &'a mut Tally,
    seen: usize,
    elements: BTreeMap<Family, u64>,
}

impl Observer for Held<'_> {
    fn wants(&self, _: Tap) -> bool {
        true
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        self.seen += 1;
        let ours = bits(values);
        let missing = Vec::new();
        let theirs = self.expected.get(&site).unwrap_or(&missing);
        *self.elements.entry(Family::of_tap(site.tap)).or_default() += ours.len() as u64;
        let cell = (site.place, site.position);
        self.tally.details.compared.insert(cell);
        if let Some(mut first) = self.tally.words(&ours, theirs) {
            let apart = self.tally.details.divergence.entry(cell).or_default();
            *apart = farthest(&ours, theirs).max(*apart);
            first.origin = Origin::Added;
            self.tally.differ(first.at(site.place, site.tap.name(), site.position));
        }
    }
}

fn compare<P: Production>(
    setup: &Setup,
    production: &P,
    subject: &Subject,
    question: Question,
) -> Prepared<Check> {
    let opened = subject.open(setup)?;
    let backend = production.make(setup.variant)?;
    match &setup.against {
        Against::Reference => two(setup, &opened, subject, &backend, &Reference, question),
        Against::Atomic => {
            let combine = Combine::Atomic { rows: setup.atomic_rows };
            let atomic = production.make(Variant { combine, ..setup.variant })?;
            two(setup, &opened, subject, &backend, &atomic, question)
        }
        Against::File(path) => recorded(setup, &opened, &backend, path, question),
    }
}

/// Logits of the prompt against those of a file, `[tokens, vocabulary]`.
fn recorded<B: Backend>(
    setup: &Setup,
    opened: &Opened,
    backend: &B,
    path: &std::path::Path,
    question: Question,
) -> Prepared<Check> {
    let array = read_npy(path).map_err(text)?;
    let (rows, width) = (opened.prompt.len(), opened.model.config.vocabulary);
    let values = array.as_f32();
    if array.count() != rows || values.len() != rows * width {
        let shape = format!("{} rows, {} values", array.count(), values.len());
        return Err(format!("{}: {shape}; {rows} rows of {width} are needed", path.display()));
    }
    let mut session = Session::on(backend, &opened.model, Profile::DS4).map_err(text)?;
    let forward = session.forward(&opened.prompt, Keep::All, &mut Unobserved).map_err(text)?;
    let mut tally = setup.tally();
    let ours = backend.download(&forward.logits).map_err(text)?;
    row_by_row(&mut tally, 0, &ours, &Rows::of(width, values));
    tally.note(format!("{rows} rows of logits"));
    Ok(tally.finish(question))
}

/// The engine under test against another backend.
fn two<A: Backend, B: Backend>(
    setup: &Setup,
    opened: &Opened,
    subject: &Subject,
    backend: &A,
    other: &B,
    question: Question,
) -> Prepared<Check> {
    let mut tally = setup.tally();
    let before = [backend.kernels_run(), other.kernels_run()];
    let elements = arms(setup, opened, backend, other, subject.steps, &mut tally)?;
    let after = [backend.kernels_run(), other.kernels_run()];
    distinct(&before, &after, &mut tally);
    tally.note(format!("{} + {} tokens", opened.prompt.len(), subject.steps));
    if setup.against != Against::Reference {
        return Ok(tally.finish(question));
    }
    let cell = |subject| Cell { axis: Axis::Reference, subject, path: setup.variant.path() };
    let total = tally.elements() as u64;
    let evidence = |elements| Evidence { cases: 1, elements, runs: 1 };
    tally.prove(cell(contract::Subject::Model), evidence(total));
    for (family, elements) in elements {
        tally.prove(cell(contract::Subject::Operations(family)), evidence(elements));
    }
    Ok(tally.finish(question))
}

type Runs = Vec<(String, u64)>;

/// Requires that the arms ran different sets of kernels.
fn distinct(before: &[Runs; 2], after: &[Runs; 2], tally: &mut Tally) {
    let ran = |arm: usize| -> Vec<&str> {
        let old = |name: &str| {
            before[arm].iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
        };
        let grown = after[arm].iter().filter(|(name, count)| *count > old(name));
        grown.map(|(name, _)| name.as_str()).collect()
    };
    let (ours, theirs) = (ran(0), ran(1));
    tally.require(!ours.is_empty() && !theirs.is_empty() && ours != theirs, || {
        format!("arms not distinct: both ran {ours:?}")
    });
}

/// Runs both arms; returns the elements compared of each family.
fn arms<A: Backend, B: Backend>(
    setup: &Setup,
    opened: &Opened,
    backend: &A,
    other: &B,
    steps: usize,
    tally: &mut Tally,
) -> Prepared<BTreeMap<Family, u64>> {
    let (model, profile) = (&opened.model, Profile::DS4);
    let mut theirs = Session::on(other, model, profile).map_err(text)?;
    let mut ours = Session::on(backend, model, profile).map_err(text)?;
    let mut elements = BTreeMap::new();
    let mut tokens = opened.prompt.clone();
    for step in 0..=steps {
        let start = theirs.length();
        let mut expected = Expected::default();
        let reference = theirs.forward(&tokens, Keep::All, &mut expected).map_err(text)?;
        let mut logits = other.download(&reference.logits).map_err(text)?;
        if let Some(fault) = setup.fault {
            fault.into_logits(&mut logits);
        }
        let mut against =
            Held { expected: &expected.rows, tally, seen: 0, elements: BTreeMap::new() };
        let production = ours.forward(&tokens, Keep::All, &mut against);
        let (seen, found) = (against.seen, against.elements);
        let production = match production {
            Ok(forward) => forward,
            // The difference is what was found before the engine gave up, or that it did.
            Err(error) => {
                tally.require(false, || format!("production refused: {error}"));
                break;
            }
        };
        for (family, count) in found {
            *elements.entry(family).or_default() += count;
        }
        tally.require(seen == expected.rows.len(), || {
            format!("{seen} rows shown, {} by the reference", expected.rows.len())
        });
        let own = backend.download(&production.logits).map_err(text)?;
        row_by_row(tally, start, &own, &logits);
        let last = logits.count() - 1;
        let id = sampler::argmax(logits.row(last), start + last).map_err(text)?;
        let place = start + last;
        let picked = backend.argmax(&production.logits, start).map_err(text)?;
        tally.choices(&format!("greedy token after {place}"), &picked[last..], &[id]);
        if !tally.is_equal() || step == steps {
            break;
        }
        tokens = vec![id];
    }
    state(tally, &ours, &theirs);
    Ok(elements)
}

/// The largest distance of two elements in ulp; what has none counts as the largest of all.
fn farthest(ours: &[u32], theirs: &[u32]) -> u64 {
    let apart = |(a, b): (&u32, &u32)| ulp_distance(*a, *b).unwrap_or(u64::from(u32::MAX));
    ours.iter().zip(theirs).map(apart).max().unwrap_or(0)
}

fn row_by_row(tally: &mut Tally, start: usize, ours: &Rows, theirs: &Rows) {
    tally.require(ours.count() == theirs.count(), || {
        format!("{} rows of logits, {}", ours.count(), theirs.count())
    });
    let mut margins = tally.details.margins.take().unwrap_or_default();
    for (row, (ours, theirs)) in ours.iter().zip(theirs.iter()).enumerate() {
        match Margin::of(theirs, start + row) {
            Ok(margin) => margins.add(&margin),
            Err(_) => margins.exclude(),
        }
        let [ours, theirs] = [ours, theirs].map(|row| bits(Values::F32(row)));
        tally.details.drift.push((start + row, farthest(&ours, &theirs)));
        if let Some(first) = tally.words(&ours, &theirs) {
            tally.differ(first.at(Place::Output, "logits returned", start + row));
        }
    }
    tally.details.margins = Some(margins);
}

/// Every row that a later token can read.
fn state<A: Backend, B: Backend>(
    tally: &mut Tally,
    ours: &Session<'_, A>,
    theirs: &Session<'_, B>,
) {
    let mut expected = BTreeMap::new();
    theirs.visit_state(&mut |layer, kind, position, values| {
        expected.insert((layer, kind, position), bits(Values::F32(values)));
    });
    let mut rows = 0;
    ours.visit_state(&mut |layer, kind, position, values| {
        rows += 1;
        let missing = Vec::new();
        let theirs = expected.get(&(layer, kind, position)).unwrap_or(&missing);
        if let Some(first) = tally.words(&bits(Values::F32(values)), theirs) {
            tally.differ(first.at(Place::Layer(layer), format!("state: {kind}"), position));
        }
    });
    tally.require(rows == expected.len() && rows > 0, || {
        format!("{rows} live rows, {} of the reference", expected.len())
    });
}
