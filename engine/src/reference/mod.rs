//! The CPU reference: plain scalar code that defines what every operation means.
//!
//! Promises: one file an operation family, each row of a call computed from that row and the state
//! alone, one thread. [`Reference`] puts the families behind the trait that `forward` runs on. Speed
//! matters little here.
//! Reading order: `order`, `round`, `norm`, `rope`, `matmul`, `hyper`, `compressor`, `indexer`,
//! `attention`, `router`, `moe`, `backend`.

pub mod attention;
pub mod backend;
pub mod compressor;
pub mod hyper;
pub mod indexer;
pub mod matmul;
pub mod moe;
pub mod norm;
pub mod order;
pub mod rope;
pub mod round;
pub mod router;

pub use backend::Reference;
