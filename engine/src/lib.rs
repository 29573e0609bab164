//! The DeepSeek-V4 engine.

pub mod config;
pub mod error;
pub mod format;
pub mod reference;
pub mod session;
pub mod tensor;

pub use error::{Error, ErrorKind, Result};
