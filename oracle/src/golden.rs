//! Goldens: what the reference computed when somebody looked, as text that a person can review.
//!
//! Promises: a golden holds a case, what it was made from (contract version, digest of the model, profile,
//! prompt, number of steps), the reason it was accepted for, what was computed, and a payload of raw f32
//! rows; two goldens are the same when all of it but the reason is, byte for byte. A new one waits in a
//! folder of its own until it is accepted by name with a reason; nothing else writes to the accepted ones.
//!
//! The text is a snapshot in the format of the `insta` crate, so its users and tools can read it. It is
//! written, read and compared here and not by `insta::assert_snapshot!`, because that takes orders from
//! the environment: `INSTA_UPDATE` and `INSTA_FORCE_PASS` turn a red into a green or write files,
//! `INSTA_WORKSPACE_ROOT` and `INSTA_PENDING_DIR` look elsewhere, and `CI` changes the default of them.
//! No environment variable is read here. A test reads every golden back with `insta` itself.
//!
//! Reading order: `text` (the snapshot), `tensors` (the payload), `store` (files, and who may write which),
//! `diff` (what moved), `spoil` (what must be seen). Leaves running the engine to `suites::goldens`.

mod diff;
mod spoil;
mod store;
mod tensors;
mod text;

use std::path::PathBuf;

pub use diff::{Difference, difference, ulp};
pub use spoil::Spoiling;
pub use store::{
    Accepted, Found, Leftover, Stored, accept, before, check_case, leave_pending, load, path,
    payload_path, present, prune, reject, survey,
};
pub use tensors::{PAYLOAD_BYTES_MAX, Tensor, Tensors};
pub use text::{Note, render};

/// What a golden was made from. If the present differs in any of it, the golden is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFrom {
    /// Version of the numerics contract.
    pub contract: String,
    /// Digest of the model file.
    pub model: String,
    /// Name of the profile.
    pub profile: String,
    /// Number of ids of the prompt and their digest.
    pub prompt: String,
    /// Greedy tokens after the prompt.
    pub steps: String,
}

impl MadeFrom {
    /// Names and values in the order of the text.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, &str); 5] {
        [
            ("contract", &self.contract),
            ("model", &self.model),
            ("profile", &self.profile),
            ("prompt", &self.prompt),
            ("steps", &self.steps),
        ]
    }

    /// What of this, as an accepted golden has it, is no longer so.
    #[must_use]
    pub fn stale(&self, present: &Self) -> Vec<String> {
        let fields = self.fields().into_iter().zip(present.fields());
        let moved = fields.filter(|(golden, present)| golden.1 != present.1);
        moved.map(|((name, golden), (_, now))| format!("{name} {golden}, now {now}")).collect()
    }
}

/// Digest of all rows of one intermediate at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapDigest {
    /// Place and name, as in `layer 2 attn_output`.
    pub name: String,
    /// SHA-256.
    pub sha256: String,
}

/// One greedy choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The token.
    pub id: u32,
    /// Bits of its logit.
    pub logit: u32,
    /// The token of the second largest logit.
    pub runner_up: u32,
    /// By how much it was behind, as printed.
    pub margin: String,
    /// First digits of the SHA-256 of the row.
    pub row: String,
}

/// A golden without the note on who let it in.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The case, which is also its path.
    pub case: String,
    /// What it was made from.
    pub made_from: MadeFrom,
    /// Digest of the logits after every token of the prompt.
    pub prompt_logits: String,
    /// Digests of intermediates, in the order in which the model reaches them.
    pub taps: Vec<TapDigest>,
    /// The greedy choices.
    pub steps: Vec<Step>,
    /// First digits of the SHA-256 of the row after the last choice.
    pub last_row: String,
    /// Raw rows, so that a difference can be located.
    pub tensors: Tensors,
}

impl Golden {
    /// Whether every byte of both is the same but for their notes.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let note = Note::Waiting { replaces: None };
        text::render(self, &note) == text::render(other, &note)
            && self.tensors.to_bytes() == other.tensors.to_bytes()
    }
}

/// A golden that cannot be compared with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// There is none.
    #[error("missing: no golden {}", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// Its file, or its payload, is not what was written.
    #[error("unreadable: {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Field and value at fault.
        why: String,
    },
    /// Something turned line ends of the text into those of another system.
    #[error(
        "unreadable: {}: line {line} ends in a carriage return: line ends were converted; \
         check it out again as .gitattributes says", path.display()
    )]
    LineEnds {
        /// The file.
        path: PathBuf,
        /// The first such line.
        line: usize,
    },
}

/// A refusal to write or delete a golden.
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
    /// A name that is no path of plain segments.
    #[error("case {case:?}: segments of letters, digits, - and _ between slashes are needed")]
    BadCase {
        /// The name.
        case: String,
    },
    /// A case that no golden waits for.
    #[error("no golden waits for {case} in {}: run verify first", folder.display())]
    NotPending {
        /// The case.
        case: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// A reason that says nothing, or that is not one line.
    #[error("--reason {reason:?}: one line that says why is needed")]
    NoReason {
        /// The reason.
        reason: String,
    },
    /// Another process put other bytes there in the meantime.
    #[error(
        "{}: another run wrote other bytes for {case} in the meantime (sha256 {found}, expected \
         {expected}); nothing was replaced, run verify again", path.display()
    )]
    Unequal {
        /// The case.
        case: String,
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What was there when this run looked.
        expected: String,
    },
    /// A payload that has no place in the repository.
    #[error("{case}: payload of {bytes} bytes, at most {PAYLOAD_BYTES_MAX}")]
    TooLarge {
        /// The case.
        case: String,
        /// Its size.
        bytes: usize,
    },
    /// A golden that cannot be read.
    #[error(transparent)]
    Problem(#[from] Problem),
}
