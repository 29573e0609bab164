//! `ci`: everything that must hold before a merge except the tests, cheapest first.
//!
//! Promises: every step is passed, failed or `not run` by name; the end says how many of each. Tests are
//! left to `cargo test --workspace`, so that its closing lines are the last ones.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use engine::Switches;
use oracle::check::Verdict;
use oracle::suites::{self, CANARIES, CpuEngine};

use crate::{tidy, verify, workspace};

/// A step by name, and how to take it.
type Named = (&'static str, fn(&Switches) -> Result<Step>);

enum Step {
    Passed,
    Failed(String),
    NotRun(String),
}

pub fn run(switches: &Switches) -> Result<ExitCode> {
    let steps: [Named; 9] = [
        ("fmt", |_| cargo(&["fmt", "--all", "--check"])),
        ("tidy", |_| {
            let breaches = tidy::breaches(&workspace::root())?;
            Ok(if breaches.is_empty() { Step::Passed } else { Step::Failed(breaches.join("\n")) })
        }),
        ("clippy", |_| cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
        ("deny", |_| deny()),
        ("fixtures check", |_| xtask(&["fixtures", "check"])),
        ("verify --all", |_| xtask(&["verify", "--all"])),
        ("canaries", canaries),
        ("teeth", |_| xtask(&["teeth", "--quiet"])),
        ("sensitivity", |_| xtask(&["sensitivity", "--quiet"])),
    ];
    let (mut passed, mut failed, mut not_run) = (0, 0, 0);
    for (name, step) in steps {
        println!("--- {name}");
        match step(switches).unwrap_or_else(|error| Step::Failed(format!("{error:#}"))) {
            Step::Passed => {
                passed += 1;
                println!("passed: {name}");
            }
            Step::Failed(problem) => {
                failed += 1;
                println!("FAILED: {name}: {problem}");
            }
            Step::NotRun(reason) => {
                not_run += 1;
                println!("not run: {name}: {reason}");
            }
        }
    }
    println!("--- ci: {passed} steps passed, {failed} failed, {not_run} not run");
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn finished(mut command: Command) -> Result<Step> {
    let status = command.current_dir(workspace::root()).status().context("cannot be started")?;
    Ok(if status.success() { Step::Passed } else { Step::Failed(status.to_string()) })
}

fn cargo(arguments: &[&str]) -> Result<Step> {
    let mut command = Command::new("cargo");
    command.args(arguments);
    finished(command)
}

/// Runs this program again, so that a step is the command that a user would type.
fn xtask(arguments: &[&str]) -> Result<Step> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    finished(command)
}

fn deny() -> Result<Step> {
    let found = Command::new("cargo").args(["deny", "--version"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        return Ok(Step::NotRun("cargo-deny is not installed".into()));
    }
    cargo(&["deny", "check", "licenses", "bans", "sources"])
}

/// Plants faults one after the other; each must turn its cases red.
fn canaries(switches: &Switches) -> Result<Step> {
    for canary in CANARIES {
        let setup = verify::setup(Some(canary.case.into()), Some(canary.fault), None, switches)?;
        let jobs = suites::jobs(&setup, &CpuEngine, canary.suite);
        let checks = suites::run(&jobs, setup.threads, &|_| {});
        let verdict = Verdict::of(&checks);
        println!("{} in {}: {verdict:?}", canary.fault.name(), canary.case);
        if verdict != Verdict::Different {
            return Ok(Step::Failed(format!("{} was not seen", canary.fault.name())));
        }
    }
    Ok(if CANARIES.is_empty() { Step::Failed("no canaries".into()) } else { Step::Passed })
}
