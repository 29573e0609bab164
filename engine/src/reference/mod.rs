//! The CPU reference: plain scalar code that defines what every operation means.
//!
//! Promises: one file an operation family, each row of a call computed from that row and the state
//! alone, one thread. [`layer`] and [`mtp`] put the families together. Speed matters little here.
//! Reading order: `order`, `round`, `norm`, `rope`, `matmul`, `hyper`, `compressor`, `indexer`,
//! `attention`, `router`, `moe`, `state`, `layer`, `mtp`.

pub mod attention;
pub mod compressor;
pub mod hyper;
pub mod indexer;
pub mod layer;
pub mod matmul;
pub mod moe;
pub mod mtp;
pub mod norm;
pub mod order;
pub mod rope;
pub mod round;
pub mod router;
pub mod state;
