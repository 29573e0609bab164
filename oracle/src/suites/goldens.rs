//! The reference against its own accepted bytes.
//!
//! Every case: a prompt in one call, then greedy tokens one at a time, in the `ds4` profile. Kept are
//! digests of the streams after every layer and of the prompt's logits, and for every step the token,
//! the bits of its logit, the runner-up, the margin and a digest of the row.

use engine::reference::order::CONTRACT;
use engine::sampler;
use engine::session::Keep;
use engine::tap::{Observer, Place, Site, Tap, Values};
use engine::{Model, Profile, Session};
use sha2::{Digest, Sha256};

use super::{Fault, Job, Prepared, Setup, checked, text, token_ids, trained_tiny};
use crate::check::{Check, Lane, Question, Tally};
use crate::digest;
use crate::golden::{self, Golden};

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
}

const fn trained(index: usize) -> GoldenCase {
    GoldenCase { model: "trained-tiny", prompt: trained_tiny::PROMPTS[index], steps: 64 }
}

/// All cases, one a golden file.
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

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    let mut jobs: Vec<Job<'_>> = GOLDEN_CASES
        .iter()
        .map(|case| {
            Job::new(format!("golden/{}", case.name()), || {
                let name = format!("{} ds4", case.name());
                let question = Question::new(name, "golden", Lane::Bits, "bytes");
                checked(question.clone(), || compare(setup, case, question))
            })
        })
        .collect();
    jobs.push(Job::new("golden/files", || {
        let question = Question::new("golden files", "cases", Lane::Choice, "one a case");
        checked(question.clone(), || files(setup, question))
    }));
    jobs
}

fn compare(setup: &Setup, case: &GoldenCase, question: Question) -> Prepared<Check> {
    let path = setup.fixtures.join("models").join(case.model).join("model.gguf");
    let prompt = match case.model {
        "trained-tiny" => trained_tiny::prompt(setup, case.prompt)?,
        _ => token_ids(&setup.fixtures.join(format!("prompts/{}.json", case.prompt)), &[])?,
    };
    let model = setup.model(&path)?;
    let streams = streams_of(&model, Profile::DS4, &prompt, case.steps, setup.fault)?;
    let prompt_bytes: Vec<u8> = prompt.iter().flat_map(|id| id.to_le_bytes()).collect();
    let made_from = vec![
        ("contract", CONTRACT.to_string()),
        ("model", format!("sha256 {}", digest::of_file(&path).map_err(text)?)),
        ("profile", Profile::DS4.name.to_owned()),
        ("prompt", format!("{} ids, sha256 {}", prompt.len(), digest::of_bytes(&prompt_bytes))),
        ("steps", case.steps.to_string()),
    ];
    let golden = Golden { case: case.name(), made_from, body: streams.lines };
    let mut tally = Tally::new();
    tally.count(streams.tensors, streams.elements);
    if let Some(difference) = golden.difference(&setup.golden) {
        // A planted fault must not become tomorrow's golden.
        if setup.fault.is_none() {
            golden.leave_pending(&setup.pending).map_err(text)?;
        }
        tally.require(false, || difference);
    }
    Ok(tally.finish(question))
}

/// What a run of the reference leaves in a golden.
pub struct Streams {
    /// Lines of the body.
    pub lines: Vec<String>,
    /// Rows digested.
    pub tensors: usize,
    /// Values digested.
    pub elements: usize,
}

/// Digests the streams after every layer, in the order of positions.
#[derive(Default)]
struct Digests {
    places: std::collections::BTreeMap<Place, Sha256>,
    tensors: usize,
    elements: usize,
}

impl Observer for Digests {
    fn wants(&self, tap: Tap) -> bool {
        matches!(tap, Tap::Embedding | Tap::Streams)
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        if let Values::F32(values) = values {
            let digest = self.places.entry(site.place).or_default();
            values.iter().for_each(|value| digest.update(value.to_le_bytes()));
            self.tensors += 1;
            self.elements += values.len();
        }
    }
}

fn row_digest(row: &[f32]) -> String {
    let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
    digest::of_bytes(&bytes)
}

/// Runs a prompt and `steps` greedy tokens after it and describes what came out.
///
/// # Errors
/// In words, when the engine refuses.
pub fn streams_of(
    model: &Model,
    profile: Profile,
    prompt: &[u32],
    steps: usize,
    fault: Option<Fault>,
) -> Result<Streams, String> {
    let mut observer = Digests::default();
    let mut session = Session::new(model, profile);
    let mut logits = session.forward(prompt, Keep::All, &mut observer).map_err(text)?.logits;
    if let Some(fault) = fault {
        fault.into_logits(&mut logits);
    }
    let (mut tensors, mut elements) = (logits.count(), logits.values().len());
    let mut lines = vec![format!("logits of the prompt: {}", row_digest(logits.values()))];
    let mut table = vec!["step id logit runner-up margin row".to_owned()];
    let mut row = logits.row(logits.count() - 1).to_vec();
    for step in 0..steps {
        let id = sampler::argmax(&row, session.length() - 1).map_err(text)?;
        let logit = row[id as usize];
        let mut others = row.clone();
        others[id as usize] = f32::MIN;
        let second = sampler::argmax(&others, session.length() - 1).map_err(text)?;
        let margin = logit - row[second as usize];
        let digest = &row_digest(&row)[..16];
        table.push(format!("{step} {id} {:08x} {second} {margin:.6} {digest}", logit.to_bits()));
        let next = session.forward(&[id], Keep::All, &mut observer).map_err(text)?.logits;
        (tensors, elements) = (tensors + 1, elements + next.values().len());
        row = next.row(0).to_vec();
    }
    table.push(format!("{steps} - - - - {}", &row_digest(&row)[..16]));
    for (place, digest) in observer.places {
        lines.push(format!("streams, {place}: {}", digest::hex(&digest.finalize())));
    }
    lines.extend(table);
    tensors += observer.tensors;
    elements += observer.elements;
    Ok(Streams { lines, tensors, elements })
}

fn files(setup: &Setup, question: Question) -> Prepared<Check> {
    let mut expected: Vec<String> = GOLDEN_CASES.iter().map(GoldenCase::name).collect();
    expected.sort();
    let found = golden::list(&setup.golden).map_err(text)?;
    let mut tally = Tally::new();
    tally.choices("case", &found, &expected);
    Ok(tally.finish(question))
}
