//! Hugging Face's implementation in f64 on tiny GGUF files with random blocks, and ds4's own code on one.

use engine::Profile;
use engine::rows::Rows;
use engine::tap::Unobserved;

use super::{Job, Prepared, Setup, checked, text, token_ids};
use crate::check::{Check, Lane, Question, Tally};
use crate::npy::{Array, read_npy};
use crate::stats;

pub(super) fn jobs(setup: &Setup) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for file in ["q2", "q4k"] {
        let question =
            Question::new(format!("gguf-tiny {file} float"), "HF f64", Lane::Bound, "<= 2e-4");
        jobs.push(job(
            setup,
            file,
            Profile::FLOAT,
            "logits",
            question,
            |logits, truth, question| {
                let mut tally = Tally::new();
                for (index, row) in logits.iter().enumerate() {
                    tally.bound(&format!("logits at {index}"), row, truth.row(index), 2e-4);
                }
                tally.note(format!("largest {:.1e}", tally.largest()));
                tally.finish(question)
            },
        ));
        let rule = "argmax >= 99 %, median row max <= 0.01";
        let question = Question::new(format!("gguf-tiny {file} qat"), "HF f64", Lane::Bound, rule);
        jobs.push(job(
            setup,
            file,
            Profile::QAT,
            "logits_qat",
            question,
            |ours, truth, question| close(ours, truth, 0.99, 0.01, question),
        ));
    }
    jobs
}

/// A job that runs one profile on one file and compares its logits.
fn job<'a>(
    setup: &'a Setup,
    file: &'static str,
    profile: Profile,
    truth: &'static str,
    question: Question,
    compare: fn(&Rows, &Array, Question) -> Check,
) -> Job<'a> {
    Job::new(format!("gguf-tiny/{file}-{}", profile.name), move || {
        let folder = match setup.truth("gguf-tiny") {
            Ok(folder) => folder,
            Err(reason) => return vec![question.clone().not_run(reason)],
        };
        checked(question.clone(), || -> Prepared<Check> {
            let tokens =
                token_ids(&folder.join(format!("{file}.tokens.json")), &["prompt", "greedy"])?;
            let model = setup.model(&folder.join(format!("{file}.gguf")))?;
            let forward = setup.forward(&model, profile, &tokens, &mut Unobserved)?;
            let truth = read_npy(&folder.join(format!("{file}.{truth}.npy"))).map_err(text)?;
            if truth.count() != tokens.len() {
                return Err(format!("{} rows of ground truth", truth.count()));
            }
            Ok(compare(&forward.logits, &truth, question.clone()))
        })
    })
}

/// Judges logits of a path with rounding steps by agreement and by the median of the rows' largest
/// differences: single rows are amplified rounding and say little.
pub(super) fn close(
    ours: &Rows,
    truth: &Array,
    agreement_min: f64,
    median_max: f64,
    question: Question,
) -> Check {
    let distances = stats::between(ours, truth);
    let (agreement, median) = (stats::share(&distances.agree), stats::median(&distances.largest));
    let largest = distances.largest.iter().fold(0.0_f64, |max, x| max.max(*x));
    let mut tally = Tally::new();
    tally.count(ours.count(), ours.values().len());
    tally.note(format!(
        "argmax {:.1} %, median row max {median:.1e}, largest {largest:.1e}",
        100.0 * agreement
    ));
    tally.require(agreement >= agreement_min, || format!("argmax agrees on {agreement:.3}"));
    tally.require(median <= median_max, || format!("median row max {median}"));
    tally.require(largest.is_finite(), || "a logit is not finite".into());
    tally.finish(question)
}
