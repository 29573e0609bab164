//! `noise`: how far one ulp goes, and which rounding point carries it.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use engine::Model;
use oracle::noise;
use oracle::npy::read_npy;
use oracle::stats::{self, Distances};

use crate::flags::Noise;
use crate::{logits, progress};

pub fn run(flags: &Noise) -> Result<ExitCode> {
    let mut model = Model::open(&flags.model)?;
    let tokens = logits::read_tokens(&flags.tokens)?;
    let recording = flags.logits.as_deref().map(read_npy).transpose()?;
    let bar = progress::bar(noise::count() as u64, "meanings");
    let rows = noise::table(&mut model, &tokens, recording.as_ref(), &|| bar.inc(1));
    bar.finish_and_clear();
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "meaning",
        "to the recording: median rms, argmax",
        "one ulp: median rms, 95 %, largest, argmax",
    ]);
    for row in rows.map_err(|problem| anyhow!(problem))? {
        let recorded = row.recorded.map(|d| {
            format!("{:.4}, {:.1} %", stats::median(&d.rms), 100.0 * stats::share(&d.agree))
        });
        table.add_row([row.meaning, recorded.unwrap_or_default(), spread(&row.one_ulp)]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn spread(distances: &Distances) -> String {
    let mut rms = distances.rms.clone();
    rms.sort_by(f64::total_cmp);
    let high = rms.get(rms.len() * 95 / 100).copied().unwrap_or(f64::NAN);
    let largest = distances.largest.iter().fold(0.0_f64, |max, x| max.max(*x));
    let agree = 100.0 * stats::share(&distances.agree);
    format!("{:.4}, {high:.4}, {largest:.3}, {agree:.1} %", stats::median(&rms))
}
