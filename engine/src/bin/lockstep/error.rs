//! Why the program ends without having done what it was asked for.
//!
//! Promises: every failure names the option, or the file, and the value at fault. [`Failure::Closed`] is
//! none: who reads the output has had enough.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for results of the program.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Every way in which the program ends early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The engine refuses an input.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// An option contradicts another one or the model.
    #[error("{option}: {problem}")]
    Option {
        /// The option, with its value where that is at fault.
        option: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file holds something else than it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Something that others have and this program lacks.
    #[error("{what} is not built: {instead}")]
    NotBuilt {
        /// The option.
        what: String,
        /// What can be done.
        instead: &'static str,
    },
    /// The reader of standard output went away.
    #[error("standard output: closed")]
    Closed,
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl Failure {
    /// A refusal of an option.
    pub fn option(option: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Option { option: option.into(), problem: problem.into() }
    }

    /// A refusal of a file.
    pub fn file(path: &Path, problem: impl ToString) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.to_string() }
    }

    /// A failure to write standard output.
    pub fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Output(error),
        }
    }
}
