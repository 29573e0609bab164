//! An opened GGUF v3 file.
//!
//! Promises: a [`Gguf`] passed every check of `validate`, so its tensors have the bytes they claim
//! and a cut-off file never opens; opening copies metadata and nothing of tensor data, and takes
//! less than ten times the size of the file in memory, whatever the file says.
//! May assume: a mapped file does not change or shrink while it is open.
//! Leaves to others: which keys and tensors a model needs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::format::validate::Placed;
use crate::format::{GgufError, Metadata, header, validate};
use crate::tensor::{Bytes, Storage, Tensor};

/// A GGUF file that passed every check.
pub struct Gguf {
    path: Option<PathBuf>,
    metadata: Metadata,
    alignment: u32,
    data_start: usize,
    tensors: Vec<Tensor>,
    /// Indices into `tensors` in the order of names.
    by_name: Vec<usize>,
}

impl Gguf {
    /// Maps and checks the file at `path`.
    ///
    /// # Errors
    /// Names the file, the field and the value at fault.
    pub fn open(path: &Path) -> Result<Self> {
        let load = || -> Result<Self> { Ok(Self::load(map(path)?, Some(path.to_path_buf()))?) };
        load().map_err(|error| error.in_file(path))
    }

    /// Checks a file held in memory.
    ///
    /// # Errors
    /// Names the field and the value at fault.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self::load(Storage::Heap(bytes), None)?)
    }

    fn load(storage: Storage, path: Option<PathBuf>) -> std::result::Result<Self, GgufError> {
        let storage = Arc::new(storage);
        let checked = validate::validate(header::read(&storage)?, storage.len())?;
        let tensors = checked.tensors.into_iter().map(|placed| tensor(&storage, placed)).collect();
        Ok(Self {
            path,
            metadata: checked.metadata,
            alignment: checked.alignment,
            data_start: checked.data_start,
            tensors,
            by_name: checked.by_name,
        })
    }

    /// The path, where the file came from one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The metadata.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The alignment of tensor data in the file.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Where tensor data begins in the file.
    #[must_use]
    pub fn data_start(&self) -> usize {
        self.data_start
    }

    /// The tensors in file order.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let found = self.by_name.binary_search_by_key(&name, |index| self.tensors[*index].name());
        found.ok().map(|place| &self.tensors[self.by_name[place]])
    }
}

fn map(path: &Path) -> Result<Storage> {
    // Asked before opening, since opening a pipe waits for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file").into());
    }
    let file = File::open(path)?;
    // SAFETY: the map is read-only, and that nobody changes the file while it is open is what this
    // module asks of its callers.
    Ok(Storage::Map(unsafe { memmap2::Mmap::map(&file) }?))
}

fn tensor(storage: &Arc<Storage>, placed: Placed<'_>) -> Tensor {
    let bytes = Bytes::new(Arc::clone(storage), placed.range);
    // INVARIANT: `validate` saw the range inside the file and as long as type and dimensions say.
    bytes
        .and_then(|bytes| Tensor::new(placed.name, placed.dtype, placed.dims, bytes))
        .expect("a validated tensor lies inside its file")
}
