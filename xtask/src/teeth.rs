//! `teeth`: plants every known fault and shows which suite saw it.

use std::process::ExitCode;

use anyhow::Result;
use engine::Switches;
use oracle::teeth::{self, Plant};

use crate::flags::Teeth;
use crate::{progress, verify};

pub fn run(flags: &Teeth, switches: &Switches) -> Result<ExitCode> {
    let setup = verify::setup(None, None, None, switches)?;
    let bar = progress::bar(Plant::all().len() as u64, "faults");
    let bites = teeth::all(&setup, &|bite| {
        bar.set_message(bite.plant.name());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let mut survivors = 0;
    for bite in &bites {
        let must = bite.must.map_or("any suite", oracle::suites::Suite::name);
        match &bite.seen {
            Some((suite, reason)) if !flags.quiet => {
                println!("killed    {} by {}: {reason}", bite.plant.name(), suite.name());
            }
            Some(_) => {}
            None => {
                survivors += 1;
                println!("SURVIVED  {} (must be seen by {must})", bite.plant.name());
            }
        }
    }
    let killed = bites.len() - survivors;
    let rate = 100.0 * killed as f64 / bites.len().max(1) as f64;
    println!("teeth: {killed} of {} planted faults killed ({rate:.1} %)", bites.len());
    Ok(ExitCode::from(u8::from(survivors > 0 || bites.is_empty())))
}
