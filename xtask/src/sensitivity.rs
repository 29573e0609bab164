//! `sensitivity`: does every tensor matter?

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use engine::Switches;
use engine::format::Gguf;
use oracle::sensitivity;

use crate::flags::Sensitivity;
use crate::{logits, progress, workspace};

/// Tokens of the default prompt: enough to close a window of 128 and to make the indexer choose.
const TOKENS: usize = 144;

pub fn run(flags: &Sensitivity, switches: &Switches) -> Result<ExitCode> {
    let tiny = workspace::fixtures().join("models/tiny");
    let main = Gguf::open(flags.model.as_ref().unwrap_or(&tiny.join("model.gguf")))?;
    let block = Gguf::open(flags.mtp.as_ref().unwrap_or(&tiny.join("mtp.gguf")))?;
    let tokens = match &flags.tokens {
        Some(path) => logits::read_tokens(path)?,
        None => {
            let mut tokens =
                logits::read_tokens(&workspace::fixtures().join("prompts/tiny-400.json"))?;
            tokens.truncate(TOKENS);
            tokens
        }
    };
    let threads = switches.threads.value;
    let count = main.tensors().len() + block.tensors().len();
    let bar = progress::bar(count as u64, "tensors");
    let effects = sensitivity::table(&main, &block, &tokens, threads, &|| bar.inc(1))
        .map_err(|problem| anyhow!(problem))?;
    bar.finish_and_clear();
    let mut table = "tensor\ttype\tdimensions\tlargest change of a logit\tpositions\n".to_owned();
    for effect in &effects {
        let dims: Vec<String> = effect.dims.iter().map(ToString::to_string).collect();
        writeln!(
            table,
            "{}\t{}\t{}\t{:.3e}\t{:.3}",
            effect.tensor,
            effect.dtype,
            dims.join("x"),
            effect.largest,
            effect.positions
        )?;
    }
    match &flags.out {
        Some(path) => {
            std::fs::write(path, table).with_context(|| path.display().to_string())?;
        }
        None if flags.quiet => {}
        None => print!("{table}"),
    }
    let dead = sensitivity::without_effect(&effects);
    if effects.is_empty() {
        println!("NOTHING WAS CHANGED");
        return Ok(ExitCode::from(3));
    }
    if dead.is_empty() {
        println!("{} tensors: each one moves the logits", effects.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("DEAD: {}", dead.join(", "));
    Ok(ExitCode::from(1))
}
