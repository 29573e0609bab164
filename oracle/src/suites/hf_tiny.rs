//! Hugging Face's implementation in f64 on a tiny random model: logits, choices and intermediates.

use engine::tap::{Place, Site, Tap};
use engine::{Model, Profile};

use super::{Job, Prepared, Setup, checked, text, token_ids};
use crate::check::{Check, Lane, Question, Tally};
use crate::npy::{Array, Npz, read_npy};
use crate::record::Record;
use crate::stats;

/// Largest difference of a logit, and of an intermediate as a share of its tensor's largest magnitude.
const BOUND: f64 = 1e-4;

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    vec![
        Job::new("hf-tiny/float", || float(setup)),
        Job::new("hf-tiny/qat", || {
            let rule = "argmax >= 97 %, median row max <= 0.02";
            let question = Question::new("hf-tiny qat", "HF f64", Lane::Bound, rule);
            if let Err(reason) = setup.truth("hf-tiny") {
                return vec![question.not_run(reason)];
            }
            checked(question.clone(), || qat(setup, question))
        }),
    ]
}

struct Truth {
    model: Model,
    tokens: Vec<u32>,
    folder: std::path::PathBuf,
}

fn open(setup: &Setup) -> Prepared<Truth> {
    let folder = setup.truth("hf-tiny")?;
    let tokens = token_ids(&folder.join("tokens.json"), &["prompt", "greedy"])?;
    let model = setup.model(&folder.join("model.safetensors"))?;
    Ok(Truth { model, tokens, folder })
}

fn float(setup: &Setup) -> Vec<Check> {
    let logits = Question::new("hf-tiny float logits", "HF f64", Lane::Bound, "<= 1e-4");
    let rule = "identical sets";
    let choices = Question::new("hf-tiny experts, rows chosen", "HF f64", Lane::Choice, rule);
    let rule = "<= 1e-4 of the tensor's largest";
    let taps = Question::new("hf-tiny intermediates", "HF f64", Lane::Bound, rule);
    let questions = [logits, choices, taps];
    if let Err(reason) = setup.truth("hf-tiny") {
        return questions.map(|question| question.not_run(reason.clone())).to_vec();
    }
    compare(setup, &questions).unwrap_or_else(|problem| {
        questions.map(|question| question.failed(problem.clone())).to_vec()
    })
}

fn compare(setup: &Setup, [logits, choices, taps]: &[Question; 3]) -> Prepared<Vec<Check>> {
    let truth = open(setup)?;
    let mut record = Record::of(Tap::ALL);
    let forward = setup.forward(&truth.model, Profile::FLOAT, &truth.tokens, &mut record)?;
    let expected = read_npy(&truth.folder.join("logits_f64.npy")).map_err(text)?;
    let mut tally = Tally::new();
    tally.require(expected.count() == truth.tokens.len(), || "rows and tokens differ".into());
    for (index, row) in forward.logits.iter().enumerate() {
        tally.bound(&format!("logits at {index}"), row, expected.row(index), BOUND);
    }
    tally.note(format!("largest {:.1e}", tally.largest()));
    let logits = tally.finish(logits.clone());

    let mut trace = Npz::open(&truth.folder.join("trace.npz")).map_err(text)?;
    let view = View { record: &record, layers: truth.model.config.layers.len() };
    Ok(vec![logits, view.choices(&mut trace, choices)?, view.intermediates(&mut trace, taps)?])
}

/// Which intermediate an array of the trace holds, `lN.` left off.
const TRACED: &[(&str, Tap)] = &[
    ("attn_hc_post", Tap::AttnHyperPost),
    ("attn_hc_comb", Tap::AttnHyperComb),
    ("attn_hc_collapsed", Tap::AttnInput),
    ("attn_norm", Tap::AttnNorm),
    ("q_a_norm", Tap::QueryLow),
    ("q_prerope", Tap::QueryUnrotated),
    ("kv_prerope", Tap::KeyUnrotated),
    ("heads", Tap::Heads),
    ("o_a", Tap::OutputLow),
    ("attn_out", Tap::AttnOutput),
    ("ffn_hc_post", Tap::FfnHyperPost),
    ("ffn_hc_comb", Tap::FfnHyperComb),
    ("ffn_hc_collapsed", Tap::FfnInput),
    ("ffn_norm", Tap::FfnNorm),
    ("routed_out", Tap::RoutedOutput),
    ("shared_out", Tap::SharedOutput),
    ("ffn_out", Tap::FfnOutput),
    ("out_streams", Tap::Streams),
];

struct View<'a> {
    record: &'a Record,
    layers: usize,
}

impl View<'_> {
    fn floats(&self, place: Place, tap: Tap, position: usize) -> Prepared<&[f32]> {
        let found = self.record.floats.get(&Site { place, tap, position });
        found.map(Vec::as_slice).ok_or_else(|| format!("{place}: no {} at {position}", tap.name()))
    }

    /// Rows that a layer emitted, in order.
    fn emitted(&self, layer: usize, tap: Tap) -> Vec<f32> {
        let place = Place::Layer(layer);
        let rows = self.record.floats.iter();
        let rows = rows.filter(|(site, _)| site.place == place && site.tap == tap);
        rows.flat_map(|(_, row)| row.clone()).collect()
    }

    fn choices(&self, trace: &mut Npz, question: &Question) -> Prepared<Check> {
        let mut tally = Tally::new();
        let kinds = [("router_ids", Tap::RouterExperts), ("index_topk", Tap::IndexerChosen)];
        for layer in 0..self.layers {
            for (name, tap) in kinds {
                let Ok(array) = trace.array(&format!("l{layer}.{name}")) else { continue };
                for position in 0..array.count() {
                    let theirs: Vec<usize> = array
                        .row(position)
                        .iter()
                        .filter(|i| **i >= 0.0)
                        .map(|i| *i as usize)
                        .collect();
                    let site = Site { place: Place::Layer(layer), tap, position };
                    let what = format!("layer {layer} {name} at {position}");
                    let ours = self.record.indices.get(&site).cloned().unwrap_or_default();
                    let [mut ours, mut theirs] = [ours, theirs];
                    ours.sort_unstable();
                    theirs.sort_unstable();
                    tally.choices(&what, &ours, &theirs);
                }
            }
        }
        Ok(tally.finish(question.clone()))
    }

    fn intermediates(&self, trace: &mut Npz, question: &Question) -> Prepared<Check> {
        let positions = trace.array("positions").map_err(text)?;
        let positions: Vec<usize> = positions.values.iter().map(|p| *p as usize).collect();
        let mut tally = Tally::new();
        for layer in 0..self.layers {
            for (name, tap) in TRACED {
                let array = trace.array(&format!("l{layer}.{name}")).map_err(text)?;
                self.rows(&mut tally, Place::Layer(layer), *tap, &positions, &array)?;
            }
            let all: Vec<usize> = (0..=positions[positions.len() - 1]).collect();
            let router = trace.array(&format!("l{layer}.router_logits")).map_err(text)?;
            self.rows(&mut tally, Place::Layer(layer), Tap::RouterLogits, &all, &router)?;
            self.router_weights(&mut tally, layer, trace)?;
            for (name, tap) in [("comp_rows", Tap::CompressedRow), ("index_rows", Tap::IndexerRow)]
            {
                if let Ok(array) = trace.array(&format!("l{layer}.{name}")) {
                    let ours = self.emitted(layer, tap);
                    tally.relative(&format!("layer {layer} {name}"), &ours, &array.values, BOUND);
                }
            }
            if let Ok(array) = trace.array(&format!("l{layer}.index_scores")) {
                self.index_scores(&mut tally, layer, &positions, &array)?;
            }
        }
        for (name, tap) in [("hc_head", Tap::HeadInput), ("final_norm", Tap::HeadNorm)] {
            let array = trace.array(name).map_err(text)?;
            self.rows(&mut tally, Place::Output, tap, &positions, &array)?;
        }
        Ok(tally.finish(question.clone()))
    }

    /// Compares one tap at several positions as one tensor.
    fn rows(
        &self,
        tally: &mut Tally,
        place: Place,
        tap: Tap,
        positions: &[usize],
        array: &Array,
    ) -> Prepared<()> {
        let mut ours = Vec::new();
        for position in positions {
            ours.extend_from_slice(self.floats(place, tap, *position)?);
        }
        tally.relative(&format!("{place} {}", tap.name()), &ours, &array.values, BOUND);
        Ok(())
    }

    /// Router weights: slots may come in another order, so they are put in the order of expert ids.
    fn router_weights(&self, tally: &mut Tally, layer: usize, trace: &mut Npz) -> Prepared<()> {
        let weights = trace.array(&format!("l{layer}.router_weights")).map_err(text)?;
        let ids = trace.array(&format!("l{layer}.router_ids")).map_err(text)?;
        let place = Place::Layer(layer);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for position in 0..ids.count() {
            let site = Site { place, tap: Tap::RouterExperts, position };
            let experts = self.record.indices.get(&site).cloned().unwrap_or_default();
            let row = self.floats(place, Tap::RouterWeights, position)?;
            let mut pairs: Vec<(usize, f32)> =
                experts.into_iter().zip(row.iter().copied()).collect();
            pairs.sort_by_key(|(expert, _)| *expert);
            ours.extend(pairs.into_iter().map(|(_, weight)| weight));
            let experts = ids.row(position).iter().map(|id| *id as usize);
            let mut pairs: Vec<(usize, f64)> =
                experts.zip(weights.row(position).iter().copied()).collect();
            pairs.sort_by_key(|(expert, _)| *expert);
            theirs.extend(pairs.into_iter().map(|(_, weight)| weight));
        }
        tally.relative(&format!("layer {layer} router_weights"), &ours, &theirs, BOUND);
        Ok(())
    }

    /// Indexer scores of the rows that a position sees; the trace holds those of later rows too.
    fn index_scores(
        &self,
        tally: &mut Tally,
        layer: usize,
        positions: &[usize],
        array: &Array,
    ) -> Prepared<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (index, position) in positions.iter().enumerate() {
            let row = self.floats(Place::Layer(layer), Tap::IndexerScores, *position)?;
            ours.extend_from_slice(row);
            theirs.extend_from_slice(&array.row(index)[..row.len()]);
        }
        tally.relative(&format!("layer {layer} index_scores"), &ours, &theirs, BOUND);
        Ok(())
    }
}

fn qat(setup: &Setup, question: Question) -> Prepared<Check> {
    let truth = open(setup)?;
    let forward =
        setup.forward(&truth.model, Profile::QAT, &truth.tokens, &mut engine::tap::Unobserved)?;
    let expected = read_npy(&truth.folder.join("logits_qat_f64.npy")).map_err(text)?;
    Ok(super::gguf_tiny::close(&forward.logits, &expected, 0.97, 0.02, question))
}

/// The largest difference between f32 and f64 in a row, over all rows, in the ground truth's own terms.
pub(super) fn qat_noise(setup: &Setup) -> Prepared<f64> {
    let folder = setup.truth("hf-tiny")?;
    let single = read_npy(&folder.join("logits_qat_f32.npy")).map_err(text)?;
    let double = read_npy(&folder.join("logits_qat_f64.npy")).map_err(text)?;
    let mut rows = engine::rows::Rows::empty(single.width());
    single.as_f32().chunks_exact(single.width()).for_each(|row| rows.push(row));
    let distances = stats::between(&rows, &double);
    Ok(distances.largest.iter().fold(0.0, |max: f64, x| max.max(*x)))
}
