//! Checks and what they are allowed to say.
//!
//! Promises: a [`Check`] is green only when it compared something and nothing failed; a check that
//! compared nothing is red; what could not run is said, with the reason, and is neither.
//! Three lanes, never mixed: `bits` compares bytes, `bound` compares numbers of an independent
//! implementation within a stated bound, `choice` compares discrete choices.
//! Leaves printing to the command line.

use std::collections::{BTreeMap, BTreeSet};

use approx::AbsDiffEq;
use engine::tap::Place;
use serde::Serialize;

use crate::contract::{Cell, Evidence};
use crate::margin::{Histogram, ulps_between};
use crate::reachable::Shares;

/// How two things are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Byte for byte.
    Bits,
    /// Within a stated bound of an independent implementation.
    Bound,
    /// Tokens, experts and rows chosen.
    Choice,
}

impl Lane {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bits => "bits",
            Self::Bound => "bound",
            Self::Choice => "choice",
        }
    }
}

/// The verdict on one comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes equal, or inside the bound.
    Equal,
    /// The first thing that was not.
    Different(String),
    /// Why it did not run.
    NotRun(String),
}

/// What is compared with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The model or operation, and the prompt where there is one.
    pub case: String,
    /// Where the other side comes from.
    pub against: String,
    /// How.
    pub lane: Lane,
    /// The rule in words.
    pub rule: String,
}

impl Question {
    /// A question in words.
    #[must_use]
    pub fn new(
        case: impl Into<String>,
        against: impl Into<String>,
        lane: Lane,
        rule: impl Into<String>,
    ) -> Self {
        Self { case: case.into(), against: against.into(), lane, rule: rule.into() }
    }

    /// The check when it cannot run.
    #[must_use]
    pub fn not_run(self, reason: impl Into<String>) -> Check {
        Check::without_comparison(self, Outcome::NotRun(reason.into()))
    }

    /// The check when preparing it failed: red, since what should have been compared was not.
    #[must_use]
    pub fn failed(self, problem: impl ToString) -> Check {
        Check::without_comparison(self, Outcome::Different(problem.to_string()))
    }
}

/// A comparison that was carried out, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The case that brought it, by the name that `--case` filters by.
    pub job: String,
    /// What was asked.
    pub question: Question,
    /// Tensors (or rows of choices) compared.
    pub tensors: usize,
    /// Elements compared.
    pub elements: usize,
    /// What was measured beside the verdict.
    pub measured: String,
    /// The verdict.
    pub outcome: Outcome,
    /// The first difference in numbers, where it is one of elements.
    pub first: Option<FirstDifference>,
    /// Cells of the contract that the check is about, and what it brings for them.
    pub evidence: Vec<(Cell, Evidence)>,
    /// What a report shows beside the verdict.
    pub details: Details,
}

/// What was measured on the way, for a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Margins of the greedy choice at every position.
    pub margins: Option<Histogram>,
    /// Largest distance in ulp by place and position, of rows that differ; places in order.
    pub divergence: BTreeMap<(Place, usize), u64>,
    /// Places and positions that were compared, whether they differ or not.
    pub compared: BTreeSet<(Place, usize)>,
    /// Largest distance of a logit in ulp, by position.
    pub drift: Vec<(usize, u64)>,
    /// Drafts proposed and accepted, by place in a round.
    pub acceptance: Option<[Vec<u64>; 2]>,
    /// What orders of the last layer's experts can change.
    pub orders: Option<Shares>,
}

impl Check {
    fn without_comparison(question: Question, outcome: Outcome) -> Self {
        Self {
            job: String::new(),
            question,
            tensors: 0,
            elements: 0,
            measured: String::new(),
            outcome,
            first: None,
            evidence: Vec::new(),
            details: Details::default(),
        }
    }
}

/// The first element in which two sides part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstDifference {
    /// Position of the token, where there is one.
    pub position: Option<usize>,
    /// Place in the model: a layer, input, output.
    pub place: String,
    /// The operation or intermediate.
    pub operation: String,
    /// Index of the element in its row.
    pub element: usize,
    /// Bits of our element.
    pub ours_bits: u32,
    /// Bits of theirs.
    pub theirs_bits: u32,
    /// Distance in units in the last place; none where a side is NaN.
    pub ulp: Option<u64>,
    /// Whether everything that was seen before it was equal.
    pub origin: Origin,
}

/// Where a difference came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Every input that was seen is equal: the operation itself differs.
    Added,
    /// An input differs already.
    Inherited,
    /// Inputs were not seen.
    Unknown,
}

impl FirstDifference {
    /// The first element of two rows that differs in bits; `None` when there is none and lengths agree.
    #[must_use]
    pub fn of(ours: &[u32], theirs: &[u32]) -> Option<Self> {
        let longest = ours.len().max(theirs.len());
        let element = (0..longest).find(|index| ours.get(*index) != theirs.get(*index))?;
        // A row that ends early differs from anything: NaN is what is not there.
        let [a, b] = [ours, theirs].map(|row| row.get(element).copied().unwrap_or(u32::MAX));
        Some(Self {
            position: None,
            place: String::new(),
            operation: String::new(),
            element,
            ours_bits: a,
            theirs_bits: b,
            ulp: ulp_distance(a, b),
            origin: Origin::Unknown,
        })
    }

    /// The same, of that place in a model.
    #[must_use]
    pub fn at(self, place: impl ToString, operation: impl ToString, position: usize) -> Self {
        let (place, operation) = (place.to_string(), operation.to_string());
        Self { place, operation, position: Some(position), ..self }
    }
}

impl std::fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b] = [self.ours_bits, self.theirs_bits];
        write!(f, "{}, {}", self.place, self.operation)?;
        if let Some(position) = self.position {
            write!(f, ", position {position}")?;
        }
        write!(f, ", element {}: ", self.element)?;
        write!(f, "{:e} ({a:08x}), {:e} ({b:08x})", f32::from_bits(a), f32::from_bits(b))?;
        match self.ulp {
            Some(ulp) => write!(f, ", {ulp} ulp apart"),
            None => Ok(()),
        }
    }
}

/// Representable numbers between two floats by their bits; `None` where a side is NaN.
#[must_use]
pub fn ulp_distance(a: u32, b: u32) -> Option<u64> {
    let [a, b] = [a, b].map(f32::from_bits);
    (!a.is_nan() && !b.is_nan()).then(|| ulps_between(a, b))
}

/// A fault of comparing itself, planted to see whether anything notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The last element of a row is not compared.
    SkipLast,
    /// Elements are equal unless their difference exceeds a bound: NaN never does.
    Tolerance,
    /// Signs are not compared.
    Unsigned,
    /// A row is compared as far as the shorter side goes.
    Shorter,
    /// Only the first row of a check is compared.
    FirstRow,
    /// Nothing is ever different.
    Blind,
    /// A check that compared nothing is equal.
    EmptyIsEqual,
    /// A check that failed before it compared anything counts as not run.
    FailureIsSkip,
    /// The first difference is looked for from the end.
    LastFirst,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::SkipLast,
        Self::Tolerance,
        Self::Unsigned,
        Self::Shorter,
        Self::FirstRow,
        Self::Blind,
        Self::EmptyIsEqual,
        Self::FailureIsSkip,
        Self::LastFirst,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkipLast => "comparator-skips-last",
            Self::Tolerance => "comparator-tolerates",
            Self::Unsigned => "comparator-ignores-signs",
            Self::Shorter => "comparator-ignores-length",
            Self::FirstRow => "comparator-first-row",
            Self::Blind => "comparator-blind",
            Self::EmptyIsEqual => "comparator-empty-is-equal",
            Self::FailureIsSkip => "comparator-failure-is-skip",
            Self::LastFirst => "comparator-last-first",
        }
    }

    fn first(self, ours: &[u32], theirs: &[u32], rows: usize) -> Option<FirstDifference> {
        let whole = || FirstDifference::of(ours, theirs);
        let shorter = ours.len().min(theirs.len());
        match self {
            Self::SkipLast if shorter > 0 => {
                let cut = |row: &[u32]| row[..row.len().saturating_sub(1)].to_vec();
                FirstDifference::of(&cut(ours), &cut(theirs))
            }
            Self::Tolerance => whole().filter(|first| {
                let [a, b] = [first.ours_bits, first.theirs_bits].map(f32::from_bits);
                (a - b).abs() > 1e-6
            }),
            Self::Unsigned => {
                let unsigned = |row: &[u32]| row.iter().map(|v| v & 0x7fff_ffff).collect();
                let [ours, theirs]: [Vec<u32>; 2] = [unsigned(ours), unsigned(theirs)];
                FirstDifference::of(&ours, &theirs)
            }
            Self::Shorter => FirstDifference::of(&ours[..shorter], &theirs[..shorter]),
            Self::FirstRow if rows > 1 => None,
            Self::Blind => None,
            Self::LastFirst => {
                let last = (0..shorter).rev().find(|index| ours[*index] != theirs[*index]);
                whole().map(|first| FirstDifference { element: last.unwrap_or(0), ..first })
            }
            _ => whole(),
        }
    }
}

/// Counts what a check compares and keeps the first failure.
#[derive(Debug, Default)]
pub struct Tally {
    flaw: Option<Flaw>,
    tensors: usize,
    elements: usize,
    failure: Option<String>,
    largest: f64,
    measured: Vec<String>,
    first: Option<FirstDifference>,
    evidence: Vec<(Cell, Evidence)>,
    /// What a report shows beside the verdict.
    pub details: Details,
}

impl Tally {
    /// Nothing compared yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing compared yet, by a comparator at fault.
    #[must_use]
    pub fn under(flaw: Option<Flaw>) -> Self {
        Self { flaw, ..Self::default() }
    }

    /// Compares a row of bits; the caller names the place of the difference that comes back.
    pub fn words(&mut self, ours: &[u32], theirs: &[u32]) -> Option<FirstDifference> {
        self.tensors += 1;
        self.elements += ours.len().min(theirs.len());
        match self.flaw {
            None => FirstDifference::of(ours, theirs),
            Some(flaw) => flaw.first(ours, theirs, self.tensors),
        }
    }

    fn fail(&mut self, message: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(message());
        }
    }

    /// Compares a tensor bit for bit; NaN payloads and signs of zero count.
    pub fn bits(&mut self, what: &str, ours: &[f32], theirs: &[f32]) {
        let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        if let Some(first) = self.words(&bits(ours), &bits(theirs)) {
            if ours.len() != theirs.len() {
                return self.fail(|| format!("{what}: {} elements, {}", ours.len(), theirs.len()));
            }
            let index = first.element;
            let (a, b) = (ours[index], theirs[index]);
            let (a_bits, b_bits) = (a.to_bits(), b.to_bits());
            self.fail(|| format!("{what}[{index}]: {a} ({a_bits:08x}), {b} ({b_bits:08x})"));
        }
    }

    /// Compares decoded values bit for bit, except that any NaN equals any NaN and zeros have no sign:
    /// what block formats of other implementations agree on.
    pub fn values(&mut self, what: &str, ours: &[f32], theirs: &[f32]) {
        let canonical = |x: &f32| match *x {
            x if x.is_nan() => f32::NAN,
            0.0 => 0.0,
            x => x,
        };
        let [ours, theirs] =
            [ours, theirs].map(|side| side.iter().map(canonical).collect::<Vec<f32>>());
        self.bits(what, &ours, &theirs);
    }

    /// Compares a tensor within an absolute bound; anything not finite fails.
    pub fn bound(&mut self, what: &str, ours: &[f32], theirs: &[f64], bound: f64) {
        self.tensors += 1;
        self.elements += ours.len().min(theirs.len());
        if ours.len() != theirs.len() {
            return self.fail(|| format!("{what}: {} elements, {}", ours.len(), theirs.len()));
        }
        for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
            let a = f64::from(*a);
            self.largest = self.largest.max((a - b).abs());
            if !a.is_finite() || !a.abs_diff_eq(b, bound) {
                self.fail(|| {
                    format!("{what}[{index}]: {a}, {b}, {:e} apart, bound {bound:e}", (a - b).abs())
                });
            }
        }
    }

    /// Compares a tensor within a share of the other side's largest magnitude.
    pub fn relative(&mut self, what: &str, ours: &[f32], theirs: &[f64], share: f64) {
        let scale = theirs.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
        self.bound(what, ours, theirs, share * scale);
    }

    /// Compares a list of choices.
    pub fn choices<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        ours: &[T],
        theirs: &[T],
    ) {
        self.tensors += 1;
        self.elements += ours.len().min(theirs.len());
        if ours.len() != theirs.len() {
            return self.fail(|| format!("{what}: {} entries, {}", ours.len(), theirs.len()));
        }
        if let Some(index) = ours.iter().zip(theirs).position(|(a, b)| a != b) {
            self.fail(|| format!("{what}[{index}]: {:?}, {:?}", ours[index], theirs[index]));
        }
    }

    /// Counts elements that a figure was computed from.
    pub fn count(&mut self, tensors: usize, elements: usize) {
        self.tensors += tensors;
        self.elements += elements;
    }

    /// Requires something of what was measured.
    pub fn require(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(message);
        }
    }

    /// Fails with the first difference of elements.
    pub fn differ(&mut self, first: FirstDifference) {
        if self.failure.is_none() {
            self.failure = Some(first.to_string());
            self.first = Some(first);
        }
    }

    /// Elements compared so far.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Whether nothing has failed so far.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.failure.is_none()
    }

    /// What the check brings for a cell of the contract; it counts only if the check ends equal.
    pub fn prove(&mut self, cell: Cell, evidence: Evidence) {
        match self.evidence.iter_mut().find(|(own, _)| *own == cell) {
            Some((_, sum)) => {
                sum.cases += evidence.cases;
                sum.elements += evidence.elements;
                sum.runs += evidence.runs;
            }
            None => self.evidence.push((cell, evidence)),
        }
    }

    /// Notes a figure beside the verdict.
    pub fn note(&mut self, measured: impl Into<String>) {
        self.measured.push(measured.into());
    }

    /// The largest distance that [`Tally::bound`] met.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// The verdict; red when nothing was compared.
    #[must_use]
    pub fn finish(self, question: Question) -> Check {
        let outcome = match self.failure {
            Some(failure) => Outcome::Different(failure),
            None if self.elements == 0 && self.flaw != Some(Flaw::EmptyIsEqual) => {
                Outcome::Different("nothing was compared".into())
            }
            None => Outcome::Equal,
        };
        Check {
            job: String::new(),
            question,
            tensors: self.tensors,
            elements: self.elements,
            measured: self.measured.join("; "),
            outcome,
            first: self.first,
            evidence: self.evidence,
            details: self.details,
        }
    }
}

/// What a run as a whole comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that ran is equal, and something ran.
    Equal,
    /// Something is different.
    Different,
    /// Nothing ran.
    Nothing,
    /// What ran is equal, but something that was asked for did not run.
    Incomplete,
}

impl Verdict {
    /// The verdict on a list of checks.
    #[must_use]
    pub fn of(checks: &[Check]) -> Self {
        let ran = || checks.iter().filter(|check| !matches!(check.outcome, Outcome::NotRun(_)));
        if ran().any(|check| check.outcome != Outcome::Equal) {
            Self::Different
        } else if ran().next().is_none() {
            Self::Nothing
        } else {
            Self::Equal
        }
    }

    /// The exit code of the command line: 0 equal, 1 different, 3 nothing or not everything was run.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Equal => 0,
            Self::Different => 1,
            Self::Nothing | Self::Incomplete => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question::new("case", "other", Lane::Bits, "equal")
    }

    #[test]
    fn nothing_compared_is_red() {
        assert_ne!(Tally::new().finish(question()).outcome, Outcome::Equal);
        let mut tally = Tally::new();
        tally.bits("empty", &[], &[]);
        assert_ne!(tally.finish(question()).outcome, Outcome::Equal);
        assert_eq!(Verdict::of(&[]), Verdict::Nothing);
        assert_eq!(Verdict::of(&[question().not_run("absent")]), Verdict::Nothing);
        assert_eq!(Verdict::Nothing.exit_code(), 3);
    }

    #[test]
    fn one_bit_anywhere_is_red_and_named() {
        let x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        for index in 0..64 {
            let mut y = x.clone();
            y[index] = f32::from_bits(y[index].to_bits() ^ 1);
            let mut tally = Tally::new();
            tally.bits("row", &x, &y);
            let check = tally.finish(question());
            let Outcome::Different(message) = &check.outcome else { panic!("bit {index} passed") };
            assert!(message.contains(&format!("row[{index}]")), "{message}");
            assert_eq!(Verdict::of(&[check]), Verdict::Different);
        }
    }

    #[test]
    fn nan_and_zero_signs_are_not_equal_by_accident() {
        let red = |fill: &dyn Fn(&mut Tally)| {
            let mut tally = Tally::new();
            fill(&mut tally);
            assert_ne!(tally.finish(question()).outcome, Outcome::Equal);
        };
        red(&|tally| tally.bits("zero", &[0.0], &[-0.0]));
        red(&|tally| tally.bits("nan", &[f32::NAN], &[f32::from_bits(0x7fc0_0001)]));
        red(&|tally| tally.bound("nan", &[f32::NAN], &[1.0], 1e9));
        red(&|tally| tally.bound("nan", &[1.0], &[f64::NAN], 1e9));
        red(&|tally| tally.bound("inf", &[f32::INFINITY], &[f64::INFINITY], 1e9));
        red(&|tally| tally.bound("length", &[1.0], &[1.0, 1.0], 1e9));
        red(&|tally| tally.relative("nan scale", &[1.0], &[f64::NAN], 1.0));
        red(&|tally| tally.choices("choice", &[1], &[2]));
    }
}
