//! `golden`: what is accepted and what waits; one case at a time.
//!
//! Promises: `accept` and `reject` change the one case that is named, and only what waits for it; nothing
//! in the environment accepts anything. Accepted files that belong to no case are named, never deleted.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use oracle::golden::{self, Note, Problem, Stored};
use oracle::suites::GoldenCase;

use crate::flags::{Golden, GoldenCommand};
use crate::workspace;

pub fn run(flags: &Golden) -> Result<ExitCode> {
    let (pending, accepted) = (workspace::pending(), workspace::golden());
    match &flags.command {
        GoldenCommand::List => list(&pending, &accepted),
        GoldenCommand::Show { case } => show(&pending, &accepted, known(case)?),
        GoldenCommand::Diff { case } => diff(&pending, &accepted, known(case)?),
        GoldenCommand::Accept { case, reason } => {
            let done = golden::accept(&pending, &accepted, known(case)?, reason)?;
            let word = if done.already { "accepted before, reason kept" } else { "accepted" };
            println!("{word}: {case}: {}", done.path.display());
            Ok(ExitCode::SUCCESS)
        }
        GoldenCommand::Reject { case } => {
            golden::reject(&pending, known(case)?)?;
            println!("rejected: {case}");
            Ok(ExitCode::SUCCESS)
        }
        GoldenCommand::Prune => {
            let left = golden::prune(&pending, &accepted, &GoldenCase::names())?;
            left.waiting.iter().for_each(|file| println!("deleted      {file} (waited)"));
            left.unreferenced.iter().for_each(|file| println!("unreferenced {file}: stays"));
            println!("{} deleted, {} unreferenced", left.waiting.len(), left.unreferenced.len());
            Ok(ExitCode::from(u8::from(!left.unreferenced.is_empty())))
        }
    }
}

fn known(case: &str) -> Result<&str> {
    let names = GoldenCase::names();
    ensure!(
        names.iter().any(|name| name == case),
        "{case}: no such case; one of {}",
        names.join(", ")
    );
    Ok(case)
}

fn list(pending: &Path, accepted: &Path) -> Result<ExitCode> {
    let names = GoldenCase::names();
    for case in &names {
        match golden::load(accepted, case) {
            Ok(Stored { note: Note::Reason(reason), .. }) => {
                println!("accepted     {case}: {reason}")
            }
            Ok(_) => println!("unreadable   {case}: says that it waits"),
            Err(Problem::Missing { .. }) => println!("missing      {case}"),
            Err(problem) => println!("{problem}"),
        }
    }
    let found = golden::survey(accepted, &names)?;
    found.unreferenced.iter().for_each(|file| println!("unreferenced {file}"));
    if pending.is_dir() {
        let found = golden::survey(pending, &names)?;
        found.cases.iter().for_each(|case| println!("waiting      {case}"));
        found.unreferenced.iter().for_each(|file| println!("waiting      {file}: of no case"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(pending: &Path, accepted: &Path, case: &str) -> Result<ExitCode> {
    let (folder, stored) = match golden::load(accepted, case) {
        Err(Problem::Missing { .. }) => (pending, golden::load(pending, case)?),
        stored => (accepted, stored?),
    };
    println!("{}", golden::path(folder, case).display());
    print!("{}", golden::render(&stored.golden, &stored.note));
    if folder == accepted && golden::path(pending, case).is_file() {
        println!("another waits: cargo xtask golden diff {case}");
    }
    Ok(ExitCode::SUCCESS)
}

fn diff(pending: &Path, accepted: &Path, case: &str) -> Result<ExitCode> {
    let waiting = golden::load(pending, case).context("what waits")?;
    match golden::load(accepted, case) {
        Ok(before) if before.golden.same(&waiting.golden) => {
            println!("{case}: nothing moved");
            return Ok(ExitCode::SUCCESS);
        }
        Ok(before) => print!("{case}\n{}", golden::difference(&before.golden, &waiting.golden)),
        Err(problem) => println!("{case}: all of it is new: {problem}"),
    }
    Ok(ExitCode::from(1))
}
