//! Vectors made from one meaning of the trained model, held against itself and against another meaning.

mod common;

use std::path::Path;

use common::fixtures;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::format::Tokenizer;
use engine::rows::Rows;
use engine::sampler::argmax;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{Model, Profile, Session};
use oracle::check::Outcome;
use oracle::margin::Flip;
use oracle::vectors::{
    Case, CaseResult, Comparison, Prompts, Request, Setting, Vectors, chat_prompt, compare,
    plain_prompt, teacher_forced,
};

const TOPS: usize = 20;
/// Prompts of few tokens.
const SHORT: [&str; 4] = ["novel-held-short", "recall-40", "json", "code"];

struct Trained {
    model: Model,
    tokenizer: Tokenizer,
    backend: Cpu,
    folder: tempfile::TempDir,
    names: Vec<String>,
}

fn rendered(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    Ok(tokenizer.encode_rendered(text))
}

impl Trained {
    /// The model with its prompts as files: all of them, or the short ones.
    fn open(few: bool) -> Self {
        let source = fixtures().join("models/trained-tiny");
        let model = Model::open(&source.join("model.gguf")).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let json = std::fs::read_to_string(source.join("prompts.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        for prompt in json["prompts"].as_array().unwrap() {
            let name = prompt["name"].as_str().unwrap().to_owned();
            // The longest three add time and no change of choice.
            let long = prompt["n"].as_u64().unwrap() > 300;
            if long || few && !SHORT.contains(&name.as_str()) {
                continue;
            }
            let file = folder.path().join(format!("{name}.txt"));
            std::fs::write(file, prompt["text"].as_str().unwrap()).unwrap();
            names.push(name);
        }
        let kernels = Kernels::new(Level::best(), Threads::new(1).unwrap());
        Self { model, tokenizer, backend: Cpu::new(kernels, Combine::Ordered), folder, names }
    }

    fn session(&self, profile: Profile) -> Session<'_, Cpu> {
        Session::on(&self.backend, &self.model, profile).unwrap()
    }

    /// Greedy answers of this meaning.
    fn vectors(&self, profile: Profile, steps: usize) -> Vectors {
        let case = |name: &String| {
            let file = format!("some/repository/{name}.txt");
            let text = self.prompts().read(&file).unwrap();
            let mut tokens = self.tokenizer.encode_rendered(&text);
            let (mut session, mut rows) = (self.session(profile), Rows::empty(1024));
            for _ in 0..steps {
                let forward = session.forward(&tokens, Keep::Last, &mut Unobserved).unwrap();
                let row = forward.logits.rows().row(0).to_vec();
                tokens = vec![argmax(&row, 0).unwrap()];
                rows.push(&row);
            }
            Case::from_logits((name, 4096, &file), &self.tokenizer, &rows, TOPS).unwrap()
        };
        Vectors { cases: self.names.iter().map(case).collect() }
    }

    fn prompts(&self) -> Prompts {
        Prompts::new(self.folder.path())
    }

    fn compare(
        &self,
        vectors: &Vectors,
        run: &mut dyn FnMut(&Request<'_>) -> Result<Rows, String>,
    ) -> Comparison {
        let prompts = self.prompts();
        let (tokenizer, context) = (&self.tokenizer, self.model.config.context);
        let encode = &rendered;
        let setting = Setting { tokenizer, prompts: &prompts, encode, context, own_noise: None };
        compare(vectors, &setting, run)
    }

    fn against(&self, vectors: &Vectors, profile: Profile) -> Comparison {
        self.compare(vectors, &mut |request| teacher_forced(self.session(profile), request))
    }
}

fn different(outcome: &Outcome) -> &str {
    let Outcome::Different(text) = outcome else { panic!("{outcome:?}") };
    text
}

#[test]
fn a_meaning_agrees_with_itself_and_another_only_up_to_its_noise() {
    let trained = Trained::open(false);
    let float = trained.vectors(Profile::FLOAT, 16);
    let read =
        Vectors::parse(float.to_text(Path::new("a.vec")).unwrap().as_bytes(), Path::new("a"));
    assert_eq!(read.unwrap(), float);

    let same = trained.against(&float, Profile::FLOAT);
    assert_eq!((same.strict(), same.explained()), (Outcome::Equal, Outcome::Equal), "{same}");
    assert_eq!((same.flips.compared, same.flips.margins.rows), (10 * 16, 10 * 16));
    assert!(same.steps().all(|step| step.difference == Some(0.0) && step.unmatched == 0));

    // The roundings of the ds4 profile move log-probabilities, and some choices with them.
    let other = trained.against(&float, Profile::DS4);
    assert_eq!(other.explained(), Outcome::Equal, "{other}");
    assert!(other.noise.is_some_and(|noise| noise > 0.01), "{:?}", other.noise);
    assert!(other.flips.flips() > 0 && other.flips.flips() < 10, "{other}");
    assert!(different(&other.strict()).contains("choices changed"));
    let near = |flip: &Flip| matches!(flip, Flip::NearTieUnderQuantisation { .. });
    assert!(other.steps().filter_map(|step| step.flip.as_ref()).all(near), "{other}");

    // Every answer moved by one step: the tokens before it are others than those it was given after, most of
    // all at the first step of each case.
    let mut shifted = float.clone();
    shifted.cases.retain(|case| SHORT.contains(&case.id.as_str()));
    for case in &mut shifted.cases {
        case.steps.remove(0);
    }
    for profile in [Profile::FLOAT, Profile::DS4] {
        let red = trained.against(&shifted, profile);
        assert!(different(&red.explained()).contains("first defect at 0"), "{red}");
        let first = red.steps().filter(|step| step.step == 0);
        assert!(
            first.filter(|step| step.flip.is_some_and(|f| f.is_defect())).count() == 4,
            "{red}"
        );
    }
}

#[test]
fn b98_one_mismatch_is_counted_once_and_both_paths_follow_the_official_tokens() {
    let trained = Trained::open(true);
    let mut vectors = trained.vectors(Profile::DS4, 7);
    vectors.cases.retain(|case| ["novel-held-short", "json"].contains(&case.id.as_str()));
    // Decoding token by token, and all tokens in one call.
    let mut one_call = |request: &Request<'_>| {
        let tokens = [request.prompt, request.forced].concat();
        let mut session = trained.session(Profile::DS4);
        let forward = session.forward(&tokens, Keep::All, &mut Unobserved).unwrap();
        Ok(forward.logits.rows().slice(request.prompt.len() - 1..tokens.len()))
    };
    assert_eq!(trained.compare(&vectors, &mut one_call).strict(), Outcome::Equal);
    assert_eq!(trained.against(&vectors, Profile::DS4).strict(), Outcome::Equal);
    // Another token at step 2 of 7: a text that walks on along its own tokens would differ from there on.
    let mut flipped = |request: &Request<'_>| {
        let mut rows = one_call(request)?;
        if request.case.id == "json" {
            let row = rows.row_mut(2);
            let best = argmax(row, 0).unwrap() as usize;
            row[(best + 500) % 1024] = row[best] + 9.0;
        }
        Ok(rows)
    };
    let red = trained.compare(&vectors, &mut flipped);
    assert_eq!((red.flips.compared, red.flips.flips(), red.flips.defects), (14, 1, 1), "{red}");
    assert!(different(&red.explained()).contains("1 of 14 choices changed"), "{red}");
    let steps: Vec<usize> = red.steps().filter(|s| s.flip.is_some()).map(|s| s.step).collect();
    assert_eq!(steps, [2]);
}

#[test]
fn b98_what_cannot_run_is_shown_in_the_total_and_is_not_green() {
    let trained = Trained::open(true);
    let mut vectors = trained.vectors(Profile::DS4, 2);
    vectors.cases.extend(vectors.cases.first().cloned());
    vectors.cases[4].id = "again".into();
    vectors.cases[0].steps[1].selected = vec![0xff, 0xfe, 0xfd];
    vectors.cases[1].prompt = "some/other.txt".into();
    vectors.cases[2].context = 10;
    vectors.cases[3].prompt = "../prompts.json".into();
    let found = trained.against(&vectors, Profile::DS4);
    let reasons: Vec<String> = found.skipped().map(|(_, reason)| reason.to_owned()).collect();
    let words = ["token fffefd", "other.txt", "the context holds 10", "below the folder"];
    assert_eq!(reasons.len(), words.len(), "{found}");
    for (reason, words) in reasons.iter().zip(words) {
        assert!(reason.contains(words), "{reason}");
    }
    assert!(matches!(&found.cases[4], CaseResult::Compared { steps, .. } if steps.len() == 2));
    for outcome in [found.strict(), found.explained()] {
        let Outcome::NotRun(text) = outcome else { panic!("{outcome:?}") };
        assert!(text.contains("1 of 5 cases compared, 4 skipped"), "{text}");
    }
    let dead = trained.compare(&vectors, &mut |_| Err("killed by a signal".into()));
    let Outcome::NotRun(text) = dead.explained() else { panic!("{dead}") };
    assert!(text.contains("0 of 5 cases") && text.contains("killed by a signal"), "{text}");
    assert!(matches!(trained.compare(&Vectors::default(), &mut |_| Err(String::new())).strict(),
        Outcome::Different(text) if text.contains("no row was compared")));
    let short = trained.compare(&vectors, &mut |_| Ok(Rows::zeros(1, 1024)));
    assert!(different(&short.explained()).contains("1 rows of logits for 2 steps"));
}

#[test]
fn b112_what_are_no_log_probabilities_is_refused_before_any_comparison() {
    let trained = Trained::open(true);
    let mut vectors = trained.vectors(Profile::DS4, 2);
    vectors.cases.truncate(1);
    assert_eq!(trained.against(&vectors, Profile::DS4).strict(), Outcome::Equal);
    // Logarithms of logits that no softmax saw: the choice is right all the same.
    let mut raw = vectors.clone();
    for top in &mut raw.cases[0].steps[0].tops {
        top.logprob += 12.0;
    }
    let red = trained.against(&raw, Profile::DS4);
    let text = red.explained();
    assert!(different(&text).contains("official: log-probability"), "{red}");
    assert!(raw.to_text(Path::new("raw.vec")).unwrap_err().to_string().contains("log-probability"));
    let mut double = vectors.clone();
    for top in &mut double.cases[0].steps[1].tops {
        top.logprob = -0.1;
    }
    let text = trained.against(&double, Profile::DS4).explained();
    assert!(different(&text).contains("more than 1"), "{text:?}");
    // And ours: a row with a NaN has no distribution.
    let broken = trained.compare(&vectors, &mut |request| {
        let mut rows = teacher_forced(trained.session(Profile::DS4), request)?;
        rows.row_mut(1)[77] = f32::NAN;
        Ok(rows)
    });
    assert!(different(&broken.explained()).contains("element 77 is not finite"), "{broken}");
}

#[test]
fn prompts_become_ids_as_text_or_as_a_users_turn() {
    let trained = Trained::open(true);
    let tokenizer = &trained.tokenizer;
    let specials = tokenizer.specials();
    let plain = plain_prompt(tokenizer, "Ada").unwrap();
    assert_eq!((plain[0], &plain[1..]), (specials.bos, &tokenizer.encode("Ada")[..]));
    let chat = chat_prompt(tokenizer, "Ada").unwrap();
    let around = [specials.bos, specials.user, specials.assistant, specials.think_end];
    assert_eq!([chat[0], chat[1], chat[chat.len() - 2], chat[chat.len() - 1]], around);
    assert_eq!(chat[2..chat.len() - 2], tokenizer.encode("Ada")[..]);
}
