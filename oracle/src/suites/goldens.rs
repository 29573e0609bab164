//! The production engine against accepted goldens.
//!
//! Promises: every case is a prompt in one call, then greedy tokens one at a time, in the `ds4` profile, and
//! is equal only when text and payload of the accepted golden are its bytes. A check of its own holds the
//! files: one that is missing, unreadable, stale or of no case is red by name. Nothing here writes to the
//! accepted ones; a new golden waits elsewhere, and none does when something was planted.
//! The reference has the same bytes (suite `tensor-equivalence`), so the faster of the two runs.

use std::collections::BTreeMap;

use engine::backend::Backend;
use engine::cpu::Combine;
use engine::reference::Reference;
use engine::reference::order::CONTRACT;
use engine::sampler;
use engine::session::Keep;
use engine::tap::{Observer, Place, Site, Tap, Values};
use engine::{Model, Profile, Session};
use sha2::{Digest, Sha256};

use super::{Job, Prepared, Production, Setup, text, token_ids, trained_tiny};
use crate::check::{Check, Lane, Question, Tally};
use crate::contract::{self, Axis, Cell, Evidence};
use crate::digest;
use crate::golden::{self, Golden, MadeFrom, Note, Step, TapDigest, Tensor, Tensors};

/// Intermediates that a golden has digests of.
const TAPS: [Tap; 8] = [
    Tap::Embedding,
    Tap::KeyRow,
    Tap::CompressedRow,
    Tap::IndexerChosen,
    Tap::AttnOutput,
    Tap::RouterExperts,
    Tap::RoutedOutput,
    Tap::Streams,
];
/// Those of the prompt's last token that are kept whole.
const KEPT: [Tap; 2] = [Tap::Embedding, Tap::Streams];
/// Rows of logits that are kept whole, from the one that the first token is chosen from; the last of all
/// is kept too.
const ROWS: usize = 8;
/// Digits of the digest of a row.
const ROW_DIGITS: usize = 16;

/// A case that has a golden.
#[derive(Clone, Copy, Debug)]
pub struct GoldenCase {
    /// Folder of the model below `fixtures/models`.
    pub model: &'static str,
    /// Name of the prompt.
    pub prompt: &'static str,
    /// Greedy tokens after it.
    pub steps: usize,
}

impl GoldenCase {
    /// The name of the case.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.model, self.prompt)
    }

    /// The names of all cases, sorted.
    #[must_use]
    pub fn names() -> Vec<String> {
        let mut names: Vec<String> = GOLDEN_CASES.iter().map(Self::name).collect();
        names.sort();
        names
    }

    fn prompt(&self, setup: &Setup) -> Prepared<Vec<u32>> {
        match self.model {
            "trained-tiny" => trained_tiny::prompt(setup, self.prompt),
            _ => token_ids(&setup.fixtures.join(format!("prompts/{}.json", self.prompt)), &[]),
        }
    }

    fn model_path(&self, setup: &Setup) -> std::path::PathBuf {
        setup.fixtures.join("models").join(self.model).join("model.gguf")
    }

    /// What a golden of this case would be made from now.
    fn made_from(&self, prompt: &[u32], model: &str) -> MadeFrom {
        let prompt_bytes: Vec<u8> = prompt.iter().flat_map(|id| id.to_le_bytes()).collect();
        let prompt_sha256 = digest::of_bytes(&prompt_bytes);
        MadeFrom {
            contract: CONTRACT.to_string(),
            model: format!("sha256 {model}"),
            profile: Profile::DS4.name.to_owned(),
            prompt: format!("{} ids, sha256 {prompt_sha256}", prompt.len()),
            steps: self.steps.to_string(),
        }
    }
}

const fn trained(index: usize) -> GoldenCase {
    GoldenCase { model: "trained-tiny", prompt: trained_tiny::PROMPTS[index], steps: 64 }
}

/// All cases, one a golden.
pub const GOLDEN_CASES: [GoldenCase; 14] = [
    trained(0),
    trained(1),
    trained(2),
    trained(3),
    trained(4),
    trained(5),
    trained(6),
    trained(7),
    trained(8),
    trained(9),
    trained(10),
    trained(11),
    trained(12),
    GoldenCase { model: "tiny", prompt: "tiny-400", steps: 16 },
];

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'a>> = GOLDEN_CASES
        .iter()
        .map(|case| {
            let name = format!("golden/{}", case.name());
            Job::new(name.clone(), move || {
                let question = Question::new(&name, "accepted", Lane::Bits, "bytes, ds4 profile");
                setup.checked(question.clone(), || compare(setup, production, case, question))
            })
        })
        .collect();
    jobs.push(Job::new("golden/files", || {
        let rule = "one a case, readable, not stale";
        let question = Question::new("golden/files", "cases", Lane::Choice, rule);
        setup.checked(question.clone(), || files(setup, question))
    }));
    jobs
}

/// The golden that is accepted for a case, or what is wrong with it.
fn accepted(setup: &Setup, case: &str) -> Prepared<Golden> {
    let stored = golden::load(&setup.golden, case).map_err(text)?;
    match stored.note {
        Note::Reason(_) => Ok(stored.golden),
        Note::Waiting { .. } => {
            let path = golden::path(&setup.golden, case);
            Err(format!("unreadable: {}: description: says that it waits", path.display()))
        }
    }
}

fn compare<P: Production>(
    setup: &Setup,
    production: &P,
    case: &GoldenCase,
    question: Question,
) -> Prepared<Check> {
    let name = case.name();
    // Before the run, so that what others write in the meantime is noticed.
    let [replaces, waited] =
        [&setup.golden, &setup.pending].map(|folder| golden::before(folder, &name));
    let (replaces, waited) = (replaces.map_err(text)?, waited.map_err(text)?);
    let path = case.model_path(setup);
    let prompt = case.prompt(setup)?;
    let model = setup.model(&path)?;
    let made_from = case.made_from(&prompt, &digest::of_file(&path).map_err(text)?);
    let backend = production.make(setup.variant)?;
    let made = make(setup, &backend, &model, case, &prompt, made_from)?;
    let mut tally = setup.tally();
    tally.count(made.tensors, made.elements);
    let moved = match accepted(setup, &name) {
        Ok(golden) if golden.same(&made.golden) => None,
        Ok(golden) => Some(golden::difference(&golden, &made.golden).summary()),
        Err(problem) => Some(problem),
    };
    if let Some(moved) = moved {
        let waits = leave(setup, &made.golden, replaces, waited.as_deref());
        tally.require(false, || {
            [Some(moved), waits].into_iter().flatten().collect::<Vec<_>>().join("; ")
        });
    }
    // Earlier bytes of the reference prove nothing about an engine that it stands in for.
    if backend.name() != Reference.name() {
        let subject = contract::Subject::Model;
        let cell = Cell { axis: Axis::Golden, subject, path: setup.variant.path() };
        let elements = tally.elements() as u64;
        tally.prove(cell, Evidence { cases: 1, elements, runs: 1 });
    }
    Ok(tally.finish(question))
}

/// Leaves a golden to wait, unless something was planted or bits depend on arrival; says where to read on,
/// or that it cannot.
fn leave(
    setup: &Setup,
    golden: &Golden,
    replaces: Option<String>,
    waited: Option<&str>,
) -> Option<String> {
    let planted = setup.fault.is_some() || setup.flaw.is_some();
    if planted || setup.variant.combine != Combine::Ordered {
        return None;
    }
    Some(match golden::leave_pending(&setup.pending, golden, replaces, waited) {
        Ok(()) => format!("all of it: cargo xtask golden diff {}", golden.case),
        Err(error) => text(error),
    })
}

/// A golden and what was computed for it.
struct Made {
    golden: Golden,
    tensors: usize,
    elements: usize,
}

/// Digests intermediates in the order of positions; keeps those of one position whole.
struct Seen {
    /// The position that is kept.
    kept: usize,
    digests: BTreeMap<(Place, Tap), Sha256>,
    arrays: Vec<Tensor>,
    tensors: usize,
    elements: usize,
}

fn name(place: Place, tap: Tap) -> String {
    format!("{place} {}", tap.name())
}

impl Observer for Seen {
    fn wants(&self, tap: Tap) -> bool {
        TAPS.contains(&tap)
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        let digest = self.digests.entry((site.place, site.tap)).or_default();
        self.tensors += 1;
        match values {
            Values::F32(values) => {
                self.elements += values.len();
                digest.update(bytes(values));
                if site.position == self.kept && KEPT.contains(&site.tap) {
                    let (name, shape) = (name(site.place, site.tap), vec![values.len()]);
                    self.arrays.push(Tensor { name, shape, values: values.to_vec() });
                }
            }
            Values::Index(indices) => {
                self.elements += indices.len();
                // Rows of indices have lengths of their own.
                digest.update((indices.len() as u64).to_le_bytes());
                indices.iter().for_each(|index| digest.update((*index as u64).to_le_bytes()));
            }
        }
    }
}

fn bytes(row: &[f32]) -> Vec<u8> {
    row.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn row_digest(row: &[f32]) -> String {
    digest::of_bytes(&bytes(row))[..ROW_DIGITS].to_owned()
}

/// The greedy choice of a row.
fn choose(row: &[f32], position: usize) -> Prepared<Step> {
    let id = sampler::argmax(row, position).map_err(text)?;
    let logit = row[id as usize];
    let mut others = row.to_vec();
    others[id as usize] = f32::MIN;
    let runner_up = sampler::argmax(&others, position).map_err(text)?;
    let margin = format!("{:.6}", logit - row[runner_up as usize]);
    Ok(Step { id, logit: logit.to_bits(), runner_up, margin, row: row_digest(row) })
}

/// Runs a case; the fault that is asked for is planted if it is one of logits.
fn make<B: Backend>(
    setup: &Setup,
    backend: &B,
    model: &Model,
    case: &GoldenCase,
    prompt: &[u32],
    made_from: MadeFrom,
) -> Prepared<Made> {
    let kept = prompt.len().checked_sub(1).ok_or("the prompt has no tokens")?;
    let digests = BTreeMap::new();
    let mut seen = Seen { kept, digests, arrays: Vec::new(), tensors: 0, elements: 0 };
    let mut session = Session::on(backend, model, Profile::DS4).map_err(text)?;
    let forward = session.forward(prompt, Keep::All, &mut seen).map_err(text)?;
    let mut logits = backend.download(&forward.logits).map_err(text)?;
    if let Some(fault) = setup.fault {
        fault.into_logits(&mut logits);
    }
    let (mut tensors, mut elements) = (logits.count(), logits.values().len());
    let mut row = logits.row(logits.count() - 1).to_vec();
    let (mut steps, mut positions, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..=case.steps {
        if step < ROWS || step == case.steps {
            positions.push(kept + step);
            rows.extend_from_slice(&row);
        }
        if step == case.steps {
            break;
        }
        let chosen = choose(&row, kept + step)?;
        let forward = session.forward(&[chosen.id], Keep::All, &mut seen).map_err(text)?;
        steps.push(chosen);
        row = backend.download(&forward.logits).map_err(text)?.row(0).to_vec();
        (tensors, elements) = (tensors + 1, elements + row.len());
    }
    let shape = vec![positions.len(), row.len()];
    let mut arrays = seen.arrays;
    arrays.push(Tensor { name: "logits".to_owned(), shape, values: rows });
    arrays.sort_by(|a, b| a.name.cmp(&b.name));
    let digests = seen.digests.into_iter();
    let taps = digests.map(|((place, tap), sha256)| TapDigest {
        name: name(place, tap),
        sha256: digest::hex(&sha256.finalize()),
    });
    let golden = Golden {
        case: case.name(),
        made_from,
        prompt_logits: digest::of_bytes(&bytes(logits.values())),
        taps: taps.collect(),
        steps,
        last_row: row_digest(&row),
        tensors: Tensors { positions, arrays },
    };
    Ok(Made { golden, tensors: tensors + seen.tensors, elements: elements + seen.elements })
}

/// What the folder of goldens has and should not, or lacks.
fn files(setup: &Setup, question: Question) -> Prepared<Check> {
    let found = golden::survey(&setup.golden, &GoldenCase::names()).map_err(text)?;
    let missing = found.missing.iter().map(|case| format!("missing: {case}"));
    let unreferenced = found.unreferenced.iter().map(|file| format!("unreferenced: {file}"));
    let mut problems: Vec<String> = missing.chain(unreferenced).collect();
    let mut models = BTreeMap::new();
    for case in &GOLDEN_CASES {
        let path = case.model_path(setup);
        let model = match models.get(&path) {
            Some(known) => String::clone(known),
            None => digest::of_file(&path).map_err(text)?,
        };
        models.insert(path, model.clone());
        let present = case.made_from(&case.prompt(setup)?, &model);
        if !found.cases.contains(&case.name()) {
            continue;
        }
        match accepted(setup, &case.name()) {
            Err(problem) => problems.push(problem),
            Ok(golden) => {
                let stale = golden.made_from.stale(&present);
                problems.extend(stale.iter().map(|what| format!("stale: {}: {what}", case.name())));
            }
        }
    }
    let mut tally = Tally::new();
    tally.count(GOLDEN_CASES.len(), found.cases.len());
    tally.require(problems.is_empty(), || problems.join("; "));
    Ok(tally.finish(question))
}
