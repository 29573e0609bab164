//! Hands the version of the compiler to `env`; it is not known otherwise once the program is built.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.unwrap_or_default();
    let version = if version.trim().is_empty() { "not known" } else { version.trim() };
    println!("cargo::rustc-env=BUILT_WITH={version}");
}
