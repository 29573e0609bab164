//! Command line of the workspace.

fn main() {}
