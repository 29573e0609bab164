//! The order of operations.

pub mod elementary;
