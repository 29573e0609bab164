//! How drafts are verified, and why so.
//!
//! Promises: together in one forward call only where the probe has found that to be equal to one token a
//! call; who asks for strict verification gets it without a probe.

use engine::decode::{Probe, Verification};
use engine::switches::Setting;
use serde::Serialize;

/// The mode in force.
pub struct Mode {
    /// How drafts are verified.
    pub verification: Verification,
    /// Why so.
    pub why: String,
    /// What the probe found, where it ran.
    pub probe: Option<Probe>,
}

impl Mode {
    /// Decides; `probe` is run unless strict verification was asked for.
    pub fn decide<E>(
        strict: Setting<bool>,
        probe: impl FnOnce() -> Result<Probe, E>,
    ) -> Result<Self, E> {
        if strict.value {
            let why = strict.source.to_string();
            return Ok(Self { verification: Verification::Strict, why, probe: None });
        }
        let probe = probe()?;
        let (verification, why) = match probe {
            Probe::Equal { rows } => {
                let why =
                    format!("probe: {rows} rows of calls together equal those of calls alone");
                (Verification::Combined, why)
            }
            Probe::Different { width, row } if row == width => {
                let why = format!("probe: a call of {width} rows leaves another state");
                (Verification::Strict, why)
            }
            Probe::Different { width, row } => {
                let why = format!("probe: a call of {width} rows differs at row {row}");
                (Verification::Strict, why)
            }
        };
        Ok(Self { verification, why, probe: Some(probe) })
    }

    /// Whether the mode is another one than was asked for.
    pub fn fell_back(&self) -> bool {
        matches!(self.probe, Some(Probe::Different { .. }))
    }
}

/// What a probe found, in the report.
#[derive(Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Finding {
    /// All rows and states were equal.
    Equal {
        /// Rows compared.
        rows: usize,
    },
    /// Bits differ.
    Different {
        /// Rows in the call.
        width: usize,
        /// The first row that differs; the width itself when only the state does.
        row: usize,
    },
}

impl From<Probe> for Finding {
    fn from(probe: Probe) -> Self {
        match probe {
            Probe::Equal { rows } => Self::Equal { rows },
            Probe::Different { width, row } => Self::Different { width, row },
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::switches::Source;

    use super::*;

    fn decide(strict: bool, probe: Option<Probe>) -> Mode {
        let setting = Setting { value: strict, source: Source::Option("--mtp-strict") };
        Mode::decide(setting, || probe.ok_or("must not run")).unwrap()
    }

    #[test]
    fn a_difference_falls_back_to_strict_and_names_width_and_row() {
        let mode = decide(false, Some(Probe::Different { width: 3, row: 1 }));
        assert!(mode.verification == Verification::Strict && mode.fell_back());
        assert!(mode.why.contains("3 rows") && mode.why.contains("row 1"), "{}", mode.why);
        let state = decide(false, Some(Probe::Different { width: 3, row: 3 }));
        assert!(state.verification == Verification::Strict && state.fell_back());
        assert!(state.why.contains("3 rows") && state.why.contains("state"), "{}", state.why);
    }

    #[test]
    fn equality_is_what_combined_needs_and_strict_runs_no_probe() {
        let mode = decide(false, Some(Probe::Equal { rows: 5 }));
        assert!(mode.verification == Verification::Combined && !mode.fell_back());
        let mode = decide(true, None);
        assert!(mode.verification == Verification::Strict && !mode.fell_back());
        assert_eq!(mode.why, "option --mtp-strict");
    }
}
