//! Two hundred honest variations of the engine raise no alarm.
//!
//! Threads, instruction sets, order and parallelism of cases, cuts of calls: whatever a machine may do
//! differently without being at fault. The same checks see every planted fault (`teeth`).

use std::path::Path;

use engine::cpu::{Combine, Level};
use oracle::check::{Outcome, Verdict};
use oracle::planted::{Fault, Op, When};
use oracle::suites::{self, CpuEngine, PlantedEngine, Setup, Suite, Variant};

/// Suites and cases of a variation, taken in turn.
const CASES: [(Suite, &str); 10] = [
    (Suite::Kernels, "matmul"),
    (Suite::Kernels, "moe"),
    (Suite::Kernels, "attention exact"),
    (Suite::Kernels, "indexer"),
    (Suite::Kernels, "compressor"),
    (Suite::Width, "matmul"),
    (Suite::Width, "moe"),
    (Suite::Width, "hyper"),
    (Suite::TensorEquivalence, "trained-tiny/code"),
    (Suite::Kernels, "norm"),
];

fn setup(variant: Variant, case: &str) -> Setup {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    Setup { case: Some(case.to_owned()), ..Setup::below(root, variant) }
}

#[test]
fn two_hundred_honest_variations_raise_no_alarm() {
    let mut elements = 0;
    for variation in 0..200 {
        let level = Level::available()[variation % Level::available().len()];
        let variant = Variant { level, threads: 1 + variation / 10 % 8, combine: Combine::Ordered };
        let (suite, case) = CASES[variation % CASES.len()];
        let setup = setup(variant, case);
        let mut jobs = suites::jobs(&setup, &CpuEngine, suite);
        if variation % 3 == 0 {
            jobs.reverse();
        }
        let checks = suites::run(&jobs, 1 + variation % 3, &|_| {});
        let reasons: Vec<&Outcome> = checks.iter().map(|check| &check.outcome).collect();
        assert_eq!(Verdict::of(&checks), Verdict::Equal, "{variant:?}, {case}: {reasons:?}");
        elements += checks.iter().fold(0, |sum, check| sum + check.elements);
    }
    assert!(elements > 1_000_000, "{elements} elements compared");
}

/// The same cases with a fault: none of them is too small to see one.
#[test]
fn each_of_the_varied_cases_sees_a_fault() {
    let ops = [Op::Matmul, Op::Routed, Op::Attend, Op::Choose, Op::Compress];
    let rest = [Op::Matmul, Op::Routed, Op::Leave, Op::Matmul, Op::Norm];
    for ((suite, case), op) in CASES.into_iter().zip(ops.into_iter().chain(rest)) {
        let variant = Variant { level: Level::best(), threads: 1, combine: Combine::Ordered };
        let (setup, when) = (
            setup(variant, case),
            match suite {
                Suite::Width => When::Width(4),
                _ => When::Always,
            },
        );
        let engine = PlantedEngine::new(Fault::Ulp(op, when));
        let red = suites::first_red(&suites::jobs(&setup, &engine, suite));
        assert!(red.is_some(), "{case}: {op:?}");
    }
}
