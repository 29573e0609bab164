//! Checks and what they are allowed to say.
//!
//! Promises: a [`Check`] is green only when it compared something and nothing failed; a check that
//! compared nothing is red; what could not run is said, with the reason, and is neither.
//! Three lanes, never mixed: `bits` compares bytes, `bound` compares numbers of an independent
//! implementation within a stated bound, `choice` compares discrete choices.
//! Leaves printing to the command line.

use approx::AbsDiffEq;

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
        let outcome = Outcome::NotRun(reason.into());
        Check { question: self, tensors: 0, elements: 0, measured: String::new(), outcome }
    }

    /// The check when preparing it failed: red, since what should have been compared was not.
    #[must_use]
    pub fn failed(self, problem: impl ToString) -> Check {
        let outcome = Outcome::Different(problem.to_string());
        Check { question: self, tensors: 0, elements: 0, measured: String::new(), outcome }
    }
}

/// A comparison that was carried out, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
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
}

/// Counts what a check compares and keeps the first failure.
#[derive(Debug, Default)]
pub struct Tally {
    tensors: usize,
    elements: usize,
    failure: Option<String>,
    largest: f64,
    measured: Vec<String>,
}

impl Tally {
    /// Nothing compared yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn fail(&mut self, message: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(message());
        }
    }

    /// Compares a tensor bit for bit; NaN payloads and signs of zero count.
    pub fn bits(&mut self, what: &str, ours: &[f32], theirs: &[f32]) {
        self.tensors += 1;
        self.elements += ours.len().min(theirs.len());
        if ours.len() != theirs.len() {
            return self.fail(|| format!("{what}: {} elements, {}", ours.len(), theirs.len()));
        }
        let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        if let Some(index) = ours.iter().zip(theirs).position(differs) {
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
            None if self.elements == 0 => Outcome::Different("nothing was compared".into()),
            None => Outcome::Equal,
        };
        let measured = self.measured.join("; ");
        Check { question, tensors: self.tensors, elements: self.elements, measured, outcome }
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

    /// The exit code of the command line: 0 equal, 1 different, 3 nothing was run.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Equal => 0,
            Self::Different => 1,
            Self::Nothing => 3,
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
