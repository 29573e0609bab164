//! Speed of every operation family of the CPU engine at the shapes of the full model.
//!
//! Promises: throughput is in bytes that the operation must move (weights, rows in and out, state); the last
//! table sets the best time of each against plain reading in the same run. Weights are random and those
//! of one layer of each kind, with fewer experts and a smaller vocabulary than the model has.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use engine::backend::{Backend, Call, CompressedRows};
use engine::config::{Compression, RawConfig};
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::format::Gguf;
use engine::format::weights::Matrix;
use engine::tap::{Place, Tap, Taps, Unobserved};
use engine::{Model, Profile};
use oracle::battery::{Inputs, rows};
use oracle::fixtures::recipe::Shape;
use oracle::fixtures::{Part, model_bytes};

/// Bytes of the plain read.
const READ: usize = 512 << 20;
/// Tokens in the state before the call.
const HISTORY: usize = 4096;
/// Tokens of a call.
const WIDTHS: [usize; 2] = [1, 32];

/// A layer without compression, one of ratio 4, one of ratio 128.
fn shape() -> Shape {
    Shape {
        name: "layers",
        ratios: vec![0, 4, 128],
        experts: 16,
        vocabulary: 4096,
        hash_layers: 1,
        specials: [0, 1, 2, 3, 4, 5, 6, 7],
        ..Shape::flash()
    }
}

fn model() -> Model {
    let file = Gguf::from_bytes(model_bytes(&shape(), Part::Main)).unwrap();
    let raw = RawConfig::from_gguf(file.metadata()).unwrap();
    Model::from_source(&file, &raw, file.metadata().clone(), Path::new("layers")).unwrap()
}

/// Best time of each operation, with its bytes.
struct Bench<'c> {
    group: BenchmarkGroup<'c, WallTime>,
    threads: usize,
    best: RefCell<Vec<(String, usize, u64, f64)>>,
}

impl Bench<'_> {
    fn run(&mut self, name: &str, bytes: usize, mut each: impl FnMut()) {
        self.group.throughput(Throughput::Bytes(bytes as u64));
        let best = RefCell::new(f64::INFINITY);
        self.group.bench_function(format!("{name}/threads{}", self.threads), |bencher| {
            bencher.iter_custom(|count| {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let start = now();
                    each();
                    let time = start.elapsed();
                    total += time;
                    let seconds = best.borrow().min(time.as_secs_f64());
                    best.replace(seconds);
                }
                total
            });
        });
        let row = (name.to_owned(), self.threads, bytes as u64, best.into_inner());
        self.best.borrow_mut().push(row);
    }
}

fn now() -> Instant {
    Instant::now()
}

fn input(cpu: &Cpu, count: usize, width: usize) -> <Cpu as Backend>::Rows {
    cpu.upload(rows(Inputs::Random, 7, 0..count, width)).unwrap()
}

fn bytes_of(matrix: &Matrix) -> usize {
    matrix.dtype().row_bytes(matrix.columns()).unwrap() * matrix.rows()
}

/// What memory gives: the sum of all words of a large buffer.
fn read(bench: &mut Bench<'_>, threads: &Threads) {
    let words = vec![3_u64; READ / 8];
    bench.run("read", READ, || {
        let total = AtomicU64::new(0);
        threads.spread(words.chunks(32 << 10).collect(), |words: &[u64]| {
            let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
            total.fetch_add(sum, Ordering::Relaxed);
        });
        black_box(total.into_inner());
    });
}

/// Families whose rows are all there is to move, and products.
fn rows_and_products(bench: &mut Bench<'_>, cpu: &Cpu, model: &Model, n: usize) {
    let (config, weights) = (&model.config, &model.weights);
    let (hidden, layer) = (config.hidden, &weights.layers[1]);
    let profile = Profile::DS4;
    let ids: Vec<u32> = (0..n as u32).map(|id| id * 31 % 4096).collect();
    let call = Call::new(config, &profile, &ids, HISTORY);
    let mut nobody = Unobserved;
    let mut taps = Taps::new(&mut nobody, Place::Layer(1));
    let names = [Tap::AttnHyperPost, Tap::AttnHyperComb];
    let name = |operation: &str| format!("{operation} x{n}");
    let row = n * hidden * 4;
    let x = input(cpu, n, hidden);
    let streams = input(cpu, n, 4 * hidden);
    bench.run(&name("embed"), n * hidden * 2 + row, || {
        black_box(cpu.embed(&weights.embedding, &ids));
    });
    let mix = bytes_of(&layer.attn_hyper.mix);
    let entered = || {
        cpu.enter(
            &call,
            &layer.attn_hyper,
            &streams,
            names,
            &mut Taps::new(&mut Unobserved, Place::Input),
        )
    };
    bench.run(&name("enter"), mix + 5 * row, || {
        black_box(entered().unwrap());
    });
    let mixes = entered().unwrap().mixes;
    bench.run(&name("leave"), 9 * row, || {
        let mut streams = streams.clone();
        cpu.leave(&mixes, &x, &mut streams);
        black_box(streams);
    });
    bench.run(&name("head"), bytes_of(&weights.head.mix) + 5 * row, || {
        black_box(cpu.head(config, &weights.head, &streams));
    });
    bench.run(&name("norm"), 2 * row, || {
        black_box(cpu.norm(&x, &layer.attn_norm, config.rms_eps));
    });
    let heads = input(cpu, n, config.heads * config.head_dim);
    let wide = n * config.heads * config.head_dim * 4;
    bench.run(&name("queries"), 2 * wide, || {
        black_box(cpu.queries(&call, Compression::Ratio4, heads.clone(), &mut taps).unwrap());
    });
    let key = input(cpu, n, config.head_dim);
    bench.run(&name("keys"), 2 * n * config.head_dim * 4, || {
        black_box(cpu.keys(&call, Compression::Ratio4, key.clone(), &mut taps).unwrap());
    });
    let q_low = input(cpu, n, config.q_rank);
    bench.run(&name("matmul q_b"), bytes_of(&layer.q_b) + wide, || {
        black_box(cpu.matmul(&layer.q_b, &q_low, &profile));
    });
    bench.run(&name("grouped output_a"), bytes_of(&layer.output_a) + wide, || {
        black_box(cpu.grouped(&layer.output_a, config.output_groups, &heads, &profile));
    });
    bench.run(&name("gated"), 3 * n * config.expert_dim * 4, || {
        let half = input(cpu, n, config.expert_dim);
        black_box(cpu.gated(half.clone(), &half, Some(10.0)));
    });
    bench.run(&name("add"), 3 * row, || {
        black_box(cpu.add(x.clone(), &x));
    });
    let logits = input(cpu, n, 129_280);
    bench.run(&name("argmax"), n * 129_280 * 4, || {
        black_box(cpu.argmax(&logits, 0).unwrap());
    });
}

/// Experts, and what reads a state.
fn experts_and_state(bench: &mut Bench<'_>, cpu: &Cpu, model: &Model, n: usize) {
    let (config, profile) = (&model.config, Profile::DS4);
    let name = |operation: &str| format!("{operation} x{n}");
    let ids: Vec<u32> = (0..n as u32).map(|id| id * 31 % 4096).collect();
    let call = Call::new(config, &profile, &ids, HISTORY);
    let mut nobody = Unobserved;
    let mut taps = Taps::new(&mut nobody, Place::Layer(1));
    let layer = &model.weights.layers[1];
    let logits = input(cpu, n, config.experts);
    let x = input(cpu, n, config.hidden);
    bench.run(&name("route"), n * config.experts * 4, || {
        black_box(cpu.route(&call, &logits, &layer.routing, &mut taps).unwrap());
    });
    let choices = cpu.route(&call, &logits, &layer.routing, &mut taps).unwrap();
    let expert = &layer.experts[0];
    let of_one: usize = [&expert.gate, &expert.up, &expert.down].map(bytes_of).iter().sum();
    // With many tokens every one of the 16 experts is read.
    let used = if n == 1 { config.experts_used } else { config.experts };
    bench.run(&name("routed"), used * of_one + 2 * n * config.hidden * 4, || {
        let routed = cpu.routed(&call, &layer.experts, &choices, &x, Some(10.0), &mut taps);
        black_box(routed.unwrap());
    });
    for (kind, index) in [("window", 0), ("ratio 4", 1), ("ratio 128", 2)] {
        let layer = &model.weights.layers[index];
        let compression = layer.compression;
        // The rows that the tokens of the call complete are in already.
        let before: Vec<u32> = vec![5; HISTORY + n];
        let past = Call::new(config, &profile, &before, 0);
        let mut state = cpu.state(config, compression, None).unwrap();
        let dims = [
            (CompressedRows::Attention, layer.compressor.as_ref(), config.head_dim),
            (
                CompressedRows::Indexer,
                layer.indexer.as_ref().map(|indexer| &indexer.compressor),
                config.indexer_dim,
            ),
        ];
        for (rows, weights, dim) in dims {
            let Some(weights) = weights else { continue };
            let width = compression.projected(dim);
            let kv = input(cpu, HISTORY + n, width);
            let scores = kv.clone();
            cpu.compress(&past, rows, weights, &kv, scores, &mut state, &mut taps).unwrap();
            if rows == CompressedRows::Attention {
                let (kv, mut state) = (input(cpu, n, width), state.clone());
                cpu.truncate(&mut state, HISTORY);
                bench.run(&name(&format!("compress {kind}")), 4 * n * width * 4, || {
                    let mut state = state.clone();
                    let scores = kv.clone();
                    cpu.compress(&call, rows, weights, &kv, scores, &mut state, &mut taps).unwrap();
                    black_box(state);
                });
            }
        }
        let keys = input(cpu, HISTORY, config.head_dim);
        let mut chosen = cpu.all_visible();
        let mut attended = 128 + HISTORY / compression.ratio().max(1) * usize::from(index > 0);
        if index == 1 {
            let queries = input(cpu, n, config.indexer_heads * config.indexer_dim);
            let weights = input(cpu, n, config.indexer_heads);
            let scored = HISTORY / 4 * config.indexer_dim * 4;
            bench.run(&name("choose"), scored, || {
                let (queries, weights) = (queries.clone(), weights.clone());
                black_box(cpu.choose(&call, queries, weights, &state, &mut taps).unwrap());
            });
            chosen = cpu.choose(&call, queries, weights, &state, &mut taps).unwrap();
            attended = 128 + config.indexer_top_k;
        }
        state.store_keys(0, keys.rows());
        let queries = input(cpu, n, config.heads * config.head_dim);
        let own = input(cpu, n, config.head_dim);
        let moved = n * (attended * config.head_dim + 2 * config.heads * config.head_dim) * 4;
        bench.run(&name(&format!("attend {kind}")), moved, || {
            let sinks = &layer.sinks;
            black_box(cpu.attend(&call, compression, &queries, &own, &chosen, sinks, &mut state));
        });
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .configure_from_args();
    let model = model();
    let mut all = Vec::new();
    for threads in 1..=std::thread::available_parallelism().map_or(1, usize::from).min(2) {
        let kernels = Kernels::new(Level::best(), Threads::new(threads).unwrap());
        let cpu = Cpu::new(kernels, Combine::Ordered);
        let group = criterion.benchmark_group("operations");
        let mut bench = Bench { group, threads, best: RefCell::default() };
        read(&mut bench, &Threads::new(threads).unwrap());
        for n in WIDTHS {
            rows_and_products(&mut bench, &cpu, &model, n);
            experts_and_state(&mut bench, &cpu, &model, n);
        }
        all.extend(bench.best.into_inner());
    }
    println!(
        "\n{:28} {:>7} {:>12} {:>9} {:>8}",
        "operation", "threads", "bytes", "GB/s", "of read"
    );
    for (name, threads, bytes, seconds) in &all {
        let speed = |bytes: u64, seconds: f64| bytes as f64 / seconds / 1e9;
        let read = all.iter().find(|row| row.0 == "read" && row.1 == *threads);
        let share = read.map_or(f64::NAN, |read| speed(*bytes, *seconds) / speed(read.2, read.3));
        let speed = speed(*bytes, *seconds);
        println!("{name:28} {threads:>7} {bytes:>12} {speed:>9.2} {:>7.0} %", 100.0 * share);
    }
    criterion.final_summary();
}
