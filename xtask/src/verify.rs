//! `verify`: compare, print what was compared, and say the verdict in the exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use engine::Switches;
use oracle::check::{Check, Outcome, Verdict};
use oracle::suites::{self, Fault, Setup};

use crate::flags::Verify;
use crate::{progress, workspace};

pub fn run(flags: &Verify, switches: &Switches) -> Result<ExitCode> {
    let ground_truth = match &flags.ground_truth {
        Some(path) if !path.is_dir() => bail!("--ground-truth {}: no such folder", path.display()),
        Some(path) => Some(path.clone()),
        None => Some(workspace::ground_truth()).filter(|path| path.is_dir()),
    };
    let setup = setup(flags.case.clone(), flags.plant, ground_truth, switches);
    let start = Instant::now();
    let jobs = suites::tensor_equivalence(&setup);
    let bar = progress::bar(jobs.len() as u64, "cases");
    let checks = suites::run(&jobs, setup.threads, &|name| {
        bar.set_message(name.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    print_table(&checks);
    print_summary(&checks, flags, start.elapsed().as_secs_f64());
    Ok(ExitCode::from(Verdict::of(&checks).exit_code()))
}

/// The workspace's own folders, and the threads that the switches allow.
pub fn setup(
    case: Option<String>,
    fault: Option<Fault>,
    ground_truth: Option<PathBuf>,
    switches: &Switches,
) -> Setup {
    Setup {
        fixtures: workspace::fixtures(),
        golden: workspace::golden(),
        pending: workspace::pending(),
        ground_truth,
        case,
        fault,
        threads: switches.threads.value,
    }
}

fn print_table(checks: &[Check]) {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "verdict", "case", "against", "lane", "rule", "tensors", "elements", "measured",
    ]);
    for check in checks {
        let verdict = match check.outcome {
            Outcome::Equal => "equal",
            Outcome::Different(_) => "DIFFERENT",
            Outcome::NotRun(_) => "not run",
        };
        let question = &check.question;
        table.add_row([
            verdict,
            &question.case,
            &question.against,
            question.lane.name(),
            &question.rule,
            &check.tensors.to_string(),
            &check.elements.to_string(),
            &check.measured,
        ]);
    }
    for column in [5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if !checks.is_empty() {
        println!(
            "{}",
            table.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>()
        );
    }
}

fn print_summary(checks: &[Check], flags: &Verify, seconds: f64) {
    let mut not_run = Vec::new();
    let (mut equal, mut different, mut tensors, mut elements) = (0, 0, 0, 0);
    for check in checks {
        let case = &check.question.case;
        (tensors, elements) = (tensors + check.tensors, elements + check.elements);
        match &check.outcome {
            Outcome::Equal => equal += 1,
            Outcome::Different(reason) => {
                different += 1;
                println!("DIFFERENT {case}: {reason}");
            }
            Outcome::NotRun(reason) => not_run.push((case, reason)),
        }
    }
    for (case, reason) in &not_run {
        println!("not run   {case}: {reason}");
    }
    println!(
        "{equal} equal, {different} different, {} not run; {tensors} tensors, {elements} elements \
         compared in {seconds:.1} s",
        not_run.len()
    );
    let verdict = match Verdict::of(checks) {
        Verdict::Equal if not_run.is_empty() => "equal",
        Verdict::Equal => "equal where it ran",
        Verdict::Different => "DIFFERENT",
        Verdict::Nothing => "NOTHING WAS COMPARED",
    };
    println!("verdict: {verdict}");
    if let Some(fault) = flags.plant {
        println!("a fault was planted on purpose: {}", fault.name());
    }
    if different > 0 {
        let plant = flags.plant.map(|f| format!(" --plant {}", f.name())).unwrap_or_default();
        let case = flags.case.as_ref().map(|c| format!(" --case {c}")).unwrap_or_default();
        println!("repeat: cargo xtask verify --tensor-equivalence{case}{plant}");
    }
}
