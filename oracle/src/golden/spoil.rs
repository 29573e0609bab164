//! Spoilings of accepted goldens, so that a green light can be distrusted.
//!
//! Promises: each is something that happens to files in a repository (an edit, a bad merge, a renamed file,
//! a checkout with other line ends) or a golden that was accepted wrongly: whole, and not what the engine
//! computes. Meant for a copy of the folder; leaves what must see a spoiling to `teeth`.

use std::fs;
use std::path::{Path, PathBuf};

use super::store::{before, load, path, payload_path, publish};
use super::{Golden, GoldenError};
use crate::digest;

/// What is done to the golden of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoiling {
    /// One bit of its text is another.
    TextBit,
    /// One bit of the reason is another.
    ReasonBit,
    /// One bit of its payload is another.
    PayloadBit,
    /// Its line ends are those of another system.
    LineEnds,
    /// Its text is gone.
    Missing,
    /// Its payload is gone.
    PayloadMissing,
    /// Its text and payload are under another name.
    Renamed,
    /// A copy of it belongs to no case.
    Unreferenced,
    /// Its payload and that of another case have changed places.
    SwappedPayloads,
    /// Its files and those of another case have changed places.
    SwappedCases,
    /// Accepted for an earlier contract.
    StaleContract,
    /// Accepted on another model.
    StaleModel,
    /// Accepted with one kept logit an ulp away.
    LogitUlp,
    /// Accepted with one digest of an intermediate another.
    TapDigest,
    /// Accepted with another greedy token.
    Token,
    /// Accepted with a step less.
    StepShort,
}

impl Spoiling {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::TextBit,
        Self::ReasonBit,
        Self::PayloadBit,
        Self::LineEnds,
        Self::Missing,
        Self::PayloadMissing,
        Self::Renamed,
        Self::Unreferenced,
        Self::SwappedPayloads,
        Self::SwappedCases,
        Self::StaleContract,
        Self::StaleModel,
        Self::LogitUlp,
        Self::TapDigest,
        Self::Token,
        Self::StepShort,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TextBit => "golden-text-bit",
            Self::ReasonBit => "golden-reason-bit",
            Self::PayloadBit => "golden-payload-bit",
            Self::LineEnds => "golden-line-ends",
            Self::Missing => "golden-missing",
            Self::PayloadMissing => "golden-payload-missing",
            Self::Renamed => "golden-renamed",
            Self::Unreferenced => "golden-unreferenced",
            Self::SwappedPayloads => "golden-swapped-payloads",
            Self::SwappedCases => "golden-swapped-cases",
            Self::StaleContract => "golden-stale-contract",
            Self::StaleModel => "golden-stale-model",
            Self::LogitUlp => "golden-logit-ulp",
            Self::TapDigest => "golden-tap-digest",
            Self::Token => "golden-token",
            Self::StepShort => "golden-step-short",
        }
    }

    /// Whether the check of the files must see it, and whether the check of the case must.
    #[must_use]
    pub const fn seen(self) -> (bool, bool) {
        match self {
            Self::Unreferenced => (true, false),
            // Whole and made from what there is: only the engine knows better.
            Self::LogitUlp | Self::TapDigest | Self::Token => (false, true),
            _ => (true, true),
        }
    }

    /// Spoils the golden of `case` below `folder`; `other` is another case.
    ///
    /// # Errors
    /// When a golden cannot be read or a file not be written.
    pub fn spoil(self, folder: &Path, case: &str, other: &str) -> Result<(), GoldenError> {
        let text = path(folder, case);
        match self {
            Self::TextBit => flip(&text, |bytes| bytes.len() / 2),
            Self::ReasonBit => flip(&text, |bytes| position(bytes, b"accepted: ") + 12),
            Self::PayloadBit => flip(&payload(folder, case)?, |bytes| bytes.len() - 3),
            Self::LineEnds => {
                let unix = read(&text)?;
                let lines: Vec<&[u8]> = unix.split(|byte| *byte == b'\n').collect();
                write(&text, &lines.join(&b"\r\n"[..]))
            }
            Self::Missing => remove(&text),
            Self::PayloadMissing => remove(&payload(folder, case)?),
            Self::Renamed => {
                copy(folder, case, &format!("{case}-renamed"))?;
                remove(&payload(folder, case)?)?;
                remove(&text)
            }
            Self::Unreferenced => copy(folder, case, &format!("{case}-copy")),
            Self::SwappedPayloads => swap(&payload(folder, case)?, &payload(folder, other)?),
            Self::SwappedCases => {
                let (a, b) = (payload(folder, case)?, payload(folder, other)?);
                let digest = |path| Ok::<_, GoldenError>(digest::of_bytes(&read(path)?));
                let (new_a, new_b) = (digest(&b)?, digest(&a)?);
                swap(&text, &path(folder, other))?;
                swap(&a, &b)?;
                rename(&a, &payload_path(folder, case, &new_a))?;
                rename(&b, &payload_path(folder, other, &new_b))
            }
            _ => self.accepted_wrongly(folder, case),
        }
    }

    /// Puts another golden there as if it had been accepted.
    fn accepted_wrongly(self, folder: &Path, case: &str) -> Result<(), GoldenError> {
        let stored = load(folder, case)?;
        let mut golden: Golden = stored.golden;
        match self {
            Self::StaleContract => golden.made_from.contract = "0".to_owned(),
            Self::StaleModel => golden.made_from.model = format!("sha256 {}", "0".repeat(64)),
            Self::LogitUlp => {
                let logits = golden.tensors.arrays.iter_mut().find(|t| t.name == "logits");
                let logit = &mut logits.expect("every golden has logits").values[1];
                *logit = f32::from_bits(logit.to_bits() ^ 1);
            }
            Self::TapDigest => {
                let tap = golden.taps.last_mut().expect("every golden has intermediates");
                tap.sha256 = digest::of_bytes(b"another");
            }
            Self::Token => {
                let step = golden.steps.last_mut().expect("every golden has steps");
                std::mem::swap(&mut step.id, &mut step.runner_up);
            }
            _ => {
                golden.steps.pop();
                golden.made_from.steps = golden.steps.len().to_string();
            }
        }
        publish(folder, &golden, &stored.note, before(folder, case)?.as_deref()).map(|_| ())
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> GoldenError {
    move |error| GoldenError::Io { path: path.to_path_buf(), error }
}

fn read(path: &Path) -> Result<Vec<u8>, GoldenError> {
    fs::read(path).map_err(at(path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), GoldenError> {
    fs::write(path, bytes).map_err(at(path))
}

fn remove(path: &Path) -> Result<(), GoldenError> {
    fs::remove_file(path).map_err(at(path))
}

fn rename(from: &Path, to: &Path) -> Result<(), GoldenError> {
    fs::rename(from, to).map_err(at(from))
}

fn swap(a: &Path, b: &Path) -> Result<(), GoldenError> {
    let (left, right) = (read(a)?, read(b)?);
    write(a, &right)?;
    write(b, &left)
}

fn flip(path: &Path, index: impl FnOnce(&[u8]) -> usize) -> Result<(), GoldenError> {
    let mut bytes = read(path)?;
    let index = index(&bytes);
    bytes[index] ^= 1;
    write(path, &bytes)
}

fn position(bytes: &[u8], word: &[u8]) -> usize {
    bytes.windows(word.len()).position(|window| window == word).unwrap_or(0)
}

/// The payload file of a case.
fn payload(folder: &Path, case: &str) -> Result<PathBuf, GoldenError> {
    let sha256 = digest::of_bytes(&load(folder, case)?.golden.tensors.to_bytes());
    Ok(payload_path(folder, case, &sha256))
}

/// Copies text and payload under another name, bytes as they are.
fn copy(folder: &Path, case: &str, name: &str) -> Result<(), GoldenError> {
    let old = read(&payload(folder, case)?)?;
    write(&payload_path(folder, name, &digest::of_bytes(&old)), &old)?;
    write(&path(folder, name), &read(&path(folder, case))?)
}
