//! Matrix products of the CPU backend have the bytes of the reference.
//!
//! Every stored type, SIMD level and number of threads, every number of rows that a decode step has and
//! some that a prefill has, even and odd shapes, weights of random bytes and of the worst ones.

use engine::cpu::Level;
use engine::cpu::activations::Activations;
use engine::cpu::matmul::{Job, Kernels};
use engine::cpu::threads::Threads;
use engine::format::weights::Matrix;
use engine::reference::matmul as reference;
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};

const QUANTISED: [DType; 4] = [DType::Q8_0, DType::Iq2Xxs, DType::Q2K, DType::Q4K];
const FLOAT: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// A small generator of our own: the test needs bytes, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 32) as u8
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}

/// What the weights hold.
#[derive(Clone, Copy, Debug)]
enum Weights {
    Random,
    /// All codes at the end of their range, largest scales.
    Extreme,
    /// Subnormal scales and scales of zero, of both signs.
    Faint,
}

/// Bits of an f16 scale.
fn scale(kind: Weights, random: &mut Random) -> u16 {
    match kind {
        // Finite, of any sign, from 2^-9 to 2^3.
        Weights::Random => {
            let sign = u16::from(random.byte() & 1) << 15;
            sign | (u16::from(random.byte() % 12 + 6) << 10) | (random.next() as u16 & 0x3ff)
        }
        Weights::Extreme => 0x7bff,
        Weights::Faint => [0, 0x8000, 1, 0x8001, 0x03ff][usize::from(random.byte() % 5)],
    }
}

fn matrix(dtype: DType, rows: usize, columns: usize, kind: Weights, random: &mut Random) -> Matrix {
    let bytes = dtype.row_bytes(columns).unwrap() * rows;
    let fill = |random: &mut Random| match kind {
        Weights::Extreme => 0x80,
        _ => random.byte(),
    };
    let mut data: Vec<u8> = (0..bytes).map(|_| fill(random)).collect();
    let scales_at: &[usize] = match dtype {
        DType::Q8_0 | DType::Iq2Xxs => &[0],
        DType::Q2K => &[80, 82],
        DType::Q4K => &[0, 2],
        DType::F16 | DType::Bf16 | DType::F32 | DType::I32 => &[],
    };
    for block in data.chunks_exact_mut(dtype.block_bytes()) {
        for at in scales_at {
            block[*at..at + 2].copy_from_slice(&scale(kind, random).to_le_bytes());
        }
        match dtype {
            DType::F32 => block.copy_from_slice(&(random.unit() * 3.0).to_le_bytes()),
            DType::Bf16 => block.copy_from_slice(&(random.unit() * 3.0).to_le_bytes()[2..]),
            DType::F16 => block.copy_from_slice(&scale(kind, random).to_le_bytes()),
            _ => {}
        }
    }
    if matches!((dtype, kind), (DType::Q2K | DType::Q4K, Weights::Extreme)) {
        // Codes, scales and minima all ones.
        let size = dtype.block_bytes();
        for block in data.chunks_exact_mut(size) {
            let range = if dtype == DType::Q2K { 0..80 } else { 4..size };
            block[range].fill(0xff);
        }
    }
    Matrix::new(dtype, rows, columns, Bytes::owned(data)).unwrap()
}

/// Activations: ordinary ones, one channel of thousands, zeros of both signs, whole blocks of zeros.
fn activations(count: usize, width: usize, random: &mut Random) -> Rows {
    let mut rows = Rows::zeros(count, width);
    for token in 0..count {
        let row = rows.row_mut(token);
        row.iter_mut().for_each(|x| *x = random.unit() * 13.0);
        match (token + width) % 4 {
            1 => row[width / 2] *= 1000.0,
            2 => row.iter_mut().step_by(3).for_each(|x| *x = -0.0),
            3 => row[..width.min(256)].fill(0.0),
            _ => {}
        }
    }
    rows
}

fn bits(rows: &Rows) -> Vec<u32> {
    rows.values().iter().map(|value| value.to_bits()).collect()
}

/// Every backend on one product, whole and in parts; returns how many were compared.
fn check(weights: &Matrix, x: &Rows, int8: bool, all: &[Kernels], label: &str) -> usize {
    let expected =
        if int8 { reference::quantised(weights, x) } else { reference::float(weights, x) };
    let shared = Activations::from(x.clone());
    for kernels in all {
        let label = format!("{label}, {} x{}", kernels.level().name(), kernels.threads().count());
        let ours = kernels.matmul(weights, &shared, int8);
        assert_eq!((ours.count(), ours.width()), (expected.count(), expected.width()), "{label}");
        let first = bits(&ours).iter().zip(bits(&expected)).position(|(a, b)| *a != b);
        let first = first.map(|index| (index / ours.width(), index % ours.width()));
        assert_eq!(first, None, "{label}: (token, row)");
        // Every other token, last first.
        let tokens: Vec<usize> = (0..x.count()).rev().step_by(2).collect();
        let job = Job { weights: weights.clone(), x: &shared, tokens: tokens.clone() };
        let ours = kernels.products(&[job], int8).remove(0);
        for (row, token) in ours.iter().zip(&tokens) {
            assert!(bits_of(row) == bits_of(expected.row(*token)), "{label}: token {token} alone");
        }
    }
    all.len()
}

fn bits_of(row: &[f32]) -> Vec<u32> {
    row.iter().map(|value| value.to_bits()).collect()
}

fn kernels(threads: &[usize]) -> Vec<Kernels> {
    let each = |level| threads.iter().map(move |t| Kernels::new(level, Threads::new(*t).unwrap()));
    Level::available().into_iter().flat_map(each).collect()
}

#[test]
fn every_type_and_width_has_the_bytes_of_the_reference() {
    let (all, mut random, mut compared) = (kernels(&[1, 3]), Random(1), 0);
    for dtype in QUANTISED {
        let block = dtype.block_elements();
        for blocks in [1, 3, 7, 8, 9, 16, 23] {
            let weights = matrix(dtype, 33, blocks * block, Weights::Random, &mut random);
            for width in [1, 2, 3, 4, 5, 6, 7, 8, 9, 17] {
                let x = activations(width, blocks * block, &mut random);
                let label = format!("{} {blocks} blocks, {width} tokens", dtype.name());
                compared += check(&weights, &x, true, &all, &label);
            }
            let x = activations(2, blocks * block, &mut random);
            compared += check(&weights, &x, false, &all, &format!("{} as floats", dtype.name()));
        }
    }
    for dtype in FLOAT {
        for columns in [1, 7, 8, 127, 128, 129, 512, 513, 1000, 4096] {
            let weights = matrix(dtype, 33, columns, Weights::Random, &mut random);
            for width in [1, 2, 3, 9] {
                let x = activations(width, columns, &mut random);
                let label = format!("{} {columns} columns, {width} tokens", dtype.name());
                compared += check(&weights, &x, true, &all, &label);
            }
        }
    }
    assert!(compared > 800, "{compared} compared");
}

#[test]
fn no_number_of_rows_or_threads_is_special() {
    let (all, mut random) = (kernels(&[1, 2, 3, 7]), Random(2));
    for dtype in QUANTISED.into_iter().chain(FLOAT) {
        for rows in [1, 2, 8, 31, 32, 33, 63, 64, 65, 96] {
            let weights = matrix(dtype, rows, 2048, Weights::Random, &mut random);
            let x = activations(3, 2048, &mut random);
            check(&weights, &x, true, &all, &format!("{} {rows} rows", dtype.name()));
        }
        let weights = matrix(dtype, 300, 1024, Weights::Random, &mut random);
        let x = activations(64, 1024, &mut random);
        check(&weights, &x, true, &all, &format!("{} 64 tokens", dtype.name()));
    }
}

#[test]
fn the_ends_of_the_ranges_are_met_exactly() {
    let (all, mut random) = (kernels(&[1]), Random(3));
    for dtype in QUANTISED.into_iter().chain([DType::F16]) {
        for kind in [Weights::Extreme, Weights::Faint] {
            for columns in [256, 2048, 2304] {
                let weights = matrix(dtype, 9, columns, kind, &mut random);
                let mut x = activations(4, columns, &mut random);
                // A row of the largest codes of both signs.
                x.row_mut(0).iter_mut().enumerate().for_each(|(i, x)| {
                    *x = if i % 3 == 0 { -5.0 } else { 5.0 };
                });
                check(&weights, &x, true, &all, &format!("{} {kind:?}", dtype.name()));
            }
        }
    }
}

#[test]
fn groups_meet_their_own_part_of_the_activations() {
    let (all, mut random) = (kernels(&[1, 2]), Random(4));
    let (groups, rank, width) = (4, 40, 512);
    for dtype in [DType::Q8_0, DType::F16, DType::Q4K] {
        let weights = matrix(dtype, groups * rank, width, Weights::Random, &mut random);
        let x = activations(3, groups * width, &mut random);
        for kernels in &all {
            let ours = kernels.grouped(&weights, groups, &x.clone().into(), true);
            for token in 0..x.count() {
                for group in 0..groups {
                    let part = &x.row(token)[group * width..(group + 1) * width];
                    let part = Rows::of(width, part.to_vec());
                    let rows = weights.row_range(group * rank, rank);
                    let expected = reference::quantised(&rows, &part);
                    let ours = &ours.row(token)[group * rank..(group + 1) * rank];
                    assert!(
                        bits_of(ours) == bits_of(expected.row(0)),
                        "token {token}, group {group}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_job_without_tokens_has_no_rows() {
    let mut random = Random(5);
    let weights = matrix(DType::Q8_0, 3, 64, Weights::Random, &mut random);
    let x = Activations::from(activations(2, 64, &mut random));
    for kernels in kernels(&[1, 2]) {
        let jobs = [
            Job { weights: weights.clone(), x: &x, tokens: Vec::new() },
            Job { weights: weights.clone(), x: &x, tokens: vec![1] },
        ];
        let outs = kernels.products(&jobs, true);
        assert_eq!((outs[0].count(), outs[1].count()), (0, 1));
    }
}
