//! Command line of the workspace: `cargo xtask COMMAND`.
//!
//! Promises: exit code 0 equal or done, 1 different, 2 bad usage or input, 3 nothing was run. Dispatch
//! only: flags are in `flags`, each command in a file of its own.

mod ci;
mod fixtures;
mod flags;
mod golden;
mod inspect;
mod logits;
mod noise;
mod progress;
mod sensitivity;
mod tidy;
mod verify;
mod workspace;

use std::process::ExitCode;

use clap::Parser;
use flags::{Command, Flags};

fn main() -> ExitCode {
    let flags = Flags::parse();
    let result = match flags.command {
        Command::Verify(flags) => verify::run(&flags),
        Command::Logits(flags) => logits::run(&flags),
        Command::Inspect(flags) => inspect::run(&flags),
        Command::Fixtures(flags) => fixtures::run(&flags),
        Command::Golden(flags) => golden::run(&flags),
        Command::Sensitivity(flags) => sensitivity::run(&flags),
        Command::Noise(flags) => noise::run(&flags),
        Command::Tidy => tidy::run(),
        Command::Ci => ci::run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
