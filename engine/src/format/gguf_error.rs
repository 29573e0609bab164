//! Refusals of the GGUF container.
//!
//! Promises: one variant per rule of the format, carrying the field and the value at fault; text
//! that came from the file is escaped and cut in messages. [`GgufError::NAMES`] lists every variant
//! (the compiler checks it), so that a variant without a malformed file in `fixtures/hostile` is a
//! red test.

use crate::format::value::shown;
use crate::tensor::DType;

/// Refusals of the container format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GgufError {
    /// The file cannot hold the fixed part of the header.
    #[error("file is {len} bytes, the fixed part of the header alone is 24")]
    FileTooShort { len: usize },
    /// The first four bytes are not `GGUF`.
    #[error("magic is `{}`, not `GGUF`", magic.escape_ascii())]
    Magic { magic: [u8; 4] },
    /// The version only makes sense with its bytes swapped.
    #[error("version is {version:#010x}: the file is big-endian, only little-endian is read")]
    BigEndian { version: u32 },
    /// A version other than 3.
    #[error("version is {version}, only 3 is read")]
    Version { version: u32 },
    /// More metadata entries than fit.
    #[error("metadata count is {count}, the {left} bytes left in the file hold at most {max}")]
    MetadataCount { count: u64, left: usize, max: usize },
    /// More tensor entries than fit.
    #[error("tensor count is {count}, the {left} bytes left in the file hold at most {max}")]
    TensorCount { count: u64, left: usize, max: usize },
    /// The file ends inside a field of the header.
    #[error("{field} needs {needed} bytes at offset {offset}, the file has {left} left")]
    HeaderCutOff { field: String, needed: usize, offset: usize, left: usize },
    /// A string reaches beyond the end of the file.
    #[error("{field} has a length of {len}, the file has {left} bytes left")]
    StringLength { field: String, len: u64, left: usize },
    /// A string is not UTF-8.
    #[error("{field} is not UTF-8: byte {at} is {byte:#04x}")]
    Utf8 { field: String, at: usize, byte: u8 },
    /// A key of no characters.
    #[error("metadata entry {index}: key is empty")]
    EmptyKey { index: usize },
    /// A key longer than the format allows.
    #[error("metadata entry {index}: key has a length of {len}, at most {max} is allowed")]
    KeyTooLong { index: usize, len: u64, max: u64 },
    /// Two entries of one key.
    #[error("metadata key `{}` appears twice", shown(key))]
    DuplicateKey { key: String },
    /// The value type is none that the format defines.
    #[error("metadata `{}`: value type is {id}, no type has that id", shown(key))]
    UnknownValueType { key: String, id: u32 },
    /// The element type is none that the format defines.
    #[error("metadata `{}`: element type is {id}, no type has that id", shown(key))]
    UnknownElementType { key: String, id: u32 },
    /// An array of arrays.
    #[error("metadata `{}`: element type is 9 (array), nested arrays are not read", shown(key))]
    NestedArray { key: String },
    /// An array reaches beyond the end of the file.
    #[error(
        "metadata `{}`: array has a length of {len}, the {left} bytes left in the file hold at \
         most {max}",
        shown(key)
    )]
    ArrayLength { key: String, len: u64, left: usize, max: usize },
    /// A truth value that is neither 0 nor 1.
    #[error("{field} is a bool of value {value}, only 0 and 1 are read")]
    Bool { field: String, value: u8 },
    /// The alignment is not a u32.
    #[error("metadata `general.alignment`: value type is {found}, not u32")]
    AlignmentType { found: &'static str },
    /// The alignment is not a usable power of two.
    #[error("metadata `general.alignment` is {alignment}, not a power of two from {min} to {max}")]
    Alignment { alignment: u32, min: u32, max: u32 },
    /// A tensor name of no characters.
    #[error("tensor entry {index}: name is empty")]
    EmptyTensorName { index: usize },
    /// A tensor name longer than the format allows.
    #[error("tensor entry {index}: name has a length of {len}, at most {max} is allowed")]
    TensorNameTooLong { index: usize, len: u64, max: u64 },
    /// Two tensors of one name.
    #[error("tensor `{}` appears twice", shown(name))]
    DuplicateTensor { name: String },
    /// A tensor without dimensions or with too many.
    #[error("tensor `{}`: number of dimensions is {count}, not 1 to 4", shown(name))]
    DimensionCount { name: String, count: u32 },
    /// A dimension of zero.
    #[error("tensor `{}`: dimension {dim_idx} is zero", shown(name))]
    ZeroDimension { name: String, dim_idx: usize },
    /// The number of elements or of bytes is beyond what 64 bits count.
    #[error("tensor `{}`: size of {dims:?} overflows", shown(name))]
    SizeOverflow { name: String, dims: Vec<u64> },
    /// A tensor type that exists and that this engine does not read.
    #[error("tensor `{}`: type {id} ({type_name}) is not supported", shown(name))]
    UnsupportedTensorType { name: String, id: u32, type_name: &'static str },
    /// A tensor type that does not exist.
    #[error("tensor `{}`: type is {id}, no type has that id", shown(name))]
    UnknownTensorType { name: String, id: u32 },
    /// Rows that are not whole blocks.
    #[error(
        "tensor `{}`: dimension 0 is {elements}, not a multiple of {}, the block of {}",
        shown(name),
        dtype.block_elements(),
        dtype.name()
    )]
    PartialBlock { name: String, elements: u64, dtype: DType },
    /// A tensor that does not begin at a multiple of the alignment.
    #[error(
        "tensor `{}`: offset is {offset}, not a multiple of the alignment {alignment}",
        shown(name)
    )]
    UnalignedOffset { name: String, offset: u64, alignment: u32 },
    /// The file ends before this tensor does; it is the first such tensor in the order of offsets.
    #[error(
        "tensor `{}`: ends {beyond} bytes beyond the end of the file ({file_len} bytes), tensors \
         cut off: {tensors}",
        shown(name)
    )]
    BeyondEnd { name: String, beyond: u128, file_len: usize, tensors: usize },
    /// Two tensors share some bytes without being the same range.
    #[error("tensors `{}` and `{}` overlap in {bytes} bytes", shown(first), shown(second))]
    Overlap { first: String, second: String, bytes: usize },
    /// Two tensors are the same range and disagree about its type.
    #[error(
        "tensors `{}` and `{}` are the same bytes with types {} and {}",
        shown(first),
        shown(second),
        first_dtype.name(),
        second_dtype.name()
    )]
    AliasType { first: String, first_dtype: DType, second: String, second_dtype: DType },
}

/// Ties the list of names to the variants: a variant missing here does not compile.
macro_rules! names {
    ($($variant:ident)*) => {
        impl GgufError {
            /// The name of every variant.
            pub const NAMES: &[&str] = &[$(stringify!($variant)),*];

            /// The name of the variant, one of [`GgufError::NAMES`].
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

names! {
    FileTooShort Magic BigEndian Version MetadataCount TensorCount HeaderCutOff StringLength Utf8
    EmptyKey KeyTooLong DuplicateKey UnknownValueType UnknownElementType NestedArray ArrayLength
    Bool AlignmentType Alignment EmptyTensorName TensorNameTooLong DuplicateTensor DimensionCount
    ZeroDimension SizeOverflow UnsupportedTensorType UnknownTensorType PartialBlock UnalignedOffset
    BeyondEnd Overlap AliasType
}
