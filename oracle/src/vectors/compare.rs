//! Our logits against official answers, the official tokens fed at every step.
//!
//! Promises: a disagreement is one step, because the step after it follows the official token. Both sides'
//! log-probabilities are checked before they are compared. Noise is measured in the file at hand: the
//! farthest that two tops moved against each other at any step, those whose order is in question left out,
//! because a changed choice is seen just where noise went farthest. A step whose two sides are not alike
//! ([`Noise::between`]) is explained by nothing, and where no step lists two other tokens there is no noise:
//! then every disagreement that is no exact tie is a defect. A case that cannot run is
//! counted with its reason, and then the whole is not green.

use std::fmt;

use engine::Session;
use engine::backend::Backend;
use engine::format::Tokenizer;
use engine::rows::Rows;
use engine::sampler::Logprobs;
use engine::session::Keep;
use engine::tap::Unobserved;
use serde::Serialize;

use super::{Case, Prompts, Step, TOPS_MAX, Tokens, Vectors, sane};
use crate::check::Outcome;
use crate::margin::{Flip, Flips, Margin, Noise, classify_gaps};

/// Makes ids of a prompt's text.
pub type Encode<'a> = dyn Fn(&Tokenizer, &str) -> Result<Vec<u32>, String> + 'a;

/// What all cases share.
pub struct Setting<'a> {
    /// The vocabulary of the model.
    pub tokenizer: &'a Tokenizer,
    /// Where prompts are.
    pub prompts: &'a Prompts,
    /// Ids of a prompt.
    pub encode: &'a Encode<'a>,
    /// Most tokens that the model may be run to.
    pub context: usize,
    /// How far the official side moves a pair of log-probabilities against itself, if that was measured.
    pub own_noise: Option<f64>,
}

/// What a backend is asked for: a row of logits after the prompt and after each forced token.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The case.
    pub case: &'a Case,
    /// Ids of the prompt.
    pub prompt: &'a [u32],
    /// The official tokens, without the last.
    pub forced: &'a [u32],
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepResult {
    /// Its index in the case.
    pub step: usize,
    /// The official token.
    pub official: u32,
    /// Our greedy choice.
    pub ours: u32,
    /// By how much the official side prefers its token to ours; nothing when ours is not among its tops.
    pub official_gap: Option<f64>,
    /// By how much we prefer ours.
    pub our_gap: f64,
    /// What was measured on the other tops of this step.
    pub noise: Noise,
    /// Largest difference of a log-probability among the tops.
    pub difference: Option<f64>,
    /// Tops whose bytes are no token of the vocabulary.
    pub unmatched: usize,
    /// What a disagreement is.
    pub flip: Option<Flip>,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaseResult {
    /// It ran.
    Compared {
        /// Its name.
        id: String,
        /// Its steps.
        steps: Vec<StepResult>,
    },
    /// It did not.
    Skipped {
        /// Its name.
        id: String,
        /// Why.
        reason: String,
    },
}

/// All cases of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The cases in order.
    pub cases: Vec<CaseResult>,
    /// Disagreements, with margins of our logits.
    pub flips: Flips,
    /// The farthest that two other tops moved against each other at a step whose sides are alike.
    pub noise: Option<f64>,
}

/// Rows of logits by plain decoding: the prompt in one call, then one forced token a call.
///
/// # Errors
/// In words, when a call fails.
pub fn teacher_forced<B: Backend>(
    mut session: Session<'_, B>,
    request: &Request<'_>,
) -> Result<Rows, String> {
    let mut rows = Rows::empty(session.model().config.vocabulary);
    let calls = std::iter::once(request.prompt).chain(request.forced.chunks(1));
    for tokens in calls {
        let forward = session.forward(tokens, Keep::Last, &mut Unobserved);
        let logits = forward.map_err(|error| error.to_string())?.logits;
        let logits = session.backend().download(&logits).map_err(|error| error.to_string())?;
        logits.iter().for_each(|row| rows.push(row));
    }
    Ok(rows)
}

/// Runs every case and judges every step. `run` answers a [`Request`]; its errors are reasons to skip.
pub fn compare(
    vectors: &Vectors,
    setting: &Setting<'_>,
    run: &mut dyn FnMut(&Request<'_>) -> Result<Rows, String>,
) -> Comparison {
    let tokens = Tokens::of(setting.tokenizer);
    let mut found = Comparison::default();
    for case in &vectors.cases {
        let id = case.id.clone();
        found.cases.push(match steps(case, setting, &tokens, run, &mut found.flips) {
            Ok(steps) => CaseResult::Compared { id, steps },
            Err(reason) => CaseResult::Skipped { id, reason },
        });
    }
    found.judge(setting.own_noise);
    found
}

/// Runs one case and measures its steps.
fn steps(
    case: &Case,
    setting: &Setting<'_>,
    tokens: &Tokens,
    run: &mut dyn FnMut(&Request<'_>) -> Result<Rows, String>,
    flips: &mut Flips,
) -> Result<Vec<StepResult>, String> {
    let selected: Vec<u32> =
        case.steps.iter().map(|step| tokens.id(&step.selected)).collect::<Result<_, _>>()?;
    let text = setting.prompts.read(&case.prompt).map_err(|error| error.to_string())?;
    let prompt = (setting.encode)(setting.tokenizer, &text)?;
    let Some((_, forced)) = selected.split_last() else {
        return Err("no step".to_owned());
    };
    let (length, context) = (prompt.len() + forced.len(), case.context.min(setting.context));
    if length > context {
        return Err(format!("{length} tokens: the context holds {context}"));
    }
    let rows = run(&Request { case, prompt: &prompt, forced })?;
    let mut results = Vec::new();
    if rows.count() != selected.len() {
        let (rows, steps) = (rows.count(), selected.len());
        flips.exclude(format!("case {}: {rows} rows of logits for {steps} steps", case.id));
        return Ok(results);
    }
    for (index, (step, official)) in case.steps.iter().zip(&selected).enumerate() {
        let position = prompt.len() - 1 + index;
        let result = measure(step, tokens, *official, rows.row(index), position);
        match result {
            Ok((margin, result)) => {
                flips.margins.add(&margin);
                results.push(StepResult { step: index, ..result });
            }
            Err(reason) => {
                flips.margins.exclude();
                flips.exclude(format!("case {}, step {index}: {reason}", case.id));
            }
        }
    }
    Ok(results)
}

/// Measures one step; `flip` is still to be judged.
fn measure(
    step: &Step,
    tokens: &Tokens,
    official: u32,
    row: &[f32],
    position: usize,
) -> Result<(Margin, StepResult), String> {
    let margin = Margin::of(row, position).map_err(|error| error.to_string())?;
    let logprobs = Logprobs::of(row, position).map_err(|error| error.to_string())?;
    // Before any comparison: a row that is no distribution may still have the right choice.
    for (side, values) in [
        ("official", step.tops.iter().map(|top| top.logprob).collect::<Vec<_>>()),
        ("ours", logprobs.top(TOPS_MAX).into_iter().map(|top| top.logprob).collect()),
    ] {
        sane(values).map_err(|problem| format!("{side}: {problem}"))?;
    }
    let mut entries = Vec::new();
    let mut unmatched = 0;
    for top in &step.tops {
        match tokens.id(&top.token).ok().and_then(|id| Some((id, logprobs.token(id)?))) {
            Some((id, ours)) => entries.push((id, top.logprob, ours)),
            None => unmatched += 1,
        }
    }
    let listed = |id: u32| entries.iter().find(|entry| entry.0 == id).map(|entry| entry.1);
    let ours = margin.best;
    let own = logprobs.token(official).ok_or_else(|| format!("no logit of token {official}"))?;
    let differences = entries.iter().map(|(_, official, ours)| (ours - official).abs());
    let difference =
        differences.fold(None, |max: Option<f64>, x| Some(max.map_or(x, |m| m.max(x))));
    let result = StepResult {
        step: 0,
        official,
        ours,
        official_gap: listed(official).zip(listed(ours)).map(|(a, b)| a - b),
        our_gap: logprobs.token(ours).map_or(f64::NAN, |best| best - own),
        noise: Noise::between(&entries, &[official, ours]),
        difference,
        unmatched,
        flip: None,
    };
    Ok((margin, result))
}

impl Comparison {
    /// All steps of the cases that ran.
    pub fn steps(&self) -> impl Iterator<Item = &StepResult> {
        self.cases.iter().flat_map(|case| match case {
            CaseResult::Compared { steps, .. } => steps.as_slice(),
            CaseResult::Skipped { .. } => &[],
        })
    }

    /// Names and reasons of the cases that did not run.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cases.iter().filter_map(|case| match case {
            CaseResult::Compared { .. } => None,
            CaseResult::Skipped { id, reason } => Some((id.as_str(), reason.as_str())),
        })
    }

    fn judge(&mut self, own: Option<f64>) {
        let measured = self.steps().filter_map(|step| step.noise.between);
        self.noise = measured.fold(None, |max: Option<f64>, x| Some(max.map_or(x, |m| m.max(x))));
        let farthest = self.noise;
        let mut index = 0;
        for case in &mut self.cases {
            let CaseResult::Compared { steps, .. } = case else { continue };
            for step in steps {
                step.flip = (step.official != step.ours).then(|| step.judged(farthest, own));
                self.flips.count(index, step.flip);
                index += 1;
            }
        }
    }

    /// What stands against green: a case that did not run, unless something is wrong already.
    fn with_skips(&self, outcome: Outcome) -> Outcome {
        let skipped = self.skipped().count();
        let ran = self.cases.len() - skipped;
        match outcome {
            Outcome::Equal if skipped > 0 => Outcome::NotRun(self.to_string()),
            Outcome::Different(_) if ran == 0 && skipped > 0 => Outcome::NotRun(self.to_string()),
            other => other,
        }
    }

    /// Green when every token is the official one and every case ran.
    #[must_use]
    pub fn strict(&self) -> Outcome {
        self.with_skips(self.flips.strict())
    }

    /// Green when every other token is explained by a tie or by noise, and every case ran.
    #[must_use]
    pub fn explained(&self) -> Outcome {
        self.with_skips(self.flips.explained())
    }
}

impl StepResult {
    fn judged(&self, farthest: Option<f64>, own: Option<f64>) -> Flip {
        let Some(official) = self.official_gap else {
            // Our token is not among the tops, so how near it was is not known.
            return Flip::Defect { gap: self.our_gap, bound: 0.0 };
        };
        // Sides that are not alike at this step have no noise, and then nothing explains.
        let alike = self.noise.entries < 2 || self.noise.between.is_some();
        let between = farthest.filter(|_| alike);
        classify_gaps(official, self.our_gap, &Noise { own, between, ..self.noise })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cases, skipped) = (self.cases.len(), self.skipped().count());
        write!(
            f,
            "{} of {cases} cases compared, {skipped} skipped; {}",
            cases - skipped,
            self.flips
        )?;
        self.skipped().try_for_each(|(id, reason)| write!(f, "; {id} skipped: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b104_noise_of_the_file_explains_a_step_only_where_its_sides_are_alike() {
        let step = |official_gap, entries, between| StepResult {
            step: 0,
            official: 1,
            ours: 2,
            official_gap,
            our_gap: 0.05,
            noise: Noise { own: None, between, rms: 0.01, entries },
            difference: None,
            unmatched: 0,
            flip: None,
        };
        let alike = step(Some(0.05), 18, Some(0.02));
        let other = step(Some(0.05), 18, None);
        let alone = step(Some(0.05), 1, None);
        let near = |step: &StepResult, file| {
            matches!(step.judged(file, None), Flip::NearTieUnderQuantisation { .. })
        };
        assert!(near(&alike, Some(0.2)) && near(&alone, Some(0.2)));
        assert!(!near(&other, Some(0.2)), "rows that are not alike");
        for file in [None, Some(0.09)] {
            assert!(
                [&alike, &other, &alone].iter().all(|step| step.judged(file, None).is_defect())
            );
        }
        let unlisted = step(None, 18, Some(0.02));
        assert_eq!(unlisted.judged(Some(9.0), None), Flip::Defect { gap: 0.05, bound: 0.0 });
        let own = alike.judged(Some(0.09), Some(0.3));
        assert!(matches!(own, Flip::UndecidableNearTie { noise, .. } if noise == 0.3), "{own:?}");
    }
}
