//! Checks of speculation see the fault that they are there for: a result that depends on the rows of a call.

#[path = "common/drafting.rs"]
mod drafting;

use drafting::{Drafting, TOY, TRAINED, on_every_backend, options};
use engine::Profile;
use engine::backend::Backend;
use engine::decode::{Picker, Probe, Verification, probe};
use engine::format::weights::Matrix;
use engine::rows::Rows;
use oracle::planted::{Fault, Op, Planted, When};
use oracle::speculation::{Difference, Known, Plain, Seen, compare};

/// Operations that are put at fault.
const FAMILIES: [Op; 4] = [Op::Matmul, Op::Norm, Op::Attend, Op::Routed];

/// One unit in the last place in calls of so many rows.
fn at_width(op: Op, width: usize) -> Fault {
    Fault::Ulp(op, When::Width(width))
}

/// Every matrix of the model and of its block, with its name.
fn matrices(setting: &Drafting) -> Vec<(String, &Matrix)> {
    let (main, block) = (&setting.model.weights, &setting.block.weights);
    let layers = main.layers.iter().enumerate().map(|(index, layer)| (index.to_string(), layer));
    let mut all = Vec::new();
    for (name, layer) in layers.chain([("block".to_owned(), &block.layer)]) {
        let mut add = |kind: &str, matrix| all.push((format!("{kind} of layer {name}"), matrix));
        add("q_a", &layer.q_a);
        add("q_b", &layer.q_b);
        add("kv", &layer.kv);
        add("output_b", &layer.output_b);
        add("router", &layer.router);
        if let Some(compressor) = &layer.compressor {
            add("compressor kv", &compressor.kv);
            add("compressor gate", &compressor.gate);
        }
        if let Some(indexer) = &layer.indexer {
            add("indexer q_b", &indexer.q_b);
            add("indexer proj", &indexer.proj);
        }
        for expert in [&layer.shared, &layer.experts[0], &layer.experts[1]] {
            add("gate", &expert.gate);
            add("up", &expert.up);
            add("down", &expert.down);
        }
    }
    all.push(("e_proj".to_owned(), &block.e_proj));
    all.push(("h_proj".to_owned(), &block.h_proj));
    all.push(("output".to_owned(), &main.output));
    all
}

/// Products of a row alone and beside others; returns those compared, or where they differ.
fn rows_beside_others<B: Backend>(setting: &Drafting, backend: &B) -> Result<usize, String> {
    let mut compared = 0;
    for (name, matrix) in matrices(setting) {
        let mut rows = Rows::zeros(9, matrix.columns());
        for (index, value) in rows.values_mut().iter_mut().enumerate() {
            *value = ((index * 7919) % 2003) as f32 / 1001.0 - 1.0;
        }
        let multiply = |rows: Rows| {
            let x = backend.upload(rows).unwrap();
            backend.download(&backend.matmul(matrix, &x, &setting.profile)).unwrap()
        };
        let alone: Vec<Rows> = (0..9).map(|row| multiply(rows.slice(row..row + 1))).collect();
        for width in 2..=9 {
            let together = multiply(rows.slice(0..width));
            for (row, alone) in alone[..width].iter().enumerate() {
                let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                if bits(together.row(row)) != bits(alone.row(0)) {
                    let dtype = matrix.dtype().name();
                    return Err(format!("{name} ({dtype}), {width} rows: row {row}"));
                }
                compared += 1;
            }
        }
    }
    Ok(compared)
}

#[test]
fn b08_a_row_alone_and_beside_others_has_one_product_with_every_matrix() {
    fn check<B: Backend>(backend: &B) -> usize {
        let compared = rows_beside_others(&TOY, backend).unwrap();
        let planted = Planted::new(backend, at_width(Op::Matmul, 2));
        let found = rows_beside_others(&TOY, &planted).unwrap_err();
        assert!(found.starts_with("q_a of layer 0") && found.contains("2 rows: row 0"), "{found}");
        compared
    }
    on_every_backend!(check);
}

#[test]
fn b11_the_probe_names_the_width_of_a_fault_in_every_family() {
    fn check<B: Backend>(backend: &B) -> usize {
        let mut compared = 0;
        for setting in [&*TOY, &*TRAINED] {
            let sound = probe(backend, &setting.model, setting.profile, 4).unwrap();
            assert_eq!(sound, Probe::Equal { rows: 2 + 3 + 4 }, "{}", setting.name);
            compared += 9;
        }
        for (family, width) in FAMILIES.into_iter().flat_map(|f| (2..=9).map(move |w| (f, w))) {
            if family != Op::Matmul && width > 3 {
                continue;
            }
            let planted = Planted::new(backend, at_width(family, width));
            let probed = |most| probe(&planted, &TOY.model, Profile::FLOAT, most).unwrap();
            let name = planted.name();
            let Probe::Different { width: found, row } = probed(width) else {
                panic!("{name}: not found");
            };
            assert_eq!(found, width, "{name}");
            assert!(row <= width, "{name}");
            // A probe of the widths in use only: the fault is outside of them.
            let equal = Probe::Equal { rows: width * (width - 1) / 2 - 1 };
            assert_eq!(probed(width - 1), equal, "{name}");
            compared += 1;
        }
        compared
    }
    on_every_backend!(check);
}

/// Generation with right and wrong drafts on `backend`, against the plain run of another.
fn against<B: Backend>(
    plain: &Plain,
    backend: &B,
    depth: usize,
    verification: Verification,
) -> Result<Seen, Difference> {
    let vocabulary = TOY.model.config.vocabulary;
    let rounds = [Some(0), Some(1), Some(2)];
    let mut drafter = Known::new(plain, vocabulary, &rounds, Some(depth));
    let options = options(depth, verification, plain.tokens.len());
    compare(plain, TOY.session(backend), &Picker::Greedy, &options, &mut drafter)
}

#[test]
fn b11_combined_verification_goes_red_on_a_fault_of_its_width_and_strict_stays_equal() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 64);
        let mut compared = 0;
        for depth in [1, 2, 5, 8] {
            let planted = Planted::new(backend, at_width(Op::Matmul, depth + 1));
            let combined = against(&plain, &planted, depth, Verification::Combined);
            let difference = combined.expect_err("a fault that was not seen");
            let seen = matches!(
                difference,
                Difference::Logits { round: 1, .. } | Difference::State { round: 1, .. }
            );
            assert!(seen, "depth {depth}: {difference}");
            let strict = against(&plain, &planted, depth, Verification::Strict).unwrap();
            assert!(strict.judged() == [true, true], "not exercised: {strict}");
            // Of another width it is not in the way.
            let other = Planted::new(backend, at_width(Op::Matmul, 10));
            let sound = against(&plain, &other, depth, Verification::Combined).unwrap();
            compared += strict.states + sound.states;
        }
        compared
    }
    on_every_backend!(check);
}

#[test]
fn another_prompt_is_a_difference() {
    fn check<B: Backend>(backend: &B) -> usize {
        let mut plain = TOY.plain(backend, 64).cut(24);
        plain.prompt[3] ^= 1;
        let found = against(&plain, backend, 2, Verification::Combined).unwrap_err();
        assert!(!matches!(found, Difference::Engine(_)), "{found}");
        1
    }
    on_every_backend!(check);
}
