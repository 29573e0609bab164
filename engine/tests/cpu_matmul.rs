//! The fast products against the reference: every type, level, number of threads and of rows, to the bit.

use engine::cpu::{Activations, Job, Kernels, Level, Pick, Threads, View};
use engine::format::weights::Matrix;
use engine::reference::matmul;
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};
use half::f16;
use proptest::prelude::*;

const BLOCKS: [DType; 4] = [DType::Q8_0, DType::Q2K, DType::Q4K, DType::Iq2Xxs];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// What the scales and codes of a matrix are like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Random,
    /// All code bytes 0x80, which are -128 in Q8_0.
    Lowest,
    /// All bytes 0xff: largest codes, scales and minima.
    Highest,
    LargeScales,
    SubnormalScales,
    ZeroScales,
    /// Every third block all zeros.
    ZeroBlocks,
}

const CONTENTS: [Content; 7] = [
    Content::Random,
    Content::Lowest,
    Content::Highest,
    Content::LargeScales,
    Content::SubnormalScales,
    Content::ZeroScales,
    Content::ZeroBlocks,
];

/// Offsets of the f16 scales of a block.
fn scale_offsets(dtype: DType) -> &'static [usize] {
    match dtype {
        DType::Q8_0 | DType::Iq2Xxs => &[0],
        DType::Q2K => &[80, 82],
        DType::Q4K => &[0, 2],
        _ => &[],
    }
}

fn matrix(dtype: DType, rows: usize, columns: usize, content: Content, seed: u64) -> Matrix {
    let mut random = Random(seed);
    let mut bytes = Vec::new();
    if dtype.block_elements() == 1 {
        for _ in 0..rows * columns {
            let value = random.unit() * if random.next().is_multiple_of(50) { 40.0 } else { 1.0 };
            let value =
                if random.next().is_multiple_of(20) { 0.0_f32.copysign(value) } else { value };
            match dtype {
                DType::F16 => bytes.extend(f16::from_f32(value).to_le_bytes()),
                DType::Bf16 => bytes.extend(half::bf16::from_f32(value).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
    } else {
        let length = dtype.block_bytes();
        for index in 0..rows * columns / dtype.block_elements() {
            let mut block: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            match content {
                Content::Lowest => block.fill(0x80),
                Content::Highest => block.fill(0xff),
                Content::ZeroBlocks if index.is_multiple_of(3) => block.fill(0),
                _ => {}
            }
            for offset in scale_offsets(dtype) {
                let sign = (random.next() as u16 & 1) << 15;
                let bits = match content {
                    Content::LargeScales => 0x7bff | sign,
                    Content::SubnormalScales => (1 + random.next() as u16 % 0x3ff) | sign,
                    Content::ZeroScales => sign,
                    Content::ZeroBlocks if index.is_multiple_of(3) => 0,
                    _ => f16::from_f32(random.unit() * 0.02).to_bits(),
                };
                block[*offset..offset + 2].copy_from_slice(&bits.to_le_bytes());
            }
            bytes.extend(block);
        }
    }
    Matrix::new(dtype, rows, columns, Bytes::owned(bytes)).unwrap()
}

/// Rows of every kind: plain, one channel a thousandfold, a range of 13, zeros of both signs, blocks of
/// zeros, tiny values.
fn activations(count: usize, width: usize, seed: u64) -> Rows {
    let mut random = Random(seed);
    let mut rows = Rows::zeros(count, width);
    for index in 0..count {
        let large = random.next() as usize % width;
        for (channel, value) in rows.row_mut(index).iter_mut().enumerate() {
            let unit = random.unit();
            *value = match (index + seed as usize) % 6 {
                0 => unit,
                1 if channel == large => unit * 1000.0,
                1 | 2 => unit * 13.0,
                3 if random.next().is_multiple_of(2) => 0.0_f32.copysign(unit),
                4 if channel / 32 % 3 == 0 => 0.0_f32.copysign(unit),
                5 => unit * 1e-36,
                _ => unit,
            };
        }
    }
    rows
}

fn reference(weights: &Matrix, x: &Rows, int8: bool) -> Rows {
    if int8 { matmul::quantised(weights, x) } else { matmul::float(weights, x) }
}

fn assert_same(ours: &[f32], expected: &[f32], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        assert_eq!(ours.to_bits(), expected.to_bits(), "{what}: {index}: {ours} {expected}");
    }
}

fn processors(threads: &[usize]) -> Vec<Kernels> {
    let levels = Level::available();
    let all = levels.iter().flat_map(|level| threads.iter().map(|count| (*level, *count)));
    all.map(|(level, count)| Kernels::new(level, Threads::new(count).unwrap())).collect()
}

/// The product over the first `width` rows, for every width, by every processor, into NaN.
fn check(cpus: &[Kernels], weights: &Matrix, x: &Rows, widths: &[usize], int8: bool, what: &str) {
    let expected = reference(weights, x, int8);
    for cpu in cpus {
        let all = Activations::from(x.clone());
        for width in widths {
            let mut out = vec![f32::NAN; width * weights.rows()];
            let job = Job {
                tokens: Pick::Range(0..*width),
                ..Job::whole(weights, &all, View::of_slice(&mut out, weights.rows()))
            };
            cpu.matmul_jobs(&[job], int8);
            let (dtype, level, threads) =
                (weights.dtype().name(), cpu.level().name(), cpu.threads().count());
            let (rows, columns) = (weights.rows(), weights.columns());
            let what = format!(
                "{what} {dtype} {rows}x{columns}, {width} rows, {level}, {threads} threads, \
                 int8 {int8}"
            );
            assert_same(&out, &expected.values()[..out.len()], &what);
        }
    }
}

const WIDTHS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64];

#[test]
fn every_shape_and_width_of_quantised_rows_has_the_bits_of_the_reference() {
    let cpus = processors(&[1, 2, 3, 7]);
    for dtype in BLOCKS {
        for (index, rows) in [1, 3, 8, 31, 32, 33, 64, 96].into_iter().enumerate() {
            // Every number of rows meets every number of blocks over the types.
            let blocks = [1, 2, 3, 8, 9, 16, 17, 23];
            for blocks in [blocks[index], blocks[(index + 3) % 8]] {
                let columns = blocks * dtype.block_elements();
                let weights = matrix(dtype, rows, columns, Content::Random, rows as u64);
                let x = activations(64, columns, blocks as u64);
                check(&cpus, &weights, &x, &WIDTHS, true, "shape");
            }
        }
    }
}

#[test]
fn every_shape_and_width_of_float_rows_has_the_bits_of_the_reference() {
    let cpus = processors(&[1, 2, 3, 7]);
    for dtype in FLOATS {
        for (index, rows) in [1, 3, 8, 31, 33, 64].into_iter().enumerate() {
            let columns = [1, 7, 128, 129, 640, 1000, 4096];
            for columns in [columns[index], columns[(index + 2) % 7]] {
                let weights = matrix(dtype, rows, columns, Content::Random, rows as u64);
                let x = activations(64, columns, columns as u64);
                check(&cpus, &weights, &x, &WIDTHS, true, "shape");
                check(&cpus[..1], &weights, &x, &[1, 5], false, "shape");
            }
        }
    }
}

#[test]
fn quantised_rows_without_int8_activations_have_the_bits_of_the_reference() {
    let cpus = processors(&[1, 3]);
    for dtype in BLOCKS {
        for (rows, blocks) in [(1, 1), (33, 3), (9, 8)] {
            let columns = blocks * dtype.block_elements();
            let weights = matrix(dtype, rows, columns, Content::Random, 5);
            let x = activations(9, columns, 6);
            check(&cpus, &weights, &x, &[1, 2, 5, 9], false, "float");
        }
    }
}

#[test]
fn extreme_codes_and_scales_have_the_bits_of_the_reference() {
    let cpus = processors(&[1, 2]);
    for dtype in BLOCKS {
        for content in CONTENTS {
            for blocks in [3, 8, 17] {
                let columns = blocks * dtype.block_elements();
                let weights = matrix(dtype, 9, columns, content, 7);
                let x = activations(12, columns, 8);
                check(&cpus, &weights, &x, &[1, 2, 12], true, &format!("{content:?}"));
            }
        }
    }
}

#[test]
fn activations_at_the_largest_code_meet_weights_at_the_lowest() {
    let cpus = processors(&[1]);
    for dtype in BLOCKS {
        for content in [Content::Lowest, Content::Highest] {
            let columns = 8 * dtype.block_elements();
            let weights = matrix(dtype, 8, columns, content, 7);
            let mut x = Rows::empty(columns);
            for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                x.push(&signs.map(|sign| sign * 0.731).repeat(columns / 2));
            }
            check(&cpus, &weights, &x, &[1, 2, 3], true, &format!("{content:?}"));
        }
    }
}

#[test]
fn scales_that_are_not_finite_stay_in_their_lane() {
    // Bits of NaN are not compared: which operand's NaN survives is the machine's choice.
    let canonical = |value: &f32| if value.is_nan() { u32::MAX } else { value.to_bits() };
    for dtype in BLOCKS {
        let columns = 11 * dtype.block_elements();
        let mut bytes = matrix(dtype, 1, columns, Content::Random, 3).row(0).to_vec();
        bytes[scale_offsets(dtype)[0]..][..2].copy_from_slice(&0x7c00_u16.to_le_bytes());
        let weights = Matrix::new(dtype, 1, columns, Bytes::owned(bytes)).unwrap();
        let x = activations(5, columns, 0);
        let expected = matmul::quantised(&weights, &x);
        for cpu in processors(&[1]) {
            let ours = cpu.matmul(&weights, &x.clone().into(), true);
            assert!(
                ours.values().iter().map(canonical).eq(expected.values().iter().map(canonical))
            );
        }
    }
}

#[test]
fn jobs_of_experts_share_a_region_and_write_their_own_rows() {
    let (count, hidden) = (13, 512);
    let x = activations(count, hidden, 3);
    let dtypes = [DType::Iq2Xxs, DType::Q8_0, DType::F16, DType::Q4K, DType::Q2K];
    let weights: Vec<Matrix> = (0..10)
        .map(|index| matrix(dtypes[index % 5], 40 + index, hidden, Content::Random, index as u64))
        .collect();
    let picks: [&[usize]; 5] = [&[0, 3, 12], &[], &[5], &[12, 11, 1, 1], &[2, 4, 6, 7, 8, 9, 10]];
    for cpu in processors(&[1, 2, 3, 7]) {
        let inputs = Activations::from(x.clone());
        let mut outs: Vec<Rows> = weights
            .iter()
            .enumerate()
            .map(|(index, weights)| {
                Rows::zeros(picks[index % 5].len(), weights.rows()).map(weights.rows(), |_, row| {
                    row.fill(f32::NAN);
                })
            })
            .collect();
        let jobs: Vec<Job<'_>> = weights
            .iter()
            .zip(&mut outs)
            .enumerate()
            .map(|(index, (weights, out))| Job {
                tokens: Pick::List(picks[index % 5]),
                ..Job::whole(weights, &inputs, View::of(out))
            })
            .collect();
        cpu.matmul_jobs(&jobs, true);
        drop(jobs);
        for (index, (weights, out)) in weights.iter().zip(&outs).enumerate() {
            let mut picked = Rows::empty(hidden);
            picks[index % 5].iter().for_each(|token| picked.push(x.row(*token)));
            let expected = matmul::quantised(weights, &picked);
            assert_same(out.values(), expected.values(), &format!("expert {index}"));
        }
    }
}

#[test]
fn groups_of_columns_meet_ranges_of_rows_in_columns_of_one_output() {
    let (groups, dim, rank, count) = (4, 96, 24, 5);
    let weights = matrix(DType::Q8_0, groups * rank, dim, Content::Random, 1);
    let heads = activations(count, groups * dim, 2);
    for cpu in processors(&[1, 2, 3]) {
        let mut out = vec![f32::NAN; count * groups * rank];
        let inputs: Vec<Activations> = (0..groups)
            .map(|group| Activations::from(heads.clone()).columns(group * dim..(group + 1) * dim))
            .collect();
        let mut rest = View::of_slice(&mut out, groups * rank);
        let mut jobs = Vec::new();
        for (group, x) in inputs.iter().enumerate() {
            let (out, others) = rest.split_columns(rank);
            rest = others;
            let features = group * rank..(group + 1) * rank;
            let tokens = Pick::Range(0..count);
            jobs.push(Job { weights: &weights, features, x, tokens, out });
        }
        cpu.matmul_jobs(&jobs, true);
        for group in 0..groups {
            let columns = group * dim..(group + 1) * dim;
            let x = heads.map(dim, |row, out| out.copy_from_slice(&row[columns.clone()]));
            let expected = matmul::quantised(&weights.row_range(group * rank, rank), &x);
            for (token, expected) in expected.iter().enumerate() {
                let ours = &out[token * groups * rank + group * rank..][..rank];
                assert_same(ours, expected, &format!("group {group}, token {token}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape_has_the_bits_of_the_reference(
        kind in 0_usize..7,
        rows in 1_usize..70,
        blocks in 1_usize..26,
        odd in 0_usize..100,
        width in 1_usize..20,
        seed in any::<u64>(),
        threads in 1_usize..5,
    ) {
        let (dtype, columns) = if kind < 4 {
            (BLOCKS[kind], blocks * BLOCKS[kind].block_elements())
        } else {
            (FLOATS[kind - 4], blocks * 60 + odd)
        };
        let weights = matrix(dtype, rows, columns, Content::Random, seed);
        let x = activations(width, columns, seed >> 32);
        check(&processors(&[threads]), &weights, &x, &[width], true, "any");
    }
}
