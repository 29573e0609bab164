//! Faults that other engines had, as probes of this one. The names are those of `docs/fault-cases.md`.
//!
//! Here are the cases of a whole model: prompts cut in other ways, lengths around a chunk, the number of
//! rows that an indexer keeps.

mod common;

use std::path::Path;

use common::{bits, settings, state_digest};
use engine::backend::Backend;
use engine::config::RawConfig;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::format::Gguf;
use engine::reference::Reference;
use engine::session::Keep;
use engine::tap::{Tap, Unobserved};
use engine::{Model, Profile, Session};
use oracle::fixtures::recipe::Shape;
use oracle::fixtures::{Part, model_bytes};
use oracle::record::Record;

fn cpu() -> Cpu {
    Cpu::new(Kernels::new(Level::best(), Threads::new(2).unwrap()), Combine::Ordered)
}

/// Logits and state after tokens that come in calls of these lengths.
fn run<B: Backend>(
    backend: &B,
    model: &Model,
    tokens: &[u32],
    cuts: &[usize],
) -> (Vec<u32>, String) {
    let mut session = Session::on(backend, model, Profile::DS4).unwrap();
    let (mut logits, mut rest) = (Vec::new(), tokens);
    for cut in cuts {
        let (now, later) = rest.split_at(*cut);
        let forward = session.forward(now, Keep::All, &mut Unobserved).unwrap();
        logits.extend(bits(&backend.download(&forward.logits).unwrap()));
        rest = later;
    }
    assert!(rest.is_empty(), "cuts that add up");
    (logits, state_digest(&session))
}

#[test]
fn b40_1500_tokens_cut_in_two_ways_have_the_same_logits_at_every_position() {
    let setting = &settings()[0];
    let tokens: Vec<u32> = setting.tokens.iter().cycle().take(1500).copied().collect();
    let whole = run(&cpu(), &setting.model, &tokens, &[1500]);
    for cuts in [&[1024, 476][..], &[248, 1024, 228]] {
        assert!(run(&cpu(), &setting.model, &tokens, cuts) == whole, "{cuts:?}");
    }
}

#[test]
fn b46_prompts_of_a_chunk_one_more_and_two_chunks_and_one() {
    const CHUNK: usize = 64;
    for setting in settings() {
        let model = &setting.model;
        for length in [CHUNK, CHUNK + 1, 2 * CHUNK + 1] {
            let tokens = &setting.tokens[..length];
            let whole = run(&Reference, model, tokens, &[length]);
            let cuts: Vec<usize> = tokens.chunks(CHUNK).map(<[_]>::len).collect();
            assert!(run(&cpu(), model, tokens, &cuts) == whole, "{}: {length}", setting.name);
        }
    }
}

#[test]
fn b57_an_indexer_keeps_as_many_rows_as_the_file_says() {
    for top_k in [15, 16, 17, 40] {
        let shape = Shape { indexer_top_k: top_k, ..Shape::tiny() };
        let file = Gguf::from_bytes(model_bytes(&shape, Part::Main)).unwrap();
        let raw = RawConfig::from_gguf(file.metadata()).unwrap();
        let metadata = file.metadata().clone();
        let model = Model::from_source(&file, &raw, metadata, Path::new("tiny")).unwrap();
        let tokens: Vec<u32> = (0..200).map(|i| (i * 7919 + 1) % 300).collect();
        let mut seen = Record::of(&[Tap::IndexerChosen]);
        let backend = cpu();
        let mut session = Session::on(&backend, &model, Profile::DS4).unwrap();
        session.forward(&tokens, Keep::Nothing, &mut seen).unwrap();
        assert!(!seen.indices.is_empty(), "no layer has an indexer");
        for (site, rows) in &seen.indices {
            assert_eq!(rows.len(), top_k.min((site.position + 1) / 4), "{site:?}");
        }
    }
}
