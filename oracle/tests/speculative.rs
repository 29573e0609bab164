//! Generating with drafts equals generating without: tokens, logits and every live row, round by round.

#[path = "common/drafting.rs"]
mod drafting;

use drafting::{Drafting, TOY, TRAINED, on_every_backend, options};
use engine::backend::Backend;
use engine::decode::{Picker, Script, ScriptedDrafter, Verification};
use oracle::speculation::{Seen, compare};

const BOTH: [Verification; 2] = [Verification::Combined, Verification::Strict];

/// Fails unless drafts were accepted and rejected as they should have been; shows the counts.
#[expect(clippy::print_stderr, reason = "counts of a passing test, shown with --nocapture")]
fn exercised(what: &str, seen: &Seen, [accepted, rejected]: [bool; 2]) -> usize {
    eprintln!("{what}: {seen}");
    let expected = [accepted, rejected];
    assert_eq!(seen.judged(), expected, "{what}: not exercised: accepted, rejected: {seen}");
    assert!(seen.tokens > 0 && seen.logits > 0 && seen.states > 0, "{what}: not exercised");
    seen.states
}

/// Compares greedy generation with a scripted drafter.
fn scripted<B: Backend>(
    setting: &Drafting,
    backend: &B,
    plain: &oracle::speculation::Plain,
    [depth, tokens]: [usize; 2],
    verification: Verification,
    script: &Script,
) -> Seen {
    let mut drafter = ScriptedDrafter::new(setting.session(backend), script.clone());
    let (session, options) = (setting.session(backend), options(depth, verification, tokens));
    let seen = compare(&plain.cut(tokens), session, &Picker::Greedy, &options, &mut drafter);
    seen.unwrap_or_else(|difference| {
        panic!("{}: depth {depth}, {}, {script:?}: {difference}", setting.name, verification.name())
    })
}

/// Compares greedy generation with drafts of the block.
fn drafted<B: Backend>(
    setting: &Drafting,
    backend: &B,
    plain: &oracle::speculation::Plain,
    [depth, tokens]: [usize; 2],
    verification: Verification,
) -> Seen {
    let mut drafter = setting.drafter(backend);
    let (session, options) = (setting.session(backend), options(depth, verification, tokens));
    let seen = compare(&plain.cut(tokens), session, &Picker::Greedy, &options, &mut drafter);
    seen.unwrap_or_else(|difference| {
        panic!("{}: depth {depth}, {}, block: {difference}", setting.name, verification.name())
    })
}

#[test]
fn b05_every_depth_verification_and_drafter_equals_plain() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 480);
        let mut compared = 0;
        for script in [Script::All, Script::Nothing, Script::Cycle(vec![0, 2, 1, 3, 8, 5, 4, 7, 6])]
        {
            let mut all = Seen::default();
            for depth in 1..=8 {
                for verification in BOTH {
                    all.add(scripted(&TOY, backend, &plain, [depth, 40], verification, &script));
                }
            }
            let judged = [script != Script::Nothing, script != Script::All];
            compared += exercised(&format!("{script:?}"), &all, judged);
        }
        compared
    }
    on_every_backend!(check);
}

#[test]
fn b02_self_drafting_of_1024_tokens_leaves_the_state_of_plain_decoding() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TRAINED.plain(backend, 1024);
        let (combined, all) = (Verification::Combined, Script::All);
        let seen = scripted(&TRAINED, backend, &plain, [3, 1024], combined, &all);
        assert!(seen.tokens == 1024 && seen.states >= 256, "not exercised: {seen}");
        exercised("trained, self", &seen, [true, false])
    }
    on_every_backend!(check);
}

#[test]
fn the_block_of_a_trained_model_is_right_and_wrong_over_1024_tokens() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TRAINED.plain(backend, 1024);
        let seen = drafted(&TRAINED, backend, &plain, [2, 1024], Verification::Combined);
        assert!(seen.tokens == 1024 && seen.blocks > 256, "not exercised: {seen}");
        exercised("trained, block, depth 2", &seen, [true, true])
    }
    on_every_backend!(check);
}
