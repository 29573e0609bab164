//! `inspect`: hyper-parameters and the tensor table of a model file.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use engine::Model;
use engine::format::Gguf;
use engine::format::safetensors::SafetensorsFile;
use engine::format::weights::TensorSource;
use engine::tensor::Tensor;

use crate::flags::Inspect;

pub fn run(flags: &Inspect) -> Result<ExitCode> {
    let path = &flags.file;
    let tensors = if path.extension().is_some_and(|extension| extension == "safetensors") {
        let file = SafetensorsFile::open(path)?;
        file.names().iter().filter_map(|name| file.tensor(name)).collect()
    } else {
        let file = Gguf::open(path)?;
        println!("metadata");
        for (key, value) in file.metadata() {
            println!("  {key} = {}", value);
        }
        println!();
        file.tensors().to_vec()
    };
    print_tensors(&tensors);
    if tensors.iter().any(|tensor| tensor.name().starts_with("mtp.0.")) {
        println!("\nmulti-token-prediction file: opens beside its main model");
        return Ok(ExitCode::SUCCESS);
    }
    let model = Model::open(path)?;
    println!("\nhyper-parameters\n{:#?}", model.config);
    match model.unclaimed.as_slice() {
        [] => println!("every tensor has a role"),
        names => println!("tensors that nothing reads: {}", names.join(", ")),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_tensors(tensors: &[Tensor]) {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["tensor", "type", "dimensions", "bytes"]);
    let mut by_type: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for tensor in tensors {
        let (name, bytes) = (tensor.dtype().name(), tensor.bytes().len());
        let dims: Vec<String> = tensor.dims().iter().map(ToString::to_string).collect();
        table.add_row([tensor.name(), name, &dims.join(" x "), &bytes.to_string()]);
        let entry = by_type.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1 + bytes);
    }
    if let Some(column) = table.column_mut(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}\n");
    for (name, (count, bytes)) in &by_type {
        println!("{name}: {count} tensors, {bytes} bytes");
    }
    let total = tensors.iter().fold(0, |total, tensor| total + tensor.bytes().len());
    println!("all: {} tensors, {total} bytes", tensors.len());
}
