//! One sequence, one value: chunks, single tokens and rollbacks leave the same bytes.
//!
//! Compared are the bits of all logits and a digest of every row that a later token can read: key rows,
//! projections and compressed rows of both compressors.

mod common;

use common::{Setting, bits, in_parallel, settings, state_digest as state};
use engine::Session;
use engine::session::Keep;
use engine::tap::Unobserved;

const LENGTH: usize = 400;

/// Logits of every position and the state at the end, for one way of cutting the tokens into calls.
fn run(setting: &Setting, tokens: &[u32], chunk: usize) -> (Vec<u32>, String) {
    let mut session = Session::new(&setting.model, setting.profile);
    let mut logits = Vec::new();
    for tokens in tokens.chunks(chunk) {
        logits.extend(bits(&session.forward(tokens, Keep::All, &mut Unobserved).unwrap().logits));
    }
    (logits, state(&session))
}

#[test]
fn any_chunking_of_400_tokens_gives_the_same_bytes() {
    for setting in settings() {
        let tokens = &setting.tokens[..LENGTH];
        let whole = run(&setting, tokens, LENGTH);
        assert_eq!(whole.0.len(), LENGTH * setting.model.config.vocabulary);
        in_parallel(&[1, 2, 3, 5, 7, 64, 127, 128, 129], |chunk| {
            let (logits, state) = run(&setting, tokens, *chunk);
            let first = logits.iter().zip(&whole.0).position(|(a, b)| a != b);
            let vocabulary = setting.model.config.vocabulary;
            let first = first.map(|index| (index / vocabulary, index % vocabulary));
            assert_eq!(first, None, "{}, chunks of {chunk}: (position, id)", setting.name);
            assert_eq!(state, whole.1, "{}, chunks of {chunk}: state", setting.name);
        });
    }
}

#[test]
fn prompts_of_1_to_8_tokens_give_the_same_bytes_in_one_call_and_token_by_token() {
    for setting in settings() {
        for length in 1..=8 {
            // 24 more tokens, so that windows cut by the prompt's end are emitted and seen.
            let tokens = &setting.tokens[..length + 24];
            let alone = run(&setting, tokens, 1);
            let mut session = Session::new(&setting.model, setting.profile);
            let mut logits = Vec::new();
            for tokens in [&tokens[..length], &tokens[length..]] {
                let forward = session.forward(tokens, Keep::All, &mut Unobserved).unwrap();
                logits.extend(bits(&forward.logits));
            }
            assert!((logits, state(&session)) == alone, "{}, {length} tokens", setting.name);
        }
    }
}

/// How the tokens that are taken back had come in.
#[derive(Clone, Copy, Debug)]
enum Came {
    InOneCall,
    OneByOne,
    InTwoCalls,
    /// At the end of a call of 129 tokens, the ones before them kept.
    InsideAChunkOf129,
}

#[test]
fn rolling_back_equals_never_having_gone_there() {
    for setting in settings() {
        // Every residue of 4; the ends of windows of 32 and 128 and of their multiples.
        let lengths: Vec<usize> = match setting.name.as_str() {
            "tiny ds4" => vec![9, 10, 11, 12, 31, 32, 33, 127, 128, 129, 255, 256, 257],
            _ => vec![10, 11, 23, 24, 127, 128],
        };
        // Sessions before each length, from one run token by token.
        let mut before = vec![Session::new(&setting.model, setting.profile)];
        for token in &setting.tokens[..259] {
            let mut session = before.last().unwrap().clone();
            session.forward(&[*token], Keep::Last, &mut Unobserved).unwrap();
            before.push(session);
        }
        in_parallel(&lengths, |length| {
            let kept = &before[*length];
            let (state_kept, expected) = (state(kept), continued(kept, &setting, *length));
            for count in 1..=8 {
                for came in
                    [Came::InOneCall, Came::OneByOne, Came::InTwoCalls, Came::InsideAChunkOf129]
                {
                    let session = gone_and_back(&before, &setting, *length, count, came);
                    let what = format!("{}: {count} after {length}, {came:?}", setting.name);
                    assert_eq!(session.length(), *length, "{what}");
                    assert_eq!(state(&session), state_kept, "{what}: state");
                    let again = continued(&session, &setting, *length);
                    assert!(again == expected, "{what}: 16 tokens later");
                }
            }
        });
    }
}

/// Logits and state after 16 more tokens.
fn continued(session: &Session<'_>, setting: &Setting, length: usize) -> (Vec<u32>, String) {
    let mut session = session.clone();
    let tokens = &setting.tokens[length..length + 16];
    let forward = session.forward(tokens, Keep::All, &mut Unobserved).unwrap();
    (bits(&forward.logits), state(&session))
}

/// A session that took `count` other tokens after `length` and then took them back.
fn gone_and_back<'m>(
    before: &[Session<'m>],
    setting: &Setting,
    length: usize,
    count: usize,
    came: Came,
) -> Session<'m> {
    let vocabulary = u32::try_from(setting.model.config.vocabulary).unwrap();
    let other = |token: &u32| (token + 1) % vocabulary;
    let wrong: Vec<u32> = setting.tokens[length..length + count].iter().map(other).collect();
    let calls: Vec<Vec<u32>> = match came {
        Came::InOneCall => vec![wrong],
        Came::OneByOne => wrong.chunks(1).map(<[u32]>::to_vec).collect(),
        Came::InTwoCalls => wrong.chunks(count.div_ceil(2)).map(<[u32]>::to_vec).collect(),
        Came::InsideAChunkOf129 => {
            let start = (length + count).saturating_sub(129);
            vec![[&setting.tokens[start..length], &wrong].concat()]
        }
    };
    let start = match came {
        Came::InsideAChunkOf129 => (length + count).saturating_sub(129),
        _ => length,
    };
    let mut session = before[start].clone();
    for tokens in calls {
        session.forward(&tokens, Keep::Last, &mut Unobserved).unwrap();
    }
    session.rollback(length).unwrap();
    session
}

#[test]
fn a_state_digest_sees_every_live_row_and_a_wrong_token() {
    // The negative control of the tests above: other tokens, other bytes.
    for setting in settings() {
        let (logits, digest) = run(&setting, &setting.tokens[..140], 140);
        let mut tokens = setting.tokens[..140].to_vec();
        tokens[139] ^= 1;
        let (other_logits, other_digest) = run(&setting, &tokens, 140);
        assert!(logits != other_logits && digest != other_digest, "{}", setting.name);
        let mut kinds = std::collections::BTreeSet::new();
        let mut session = Session::new(&setting.model, setting.profile);
        session.forward(&tokens, Keep::Last, &mut Unobserved).unwrap();
        session.visit_state(&mut |_, kind, _, _| {
            kinds.insert(kind);
        });
        let expected = [
            "compressed",
            "compressor kv",
            "compressor score",
            "indexer kv",
            "indexer row",
            "indexer score",
            "key",
        ];
        assert!(kinds.into_iter().eq(expected), "{}", setting.name);
    }
}

#[test]
fn a_tapped_run_ends_byte_equal_to_an_untapped_one() {
    for setting in settings() {
        let tokens = &setting.tokens[..140];
        let plain = run(&setting, tokens, 70);
        let mut record = oracle::record::Record::of(engine::tap::Tap::ALL);
        let mut session = Session::new(&setting.model, setting.profile);
        let mut logits = Vec::new();
        for tokens in tokens.chunks(70) {
            let forward = session.forward(tokens, Keep::All, &mut record).unwrap();
            logits.extend(bits(&forward.logits));
        }
        assert!((logits, state(&session)) == plain, "{}", setting.name);
        let seen: std::collections::BTreeSet<_> =
            record.floats.keys().chain(record.indices.keys()).map(|site| site.tap).collect();
        assert_eq!(
            seen.len(),
            engine::tap::Tap::ALL.len(),
            "{}: every tap was shown",
            setting.name
        );
    }
}
