//! Goldens against what happens to files in a repository, and to runs that meet each other.
//!
//! Each test is named after a public fault case of snapshot testing (B94, B114, ...): somebody else's suite
//! was green, or wrote what nobody asked for. Processes of their own are this very test binary, asked for
//! one of its tests by name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::cpu::{Combine, Level};
use oracle::check::{Check, Outcome};
use oracle::golden::{
    self, Golden, GoldenError, MadeFrom, Note, Problem, Spoiling, Step, TapDigest, Tensor, Tensors,
};
use oracle::suites::{self, CpuEngine, GOLDEN_CASES, GoldenCase, ReferenceEngine, Setup, Variant};
use oracle::{digest, teeth};

/// The folder in which several processes meet; without it a test has one of its own.
const FOLDER: &str = "GOLDENS_TEST_FOLDER";
/// The step that a writer chooses, so that writers differ.
const STEP: &str = "GOLDENS_TEST_STEP";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn setup() -> Setup {
    let variant = Variant { level: Level::best(), threads: 1, combine: Combine::Ordered };
    Setup::below(&root(), variant)
}

/// The goldens of the workspace in a folder that may be spoiled.
struct Copy {
    folder: tempfile::TempDir,
    setup: Setup,
}

impl Copy {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let accepted = setup().golden;
        for file in golden::present(&accepted).unwrap() {
            let to = folder.path().join("golden").join(&file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(accepted.join(&file), to).unwrap();
        }
        let (golden, pending) = (folder.path().join("golden"), folder.path().join("pending"));
        let setup = Setup { golden, pending, ..setup() };
        Self { folder, setup }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Every file below the accepted ones with its bytes.
    fn accepted(&self) -> Vec<(String, Vec<u8>)> {
        let folder = &self.setup.golden;
        let files = golden::present(folder).unwrap_or_default();
        files.into_iter().map(|f| (f.clone(), fs::read(folder.join(f)).unwrap())).collect()
    }

    fn red(&self, case: &str) -> Option<String> {
        red(&self.setup, case)
    }
}

/// What the checks with this name say, `None` when they are equal.
fn red(setup: &Setup, case: &str) -> Option<String> {
    let checks = run(setup, case);
    checks.iter().find_map(|check| match &check.outcome {
        Outcome::Equal => None,
        other => Some(format!("{other:?}")),
    })
}

fn run(setup: &Setup, case: &str) -> Vec<Check> {
    let setup = Setup { case: Some(format!("golden/{case}")), ..setup.clone() };
    let jobs = suites::jobs(&setup, &CpuEngine, suites::Suite::Goldens);
    let checks = suites::run(&jobs, 1, &|_| {});
    assert!(!checks.is_empty(), "{case}: no such check");
    checks
}

/// Floats that are easily lost: NaN with payloads and signs, infinities, signs of zero, subnormals.
const HARD: [u32; 12] = [
    0x7fc0_0000,
    0x7f80_0001,
    0xffc1_2345,
    0xff80_0000,
    0x7f80_0000,
    0x8000_0000,
    0x0000_0000,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0x3f80_0000,
];

/// A golden of a few bytes.
fn small(step: u32) -> Golden {
    let values: Vec<f32> = HARD.map(f32::from_bits).to_vec();
    let tensor = |name: &str, shape: &[usize]| Tensor {
        name: name.to_owned(),
        shape: shape.to_vec(),
        values: values.clone(),
    };
    let row = || digest::of_bytes(b"row")[..16].to_owned();
    let margin = "0.500000".to_owned();
    Golden {
        case: "tiny/small".to_owned(),
        made_from: MadeFrom {
            contract: "1".to_owned(),
            model: "sha256 0".to_owned(),
            profile: "ds4".to_owned(),
            prompt: "3 ids, sha256 0".to_owned(),
            steps: "1".to_owned(),
        },
        prompt_logits: digest::of_bytes(b"logits"),
        taps: vec![TapDigest {
            name: "layer 0 streams".to_owned(),
            sha256: digest::of_bytes(b"s"),
        }],
        steps: vec![Step { id: step, logit: 0xff80_0000, runner_up: 1, margin, row: row() }],
        last_row: row(),
        tensors: Tensors {
            positions: vec![2, 3],
            arrays: vec![tensor("layer 0 streams", &[12]), tensor("logits", &[2, 6])],
        },
    }
}

/// Leaves a golden to wait in a folder of its own and accepts it.
fn write(accepted: &Path, golden: &Golden, replaces: Option<String>) -> Result<bool, GoldenError> {
    let pending = tempfile::tempdir().unwrap();
    golden::leave_pending(pending.path(), golden, replaces, None).unwrap();
    let done = golden::accept(pending.path(), accepted, &golden.case, "a test")?;
    assert!(golden::present(pending.path()).unwrap().is_empty(), "what was accepted waits no more");
    Ok(done.already)
}

/// A test of this binary in a process of its own.
fn process(test: &str, variables: &[(&str, &str)]) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

fn passed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{error}");
    out
}

#[test]
fn every_golden_is_a_snapshot_that_insta_reads() {
    for case in GoldenCase::names() {
        let path = golden::path(&setup().golden, &case);
        let snapshot = insta::Snapshot::from_file(&path).unwrap();
        let meta: &insta::internals::MetaData = snapshot.metadata();
        assert_eq!(meta.source(), Some("oracle/src/suites/goldens.rs"));
        let command = format!("cargo xtask verify --goldens --case golden/{case}");
        assert_eq!(meta.expression(), Some(&command[..]));
        let stored = golden::load(&setup().golden, &case).unwrap();
        let Note::Reason(reason) = &stored.note else { panic!("{case}: waits") };
        assert_eq!(meta.description(), Some(&format!("accepted: {reason}")[..]));
        let text = golden::render(&stored.golden, &stored.note);
        let contents = snapshot.contents().as_text().unwrap().to_string();
        let (_, body) = text.split_once("\n---\n").unwrap();
        assert_eq!(contents.trim_end(), body.trim_end(), "{case}");
        assert!(body.len() > 1000 && fs::read_to_string(&path).unwrap() == text);
    }
    assert_eq!(GoldenCase::names().len(), GOLDEN_CASES.len());
}

/// Those that files alone show are held against the engine too by `cargo xtask teeth`.
#[test]
fn every_spoiling_is_seen_and_an_unspoiled_copy_is_equal() {
    assert_eq!(teeth::spoiled(&setup(), None), None);
    for spoiling in Spoiling::ALL {
        if let (true, _) = spoiling.seen() {
            let copy = Copy::new();
            let (code, json) = ("trained-tiny/code", "trained-tiny/json");
            spoiling.spoil(&copy.setup.golden, code, json).unwrap();
            let red = copy.red("files").unwrap_or_else(|| panic!("{}", spoiling.name()));
            assert!(red.contains(code), "{}: {red}", spoiling.name());
        } else {
            let seen = teeth::spoiled(&setup(), Some(spoiling));
            assert!(seen.is_some(), "{} was not seen", spoiling.name());
        }
    }
}

#[test]
fn every_bit_of_text_and_payload_counts() {
    let folder = tempfile::tempdir().unwrap();
    let golden = small(7);
    write(folder.path(), &golden, None).unwrap();
    let equal =
        || golden::load(folder.path(), &golden.case).is_ok_and(|there| there.golden.same(&golden));
    assert!(equal());
    let files = golden::present(folder.path()).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    for path in files.iter().map(|file| folder.path().join(file)) {
        let bytes = fs::read(&path).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (index, byte) in bytes.iter().enumerate() {
            for bit in 0..8 {
                file.write_all_at(&[byte ^ (1 << bit)], index as u64).unwrap();
                assert!(!equal(), "{}: byte {index}, bit {bit}", path.display());
            }
            file.write_all_at(&[*byte], index as u64).unwrap();
        }
        assert!(equal());
        file.write_all_at(b"\n", bytes.len() as u64).unwrap();
        assert!(!equal(), "{}: a line more", path.display());
        for length in (0..bytes.len()).rev() {
            file.set_len(length as u64).unwrap();
            assert!(!equal(), "{}: cut to {length} bytes", path.display());
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(equal());
}

#[test]
fn b94_a_renamed_folder_of_goldens_is_red_by_name() {
    let copy = Copy::new();
    fs::rename(copy.path("golden/trained-tiny"), copy.path("golden/trained-tinny")).unwrap();
    let before = copy.accepted();
    let files = copy.red("files").unwrap();
    let words = ["missing: trained-tiny/code;", "unreferenced: trained-tinny/code.snap"];
    assert!(words.iter().all(|word| files.contains(word)), "{files}");
    let case = copy.red("trained-tiny/code").unwrap();
    assert!(
        case.contains("missing: no golden") && case.contains("trained-tiny/code.snap"),
        "{case}"
    );
    assert!(copy.accepted() == before, "a verification writes to no accepted golden");

    fs::rename(copy.path("golden"), copy.path("goldens")).unwrap();
    for check in ["files", "trained-tiny/code"] {
        assert!(copy.red(check).unwrap().contains("golden"), "{check}");
    }
    assert!(!copy.path("golden").exists(), "a verification makes no folder of accepted goldens");
}

#[test]
fn b114_line_ends_converted_are_named() {
    let copy = Copy::new();
    let path = golden::path(&copy.setup.golden, "trained-tiny/code");
    let text = fs::read_to_string(&path).unwrap();
    for (check, text, line) in [
        ("trained-tiny/code", text.replace('\n', "\r\n"), "line 1 ends"),
        ("files", text.replacen("---\npayload", "---\r\npayload", 1), "line 12 ends"),
    ] {
        fs::write(&path, text).unwrap();
        let red = copy.red(check).unwrap();
        assert!(red.contains(line) && red.contains(".gitattributes"), "{red}");
    }
    let attributes = fs::read_to_string(root().join(".gitattributes")).unwrap();
    let lines: Vec<&str> = attributes.lines().collect();
    assert!(lines.contains(&"*.snap text eol=lf") && lines.contains(&"*.safetensors binary"));
}

#[test]
fn b115_nan_payloads_signs_of_zero_and_subnormals_are_kept_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let golden = small(7);
    write(folder.path(), &golden, None).unwrap();
    let stored = golden::load(folder.path(), &golden.case).unwrap().golden;
    assert!(stored.same(&golden));
    assert_eq!(stored.steps[0].logit, 0xff80_0000);
    for (array, tensor) in stored.tensors.arrays.iter().enumerate() {
        let bits: Vec<u32> = tensor.values.iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, HARD, "{}", tensor.name);
        for element in 0..HARD.len() {
            // Another NaN, the other zero, the neighbour: `==` of floats would call some of them equal.
            for bit in [0, 31] {
                let mut other = golden.clone();
                let value = &mut other.tensors.arrays[array].values[element];
                *value = f32::from_bits(value.to_bits() ^ (1 << bit));
                assert!(!stored.same(&other), "{}[{element}], bit {bit}", tensor.name);
                assert!(!golden::difference(&stored, &other).is_empty());
            }
        }
    }
}

#[test]
fn b116_every_instruction_set_has_the_bytes_of_the_golden() {
    let levels = Level::available();
    assert!(levels.contains(&Level::Scalar));
    let three = [(Level::best(), 3)];
    for (level, threads) in levels.into_iter().map(|level| (level, 1)).chain(three) {
        let variant = Variant { level, threads, combine: Combine::Ordered };
        let red = red(&Setup { variant, ..setup() }, "trained-tiny/code");
        assert_eq!(red, None, "{}", variant.name());
    }
    let case = Some("golden/trained-tiny/code".to_owned());
    let setup = Setup { case, ..setup() };
    let jobs = suites::jobs(&setup, &ReferenceEngine, suites::Suite::Goldens);
    let [check] = &suites::run(&jobs, 1, &|_| {})[..] else { panic!("one check") };
    assert_eq!(check.outcome, Outcome::Equal, "the reference");
    assert!(check.evidence.is_empty(), "the reference proves nothing about the engine");
}

/// What a writer in a process of its own does; alone it must be the one that is accepted.
#[test]
#[expect(clippy::print_stdout, reason = "says to the process that started it what became of it")]
fn b118_a_writer_is_accepted_or_told_why_not() {
    let own = tempfile::tempdir().unwrap();
    let shared = std::env::var_os(FOLDER).map(PathBuf::from);
    let step = std::env::var(STEP).map_or(7, |step| step.parse().unwrap());
    let golden = small(step);
    let folder = shared.as_deref().unwrap_or(own.path());
    let said = match write(folder, &golden, None) {
        Ok(false) => "accepted",
        Ok(true) => "already",
        Err(GoldenError::Unequal { .. }) => "unequal",
        Err(other) => panic!("{other}"),
    };
    assert!(shared.is_some() || said == "accepted", "{said}");
    let there = golden::load(folder, &golden.case).unwrap().golden;
    assert!(said == "unequal" || there.same(&golden), "whole, whoever else writes");
    println!("writer: {said}");
}

#[test]
fn b118_eight_processes_write_one_golden_and_it_is_whole() {
    for equal in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let start = |writer: usize| {
            let step = if equal { 7 } else { 7 + writer }.to_string();
            let variables = [(FOLDER, path), (STEP, &step[..])];
            process("b118_a_writer_is_accepted_or_told_why_not", &variables)
        };
        let children: Vec<_> = (0..8).map(start).collect();
        let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
        let outputs: Vec<String> = outputs.map(|output| passed(&output)).collect();
        let count = |word: &str| {
            let line = format!("writer: {word}");
            outputs.iter().filter(|output| output.contains(&line)).count()
        };
        let rest = if equal { "already" } else { "unequal" };
        assert_eq!((count("accepted"), count(rest)), (1, 7), "{outputs:?}");
        let there = golden::load(folder.path(), "tiny/small").unwrap().golden;
        assert!((7..15).any(|step| there.same(&small(step))));
        assert_eq!(golden::present(folder.path()).unwrap().len(), 2, "no partial file is left");
    }
}

#[test]
fn b118_a_reader_meets_a_whole_golden_while_eight_threads_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &small(0), None).unwrap();
    let (start, done) = (Barrier::new(9), AtomicBool::new(false));
    let replaced: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (start, folder) = (&start, folder.path());
                scope.spawn(move || {
                    start.wait();
                    let attempt = |round: u32| {
                        // Each looks, writes something else, and may come too late.
                        let before = golden::before(folder, "tiny/small").unwrap();
                        match write(folder, &small(100 * writer + round), before) {
                            Ok(_) => 1,
                            Err(GoldenError::Unequal { .. }) => 0,
                            Err(other) => panic!("{other}"),
                        }
                    };
                    (1..20).map(attempt).sum::<usize>()
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            start.wait();
            let mut seen = BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                let there = golden::load(folder.path(), "tiny/small").unwrap().golden;
                assert!(there.same(&small(there.steps[0].id)));
                seen.insert(there.steps[0].id);
            }
            seen.len()
        });
        let replaced = writers.into_iter().map(|w| w.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() >= 1);
        replaced
    });
    assert!(replaced >= 8, "{replaced} of 152 writes came in time");
    assert_eq!(golden::present(folder.path()).unwrap().len(), 2);
}

#[test]
fn b120_two_verifications_at_once_are_both_red_and_leave_one_golden_to_wait() {
    let copy = Copy::new();
    let (code, json) = ("trained-tiny/code", "trained-tiny/json");
    Spoiling::LogitUlp.spoil(&copy.setup.golden, code, json).unwrap();
    let before = copy.accepted();
    let start = Barrier::new(2);
    let reasons = std::thread::scope(|scope| {
        let verify = || {
            scope.spawn(|| {
                start.wait();
                copy.red(code).unwrap()
            })
        };
        [verify(), verify()].map(|run| run.join().unwrap())
    });
    assert!(reasons[0] == reasons[1] && reasons[0].contains("1 ulp"), "{reasons:?}");
    assert!(copy.accepted() == before);
    assert_eq!(golden::present(&copy.setup.pending).unwrap().len(), 2);
    let (pending, accepted) = (&copy.setup.pending, &copy.setup.golden);
    for reason in ["", " \n", "two\nlines"] {
        let refused = golden::accept(pending, accepted, code, reason);
        assert!(matches!(refused, Err(GoldenError::NoReason { .. })), "{reason:?}");
    }
    golden::accept(pending, accepted, code, "as it was").unwrap();
    assert_eq!(copy.red(code), None);
    assert_eq!(copy.red("files"), None);
}

/// Also run by the test of the environment.
#[test]
fn b121_a_missing_golden_fails_by_name_and_creates_nothing() {
    let (copy, code, json) = (Copy::new(), "trained-tiny/code", "trained-tiny/json");
    Spoiling::Missing.spoil(&copy.setup.golden, code, json).unwrap();
    Spoiling::LogitUlp.spoil(&copy.setup.golden, json, code).unwrap();
    Spoiling::Renamed.spoil(&copy.setup.golden, "trained-tiny/recall-40", code).unwrap();
    let before = copy.accepted();
    let red = copy.red(code).unwrap();
    assert!(red.contains("missing: no golden") && red.contains("code.snap"), "{red}");
    assert!(copy.red(json).unwrap().contains("1 ulp"));
    let files = copy.red("files").unwrap();
    for word in [
        "missing: trained-tiny/code",
        "missing: trained-tiny/recall-40",
        "unreferenced: trained-tiny/recall-40-renamed.snap",
    ] {
        assert!(files.contains(word), "{files}");
    }
    assert!(copy.accepted() == before, "a verification writes to no accepted golden");
    let pending = golden::load(&copy.setup.pending, "trained-tiny/code").unwrap();
    assert_eq!(pending.note, Note::Waiting { replaces: None });
}

#[test]
fn b122_no_variable_of_insta_turns_a_red_into_a_green() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().to_str().unwrap();
    for variables in [
        [("INSTA_UPDATE", "always"), ("INSTA_FORCE_PASS", "1"), ("INSTA_PENDING_DIR", elsewhere)],
        [("INSTA_UPDATE", "new"), ("INSTA_FORCE_UPDATE", "1"), ("INSTA_WORKSPACE_ROOT", elsewhere)],
    ] {
        let child = process("b121_a_missing_golden_fails_by_name_and_creates_nothing", &variables);
        passed(&child.wait_with_output().unwrap());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written elsewhere");
}

/// Also run by the test of locales: numbers have a point and digits of ASCII in every one.
#[test]
fn b125_a_golden_is_equal_and_ascii() {
    assert_eq!(red(&setup(), "trained-tiny/code"), None);
    let text = fs::read(golden::path(&setup().golden, "trained-tiny/code")).unwrap();
    assert!(text.iter().all(|byte| *byte == b'\n' || (b' '..=b'~').contains(byte)));
}

#[test]
fn b125_no_locale_changes_a_golden() {
    for locale in ["tr_TR.UTF-8", "de_DE.UTF-8"] {
        let variables = [("LC_ALL", locale), ("LANG", locale), ("LANGUAGE", locale)];
        let child = process("b125_a_golden_is_equal_and_ascii", &variables);
        passed(&child.wait_with_output().unwrap());
    }
}

#[test]
fn only_what_waits_is_pruned_and_only_one_case_is_rejected() {
    let copy = Copy::new();
    let (pending, accepted) = (&copy.setup.pending, &copy.setup.golden);
    let (code, names) = ("trained-tiny/code", GoldenCase::names());
    for case in [code, "trained-tiny/json", "tiny/small"] {
        let golden = Golden { case: case.to_owned(), ..small(7) };
        golden::leave_pending(pending, &golden, None, None).unwrap();
    }
    Spoiling::Unreferenced.spoil(accepted, code, "").unwrap();
    let before = copy.accepted();
    let left = golden::prune(pending, accepted, &names).unwrap();
    assert!(left.waiting.iter().all(|file| file.starts_with("tiny/small.")), "{left:?}");
    assert_eq!((left.waiting.len(), left.unreferenced.len()), (2, 2));
    assert!(left.unreferenced[1].ends_with("code-copy.snap"), "{left:?}");
    golden::reject(pending, code).unwrap();
    assert!(matches!(golden::reject(pending, code), Err(GoldenError::NotPending { .. })));
    assert_eq!(golden::present(pending).unwrap().len(), 2, "json waits");
    // It replaces none, and there is one: what was accepted since is not overwritten.
    let late = golden::accept(pending, accepted, "trained-tiny/json", "late");
    assert!(matches!(late, Err(GoldenError::Unequal { .. })));
    for case in ["../escape", "/absolute", "a//b", "a/..", ""] {
        let refused = golden::accept(pending, accepted, case, "why");
        assert!(matches!(refused, Err(GoldenError::BadCase { .. })), "{case:?}");
    }
    assert!(copy.accepted() == before);
    assert!(matches!(golden::load(accepted, "tiny/none"), Err(Problem::Missing { .. })));
}

#[test]
fn what_moved_is_said_in_tokens_ulp_ranks_and_margins() {
    let (golden, mut ours) = (small(7), small(2));
    ours.steps[0].runner_up = 7;
    ours.steps[0].margin = "0.250000".to_owned();
    ours.made_from.contract = "2".to_owned();
    let value = &mut ours.tensors.arrays[1].values[11];
    *value = f32::from_bits(value.to_bits() + 3);
    let moved = golden::difference(&golden, &ours);
    assert_eq!(moved.stale, ["contract 1, now 2"]);
    assert!(moved.logits[0].contains("golden 3f800000 (1), now 3f800003"), "{moved}");
    assert!(moved.logits[0].contains("3 ulp; 1 of 6 elements"), "{moved}");
    let step = &moved.steps[0];
    assert!(step.contains("id 7 -> 2 (7 has rank 2 now)"), "{moved}");
    assert!(step.contains("margin 0.500000 -> 0.250000"), "{moved}");
    assert!(moved.summary().starts_with("stale: contract 1, now 2; "), "{}", moved.summary());
}
