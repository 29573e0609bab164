//! The bytes of malformed files, field by field.
//!
//! Promises: every field is written as given, little-endian, whether it makes sense or not.
//! Leaves to others: which fields, in which order.

use super::HostileFile;

/// Bytes of a file, put together field by field.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// The fixed part of a header.
    pub fn header(n_tensors: u64, n_metadata: u64) -> Self {
        Self::default().bytes(b"GGUF").u32(3).u64(n_tensors).u64(n_metadata)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub fn u8(self, number: u8) -> Self {
        self.bytes(&[number])
    }

    pub fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    /// A length and as many bytes.
    pub fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    /// The key and the value type of a metadata entry.
    pub fn key(self, key: &str, value_type: u32) -> Self {
        self.text(key.as_bytes()).u32(value_type)
    }

    /// A tensor entry.
    pub fn tensor(self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> Self {
        let raw = self.text(name.as_bytes()).u32(dims.len() as u32);
        dims.iter().fold(raw, |raw, dim| raw.u64(*dim)).u32(type_id).u64(offset)
    }

    /// Padding, and tensor data of `len` bytes.
    pub fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32), 0);
        self.0.resize(self.0.len() + len, 0x5a);
        self
    }
}

// Ids of the value types in use.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const BOOL: u32 = 7;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;

// Ids of the tensor types in use.
pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q8_0: u32 = 8;
pub const Q2_K: u32 = 10;
pub const IQ2_XXS: u32 = 16;

pub fn hostile(
    name: &'static str,
    expected: &'static str,
    message: &'static str,
    why: &'static str,
    raw: Raw,
) -> HostileFile {
    HostileFile { name, bytes: raw.0, expected, message, why }
}
