//! Coverage-guided search for a file that makes the GGUF reader panic, hang or take memory.
//!
//! Promises: every input is opened, everything a caller can see of an opened file is read, and
//! every refusal is put into words. The command in the README sets the limits on time and memory.
//! Leaves to others: whether a refusal is the right one (`oracle/tests/hostile.rs`).
#![no_main]

use engine::format::Gguf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match Gguf::from_bytes(bytes.to_vec()) {
        Ok(gguf) => {
            for value in gguf.metadata().values() {
                assert!(!value.to_string().is_empty());
            }
            for tensor in gguf.tensors() {
                let found = gguf.tensor(tensor.name()).expect("a listed tensor is found");
                assert!(std::ptr::eq(found, tensor));
                let bytes_of = tensor.dtype().tensor_bytes(tensor.dims());
                assert_eq!(Some(tensor.bytes().len()), bytes_of);
                std::hint::black_box(tensor.bytes().iter().fold(0, |seen: u8, byte| seen ^ byte));
            }
        }
        Err(error) => assert!(error.to_string().len() < 500),
    }
});
