//! Stub.

/// Refusals.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {}

/// Text to ids and back.
pub struct Tokenizer;
