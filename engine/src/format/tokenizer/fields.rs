//! Typed reads of the tokenizer's metadata.
//!
//! Promises: a value comes back only in the type that the key has by convention; a missing key and
//! a wrong type are refused by name. Nothing is converted but unsigned integers to 64 bits.

use super::TokenizerError;
use crate::format::{Metadata, Value};

pub(super) const MODEL: &str = "tokenizer.ggml.model";
pub(super) const PRE: &str = "tokenizer.ggml.pre";
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const MERGES: &str = "tokenizer.ggml.merges";
pub(super) const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
pub(super) const BOS_ID: &str = "tokenizer.ggml.bos_token_id";
pub(super) const EOS_ID: &str = "tokenizer.ggml.eos_token_id";
pub(super) const VOCAB_SIZE: &str = "deepseek4.vocab_size";

/// A string that must be there.
pub(super) fn string<'m>(
    metadata: &'m Metadata,
    key: &'static str,
) -> Result<&'m str, TokenizerError> {
    match required(metadata, key)? {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(key, "a string", other)),
    }
}

/// An array of strings that must be there.
pub(super) fn strings<'m>(
    metadata: &'m Metadata,
    key: &'static str,
) -> Result<&'m [String], TokenizerError> {
    match required(metadata, key)? {
        Value::StringArray(texts) => Ok(texts),
        other => Err(wrong_type(key, "an array of strings", other)),
    }
}

/// An array of `i32`, if there.
pub(super) fn optional_i32s<'m>(
    metadata: &'m Metadata,
    key: &'static str,
) -> Result<Option<&'m [i32]>, TokenizerError> {
    match metadata.get(key) {
        None => Ok(None),
        Some(Value::I32Array(values)) => Ok(Some(values)),
        Some(other) => Err(wrong_type(key, "an array of i32", other)),
    }
}

/// An unsigned integer of 32 or 64 bits, if there.
pub(super) fn optional_unsigned(
    metadata: &Metadata,
    key: &'static str,
) -> Result<Option<u64>, TokenizerError> {
    match metadata.get(key) {
        None => Ok(None),
        Some(Value::U32(value)) => Ok(Some(u64::from(*value))),
        Some(Value::U64(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong_type(key, "a u32 or u64", other)),
    }
}

fn required<'m>(metadata: &'m Metadata, key: &'static str) -> Result<&'m Value, TokenizerError> {
    metadata.get(key).ok_or(TokenizerError::MissingKey { key })
}

fn wrong_type(key: &'static str, expected: &'static str, found: &Value) -> TokenizerError {
    TokenizerError::WrongType { key, expected, found: type_name(found) }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::U8(_) => "a u8",
        Value::I8(_) => "an i8",
        Value::U16(_) => "a u16",
        Value::I16(_) => "an i16",
        Value::U32(_) => "a u32",
        Value::I32(_) => "an i32",
        Value::F32(_) => "an f32",
        Value::Bool(_) => "a bool",
        Value::String(_) => "a string",
        Value::U64(_) => "a u64",
        Value::I64(_) => "an i64",
        Value::F64(_) => "an f64",
        Value::U8Array(_) => "an array of u8",
        Value::I8Array(_) => "an array of i8",
        Value::U16Array(_) => "an array of u16",
        Value::I16Array(_) => "an array of i16",
        Value::U32Array(_) => "an array of u32",
        Value::I32Array(_) => "an array of i32",
        Value::F32Array(_) => "an array of f32",
        Value::BoolArray(_) => "an array of bool",
        Value::StringArray(_) => "an array of strings",
        Value::U64Array(_) => "an array of u64",
        Value::I64Array(_) => "an array of i64",
        Value::F64Array(_) => "an array of f64",
    }
}
