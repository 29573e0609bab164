//! Every malformed file meets its refusal, and every refusal has a malformed file.
//!
//! Promises: the committed files are those that the code makes, no more and no fewer; opening one
//! gives the refusal that the README lists, in its words, with the path in front; a refusal of the
//! reader without a file is a failure.
//! Leaves to others: files wrong at random (`gguf_fuzz`), files cut off in good data (the engine's
//! own tests).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::ErrorKind;
use engine::format::{Gguf, GgufError};
use oracle::hostile;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hostile")
}

#[test]
fn committed_files_are_those_the_code_makes() {
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    expected.insert("README.md".into(), hostile::readme().into_bytes());
    for file in hostile::files() {
        assert!(file.bytes.len() < 1024, "{}: {} bytes", file.name, file.bytes.len());
        let earlier = expected.insert(file.name.into(), file.bytes);
        assert!(earlier.is_none(), "{} is made twice", file.name);
    }
    let mut committed = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        committed.insert(name, std::fs::read(path).unwrap());
    }
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&committed), names(&expected));
    for (name, bytes) in &expected {
        assert_eq!(&committed[name], bytes, "{name}");
    }
}

#[test]
fn each_file_meets_its_refusal() {
    let folder = folder();
    for file in hostile::files() {
        let path = folder.join(file.name);
        let error = Gguf::open(&path).err().unwrap_or_else(|| panic!("{} opened", file.name));
        let ErrorKind::Gguf(refusal) = error.kind() else { panic!("{}: {error}", file.name) };
        assert_eq!(refusal.name(), file.expected, "{}: {error}", file.name);
        assert_eq!(error.to_string(), format!("{}: {}", path.display(), file.message));
        assert_eq!(error.path(), Some(&*path));
        let error = Gguf::from_bytes(file.bytes).err().expect(file.name);
        assert_eq!((error.to_string().as_str(), error.path()), (file.message, None));
    }
}

#[test]
fn every_refusal_has_a_file() {
    let covered: BTreeSet<_> = hostile::files().iter().map(|file| file.expected).collect();
    assert_eq!(covered, GgufError::NAMES.iter().copied().collect());
}

#[test]
fn the_good_file_is_good() {
    let gguf = Gguf::from_bytes(hostile::good_file()).unwrap();
    assert_eq!((gguf.metadata().len(), gguf.tensors().len()), (8, 5));
}
