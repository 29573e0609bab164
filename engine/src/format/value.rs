//! Metadata values of a GGUF file.
//!
//! Promises: a [`Value`] holds what the file said, with its type. The `as_` getters answer only for
//! exactly their type; the `widened_` getters accept every type that holds the number without loss,
//! which is all the conversion there is. Displaying a value is short whatever its size.
//! Leaves to others: which keys a model needs, and what their values mean.

use std::collections::BTreeMap;
use std::fmt;

/// Types of GGUF metadata values, with their ids in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// All types, in the order of their ids.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The id of this type in a file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The type with this id.
    #[must_use]
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|value_type| value_type.id() == id)
    }

    /// The type's name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// The fewest bytes that one value of this type takes in a file: its size, or for a string its
    /// length field, or for an array its element type and length.
    #[must_use]
    pub const fn bytes_min(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

/// A metadata value. Arrays are stored by element type, so that a large array costs what its bytes
/// cost.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    U8Array(Vec<u8>),
    I8Array(Vec<i8>),
    U16Array(Vec<u16>),
    I16Array(Vec<i16>),
    U32Array(Vec<u32>),
    I32Array(Vec<i32>),
    F32Array(Vec<f32>),
    BoolArray(Vec<bool>),
    StringArray(Vec<String>),
    U64Array(Vec<u64>),
    I64Array(Vec<i64>),
    F64Array(Vec<f64>),
}

/// Metadata in key order.
pub type Metadata = BTreeMap<String, Value>;

/// Types of which every value is exact as the wider type.
macro_rules! widened {
    ($value:expr, $wide:ty, [$($lossless:ident)*], [$($checked:ident)*]) => {
        match $value {
            $(Self::$lossless(number) => Some(<$wide>::from(*number)),)*
            $(Self::$checked(number) => <$wide>::try_from(*number).ok(),)*
            _ => None,
        }
    };
}

impl Value {
    /// The type; arrays of every element type are [`ValueType::Array`].
    #[must_use]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
            _ => ValueType::Array,
        }
    }

    /// The type of the elements, where this is an array.
    #[must_use]
    pub const fn element_type(&self) -> Option<ValueType> {
        Some(match self {
            Self::U8Array(_) => ValueType::U8,
            Self::I8Array(_) => ValueType::I8,
            Self::U16Array(_) => ValueType::U16,
            Self::I16Array(_) => ValueType::I16,
            Self::U32Array(_) => ValueType::U32,
            Self::I32Array(_) => ValueType::I32,
            Self::F32Array(_) => ValueType::F32,
            Self::BoolArray(_) => ValueType::Bool,
            Self::StringArray(_) => ValueType::String,
            Self::U64Array(_) => ValueType::U64,
            Self::I64Array(_) => ValueType::I64,
            Self::F64Array(_) => ValueType::F64,
            _ => return None,
        })
    }

    /// The type's name in messages, with that of the elements for an array: `array of u32`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::U8Array(_) => "array of u8",
            Self::I8Array(_) => "array of i8",
            Self::U16Array(_) => "array of u16",
            Self::I16Array(_) => "array of i16",
            Self::U32Array(_) => "array of u32",
            Self::I32Array(_) => "array of i32",
            Self::F32Array(_) => "array of f32",
            Self::BoolArray(_) => "array of bool",
            Self::StringArray(_) => "array of string",
            Self::U64Array(_) => "array of u64",
            Self::I64Array(_) => "array of i64",
            Self::F64Array(_) => "array of f64",
            _ => self.value_type().name(),
        }
    }

    /// The number of elements, where this is an array.
    #[must_use]
    pub fn array_len(&self) -> Option<usize> {
        Some(match self {
            Self::U8Array(array) => array.len(),
            Self::I8Array(array) => array.len(),
            Self::U16Array(array) => array.len(),
            Self::I16Array(array) => array.len(),
            Self::U32Array(array) => array.len(),
            Self::I32Array(array) => array.len(),
            Self::F32Array(array) => array.len(),
            Self::BoolArray(array) => array.len(),
            Self::StringArray(array) => array.len(),
            Self::U64Array(array) => array.len(),
            Self::I64Array(array) => array.len(),
            Self::F64Array(array) => array.len(),
            _ => return None,
        })
    }

    /// The number, if the type is u32.
    #[must_use]
    pub const fn as_u32(&self) -> Option<u32> {
        if let Self::U32(number) = self { Some(*number) } else { None }
    }

    /// The number, if the type is f32.
    #[must_use]
    pub const fn as_f32(&self) -> Option<f32> {
        if let Self::F32(number) = self { Some(*number) } else { None }
    }

    /// The truth value, if the type is bool.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(truth) = self { Some(*truth) } else { None }
    }

    /// The text, if the type is string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The elements, if they are u32.
    #[must_use]
    pub fn as_u32_array(&self) -> Option<&[u32]> {
        if let Self::U32Array(array) = self { Some(array) } else { None }
    }

    /// The elements, if they are i32.
    #[must_use]
    pub fn as_i32_array(&self) -> Option<&[i32]> {
        if let Self::I32Array(array) = self { Some(array) } else { None }
    }

    /// The elements, if they are f32.
    #[must_use]
    pub fn as_f32_array(&self) -> Option<&[f32]> {
        if let Self::F32Array(array) = self { Some(array) } else { None }
    }

    /// The elements, if they are strings.
    #[must_use]
    pub fn as_str_array(&self) -> Option<&[String]> {
        if let Self::StringArray(array) = self { Some(array) } else { None }
    }

    /// The number, if it is an integer of any type that is not negative.
    #[must_use]
    pub fn widened_u64(&self) -> Option<u64> {
        widened!(self, u64, [U8 U16 U32 U64], [I8 I16 I32 I64])
    }

    /// The number, if its type is a float or an integer of at most 32 bits.
    #[must_use]
    pub fn widened_f64(&self) -> Option<f64> {
        widened!(self, f64, [F32 F64 U8 I8 U16 I16 U32 I32], [])
    }

    /// The elements, if they are integers of any type and none is negative.
    #[must_use]
    pub fn widened_u64_array(&self) -> Option<Vec<u64>> {
        fn checked<T: Copy + TryInto<u64>>(array: &[T]) -> Option<Vec<u64>> {
            array.iter().map(|number| (*number).try_into().ok()).collect()
        }
        match self {
            Self::U8Array(array) => checked(array),
            Self::I8Array(array) => checked(array),
            Self::U16Array(array) => checked(array),
            Self::I16Array(array) => checked(array),
            Self::U32Array(array) => checked(array),
            Self::I32Array(array) => checked(array),
            Self::U64Array(array) => checked(array),
            Self::I64Array(array) => checked(array),
            _ => None,
        }
    }

    /// The elements, if their type is a float or an integer of at most 32 bits.
    #[must_use]
    pub fn widened_f64_array(&self) -> Option<Vec<f64>> {
        fn exact<T: Copy + Into<f64>>(array: &[T]) -> Option<Vec<f64>> {
            Some(array.iter().map(|number| (*number).into()).collect())
        }
        match self {
            Self::F32Array(array) => exact(array),
            Self::F64Array(array) => exact(array),
            Self::U8Array(array) => exact(array),
            Self::I8Array(array) => exact(array),
            Self::U16Array(array) => exact(array),
            Self::I16Array(array) => exact(array),
            Self::U32Array(array) => exact(array),
            Self::I32Array(array) => exact(array),
            _ => None,
        }
    }
}

/// Elements of an array that displaying it shows.
const SHOWN_ELEMENTS: usize = 6;
/// Characters of a string that displaying it shows.
const SHOWN_CHARS: usize = 64;

/// Text from a file as messages show it: control characters escaped, cut after 64 characters.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (char_idx, character) in text.chars().enumerate() {
        if char_idx == SHOWN_CHARS {
            return shown + "...";
        }
        if character == '\'' || character == '"' {
            shown.push(character);
        } else {
            shown.extend(character.escape_debug());
        }
    }
    shown
}

fn show_array<T>(
    f: &mut fmt::Formatter<'_>,
    array: &[T],
    show: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    write!(f, "[{}]", array.len())?;
    for (element_idx, element) in array.iter().take(SHOWN_ELEMENTS).enumerate() {
        f.write_str(if element_idx == 0 { " " } else { ", " })?;
        show(f, element)?;
    }
    if array.len() > SHOWN_ELEMENTS { f.write_str(", ...") } else { Ok(()) }
}

/// The value as `inspect` lists it: strings quoted and cut, arrays as `[n] first, few, ...`, floats
/// in the shortest form that reads back as the same bits.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn plain<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, value: &T) -> fmt::Result {
            write!(f, "{value:?}")
        }
        fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
            write!(f, "\"{}\"", shown(text))
        }
        match self {
            Self::U8(number) => plain(f, number),
            Self::I8(number) => plain(f, number),
            Self::U16(number) => plain(f, number),
            Self::I16(number) => plain(f, number),
            Self::U32(number) => plain(f, number),
            Self::I32(number) => plain(f, number),
            Self::F32(number) => plain(f, number),
            Self::Bool(truth) => plain(f, truth),
            Self::String(text) => quoted(f, text),
            Self::U64(number) => plain(f, number),
            Self::I64(number) => plain(f, number),
            Self::F64(number) => plain(f, number),
            Self::U8Array(array) => show_array(f, array, plain),
            Self::I8Array(array) => show_array(f, array, plain),
            Self::U16Array(array) => show_array(f, array, plain),
            Self::I16Array(array) => show_array(f, array, plain),
            Self::U32Array(array) => show_array(f, array, plain),
            Self::I32Array(array) => show_array(f, array, plain),
            Self::F32Array(array) => show_array(f, array, plain),
            Self::BoolArray(array) => show_array(f, array, plain),
            Self::StringArray(array) => show_array(f, array, |f, text| quoted(f, text)),
            Self::U64Array(array) => show_array(f, array, plain),
            Self::I64Array(array) => show_array(f, array, plain),
            Self::F64Array(array) => show_array(f, array, plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displaying_is_short_and_exact() {
        let rows = [
            (Value::U32(7), "7"),
            (Value::F32(1e-6), "1e-6"),
            (Value::F32(10.0), "10.0"),
            (Value::F64(f64::NAN), "NaN"),
            (Value::Bool(true), "true"),
            (Value::String("it's \"a\"\n".into()), "\"it's \"a\"\\n\""),
            (Value::I32Array(vec![]), "[0]"),
            (Value::I32Array(vec![-1, 2]), "[2] -1, 2"),
            (Value::U8Array(vec![0; 100]), "[100] 0, 0, 0, 0, 0, 0, ..."),
            (Value::StringArray(vec!["a".into(), "\u{1b}".into()]), "[2] \"a\", \"\\u{1b}\""),
        ];
        for (value, text) in rows {
            assert_eq!(value.to_string(), text);
        }
        let long = Value::StringArray(vec!["x".repeat(1 << 20); 9]).to_string();
        assert!(long.len() < 500, "{} bytes", long.len());
    }

    #[test]
    fn getters_are_strict_and_widening_is_exact() {
        assert_eq!(Value::U32(7).as_u32(), Some(7));
        assert_eq!(Value::I32(7).as_u32(), None);
        assert_eq!(Value::U64(7).as_u32(), None);
        assert_eq!(Value::F64(1.0).as_f32(), None);
        assert_eq!(Value::I64(7).widened_u64(), Some(7));
        assert_eq!(Value::I8(-1).widened_u64(), None);
        assert_eq!(Value::F32(7.0).widened_u64(), None);
        assert_eq!(Value::Bool(true).widened_u64(), None);
        assert_eq!(Value::F32(1.5).widened_f64(), Some(1.5));
        assert_eq!(Value::U64(7).widened_f64(), None);
        assert_eq!(Value::I32Array(vec![0, 4, 128]).widened_u64_array(), Some(vec![0, 4, 128]));
        assert_eq!(Value::I32Array(vec![0, -4]).widened_u64_array(), None);
        assert_eq!(Value::F32Array(vec![10.0]).widened_f64_array(), Some(vec![10.0]));
        assert_eq!(Value::U16Array(vec![]).type_name(), "array of u16");
        assert_eq!(Value::U16Array(vec![]).element_type(), Some(ValueType::U16));
        for value_type in ValueType::ALL {
            assert_eq!(ValueType::from_id(value_type.id()), Some(value_type));
        }
        assert_eq!(ValueType::from_id(13), None);
    }
}
