//! The CPU backend: the reference's bytes at the speed of the machine.
//!
//! Promises: nothing here has a meaning of its own; every file names the one of `reference` whose bytes
//! it gives, for every number of rows, at every [`Level`] and with any number of threads. An output
//! element is one chain of operations inside one thread, so neither the split of the work nor its
//! timing can show; [`Combine::Atomic`] is the one exception, and is asked for by name.
//!
//! How the contract of `reference::order` becomes lanes: the 8 parts of a quantised row are the 8 lanes
//! of a register ([`activations`] stores activations that way); the rows of a float matrix, and the
//! heads of attention, are lanes, 8 at a time, and each lane is one chain over a segment.
//!
//! Reading order: `level`, `threads`, `activations`, `matmul` and the kernels below it (`k_row`, `q8_0`,
//! `k_quants`, `iq2_xxs`, `float`), `lanes`, `attention`, `indexer`, `experts`, `backend`.

pub mod activations;
pub mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod backend;
pub mod experts;
#[cfg(target_arch = "x86_64")]
mod float;
pub mod indexer;
#[cfg(target_arch = "x86_64")]
mod iq2_xxs;
#[cfg(target_arch = "x86_64")]
mod k_quants;
#[cfg(target_arch = "x86_64")]
mod k_row;
pub mod lanes;
pub mod level;
pub mod matmul;
#[cfg(target_arch = "x86_64")]
mod q8_0;
mod scalar;
pub mod threads;
pub mod view;

pub use activations::Activations;
pub use backend::Cpu;
pub use experts::Combine;
pub use level::Level;
pub use matmul::{Job, Kernels, Pick};
pub use threads::Threads;
pub use view::View;
