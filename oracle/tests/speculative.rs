//! Generating with drafts equals generating without: tokens, logits and every live row, round by round.

#[path = "common/drafting.rs"]
mod drafting;

use drafting::{Drafting, TOY, TRAINED, on_every_backend, options, toy};
use engine::Session;
use engine::backend::Backend;
use engine::decode::{Drafter, End, MtpDrafter, Picker, Script, ScriptedDrafter, Verification};
use engine::mtp::MtpSession;
use engine::sampler::{Sampler, SamplerOptions};
use engine::session::{Keep, Limits};
use engine::tap::Unobserved;
use oracle::fixtures::recipe::Shape;
use oracle::speculation::{Known, Plain, Seen, Watched, compare};

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
    plain: &Plain,
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
    plain: &Plain,
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
        let plain = TOY.plain(backend, 1024);
        let mut compared = 0;
        for script in [Script::All, Script::Nothing, Script::Cycle(vec![0, 2, 1, 3, 8, 5, 4, 7, 6])]
        {
            let mut all = Seen::default();
            for depth in 1..=8 {
                for verification in BOTH {
                    all.add(scripted(&TOY, backend, &plain, [depth, 16], verification, &script));
                }
            }
            let judged = [script != Script::Nothing, script != Script::All];
            compared += exercised(&format!("{script:?}"), &all, judged);
        }
        let mut all = Seen::default();
        for (depth, verification) in (1..=8).flat_map(|depth| BOTH.map(|v| (depth, v))) {
            all.add(drafted(&TOY, backend, &plain, [depth, 16], verification));
        }
        let plain = TRAINED.plain(backend, 150);
        for (depth, verification) in [1, 5, 8].into_iter().flat_map(|d| BOTH.map(|v| (d, v))) {
            all.add(drafted(&TRAINED, backend, &plain, [depth, 12], verification));
        }
        compared + exercised("block", &all, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b02_self_drafting_of_1024_tokens_leaves_the_state_of_plain_decoding() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let (combined, all) = (Verification::Combined, Script::All);
        let seen = scripted(&TOY, backend, &plain, [3, 1024], combined, &all);
        assert!(seen.tokens == 1024 && seen.states >= 256, "not exercised: {seen}");
        exercised("toy, self", &seen, [true, false])
    }
    on_every_backend!(check);
}

#[test]
fn the_block_of_a_trained_model_is_right_and_wrong() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TRAINED.plain(backend, 150);
        let seen = drafted(&TRAINED, backend, &plain, [2, 150], Verification::Combined);
        assert!(seen.tokens == 150 && seen.blocks > 50, "not exercised: {seen}");
        exercised("trained, block, depth 2", &seen, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b01_two_drafts_of_which_0_1_and_2_are_right() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let mut compared = 0;
        for right in 0..=2 {
            let script = Script::Cycle(vec![right]);
            let seen = scripted(&TOY, backend, &plain, [2, 128], Verification::Combined, &script);
            let zeros = |tokens: &[u32]| tokens.iter().filter(|token| **token == 0).count();
            let emitted: Vec<u32> = seen.rounds.iter().flat_map(|r| r.emitted.clone()).collect();
            assert_eq!(zeros(&emitted), zeros(&plain.tokens[1..128]), "{right} right");
            compared += exercised(&format!("{right} of 2 right"), &seen, [right > 0, right < 2]);
        }
        compared
    }
    on_every_backend!(check);
}

#[test]
fn b04_three_greedy_requests_with_the_block_and_three_without_are_one_stream() {
    fn check<B: Backend>(backend: &B) -> usize {
        // No token stops these, so all have the length asked for.
        let mut all = Seen::default();
        let plain = TRAINED.plain(backend, 150);
        for _ in 0..3 {
            all.add(drafted(&TRAINED, backend, &plain, [3, 32], Verification::Combined));
            let again = TRAINED.run(backend, &Picker::Greedy, 32).tokens;
            assert_eq!(again, plain.tokens[..32]);
        }
        assert_eq!(all.tokens, 3 * 32);
        exercised("three requests", &all, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b07_a_difference_would_be_seen_at_64_200_400_tokens_and_the_count_is_told() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let mut compared = 0;
        for tokens in [64, 200, 400] {
            let script = Script::Cycle(vec![1, 2, 0]);
            let combined = Verification::Combined;
            let seen = scripted(&TOY, backend, &plain, [2, tokens], combined, &script);
            assert!(seen.to_string().starts_with(&format!("{tokens} tokens,")), "{seen}");
            compared += seen.states;
        }
        compared
    }
    on_every_backend!(check);
}

/// One round of `depth` drafts from each of `starts`, each number of them right, then `after` rounds
/// without drafts.
fn around<B: Backend>(
    setting: &Drafting,
    backend: &B,
    plain: &Plain,
    [starts, depths]: [std::ops::RangeInclusive<usize>; 2],
    after: usize,
) -> Seen {
    let mut all = Seen::default();
    let mut session = setting.session(backend);
    session.forward(&setting.prompt, Keep::Nothing, &mut Unobserved).unwrap();
    for start in starts {
        let from = plain.from(start);
        while session.length() + 1 < start {
            let token = plain.at(session.length()).unwrap();
            session.forward(&[token], Keep::Nothing, &mut Unobserved).unwrap();
        }
        for depth in depths.clone() {
            for right in 0..=depth {
                let vocabulary = setting.model.config.vocabulary;
                let mut drafter = Known::new(&from, vocabulary, &[Some(right)], None);
                let tokens = 1 + right + 1 + after;
                let options = options(depth, Verification::Combined, tokens);
                let (session, picker) = (session.clone(), Picker::Greedy);
                let seen = compare(&from.cut(tokens), session, &picker, &options, &mut drafter);
                let seen = seen.unwrap_or_else(|difference| {
                    let name = setting.name;
                    panic!("{name}: {right} of {depth} right from {start} on: {difference}")
                });
                assert_eq!((seen.rounds[0].proposed, seen.rounds[0].accepted), (depth, right));
                all.add(seen);
            }
        }
    }
    all
}

#[test]
fn b13_3_to_8_drafts_every_accepted_count_and_every_start_modulo_8_then_16_tokens() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let seen = around(&TOY, backend, &plain, [40..=47, 3..=8], 16);
        assert_eq!(seen.rounds.len(), 17 * 8 * (4 + 5 + 6 + 7 + 8 + 9), "not exercised");
        exercised("3 to 8 drafts from 40 to 47", &seen, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b13_around_the_ends_of_windows_of_128_tokens() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let mut seen = around(&TOY, backend, &plain, [124..=131, 3..=3], 16);
        seen.add(around(&TOY, backend, &plain, [252..=259, 3..=3], 16));
        exercised("3 drafts around 128 and 256", &seen, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b15_drafts_across_the_end_of_the_sliding_window() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let mut seen = around(&TOY, backend, &plain, [28..=33, 4..=4], 16);
        seen.add(around(&TOY, backend, &plain, [61..=65, 4..=4], 16));
        let plain = TRAINED.plain(backend, 150);
        seen.add(around(&TRAINED, backend, &plain, [63..=64, 3..=3], 8));
        let mut wide = Drafting::made(&Shape { name: "toy, window 128", ..toy() });
        wide.model.config.window = 128;
        let plain = wide.plain(backend, 150);
        seen.add(around(&wide, backend, &plain, [125..=128, 4..=4], 16));
        exercised("4 drafts around 32, 64, 128", &seen, [true, true])
    }
    on_every_backend!(check);
}

/// An index, 6 or more, of a token of a run that occurs nowhere before it.
fn fresh(plain: &Plain) -> usize {
    let new = |index: &usize| !plain.tokens[..*index].contains(&plain.tokens[*index]);
    (6..40).find(new).expect("not exercised: a run of few different tokens")
}

#[test]
fn b20_a_stop_token_as_first_middle_last_draft_and_as_the_models_own_token() {
    fn check<B: Backend>(backend: &B) -> usize {
        let whole = TOY.plain(backend, 1024);
        let index = fresh(&whole);
        let stop = whole.tokens[index];
        let plain = whole.stopped(stop);
        assert_eq!((plain.tokens.len(), plain.end), (index + 1, Some(End::Stop(stop))));
        let vocabulary = TOY.model.config.vocabulary;
        let mut all = Seen::default();
        // Rounds without drafts until the stop token is `place` tokens behind the pending one; then 3 drafts.
        for (place, right) in [(0, 3), (1, 3), (2, 3), (3, 3), (0, 0), (1, 1), (2, 2)] {
            for verification in BOTH {
                let mut rounds = vec![None; index - 1 - place];
                rounds.push(Some(right));
                let mut drafter = Known::new(&whole, vocabulary, &rounds, None);
                let mut options = options(3, verification, 400);
                options.stop = vec![stop];
                let (session, picker) = (TOY.session(backend), Picker::Greedy);
                let seen = compare(&plain, session, &picker, &options, &mut drafter);
                let seen = seen.unwrap_or_else(|difference| {
                    panic!("{right} right, stop at {place}, {}: {difference}", verification.name())
                });
                let last = seen.rounds.last().unwrap();
                let expected = (place + 1, 3, place);
                assert_eq!((last.emitted.len(), last.proposed, last.accepted), expected);
                all.add(seen);
            }
        }
        exercised("stop tokens", &all, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b20_a_stop_token_that_is_only_drafted_does_not_stop() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024).cut(24);
        let vocabulary = TOY.model.config.vocabulary;
        let wrong = |token: &u32| (token + 1) % vocabulary as u32;
        let stop: Vec<u32> = plain.tokens.iter().map(wrong).collect();
        let stop: Vec<u32> =
            stop.into_iter().filter(|token| !plain.tokens.contains(token)).collect();
        assert!(stop.len() > 3, "not exercised");
        let mut all = Seen::default();
        for right in 0..3 {
            let mut drafter = Known::new(&plain, vocabulary, &[], Some(right));
            let mut options = options(3, Verification::Combined, 24);
            options.stop.clone_from(&stop);
            let (session, picker) = (TOY.session(backend), Picker::Greedy);
            all.add(compare(&plain, session, &picker, &options, &mut drafter).unwrap());
        }
        exercised("stop tokens that are wrong drafts", &all, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn a_budget_of_tokens_that_ends_inside_a_block() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let mut compared = 0;
        for tokens in 1..=13 {
            for verification in BOTH {
                for script in [Script::All, Script::Cycle(vec![5, 0, 2])] {
                    let seen = scripted(&TOY, backend, &plain, [5, tokens], verification, &script);
                    assert_eq!(seen.tokens, tokens);
                    compared += seen.states;
                }
                let seen = drafted(&TOY, backend, &plain, [5, tokens], verification);
                compared += seen.states;
            }
        }
        compared
    }
    on_every_backend!(check);
}

#[test]
fn a_context_that_fills_inside_a_block() {
    fn check<B: Backend>(backend: &B) -> usize {
        let mut all = Seen::default();
        for room in 0..=10 {
            let limits = Limits { context: TOY.prompt.len() + room, state_bytes: u64::MAX };
            let session = || Session::within(backend, &TOY.model, TOY.profile, limits).unwrap();
            let (picker, plainly) = (Picker::Greedy, options(0, Verification::Strict, 400));
            let mut block = TOY.drafter(backend);
            let plain = Plain::run(session(), &TOY.prompt, &picker, &plainly, &mut block).unwrap();
            assert_eq!((plain.tokens.len(), plain.end), (room + 1, Some(End::Context)));
            for verification in BOTH {
                let options = options(4, verification, 400);
                let own = || TOY.session(backend);
                let drafters: [Box<dyn Watched<B>>; 3] = [
                    Box::new(ScriptedDrafter::new(own(), Script::All)),
                    Box::new(ScriptedDrafter::new(own(), Script::Cycle(vec![0, 4, 2]))),
                    Box::new(TOY.drafter(backend)),
                ];
                for (index, mut drafter) in drafters.into_iter().enumerate() {
                    let seen = compare(&plain, session(), &picker, &options, drafter.as_mut());
                    let seen = seen.unwrap_or_else(|difference| {
                        let verification = verification.name();
                        panic!("room {room}, {verification}, drafter {index}: {difference}")
                    });
                    all.add(seen);
                }
            }
        }
        exercised("contexts", &all, [true, true])
    }
    on_every_backend!(check);
}

/// The block's drafts, the last one of the first rounds made wrong; keeps what was proposed where.
struct Spoiled<'a, 'm, B: Backend> {
    inner: MtpDrafter<'m, B>,
    plain: &'a Plain,
    rounds: usize,
    proposed: Vec<(usize, Vec<u32>)>,
}

impl<B: Backend> Drafter<B> for Spoiled<'_, '_, B> {
    fn propose(
        &mut self,
        pending: u32,
        position: usize,
        depth: usize,
        picker: &Picker,
    ) -> engine::Result<Vec<u32>> {
        let mut drafts = self.inner.propose(pending, position, depth, picker)?;
        let own = self.plain.at(position + drafts.len());
        if let (true, Some(draft), Some(own)) =
            (self.proposed.len() < self.rounds, drafts.last_mut(), own)
        {
            *draft = own ^ 1;
        }
        self.proposed.push((position, drafts.clone()));
        Ok(drafts)
    }

    fn commit(&mut self, start: usize, tokens: &[u32], streams: &B::Rows) -> engine::Result<()> {
        self.inner.commit(start, tokens, streams)
    }
}

impl<B: Backend> Watched<B> for Spoiled<'_, '_, B> {
    fn block(&self) -> Option<&MtpSession<'_, B>> {
        Some(self.inner.session())
    }
}

#[test]
fn b17_64_forced_rejections_leave_the_block_where_plain_commits_leave_it() {
    fn check<B: Backend>(backend: &B) -> usize {
        let (plain, picker) = (TRAINED.plain(backend, 150), Picker::Greedy);
        let inner = TRAINED.drafter(backend);
        let mut drafter = Spoiled { inner, plain: &plain, rounds: 64, proposed: Vec::new() };
        let options = options(2, Verification::Combined, 150);
        // The length of the block and its rows are compared after every round.
        let seen = compare(&plain, TRAINED.session(backend), &picker, &options, &mut drafter);
        let seen = seen.unwrap_or_else(|difference| panic!("forced rejections: {difference}"));
        let (forced, free) = seen.rounds.split_at(64);
        assert!(forced.iter().all(|round| round.accepted < 2), "a rejection was not forced");
        assert!(free.len() >= 8 && free.iter().any(|round| round.accepted > 0), "not exercised");
        // What it drafts then is what a block drafts that saw the same tokens in one call.
        let (position, drafts) = &drafter.proposed[64];
        let tokens = [&plain.prompt[..], &plain.tokens].concat();
        let (mut session, mut other) = (TRAINED.session(backend), TRAINED.drafter(backend));
        let output = session.forward(&tokens[..*position], Keep::Nothing, &mut Unobserved).unwrap();
        other.commit(0, &tokens[..*position], &output.streams).unwrap();
        let again = other.propose(tokens[*position], *position, 2, &picker).unwrap();
        assert_eq!((drafts.len(), &again), (2, drafts));
        exercised("64 forced rejections", &seen, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b17_self_drafts_are_all_accepted_after_64_rejections() {
    fn check<B: Backend>(backend: &B) -> usize {
        let plain = TOY.plain(backend, 1024);
        let rounds = [vec![2; 64], vec![3; 64]].concat();
        let script = Script::Cycle(rounds.clone());
        let seen = scripted(&TOY, backend, &plain, [3, 400], Verification::Combined, &script);
        assert!(seen.rounds.len() > 64 + 32, "not exercised: {seen}");
        for (index, (round, right)) in seen.rounds.iter().zip(rounds).enumerate() {
            assert_eq!(round.accepted, right.min(round.proposed), "round {index}");
        }
        exercised("rejections, then none", &seen, [true, true])
    }
    on_every_backend!(check);
}

#[test]
fn b22_a_block_without_compression_drafts_beside_a_compressed_layer_1() {
    fn check<B: Backend>(backend: &B) -> usize {
        let mut all = Seen::default();
        for ratios in [vec![0, 128, 4], vec![128, 0, 4], vec![4, 128]] {
            let shape = Shape { name: "six, other ratios", ratios, ..Shape::six() };
            let setting = Drafting::made(&shape);
            let plain = setting.run(backend, &Picker::Greedy, 24);
            let seen = drafted(&setting, backend, &plain, [3, 24], Verification::Combined);
            assert!(seen.acceptance.proposed[2] > 0, "{:?}: not exercised: {seen}", shape.ratios);
            assert!(seen.blocks > 1, "not exercised: {seen}");
            all.add(seen);
        }
        all.acceptance.proposed_total() as usize
    }
    on_every_backend!(check);
}

#[test]
fn drawn_tokens_do_not_depend_on_drafts() {
    fn check<B: Backend>(backend: &B) -> usize {
        let sampler = |temperature, seed| {
            let options =
                SamplerOptions { temperature, top_k: 20, seed, ..SamplerOptions::default() };
            Picker::Sampled(Sampler::new(options).unwrap())
        };
        let (mut all, mut blocks) = (Seen::default(), Seen::default());
        for (setting, picker, tokens) in [
            (&*TOY, sampler(1.0, 7), 64),
            (&*TOY, sampler(1.0, 8), 64),
            (&*TRAINED, sampler(1.0, 9), 24),
        ] {
            let plain = setting.run(backend, &picker, tokens);
            let greedy = setting.plain(backend, if tokens == 64 { 1024 } else { 150 });
            assert!(plain.tokens != greedy.tokens[..tokens], "not exercised: drawn as greedy");
            for (depth, verification) in [
                (2, Verification::Combined),
                (5, Verification::Combined),
                (2, Verification::Strict),
            ] {
                let options = options(depth, verification, tokens);
                let run = |drafter: &mut dyn Watched<B>, seen: &mut Seen| {
                    let session = setting.session(backend);
                    let found = compare(&plain, session, &picker, &options, drafter);
                    seen.add(found.unwrap_or_else(|difference| {
                        panic!("{}, depth {depth}: {difference}", setting.name)
                    }));
                };
                let own = setting.session(backend);
                run(&mut ScriptedDrafter::new(own, Script::Cycle(vec![2, 0, 5, 1])), &mut all);
                run(&mut setting.drafter(backend), &mut blocks);
            }
        }
        exercised("drawn, block", &blocks, [true, true]);
        exercised("drawn, scripted", &all, [true, true])
    }
    on_every_backend!(check);
}
