//! `logits`: tokens through a model, logits to a file.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use engine::cpu::Cpu;
use engine::mtp::{MtpSession, Pairing};
use engine::reference::Reference;
use engine::rows::Rows;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{Model, MtpModel, Session, Switches, sampler};
use npyz::WriterBuilder;
use serde_json::json;

use crate::env::Build;
use crate::flags::{Backend, Logits};
use crate::progress;

pub fn run(flags: &Logits, switches: &Switches) -> Result<ExitCode> {
    match flags.backend {
        Backend::Reference => {
            Reference::accept(switches).map_err(engine::Error::from)?;
            run_on(&Reference, flags, switches)
        }
        Backend::Cpu => {
            run_on(&Cpu::from_switches(switches).map_err(engine::Error::from)?, flags, switches)
        }
    }
}

fn run_on<B: engine::backend::Backend>(
    backend: &B,
    flags: &Logits,
    switches: &Switches,
) -> Result<ExitCode> {
    refuse_overwriting(flags)?;
    let prompt = read_tokens(&flags.tokens)?;
    let model = Model::open(&flags.model)?;
    warn_unclaimed(&flags.model, &model.unclaimed);
    let block = match &flags.mtp {
        Some(path) => {
            let block = MtpModel::open(path, &model.config)?;
            warn_unclaimed(path, &block.unclaimed);
            Some(block)
        }
        None => None,
    };
    let total = prompt.len() + flags.greedy as usize;
    ensure!(
        total <= model.config.context,
        "{} tokens and --greedy {}: the context holds {}",
        prompt.len(),
        flags.greedy,
        model.config.context
    );
    let mut out = Output::create(&flags.out, total, model.config.vocabulary)?;
    let mut session = Session::on(backend, &model, flags.profile)?;
    let mut streams = Rows::empty(model.config.stream_dim());
    let mut tokens = prompt.clone();
    let bar = progress::bar(total as u64, "tokens");
    let chunk = flags.chunk.map_or(prompt.len(), |chunk| chunk as usize);
    let mut last = Vec::new();
    let mut step = |tokens: &[u32], streams: &mut Rows, last: &mut Vec<f32>| -> Result<()> {
        let forward = session.forward(tokens, Keep::All, &mut Unobserved)?;
        let logits = backend.download(&forward.logits)?;
        logits.iter().try_for_each(|row| out.row(row))?;
        if block.is_some() {
            backend.download(&forward.streams)?.iter().for_each(|row| streams.push(row));
        }
        *last = logits.row(logits.count() - 1).to_vec();
        bar.inc(tokens.len() as u64);
        Ok(())
    };
    for tokens in prompt.chunks(chunk) {
        step(tokens, &mut streams, &mut last)?;
    }
    for _ in 0..flags.greedy {
        let id = sampler::argmax(&last, tokens.len() - 1)?;
        tokens.push(id);
        step(&[id], &mut streams, &mut last)?;
    }
    bar.finish_and_clear();
    out.finish()?;
    if let Some(path) = &flags.tokens_out {
        let text = serde_json::to_string(&tokens[prompt.len()..])?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    if let (Some(block), Some(path)) = (&block, &flags.mtp_out) {
        let mut session = MtpSession::on(backend, &model, block, flags.profile)?;
        drafts(backend, &mut session, &tokens, &streams, flags.mtp_pairing.into(), path)?;
    }
    if let Some(path) = &flags.record {
        record(flags, switches, &backend.name(), prompt.len(), path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what was run, under which switches and by which build.
fn record(
    flags: &Logits,
    switches: &Switches,
    backend: &str,
    prompt: usize,
    path: &Path,
) -> Result<()> {
    let record = json!({
        "model": flags.model.display().to_string(),
        "mtp": flags.mtp.as_ref().map(|path| path.display().to_string()),
        "backend": backend,
        "profile": flags.profile.name,
        "chunk": flags.chunk,
        "prompt_tokens": prompt,
        "greedy_tokens": flags.greedy,
        "switches": switches.record(),
        "build": Build::known(),
    });
    let text = serde_json::to_string_pretty(&record)?;
    std::fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

/// Refuses an output that is one of the inputs or another output: a mapped model must not change.
fn refuse_overwriting(flags: &Logits) -> Result<()> {
    let inputs = [Some(&flags.model), flags.mtp.as_ref(), Some(&flags.tokens)];
    let outputs = [
        ("--out", Some(&flags.out)),
        ("--mtp-out", flags.mtp_out.as_ref()),
        ("--tokens-out", flags.tokens_out.as_ref()),
        ("--record", flags.record.as_ref()),
    ];
    let place = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut taken: Vec<PathBuf> = inputs.into_iter().flatten().map(place).collect();
    for (name, path) in outputs {
        let Some(path) = path else { continue };
        ensure!(!taken.contains(&place(path)), "{name} {}: is in use already", path.display());
        let shown = path.display();
        ensure!(!path.exists() || path.is_file(), "{name} {shown}: is not a regular file");
        taken.push(place(path));
    }
    Ok(())
}

/// Runs the block over a whole sequence and writes its logits.
fn drafts<B: engine::backend::Backend>(
    backend: &B,
    session: &mut MtpSession<'_, B>,
    tokens: &[u32],
    streams: &Rows,
    pairing: Pairing,
    path: &Path,
) -> Result<()> {
    let paired = pairing.tokens(tokens);
    ensure!(!paired.is_empty(), "--mtp: one token has no next one to be paired with");
    let streams = backend.upload(streams.slice(0..paired.len()))?;
    let output = session.forward(paired, &streams, Keep::All, &mut Unobserved)?;
    let logits = backend.download(&output.logits)?;
    let mut out = Output::create(path, paired.len(), logits.width())?;
    logits.iter().try_for_each(|row| out.row(row))?;
    out.finish()
}

/// Reads a JSON array of token ids.
pub fn read_tokens(path: &Path) -> Result<Vec<u32>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let ids: Vec<u32> = serde_json::from_str(&text)
        .with_context(|| format!("{}: not a JSON array of token ids", path.display()))?;
    if ids.is_empty() {
        bail!("{}: no token ids", path.display());
    }
    Ok(ids)
}

/// Says which tensors nothing reads.
pub fn warn_unclaimed(path: &Path, names: &[String]) {
    if !names.is_empty() {
        eprintln!("warning: {}: tensors not read: {}", path.display(), names.join(", "));
    }
}

/// An `.npy` file of rows, which gets its name when it is complete and is removed when it never is.
struct Output<'a> {
    path: &'a Path,
    partial: PathBuf,
    writer: Option<npyz::NpyWriter<f32, BufWriter<File>>>,
}

impl<'a> Output<'a> {
    fn create(path: &'a Path, rows: usize, width: usize) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let file = File::create(&partial).with_context(|| partial.display().to_string())?;
        let writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(&[rows as u64, width as u64])
            .writer(BufWriter::new(file))
            .begin_nd()?;
        Ok(Self { path, partial, writer: Some(writer) })
    }

    fn row(&mut self, row: &[f32]) -> Result<()> {
        let writer = self.writer.as_mut().expect("not finished yet");
        let written = writer.extend(row.iter().copied());
        written.with_context(|| self.partial.display().to_string())
    }

    fn finish(mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish().with_context(|| self.partial.display().to_string())?;
            std::fs::rename(&self.partial, self.path)
                .with_context(|| self.path.display().to_string())?;
        }
        Ok(())
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            // The error that kept the file from being finished is the one reported.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}
