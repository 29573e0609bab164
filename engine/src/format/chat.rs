//! Chat rendering.
