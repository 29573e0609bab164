//! Writing GGUF v3 files.
//!
//! Promises: the same [`FileSpec`] gives the same header bytes, whatever the machine; only a header
//! that our own reader accepts is written, so a mistake in a spec is refused with the reader's
//! words before the first byte; a finished file has every byte that it declared. Memory is that of
//! the header: tensor bytes go straight to the output. Tensors lie in the order of the spec, each
//! padded with zeros to the alignment, the last one too, as other writers do.
//! Leaves to others: what the bytes of a tensor mean, buffering the output, and the file system.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::format::header::{MAGIC, VERSION};
use crate::format::validate::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY};
use crate::format::{GgufError, Value, ValueType, header, validate};
use crate::tensor::DType;

/// What a file is to hold.
#[derive(Clone, Debug)]
pub struct FileSpec {
    /// Metadata in the order of the file. `general.alignment` is added at the end when it is
    /// missing and the alignment is not the format's default of 32.
    pub metadata: Vec<(String, Value)>,
    /// Tensors in the order of the file.
    pub tensors: Vec<TensorInfo>,
    /// The alignment of tensor data.
    pub alignment: u32,
}

/// A tensor that a file is to hold.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The type.
    pub dtype: DType,
    /// The dimensions, contiguous one first.
    pub dims: Vec<usize>,
    /// The earlier tensor whose bytes this one shares; such a tensor has none of its own.
    pub alias_of: Option<String>,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WriterError {
    /// The output took no more bytes.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// The reader would refuse the file.
    #[error("would not be readable: {0}")]
    Refused(#[from] GgufError),
    /// An alias of a tensor that does not come earlier.
    #[error("tensor `{name}`: alias of `{alias_of}`, which is no earlier tensor")]
    UnknownAlias { name: String, alias_of: String },
    /// The metadata state another alignment than the spec.
    #[error("metadata `general.alignment` is {stated}, the alignment asked for is {asked}")]
    AlignmentConflict { stated: String, asked: u32 },
    /// Bytes for a tensor whose turn it is not.
    #[error("bytes for tensor `{name}`, the next tensor is {next:?}")]
    OutOfOrder { name: String, next: Option<String> },
    /// More bytes than declared.
    #[error("tensor `{name}`: {given} bytes given, {declared} declared")]
    TooLong { name: String, given: usize, declared: usize },
    /// Fewer bytes than declared.
    #[error("tensor `{name}`: only {given} bytes given, {declared} declared")]
    TooShort { name: String, given: usize, declared: usize },
}

/// A file being written: first its header, then the bytes of each tensor in order.
pub struct Writer<W> {
    out: W,
    tensors: OwnTensors,
    alignment: usize,
    /// The tensor whose bytes come next, and how many of them were given.
    tensor_idx: usize,
    given: usize,
}

impl<W: Write> Writer<W> {
    /// Writes the header of `spec` to `out`.
    ///
    /// # Errors
    /// When the spec makes no readable file (nothing was written then), or `out` fails.
    pub fn new(mut out: W, spec: &FileSpec) -> Result<Self, WriterError> {
        let (header, tensors) = encode_header(spec)?;
        out.write_all(&header)?;
        Ok(Self { out, tensors, alignment: spec.alignment as usize, tensor_idx: 0, given: 0 })
    }

    /// The tensor whose bytes come next, and how many are missing; `None` when all are there.
    #[must_use]
    pub fn next_tensor(&self) -> Option<(&str, usize)> {
        let (name, declared) = self.tensors.get(self.tensor_idx)?;
        Some((name, declared - self.given))
    }

    /// Writes the next bytes of the tensor `name`: all of them, or the next part.
    ///
    /// # Errors
    /// When it is another tensor's turn, when there are more bytes than declared (none of these are
    /// written then), or when the output fails, after which the file is worthless.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriterError> {
        let Some((next, declared)) = self.tensors.get(self.tensor_idx).filter(|(n, _)| n == name)
        else {
            let next = self.tensors.get(self.tensor_idx).map(|(next, _)| next.clone());
            return Err(WriterError::OutOfOrder { name: name.to_owned(), next });
        };
        if bytes.len() > declared - self.given {
            let given = self.given.saturating_add(bytes.len());
            return Err(WriterError::TooLong { name: next.clone(), given, declared: *declared });
        }
        self.out.write_all(bytes)?;
        self.given += bytes.len();
        if self.given == *declared {
            write_padding(&mut self.out, *declared, self.alignment)?;
            self.tensor_idx += 1;
            self.given = 0;
        }
        Ok(())
    }

    /// Ends the file and gives the output back, flushed.
    ///
    /// # Errors
    /// When bytes of a tensor are missing, or the output fails.
    pub fn finish(mut self) -> Result<W, WriterError> {
        if let Some((name, declared)) = self.tensors.get(self.tensor_idx) {
            let (name, given, declared) = (name.clone(), self.given, *declared);
            return Err(WriterError::TooShort { name, given, declared });
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn write_padding(out: &mut impl Write, len: usize, alignment: usize) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut missing = len.next_multiple_of(alignment) - len;
    while missing > 0 {
        let part = missing.min(ZEROS.len());
        out.write_all(&ZEROS[..part])?;
        missing -= part;
    }
    Ok(())
}

/// Name and size of each tensor with bytes of its own.
type OwnTensors = Vec<(String, usize)>;

/// The header with its padding, and the tensors whose bytes are to follow.
fn encode_header(spec: &FileSpec) -> Result<(Vec<u8>, OwnTensors), WriterError> {
    let alignment = spec.alignment as usize;
    let asked = Value::U32(spec.alignment);
    let metadata = with_alignment(spec, &asked)?;
    let mut header = Vec::new();
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend((spec.tensors.len() as u64).to_le_bytes());
    header.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_str(&mut header, key);
        put_value(&mut header, value);
    }

    let mut offsets = BTreeMap::new();
    let mut own = Vec::new();
    let mut end: usize = 0;
    for tensor in &spec.tensors {
        let offset = if let Some(alias_of) = &tensor.alias_of {
            *offsets.get(alias_of.as_str()).ok_or_else(|| WriterError::UnknownAlias {
                name: tensor.name.clone(),
                alias_of: alias_of.clone(),
            })?
        } else {
            // A tensor without a size, and one that ends beyond what can be counted, meet the gate
            // below with the numbers they have.
            let bytes = tensor.dtype.tensor_bytes(&tensor.dims).unwrap_or(0);
            own.push((tensor.name.clone(), bytes));
            let start = end;
            let next = start.saturating_add(bytes).checked_next_multiple_of(alignment);
            end = next.unwrap_or(usize::MAX);
            start
        };
        offsets.insert(tensor.name.as_str(), offset);
        put_str(&mut header, &tensor.name);
        header.extend((tensor.dims.len() as u32).to_le_bytes());
        for dim in &tensor.dims {
            header.extend((*dim as u64).to_le_bytes());
        }
        header.extend(tensor.dtype.ggml_id().to_le_bytes());
        header.extend((offset as u64).to_le_bytes());
    }

    let raw = header::read(&header)?;
    let padded = raw.len.checked_next_multiple_of(alignment).unwrap_or(raw.len);
    validate::validate(raw, padded.saturating_add(end))?;
    header.resize(padded, 0);
    Ok((header, own))
}

/// The metadata, with the alignment `asked` for stated where it has to be.
fn with_alignment<'a>(
    spec: &'a FileSpec,
    asked: &'a Value,
) -> Result<Vec<(&'a str, &'a Value)>, WriterError> {
    let mut metadata: Vec<(&str, &Value)> =
        spec.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    match metadata.iter().find(|(key, _)| *key == ALIGNMENT_KEY) {
        Some((_, stated)) if *stated != asked => {
            let stated = stated.to_string();
            return Err(WriterError::AlignmentConflict { stated, asked: spec.alignment });
        }
        None if spec.alignment != ALIGNMENT_DEFAULT => metadata.push((ALIGNMENT_KEY, asked)),
        _ => {}
    }
    Ok(metadata)
}

fn put_str(header: &mut Vec<u8>, text: &str) {
    header.extend((text.len() as u64).to_le_bytes());
    header.extend(text.as_bytes());
}

fn put_value(header: &mut Vec<u8>, value: &Value) {
    fn array<T: Copy, const N: usize>(out: &mut Vec<u8>, array: &[T], bytes: fn(T) -> [u8; N]) {
        out.extend((array.len() as u64).to_le_bytes());
        out.extend(array.iter().flat_map(|element| bytes(*element)));
    }
    header.extend(value.value_type().id().to_le_bytes());
    if let Some(element_type) = value.element_type() {
        debug_assert_eq!(value.value_type(), ValueType::Array);
        header.extend(element_type.id().to_le_bytes());
    }
    match value {
        Value::U8(number) => header.push(*number),
        Value::I8(number) => header.extend(number.to_le_bytes()),
        Value::U16(number) => header.extend(number.to_le_bytes()),
        Value::I16(number) => header.extend(number.to_le_bytes()),
        Value::U32(number) => header.extend(number.to_le_bytes()),
        Value::I32(number) => header.extend(number.to_le_bytes()),
        Value::F32(number) => header.extend(number.to_le_bytes()),
        Value::Bool(truth) => header.push(u8::from(*truth)),
        Value::String(text) => put_str(header, text),
        Value::U64(number) => header.extend(number.to_le_bytes()),
        Value::I64(number) => header.extend(number.to_le_bytes()),
        Value::F64(number) => header.extend(number.to_le_bytes()),
        Value::U8Array(numbers) => array(header, numbers, u8::to_le_bytes),
        Value::I8Array(numbers) => array(header, numbers, i8::to_le_bytes),
        Value::U16Array(numbers) => array(header, numbers, u16::to_le_bytes),
        Value::I16Array(numbers) => array(header, numbers, i16::to_le_bytes),
        Value::U32Array(numbers) => array(header, numbers, u32::to_le_bytes),
        Value::I32Array(numbers) => array(header, numbers, i32::to_le_bytes),
        Value::F32Array(numbers) => array(header, numbers, f32::to_le_bytes),
        Value::BoolArray(truths) => array(header, truths, |truth| [u8::from(truth)]),
        Value::StringArray(texts) => {
            header.extend((texts.len() as u64).to_le_bytes());
            texts.iter().for_each(|text| put_str(header, text));
        }
        Value::U64Array(numbers) => array(header, numbers, u64::to_le_bytes),
        Value::I64Array(numbers) => array(header, numbers, i64::to_le_bytes),
        Value::F64Array(numbers) => array(header, numbers, f64::to_le_bytes),
    }
}
