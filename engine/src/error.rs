//! The one error type of the crate.
//!
//! Promises: every refusal of an input is a variant of [`ErrorKind`] that carries the field and the
//! value at fault, and [`Error`] adds the file. Input never panics; a broken invariant of our own does.
//! Messages are lower case without a full stop. Exit codes are the command line's business.

use std::fmt;
use std::path::{Path, PathBuf};

/// What went wrong, and in which file where there is one.
#[derive(Debug)]
pub struct Error {
    path: Option<PathBuf>,
    kind: Box<ErrorKind>,
}

impl Error {
    /// The refusal itself.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The file the refusal is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The same refusal, naming `path` unless a file is named already.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_path_buf());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}: {}", path.display(), self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl<K: Into<ErrorKind>> From<K> for Error {
    fn from(kind: K) -> Self {
        Self { path: None, kind: Box::new(kind.into()) }
    }
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which the engine refuses an input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused to open or map the file.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// The GGUF container breaks a rule of the format.
    #[error(transparent)]
    Gguf(#[from] crate::format::GgufError),
    /// A safetensors file or the `config.json` beside it cannot be used.
    #[error("{field}: {problem}")]
    Safetensors {
        /// Which part of the file or of its configuration.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A hyper-parameter is missing, of the wrong type or not usable.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The model lacks a tensor, or holds it in a shape or type that the operation cannot use.
    #[error(transparent)]
    Weights(#[from] crate::format::WeightsError),
    /// The vocabulary or the merges cannot make a tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] crate::format::TokenizerError),
    /// Messages cannot be rendered.
    #[error(transparent)]
    Chat(#[from] crate::format::chat::ChatError),
    /// A forward call cannot be carried out.
    #[error(transparent)]
    Run(#[from] crate::session::RunError),
    /// A switch is unknown or has a value that it cannot have.
    #[error(transparent)]
    Switch(#[from] crate::switches::SwitchError),
}
