//! Where things are.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is inside the workspace").into()
}

/// The folder of fixtures.
pub fn fixtures() -> PathBuf {
    root().join("fixtures")
}

/// The folder of accepted goldens.
pub fn golden() -> PathBuf {
    root().join("golden")
}

/// Where new goldens wait.
pub fn pending() -> PathBuf {
    root().join("target/golden")
}

/// Ground truth too bulky for the workspace, where it is.
pub fn ground_truth() -> PathBuf {
    root().join("../shared/ground-truth")
}
