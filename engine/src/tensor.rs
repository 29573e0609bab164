//! Tensors as stored: data type, shape and bytes. No arithmetic.
//!
//! Promises: a [`Tensor`] owns a share of the storage it points into, and its bytes are exactly as
//! long as its type and dimensions say (checked when it is made). Dimensions are in GGUF order:
//! `dims[0]` is the contiguous one.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// Storage that tensors share: a memory map of a file, or bytes owned by the process.
pub enum Storage {
    /// A read-only map of a file.
    Map(memmap2::Mmap),
    /// Bytes made or converted in memory.
    Heap(Vec<u8>),
}

impl Deref for Storage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Heap(bytes) => bytes,
        }
    }
}

/// A share of a [`Storage`].
#[derive(Clone)]
pub struct Bytes {
    storage: Arc<Storage>,
    range: Range<usize>,
}

impl Bytes {
    /// The bytes `range` of `storage`; `None` when the range is not inside it.
    #[must_use]
    pub fn new(storage: Arc<Storage>, range: Range<usize>) -> Option<Self> {
        storage.get(range.clone())?;
        Some(Self { storage, range })
    }

    /// Bytes that belong to nobody else.
    #[must_use]
    pub fn owned(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { storage: Arc::new(Storage::Heap(bytes)), range }
    }

    /// A part of these bytes, relative to their start; `None` when it is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { storage: Arc::clone(&self.storage), range: start..start + range.len() })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.range.clone()]
    }
}

/// Data types of stored tensors that the engine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Two's complement 32-bit integers.
    I32,
    /// 32 weights: f16 scale, 32 int8.
    Q8_0,
    /// 256 weights of 2 bits with 4-bit scales and minima of 16.
    Q2K,
    /// 256 weights of 4 bits with 6-bit scales and minima of 32.
    Q4K,
    /// 256 weights in groups of 8 from a grid of 256, signs apart.
    Iq2Xxs,
}

impl DType {
    /// All types, in the order of their GGUF ids.
    pub const ALL: [Self; 8] = [
        Self::F32,
        Self::F16,
        Self::Q8_0,
        Self::Q2K,
        Self::Q4K,
        Self::Iq2Xxs,
        Self::I32,
        Self::Bf16,
    ];

    /// The id of this type in a GGUF file.
    #[must_use]
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Q2K => 10,
            Self::Q4K => 12,
            Self::Iq2Xxs => 16,
            Self::I32 => 26,
            Self::Bf16 => 30,
        }
    }

    /// The type with this GGUF id, where the engine reads it.
    #[must_use]
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.ggml_id() == id)
    }

    /// Elements that share one block; rows are whole blocks.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::I32 => 1,
            Self::Q8_0 => 32,
            Self::Q2K | Self::Q4K | Self::Iq2Xxs => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q4K => 144,
            Self::Iq2Xxs => 66,
        }
    }

    /// The type's usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I32 => "I32",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q4K => "Q4_K",
            Self::Iq2Xxs => "IQ2_XXS",
        }
    }

    /// Bytes of a row of `elements`; `None` when that is not a whole number of blocks or overflows.
    #[must_use]
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// Bytes of a tensor of these dimensions; `None` when its rows are not whole blocks or a product
    /// overflows.
    #[must_use]
    pub fn tensor_bytes(self, dims: &[usize]) -> Option<usize> {
        let (first, rest) = dims.split_first()?;
        rest.iter().try_fold(self.row_bytes(*first)?, |bytes, dim| bytes.checked_mul(*dim))
    }
}

/// A stored tensor.
#[derive(Clone)]
pub struct Tensor {
    name: Arc<str>,
    dtype: DType,
    dims: Vec<usize>,
    bytes: Bytes,
}

impl Tensor {
    /// A tensor of these dimensions (contiguous one first); `None` unless `bytes` has their length.
    #[must_use]
    pub fn new(name: &str, dtype: DType, dims: Vec<usize>, bytes: Bytes) -> Option<Self> {
        (dtype.tensor_bytes(&dims)? == bytes.len()).then(|| Self {
            name: name.into(),
            dtype,
            dims,
            bytes,
        })
    }

    /// The name in the file (GGUF names, also for tensors read from safetensors).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stored type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, contiguous one first.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The stored bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}
