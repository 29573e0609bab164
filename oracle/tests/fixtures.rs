//! Fixtures: made anew they are the committed ones, and a changed file is seen.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use engine::config::{Config, RawConfig};
use engine::format::{Metadata, Tokenizer};
use engine::session::Keep;
use engine::tap::Tap;
use engine::{Model, MtpModel, Profile, Session};
use oracle::fixtures::recipe::{Planned, Shape};
use oracle::fixtures::{self, Part};
use oracle::record::Record;

mod common;

#[test]
fn the_committed_files_are_what_their_recipe_and_the_manifest_say() {
    let checked = fixtures::check(&common::fixtures(), &|_| {}).unwrap();
    assert_eq!(checked.problems, Vec::<String>::new());
    assert!(checked.files > 100, "{} files", checked.files);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_flipped_bit_a_missing_file_and_an_unlisted_one_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    copy(&common::fixtures(), folder.path());
    let problems = || fixtures::check(folder.path(), &|_| {}).unwrap().problems;
    assert!(problems().is_empty());
    for name in [
        "models/tiny/model.gguf",
        "models/trained-tiny/mtp.gguf",
        "prompts/six-400.json",
        "hostile/magic.gguf",
        "ground-truth/qat_ops.npz",
    ] {
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        fs::write(&path, flipped).unwrap();
        assert!(problems().iter().any(|problem| problem.contains(name)), "{name} flipped");
        fs::remove_file(&path).unwrap();
        assert!(problems().iter().any(|problem| problem.contains(name)), "{name} missing");
        fs::write(&path, bytes).unwrap();
    }
    fs::write(folder.path().join("models/tiny/surplus.bin"), "x").unwrap();
    assert_eq!(problems(), ["models/tiny/surplus.bin: not listed in MANIFEST.toml"]);
    fs::remove_file(folder.path().join("MANIFEST.toml")).unwrap();
    assert!(fixtures::check(folder.path(), &|_| {}).is_err());
}

fn metadata(shape: &Shape) -> Metadata {
    shape.metadata().into_iter().collect()
}

#[test]
fn every_shape_has_usable_hyper_parameters_and_a_tokenizer() {
    for shape in [Shape::tiny(), Shape::six(), Shape::flash(), Shape::pro()] {
        let metadata = metadata(&shape);
        let config = Config::new(&RawConfig::from_gguf(&metadata).unwrap()).unwrap();
        assert_eq!(config.layers.len(), shape.ratios.len(), "{}", shape.name);
        assert_eq!((config.hidden, config.experts), (shape.hidden, shape.experts));
        let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
        assert_eq!(tokenizer.vocab_size(), shape.vocabulary, "{}", shape.name);
        let text = "Quel ramo del lago di Como, 1827; if (x > 0) { y = \"ü\"; }\n";
        let ids = tokenizer.encode(text);
        assert!(ids.len() < text.len(), "{}: merges are used", shape.name);
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
    }
}

fn totals(planned: &[Planned]) -> BTreeMap<&'static str, (usize, usize)> {
    let mut totals = BTreeMap::new();
    for planned in planned {
        let entry: &mut (usize, usize) = totals.entry(planned.dtype.name()).or_default();
        *entry = (entry.0 + 1, entry.1 + planned.bytes());
    }
    totals
}

/// Counts and bytes of the published 2-bit file and of its support file.
#[test]
fn the_full_shapes_have_the_tensors_of_the_published_files() {
    let shape = Shape::flash();
    let main = totals(&shape.tensors());
    let counts: Vec<(&str, usize)> =
        main.iter().map(|(name, (count, _))| (*name, *count)).collect();
    assert_eq!(
        counts,
        [("F16", 359), ("F32", 492), ("I32", 3), ("IQ2_XXS", 86), ("Q2_K", 43), ("Q8_0", 345)]
    );
    assert_eq!(main.values().fold(0, |sum, (_, bytes)| sum + bytes), 86_714_775_900);
    let mtp = totals(&shape.mtp_tensors());
    assert_eq!(mtp["F32"], (19, 7_691_756));
    assert_eq!(mtp["Q8_0"], (10, 176_029_696));
    assert_eq!(mtp["Q4_K"], (3, 3_623_878_656));
    assert_eq!(mtp.values().fold(0, |sum, (_, bytes)| sum + bytes), 3_807_600_108);
}

/// A random model on which a path never fires would prove nothing of that path.
#[test]
fn every_path_fires_on_the_seeded_models() {
    for setting in common::settings() {
        let mut record = Record::of(Tap::ALL);
        let mut session = Session::new(&setting.model, setting.profile);
        let tokens = &setting.tokens[..300];
        let forward = session.forward(tokens, Keep::All, &mut record).unwrap();
        let chosen: std::collections::BTreeSet<u32> =
            forward.logits.iter().map(|row| engine::sampler::argmax(row, 0).unwrap()).collect();
        assert!(chosen.len() > 60, "{}: {} tokens chosen", setting.name, chosen.len());
        let (mut rejected, mut quiet) = (0, 0);
        let mut experts = std::collections::BTreeSet::new();
        for (site, rows) in &record.indices {
            match site.tap {
                Tap::IndexerChosen if site.position > 100 => {
                    let all = rows.iter().copied().eq(0..rows.len());
                    rejected += usize::from(!all);
                }
                Tap::RouterExperts => experts.extend(rows.iter().map(|e| (site.place, *e))),
                _ => {}
            }
        }
        for (site, row) in &record.floats {
            if site.tap == Tap::KeyUnrotated {
                let plain = setting.model.config.head_dim - setting.model.config.rope_dim;
                let small = |block: &[f32]| block.iter().all(|x| x.abs() < 1e-4);
                quiet += usize::from(row[..plain].chunks(64).any(small));
            }
        }
        let layers = setting.model.config.layers.len();
        assert!(rejected > 100, "{}: the indexer rejects rows", setting.name);
        assert!(quiet >= 300, "{}: a block is below the smallest FP8 scale", setting.name);
        assert!(experts.len() > layers * setting.model.config.experts * 3 / 4, "{}", setting.name);
        // SwiGLU with a clamp of c never exceeds c^2 times the router's weight; without, it would here.
        let mut unclamped = Model::open(&path(&setting.name)).unwrap();
        unclamped.config.clamps.fill(None);
        let mut session = Session::new(&unclamped, setting.profile);
        let other = session.forward(tokens, Keep::All, &mut engine::tap::Unobserved).unwrap();
        assert!(common::bits(&other.logits) != common::bits(&forward.logits), "the clamp fires");
    }
}

fn path(name: &str) -> std::path::PathBuf {
    if name.starts_with("six") {
        return Path::new(env!("CARGO_TARGET_TMPDIR")).join("six/six.gguf");
    }
    common::fixtures().join("models/tiny/model.gguf")
}

#[test]
fn the_second_shape_runs_with_its_mtp_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixtures::six_model(folder.path()).unwrap();
    let model = Model::open(&path).unwrap();
    let mtp = folder.path().join("mtp.gguf");
    fs::write(&mtp, fixtures::model_bytes(&Shape::six(), Part::Mtp)).unwrap();
    let block = MtpModel::open(&mtp, &model.config).unwrap();
    assert!(model.unclaimed.is_empty() && block.unclaimed.is_empty());
    let tokens: Vec<u32> = (0..60).map(|i| i * 5 % 330).collect();
    let mut session = Session::new(&model, Profile::DS4);
    let forward = session.forward(&tokens, Keep::Last, &mut engine::tap::Unobserved).unwrap();
    let mut drafts = engine::mtp::MtpSession::new(&model, &block, Profile::DS4);
    let streams = forward.streams.slice(0..59);
    let output =
        drafts.forward(&tokens[1..], &streams, Keep::All, &mut engine::tap::Unobserved).unwrap();
    assert_eq!(output.logits.count(), 59);
}

#[test]
fn layers_that_share_bytes_make_a_smaller_file_that_opens_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, shared) = (folder.path().join("whole.gguf"), folder.path().join("shared.gguf"));
    let mtp = folder.path().join("mtp.gguf");
    let shape = Shape { ratios: vec![0, 4, 128, 4, 128, 4], ..Shape::tiny() };
    let synth = |out: &Path, alias_layers: Option<usize>, overwrite: bool| {
        let mtp_out = Some(mtp.as_path());
        let synth = fixtures::Synth { shape: &shape, out, mtp_out, alias_layers, overwrite };
        fixtures::synth(&synth, &|_, _| {})
    };
    synth(&whole, None, false).unwrap();
    let exists = synth(&whole, None, false).unwrap_err().to_string();
    assert!(exists.contains("whole.gguf") && exists.contains("there already"), "{exists}");
    synth(&shared, Some(2), true).unwrap();
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(length(&shared) < length(&whole) * 2 / 3);
    let model = Model::open(&shared).unwrap();
    assert!(model.unclaimed.is_empty());
    let first = |layer: usize| model.weights.layers[layer].q_a.row(0).as_ptr();
    // Even layers share with layer 0 what it has, odd ones with layer 1.
    assert!(first(4) == first(0) && first(5) == first(1) && first(0) != first(1));
    let mut session = Session::new(&model, Profile::DS4);
    session.forward(&[1, 2, 3, 4, 5], Keep::All, &mut engine::tap::Unobserved).unwrap();
    let names: std::collections::BTreeSet<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no partial file is left: {names:?}");
}

/// Tensors larger than the chunk in which they are made, and of exactly its length, come out whole.
#[test]
fn tensors_of_any_length_come_out_whole() {
    for rows in [2047, 2048, 2049, 5000] {
        let dims = vec![1024, rows];
        for (dtype, role) in [
            (engine::tensor::DType::F16, oracle::fixtures::recipe::Role::Embedding),
            (engine::tensor::DType::Q8_0, oracle::fixtures::recipe::Role::Output),
        ] {
            let dims = dims.clone();
            let planned = Planned { name: "x".into(), dtype, dims, role, layer: None };
            let (mut parts, mut total) = (0, 0);
            fixtures::fill(&planned, &Shape::tiny(), &mut |bytes| {
                assert!(!bytes.is_empty());
                (parts, total) = (parts + 1, total + bytes.len());
                Ok::<(), ()>(())
            })
            .unwrap();
            assert_eq!(total, planned.bytes());
            assert!(parts >= 1);
        }
    }
}
