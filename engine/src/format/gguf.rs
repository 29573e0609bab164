//! An opened GGUF v3 file.

use std::path::Path;

use crate::error::Result;
use crate::format::Metadata;
use crate::tensor::Tensor;

/// Refusals of the container format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {}

/// A GGUF file that passed every check.
pub struct Gguf {
    metadata: Metadata,
    tensors: Vec<Tensor>,
}

impl Gguf {
    /// Maps and checks the file at `path`.
    ///
    /// # Errors
    /// Names the file, the field and the value at fault.
    pub fn open(_path: &Path) -> Result<Self> {
        Ok(Self { metadata: Metadata::new(), tensors: Vec::new() })
    }

    /// The metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in file order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name() == name)
    }
}
