//! Golden files: where they are, and who may write which.
//!
//! Promises: a reader meets a whole golden, text and payload together, or none. The text names its payload
//! by digest and the rename of the text is the moment of change, so neither can be seen with another's.
//! A writer says which bytes it expects to replace; if others are there by then, nothing is written and
//! the writer is told. Names of temporary files are unique to a call. Verification calls nothing here that
//! writes to an accepted golden. Writing takes a system that can lock a folder.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::text::{self, Parsed};
use super::{Golden, GoldenError, Note, PAYLOAD_BYTES_MAX, Problem, Tensors};
use crate::digest;

/// Digits of a payload's digest in its name.
const NAME_DIGITS: usize = 16;
/// How often a reader starts again when a writer replaced what it was reading.
const RETRIES: usize = 100;

/// A golden as read from its files.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The golden.
    pub golden: Golden,
    /// Who let it in.
    pub note: Note,
}

/// What [`accept`] did.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The text.
    pub path: PathBuf,
    /// The same bytes were accepted before; their reason stays.
    pub already: bool,
}

/// The files of a folder of goldens, held against the cases there should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Cases whose text is there, sorted.
    pub cases: Vec<String>,
    /// Cases whose text is not there.
    pub missing: Vec<String>,
    /// Files that belong to no case, as paths below the folder.
    pub unreferenced: Vec<String>,
}

/// What [`prune`] found.
#[derive(Clone, Debug, Default)]
pub struct Leftover {
    /// Files that waited, belonged to no case and are gone.
    pub waiting: Vec<String>,
    /// Accepted files that belong to no case.
    pub unreferenced: Vec<String>,
}

fn io_error(path: &Path, error: io::Error) -> GoldenError {
    GoldenError::Io { path: path.to_path_buf(), error }
}

/// The text of a case below a folder of goldens.
#[must_use]
pub fn path(folder: &Path, case: &str) -> PathBuf {
    folder.join(format!("{case}.snap"))
}

/// The payload with this digest.
#[must_use]
pub fn payload_path(folder: &Path, case: &str, sha256: &str) -> PathBuf {
    let digits = sha256.get(..NAME_DIGITS).unwrap_or(sha256);
    folder.join(format!("{case}.{digits}.safetensors"))
}

/// Refuses names that could lead out of the folder.
///
/// # Errors
/// When a segment is empty or has other characters than letters, digits, `-` and `_`.
pub fn check_case(case: &str) -> Result<(), GoldenError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if case.split('/').all(|segment| !segment.is_empty() && segment.chars().all(plain)) {
        return Ok(());
    }
    Err(GoldenError::BadCase { case: case.into() })
}

/// The digest of a text, `None` where there is none.
///
/// # Errors
/// When it is there and cannot be read.
pub fn before(folder: &Path, case: &str) -> Result<Option<String>, GoldenError> {
    check_case(case)?;
    let path = path(folder, case);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(digest::of_bytes(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(&path, error)),
    }
}

/// Reads a golden, accepted or waiting.
///
/// # Errors
/// Says whether it is missing or unreadable, and why.
pub fn load(folder: &Path, case: &str) -> Result<Stored, Problem> {
    let path = path(folder, case);
    let mut last = read_text(&path)?;
    for _ in 0..RETRIES {
        let unreadable = |why| Problem::Unreadable { path: path.clone(), why };
        let parsed = text::parse(&last).map_err(unreadable)?;
        let payload_path = payload_path(folder, case, &parsed.payload);
        match fs::read(&payload_path) {
            Ok(payload) => return whole(&path, &last, case, parsed, &payload_path, &payload),
            Err(error) => {
                // A writer may have replaced both between the two reads.
                let again = read_text(&path)?;
                if again == last {
                    let why = format!("its payload {}: {error}", payload_path.display());
                    return Err(Problem::Unreadable { path, why });
                }
                last = again;
            }
        }
    }
    Err(Problem::Unreadable { path, why: "is being replaced all the time".into() })
}

fn read_text(path: &Path) -> Result<String, Problem> {
    let path_buf = || path.to_path_buf();
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Problem::Missing { path: path_buf() },
        _ => Problem::Unreadable { path: path_buf(), why: error.to_string() },
    })?;
    if let Some(index) = bytes.iter().position(|byte| *byte == b'\r') {
        let line = 1 + bytes[..index].iter().filter(|byte| **byte == b'\n').count();
        return Err(Problem::LineEnds { path: path_buf(), line });
    }
    String::from_utf8(bytes)
        .map_err(|_| Problem::Unreadable { path: path_buf(), why: "is not UTF-8".into() })
}

/// Puts text and payload together; any byte of either that is not as written is refused.
fn whole(
    path: &Path,
    text: &str,
    case: &str,
    parsed: Parsed,
    payload_path: &Path,
    payload: &[u8],
) -> Result<Stored, Problem> {
    let at = |path: &Path, why| Problem::Unreadable { path: path.to_path_buf(), why };
    let Parsed { mut golden, note, payload: sha256 } = parsed;
    let found = digest::of_bytes(payload);
    if found != sha256 {
        return Err(at(payload_path, format!("sha256 {found}, the text says {sha256}")));
    }
    let tensors = Tensors::from_bytes(payload).map_err(|why| at(payload_path, why))?;
    let rows = tensors.get("logits").and_then(|logits| logits.shape.first());
    if rows != Some(&golden.tensors.positions.len()) {
        let why = format!("tensor logits: rows {rows:?}, not as many as positions in the text");
        return Err(at(payload_path, why));
    }
    golden.tensors.arrays = tensors.arrays;
    if golden.case != case {
        return Err(at(path, format!("case {:?}, its name says {case:?}", golden.case)));
    }
    let written = text::render(&golden, &note);
    if written != text {
        let lines = || written.lines().zip(text.lines());
        let line = lines().position(|(a, b)| a != b).unwrap_or(lines().count());
        let [ours, theirs] =
            [&written[..], text].map(|text| text.lines().nth(line).unwrap_or("").to_owned());
        return Err(at(path, format!("line {}: {theirs:?}, must be {ours:?}", line + 1)));
    }
    Ok(Stored { golden, note })
}

/// Holds the folder of a case against other writers until it is dropped.
fn lock(folder: &Path) -> Result<File, GoldenError> {
    fs::create_dir_all(folder).map_err(|error| io_error(folder, error))?;
    let file = File::open(folder).map_err(|error| io_error(folder, error))?;
    file.lock().map_err(|error| io_error(folder, error))?;
    Ok(file)
}

/// Writes a file beside its place and renames it, so that a reader never meets half of it.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), GoldenError> {
    let fail = |error| io_error(path, error);
    let folder = path.parent().expect("a golden is in a folder");
    let mut builder = tempfile::Builder::new();
    builder.prefix(".partial-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o644));
    }
    let mut file = builder.tempfile_in(folder).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    file.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

/// Puts a golden in its place if `expected` is what is there; returns whether it was there already.
pub(super) fn publish(
    folder: &Path,
    golden: &Golden,
    note: &Note,
    expected: Option<&str>,
) -> Result<bool, GoldenError> {
    let case = &golden.case;
    check_case(case)?;
    let payload = golden.tensors.to_bytes();
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(GoldenError::TooLarge { case: case.clone(), bytes: payload.len() });
    }
    let path = path(folder, case);
    let _lock = lock(path.parent().expect("a golden is in a folder"))?;
    let there = before(folder, case)?;
    if load(folder, case).is_ok_and(|there| there.golden.same(golden)) {
        // Who is first is the one whose reason stays.
        if matches!(note, Note::Reason(_)) {
            return Ok(true);
        }
    } else if there.as_deref() != expected {
        let name = |digest: Option<&str>| digest.unwrap_or("none").to_owned();
        let (found, expected) = (name(there.as_deref()), name(expected));
        return Err(GoldenError::Unequal { case: case.clone(), path, found, expected });
    }
    let sha256 = digest::of_bytes(&payload);
    replace(&payload_path(folder, case, &sha256), &payload)?;
    replace(&path, text::render(golden, note).as_bytes())?;
    for old in payloads(folder, case)? {
        if old != payload_path(folder, case, &sha256) {
            fs::remove_file(&old).map_err(|error| io_error(&old, error))?;
        }
    }
    Ok(false)
}

/// Payload files of a case, whatever their digest.
fn payloads(folder: &Path, case: &str) -> Result<Vec<PathBuf>, GoldenError> {
    let text = path(folder, case);
    let parent = text.parent().expect("a golden is in a folder");
    if !parent.is_dir() {
        return Ok(Vec::new());
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(parent).map_err(|error| io_error(parent, error))? {
        let path = entry.map_err(|error| io_error(parent, error))?.path();
        let stem = path.file_name().and_then(|name| name.to_str()).and_then(payload_stem);
        if stem.is_some_and(|stem| parent.join(format!("{stem}.snap")) == text) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The case part of the name of a payload file.
fn payload_stem(name: &str) -> Option<&str> {
    let (stem, digits) = name.strip_suffix(".safetensors")?.split_once('.')?;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == NAME_DIGITS && digits.bytes().all(hex)).then_some(stem)
}

/// Puts a golden where it waits to be accepted. `replaces` is the accepted text that it was compared
/// with, `waited` the text that waited when the run began ([`before`] of either folder).
///
/// # Errors
/// When another run left other bytes since; names the file that could not be written.
pub fn leave_pending(
    pending: &Path,
    golden: &Golden,
    replaces: Option<String>,
    waited: Option<&str>,
) -> Result<(), GoldenError> {
    publish(pending, golden, &Note::Waiting { replaces }, waited).map(|_| ())
}

/// Accepts the golden that waits for `case`: text and payload together.
///
/// # Errors
/// When none waits, the reason is not one line, the accepted golden is no longer the one that this one was
/// compared with, or a file cannot be read or written.
pub fn accept(
    pending: &Path,
    accepted: &Path,
    case: &str,
    reason: &str,
) -> Result<Accepted, GoldenError> {
    check_case(case)?;
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().any(char::is_control) {
        return Err(GoldenError::NoReason { reason: reason.into() });
    }
    let waiting = match load(pending, case) {
        Err(Problem::Missing { .. }) => {
            return Err(GoldenError::NotPending { case: case.into(), folder: pending.into() });
        }
        waiting => waiting?,
    };
    let Note::Waiting { replaces } = &waiting.note else {
        let why = "description: must say that it waits".into();
        return Err(Problem::Unreadable { path: path(pending, case), why }.into());
    };
    let note = Note::Reason(reason.to_owned());
    let already = publish(accepted, &waiting.golden, &note, replaces.as_deref())?;
    // Another accept of the same bytes may have cleared it away.
    remove_pending(pending, case)?;
    Ok(Accepted { path: path(accepted, case), already })
}

/// Deletes the golden that waits for `case`, readable or not.
///
/// # Errors
/// When none waits, or a file cannot be deleted.
pub fn reject(pending: &Path, case: &str) -> Result<(), GoldenError> {
    check_case(case)?;
    if remove_pending(pending, case)? {
        return Ok(());
    }
    Err(GoldenError::NotPending { case: case.into(), folder: pending.into() })
}

fn remove_pending(pending: &Path, case: &str) -> Result<bool, GoldenError> {
    let text = path(pending, case);
    let parent = text.parent().expect("a golden is in a folder");
    if !parent.is_dir() {
        return Ok(false);
    }
    let _lock = lock(parent)?;
    let mut removed = false;
    for path in [vec![text], payloads(pending, case)?].concat() {
        match fs::remove_file(&path) {
            Ok(()) => removed = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&path, error)),
        }
    }
    Ok(removed)
}

/// Holds the files of a folder against the cases there should be.
///
/// # Errors
/// Names the folder that cannot be read.
pub fn survey(folder: &Path, expected: &[String]) -> Result<Found, GoldenError> {
    let mut found = Found::default();
    for file in present(folder)? {
        let known = |case: &String| expected.contains(case);
        match file.strip_suffix(".snap").map(str::to_owned).filter(known) {
            Some(case) => found.cases.push(case),
            None if belongs(folder, &file, expected) => {}
            None => found.unreferenced.push(file),
        }
    }
    found.missing = expected.iter().filter(|case| !found.cases.contains(case)).cloned().collect();
    Ok(found)
}

/// Whether a file is the payload that the text of an expected case names.
fn belongs(folder: &Path, file: &str, expected: &[String]) -> bool {
    let (parent, name) = file.rsplit_once('/').map_or(("", file), |(a, b)| (a, b));
    let Some(stem) = payload_stem(name) else { return false };
    let case = if parent.is_empty() { stem.to_owned() } else { format!("{parent}/{stem}") };
    if !expected.contains(&case) {
        return false;
    }
    let parsed = read_text(&path(folder, &case)).ok().and_then(|text| text::parse(&text).ok());
    // Beside a text that says nothing, nothing is known to be superfluous.
    parsed.is_none_or(|p| payload_path(folder, &case, &p.payload) == folder.join(file))
}

/// Every file below a folder, sorted, as paths with slashes.
///
/// # Errors
/// Names the folder that cannot be read.
pub fn present(folder: &Path) -> Result<Vec<String>, GoldenError> {
    let mut files = Vec::new();
    collect(folder, "", &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<(), GoldenError> {
    let fail = |error| io_error(folder, error);
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(fail)?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push(name);
        }
    }
    Ok(())
}

/// Clears away what waits and belongs to no case; lists accepted files that belong to no case, which only a
/// commit removes.
///
/// # Errors
/// Names the file or folder that cannot be read or deleted.
pub fn prune(
    pending: &Path,
    accepted: &Path,
    expected: &[String],
) -> Result<Leftover, GoldenError> {
    let unreferenced = survey(accepted, expected)?.unreferenced;
    let mut waiting = Vec::new();
    if pending.is_dir() {
        waiting = survey(pending, expected)?.unreferenced;
    }
    for path in waiting.iter().map(|file| pending.join(file)) {
        fs::remove_file(&path).map_err(|error| io_error(&path, error))?;
    }
    Ok(Leftover { waiting, unreferenced })
}
