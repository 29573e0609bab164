//! `env`: the run-time switches in force, and what this machine can run.
//!
//! Promises: every switch of the table with value and source; what was looked for on the machine and
//! not found reads `not found`, and what was not tried reads `not run`. Nothing is run to find out.

use std::process::{Command, ExitCode};

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use engine::Switches;
use engine::reference::order::CONTRACT;
use engine::switches::{Entry, Simd};
use serde::Serialize;

use crate::flags::Env;
use crate::workspace;

/// The library that comes with the driver of an NVIDIA GPU.
const GPU_LIBRARY: &str = "libcuda.so.1";

pub fn run(flags: &Env, switches: &Switches) -> Result<ExitCode> {
    let report = Report {
        switches: switches.entries().iter().map(Line::of).collect(),
        machine: Machine::look(),
        build: Build::known(),
    };
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Report {
    switches: Vec<Line>,
    machine: Machine,
    build: Build,
}

/// A switch.
#[derive(Serialize)]
struct Line {
    switch: &'static str,
    #[serde(flatten)]
    entry: Entry,
    values: String,
    variable: &'static str,
    option: &'static str,
    aliases: Vec<&'static str>,
}

impl Line {
    fn of(entry: &Entry) -> Self {
        let row = entry.row;
        Self {
            switch: row.name,
            entry: *entry,
            values: row.values.to_string(),
            variable: row.variable,
            option: row.option,
            aliases: row.aliases.iter().map(|alias| alias.name).collect(),
        }
    }
}

/// Instructions that a level of the switch `simd` needs.
#[derive(Serialize)]
struct Level {
    simd: &'static str,
    needs: &'static str,
    found: bool,
}

#[derive(Serialize)]
struct Memory {
    total_bytes: u64,
    available_bytes: u64,
}

#[derive(Serialize)]
struct Gpu {
    library: &'static str,
    found: bool,
    run: &'static str,
}

#[derive(Serialize)]
struct Machine {
    architecture: &'static str,
    system: &'static str,
    simd: Vec<Level>,
    cores: Option<usize>,
    memory: Option<Memory>,
    gpu_driver: Gpu,
}

impl Machine {
    fn look() -> Self {
        Self {
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            simd: levels(),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory: memory(),
            gpu_driver: Gpu {
                library: GPU_LIBRARY,
                found: can_be_opened(GPU_LIBRARY),
                run: "not run",
            },
        }
    }
}

fn levels() -> Vec<Level> {
    #[cfg(target_arch = "x86_64")]
    let (avx2, avx512) = (
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl"),
    );
    #[cfg(not(target_arch = "x86_64"))]
    let (avx2, avx512) = (false, false);
    vec![
        Level { simd: Simd::Scalar.name(), needs: "nothing", found: true },
        Level { simd: Simd::Avx2.name(), needs: "avx2, fma", found: avx2 },
        Level { simd: Simd::Avx512.name(), needs: "avx512f, avx512bw, avx512vl", found: avx512 },
    ]
}

/// From the kernel's own figures, where it has them in this form.
fn memory() -> Option<Memory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes << 10)
    };
    Some(Memory { total_bytes: bytes("MemTotal")?, available_bytes: bytes("MemAvailable")? })
}

/// Whether the loader finds a shared library.
fn can_be_opened(name: &str) -> bool {
    #[cfg(unix)]
    {
        let Ok(name) = std::ffi::CString::new(name) else { return false };
        // SAFETY: the name ends with a zero byte and outlives the call. Loading runs the initialisers of
        // the driver's library, which any GPU program on this machine runs too.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            // SAFETY: the handle is open and is not used again.
            unsafe { libc::dlclose(handle) };
            return true;
        }
    }
    false
}

/// What made this program.
#[derive(Serialize)]
pub struct Build {
    version: &'static str,
    contract: u32,
    rustc: &'static str,
    profile: &'static str,
    /// Of the checkout, with `-dirty` when files differ from it.
    commit: Option<String>,
}

impl Build {
    /// What is known of this program and of the checkout it belongs to.
    pub fn known() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            contract: CONTRACT,
            rustc: env!("BUILT_WITH"),
            profile: if cfg!(debug_assertions) { "with checks" } else { "release" },
            commit: commit(),
        }
    }
}

fn commit() -> Option<String> {
    let describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"];
    let output = Command::new("git").args(describe).current_dir(workspace::root()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

impl Report {
    fn print(&self) {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["switch", "value", "from", "variable", "option", "aliases"]);
        for line in &self.switches {
            table.add_row([
                line.switch,
                &line.entry.value.to_string(),
                &line.entry.source.to_string(),
                line.variable,
                line.option,
                &line.aliases.join(", "),
            ]);
        }
        print_trimmed(&table);
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header(["machine", ""]);
        for [name, value] in self.machine.lines() {
            table.add_row([name, value]);
        }
        print_trimmed(&table);
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header(["build", ""]);
        let build = &self.build;
        table.add_row(["version", build.version]);
        table.add_row(["numerics contract", &build.contract.to_string()]);
        table.add_row(["compiler", build.rustc]);
        table.add_row(["build", build.profile]);
        table.add_row(["commit of the checkout", build.commit.as_deref().unwrap_or("not known")]);
        print_trimmed(&table);
    }
}

impl Machine {
    fn lines(&self) -> Vec<[String; 2]> {
        let unknown = || "not known".to_owned();
        let mut lines = vec![["system".into(), format!("{} {}", self.architecture, self.system)]];
        for level in &self.simd {
            let found = if level.found { "found" } else { "not found" };
            lines
                .push([format!("simd {}", level.simd), format!("{found} (needs {})", level.needs)]);
        }
        let cores = self.cores.map_or_else(unknown, |cores| cores.to_string());
        lines.push(["threads of the machine".into(), cores]);
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        let memory = self.memory.as_ref().map_or_else(unknown, |memory| {
            let (total, available) = (gib(memory.total_bytes), gib(memory.available_bytes));
            format!("{total:.1} GiB, {available:.1} available")
        });
        lines.push(["memory".into(), memory]);
        let Gpu { library, found, run } = self.gpu_driver;
        let driver = match found {
            true => format!("{library} opens; no device was asked"),
            false => format!("not found: {library} cannot be opened"),
        };
        lines.push(["GPU driver".into(), driver]);
        lines.push(["GPU".into(), format!("{run}: this command computes nothing")]);
        lines
    }
}

fn print_trimmed(table: &Table) {
    let text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    println!("{text}");
}
