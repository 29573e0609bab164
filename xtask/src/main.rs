//! Command line of the workspace: `cargo xtask COMMAND`.
//!
//! Promises: exit code 0 equal or done, 1 different, 2 bad usage or input, 3 nothing was run. No command
//! starts under a run-time switch that is unknown or has a bad value. Dispatch only: flags are in
//! `flags`, each command in a file of its own.

mod ci;
mod env;
mod fixtures;
mod flags;
mod golden;
mod inspect;
mod logits;
mod noise;
mod progress;
mod sensitivity;
mod switches;
mod teeth;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use engine::Switches;
use flags::{Command, Flags};

fn main() -> ExitCode {
    let flags = Flags::parse();
    run(&flags.command).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(command: &Command) -> Result<ExitCode> {
    let switches = Switches::read(std::env::vars_os(), &command.switches())?;
    match command {
        Command::Verify(flags) => verify::run(flags, &switches),
        Command::Logits(flags) => logits::run(flags, &switches),
        Command::Inspect(flags) => inspect::run(flags),
        Command::Env(flags) => env::run(flags, &switches),
        Command::Fixtures(flags) => fixtures::run(flags),
        Command::Golden(flags) => golden::run(flags),
        Command::Sensitivity(flags) => sensitivity::run(flags, &switches),
        Command::Noise(flags) => noise::run(flags),
        Command::Teeth(flags) => teeth::run(flags, &switches),
        Command::Tidy => tidy::run(),
        Command::Ci => ci::run(&switches),
    }
}
