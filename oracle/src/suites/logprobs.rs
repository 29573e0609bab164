//! Official log-probabilities in ds4's vector format against the engine under test.
//!
//! Promises: every step follows the official token; a token that differs is an exact tie, a near tie under
//! quantisation with its measured gap, undecidable, or a defect. The first verdict is about tokens as they
//! are; what explains a difference stands beside it and makes it no more equal.

use std::path::PathBuf;

use engine::{Profile, Session};

use super::subjects;
use super::{Job, Prepared, Production, Setup, text};
use crate::check::{Check, Lane, Question};
use crate::vectors::{
    Prompts, Setting, Vectors, chat_prompt, compare, plain_prompt, teacher_forced,
};

/// A file of vectors.
#[derive(Clone, Debug)]
pub struct VectorFile {
    /// The file.
    pub file: PathBuf,
    /// The folder that paths of prompts are resolved against.
    pub prompts: PathBuf,
    /// How prompts become ids.
    pub rendering: Rendering,
}

/// How the text of a prompt becomes ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// As what a user says, rendered as the model was trained.
    Chat,
    /// As text after the begin-of-sentence token.
    Plain,
    /// As a rendered prompt, special tokens by their text.
    Rendered,
}

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let Some(vectors) = &setup.vectors else { return Vec::new() };
    let name = "logprob-vectors/file".to_owned();
    vec![Job::new(name.clone(), move || {
        let rule = "official tokens; what differs is explained or a defect";
        let against = vectors.file.file_name().unwrap_or_default().to_string_lossy();
        let question = Question::new(&name, against, Lane::Choice, rule);
        let run = || whole(setup, production, vectors, question.clone());
        setup.checked(question.clone(), run)
    })]
}

fn whole<P: Production>(
    setup: &Setup,
    production: &P,
    file: &VectorFile,
    question: Question,
) -> Prepared<Check> {
    let vectors = Vectors::open(&file.file).map_err(text)?;
    let subjects = subjects::one(setup, "trained-tiny/code");
    let opened = subjects.first().ok_or("no model")?.open(setup)?;
    let (model, profile) = (&opened.model, Profile::DS4);
    let tokenizer = model.tokenizer().map_err(text)?;
    let backend = production.make(setup.variant)?;
    let prompts = Prompts::new(&file.prompts);
    let encode = |tokenizer: &engine::format::Tokenizer, text: &str| match file.rendering {
        Rendering::Chat => chat_prompt(tokenizer, text),
        Rendering::Plain => plain_prompt(tokenizer, text),
        Rendering::Rendered => Ok(tokenizer.encode_rendered(text)),
    };
    let (encode, context) = (&encode, model.config.context);
    let setting =
        Setting { tokenizer: &tokenizer, prompts: &prompts, encode, context, own_noise: None };
    let comparison = compare(&vectors, &setting, &mut |request| {
        let session = Session::on(&backend, model, profile).map_err(text)?;
        teacher_forced(session, request)
    });
    let mut tally = setup.tally();
    let steps = comparison.steps().count();
    tally.count(steps, steps);
    tally.note(format!("{comparison}"));
    tally.note(format!("explained: {:?}", comparison.explained()));
    let mut check = tally.finish(question);
    check.outcome = comparison.strict();
    Ok(check)
}
