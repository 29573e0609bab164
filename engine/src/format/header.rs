//! From bytes to a raw header.
//!
//! Promises: reading never panics, never looks outside the bytes and never allocates for more
//! entries than the bytes left can hold. It refuses what keeps it from finding the next field or
//! from representing a value, and nothing else.
//! Leaves to others: everything a header may say but must not mean (`validate`).

use std::fmt;

use crate::format::GgufError;
use crate::format::value::{Value, ValueType, shown};

/// The first four bytes of every GGUF file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The only version read and written.
pub(crate) const VERSION: u32 = 3;
/// Bytes of magic, version, tensor count and metadata count.
pub(crate) const FIXED_BYTES: usize = 24;
/// The most dimensions a tensor has.
pub(crate) const DIMENSIONS_MAX: usize = 4;
/// The longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = 65_535;
/// The longest tensor name, in bytes.
pub(crate) const TENSOR_NAME_BYTES_MAX: u64 = 64;

/// The fewest bytes of a metadata entry: the length of an empty key, a value type, one byte.
const METADATA_ENTRY_BYTES_MIN: usize = 8 + 4 + 1;
/// The fewest bytes of a tensor entry: the length of an empty name, a count of zero dimensions, a
/// type, an offset.
const TENSOR_ENTRY_BYTES_MIN: usize = 8 + 4 + 4 + 8;

/// A tensor entry as written.
pub(crate) struct RawTensor<'a> {
    /// The name.
    pub name: &'a str,
    /// Dimensions; those from `n_dims` on are zero and mean nothing.
    dims: [u64; DIMENSIONS_MAX],
    n_dims: usize,
    /// The id of the type.
    pub type_id: u32,
    /// Where the tensor begins, counted from the start of the tensor data.
    pub offset: u64,
}

impl RawTensor<'_> {
    /// The dimensions, contiguous one first.
    pub(crate) fn dims(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }
}

/// A header as written: every field readable, none believed.
pub(crate) struct RawHeader<'a> {
    /// Metadata in file order, duplicates included.
    pub metadata: Vec<(String, Value)>,
    /// Tensor entries in file order.
    pub tensors: Vec<RawTensor<'a>>,
    /// Bytes up to the end of the last tensor entry.
    pub len: usize,
}

/// Reads the header at the start of `bytes`.
///
/// # Errors
/// Names the first field that cannot be read.
pub(crate) fn read(bytes: &[u8]) -> Result<RawHeader<'_>, GgufError> {
    if bytes.len() < FIXED_BYTES {
        return Err(match bytes.first_chunk() {
            Some(&magic) if magic != MAGIC => GgufError::Magic { magic },
            _ => GgufError::FileTooShort { len: bytes.len() },
        });
    }
    let mut cursor = Cursor { bytes, at: 0 };
    let magic = cursor.array(Field::Fixed("magic"))?;
    if magic != MAGIC {
        return Err(GgufError::Magic { magic });
    }
    match cursor.u32(Field::Fixed("version"))? {
        VERSION => {}
        version if version.swap_bytes() == VERSION => {
            return Err(GgufError::BigEndian { version });
        }
        version => return Err(GgufError::Version { version }),
    }
    let tensor_count = cursor.u64(Field::Fixed("tensor count"))?;
    let metadata_count = cursor.u64(Field::Fixed("metadata count"))?;
    let metadata = read_metadata(&mut cursor, metadata_count)?;
    let tensors = read_tensors(&mut cursor, tensor_count)?;
    Ok(RawHeader { metadata, tensors, len: cursor.at })
}

fn read_metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<(String, Value)>, GgufError> {
    let left = cursor.left();
    let max = left / METADATA_ENTRY_BYTES_MIN;
    let count_checked = usize::try_from(count).ok().filter(|count| *count <= max);
    let count = count_checked.ok_or(GgufError::MetadataCount { count, left, max })?;
    let mut metadata = Vec::with_capacity(count);
    for index in 0..count {
        let field = Field::MetadataEntry(index, "key");
        let len = cursor.u64(Field::MetadataEntry(index, "length of the key"))?;
        if len > KEY_BYTES_MAX {
            return Err(GgufError::KeyTooLong { index, len, max: KEY_BYTES_MAX });
        }
        let key = cursor.text(len, field)?;
        metadata.push((key.to_owned(), read_value(cursor, key)?));
    }
    Ok(metadata)
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let id = cursor.u32(Field::Metadata(key, "value type"))?;
    let value_type = ValueType::from_id(id)
        .ok_or_else(|| GgufError::UnknownValueType { key: key.to_owned(), id })?;
    let value = Field::Metadata(key, "value");
    Ok(match value_type {
        ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.array(value)?)),
        ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(value)?)),
        ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(value)?)),
        ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(value)?)),
        ValueType::U32 => Value::U32(u32::from_le_bytes(cursor.array(value)?)),
        ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(value)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(value)?)),
        ValueType::Bool => {
            let [byte] = cursor.array(value)?;
            Value::Bool(truth(byte, value)?)
        }
        ValueType::String => Value::String(cursor.string(value)?.to_owned()),
        ValueType::Array => read_array(cursor, key)?,
        ValueType::U64 => Value::U64(u64::from_le_bytes(cursor.array(value)?)),
        ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(value)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(value)?)),
    })
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let id = cursor.u32(Field::Metadata(key, "element type"))?;
    let element_type = ValueType::from_id(id)
        .ok_or_else(|| GgufError::UnknownElementType { key: key.to_owned(), id })?;
    let len = cursor.u64(Field::Metadata(key, "length of the array"))?;
    let left = cursor.left();
    let max = left / element_type.bytes_min();
    let len = usize::try_from(len)
        .ok()
        .filter(|len| *len <= max)
        .ok_or_else(|| GgufError::ArrayLength { key: key.to_owned(), len, left, max })?;
    Ok(match element_type {
        ValueType::U8 => Value::U8Array(cursor.numbers(len, key, u8::from_le_bytes)?),
        ValueType::I8 => Value::I8Array(cursor.numbers(len, key, i8::from_le_bytes)?),
        ValueType::U16 => Value::U16Array(cursor.numbers(len, key, u16::from_le_bytes)?),
        ValueType::I16 => Value::I16Array(cursor.numbers(len, key, i16::from_le_bytes)?),
        ValueType::U32 => Value::U32Array(cursor.numbers(len, key, u32::from_le_bytes)?),
        ValueType::I32 => Value::I32Array(cursor.numbers(len, key, i32::from_le_bytes)?),
        ValueType::F32 => Value::F32Array(cursor.numbers(len, key, f32::from_le_bytes)?),
        ValueType::U64 => Value::U64Array(cursor.numbers(len, key, u64::from_le_bytes)?),
        ValueType::I64 => Value::I64Array(cursor.numbers(len, key, i64::from_le_bytes)?),
        ValueType::F64 => Value::F64Array(cursor.numbers(len, key, f64::from_le_bytes)?),
        ValueType::Bool => {
            let mut truths = Vec::with_capacity(len);
            for element_idx in 0..len {
                let field = Field::Element(key, element_idx);
                let [byte] = cursor.array(field)?;
                truths.push(truth(byte, field)?);
            }
            Value::BoolArray(truths)
        }
        ValueType::String => {
            let mut strings = Vec::with_capacity(len);
            for element_idx in 0..len {
                strings.push(cursor.string(Field::Element(key, element_idx))?.to_owned());
            }
            Value::StringArray(strings)
        }
        ValueType::Array => return Err(GgufError::NestedArray { key: key.to_owned() }),
    })
}

fn truth(byte: u8, field: Field<'_>) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        value => Err(GgufError::Bool { field: field.to_string(), value }),
    }
}

fn read_tensors<'a>(cursor: &mut Cursor<'a>, count: u64) -> Result<Vec<RawTensor<'a>>, GgufError> {
    let left = cursor.left();
    let max = left / TENSOR_ENTRY_BYTES_MIN;
    let count_checked = usize::try_from(count).ok().filter(|count| *count <= max);
    let count = count_checked.ok_or(GgufError::TensorCount { count, left, max })?;
    let mut tensors = Vec::with_capacity(count);
    for index in 0..count {
        let len = cursor.u64(Field::TensorEntry(index, "length of the name"))?;
        if len > TENSOR_NAME_BYTES_MAX {
            let max = TENSOR_NAME_BYTES_MAX;
            return Err(GgufError::TensorNameTooLong { index, len, max });
        }
        let name = cursor.text(len, Field::TensorEntry(index, "name"))?;
        let n_dims = cursor.u32(Field::Tensor(name, "number of dimensions"))?;
        let mut dims = [0; DIMENSIONS_MAX];
        let count_error = || GgufError::DimensionCount { name: name.to_owned(), count: n_dims };
        let used = usize::try_from(n_dims).ok().and_then(|n_dims| dims.get_mut(..n_dims));
        let used = used.filter(|used| !used.is_empty()).ok_or_else(count_error)?;
        for (dim_idx, dim) in used.iter_mut().enumerate() {
            *dim = cursor.u64(Field::Dimension(name, dim_idx))?;
        }
        let n_dims = used.len();
        let type_id = cursor.u32(Field::Tensor(name, "type"))?;
        let offset = cursor.u64(Field::Tensor(name, "offset"))?;
        tensors.push(RawTensor { name, dims, n_dims, type_id, offset });
    }
    Ok(tensors)
}

/// Which field is being read; becomes text only in a refusal.
#[derive(Clone, Copy)]
enum Field<'a> {
    Fixed(&'static str),
    MetadataEntry(usize, &'static str),
    Metadata(&'a str, &'static str),
    Element(&'a str, usize),
    TensorEntry(usize, &'static str),
    Tensor(&'a str, &'static str),
    Dimension(&'a str, usize),
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(part) => f.write_str(part),
            Self::MetadataEntry(index, part) => write!(f, "metadata entry {index}: {part}"),
            Self::Metadata(key, part) => write!(f, "metadata `{}`: {part}", shown(key)),
            Self::Element(key, index) => write!(f, "metadata `{}`: element {index}", shown(key)),
            Self::TensorEntry(index, part) => write!(f, "tensor entry {index}: {part}"),
            Self::Tensor(name, part) => write!(f, "tensor `{}`: {part}", shown(name)),
            Self::Dimension(name, index) => {
                write!(f, "tensor `{}`: dimension {index}", shown(name))
            }
        }
    }
}

/// A place in the bytes. INVARIANT: `at <= bytes.len()`.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, needed: usize, field: Field<'_>) -> Result<&'a [u8], GgufError> {
        let (taken, _) = self.bytes[self.at..].split_at_checked(needed).ok_or_else(|| {
            let (offset, left) = (self.at, self.left());
            GgufError::HeaderCutOff { field: field.to_string(), needed, offset, left }
        })?;
        self.at += needed;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: Field<'_>) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, field)?);
        Ok(array)
    }

    fn u32(&mut self, field: Field<'_>) -> Result<u32, GgufError> {
        self.array(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: Field<'_>) -> Result<u64, GgufError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// `len` numbers of `N` bytes; the caller has checked that they fit.
    fn numbers<T, const N: usize>(
        &mut self,
        len: usize,
        key: &str,
        number: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        let bytes = self.take(len * N, Field::Metadata(key, "array"))?;
        let (chunks, _) = bytes.as_chunks();
        Ok(chunks.iter().map(|chunk| number(*chunk)).collect())
    }

    /// A string with its length in front.
    fn string(&mut self, field: Field<'_>) -> Result<&'a str, GgufError> {
        let len = self.u64(field)?;
        self.text(len, field)
    }

    /// `len` bytes of UTF-8.
    fn text(&mut self, len: u64, field: Field<'_>) -> Result<&'a str, GgufError> {
        let left = self.left();
        let fits = usize::try_from(len).ok().filter(|len| *len <= left);
        let fits =
            fits.ok_or_else(|| GgufError::StringLength { field: field.to_string(), len, left })?;
        let bytes = self.take(fits, field)?;
        std::str::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to();
            GgufError::Utf8 { field: field.to_string(), at, byte: bytes[at] }
        })
    }
}
