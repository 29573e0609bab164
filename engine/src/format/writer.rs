//! Writing GGUF v3 files.
