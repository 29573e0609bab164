//! What `verify --tensor-equivalence` compares.
//!
//! Promises: every suite returns its checks whether it could run or not: ground truth that is absent is
//! `not run` by name, never missing from the table. Cases run on several threads; the order of the
//! table and every figure in it do not depend on that.

mod comparator;
mod determinism;
mod ds4;
mod equivalence;
mod gguf_tiny;
mod goldens;
mod hf_tiny;
mod kernels;
mod logprobs;
mod mtp_tiny;
mod operations;
mod orders;
mod plant;
mod production;
mod speculative;
mod subjects;
mod trained_tiny;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::session::{Forward, Keep};
use engine::tap::Observer;
use engine::{Model, Profile, Session};

use crate::check::{Check, Flaw, Lane, Outcome, Question, Tally};

pub use determinism::{excluded_rate, runs_needed};
pub use equivalence::Against;
pub use goldens::{GOLDEN_CASES, GoldenCase};
pub use logprobs::{Rendering, VectorFile};
pub use plant::{CANARIES, Canary, Fault};
pub use production::{CpuEngine, PlantedEngine, Production, ReferenceEngine, Variant};
pub use subjects::OwnModel;

/// Where things are and what to do to them.
#[derive(Clone)]
pub struct Setup {
    /// The folder `fixtures` of the workspace.
    pub fixtures: PathBuf,
    /// The folder `golden` of the workspace.
    pub golden: PathBuf,
    /// Where new goldens wait.
    pub pending: PathBuf,
    /// Ground truth that is too bulky for the workspace, where there is any.
    pub ground_truth: Option<PathBuf>,
    /// Only cases whose name contains this.
    pub case: Option<String>,
    /// A fault to plant on purpose.
    pub fault: Option<Fault>,
    /// A fault to plant in comparing.
    pub flaw: Option<Flaw>,
    /// How the engine under test is set up.
    pub variant: Variant,
    /// Rows in a call from which experts can be added up as they arrive.
    pub atomic_rows: usize,
    /// The other side of whole-model checks.
    pub against: Against,
    /// A model of the user's, in place of the fixtures.
    pub own: Option<OwnModel>,
    /// Official log-probabilities to compare with.
    pub vectors: Option<VectorFile>,
    /// Runs of a check that repeats a run.
    pub runs: usize,
    /// Threads that cases are spread over.
    pub threads: usize,
}

/// Something that yields checks.
pub struct Job<'a> {
    /// The name that `--case` filters by.
    pub name: String,
    run: Box<dyn Fn() -> Vec<Check> + Send + Sync + 'a>,
}

impl<'a> Job<'a> {
    fn new(name: impl Into<String>, run: impl Fn() -> Vec<Check> + Send + Sync + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = (self.run)();
        checks.iter_mut().for_each(|check| check.job.clone_from(&self.name));
        checks
    }
}

/// Results of suites; problems in their preparation are text that names the file.
pub(crate) type Prepared<T> = Result<T, String>;

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A group of checks that is asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// The comparator on pairs of known verdict; part of every run.
    Comparator,
    /// Single operations against the reference.
    Kernels,
    /// A row alone against the row beside others.
    Width,
    /// Whole models against the reference.
    TensorEquivalence,
    /// Speculative against plain decoding.
    Mtp,
    /// Repeated runs, threads, instructions, chunks.
    Determinism,
    /// Accepted earlier bytes.
    Goldens,
    /// What orders of experts can change.
    Orders,
    /// Official log-probabilities; has cases where a file is given.
    LogprobVectors,
    /// The reference against independent implementations.
    Reference,
}

impl Suite {
    /// All suites, cheapest first.
    pub const ALL: [Self; 10] = [
        Self::Comparator,
        Self::Kernels,
        Self::Width,
        Self::TensorEquivalence,
        Self::Mtp,
        Self::Determinism,
        Self::Goldens,
        Self::Orders,
        Self::LogprobVectors,
        Self::Reference,
    ];

    /// The name in tables and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Comparator => "comparator",
            Self::Kernels => "kernels",
            Self::Width => "width",
            Self::TensorEquivalence => "tensor-equivalence",
            Self::Mtp => "mtp",
            Self::Determinism => "determinism",
            Self::Goldens => "goldens",
            Self::Orders => "orders",
            Self::LogprobVectors => "logprob-vectors",
            Self::Reference => "reference",
        }
    }
}

/// The jobs of a suite, longest first where they differ, filtered by case.
#[must_use]
pub fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P, suite: Suite) -> Vec<Job<'a>> {
    let mut jobs = match suite {
        Suite::Comparator => comparator::jobs(setup),
        Suite::Kernels => kernels::kernels(setup, production),
        Suite::Width => kernels::width(setup, production),
        Suite::TensorEquivalence => equivalence::jobs(setup, production),
        Suite::Mtp => speculative::jobs(setup, production),
        Suite::Determinism => determinism::jobs(setup, production),
        Suite::Goldens => goldens::jobs(setup, production),
        Suite::Orders => orders::jobs(setup, production),
        Suite::LogprobVectors => logprobs::jobs(setup, production),
        Suite::Reference => reference(setup),
    };
    if let Some(case) = setup.case.as_ref().filter(|_| suite != Suite::Comparator) {
        jobs.retain(|job| job.name.contains(case.as_str()));
    }
    jobs
}

/// The reference against independent ground truth.
fn reference(setup: &Setup) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    jobs.extend(operations::jobs(setup));
    jobs.extend(trained_tiny::jobs(setup));
    jobs.extend(hf_tiny::jobs(setup));
    jobs.extend(mtp_tiny::jobs(setup));
    jobs.extend(gguf_tiny::jobs(setup));
    jobs.extend(ds4::jobs(setup));
    jobs
}

/// Runs jobs one after the other up to the first check that is red, and returns that.
#[must_use]
pub fn first_red(jobs: &[Job<'_>]) -> Option<Check> {
    jobs.iter().find_map(|job| {
        let checks = catch_unwind(AssertUnwindSafe(|| job.checks())).unwrap_or_default();
        checks.into_iter().find(|check| matches!(check.outcome, Outcome::Different(_)))
    })
}

/// Runs jobs over threads; `done` is told the name of each that ended. Checks come in the order of jobs.
pub fn run(jobs: &[Job<'_>], threads: usize, done: &(dyn Fn(&str) + Sync)) -> Vec<Check> {
    let checks = in_parallel(jobs, threads, &|job| {
        // A case that panics, say on ground truth of another shape, is red and takes no other with it.
        let checks = catch_unwind(AssertUnwindSafe(|| job.checks())).unwrap_or_else(|_| {
            let question = Question::new(job.name.clone(), "", Lane::Bits, "runs to its end");
            let check = question.failed("panicked; the message is on standard error");
            vec![Check { job: job.name.clone(), ..check }]
        });
        done(&job.name);
        checks
    });
    checks.concat()
}

/// The result of `each` for every item, in the order of the items, computed on several threads.
pub(crate) fn in_parallel<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    each: &(dyn Fn(&I) -> T + Sync),
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = each(item);
                    results.lock().expect("nothing panics under the lock").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("nothing panics under the lock");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

impl Setup {
    /// The folders of a workspace, nothing planted.
    #[must_use]
    pub fn below(root: &Path, variant: Variant) -> Self {
        Self {
            fixtures: root.join("fixtures"),
            golden: root.join("golden"),
            pending: root.join("target/golden"),
            ground_truth: None,
            case: None,
            fault: None,
            flaw: None,
            variant,
            atomic_rows: 128,
            against: Against::Reference,
            own: None,
            vectors: None,
            runs: 20,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Nothing compared yet, by the comparator in use.
    pub(crate) fn tally(&self) -> Tally {
        Tally::under(self.flaw)
    }

    /// One check whose preparation may fail, which is red.
    pub(crate) fn checked(
        &self,
        question: Question,
        run: impl FnOnce() -> Prepared<Check>,
    ) -> Vec<Check> {
        vec![run().unwrap_or_else(|problem| match self.flaw {
            Some(Flaw::FailureIsSkip) => question.not_run(problem),
            _ => question.failed(problem),
        })]
    }

    /// Opens a model and plants the fault that is asked for, if it is one of models.
    pub(crate) fn model(&self, path: &Path) -> Prepared<Model> {
        let mut model = Model::open(path).map_err(text)?;
        if let Some(fault) = self.fault {
            fault.into_model(&mut model);
        }
        Ok(model)
    }

    /// Runs a whole sequence in one call; the fault that is asked for is planted if it is one of logits.
    pub(crate) fn forward(
        &self,
        model: &Model,
        profile: Profile,
        tokens: &[u32],
        observer: &mut dyn Observer,
    ) -> Prepared<Forward> {
        let mut session = Session::new(model, profile);
        let mut forward = session.forward(tokens, Keep::All, observer).map_err(text)?;
        if let Some(fault) = self.fault {
            fault.into_logits(&mut forward.logits);
        }
        Ok(forward)
    }

    /// A file of the bulky ground truth, or why the check that needs it cannot run.
    pub(crate) fn truth(&self, folder: &str) -> Result<PathBuf, String> {
        let Some(root) = &self.ground_truth else {
            return Err("ground truth is not here (see --ground-truth)".into());
        };
        let path = root.join(folder);
        if path.is_dir() { Ok(path) } else { Err(format!("{} is not here", path.display())) }
    }
}

/// One check whose preparation may fail.
pub(crate) fn checked(question: Question, run: impl FnOnce() -> Prepared<Check>) -> Vec<Check> {
    vec![run().unwrap_or_else(|problem| question.failed(problem))]
}

/// Token ids: a JSON array, or the arrays under these keys of a JSON object, one after the other.
pub(crate) fn token_ids(path: &Path, keys: &[&str]) -> Prepared<Vec<u32>> {
    let json = read_json(path)?;
    let mut ids = Vec::new();
    let arrays: Vec<Option<&serde_json::Value>> = if keys.is_empty() {
        vec![Some(&json)]
    } else {
        keys.iter().map(|k| json.get(k)).collect()
    };
    for array in arrays {
        ids.extend(ids_of(array).ok_or_else(|| format!("{}: not token ids", path.display()))?);
    }
    Ok(ids)
}

pub(crate) fn ids_of(json: Option<&serde_json::Value>) -> Option<Vec<u32>> {
    let id = |id: &serde_json::Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    json?.as_array()?.iter().map(id).collect()
}

pub(crate) fn read_json(path: &Path) -> Prepared<serde_json::Value> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    #[test]
    fn a_case_that_panics_is_red_and_the_others_still_run() {
        let equal = || {
            let mut tally = crate::check::Tally::new();
            tally.choices("x", &[1], &[1]);
            vec![tally.finish(Question::new("fine", "itself", Lane::Choice, "equal"))]
        };
        let jobs = [
            Job::new("fine", equal),
            Job::new("broken", || panic!("as if ground truth had another shape")),
            Job::new("fine too", equal),
        ];
        let checks = run(&jobs, 2, &|_| {});
        let red: Vec<bool> = checks.iter().map(|check| check.outcome != Outcome::Equal).collect();
        assert_eq!(red, [false, true, false]);
        assert_eq!(Verdict::of(&checks), Verdict::Different);
    }
}
