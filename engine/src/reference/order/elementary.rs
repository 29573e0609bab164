//! Elementary functions.
