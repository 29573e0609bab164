//! Malformed GGUF files, one or more for every refusal of the reader.
//!
//! Promises: [`files`] gives the same bytes on every machine, each file small whatever it declares,
//! and says which refusal it must meet and in which words. Every file is wrong in one way only (a
//! length beyond a limit is also beyond the end, since it is only declared), so a reader that
//! misses that one check opens it or crashes.
//! May assume: nothing of the reader. The bytes are put together by hand, not by the writer, which
//! refuses to write them.
//! Leaves to others: files that are wrong at random (the fuzz test), models that lack tensors.

mod metadata;
mod raw;
mod tensors;

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use engine::format::Value;
use engine::format::writer::{FileSpec, TensorInfo, Writer};
use engine::tensor::DType;

/// A malformed file and the refusal it must meet.
pub struct HostileFile {
    /// The name of the file.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
    /// The name of the refusal, one of `GgufError::NAMES`.
    pub expected: &'static str,
    /// The words of the refusal, which name the field and the value.
    pub message: &'static str,
    /// What goes wrong in a reader without the check.
    pub why: &'static str,
}

/// All malformed files, in the order in which a reader meets the faults.
#[must_use]
pub fn files() -> Vec<HostileFile> {
    let groups = [
        metadata::fixed_part(),
        metadata::counts(),
        metadata::strings(),
        metadata::keys(),
        metadata::values(),
        metadata::alignments(),
        tensors::tensor_names(),
        tensors::dimensions(),
        tensors::sizes(),
        tensors::types(),
        tensors::ranges(),
        tensors::overlaps(),
    ];
    groups.into_iter().flatten().collect()
}

/// Writes all files and the README that lists them into `folder`.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn write_all(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for file in files() {
        std::fs::write(folder.join(file.name), file.bytes)?;
    }
    std::fs::write(folder.join("README.md"), readme())
}

/// The README beside the files.
#[must_use]
pub fn readme() -> String {
    let mut text = String::from(
        "# Hostile files\n\n\
         Malformed GGUF files, made by `oracle::hostile`; do not edit them by hand. Each is wrong\n\
         in one way and must meet exactly the refusal listed here, within the memory and time of\n\
         a small file. Absurd lengths and counts are only declared, never stored.\n\n\
         | file | bytes | refusal | words of the refusal | without the check |\n\
         |---|---:|---|---|---|\n",
    );
    for HostileFile { name, bytes, expected, message, why } in files() {
        let (message, len) = (message.replace('|', "\\|"), bytes.len());
        writeln!(text, "| `{name}` | {len} | {expected} | {message} | {why} |")
            .expect("writing to a string does not fail");
    }
    text
}

/// A small valid file with every kind of thing a file has: the start of every mutation.
///
/// # Panics
/// Never, unless the writer is broken.
#[must_use]
pub fn good_file() -> Vec<u8> {
    let text = |text: &str| text.to_owned();
    let metadata = vec![
        (text("general.architecture"), Value::String(text("deepseek4"))),
        (text("general.alignment"), Value::U32(64)),
        (text("a.u64"), Value::U64(65_536)),
        (text("a.f32"), Value::F32(1e-6)),
        (text("a.bool"), Value::Bool(true)),
        (text("a.ratios"), Value::I32Array(vec![0, 0, 4, 128])),
        (text("a.bools"), Value::BoolArray(vec![true, false])),
        (text("a.tokens"), Value::StringArray(vec![text("th"), text("ü"), text("")])),
    ];
    let tensor = |name: &str, dtype, dims: &[usize], alias_of: Option<&str>| TensorInfo {
        name: text(name),
        dtype,
        dims: dims.to_vec(),
        alias_of: alias_of.map(text),
    };
    let tensors = vec![
        tensor("token_embd.weight", DType::F16, &[32, 4], None),
        tensor("output.weight", DType::F16, &[32, 4], Some("token_embd.weight")),
        tensor("blk.0.q", DType::Q8_0, &[32, 2], None),
        tensor("blk.0.e", DType::Iq2Xxs, &[256, 1, 2], None),
        tensor("blk.0.norm", DType::F32, &[32], None),
    ];
    let spec = FileSpec { metadata, tensors, alignment: 64 };
    let mut writer = Writer::new(Vec::new(), &spec).expect("the spec is valid");
    while let Some((name, missing)) = writer.next_tensor() {
        let name = name.to_owned();
        writer.write(&name, &vec![0x5a; missing]).expect("the bytes are those missing");
    }
    writer.finish().expect("all tensors were given")
}
