//! `fixtures`: make, check, or write a model of full size.

use std::process::ExitCode;

use anyhow::Result;
use oracle::fixtures::{self, recipe::Shape};

use crate::flags::{Fixtures, FixturesCommand, Synth};
use crate::{progress, workspace};

pub fn run(flags: &Fixtures) -> Result<ExitCode> {
    let folder = workspace::fixtures();
    match &flags.command {
        FixturesCommand::Build => {
            let files = fixtures::build(&folder, &|_| {})?;
            println!("{files} files made, MANIFEST.toml brought up to date");
        }
        FixturesCommand::Check => {
            let checked = fixtures::check(&folder, &|_| {})?;
            for problem in &checked.problems {
                println!("DIFFERENT {problem}");
            }
            println!("{} files compared, {} problems", checked.files, checked.problems.len());
            if checked.files == 0 {
                return Ok(ExitCode::from(3));
            }
            return Ok(ExitCode::from(u8::from(!checked.problems.is_empty())));
        }
        FixturesCommand::Synth(flags) => synth(flags)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn synth(flags: &Synth) -> Result<()> {
    let shape = Shape::flash();
    let synth = fixtures::Synth {
        shape: &shape,
        out: &flags.out,
        mtp_out: flags.mtp_out.as_deref(),
        alias_layers: flags.alias_layers.map(|period| period as usize),
        overwrite: flags.overwrite,
    };
    let bar = progress::bytes(0);
    fixtures::synth(&synth, &|made, total| {
        if bar.length() != Some(total) {
            bar.set_length(total);
            bar.set_position(0);
        }
        bar.inc(made);
    })?;
    bar.finish_and_clear();
    Ok(())
}
