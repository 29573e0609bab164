//! What the oracle is measured by, a test a claim: the contract without a piece of evidence, a width of its
//! own, logic told from rounding, arms that are one, every position counted, an end that is not compared.

use std::path::Path;

use engine::cpu::{Combine, Level};
use oracle::check::{Check, Flaw, Outcome, Verdict};
use oracle::contract::{self, Axis, Claim, Status};
use oracle::planted::{Fault, Op, Slip, When};
use oracle::suites::{
    self, Against, CpuEngine, PlantedEngine, Production, ReferenceEngine, Setup, Suite, Variant,
};

fn setup(case: &str) -> Setup {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let variant = Variant { level: Level::best(), threads: 1, combine: Combine::Ordered };
    Setup { case: Some(case.to_owned()), ..Setup::below(root, variant) }
}

fn checks<P: Production>(setup: &Setup, engine: &P, suite: Suite) -> Vec<Check> {
    suites::run(&suites::jobs(setup, engine, suite), setup.threads, &|_| {})
}

fn reason(check: &Check) -> &str {
    match &check.outcome {
        Outcome::Different(reason) => reason,
        other => panic!("{}: {other:?}", check.job),
    }
}

#[test]
fn item_1_a_cell_whose_evidence_is_removed_is_not_proved_by_name() {
    let setup = setup("");
    let mut found = checks(&setup, &CpuEngine, Suite::Kernels);
    found.extend(checks(&setup, &CpuEngine, Suite::Width));
    let proved = |checks: &[Check]| -> Vec<contract::Cell> {
        let lines = contract::judge(checks).into_iter();
        lines.filter(|line| line.status == Status::Proved).map(|line| line.cell).collect()
    };
    let all = proved(&found);
    assert!(all.iter().any(|cell| cell.axis == Axis::Width) && all.len() > 10, "{all:?}");
    for cell in &all {
        let mut without = found.clone();
        for check in &mut without {
            check.evidence.retain(|(own, _)| own != cell);
        }
        let mut left = all.clone();
        left.retain(|own| own != cell);
        assert_eq!(proved(&without), left);
    }
    for line in contract::judge(&found) {
        let claimed = !matches!(line.claim, Claim::NotClaimed(_));
        assert!(claimed || line.status == Status::NotClaimed, "{:?}", line.cell);
    }
}

#[test]
fn item_2_a_kernel_switch_at_5_rows_is_named_with_operation_and_width() {
    for (op, words) in [(Op::Norm, "norm"), (Op::Matmul, "matmul"), (Op::Attend, "attention")] {
        let engine = PlantedEngine::new(Fault::Ulp(op, When::Width(5)));
        let red = suites::first_red(&suites::jobs(&setup(""), &engine, Suite::Width)).unwrap();
        let reason = reason(&red);
        assert!(red.job.contains(words), "{op:?}: {}", red.job);
        assert!(reason.contains("5 rows a call") && reason.contains("1 ulp"), "{op:?}: {reason}");
    }
}

#[test]
fn item_5_a_wrong_scale_index_is_logic_and_another_order_of_sums_is_not_reported() {
    let wrong = PlantedEngine::new(Fault::Slip(Slip::ScaleOfNext));
    let jobs = setup("exact");
    let red = suites::first_red(&suites::jobs(&jobs, &wrong, Suite::Kernels)).unwrap();
    assert!(red.measured.contains("logic, not rounding"), "{}: {}", red.job, red.measured);
    // Experts from the last to the first: other bits wherever rounding takes part, and only there.
    let reordered = PlantedEngine::new(Fault::Slip(Slip::AtomicDown));
    let found = checks(&setup("exact"), &reordered, Suite::Kernels);
    assert_eq!(Verdict::of(&found), Verdict::Equal, "another order of exact sums");
    let found = checks(&setup("random"), &reordered, Suite::Kernels);
    assert_eq!(Verdict::of(&found), Verdict::Different, "another order of rounded sums");
}

#[test]
fn item_11_a_comparator_that_skips_the_last_element_is_killed() {
    let sound = setup("");
    assert_eq!(Verdict::of(&checks(&sound, &CpuEngine, Suite::Comparator)), Verdict::Equal);
    for flaw in Flaw::ALL {
        let flawed = Setup { flaw: Some(flaw), ..sound.clone() };
        let found = checks(&flawed, &CpuEngine, Suite::Comparator);
        assert_eq!(Verdict::of(&found), Verdict::Different, "{}", flaw.name());
    }
}

/// B90: the route is proved by the kernels that ran, not by what was asked for.
#[test]
fn b90_arms_that_ran_the_same_kernels_are_not_distinct() {
    let case = setup("trained-tiny/code");
    let found = checks(&case, &ReferenceEngine, Suite::TensorEquivalence);
    assert!(reason(&found[0]).contains("arms not distinct"), "{}", reason(&found[0]));
    // A switch that is dead at this length: 17 tokens are below the threshold of the atomic path.
    let dead = Setup { against: Against::Atomic, ..case };
    let found = checks(&dead, &CpuEngine, Suite::TensorEquivalence);
    assert!(reason(&found[0]).contains("arms not distinct"), "{}", reason(&found[0]));
}

/// B93: no case, no position, no layer: every count of nothing is red.
#[test]
fn b93_nothing_to_compare_is_no_success() {
    for suite in Suite::ALL.into_iter().filter(|suite| *suite != Suite::Comparator) {
        let found = checks(&setup("no such case"), &CpuEngine, suite);
        assert_eq!(Verdict::of(&found), Verdict::Nothing, "{}", suite.name());
    }
}

fn write_npy(path: &Path, values: &[f32], width: usize) {
    use npyz::WriterBuilder;
    let shape = [(values.len() / width) as u64, width as u64];
    let file = std::fs::File::create(path).unwrap();
    let options = npyz::WriteOptions::new().default_dtype().shape(&shape);
    let mut writer = options.writer(file).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
}

/// B105: a fault of one early position is found there, though all later rows are equal.
#[test]
fn b105_a_row_in_the_middle_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logits.npy");
    let case = Setup { against: Against::File(path.clone()), ..setup("trained-tiny/code") };
    let json = std::fs::read_to_string(case.fixtures.join("models/trained-tiny/prompts.json"));
    let json: serde_json::Value = serde_json::from_str(&json.unwrap()).unwrap();
    let code = json["prompts"].as_array().unwrap().iter().find(|p| p["name"] == "code").unwrap();
    let prompt: Vec<u32> = serde_json::from_value(code["ids"].clone()).unwrap();
    let backend = CpuEngine.make(case.variant).unwrap();
    let model = engine::Model::open(&case.fixtures.join("models/trained-tiny/model.gguf")).unwrap();
    let mut session = engine::Session::on(&backend, &model, engine::Profile::DS4).unwrap();
    let keep = engine::session::Keep::All;
    let forward = session.forward(&prompt, keep, &mut engine::tap::Unobserved).unwrap();
    let mut logits = forward.logits.rows().values().to_vec();
    write_npy(&path, &logits, forward.logits.rows().width());
    let found = checks(&case, &CpuEngine, Suite::TensorEquivalence);
    assert_eq!(Verdict::of(&found), Verdict::Equal, "{:?}", found[0].outcome);
    let element = 3 * forward.logits.rows().width() + 700;
    logits[element] = f32::from_bits(logits[element].to_bits() ^ 1);
    write_npy(&path, &logits, forward.logits.rows().width());
    let found = checks(&case, &CpuEngine, Suite::TensorEquivalence);
    let first = found[0].first.as_ref().unwrap();
    assert_eq!((first.position, first.element, first.ulp), (Some(3), 700, Some(1)));
}
