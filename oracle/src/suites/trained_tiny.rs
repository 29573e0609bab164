//! Hugging Face's implementation in f64 on a trained tiny model: streams, logits, drafts, text.

use std::path::PathBuf;

use engine::mtp::{MtpSession, Pairing};
use engine::rows::Rows;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{MtpModel, Profile};
use serde_json::Value as Json;

use super::{Job, Prepared, Setup, checked, ids_of, read_json, text};
use crate::check::{Check, Lane, Question, Tally};
use crate::npy::read_npy;
use crate::stats::{argmax, margin, widen};

/// Below this recorded margin (f32 against f64 reaches 1.1e-4 here) either of two tokens is right.
const TIE: f64 = 5e-4;

/// Margin above which the argmax of the `qat` profile must agree: twice the largest difference of a logit
/// between f32 and f64 of one implementation with this rounding, 1.51 over all rows of `hf-tiny`
/// (`logits_qat_f32` against `logits_qat_f64`), scaled by the spread of the logits, 5.3 here and 2.5 there.
/// The check on `hf-tiny` measures that figure again where the ground truth is present.
const QAT_MARGIN: f64 = 2.0 * QAT_NOISE * 5.3 / 2.5;
/// See [`QAT_MARGIN`].
const QAT_NOISE: f64 = 1.51;

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    let mut jobs = vec![
        Job::new("trained-tiny/tokenizer", || {
            let rule = "ids, and text again";
            let question =
                Question::new("trained-tiny tokenizer", "prompts.json", Lane::Choice, rule);
            checked(question.clone(), || tokenizer(setup, question))
        }),
        Job::new("trained-tiny/qat-rule", || {
            let rule = "f32 to f64 <= 1.51 in every row";
            let question = Question::new("qat noise", "HF f32, f64", Lane::Bound, rule);
            if let Err(reason) = setup.truth("hf-tiny") {
                return vec![question.not_run(reason)];
            }
            checked(question.clone(), || {
                let noise = super::hf_tiny::qat_noise(setup)?;
                let mut tally = Tally::new();
                tally.bound("largest difference", &[noise as f32], &[0.0], QAT_NOISE);
                tally.note(format!("largest {noise:.2}"));
                Ok(tally.finish(question))
            })
        }),
    ];
    for name in PROMPTS {
        jobs.push(Job::new(format!("trained-tiny/{name}"), move || {
            let rule = "64 greedy tokens; drafts; ties below 5e-4 free";
            let plain = Question::new(format!("{name} float"), "HF f64", Lane::Choice, rule);
            let rule = format!("argmax >= 99 %, all above margin {QAT_MARGIN:.1}");
            let qat = Question::new(format!("{name} qat"), "HF f64", Lane::Choice, rule);
            let mut checks = checked(plain.clone(), || float(setup, name, plain));
            checks.extend(checked(qat.clone(), || rounded(setup, name, qat)));
            checks
        }));
    }
    for name in ["recall-200", "chat-result"] {
        jobs.push(Job::new(format!("trained-tiny/logits-{name}"), move || {
            let case = format!("{name} float logits");
            let question = Question::new(case, "HF f64", Lane::Bound, "<= 5e-4");
            checked(question.clone(), || logits(setup, name, question))
        }));
    }
    jobs
}

/// The prompts, longest first.
pub(super) const PROMPTS: [&str; 13] = [
    "recall-420",
    "novel-held-300",
    "recall-300",
    "recall-200",
    "novel-train",
    "chat-result",
    "novel-held-100",
    "chat-call",
    "recall-100",
    "novel-held-short",
    "recall-40",
    "json",
    "code",
];

pub(super) fn folder(setup: &Setup) -> PathBuf {
    setup.fixtures.join("models/trained-tiny")
}

/// Prompt ids of that name.
pub(super) fn prompt(setup: &Setup, name: &str) -> Prepared<Vec<u32>> {
    let json = read_json(&folder(setup).join("prompts.json"))?;
    let prompts = json["prompts"].as_array().ok_or("prompts.json: no prompts")?;
    let found = prompts.iter().find(|prompt| prompt["name"] == name);
    ids_of(found.and_then(|prompt| prompt.get("ids")))
        .ok_or_else(|| format!("prompts.json: no ids of {name}"))
}

/// What was recorded for a prompt.
fn recorded(setup: &Setup, name: &str) -> Prepared<Json> {
    let json = read_json(&folder(setup).join("expected.json"))?;
    let found = json["prompts"].get(name).cloned();
    found.ok_or_else(|| format!("expected.json: no prompt {name}"))
}

struct Stream {
    ids: Vec<u32>,
    margins: Vec<f64>,
}

fn stream(record: &Json, kind: &str) -> Prepared<Stream> {
    let stream = &record[kind];
    let margins = stream["margin"].as_array().map(|list| list.iter().filter_map(Json::as_f64));
    let (Some(ids), Some(margins)) = (ids_of(stream.get("ids")), margins) else {
        return Err(format!("expected.json: no stream {kind}"));
    };
    let margins: Vec<f64> = margins.collect();
    if ids.len() != margins.len() {
        return Err(format!("expected.json: {} ids, {} margins", ids.len(), margins.len()));
    }
    Ok(Stream { ids, margins })
}

fn float(setup: &Setup, name: &str, question: Question) -> Prepared<Check> {
    let model = setup.model(&folder(setup).join("model.gguf"))?;
    let (record, prompt) = (recorded(setup, name)?, prompt(setup, name)?);
    let plain = stream(&record, "plain")?;
    let tokens = [&prompt[..], &plain.ids].concat();
    let forward = setup.forward(&model, Profile::FLOAT, &tokens, &mut Unobserved)?;
    let mut tally = Tally::new();
    let mut ties = 0;
    for (step, (id, recorded)) in plain.ids.iter().zip(&plain.margins).enumerate() {
        let row = widen(forward.logits.row(prompt.len() - 1 + step));
        let ours = argmax(&row).map(|id| id as u32);
        if *recorded < TIE && ours != Some(*id) {
            ties += 1;
            tally.count(1, 1);
        } else {
            tally.choices(&format!("token {step}"), &[ours], &[Some(*id)]);
        }
    }
    let drafts = drafts(setup, &model, &record, &tokens, &forward.streams, &mut tally)?;
    tally.note(format!("{} tokens, {drafts} drafts, {ties} ties", plain.ids.len()));
    Ok(tally.finish(question))
}

/// Compares the recorded drafts of depth 1 and 2 with those of the block; returns how many.
fn drafts(
    setup: &Setup,
    model: &engine::Model,
    record: &Json,
    tokens: &[u32],
    streams: &Rows,
    tally: &mut Tally,
) -> Prepared<usize> {
    let block = MtpModel::open(&folder(setup).join("mtp.gguf"), &model.config).map_err(text)?;
    let recorded = &record["mtp"];
    let list = |key: &str| ids_of(recorded.get(key)).ok_or_else(|| format!("no mtp {key}"));
    let (positions, first, second) = (list("positions")?, list("draft1")?, list("draft2")?);
    let margins: Vec<f64> = recorded["draft1_margin"]
        .as_array()
        .map(|list| list.iter().filter_map(Json::as_f64).collect())
        .unwrap_or_default();
    if [first.len(), second.len(), margins.len()] != [positions.len(); 3] {
        return Err("expected.json: mtp lists differ in length".into());
    }
    // A draft is recorded for every generated token but the last two, whose successors are not known.
    let generated = record["plain"]["ids"].as_array().map_or(0, Vec::len);
    let first_row = (tokens.len() - generated).saturating_sub(1);
    let rows: Vec<u32> = (first_row as u32..).take(generated.saturating_sub(2)).collect();
    if rows.is_empty() || positions != rows {
        return Err(format!("expected.json: {} drafts for {generated} tokens", positions.len()));
    }
    let paired = Pairing::Previous.tokens(tokens);
    let mut session = MtpSession::new(model, &block, Profile::FLOAT);
    let mut compared = 0;
    for (index, position) in positions.iter().enumerate() {
        let row = *position as usize;
        let fresh = session.length()..row + 1;
        let hidden = streams.slice(fresh.clone());
        let depth1 =
            session.forward(&paired[fresh], &hidden, Keep::All, &mut Unobserved).map_err(text)?;
        let last = depth1.logits.count() - 1;
        let logits = widen(depth1.logits.row(last));
        let ours = argmax(&logits).map(|id| id as u32);
        if margins[index] > TIE {
            tally.choices(&format!("draft after {row}"), &[ours], &[Some(first[index])]);
            compared += 1;
        }
        // The chained draft follows the recorded one, so a tie in the first does not spoil the second.
        let hidden = depth1.streams.slice(last..last + 1);
        let depth2 = session
            .forward(&first[index..=index], &hidden, Keep::All, &mut Unobserved)
            .map_err(text)?;
        let logits = widen(depth2.logits.row(0));
        if margin(&logits) > TIE {
            let ours = argmax(&logits).map(|id| id as u32);
            tally.choices(&format!("chained draft after {row}"), &[ours], &[Some(second[index])]);
            compared += 1;
        }
        session.rollback(row + 1).map_err(text)?;
    }
    Ok(compared)
}

fn rounded(setup: &Setup, name: &str, question: Question) -> Prepared<Check> {
    let model = setup.model(&folder(setup).join("model.gguf"))?;
    let (record, prompt) = (recorded(setup, name)?, prompt(setup, name)?);
    let qat = stream(&record, "qat")?;
    let tokens = [&prompt[..], &qat.ids].concat();
    let forward = setup.forward(&model, Profile::QAT, &tokens, &mut Unobserved)?;
    let mut tally = Tally::new();
    let mut agreeing = 0;
    for (step, (id, recorded)) in qat.ids.iter().zip(&qat.margins).enumerate() {
        let row = widen(forward.logits.row(prompt.len() - 1 + step));
        let ours = argmax(&row).map(|id| id as u32);
        tally.count(1, 1);
        agreeing += usize::from(ours == Some(*id));
        tally.require(ours == Some(*id) || *recorded <= QAT_MARGIN, || {
            format!("token {step}: {ours:?}, {id}, margin {recorded}")
        });
    }
    let steps = qat.ids.len();
    tally.require(100 * agreeing >= 99 * steps, || format!("{agreeing} of {steps} steps agree"));
    tally.note(format!("{agreeing} of {steps}"));
    Ok(tally.finish(question))
}

fn logits(setup: &Setup, name: &str, question: Question) -> Prepared<Check> {
    let model = setup.model(&folder(setup).join("model.gguf"))?;
    let plain = stream(&recorded(setup, name)?, "plain")?;
    let tokens = [prompt(setup, name)?, plain.ids].concat();
    let forward = setup.forward(&model, Profile::FLOAT, &tokens, &mut Unobserved)?;
    let truth = read_npy(&folder(setup).join(format!("logits-{name}.npy"))).map_err(text)?;
    let mut tally = Tally::new();
    tally.require(truth.count() == tokens.len(), || format!("{} rows", truth.count()));
    for (index, row) in forward.logits.iter().take(truth.count()).enumerate() {
        tally.bound(&format!("logits at {index}"), row, truth.row(index), 5e-4);
    }
    tally.note(format!("largest {:.1e}", tally.largest()));
    Ok(tally.finish(question))
}

fn tokenizer(setup: &Setup, question: Question) -> Prepared<Check> {
    let model = setup.model(&folder(setup).join("model.gguf"))?;
    let tokenizer = model.tokenizer().map_err(text)?;
    let json = read_json(&folder(setup).join("prompts.json"))?;
    let mut tally = Tally::new();
    for entry in json["prompts"].as_array().ok_or("prompts.json: no prompts")? {
        let name = entry["name"].as_str().unwrap_or_default();
        let (Some(expected), Some(ids)) = (entry["text"].as_str(), ids_of(entry.get("ids"))) else {
            return Err(format!("prompts.json: no text or ids of {name}"));
        };
        tally.choices(&format!("{name} id"), &tokenizer.encode_rendered(expected), &ids);
        let decoded = tokenizer.decode(&ids).map_err(text)?;
        tally.choices(&format!("{name} text"), decoded.as_bytes(), expected.as_bytes());
    }
    Ok(tally.finish(question))
}
