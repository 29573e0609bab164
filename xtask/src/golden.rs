//! `golden`: list what is accepted and what waits; accept one by name.

use std::process::ExitCode;

use anyhow::Result;
use oracle::golden;

use crate::flags::{Golden, GoldenCommand};
use crate::workspace;

pub fn run(flags: &Golden) -> Result<ExitCode> {
    match &flags.command {
        GoldenCommand::List => {
            for case in golden::list(&workspace::golden())? {
                println!("accepted {case}");
            }
            let pending = workspace::pending();
            if pending.is_dir() {
                for case in golden::list(&pending)? {
                    println!("waiting  {case}");
                }
            }
        }
        GoldenCommand::Accept { case, reason } => {
            let path = golden::accept(&workspace::pending(), &workspace::golden(), case, reason)?;
            println!("accepted {case}: {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
