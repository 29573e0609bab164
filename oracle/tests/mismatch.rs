//! Ten faults of state and ten of a last bit in speculative decoding, each told for what it is.

use std::path::Path;

use engine::cpu::{Combine, Level};
use oracle::check::Outcome;
use oracle::planted::{Fault, Op, Slip, When};
use oracle::suites::{self, PlantedEngine, Setup, Suite, Variant};

fn setup(case: &str) -> Setup {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let variant = Variant { level: Level::best(), threads: 1, combine: Combine::Ordered };
    Setup { case: Some(case.to_owned()), threads: 1, ..Setup::below(root, variant) }
}

const SHORT: &str = "combined trained-tiny/code";
const LONG: &str = "combined six/six-400";

/// What `verify --mtp` says of a fault on the small cases.
fn said(fault: Fault, cases: [&str; 2]) -> String {
    for case in cases {
        let setup = setup(case);
        let engine = PlantedEngine::new(fault);
        let jobs = suites::jobs(&setup, &engine, Suite::Mtp);
        assert!(!jobs.is_empty(), "{case}");
        if let Some(check) = suites::first_red(&jobs) {
            let Outcome::Different(reason) = check.outcome else { unreachable!() };
            return reason;
        }
    }
    format!("{} was not seen", fault.name())
}

#[test]
fn ten_faults_of_state_are_told_as_state() {
    let faults = Fault::rollbacks();
    assert_eq!(faults.len(), 10);
    for fault in faults {
        // Most of them need more tokens than the short one has.
        let said = said(fault, [LONG, SHORT]);
        assert!(said.contains(": state: "), "{}: {said}", fault.name());
    }
}

#[test]
fn ten_faults_of_a_last_bit_are_told_as_numeric() {
    let faults = [
        (Op::Matmul, 2),
        (Op::Norm, 3),
        (Op::Attend, 4),
        (Op::Routed, 2),
        (Op::Grouped, 5),
        (Op::Queries, 3),
        (Op::Keys, 2),
        (Op::Gated, 6),
        (Op::Leave, 7),
        (Op::Compress, 2),
    ];
    for (op, width) in faults {
        let fault = Fault::Ulp(op, When::Width(width));
        let said = said(fault, [SHORT, LONG]);
        assert!(said.contains(": numeric: "), "{}: {said}", fault.name());
    }
}

#[test]
fn a_fault_of_the_block_alone_is_told_as_draft_only() {
    let said = said(Fault::Slip(Slip::BlockShifted), [SHORT, LONG]);
    assert!(said.contains(": draft-only: "), "{said}");
}
