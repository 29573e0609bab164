//! Speculative against plain decoding on the engine under test: tokens, logits and state after every round.
//!
//! Promises: every depth, combined and strict, with the drafting block and with drafts that are all right,
//! all wrong and mixed; a run in which none was accepted, or none rejected, where some must be, is *not
//! exercised* and red. A difference is numeric, of state, or of the drafts alone.

use engine::backend::Backend;
use engine::decode::{MtpDrafter, Options, Picker, Verification};
use engine::mtp::MtpSession;
use engine::session::Keep;
use engine::tap::Unobserved;
use engine::{Profile, Session};

use super::subjects::{self, Opened, Subject};
use super::{Job, Prepared, Production, Setup, text};
use crate::check::{Check, Lane, Question};
use crate::contract::{self, Axis, Cell, Evidence};
use crate::mismatch::classify;
use crate::speculation::{Difference, Known, Plain, Seen, Watched, compare_until};

/// Drafts of a round.
const DEPTHS: std::ops::RangeInclusive<usize> = 1..=8;
/// Tokens of each run.
const TOKENS: usize = 40;
/// Tokens that plain decoding goes further, for the experiment that tells kinds of faults apart.
const BEYOND: usize = 10;
/// Numbers of right drafts, round by round, of mixed drafts.
const MIXED: [usize; 11] = [0, 1, 2, 3, 8, 0, 2, 1, 5, 0, 4];

/// Who drafts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drafts {
    Block,
    Right,
    Wrong,
    Mixed,
}

impl Drafts {
    const ALL: [Self; 4] = [Self::Block, Self::Right, Self::Wrong, Self::Mixed];

    const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Right => "right drafts",
            Self::Wrong => "wrong drafts",
            Self::Mixed => "mixed drafts",
        }
    }

    /// Whether some drafts must be accepted and some rejected.
    const fn must(self) -> [bool; 2] {
        match self {
            Self::Block => [false, false],
            Self::Right => [true, false],
            Self::Wrong => [false, true],
            Self::Mixed => [true, true],
        }
    }
}

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let names =
        ["trained-tiny/novel-held-short", "trained-tiny/code", "six/six-400", "tiny/tiny-400"];
    let subjects: Vec<Subject> = if setup.own.is_some() {
        subjects::all(setup)
    } else {
        names.iter().flat_map(|name| subjects::one(setup, name)).collect()
    };
    let mut jobs = Vec::new();
    for subject in subjects {
        for verification in [Verification::Combined, Verification::Strict] {
            let subject = subject.clone();
            let name = format!("mtp/{} {}", verification.name(), subject.name);
            jobs.push(Job::new(name.clone(), move || {
                let rule = "tokens, logits, state after every round, depths 1 to 8";
                let question = Question::new(&name, "plain decoding", Lane::Bits, rule);
                let run = || whole(setup, production, &subject, verification, question.clone());
                setup.checked(question.clone(), run)
            }));
        }
    }
    jobs
}

fn whole<P: Production>(
    setup: &Setup,
    production: &P,
    subject: &Subject,
    verification: Verification,
    question: Question,
) -> Prepared<Check> {
    let mut opened = subject.open(setup)?;
    // Drafts cross the end of the window and of the first row of 128.
    opened.prompt.truncate(110);
    if opened.block.is_none() {
        return Ok(question.not_run("no multi-token-prediction block (--mtp-model)"));
    }
    let backend = production.make(setup.variant)?;
    let bench = Bench { opened: &opened, backend: &backend, verification };
    let options = |tokens| options(0, verification, tokens);
    let mut drafter = bench.drafter()?;
    let plain = Plain::run(
        bench.session().map_err(text)?,
        &opened.prompt,
        &Picker::Greedy,
        &options(TOKENS + BEYOND),
        &mut drafter,
    );
    let plain = plain.map_err(text)?;
    // The prompt is run once for all drafts that know what comes.
    let mut before = bench.session().map_err(text)?;
    let (_, all_but_last) = opened.prompt.split_last().ok_or("an empty prompt")?;
    if !all_but_last.is_empty() {
        before.forward(all_but_last, Keep::Nothing, &mut Unobserved).map_err(text)?;
    }
    let (mut tally, mut sum, mut runs) = (setup.tally(), Seen::default(), 0);
    'runs: for drafts in Drafts::ALL {
        let mut of_drafts = Seen::default();
        for depth in DEPTHS {
            let (seen, difference) = bench.run(&plain, &before, drafts, depth)?;
            runs += 1;
            if let Some(difference) = difference {
                let fresh = || bench.session();
                let kind = classify(&plain, &seen, &difference, &fresh).map_err(text)?.name();
                tally.require(false, || {
                    format!("{}, depth {depth}: {kind}: {difference}", drafts.name())
                });
                break 'runs;
            }
            of_drafts.add(seen);
        }
        for (must, (was, what)) in drafts
            .must()
            .into_iter()
            .zip(of_drafts.judged().into_iter().zip(["accepted", "rejected"]))
        {
            tally.require(was || !must, || {
                format!("not exercised: {}: none was {what}", drafts.name())
            });
        }
        sum.add(of_drafts);
    }
    let rows = sum.tokens + sum.logits + sum.states + sum.blocks;
    tally.count(sum.logits + sum.states + sum.blocks, rows);
    let cell = Cell {
        axis: Axis::Drafting,
        subject: contract::Subject::Model,
        path: setup.variant.path(),
    };
    tally.prove(cell, Evidence { cases: 1, elements: rows as u64, runs });
    let places = [&sum.acceptance.proposed, &sum.acceptance.accepted].map(|places| places.to_vec());
    tally.details.acceptance = Some(places);
    let (accepted, proposed) = (sum.acceptance.accepted_total(), sum.acceptance.proposed_total());
    tally.note(format!("{} tokens, {accepted} of {proposed} drafts accepted", sum.tokens));
    Ok(tally.finish(question))
}

fn options(depth: usize, verification: Verification, tokens: usize) -> Options {
    Options { depth, verification, stop: Vec::new(), tokens, chunk: 512 }
}

/// A model on the backend under test.
struct Bench<'a, B: Backend> {
    opened: &'a Opened,
    backend: &'a B,
    verification: Verification,
}

impl<'a, B: Backend> Bench<'a, B> {
    fn session(&self) -> engine::Result<Session<'a, B>> {
        Session::on(self.backend, &self.opened.model, Profile::DS4)
    }

    fn drafter(&self) -> Prepared<MtpDrafter<'a, B>> {
        let block = self.opened.block.as_ref().ok_or("no block")?;
        let session = MtpSession::on(self.backend, &self.opened.model, block, Profile::DS4);
        Ok(MtpDrafter::new(self.backend, session.map_err(text)?))
    }

    fn run(
        &self,
        plain: &Plain,
        before: &Session<'a, B>,
        drafts: Drafts,
        depth: usize,
    ) -> Prepared<(Seen, Option<Difference>)> {
        let plain = plain.cut(TOKENS);
        let options = options(depth, self.verification, TOKENS);
        let vocabulary = self.opened.model.config.vocabulary;
        let known = |rounds: &[Option<usize>], then| Known::new(&plain, vocabulary, rounds, then);
        let mut block;
        let mut scripted;
        let drafter: &mut dyn Watched<B> = match drafts {
            Drafts::Block => {
                block = self.drafter()?;
                &mut block
            }
            Drafts::Right => {
                scripted = known(&[], Some(depth));
                &mut scripted
            }
            Drafts::Wrong => {
                scripted = known(&[], Some(0));
                &mut scripted
            }
            Drafts::Mixed => {
                let rounds: Vec<Option<usize>> =
                    MIXED.iter().cycle().take(TOKENS).map(|right| Some(*right)).collect();
                scripted = known(&rounds, Some(1));
                &mut scripted
            }
        };
        // The block has to be told of the prompt; the others go on from it.
        let (plain, session) = match drafts {
            Drafts::Block => (plain.clone(), self.session().map_err(text)?),
            _ => (plain.from(plain.start()), before.clone()),
        };
        Ok(compare_until(&plain, session, &Picker::Greedy, &options, drafter))
    }
}
