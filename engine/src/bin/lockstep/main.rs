//! The program `lockstep`: a model file and a prompt to text.
//!
//! Promises: exit code 0 done, 2 bad usage or input; text or a report on standard output, everything else
//! on standard error. Nothing runs under a run-time switch that is unknown or has a bad value. Dispatch
//! only: flags are in `flags`, each command in a file of its own.

mod error;
mod flags;
mod generate;
mod input;
mod mode;
mod output;
mod report;
mod request;
mod switches;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use engine::Switches;
use error::{Failure, Result};
use flags::{Command, Flags};

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) | Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(format_args!("error: {failure}"));
            ExitCode::from(2)
        }
    }
}

fn run(flags: &Flags) -> Result<()> {
    let Command::Generate(generate) = &flags.command;
    let switches = Switches::read(std::env::vars_os(), &generate.switches.0);
    let switches = switches.map_err(engine::Error::from)?;
    generate::run(generate, &switches)
}
