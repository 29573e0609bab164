//! The CPU reference: plain scalar code that defines what every operation means.

pub mod order;
