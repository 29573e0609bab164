//! The CPU backend: the reference's bytes with vectors and threads.
//!
//! Promises: nothing here has a meaning of its own; every file names the one of `reference` whose bytes
//! it gives. Reading order: `level`, `threads`, `lanes`, `activations`, `avx2`, `float`, `matmul`,
//! `attention`, `indexer`, `experts`, `backend`.

pub mod activations;
pub mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod backend;
pub mod experts;
pub mod float;
pub mod indexer;
pub mod lanes;
pub mod level;
pub mod matmul;
pub mod threads;

pub use backend::Cpu;
pub use experts::Combine;
pub use level::Level;
