//! Files whose tensor entries are wrong, or wrong about the data.
//!
//! Promises and leaves to others what the module above says.

use super::HostileFile;
use super::raw::*;

pub fn tensor_names() -> Vec<HostileFile> {
    vec![
        hostile(
            "tensor-name-empty.gguf",
            "EmptyTensorName",
            "tensor entry 1: name is empty",
            "a tensor that no lookup finds",
            Raw::header(2, 0).tensor("a", &[8], F32, 0).tensor("", &[8], F32, 32).data(64),
        ),
        hostile(
            "tensor-name-65-bytes.gguf",
            "TensorNameTooLong",
            "tensor entry 0: name has a length of 65, at most 64 is allowed",
            "a fixed buffer of 64 bytes overflows",
            Raw::header(1, 0).tensor(&"long_name.".repeat(7)[..65], &[8], F32, 0).data(32),
        ),
        hostile(
            "tensor-name-length-2pow63.gguf",
            "TensorNameTooLong",
            "tensor entry 0: name has a length of 9223372036854775808, at most 64 is allowed",
            "the reservation takes all memory",
            Raw::header(1, 0).u64(1 << 63).bytes(b"token_embd.weight").data(32),
        ),
        hostile(
            "tensor-twice.gguf",
            "DuplicateTensor",
            "tensor `a` appears twice",
            "which weights count depends on the reader",
            Raw::header(3, 0)
                .tensor("a", &[8], F32, 0)
                .tensor("b", &[8], F32, 32)
                .tensor("a", &[8], F32, 64)
                .data(96),
        ),
    ]
}

/// A file of one tensor `a` with plenty of data.
fn one_tensor(dims: &[u64], type_id: u32, offset: u64) -> Raw {
    Raw::header(1, 0).tensor("a", dims, type_id, offset).data(512)
}

pub fn dimensions() -> Vec<HostileFile> {
    let count = |count: u32| {
        Raw::header(1, 0).text(b"a").u32(count).u64(8).u64(1).u64(1).u64(1).u64(1).u32(F32).u64(0)
    };
    let row = |name, message, why, raw| hostile(name, "DimensionCount", message, why, raw);
    let zero = |name, message, dims: &[u64]| {
        hostile(name, "ZeroDimension", message, "division by zero", one_tensor(dims, F32, 0))
    };
    vec![
        row(
            "dimensions-0.gguf",
            "tensor `a`: number of dimensions is 0, not 1 to 4",
            "the first dimension is read from nowhere",
            one_tensor(&[], F32, 0),
        ),
        row(
            "dimensions-5.gguf",
            "tensor `a`: number of dimensions is 5, not 1 to 4",
            "a fixed array of four overflows",
            count(5).data(32),
        ),
        row(
            "dimensions-2pow31.gguf",
            "tensor `a`: number of dimensions is 2147483648, not 1 to 4",
            "the reservation takes all memory",
            count(1 << 31).data(32),
        ),
        zero("dimension-0-zero.gguf", "tensor `a`: dimension 0 is zero", &[0, 4, 1, 1]),
        zero("dimension-1-zero.gguf", "tensor `a`: dimension 1 is zero", &[8, 0, 1, 1]),
        zero("dimension-2-zero.gguf", "tensor `a`: dimension 2 is zero", &[8, 4, 0, 1]),
        zero("dimension-3-zero.gguf", "tensor `a`: dimension 3 is zero", &[8, 4, 1, 0]),
    ]
}

pub fn sizes() -> Vec<HostileFile> {
    let row = |name, message, why, dims: &[u64], type_id| {
        hostile(name, "SizeOverflow", message, why, one_tensor(dims, type_id, 0))
    };
    vec![
        row(
            "size-2pow40-by-2pow40.gguf",
            "tensor `a`: size of [1099511627776, 1099511627776] overflows",
            "panics in a debug build, a small size in a release build",
            &[1 << 40, 1 << 40],
            F32,
        ),
        row(
            "size-2pow63-by-2.gguf",
            "tensor `a`: size of [9223372036854775808, 2] overflows",
            "the product is zero",
            &[1 << 63, 2],
            F32,
        ),
        row(
            "size-2pow62-of-f32.gguf",
            "tensor `a`: size of [4611686018427387904] overflows",
            "elements can be counted, bytes cannot",
            &[1 << 62],
            F32,
        ),
        row(
            "size-2pow64-of-iq2_xxs.gguf",
            "tensor `a`: size of [4294967296, 4294967296] overflows",
            "bytes can be counted, elements cannot",
            &[1 << 32, 1 << 32],
            IQ2_XXS,
        ),
    ]
}

pub fn types() -> Vec<HostileFile> {
    let row = |name, expected, message, why, dims: &[u64], type_id| {
        hostile(name, expected, message, why, one_tensor(dims, type_id, 0))
    };
    vec![
        row(
            "type-q4_0.gguf",
            "UnsupportedTensorType",
            "tensor `a`: type 2 (Q4_0) is not supported",
            "blocks are read in another layout",
            &[32],
            2,
        ),
        row(
            "type-q4_2-removed.gguf",
            "UnsupportedTensorType",
            "tensor `a`: type 4 (Q4_2) is not supported",
            "the same, a type of old",
            &[32],
            4,
        ),
        row(
            "type-mxfp4.gguf",
            "UnsupportedTensorType",
            "tensor `a`: type 39 (MXFP4) is not supported",
            "the same, a type of late",
            &[32],
            39,
        ),
        row(
            "type-43.gguf",
            "UnknownTensorType",
            "tensor `a`: type is 43, no type has that id",
            "a tensor of unknown size",
            &[32],
            43,
        ),
        row(
            "type-max.gguf",
            "UnknownTensorType",
            "tensor `a`: type is 4294967295, no type has that id",
            "a table of types is read out of bounds",
            &[32],
            u32::MAX,
        ),
        row(
            "block-q8_0-33.gguf",
            "PartialBlock",
            "tensor `a`: dimension 0 is 33, not a multiple of 32, the block of Q8_0",
            "the last block of a row is lost",
            &[33],
            Q8_0,
        ),
        row(
            "block-q2_k-128-by-2.gguf",
            "PartialBlock",
            "tensor `a`: dimension 0 is 128, not a multiple of 256, the block of Q2_K",
            "a block lies across two rows although the total is whole blocks",
            &[128, 2],
            Q2_K,
        ),
    ]
}

pub fn ranges() -> Vec<HostileFile> {
    let aligned = Raw::header(1, 1).key("general.alignment", U32).u32(64);
    let two = Raw::header(2, 0).tensor("a", &[8], F32, 32).tensor("b", &[8], F32, 0);
    // Two tensors of four blocks, 136 bytes each.
    let four = Raw::header(2, 0).tensor("a", &[64, 2], Q8_0, 0).tensor("b", &[64, 2], Q8_0, 160);
    let row = |name, message, why, raw| hostile(name, "BeyondEnd", message, why, raw);
    vec![
        hostile(
            "offset-16.gguf",
            "UnalignedOffset",
            "tensor `a`: offset is 16, not a multiple of the alignment 32",
            "loads fault or are slow where alignment was promised",
            one_tensor(&[8], F32, 16),
        ),
        hostile(
            "offset-32-of-64.gguf",
            "UnalignedOffset",
            "tensor `a`: offset is 32, not a multiple of the alignment 64",
            "the default alignment is used although the file states its own",
            aligned.tensor("a", &[8], F32, 32).data(128),
        ),
        row(
            "end-one-byte.gguf",
            "tensor `b`: ends 1 bytes beyond the end of the file \
             (423 bytes), tensors cut off: 1",
            "the last weight is read beyond the end",
            four.clone().data(160 + 135),
        ),
        row(
            "end-one-block.gguf",
            "tensor `b`: ends 34 bytes beyond the end of the file \
             (390 bytes), tensors cut off: 1",
            "the missing block is zero",
            four.clone().data(160 + 102),
        ),
        row(
            "end-half.gguf",
            "tensor `b`: ends 148 bytes beyond the end of the file \
             (276 bytes), tensors cut off: 1",
            "half the weights are zero and the model talks nonsense",
            four.data(148),
        ),
        row(
            "end-first-by-offset.gguf",
            "tensor `b`: ends 32 bytes beyond the end of the file \
             (96 bytes), tensors cut off: 2",
            "the wrong tensor is blamed",
            two.data(0),
        ),
        row(
            "end-offset-2pow63.gguf",
            "tensor `a`: ends 9223372036854775328 bytes beyond the end of the file \
             (576 bytes), tensors cut off: 1",
            "the offset is negative",
            one_tensor(&[8], F32, 1 << 63),
        ),
        row(
            "end-offset-max.gguf",
            "tensor `a`: ends 18446744073709551136 bytes beyond the end of the file \
             (576 bytes), tensors cut off: 1",
            "the end wraps round into the file",
            one_tensor(&[16], F32, u64::MAX - 31),
        ),
        row(
            "end-size-2pow50.gguf",
            "tensor `a`: ends 1125899906842112 bytes beyond the end of the file \
             (608 bytes), tensors cut off: 1",
            "a size that can be counted and never loaded is reserved",
            one_tensor(&[1 << 24, 1 << 24], F32, 0),
        ),
    ]
}

pub fn overlaps() -> Vec<HostileFile> {
    let two = |dims: &[u64], type_id, offset| {
        Raw::header(2, 0).tensor("a", &[16], F32, 32).tensor("b", dims, type_id, offset).data(128)
    };
    let row = |name, message, why, raw| hostile(name, "Overlap", message, why, raw);
    vec![
        row(
            "overlap-end.gguf",
            "tensors `a` and `b` overlap in 32 bytes",
            "weights of one tensor are read as another's",
            two(&[16], F32, 64),
        ),
        row(
            "overlap-two-bytes.gguf",
            "tensors `b` and `a` overlap in 2 bytes",
            "ends are compared in whole alignments",
            two(&[17], F16, 0),
        ),
        row(
            "overlap-start.gguf",
            "tensors `b` and `a` overlap in 32 bytes",
            "the same, the later tensor first",
            two(&[16], F32, 0),
        ),
        row(
            "overlap-inside.gguf",
            "tensors `b` and `a` overlap in 32 bytes",
            "a part of a tensor passes for a tied weight",
            two(&[8], F32, 32),
        ),
        hostile(
            "overlap-type.gguf",
            "AliasType",
            "tensors `a` and `b` are the same bytes with types F32 and F16",
            "the same bytes are two sorts of numbers",
            two(&[32], F16, 32),
        ),
    ]
}
