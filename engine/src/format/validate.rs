//! The gate: a raw header and the length of its file become tensors, or a refusal.
//!
//! Promises: behind it every key and every tensor name is unique and not empty, every tensor has
//! one to four dimensions, none zero, of a type that the engine reads in whole blocks, and lies
//! inside the file at a multiple of the alignment; two tensors share bytes only if they are the
//! same range of the same type (a tied weight). The first fault is refused, in an order that
//! depends on nothing but the bytes: keys, alignment, each tensor by itself in file order, names,
//! the end of the file, overlaps.
//! May assume: `header` has read the whole header. Allows: gaps between tensors, and bytes after
//! the last one.
//! Leaves to others: which keys and tensors a model needs, and every byte of tensor data.

use std::ops::Range;

use crate::format::header::{RawHeader, RawTensor};
use crate::format::{GgufError, Metadata, Value};
use crate::tensor::DType;

/// The alignment of a file that does not say.
pub(crate) const ALIGNMENT_DEFAULT: u32 = 32;
/// The format asks for a multiple of 8, which also keeps every stored number aligned in a map.
pub(crate) const ALIGNMENT_MIN: u32 = 8;
/// The largest page of any machine this could be for; more would be padding that serves nobody.
pub(crate) const ALIGNMENT_MAX: u32 = 65_536;
/// The key that holds the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// A tensor that the file holds.
pub(crate) struct Placed<'a> {
    /// The name.
    pub name: &'a str,
    /// The type.
    pub dtype: DType,
    /// The dimensions, contiguous one first.
    pub dims: Vec<usize>,
    /// Its bytes in the file.
    pub range: Range<usize>,
}

/// A file that passed.
pub(crate) struct Checked<'a> {
    /// The metadata.
    pub metadata: Metadata,
    /// The alignment of tensor data.
    pub alignment: u32,
    /// Where tensor data begins in the file.
    pub data_start: usize,
    /// The tensors in file order.
    pub tensors: Vec<Placed<'a>>,
    /// Indices into `tensors` in the order of names.
    pub by_name: Vec<usize>,
}

/// Checks everything that a header can get wrong.
///
/// # Errors
/// Names the first fault.
pub(crate) fn validate(header: RawHeader<'_>, file_len: usize) -> Result<Checked<'_>, GgufError> {
    let RawHeader { mut metadata, tensors, len } = header;
    check_keys(&mut metadata)?;
    let metadata = Metadata::from_iter(metadata);
    let alignment = alignment(&metadata)?;
    // INVARIANT: `len` is a length in memory and the alignment at most 2^16, the sum cannot
    // overflow.
    let data_start = len.next_multiple_of(alignment as usize);
    let mut sized = Vec::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter().enumerate() {
        sized.push(check_tensor(tensor, index, alignment)?);
    }
    let by_name = check_names(&tensors)?;
    let mut by_offset: Vec<usize> = (0..tensors.len()).collect();
    by_offset.sort_unstable_by_key(|index| (tensors[*index].offset, sized[*index].1, *index));
    check_end(&tensors, &sized, &by_offset, data_start, file_len)?;
    check_overlaps(&tensors, &sized, &by_offset)?;
    drop(by_offset);
    let tensors = std::iter::zip(&tensors, sized)
        .map(|(raw, (dtype, bytes))| {
            // INVARIANT: `check_tensor` saw that the dimensions fit, `check_end` that the range
            // does.
            let start = data_start + raw.offset as usize;
            let dims = raw.dims().iter().map(|dim| *dim as usize).collect();
            Placed { name: raw.name, dtype, dims, range: start..start + bytes }
        })
        .collect();
    Ok(Checked { metadata, alignment, data_start, tensors, by_name })
}

/// Sorts the entries by key and refuses an empty key and a key that appears twice.
fn check_keys(metadata: &mut [(String, Value)]) -> Result<(), GgufError> {
    if let Some(index) = metadata.iter().position(|(key, _)| key.is_empty()) {
        return Err(GgufError::EmptyKey { index });
    }
    metadata.sort_unstable_by(|(first, _), (second, _)| first.cmp(second));
    match metadata.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(GgufError::DuplicateKey { key: pair[0].0.clone() }),
        None => Ok(()),
    }
}

fn alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    let alignment = match metadata.get(ALIGNMENT_KEY) {
        None => ALIGNMENT_DEFAULT,
        Some(Value::U32(alignment)) => *alignment,
        Some(other) => return Err(GgufError::AlignmentType { found: other.type_name() }),
    };
    if alignment.is_power_of_two() && (ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&alignment) {
        Ok(alignment)
    } else {
        Err(GgufError::Alignment { alignment, min: ALIGNMENT_MIN, max: ALIGNMENT_MAX })
    }
}

/// What can be said of a tensor by itself: its type and its size in bytes.
fn check_tensor(
    tensor: &RawTensor<'_>,
    index: usize,
    alignment: u32,
) -> Result<(DType, usize), GgufError> {
    if tensor.name.is_empty() {
        return Err(GgufError::EmptyTensorName { index });
    }
    let name = || tensor.name.to_owned();
    if let Some(dim_idx) = tensor.dims().iter().position(|dim| *dim == 0) {
        return Err(GgufError::ZeroDimension { name: name(), dim_idx });
    }
    let id = tensor.type_id;
    let dtype = DType::from_ggml_id(id).ok_or_else(|| match unsupported_type_name(id) {
        Some(type_name) => GgufError::UnsupportedTensorType { name: name(), id, type_name },
        None => GgufError::UnknownTensorType { name: name(), id },
    })?;
    let elements = tensor.dims()[0];
    if !elements.is_multiple_of(dtype.block_elements() as u64) {
        return Err(GgufError::PartialBlock { name: name(), elements, dtype });
    }
    let bytes = size(tensor.dims(), dtype)
        .ok_or_else(|| GgufError::SizeOverflow { name: name(), dims: tensor.dims().to_vec() })?;
    if !tensor.offset.is_multiple_of(u64::from(alignment)) {
        return Err(GgufError::UnalignedOffset { name: name(), offset: tensor.offset, alignment });
    }
    Ok((dtype, bytes))
}

/// The bytes of a tensor; `None` if they, or the number of its elements, cannot be counted.
fn size(dims: &[u64], dtype: DType) -> Option<usize> {
    let mut counted = [0; crate::format::header::DIMENSIONS_MAX];
    for (counted, dim) in counted.iter_mut().zip(dims) {
        *counted = usize::try_from(*dim).ok()?;
    }
    let counted = &counted[..dims.len()];
    counted.iter().try_fold(1_usize, |elements, dim| elements.checked_mul(*dim))?;
    dtype.tensor_bytes(counted)
}

/// The indices of the tensors in the order of names, if no name appears twice.
fn check_names(tensors: &[RawTensor<'_>]) -> Result<Vec<usize>, GgufError> {
    let mut by_name: Vec<usize> = (0..tensors.len()).collect();
    by_name.sort_unstable_by_key(|index| tensors[*index].name);
    let twice = by_name.windows(2).find(|pair| tensors[pair[0]].name == tensors[pair[1]].name);
    match twice {
        Some(pair) => Err(GgufError::DuplicateTensor { name: tensors[pair[0]].name.to_owned() }),
        None => Ok(by_name),
    }
}

/// Refuses a tensor that reaches beyond the end of the file, the first in the order of offsets.
fn check_end(
    tensors: &[RawTensor<'_>],
    sized: &[(DType, usize)],
    by_offset: &[usize],
    data_start: usize,
    file_len: usize,
) -> Result<(), GgufError> {
    // Three numbers below 2^64 each, so that nothing here can overflow.
    let beyond = |index: &usize| {
        let end = data_start as u128 + u128::from(tensors[*index].offset) + sized[*index].1 as u128;
        end.saturating_sub(file_len as u128)
    };
    let mut cut_off = by_offset.iter().filter(|index| beyond(index) > 0);
    let Some(first) = cut_off.next() else { return Ok(()) };
    let (name, beyond) = (tensors[*first].name.to_owned(), beyond(first));
    Err(GgufError::BeyondEnd { name, beyond, file_len, tensors: 1 + cut_off.count() })
}

/// Refuses tensors that share bytes without being the same range of the same type.
fn check_overlaps(
    tensors: &[RawTensor<'_>],
    sized: &[(DType, usize)],
    by_offset: &[usize],
) -> Result<(), GgufError> {
    // INVARIANT: no two tensors before this pair overlap unless they are the same range, so the end
    // of the first of the pair is the furthest end so far. No sum overflows: `check_end` saw the
    // ends.
    for pair in by_offset.windows(2) {
        let [first, second] = [pair[0], pair[1]];
        let [start, next_start] = [tensors[first].offset, tensors[second].offset];
        let [(first_dtype, bytes), (second_dtype, next_bytes)] = [sized[first], sized[second]];
        let end = start + bytes as u64;
        let same_range = next_start == start && next_bytes == bytes;
        if next_start >= end || (same_range && first_dtype == second_dtype) {
            continue;
        }
        let [first, second] = [first, second].map(|index| tensors[index].name.to_owned());
        return Err(if same_range {
            GgufError::AliasType { first, first_dtype, second, second_dtype }
        } else {
            let bytes = end.min(next_start + next_bytes as u64) - next_start;
            GgufError::Overlap { first, second, bytes: bytes as usize }
        });
    }
    Ok(())
}

/// The name of a tensor type that exists and is not among those the engine reads.
fn unsupported_type_name(id: u32) -> Option<&'static str> {
    Some(match id {
        2 => "Q4_0",
        3 => "Q4_1",
        4 => "Q4_2",
        5 => "Q4_3",
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        11 => "Q3_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        34 => "TQ1_0",
        35 => "TQ2_0",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        42 => "Q2_0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_or_unsupported_never_both() {
        for id in 0..=42 {
            let read = DType::from_ggml_id(id).is_some();
            assert_ne!(read, unsupported_type_name(id).is_some(), "type {id}");
        }
        assert_eq!(unsupported_type_name(43), None);
    }
}
