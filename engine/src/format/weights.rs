//! Stub.

/// Refusals.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {}
