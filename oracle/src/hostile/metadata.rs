//! Files that are wrong before the first tensor entry, or cut off in the header.
//!
//! Promises and leaves to others what the module above says.

use super::HostileFile;
use super::raw::*;

pub fn fixed_part() -> Vec<HostileFile> {
    let cut = Raw(Raw::header(0, 0).0[..23].to_vec());
    let version = |version: u32| Raw::default().bytes(b"GGUF").u32(version).u64(0).u64(0);
    let big_endian = version(3_u32.swap_bytes()).u64(1_u64.swap_bytes());
    vec![
        hostile(
            "file-empty.gguf",
            "FileTooShort",
            "file is 0 bytes, the fixed part of the header alone is 24",
            "reads before the end",
            Raw::default(),
        ),
        hostile(
            "file-23-bytes.gguf",
            "FileTooShort",
            "file is 23 bytes, the fixed part of the header alone is 24",
            "reads beyond the end",
            cut,
        ),
        hostile(
            "magic.gguf",
            "Magic",
            "magic is `GGML`, not `GGUF`",
            "another format is read as this one",
            Raw::default().bytes(b"GGML").u32(3).u64(0).u64(0),
        ),
        hostile(
            "version-1.gguf",
            "Version",
            "version is 1, only 3 is read",
            "32-bit counts are read as 64-bit",
            version(1),
        ),
        hostile(
            "version-2.gguf",
            "Version",
            "version is 2, only 3 is read",
            "rules of version 3 are assumed",
            version(2),
        ),
        hostile(
            "version-4.gguf",
            "Version",
            "version is 4, only 3 is read",
            "unknown rules are guessed",
            version(4),
        ),
        hostile(
            "version-big-endian.gguf",
            "BigEndian",
            "version is 0x03000000: the file is big-endian, only little-endian is read",
            "every number is garbage",
            big_endian,
        ),
    ]
}

pub fn counts() -> Vec<HostileFile> {
    vec![
        hostile(
            "metadata-count-2pow32.gguf",
            "MetadataCount",
            "metadata count is 4294967296, the 17 bytes left in the file hold at most 1",
            "gigabytes are reserved for a file of 60 bytes",
            Raw::header(0, 1 << 32).key("k", U32).u32(1),
        ),
        hostile(
            "metadata-count-one-too-many.gguf",
            "MetadataCount",
            "metadata count is 2, the 17 bytes left in the file hold at most 1",
            "the second entry is read beyond the end",
            Raw::header(0, 2).key("k", U32).u32(1),
        ),
        hostile(
            "tensor-count-2pow63.gguf",
            "TensorCount",
            "tensor count is 9223372036854775808, the 72 bytes left in the file hold at most 3",
            "the reservation overflows or takes all memory",
            Raw::header(1 << 63, 0).tensor("a", &[8], F32, 0).data(32),
        ),
        hostile(
            "tensor-count-after-metadata.gguf",
            "TensorCount",
            "tensor count is 2, the 16 bytes left in the file hold at most 0",
            "room that the metadata took is counted as room for tensors",
            Raw::header(2, 1).key("k", STRING).text(b"twenty-four characters..").u64(0).u64(0),
        ),
        hostile(
            "cut-off-in-value.gguf",
            "HeaderCutOff",
            "metadata `k`: value needs 8 bytes at offset 37, the file has 4 left",
            "the missing bytes are read as zero or from elsewhere",
            Raw::header(0, 1).key("k", U64).u32(7),
        ),
        hostile(
            "cut-off-in-tensor-entry.gguf",
            "HeaderCutOff",
            "tensor `weight`: offset needs 8 bytes at offset 54, the file has 0 left",
            "the missing offset is read as zero",
            Raw(Raw::header(1, 0).tensor("weight", &[8], F32, 0).0[..54].to_vec()),
        ),
    ]
}

pub fn strings() -> Vec<HostileFile> {
    let value = |len: u64| Raw::header(0, 1).key("k", STRING).u64(len).bytes(b"text");
    let element =
        Raw::header(0, 1).key("k", ARRAY).u32(STRING).u64(2).text(b"a").u64(9).bytes(b"bc");
    vec![
        hostile(
            "string-length-2pow63.gguf",
            "StringLength",
            "metadata `k`: value has a length of 9223372036854775808, the file has 4 bytes left",
            "the reservation takes all memory",
            value(1 << 63),
        ),
        hostile(
            "string-length-max.gguf",
            "StringLength",
            "metadata `k`: value has a length of 18446744073709551615, the file has 4 bytes left",
            "position plus length wraps round to a small number",
            value(u64::MAX),
        ),
        hostile(
            "string-length-one-too-many.gguf",
            "StringLength",
            "metadata `k`: value has a length of 5, the file has 4 bytes left",
            "one byte beyond the end is read",
            value(5),
        ),
        hostile(
            "string-length-of-element.gguf",
            "StringLength",
            "metadata `k`: element 1 has a length of 9, the file has 2 bytes left",
            "a token takes bytes from beyond the end",
            element,
        ),
        hostile(
            "string-length-of-key.gguf",
            "StringLength",
            "metadata entry 0: key has a length of 100, the file has 12 bytes left",
            "the key takes bytes from beyond the end",
            Raw::header(0, 1).u64(100).bytes(b"general.name"),
        ),
        hostile(
            "utf8-key.gguf",
            "Utf8",
            "metadata entry 0: key is not UTF-8: byte 2 is 0xff",
            "a key that no lookup finds",
            Raw::header(0, 1).text(b"ke\xff").u32(U8).u8(0),
        ),
        hostile(
            "utf8-value.gguf",
            "Utf8",
            "metadata `k`: value is not UTF-8: byte 3 is 0xe9",
            "text that is no text reaches the template",
            Raw::header(0, 1).key("k", STRING).text(b"caf\xe9"),
        ),
        hostile(
            "utf8-element-surrogate.gguf",
            "Utf8",
            "metadata `k`: element 0 is not UTF-8: byte 0 is 0xed",
            "a token that is half a character",
            Raw::header(0, 1).key("k", ARRAY).u32(STRING).u64(1).text(b"\xed\xa0\x80"),
        ),
        hostile(
            "utf8-tensor-name.gguf",
            "Utf8",
            "tensor entry 0: name is not UTF-8: byte 1 is 0x80",
            "a tensor that no lookup finds",
            Raw::header(1, 0).text(b"a\x80").u32(1).u64(8).u32(F32).u64(0).data(32),
        ),
    ]
}

pub fn keys() -> Vec<HostileFile> {
    vec![
        hostile(
            "key-empty.gguf",
            "EmptyKey",
            "metadata entry 1: key is empty",
            "a check that is compiled out lets it pass",
            Raw::header(0, 2).key("k", U8).u8(0).key("", U8).u8(0),
        ),
        hostile(
            "key-too-long.gguf",
            "KeyTooLong",
            "metadata entry 0: key has a length of 65536, at most 65535 is allowed",
            "the format's limit is no limit",
            Raw::header(0, 1).u64(65_536).bytes(b"general.name"),
        ),
        hostile(
            "key-length-2pow63.gguf",
            "KeyTooLong",
            "metadata entry 0: key has a length of 9223372036854775808, at most 65535 is allowed",
            "the reservation takes all memory",
            Raw::header(0, 1).u64(1 << 63).bytes(b"general.name"),
        ),
        hostile(
            "key-twice.gguf",
            "DuplicateKey",
            "metadata key `k` appears twice",
            "which value counts depends on the reader",
            Raw::header(0, 3).key("k", U8).u8(0).key("j", U8).u8(0).key("k", U8).u8(1),
        ),
    ]
}

pub fn values() -> Vec<HostileFile> {
    let array = |type_id: u32, len: u64| Raw::header(0, 1).key("k", ARRAY).u32(type_id).u64(len);
    let row = |name, expected, message, why, raw| hostile(name, expected, message, why, raw);
    vec![
        row(
            "value-type-13.gguf",
            "UnknownValueType",
            "metadata `k`: value type is 13, no type has that id",
            "a value of unknown length is skipped by guess",
            Raw::header(0, 1).key("k", 13).u64(0),
        ),
        row(
            "value-type-max.gguf",
            "UnknownValueType",
            "metadata `k`: value type is 4294967295, no type has that id",
            "a table of sizes is read out of bounds",
            Raw::header(0, 1).key("k", u32::MAX).u64(0),
        ),
        row(
            "element-type-13.gguf",
            "UnknownElementType",
            "metadata `k`: element type is 13, no type has that id",
            "elements of unknown length are skipped by guess",
            array(13, 1).u64(0),
        ),
        row(
            "array-nested.gguf",
            "NestedArray",
            "metadata `k`: element type is 9 (array), nested arrays are not read",
            "arrays in arrays exhaust the stack",
            array(ARRAY, 1).u32(U8).u64(0),
        ),
        row(
            "array-length-2pow61.gguf",
            "ArrayLength",
            "metadata `k`: array has a length of 2305843009213693952, \
             the 8 bytes left in the file hold at most 1",
            "length times size wraps round to zero",
            array(U64, 1 << 61).u64(0),
        ),
        row(
            "array-length-2pow61-strings.gguf",
            "ArrayLength",
            "metadata `k`: array has a length of 2305843009213693952, \
             the 9 bytes left in the file hold at most 1",
            "the reservation takes all memory",
            array(STRING, 1 << 61).text(b"a"),
        ),
        row(
            "array-length-one-too-many.gguf",
            "ArrayLength",
            "metadata `k`: array has a length of 3, the 8 bytes left in the file hold at most 2",
            "the last element is read beyond the end",
            array(U32, 3).u32(1).u32(2),
        ),
        row(
            "bool-2.gguf",
            "Bool",
            "metadata `k`: value is a bool of value 2, only 0 and 1 are read",
            "a truth value that is neither equal to true nor to false",
            Raw::header(0, 1).key("k", BOOL).u8(2),
        ),
        row(
            "bool-element-255.gguf",
            "Bool",
            "metadata `k`: element 2 is a bool of value 255, only 0 and 1 are read",
            "the same inside an array",
            array(BOOL, 3).u8(1).u8(0).u8(255),
        ),
    ]
}

pub fn alignments() -> Vec<HostileFile> {
    let alignment = |type_id: u32| Raw::header(0, 1).key("general.alignment", type_id);
    let row = |name, message, why, alignment_value: u32| {
        hostile(name, "Alignment", message, why, alignment(U32).u32(alignment_value))
    };
    vec![
        hostile(
            "alignment-type-u64.gguf",
            "AlignmentType",
            "metadata `general.alignment`: value type is u64, not u32",
            "the default is used in silence and the data begin elsewhere",
            alignment(U64).u64(64),
        ),
        hostile(
            "alignment-type-array.gguf",
            "AlignmentType",
            "metadata `general.alignment`: value type is array of u32, not u32",
            "the same for an array",
            alignment(ARRAY).u32(U32).u64(1).u32(64),
        ),
        row(
            "alignment-0.gguf",
            "metadata `general.alignment` is 0, not a power of two from 8 to 65536",
            "division by zero",
            0,
        ),
        row(
            "alignment-4.gguf",
            "metadata `general.alignment` is 4, not a power of two from 8 to 65536",
            "64-bit numbers lie across their boundary",
            4,
        ),
        row(
            "alignment-24.gguf",
            "metadata `general.alignment` is 24, not a power of two from 8 to 65536",
            "rounding with a mask gives another place than with a division",
            24,
        ),
        row(
            "alignment-2pow17.gguf",
            "metadata `general.alignment` is 131072, not a power of two from 8 to 65536",
            "the file is all padding",
            1 << 17,
        ),
        row(
            "alignment-2pow31.gguf",
            "metadata `general.alignment` is 2147483648, not a power of two from 8 to 65536",
            "rounding up overflows 32 bits",
            1 << 31,
        ),
    ]
}
