//! Goldens: what the reference computed when somebody looked, as text that a person can review.
//!
//! Promises: a golden holds a case, what it was made from (digest of the model, prompt, profile, contract
//! version), the reason it was accepted for, and a body; two goldens are equal when everything but the
//! reason is, byte for byte. A new one waits in a folder of its own until it is accepted by name with a
//! reason; nothing else writes to the accepted ones. A missing, unreadable or unreferenced file is red.

use std::fs;
use std::path::{Path, PathBuf};

/// First line of every golden.
const TITLE: &str = "lockstep golden stream";
/// The line that is not compared.
const REASON: &str = "reason: ";

/// A golden as text without its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    /// The case, which is also its path.
    pub case: String,
    /// What it was made from, as `name: value`.
    pub made_from: Vec<(&'static str, String)>,
    /// What was computed, a line each.
    pub body: Vec<String>,
}

/// A golden file that cannot be used as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// The file system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A case that no golden waits for.
    #[error("no golden waits for {case} in {}: run verify first", folder.display())]
    NotPending {
        /// The case.
        case: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// A reason that says nothing.
    #[error("--reason: one line that says why is needed")]
    NoReason,
}

/// The file of a case below a folder of goldens.
#[must_use]
pub fn path(folder: &Path, case: &str) -> PathBuf {
    folder.join(format!("{case}.txt"))
}

impl Golden {
    /// The lines that are compared.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![TITLE.to_owned(), format!("case: {}", self.case)];
        lines.extend(self.made_from.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.push(String::new());
        lines.extend(self.body.iter().cloned());
        lines
    }

    /// The first difference from the accepted golden below `folder`, or `None` when it is equal.
    #[must_use]
    pub fn difference(&self, folder: &Path) -> Option<String> {
        let path = path(folder, &self.case);
        let accepted = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Some(format!("no accepted golden: {}: {error}", path.display())),
        };
        let ours = self.lines();
        let numbered = accepted.lines().enumerate().map(|(index, line)| (index + 1, line));
        let mut theirs = numbered.filter(|(_, line)| !line.starts_with(REASON));
        for ours in &ours {
            match theirs.next() {
                Some((_, theirs)) if theirs == ours => {}
                Some((number, theirs)) => {
                    return Some(format!("line {number}: {ours:?}, golden {theirs:?}"));
                }
                None => return Some(format!("golden ends before {ours:?}")),
            }
        }
        theirs.next().map(|(number, line)| format!("golden goes on in line {number}: {line:?}"))
    }

    /// Puts this golden where it waits to be accepted.
    ///
    /// # Errors
    /// Names the file that could not be written.
    pub fn leave_pending(&self, folder: &Path) -> Result<(), GoldenError> {
        write(&path(folder, &self.case), &(self.lines().join("\n") + "\n"))
    }
}

fn write(path: &Path, text: &str) -> Result<(), GoldenError> {
    let fail = |error| GoldenError::Io { path: path.to_path_buf(), error };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(fail)?;
    }
    // By rename, so that a reader never meets half a file.
    let partial = path.with_extension("partial");
    fs::write(&partial, text).map_err(fail)?;
    fs::rename(&partial, path).map_err(fail)
}

/// Accepts the golden that waits for `case`.
///
/// # Errors
/// When none waits, the reason is empty or longer than a line, or a file cannot be read or written.
pub fn accept(
    pending: &Path,
    accepted: &Path,
    case: &str,
    reason: &str,
) -> Result<PathBuf, GoldenError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.contains('\n') {
        return Err(GoldenError::NoReason);
    }
    let from = path(pending, case);
    let Ok(text) = fs::read_to_string(&from) else {
        return Err(GoldenError::NotPending { case: case.into(), folder: pending.into() });
    };
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let to = path(accepted, case);
    write(&to, &format!("{head}\n{REASON}{reason}\n\n{body}"))?;
    fs::remove_file(&from).map_err(|error| GoldenError::Io { path: from, error })?;
    Ok(to)
}

/// Cases of the files below a folder of goldens, sorted.
///
/// # Errors
/// Names the folder that cannot be read.
pub fn list(folder: &Path) -> Result<Vec<String>, GoldenError> {
    let mut cases = Vec::new();
    collect(folder, "", &mut cases)?;
    cases.sort();
    Ok(cases)
}

fn collect(folder: &Path, prefix: &str, cases: &mut Vec<String>) -> Result<(), GoldenError> {
    let fail = |error| GoldenError::Io { path: folder.to_path_buf(), error };
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), cases)?;
        } else {
            cases.push(format!("{prefix}{}", name.strip_suffix(".txt").unwrap_or(&name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Golden {
        Golden {
            case: "model/prompt".into(),
            made_from: vec![("contract", "1".into())],
            body: vec!["0 17 3f800000".into(), "1 18 40000000".into()],
        }
    }

    #[test]
    fn an_accepted_golden_is_equal_until_a_character_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (pending, accepted) = (folder.path().join("pending"), folder.path().join("accepted"));
        let golden = golden();
        assert!(golden.difference(&accepted).unwrap().contains("no accepted golden"));
        assert!(accept(&pending, &accepted, "model/prompt", "why").is_err(), "none waits yet");
        golden.leave_pending(&pending).unwrap();
        assert!(matches!(
            accept(&pending, &accepted, "model/prompt", "  "),
            Err(GoldenError::NoReason)
        ));
        let path = accept(&pending, &accepted, "model/prompt", "first").unwrap();
        assert_eq!(golden.difference(&accepted), None);
        assert_eq!(list(&accepted).unwrap(), ["model/prompt"]);
        assert!(list(&pending).unwrap().is_empty());

        let text = fs::read_to_string(&path).unwrap();
        for index in text.match_indices(|c: char| c.is_ascii_digit()).map(|(index, _)| index) {
            let mut bytes = text.clone().into_bytes();
            bytes[index] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert!(golden.difference(&accepted).is_some(), "byte {index}");
        }
        fs::write(&path, text.clone() + "2 19 40400000\n").unwrap();
        assert!(golden.difference(&accepted).unwrap().contains("goes on"));
        fs::write(&path, &text[..text.len() - 16]).unwrap();
        assert!(golden.difference(&accepted).is_some(), "cut short");
    }
}
