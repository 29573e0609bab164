//! Whether the checks bite: every planted fault against the suites, and the suite that saw it.
//!
//! Promises: a fault is killed when a check of the suites turns red on it, by the same code that judges an
//! engine without faults; a fault that no suite sees is a survivor, and survivors fail the run. Every
//! suite has faults that it must see by itself. Cases are the small ones, so that all faults take
//! seconds; what they leave out only the full suites see. Goldens are spoiled in a copy.

use std::fs;
use std::path::Path;

use crate::check::{Check, Flaw, Outcome};
use crate::golden::{self, Spoiling};
use crate::planted::{Fault, Op, Slip, When};
use crate::suites::{self, CpuEngine, PlantedEngine, Production, ReferenceEngine, Setup, Suite};

/// Something planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A fault of the engine.
    Engine(Fault),
    /// A fault of the comparator.
    Comparator(Flaw),
    /// A spoiled golden.
    Golden(Spoiling),
    /// The reference in place of the engine: both arms are the same code.
    SameArms,
    /// A list without cases.
    NoCases,
}

/// What became of a plant.
#[derive(Clone, Debug)]
pub struct Bite {
    /// The plant.
    pub plant: Plant,
    /// The suite that must see it; none where any will do.
    pub must: Option<Suite>,
    /// The suite that saw it and what it said, or none.
    pub seen: Option<(Suite, String)>,
}

impl Plant {
    /// Everything that is planted, with the suite that must see it where one must.
    #[must_use]
    pub fn all() -> Vec<(Self, Option<Suite>)> {
        let mut all: Vec<(Self, Option<Suite>)> =
            Fault::all().into_iter().map(|fault| (Self::Engine(fault), None)).collect();
        all.extend(Flaw::ALL.map(|flaw| (Self::Comparator(flaw), Some(Suite::Comparator))));
        let mut must = |fault, suite| all.push((Self::Engine(fault), Some(suite)));
        for op in [Op::Matmul, Op::Norm, Op::Attend, Op::Compress, Op::Choose, Op::Route] {
            must(Fault::Ulp(op, When::Always), Suite::TensorEquivalence);
        }
        must(Fault::Slip(Slip::LogitNan), Suite::TensorEquivalence);
        must(Fault::Slip(Slip::WindowShort), Suite::TensorEquivalence);
        must(Fault::Ulp(Op::Matmul, When::Width(3)), Suite::Width);
        must(Fault::Ulp(Op::Matmul, When::Width(3)), Suite::Mtp);
        must(Fault::Slip(Slip::ArgmaxShifted), Suite::Mtp);
        must(Fault::Ulp(Op::Routed, When::EveryOther), Suite::Determinism);
        must(Fault::Ulp(Op::Attend, When::ThreeThreads), Suite::Determinism);
        must(Fault::Ulp(Op::Norm, When::Scalar), Suite::Determinism);
        all.extend(Spoiling::ALL.map(|spoiling| (Self::Golden(spoiling), Some(Suite::Goldens))));
        all.push((Self::SameArms, Some(Suite::TensorEquivalence)));
        all.push((Self::NoCases, Some(Suite::Kernels)));
        all
    }

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Engine(fault) => fault.name(),
            Self::Comparator(flaw) => flaw.name().to_owned(),
            Self::Golden(spoiling) => spoiling.name().to_owned(),
            Self::SameArms => "same-arms".to_owned(),
            Self::NoCases => "no-cases".to_owned(),
        }
    }
}

/// Suites and their small cases, cheapest first.
const SMALL: [(Suite, &str); 8] = [
    (Suite::Comparator, ""),
    (Suite::Kernels, ""),
    (Suite::Width, ""),
    (Suite::Mtp, "combined six/six-400"),
    (Suite::Mtp, "combined trained-tiny/code"),
    (Suite::TensorEquivalence, "trained-tiny/code"),
    (Suite::TensorEquivalence, "tiny/tiny-400"),
    (Suite::Determinism, ""),
];

/// Plants one thing and looks for a suite that sees it. `setup` is that of an engine without faults.
#[must_use]
pub fn bite(setup: &Setup, plant: Plant, must: Option<Suite>) -> Bite {
    let mut setup = Setup { runs: 2, threads: 1, ..setup.clone() };
    let seen = match plant {
        Plant::Engine(fault) => look(&mut setup, &PlantedEngine::new(fault), must),
        Plant::Comparator(flaw) => {
            setup.flaw = Some(flaw);
            look(&mut setup, &CpuEngine, must)
        }
        Plant::Golden(spoiling) => spoiled(&setup, Some(spoiling)),
        Plant::SameArms => look(&mut setup, &ReferenceEngine, must),
        Plant::NoCases => {
            setup.case = Some("a case that does not exist".to_owned());
            let suite = must.unwrap_or(Suite::Kernels);
            let jobs = suites::jobs(&setup, &CpuEngine, suite);
            let checks = suites::run(&jobs, 1, &|_| {});
            let verdict = crate::check::Verdict::of(&checks);
            (verdict == crate::check::Verdict::Nothing).then(|| (suite, format!("{verdict:?}")))
        }
    };
    Bite { plant, must, seen }
}

fn look<P: Production>(
    setup: &mut Setup,
    production: &P,
    must: Option<Suite>,
) -> Option<(Suite, String)> {
    let suites = SMALL.into_iter().filter(|(suite, _)| must.is_none_or(|must| must == *suite));
    for (suite, case) in suites {
        setup.case = Some(case.to_owned());
        if let Some(check) = suites::first_red(&suites::jobs(setup, production, suite)) {
            return Some((suite, reason(&check)));
        }
    }
    None
}

/// The case whose golden is spoiled, and the one that it changes places with.
const SPOILED: [&str; 2] = ["trained-tiny/code", "trained-tiny/json"];

/// What the checks of goldens see in a spoiled copy: all those that must, or it does not count. Without a
/// spoiling, what they see in the copy itself, which should be nothing.
#[must_use]
pub fn spoiled(setup: &Setup, spoiling: Option<Spoiling>) -> Option<(Suite, String)> {
    let folder = tempfile::tempdir().ok()?;
    let (golden, pending) = (folder.path().join("golden"), folder.path().join("pending"));
    copy(&setup.golden, &golden).ok()?;
    let [case, other] = SPOILED;
    if let Some(spoiling) = spoiling {
        spoiling.spoil(&golden, case, other).ok()?;
    }
    let setup = Setup { golden, pending, ..setup.clone() };
    let red = |case: &str| {
        let setup = Setup { case: Some(format!("golden/{case}")), ..setup.clone() };
        suites::first_red(&suites::jobs(&setup, &CpuEngine, Suite::Goldens))
    };
    let (by_files, by_case) = spoiling.map_or((true, true), Spoiling::seen);
    let mut seen = None;
    for (_, name) in [(by_files, "files"), (by_case, case)].into_iter().filter(|(by, _)| *by) {
        match red(name) {
            Some(check) => seen = seen.or(Some((Suite::Goldens, reason(&check)))),
            None if spoiling.is_some() => return None,
            None => {}
        }
    }
    seen
}

fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn std::error::Error>> {
    for file in golden::present(from)? {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        fs::copy(from.join(&file), target)?;
    }
    Ok(())
}

fn reason(check: &Check) -> String {
    match &check.outcome {
        Outcome::Different(reason) => format!("{}: {reason}", check.question.case),
        _ => String::new(),
    }
}

/// Plants everything, over the threads of `setup`; `done` is told of each bite.
#[must_use]
pub fn all(setup: &Setup, done: &(dyn Fn(&Bite) + Sync)) -> Vec<Bite> {
    let plants = Plant::all();
    suites::in_parallel(&plants, setup.threads, &|(plant, must)| {
        let bite = bite(setup, *plant, *must);
        done(&bite);
        bite
    })
}
