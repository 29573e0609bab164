//! `tidy`: rules of the workspace that neither the compiler nor clippy checks.
//!
//! Promises: looks at every file that git tracks or would track, and names file and line of each breach.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Lines after which a source file should have been split.
const LINES_MAX: usize = 620;
/// Bytes of a golden payload.
const GOLDEN_BYTES_MAX: u64 = 256 << 10;
/// Bytes of all files together.
const CHECKOUT_BYTES_MAX: u64 = 40_000_000;

/// Words that have no place in a source file, and why. Split, so that this file does not hold them.
const BANNED: &[(&[&str], &str)] = &[
    (&["TO", "DO"], "say it in the changelog or do it"),
    (&["FIX", "ME"], "say it in the changelog or do it"),
    (&["#[ign", "ore"], "a test that is not run proves nothing"),
    (&["#[should_", "panic"], "compare the error instead"),
    (&["/ro", "ot/"], "a path of one machine"),
    (&["/ho", "me/"], "a path of one machine"),
    (&["/wo", "rk/"], "a path of one machine"),
    (&["/t", "mp/"], "a path of one machine"),
];

/// Calls that are allowed in `reference/order` only.
const ORDER_ONLY: &[&str] = &[".mul_add(", ".exp()", ".ln_1p()", ".powf(", ".sum::<f"];

pub fn run() -> Result<ExitCode> {
    let breaches = breaches(&workspace::root())?;
    for breach in &breaches {
        println!("{breach}");
    }
    if breaches.is_empty() {
        println!("tidy: no breaches");
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} breaches", breaches.len());
    Ok(ExitCode::from(1))
}

/// Every breach in the files below `root`.
pub fn breaches(root: &Path) -> Result<Vec<String>> {
    let list = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).context("git ls-files")?;
    let mut breaches = Vec::new();
    let (mut files, mut total) = (0, 0);
    for name in names.lines() {
        let path = root.join(name);
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        files += 1;
        total += metadata.len();
        if name.starts_with("golden/") && metadata.len() > GOLDEN_BYTES_MAX {
            breaches.push(format!("{name}: {} bytes, at most {GOLDEN_BYTES_MAX}", metadata.len()));
        }
        if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).with_context(|| name.to_owned())?;
            source(name, &text, &mut breaches);
        }
    }
    ensure!(files > 0, "no files to look at");
    if total > CHECKOUT_BYTES_MAX {
        breaches.push(format!("checkout: {total} bytes, at most {CHECKOUT_BYTES_MAX}"));
    }
    let changelog = std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap_or_default();
    if !changelog.contains("## Unreleased") {
        breaches.push("CHANGELOG.md: no section \"## Unreleased\"".into());
    }
    Ok(breaches)
}

fn source(name: &str, text: &str, breaches: &mut Vec<String>) {
    let opens = text.lines().find(|line| !line.starts_with("#!") && !line.is_empty());
    if !opens.is_some_and(|line| line.starts_with("//!")) {
        breaches.push(format!("{name}:1: must open with //! and say what the file promises"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        breaches.push(format!("{name}: {lines} lines, at most {LINES_MAX}"));
    }
    let numeric =
        name.starts_with("engine/src/") && !name.starts_with("engine/src/reference/order");
    for (number, line) in text.lines().enumerate() {
        let mut breach = |what: &str, why: &str| {
            breaches.push(format!("{name}:{}: {what}: {why}", number + 1));
        };
        for (word, why) in BANNED {
            let word = word.concat();
            if line.contains(&word) {
                breach(&word, why);
            }
        }
        for call in ORDER_ONLY {
            if numeric && line.contains(call) {
                breach(call, "the order of float operations has one home, reference/order");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let breaches = breaches(&workspace::root()).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }

    #[test]
    fn each_rule_for_sources_sees_its_breach() {
        let seen = |name: &str, text: &str| {
            let mut breaches = Vec::new();
            source(name, text, &mut breaches);
            breaches.len()
        };
        assert_eq!(seen("a.rs", "//! Promises.\n"), 0);
        assert_eq!(seen("a.rs", "fn main() {}\n"), 1);
        assert_eq!(seen("a.rs", &("//! Long.\n".to_owned() + &"\n".repeat(LINES_MAX))), 1);
        for (word, _) in BANNED {
            assert_eq!(seen("a.rs", &format!("//! Promises.\n{}\n", word.concat())), 1);
        }
        let call = "//! Promises.\nx.mul_add(y, z)\n";
        assert_eq!(seen("engine/src/reference/norm.rs", call), 1);
        assert_eq!(seen("engine/src/reference/order.rs", call), 0);
    }
}
