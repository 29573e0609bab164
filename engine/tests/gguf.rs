//! What goes in comes out, and a file that was cut off never opens.
//!
//! Promises: reader and writer agree on every value type, tensor type and alignment; a good file
//! cut anywhere in its tensor data is refused with the first tensor that is incomplete and the
//! number of bytes it lacks; a file that ends with the last byte of its last tensor opens.
//! Leaves to others: malformed headers (the hostile files) and random ones (the fuzz test).

use std::path::Path;

use engine::ErrorKind;
use engine::format::writer::{FileSpec, TensorInfo, Writer, WriterError};
use engine::format::{Gguf, GgufError, Value};
use engine::tensor::DType;

fn tensor(name: &str, dtype: DType, dims: &[usize]) -> TensorInfo {
    TensorInfo { name: name.into(), dtype, dims: dims.to_vec(), alias_of: None }
}

fn alias(name: &str, of: &str, dtype: DType, dims: &[usize]) -> TensorInfo {
    TensorInfo { alias_of: Some(of.into()), ..tensor(name, dtype, dims) }
}

/// The bytes of tensor `name`: telling for each tensor, and of no value to padding.
fn contents(name: &str, len: usize) -> Vec<u8> {
    let first = name.bytes().fold(1, u8::wrapping_add);
    (0..len).map(|byte_idx| first.wrapping_add(byte_idx as u8) | 1).collect()
}

/// The file of `spec`, each tensor given in parts of at most `part` bytes.
fn file(spec: &FileSpec, part: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), spec).unwrap();
    while let Some((name, missing)) = writer.next_tensor() {
        let name = name.to_owned();
        for part in contents(&name, missing).chunks(part) {
            writer.write(&name, part).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn every_value() -> Vec<(String, Value)> {
    let values = [
        Value::U8(u8::MAX),
        Value::I8(i8::MIN),
        Value::U16(u16::MAX),
        Value::I16(i16::MIN),
        Value::U32(u32::MAX),
        Value::I32(i32::MIN),
        Value::F32(f32::MIN_POSITIVE),
        Value::Bool(true),
        Value::String("grüße\0".into()),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(f64::MAX),
        Value::U8Array(vec![1, 2, 3]),
        Value::I8Array(vec![-1]),
        Value::U16Array(vec![1, u16::MAX]),
        Value::I16Array(vec![i16::MIN]),
        Value::U32Array(vec![7; 5]),
        Value::I32Array(vec![0, 4, 128]),
        Value::F32Array(vec![10.0, -0.0]),
        Value::BoolArray(vec![true, false]),
        Value::StringArray(vec!["a".into(), String::new(), "ü".into()]),
        Value::U64Array(vec![u64::MAX]),
        Value::I64Array(vec![]),
        Value::F64Array(vec![0.1]),
    ];
    let name = |(index, value): (usize, Value)| (format!("z{}.key", 99 - index), value);
    values.into_iter().enumerate().map(name).collect()
}

fn every_type() -> Vec<TensorInfo> {
    let mut tensors: Vec<_> = DType::ALL
        .into_iter()
        .map(|dtype| tensor(dtype.name(), dtype, &[dtype.block_elements() * 3, 1, 2]))
        .collect();
    tensors.push(alias("tied", "Q2_K", DType::Q2K, &[256, 6]));
    tensors.push(tensor("after", DType::F32, &[1]));
    tensors.push(alias("tied again", "tied", DType::Q2K, &[768, 2]));
    tensors
}

#[test]
fn what_is_written_is_read() {
    for alignment in [8, 32, 4096, 65_536] {
        let spec = FileSpec { metadata: every_value(), tensors: every_type(), alignment };
        let bytes = file(&spec, 7);
        assert_eq!(bytes, file(&spec, usize::MAX), "the parts must not matter");
        assert!(bytes.len().is_multiple_of(alignment as usize));
        let gguf = Gguf::from_bytes(bytes).unwrap();

        let mut metadata: Vec<_> = spec.metadata.clone();
        if alignment != 32 {
            metadata.push(("general.alignment".into(), Value::U32(alignment)));
        }
        metadata.sort_by(|(first, _), (second, _)| first.cmp(second));
        assert_eq!(gguf.metadata().clone().into_iter().collect::<Vec<_>>(), metadata);
        assert_eq!(gguf.alignment(), alignment);
        assert_eq!(gguf.path(), None);

        assert_eq!(gguf.tensors().len(), spec.tensors.len());
        for (info, read) in spec.tensors.iter().zip(gguf.tensors()) {
            assert_eq!(read.name(), info.name);
            assert_eq!((read.dtype(), read.dims()), (info.dtype, &info.dims[..]));
            let owner = if info.name.starts_with("tied") { "Q2_K" } else { &info.name };
            assert_eq!(**read.bytes(), contents(owner, read.bytes().len()), "{}", info.name);
            assert!(std::ptr::eq(gguf.tensor(&info.name).unwrap(), read));
        }
        assert!(gguf.tensor("").is_none());
        assert!(gguf.tensor("Q2_K ").is_none());
    }
}

#[test]
fn a_file_of_nothing_is_a_file() {
    let spec = FileSpec { metadata: vec![], tensors: vec![], alignment: 32 };
    let bytes = file(&spec, 1);
    for len in [24, 25, 32] {
        let gguf = Gguf::from_bytes(bytes[..len].to_vec()).unwrap();
        assert!(gguf.metadata().is_empty() && gguf.tensors().is_empty());
    }
}

/// Three tensors of 64, 68 and 24 bytes; the data begins at `data_start`.
fn three_tensors() -> (Vec<u8>, usize) {
    let tensors = vec![
        tensor("first", DType::F32, &[16]),
        tensor("second", DType::Q8_0, &[32, 2]),
        tensor("third", DType::F16, &[4, 3]),
    ];
    let bytes = file(&FileSpec { metadata: every_value(), tensors, alignment: 32 }, usize::MAX);
    let data_start = Gguf::from_bytes(bytes.clone()).unwrap().data_start();
    assert_eq!(bytes.len(), data_start + 64 + 96 + 32);
    (bytes, data_start)
}

#[test]
fn a_cut_off_file_names_the_first_incomplete_tensor() {
    let (bytes, data_start) = three_tensors();
    let end = data_start + 64 + 96 + 24;
    let half = data_start + 92;
    let rows = [
        ("one byte", end - 1, "third", 1, 1),
        ("one block of the last tensor", end - 2, "third", 2, 1),
        ("the last tensor", end - 24, "third", 24, 1),
        ("one block of the second", data_start + 64 + 34, "second", 34, 2),
        ("half of the tensor data", half, "second", 64 + 68 - 92, 2),
        ("all tensor data", data_start, "first", 64, 3),
        ("all tensor data and the padding before it", data_start - 1, "first", 65, 3),
    ];
    for (what, len, name, beyond, tensors) in rows {
        let error = Gguf::from_bytes(bytes[..len].to_vec()).err().expect(what);
        assert!(matches!(error.kind(), ErrorKind::Gguf(GgufError::BeyondEnd { .. })), "{error}");
        let expected = format!(
            "tensor `{name}`: ends {beyond} bytes beyond the end of the file ({len} bytes), \
             tensors cut off: {tensors}"
        );
        assert_eq!(error.to_string(), expected, "{what}");
    }
}

#[test]
fn every_shorter_file_is_refused_and_none_longer() {
    let (bytes, data_start) = three_tensors();
    let end = data_start + 64 + 96 + 24;
    for len in 0..end {
        assert!(Gguf::from_bytes(bytes[..len].to_vec()).is_err(), "{len} of {end} bytes opened");
    }
    for len in end..=bytes.len() {
        assert!(Gguf::from_bytes(bytes[..len].to_vec()).is_ok(), "{len} bytes, all {end} there");
    }
    let longer = [&bytes[..], &[0xff; 100]].concat();
    assert!(Gguf::from_bytes(longer).is_ok());
}

#[test]
fn a_file_on_disk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let (bytes, _) = three_tensors();
    std::fs::write(&path, &bytes).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.path(), Some(&*path));
    assert_eq!(**gguf.tensor("third").unwrap().bytes(), contents("third", 24));
    drop(gguf);

    let check = |path: &Path, text: &str| {
        let error = Gguf::open(path).err().unwrap();
        assert_eq!(error.path(), Some(path));
        let expected = format!("{}: {text}", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    };
    std::fs::write(&path, b"").unwrap();
    check(&path, "file is 0 bytes");
    std::fs::write(&path, &bytes[..bytes.len() - 33]).unwrap();
    check(&path, "tensor `third`: ends 25 bytes beyond the end of the file");
    check(&folder.path().join("absent.gguf"), "cannot read: ");
    check(folder.path(), "cannot read: not a regular file");
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let spec = |tensors| FileSpec { metadata: vec![], tensors, alignment: 32 };
    let stated = |alignment| vec![("general.alignment".to_owned(), Value::U32(alignment))];
    let max = usize::MAX;
    let rows: Vec<(FileSpec, &str)> = vec![
        (
            spec(vec![tensor("a", DType::Q2K, &[255])]),
            "would not be readable: tensor `a`: dimension 0 is 255, not a multiple of 256, the \
             block of Q2_K",
        ),
        (
            spec(vec![tensor("a", DType::F32, &[max, 1])]),
            "would not be readable: tensor `a`: size of [18446744073709551615, 1] overflows",
        ),
        (
            spec(vec![tensor("a", DType::F32, &[1, 0])]),
            "would not be readable: tensor `a`: dimension 1 is zero",
        ),
        (
            spec(vec![tensor("a", DType::F32, &[])]),
            "would not be readable: tensor `a`: number of dimensions is 0, not 1 to 4",
        ),
        (
            spec(vec![tensor("a", DType::F32, &[1]), tensor("a", DType::F32, &[1])]),
            "would not be readable: tensor `a` appears twice",
        ),
        (
            spec(vec![tensor("a", DType::F32, &[2]), alias("b", "a", DType::F16, &[4])]),
            "would not be readable: tensors `a` and `b` are the same bytes with types F32 and F16",
        ),
        (
            spec(vec![alias("b", "a", DType::F32, &[2]), tensor("a", DType::F32, &[2])]),
            "tensor `b`: alias of `a`, which is no earlier tensor",
        ),
        (
            FileSpec { metadata: vec![], tensors: vec![], alignment: 0 },
            "would not be readable: metadata `general.alignment` is 0, not a power of two from 8 \
             to 65536",
        ),
        (
            FileSpec { metadata: stated(64), tensors: vec![], alignment: 32 },
            "metadata `general.alignment` is 64, the alignment asked for is 32",
        ),
    ];
    for (spec, text) in rows {
        let mut written = Vec::new();
        let error = Writer::new(&mut written, &spec).err().expect(text);
        assert_eq!(error.to_string(), text);
        assert!(written.is_empty(), "{text}");
    }
}

#[test]
fn the_writer_counts_the_bytes_of_each_tensor() {
    let tensors = vec![tensor("a", DType::F32, &[2]), tensor("b", DType::F16, &[2])];
    let spec = FileSpec { metadata: vec![], tensors, alignment: 32 };
    let start = || Writer::new(Vec::new(), &spec).unwrap();
    let check = |result: Result<(), WriterError>, text: &str| {
        assert_eq!(result.unwrap_err().to_string(), text);
    };
    check(start().write("b", &[0]), "bytes for tensor `b`, the next tensor is Some(\"a\")");
    check(start().write("a", &[0; 9]), "tensor `a`: 9 bytes given, 8 declared");
    let mut writer = start();
    writer.write("a", &[0; 5]).unwrap();
    assert_eq!(writer.next_tensor(), Some(("a", 3)));
    check(writer.write("a", &[0; 4]), "tensor `a`: 9 bytes given, 8 declared");
    check(writer.finish().map(drop), "tensor `a`: only 5 bytes given, 8 declared");
    let mut writer = start();
    writer.write("a", &[0; 8]).unwrap();
    writer.write("b", &[0; 4]).unwrap();
    check(writer.write("b", &[0]), "bytes for tensor `b`, the next tensor is None");
}
