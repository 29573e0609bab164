//! Progress of long work: a bar on a terminal, nothing in a pipe.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `total` steps of `unit`; it draws only when standard error is a terminal.
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}  {{eta}} left  {{wide_msg}}");
    let style = ProgressStyle::with_template(&template).expect("a fixed template");
    ProgressBar::new(total).with_style(style)
}

/// A bar of `total` bytes.
pub fn bytes(total: u64) -> ProgressBar {
    let template = "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left  {wide_msg}";
    ProgressBar::new(total)
        .with_style(ProgressStyle::with_template(template).expect("a fixed template"))
}
