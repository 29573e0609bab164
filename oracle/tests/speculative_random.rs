//! Random prompts, chunks, rollbacks and drafts leave the bytes of one token at a time.
//!
//! The generator is seeded, so a run has the same cases everywhere. A failure prints its smallest case as
//! JSON; add it to `fixtures/regressions/speculative.json`, whose cases run first.

#[path = "common/drafting.rs"]
mod drafting;

use std::cell::RefCell;
use std::path::Path;

use drafting::{TOY, on_every_backend, options};
use engine::backend::Backend;
use engine::decode::{Options, Picker, Verification};
use engine::session::Keep;
use engine::tap::Unobserved;
use oracle::speculation::{Difference, Known, Plain, Seen, compare};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::{Deserialize, Serialize};

/// Cases of each kind.
const CASES: u32 = 24;

/// A way of generating.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    /// Token ids, taken modulo the vocabulary.
    prompt: Vec<u32>,
    /// Sizes of the calls that take the prompt in, round and round.
    chunks: Vec<usize>,
    /// Tokens taken in after each of these calls and then taken back, round and round.
    detours: Vec<Vec<u32>>,
    /// How many drafts of each round are right, round and round; with none the block drafts.
    right: Vec<usize>,
    /// Drafts of a round.
    depth: usize,
    /// Whether they are verified one by one.
    strict: bool,
    /// Tokens to generate.
    tokens: usize,
}

fn cases(block: bool) -> impl Strategy<Value = Case> {
    let ids = |length| proptest::collection::vec(0_u32..330, length);
    let right =
        proptest::collection::vec(0_usize..=8, usize::from(!block)..=6 * usize::from(!block));
    (
        ids(1..=150),
        proptest::collection::vec(prop_oneof![1_usize..=9, 1_usize..=140], 1..=6),
        proptest::collection::vec(ids(0..=8), 1..=4),
        right,
        1_usize..=8,
        proptest::bool::weighted(0.2),
        8_usize..=24,
    )
        .prop_map(|(prompt, chunks, detours, right, depth, strict, tokens)| Case {
            prompt,
            chunks,
            detours,
            right,
            depth,
            strict,
            tokens,
        })
}

impl Case {
    /// Compares with one token a call.
    fn compare<B: Backend>(&self, backend: &B) -> Result<Seen, Difference> {
        let vocabulary = TOY.model.config.vocabulary;
        let prompt: Vec<u32> = self.prompt.iter().map(|id| id % vocabulary as u32).collect();
        let verification = if self.strict { Verification::Strict } else { Verification::Combined };
        let (picker, depth) = (Picker::Greedy, self.depth);
        let one = Options { chunk: 1, ..options(0, verification, self.tokens) };
        let mut drafter = TOY.drafter(backend);
        let plain = Plain::run(TOY.session(backend), &prompt, &picker, &one, &mut drafter)?;
        if self.right.is_empty() {
            let chunk = self.chunks[0];
            let options = Options { chunk, ..options(depth, verification, self.tokens) };
            let mut drafter = TOY.drafter(backend);
            return compare(&plain, TOY.session(backend), &picker, &options, &mut drafter);
        }
        let mut session = TOY.session(backend);
        let (mut call, last) = (0, prompt.len() - 1);
        while session.length() < last {
            let start = session.length();
            let end = last.min(start + self.chunks[call % self.chunks.len()]);
            session.forward(&prompt[start..end], Keep::Nothing, &mut Unobserved)?;
            let detour = &self.detours[call % self.detours.len()];
            for tokens in detour.chunks(1 + call % 8) {
                session.forward(tokens, Keep::Last, &mut Unobserved)?;
            }
            session.rollback(end)?;
            call += 1;
        }
        let rounds: Vec<Option<usize>> =
            self.right.iter().cycle().take(self.tokens).copied().map(Some).collect();
        let from = plain.from(prompt.len());
        let mut drafter = Known::new(&from, vocabulary, &rounds, None);
        let options = options(depth, verification, self.tokens);
        compare(&from, session, &picker, &options, &mut drafter)
    }
}

/// Runs seeded cases; a failure comes with its smallest case.
fn random<B: Backend>(backend: &B, block: bool, seed: u8) -> usize {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 100,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let all = RefCell::new(Seen::default());
    let result = TestRunner::new_with_rng(config, rng).run(&cases(block), |case| {
        let seen = case.compare(backend).map_err(|difference| {
            let json = serde_json::to_string(&case).unwrap();
            TestCaseError::fail(format!("{difference}\ncase: {json}"))
        })?;
        all.borrow_mut().add(seen);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let all = all.into_inner();
    assert!(block || all.judged() == [true, true], "not exercised: {all}");
    assert!(all.acceptance.rejected_total() > 0, "not exercised: {all}");
    assert_eq!(all.blocks > 0, block, "not exercised: {all}");
    all.states
}

#[test]
fn random_chunks_rollbacks_and_drafts_equal_one_token_a_call() {
    fn check<B: Backend>(backend: &B) -> usize {
        random(backend, false, 0x5a)
    }
    on_every_backend!(check);
}

#[test]
fn random_chunks_and_drafts_of_the_block_equal_one_token_a_call() {
    fn check<B: Backend>(backend: &B) -> usize {
        random(backend, true, 0xa5)
    }
    on_every_backend!(check);
}

#[test]
fn a_regressions_cases_are_equal() {
    fn check<B: Backend>(backend: &B) -> usize {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/regressions");
        let json = std::fs::read_to_string(folder.join("speculative.json")).unwrap();
        let cases: Vec<Case> = serde_json::from_str(&json).unwrap();
        assert!(cases.len() >= 4, "not exercised: {} cases", cases.len());
        cases.iter().fold(0, |states, case| {
            let found = case.compare(backend);
            states + found.unwrap_or_else(|difference| panic!("{case:?}: {difference}")).states
        })
    }
    on_every_backend!(check);
}
