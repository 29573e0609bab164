//! Block formats and rounding operations against vectors of other implementations.

use engine::format::quant::{self, Q8KRow};
use engine::reference::round;
use engine::tensor::DType;

use super::{Job, Prepared, Setup, checked, text};
use crate::check::{Check, Lane, Question, Tally};
use crate::digest;
use crate::fixtures::Manifest;
use crate::npy::{Array, Npz, read_npy};

const BLOCKS: &str = "gguf 0.19.0 and ggml (quant-blocks)";
const BITS_BUT: &str = "bits; NaN = NaN, zeros unsigned";

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    let formats = [
        ("f16", DType::F16),
        ("bf16", DType::Bf16),
        ("q8_0", DType::Q8_0),
        ("q2_k", DType::Q2K),
        ("q4_k", DType::Q4K),
        ("iq2_xxs", DType::Iq2Xxs),
    ];
    let mut jobs: Vec<Job<'_>> = formats
        .into_iter()
        .map(|(stem, dtype)| {
            Job::new(format!("operations/decode-{stem}"), move || {
                let case = format!("decode {}", dtype.name());
                let question = Question::new(case, BLOCKS, Lane::Bits, BITS_BUT);
                checked(question.clone(), || decode(setup, stem, dtype, question))
            })
        })
        .collect();
    jobs.push(Job::new("fixtures/files", || {
        let question =
            Question::new("fixtures", "MANIFEST.toml", Lane::Bits, "sha256 of each file");
        checked(question.clone(), || files(setup, question))
    }));
    jobs.push(Job::new("operations/encode-q8_0", || {
        let question = Question::new("encode Q8_0", BLOCKS, Lane::Bits, "bytes");
        checked(question.clone(), || encode_q8_0(setup, question))
    }));
    jobs.push(Job::new("operations/encode-q8_k", || {
        let question = Question::new("encode Q8_K", "ggml and ds4", Lane::Bits, "bytes");
        checked(question.clone(), || encode_q8_k(setup, question))
    }));
    for (array, operation) in ROUNDINGS {
        jobs.push(Job::new(format!("operations/{array}"), move || {
            let question =
                Question::new(*array, "DeepSeek and ds4 (qat_ops)", Lane::Bits, BITS_BUT);
            checked(question.clone(), || rounding(setup, array, *operation, question))
        }));
    }
    jobs
}

/// Every listed file is there and unchanged: what the other cases rest on.
fn files(setup: &Setup, question: Question) -> Prepared<Check> {
    let manifest = Manifest::read(&setup.fixtures).map_err(text)?;
    let mut tally = Tally::new();
    for entry in manifest.entries() {
        let sha256 = digest::of_file(&setup.fixtures.join(&entry.path)).map_err(text)?;
        tally.require(sha256 == entry.sha256, || format!("{}: sha256 {sha256}", entry.path));
        tally.count(1, usize::try_from(entry.bytes).unwrap_or(0));
    }
    Ok(tally.finish(question))
}

fn blocks(setup: &Setup, name: &str) -> Prepared<Array> {
    read_npy(&setup.fixtures.join("ground-truth/quant-blocks").join(name)).map_err(text)
}

fn decode(setup: &Setup, stem: &str, dtype: DType, question: Question) -> Prepared<Check> {
    let bytes = blocks(setup, &format!("{stem}.blocks.npy"))?;
    let values = blocks(setup, &format!("{stem}.values.npy"))?;
    let mut tally = Tally::new();
    let mut out = vec![0.0; dtype.block_elements()];
    for index in 0..bytes.count() {
        let block: Vec<u8> = bytes.row(index).iter().map(|byte| *byte as u8).collect();
        quant::decode_row(dtype, &block, &mut out);
        let expected: Vec<f32> = values.row(index).iter().map(|v| *v as f32).collect();
        tally.values(&format!("block {index}"), &out, &expected);
    }
    Ok(tally.finish(question))
}

fn encode_q8_0(setup: &Setup, question: Question) -> Prepared<Check> {
    let input = blocks(setup, "q8_0.encode_in.npy")?;
    let output = blocks(setup, "q8_0.encode_out.npy")?;
    let mut tally = Tally::new();
    let ours = quant::encode_q8_0(&input.as_f32());
    tally.choices("byte", &ours, &output.as_bytes());
    Ok(tally.finish(question))
}

fn encode_q8_k(setup: &Setup, question: Question) -> Prepared<Check> {
    let input = blocks(setup, "q8_k.encode_in.npy")?;
    let output = blocks(setup, "q8_k.blocks.npy")?;
    let mut tally = Tally::new();
    for index in 0..input.count() {
        let values: Vec<f32> = input.row(index).iter().map(|v| *v as f32).collect();
        let row = Q8KRow::encode(&values);
        let mut ours = row.scales[0].to_le_bytes().to_vec();
        ours.extend(row.quants.iter().map(|q| *q as u8));
        ours.extend(row.sums.iter().flat_map(|sum| sum.to_le_bytes()));
        let theirs: Vec<u8> = output.row(index).iter().map(|byte| *byte as u8).collect();
        tally.choices(&format!("block {index}, byte"), &ours, &theirs);
    }
    Ok(tally.finish(question))
}

type Rounding = fn(&mut [f32]);

const ROUNDINGS: &[(&str, Rounding)] = &[
    ("fp8_block64", round::fp8_row),
    ("fp4_block32", round::fp4_row),
    ("hadamard128", round::hadamard),
    ("fp4_of_hadamard", |row| {
        round::hadamard(row);
        round::fp4_row(row);
    }),
];

fn rounding(
    setup: &Setup,
    array: &str,
    operation: Rounding,
    question: Question,
) -> Prepared<Check> {
    let mut file = Npz::open(&setup.fixtures.join("ground-truth/qat_ops.npz")).map_err(text)?;
    let input = file.array("x").map_err(text)?;
    let output = file.array(array).map_err(text)?;
    let mut tally = Tally::new();
    for index in 0..input.count() {
        let mut row: Vec<f32> = input.row(index).iter().map(|v| *v as f32).collect();
        operation(&mut row);
        let expected: Vec<f32> = output.row(index).iter().map(|v| *v as f32).collect();
        tally.values(&format!("row {index}"), &row, &expected);
    }
    Ok(tally.finish(question))
}
