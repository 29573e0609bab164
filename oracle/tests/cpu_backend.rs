//! The CPU backend has the reference's bytes: every tap, every logit and every live row of the state.
//!
//! Both shapes and both meanings, every SIMD level of the machine, 1, 2, 3 and 7 threads, the calls that
//! decoding and prefill make. Widths 1 to 9 of single products are in `engine/tests/cpu_matmul.rs`.

mod common;

use common::{Setting, bits, in_parallel, settings, state_digest};
use engine::Session;
use engine::backend::Backend;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::decode::{Decoder, NoDrafts, Options, Picker, Verification};
use engine::reference::Reference;
use engine::session::Keep;
use engine::tap::{Tap, Unobserved};
use oracle::record::Record;

const LENGTH: usize = 260;

fn cpu(level: Level, threads: usize, combine: Combine) -> Cpu {
    Cpu::new(Kernels::new(level, Threads::new(threads).unwrap()), combine)
}

/// Everything that can be seen of a run: taps, logits and the state at its end.
struct Seen {
    taps: Record,
    logits: Vec<u32>,
    state: String,
}

fn run<B: Backend>(backend: &B, setting: &Setting, tokens: &[u32], chunk: usize) -> Seen {
    let mut session = Session::on(backend, &setting.model, setting.profile).unwrap();
    let (mut taps, mut logits) = (Record::of(Tap::ALL), Vec::new());
    for tokens in tokens.chunks(chunk) {
        let forward = session.forward(tokens, Keep::All, &mut taps).unwrap();
        logits.extend(bits(&backend.download(&forward.logits).unwrap()));
    }
    Seen { taps, logits, state: state_digest(&session) }
}

/// The first thing in which two runs differ.
fn difference(ours: &Seen, theirs: &Seen) -> Option<String> {
    assert!(theirs.taps.floats.len() > 1000 && !theirs.logits.is_empty(), "nothing was compared");
    let (a, b) = (&ours.taps, &theirs.taps);
    if !a.floats.keys().eq(b.floats.keys()) || !a.indices.keys().eq(b.indices.keys()) {
        return Some("other rows were shown".to_owned());
    }
    for ((site, ours), theirs) in a.floats.iter().zip(b.floats.values()) {
        let pairs = ours.iter().zip(theirs);
        let first = pairs.clone().position(|(a, b)| a.to_bits() != b.to_bits());
        if ours.len() != theirs.len() || first.is_some() {
            return Some(format!("{site:?}, element {first:?}"));
        }
    }
    let first = a.indices.iter().zip(b.indices.values()).find(|((_, a), b)| a != b);
    if let Some(((site, _), _)) = first {
        return Some(format!("{site:?}"));
    }
    if ours.logits != theirs.logits {
        return Some("logits".to_owned());
    }
    (ours.state != theirs.state).then(|| "state".to_owned())
}

#[test]
fn every_tap_logit_and_live_row_is_the_reference_s() {
    for setting in settings() {
        let tokens = &setting.tokens[..LENGTH];
        let reference = run(&Reference, &setting, tokens, LENGTH);
        let mut cases = Vec::new();
        for level in Level::available() {
            cases.extend([1, 2, 3, 7].map(|threads| (level, threads, LENGTH)));
            cases.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 127, 128, 129].map(|n| (level, 2, n)));
        }
        in_parallel(&cases, |(level, threads, chunk)| {
            let backend = cpu(*level, *threads, Combine::Ordered);
            let ours = run(&backend, &setting, tokens, *chunk);
            let label = format!("{}, {}, chunks of {chunk}", setting.name, backend.name());
            assert_eq!(difference(&ours, &reference), None, "{label}");
        });
        // The comparison sees what it must: another token, and one chunk fewer.
        let mut other = tokens.to_vec();
        other[LENGTH - 1] ^= 1;
        let ours = run(&cpu(Level::Scalar, 1, Combine::Ordered), &setting, &other, LENGTH);
        assert!(difference(&ours, &reference).is_some(), "{}: a planted token", setting.name);
    }
}

/// Logits without anybody looking: the indexer skips scores that cannot matter.
#[test]
fn an_unobserved_run_has_the_same_logits() {
    for setting in settings() {
        let tokens = &setting.tokens[..LENGTH];
        let reference = run(&Reference, &setting, tokens, LENGTH);
        for level in Level::available() {
            let backend = cpu(level, 2, Combine::Ordered);
            for chunk in [1, 100, LENGTH] {
                let mut session = Session::on(&backend, &setting.model, setting.profile).unwrap();
                let mut logits = Vec::new();
                for tokens in tokens.chunks(chunk) {
                    let forward = session.forward(tokens, Keep::All, &mut Unobserved).unwrap();
                    logits.extend(bits(forward.logits.rows()));
                }
                assert!(logits == reference.logits, "{}, chunks of {chunk}", setting.name);
                assert_eq!(state_digest(&session), reference.state, "{}", setting.name);
            }
        }
    }
}

/// Logits after a prefill of 512 tokens in one call.
fn prefill(setting: &Setting, combine: Combine) -> Vec<u32> {
    let backend = cpu(Level::available().pop().unwrap(), 2, combine);
    let tokens: Vec<u32> = setting.tokens.iter().cycle().take(512).copied().collect();
    let mut session = Session::on(&backend, &setting.model, setting.profile).unwrap();
    let forward = session.forward(&tokens, Keep::Last, &mut Unobserved).unwrap();
    bits(forward.logits.rows())
}

#[test]
fn atomic_adding_moves_bits_from_run_to_run_and_ordered_adding_never() {
    let setting = &settings()[0];
    let atomic = Combine::Atomic { rows: 128 };
    let pairs = 10;
    let moved = |combine| {
        (0..pairs).filter(|_| prefill(setting, combine) != prefill(setting, combine)).count()
    };
    let (ordered, atomic) = (moved(Combine::Ordered), moved(atomic));
    assert_eq!(ordered, 0, "of {pairs} pairs of ordered runs");
    assert!(atomic >= 9, "{atomic} of {pairs} pairs of atomic runs differ");
}

#[test]
fn atomic_adding_starts_at_its_number_of_rows() {
    let setting = &settings()[0];
    let ordered = run(&Reference, setting, &setting.tokens[..127], 127);
    let backend = cpu(Level::Scalar, 2, Combine::Atomic { rows: 128 });
    let below = run(&backend, setting, &setting.tokens[..127], 127);
    assert_eq!(difference(&below, &ordered), None, "127 rows are added in order");
    // Alone, a thread adds experts in index order, not in slot order.
    let backend = cpu(Level::Scalar, 1, Combine::Atomic { rows: 127 });
    let at = run(&backend, setting, &setting.tokens[..127], 127);
    assert!(difference(&at, &ordered).is_some(), "127 rows are added as they arrive");
}

/// The demonstration of the README: the same command twice, another text.
#[test]
fn a_greedy_token_flips_between_atomic_runs_of_a_fixture_prompt_within_256() {
    let setting = &settings()[0];
    let generate = |combine| {
        let backend = cpu(Level::best(), 2, combine);
        let session = Session::on(&backend, &setting.model, setting.profile).unwrap();
        let options = Options {
            depth: 0,
            verification: Verification::Combined,
            stop: Vec::new(),
            tokens: 256,
            chunk: 512,
        };
        let (prompt, picker) = (&setting.tokens, Picker::Greedy);
        let mut decoder =
            Decoder::start(session, prompt, picker, options, &mut NoDrafts, &mut Unobserved)
                .unwrap();
        let mut tokens = vec![decoder.pending()];
        while decoder.end().is_none() {
            tokens.extend(decoder.round(&mut NoDrafts, &mut Unobserved).unwrap().emitted);
        }
        assert_eq!(tokens.len(), 256);
        tokens
    };
    let ordered = generate(Combine::Ordered);
    assert_eq!(ordered, generate(Combine::Ordered), "ordered runs");
    let first = generate(Combine::Atomic { rows: 128 });
    let flipped = (0..8).any(|_| generate(Combine::Atomic { rows: 128 }) != first);
    assert!(flipped, "nine atomic runs gave one text");
}
