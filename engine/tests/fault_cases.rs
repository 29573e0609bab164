//! Faults that other engines had, as probes of this one. The names are those of `docs/fault-cases.md`.
//!
//! Here are the cases of single operations: ties and values that are not finite, choices at an edge, odd
//! shapes. Each probe runs on the reference and on the CPU backend at every level of the machine.

use engine::backend::Backend;
use engine::cpu::attention;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::format::weights::{Matrix, Routing};
use engine::profile::Profile;
use engine::reference::order::KEY_CHUNK;
use engine::reference::{Reference, attention as meaning, indexer, router};
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};

fn cpus() -> Vec<Cpu> {
    let cpu = |level, threads| {
        Cpu::new(Kernels::new(level, Threads::new(threads).unwrap()), Combine::Ordered)
    };
    Level::available().into_iter().flat_map(|level| [cpu(level, 1), cpu(level, 3)]).collect()
}

/// What every backend chooses from a row: the token, or the error's text.
fn argmax(row: &[f32]) -> Result<u32, String> {
    fn one<B: Backend>(backend: &B, row: &[f32]) -> Result<u32, String> {
        let rows = backend.upload(Rows::of(row.len(), row.to_vec())).unwrap();
        let tokens = backend.argmax(&rows, 77).map_err(|error| error.to_string())?;
        assert_eq!(tokens.len(), 1);
        Ok(tokens[0])
    }
    let expected = one(&Reference, row);
    cpus().iter().for_each(|cpu| assert_eq!(one(cpu, row), expected, "{}", cpu.name()));
    expected
}

#[test]
fn b48_b49_of_equal_maxima_the_lowest_id_wins_wherever_they_stand() {
    let pairs = [(7, 5000), (5, 256), (255, 256), (5, 261), (5118, 5119), (0, 5119)];
    for (low, high) in pairs {
        let mut row = vec![-1.0_f32; 5120];
        (row[low], row[high]) = (2.0, 2.0);
        assert_eq!(argmax(&row), Ok(low as u32));
        row[high] = 2.0_f32.next_up();
        assert_eq!(argmax(&row), Ok(high as u32), "one ulp decides");
    }
    for length in [1, 31, 512, 5001] {
        assert_eq!(argmax(&vec![3.5; length]), Ok(0), "{length} equal entries");
    }
}

#[test]
fn b51_b52_b54_a_row_that_is_not_finite_is_an_error_that_names_it_and_never_a_token() {
    for length in [4, 33, 1000, 5000] {
        for (place, value) in [(1, f32::NAN), (length - 1, f32::INFINITY), (0, f32::NEG_INFINITY)] {
            let mut row = vec![1.0_f32; length];
            (row[2], row[place]) = (5.0, value);
            let error = argmax(&row).unwrap_err();
            let element = format!("element {place} is not finite");
            assert!(error.contains("position 77") && error.contains(&element), "{error}");
        }
    }
    for value in [f32::NAN, f32::NEG_INFINITY] {
        assert!(argmax(&[value; 64]).unwrap_err().contains("element 0"));
    }
    let mut row = vec![1.0; 6000];
    (row[3], row[7], row[5000]) = (f32::NAN, 9.0, 9.0);
    assert!(argmax(&row).unwrap_err().contains("element 3"));
}

#[test]
fn b55_experts_at_the_edge_of_the_selection_change_with_one_ulp_and_not_with_a_tie() {
    let config = engine::Model::open(&fixture("tiny")).unwrap().config;
    let routing = Routing::Bias(vec![0.0; config.experts]);
    let route = |logits: &[f32]| router::route(logits, 0, &routing, &config, &Profile::DS4).experts;
    let used = config.experts_used;
    // The last place is between two experts with the same logit: the lower index has it.
    let mut logits: Vec<f32> = (0..config.experts).map(|e| 4.0 - e as f32 * 0.25).collect();
    logits[used] = logits[used - 1];
    assert_eq!(route(&logits), (0..used).collect::<Vec<_>>());
    // A score has fewer bits than a logit here, so the step is taken in the score.
    let score = |logit: f32| engine::reference::order::softplus(logit).sqrt();
    while score(logits[used]) == score(logits[used - 1]) {
        logits[used] = logits[used].next_up();
    }
    let mut expected: Vec<usize> = (0..used - 1).collect();
    expected.push(used);
    assert_eq!(route(&logits), expected);
}

#[test]
fn b57_the_number_of_chosen_rows_is_the_one_asked_for() {
    let scores: Vec<f32> = (0..2048).map(|i| ((i * 7919) % 2048) as f32 / 3.0).collect();
    for count in [511, 512, 513, 1024] {
        let expected = indexer::choose(&scores, count);
        assert_eq!(expected.len(), count);
        assert_eq!(engine::cpu::indexer::choose(&scores, count), expected);
    }
}

fn fixture(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models");
    folder.join(name).join("model.gguf")
}

/// Weights of any bytes with finite scales; the buffer ends with the last row.
fn matrix(dtype: DType, rows: usize, columns: usize) -> Matrix {
    let length = dtype.row_bytes(columns).unwrap() * rows;
    let mut bytes: Vec<u8> = (0..length).map(|i| (i * 131 + i / 7) as u8).collect();
    let scales: &[usize] = match dtype {
        DType::Q2K => &[81, 83],
        DType::Q4K => &[1, 3],
        _ => &[1],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        scales.iter().for_each(|at| block[*at] = 0x2c);
    }
    Matrix::new(dtype, rows, columns, Bytes::owned(bytes)).unwrap()
}

/// Activations of ordinary size, or up to 13 with one channel of thousands.
fn activations(count: usize, width: usize, wild: bool) -> Rows {
    let mut rows = Rows::zeros(count, width);
    for (index, value) in rows.values_mut().iter_mut().enumerate() {
        let unit = ((index * 2_654_435_761) % 1009) as f32 / 504.5 - 1.0;
        let channel = if index % width == width / 3 { 1000.0 } else { 13.0 };
        *value = if wild { unit * channel } else { unit * 0.1 };
    }
    rows
}

const TYPES: [DType; 5] = [DType::Q8_0, DType::Iq2Xxs, DType::Q2K, DType::Q4K, DType::F16];

#[test]
fn b73_b76_b78_every_column_is_written_at_awkward_widths_and_with_wild_activations() {
    for dtype in TYPES {
        for rows in [1, 32, 63, 64, 65, 96] {
            for wild in [false, true] {
                // Nine blocks: no multiple of anything a kernel does at once.
                let weights = matrix(dtype, rows, 9 * 256);
                let x = activations(5, 9 * 256, wild);
                let expected = Reference.matmul(&weights, &x, &Profile::DS4);
                for level in Level::available() {
                    let kernels = Kernels::new(level, Threads::new(2).unwrap());
                    let mut out = vec![f32::NAN; 5 * rows];
                    kernels.matmul_into(&weights, &x.clone().into(), true, &mut out);
                    let same = out.iter().zip(expected.values());
                    let first = same.clone().position(|(a, b)| a.to_bits() != b.to_bits());
                    assert_eq!(first, None, "{} {rows} rows, {}", dtype.name(), level.name());
                }
            }
        }
    }
}

/// Attention of some heads over some keys by the CPU backend, eight heads at a time.
fn attend(queries: &[f32], keys: &meaning::Keys<'_>, sinks: &[f32]) -> Vec<f32> {
    let dim = queries.len() / sinks.len();
    let mut out = vec![f32::NAN; queries.len()];
    let parts = queries.chunks(8 * dim).zip(sinks.chunks(8)).zip(out.chunks_mut(8 * dim));
    parts.for_each(|((queries, sinks), out)| attention::attend(queries, keys, sinks, out));
    out
}

#[test]
fn b44_b79_attention_over_any_number_of_keys_heads_and_values() {
    for (dim, heads) in [(192, 8), (512, 64), (512, 9), (96, 3), (33, 1)] {
        for count in [1, 2, 63, 64, 65, 128, 512, 640, 768, 1024] {
            let rows = activations(count, dim, false);
            let all: Vec<&[f32]> = rows.iter().collect();
            let keys: meaning::Keys<'_> = all.chunks(KEY_CHUNK).map(<[_]>::to_vec).collect();
            let queries = activations(1, heads * dim, true);
            let sinks: Vec<f32> = (0..heads).map(|h| h as f32 * 0.3 - 1.0).collect();
            let expected = meaning::attend(queries.row(0), &keys, &sinks);
            let ours = attend(queries.row(0), &keys, &sinks);
            let pairs = ours.iter().zip(&expected);
            let first = pairs.clone().position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(first, None, "{heads} heads of {dim}, {count} keys");
        }
    }
    // Values of one: what is left of one is the sink's.
    for count in [512, 640, 768, 1024] {
        let ones = Rows::of(512, vec![1.0; 512 * count]);
        let all: Vec<&[f32]> = ones.iter().collect();
        let keys: meaning::Keys<'_> = all.chunks(KEY_CHUNK).map(<[_]>::to_vec).collect();
        let out = attend(&[0.0; 512], &keys, &[0.0]);
        let sink = 1.0 / (count + 1) as f32;
        assert!(out.iter().all(|value| (value - (1.0 - sink)).abs() < 1e-6), "{count} keys");
    }
}
