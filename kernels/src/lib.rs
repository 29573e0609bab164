//! CUDA kernels of the DeepSeek-V4 engine.
//!
//! Promises nothing yet: the crate holds the place of the kernels in the dependency order
//! `kernels` <- `engine` <- `oracle` <- `xtask`. Everything that runs today runs on the CPU reference.
