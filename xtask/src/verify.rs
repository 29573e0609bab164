//! `verify`: compare, print what was compared, and say the verdict in the exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use engine::Switches;
use oracle::check::{Check, Outcome, Verdict};
use oracle::contract::{self, Status};
use oracle::suites::{
    self, CpuEngine, Fault, OwnModel, Production, Setup, Suite, Variant, VectorFile,
};

use crate::flags::{Engine, Verify};
use crate::{progress, workspace};

/// A suite that ran.
struct Ran {
    suite: Suite,
    checks: Vec<Check>,
    seconds: f64,
}

pub fn run(flags: &Verify, switches: &Switches) -> Result<ExitCode> {
    let mut setup = setup(flags.case.clone(), flags.plant, ground_truth(flags)?, switches)?;
    setup.runs = flags.runs as usize;
    setup.against = flags.against.clone();
    setup.atomic_rows = switches.atomic_threshold.value;
    setup.own = flags.model.clone().map(|model| OwnModel {
        model,
        block: flags.mtp_model.clone(),
        tokens: flags.tokens.clone(),
        steps: flags.steps as usize,
    });
    setup.vectors = flags.suites.logprob_vectors.clone().map(|file| VectorFile {
        prompts: flags.prompts.clone().unwrap_or_else(|| file.with_file_name("")),
        rendering: flags.prompt_rendering.into(),
        file,
    });
    check_rate(flags)?;
    let named = flags.suites.named();
    let asked = if flags.suites.all { Suite::ALL.to_vec() } else { named.clone() };
    let start = Instant::now();
    let ran = match flags.backend {
        Engine::Cpu => run_suites(&setup, &CpuEngine, &asked, flags.quiet),
        Engine::Reference => run_suites(&setup, &suites::ReferenceEngine, &asked, flags.quiet),
        Engine::Cuda => return Ok(not_run("--backend cuda: there is no CUDA engine yet")),
    };
    let must = [named, flags.require.clone()].concat();
    let all = flags.suites.all && flags.case.is_none() && setup.own.is_none();
    Ok(report(flags, &ran, &must, all, start.elapsed().as_secs_f64()))
}

fn not_run(reason: &str) -> ExitCode {
    println!("not run   {reason}");
    println!("verdict: NOTHING WAS COMPARED");
    ExitCode::from(Verdict::Nothing.exit_code())
}

fn ground_truth(flags: &Verify) -> Result<Option<PathBuf>> {
    Ok(match &flags.ground_truth {
        Some(path) if !path.is_dir() => bail!("--ground-truth {}: no such folder", path.display()),
        Some(path) => Some(path.clone()),
        None => Some(workspace::ground_truth()).filter(|path| path.is_dir()),
    })
}

/// A rate that the runs asked for cannot exclude is refused before anything runs.
fn check_rate(flags: &Verify) -> Result<()> {
    let Some(percent) = flags.max_rate else { return Ok(()) };
    if !(percent > 0.0 && percent <= 100.0) {
        bail!("--max-rate {percent}: a percentage above 0 and at most 100 is needed");
    }
    let needed = suites::runs_needed(percent / 100.0);
    if (flags.runs as usize) < needed {
        let excluded = 100.0 * suites::excluded_rate(flags.runs as usize);
        bail!(
            "--max-rate {percent}: {} equal runs exclude {excluded:.2} % at 95 %, not {percent} %; \
             --runs {needed} are needed",
            flags.runs
        );
    }
    Ok(())
}

/// The workspace's own folders, and the engine that the switches ask for.
pub fn setup(
    case: Option<String>,
    fault: Option<Fault>,
    ground_truth: Option<PathBuf>,
    switches: &Switches,
) -> Result<Setup> {
    let setup = Setup::below(&workspace::root(), Variant::of(switches)?);
    Ok(Setup { ground_truth, case, fault, ..setup })
}

/// The comparator first, whatever is asked for: all other verdicts rest on it.
fn run_suites<P: Production>(
    setup: &Setup,
    production: &P,
    asked: &[Suite],
    quiet: bool,
) -> Vec<Ran> {
    let mut list = vec![Suite::Comparator];
    list.extend(asked.iter().copied().filter(|suite| *suite != Suite::Comparator));
    let mut ran = Vec::new();
    for suite in list {
        let start = Instant::now();
        let jobs = suites::jobs(setup, production, suite);
        let bar = progress::bar(if quiet { 0 } else { jobs.len() as u64 }, suite.name());
        let checks = suites::run(&jobs, setup.threads, &|name| {
            bar.set_message(name.to_owned());
            bar.inc(1);
        });
        bar.finish_and_clear();
        ran.push(Ran { suite, checks, seconds: start.elapsed().as_secs_f64() });
    }
    ran
}

fn report(flags: &Verify, ran: &[Ran], must: &[Suite], all: bool, seconds: f64) -> ExitCode {
    let checks: Vec<Check> = ran.iter().flat_map(|ran| ran.checks.iter().cloned()).collect();
    // The comparator on known pairs is no comparison of anything that was asked for.
    let asked: Vec<Check> = ran
        .iter()
        .filter(|ran| ran.suite != Suite::Comparator)
        .flat_map(|ran| ran.checks.iter().cloned())
        .collect();
    if !flags.quiet {
        print_table(&checks);
    }
    let unproved = print_contract(&checks, all);
    let mut verdict = Verdict::of(&checks);
    if verdict == Verdict::Equal && Verdict::of(&asked) == Verdict::Nothing {
        verdict = Verdict::Nothing;
    }
    if verdict == Verdict::Equal && unproved > 0 {
        verdict = Verdict::Different;
    }
    let missing = ran.iter().any(|ran| {
        let not_run = ran.checks.iter().any(|check| matches!(check.outcome, Outcome::NotRun(_)));
        must.contains(&ran.suite) && (not_run || ran.checks.is_empty())
    });
    if verdict == Verdict::Equal && missing {
        verdict = Verdict::Incomplete;
    }
    print_summary(ran, &checks, flags, verdict, seconds);
    ExitCode::from(verdict.exit_code())
}

/// Cells that were proved, as counts; those without evidence by name. Returns how many claims of the whole
/// table lack evidence where all of it was to be proved.
fn print_contract(checks: &[Check], all: bool) -> usize {
    let lines = contract::judge(checks);
    let of = |status| lines.iter().filter(move |line| line.status == status);
    let name = |line: &contract::Line| {
        let cell = line.cell;
        format!("{} x {} x {}", cell.axis.name(), cell.subject.name(), cell.path.name())
    };
    for line in of(Status::Broken) {
        println!("BROKEN    {}: {}", name(line), line.claim.name());
    }
    let missing: Vec<String> = of(Status::NotProved)
        .filter(|line| line.cell.path == contract::Path::CpuOrdered)
        .map(name)
        .collect();
    if all {
        missing.iter().for_each(|cell| println!("NO EVIDENCE {cell}"));
    }
    println!(
        "contract: {} cells proved, {} broken, {} without evidence in this run, {} not claimed",
        of(Status::Proved).count(),
        of(Status::Broken).count(),
        of(Status::NotProved).count(),
        of(Status::NotClaimed).count(),
    );
    if all { missing.len() } else { 0 }
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

fn print_summary(ran: &[Ran], checks: &[Check], flags: &Verify, verdict: Verdict, seconds: f64) {
    let (mut equal, mut different, mut tensors, mut elements) = (0, 0, 0, 0);
    let mut not_run = 0;
    for check in checks {
        let case = &check.question.case;
        (tensors, elements) = (tensors + check.tensors, elements + check.elements);
        match &check.outcome {
            Outcome::Equal => equal += 1,
            Outcome::Different(reason) => {
                different += 1;
                println!("DIFFERENT {case}: {reason}");
            }
            Outcome::NotRun(reason) => {
                not_run += 1;
                println!("not run   {case}: {reason}");
            }
        }
    }
    let times: Vec<String> =
        ran.iter().map(|ran| format!("{} {:.1} s", ran.suite.name(), ran.seconds)).collect();
    println!("time: {}", times.join(", "));
    println!(
        "{equal} equal, {different} different, {not_run} not run; {tensors} tensors, {elements} \
         elements compared in {seconds:.1} s"
    );
    let words = match verdict {
        Verdict::Equal if not_run == 0 => "equal",
        Verdict::Equal => "equal where it ran",
        Verdict::Incomplete => "NOT EVERYTHING ASKED FOR WAS RUN; equal where it ran",
        Verdict::Different => "DIFFERENT",
        Verdict::Nothing => "NOTHING WAS COMPARED",
    };
    println!("verdict: {words}");
    if let Some(fault) = flags.plant {
        println!("a fault was planted on purpose: {}", fault.name());
    }
    if different > 0 {
        let plant = flags.plant.map(|f| format!(" --plant {}", f.name())).unwrap_or_default();
        let first = checks.iter().find(|check| matches!(check.outcome, Outcome::Different(_)));
        let of = |ran: &&Ran| ran.checks.iter().any(|check| Some(check) == first);
        if let (Some(first), Some(ran)) = (first, ran.iter().find(of)) {
            let (suite, case) = (ran.suite.name(), &first.job);
            println!("repeat: cargo xtask verify --{suite} --case '{case}'{plant}");
        }
    }
}
