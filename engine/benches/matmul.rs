//! Speed of matrix products at the shapes of the full model.
//!
//! Promises: weights are copies that together exceed the caches, so bytes per second compare with plain
//! reading, which `oracle/benches/operations.rs` measures. Says nothing about bits: `tests/cpu_matmul.rs`
//! does.

#![expect(missing_docs, reason = "criterion's macros write functions without any")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::cpu::{Activations, Kernels, Level, Threads};
use engine::format::weights::Matrix;
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};

/// Bytes that all copies of a matrix have together, at least.
const MEMORY: usize = 160 << 20;

/// Type, rows and columns.
const SHAPES: [(DType, usize, usize); 13] = [
    (DType::Q8_0, 1024, 4096),
    (DType::Q8_0, 32_768, 1024),
    (DType::Q8_0, 512, 4096),
    (DType::Q8_0, 4096, 8192),
    (DType::Q8_0, 129_280, 4096),
    (DType::Q8_0, 2048, 4096),
    (DType::Iq2Xxs, 2048, 4096),
    (DType::Q2K, 4096, 2048),
    (DType::Q4K, 4096, 2048),
    (DType::F16, 1024, 4096),
    (DType::F16, 8192, 1024),
    (DType::F16, 256, 4096),
    (DType::F16, 24, 16_384),
];

/// Any codes, and scales of ordinary size.
fn matrices(dtype: DType, rows: usize, columns: usize) -> Vec<Matrix> {
    let length = dtype.row_bytes(columns).unwrap() * rows;
    let copies = (MEMORY / length).max(2);
    let mut state = 1_u64;
    let mut bytes: Vec<u8> = (0..length)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    // 0x14.. is a small normal f16, with either byte first in place.
    let scales: &[usize] = match dtype {
        DType::Q2K => &[80, 82],
        DType::Q4K => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        scales.iter().for_each(|scale| block[scale + 1] = 0x14);
    }
    (0..copies)
        .map(|_| Matrix::new(dtype, rows, columns, Bytes::owned(bytes.clone())).unwrap())
        .collect()
}

fn activations(count: usize, width: usize) -> Rows {
    let mut rows = Rows::zeros(count, width);
    for (index, value) in rows.values_mut().iter_mut().enumerate() {
        *value = ((index * 37 % 101) as f32 - 50.0) / 17.0;
    }
    rows
}

fn processors() -> Vec<Kernels> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    let best = || Level::available().pop().expect("a level");
    (1..=cores).map(|count| Kernels::new(best(), Threads::new(count).unwrap())).collect()
}

fn products(criterion: &mut Criterion) {
    for (dtype, rows, columns) in SHAPES {
        let copies = matrices(dtype, rows, columns);
        let mut group = criterion.benchmark_group(format!("{}/{rows}x{columns}", dtype.name()));
        group.throughput(Throughput::Bytes((dtype.row_bytes(columns).unwrap() * rows) as u64));
        for cpu in processors() {
            for width in [1, 32] {
                let x = activations(width, columns);
                let mut next = copies.iter().cycle();
                let name = format!("threads{}", cpu.threads().count());
                group.bench_function(BenchmarkId::new(name, width), |bencher| {
                    bencher.iter(|| {
                        let x = Activations::from(x.clone());
                        black_box(cpu.matmul(next.next().unwrap(), &x, true))
                    });
                });
            }
        }
        group.finish();
    }
}

/// The output projection: 8 groups of heads, each with rows of its own.
fn grouped(criterion: &mut Criterion) {
    let (groups, dim, rank) = (8, 4096, 1024);
    let copies = matrices(DType::Q8_0, groups * rank, dim);
    let mut group = criterion.benchmark_group("Q8_0/8 groups of 1024x4096");
    group.throughput(Throughput::Bytes((34 * dim / 32 * groups * rank) as u64));
    for cpu in processors() {
        for width in [1, 32] {
            let heads = activations(width, groups * dim);
            let mut next = copies.iter().cycle();
            let name = format!("threads{}", cpu.threads().count());
            group.bench_function(BenchmarkId::new(name, width), |bencher| {
                bencher.iter(|| {
                    let heads = Activations::from(heads.clone());
                    black_box(cpu.grouped(next.next().unwrap(), groups, &heads, true))
                });
            });
        }
    }
    group.finish();
}

/// The cost of a parallel region that does nothing.
fn region(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("region");
    for cpu in processors() {
        group.bench_function(format!("threads{}", cpu.threads().count()), |bencher| {
            bencher.iter(|| {
                cpu.threads().spread(vec![0, 1], |part| {
                    black_box(part);
                });
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = region, products, grouped
}
criterion_main!(benches);
