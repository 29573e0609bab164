//! Refusals of a running session: each by name, and nothing lost.

use std::path::{Path, PathBuf};

use engine::mtp::{MtpSession, Pairing};
use engine::rows::Rows;
use engine::session::{Keep, RunError};
use engine::tap::{Place, Tap, Unobserved};
use engine::{ErrorKind, Model, MtpModel, Profile, Session};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models/trained-tiny")
}

fn trained() -> Model {
    Model::open(&folder().join("model.gguf")).unwrap()
}

fn run_error(error: &engine::Error) -> &RunError {
    let ErrorKind::Run(error) = error.kind() else { panic!("{error}") };
    error
}

fn refused<T>(result: engine::Result<T>) -> String {
    let error = result.err().expect("refused");
    run_error(&error).to_string()
}

#[test]
fn bad_calls_are_refused_and_leave_the_session_as_it_was() {
    let mut model = trained();
    model.config.context = 20;
    let mut session = Session::new(&model, Profile::DS4);
    let mut untouched = session.clone();
    let mut forward = |tokens: &[u32]| session.forward(tokens, Keep::Last, &mut Unobserved);
    assert_eq!(refused(forward(&[])), "tokens: none given");
    assert_eq!(refused(forward(&[1, 1024])), "token 1 = 1024: the vocabulary has 1024");
    assert_eq!(refused(forward(&[1; 21])), "21 tokens after 0: the context holds 20");
    let logits = forward(&[1, 2, 3]).unwrap().logits;
    let expected = untouched.forward(&[1, 2, 3], Keep::Last, &mut Unobserved).unwrap().logits;
    assert_eq!(logits, expected);
    forward(&[1; 17]).unwrap();
    assert_eq!(refused(forward(&[1])), "1 tokens after 20: the context holds 20");
}

#[test]
fn rollbacks_deeper_than_the_state_holds_are_refused() {
    let model = trained();
    let mut session = Session::new(&model, Profile::DS4);
    session.forward(&[5; 20], Keep::Last, &mut Unobserved).unwrap();
    assert_eq!(
        refused(session.rollback(11)),
        "rollback from 20 to 11 tokens: from 12 to 20 is possible"
    );
    assert!(session.rollback(21).is_err());
    session.rollback(12).unwrap();
    // Position 19 was written, so what is kept reaches back to 12 and no further, until new tokens come.
    assert_eq!(
        refused(session.rollback(11)),
        "rollback from 12 to 11 tokens: from 12 to 12 is possible"
    );
    session.forward(&[6; 9], Keep::Last, &mut Unobserved).unwrap();
    session.rollback(13).unwrap();
    assert_eq!(session.length(), 13);
}

#[test]
fn a_nan_is_named_and_ends_the_session() {
    let mut model = trained();
    model.weights.layers[3].ffn_norm[17] = f32::NAN;
    let mut session = Session::new(&model, Profile::DS4);
    let error = session.forward(&[5, 6], Keep::Last, &mut Unobserved).err().unwrap();
    let RunError::NotFinite { site, index, .. } = run_error(&error) else { panic!("{error}") };
    assert_eq!((site.place, site.tap, site.position), (Place::Layer(3), Tap::FfnNorm, 0));
    assert_eq!(*index, 17);
    assert!(error.to_string().starts_with("layer 3: ffn_norm at position 0, element 17"));
    let again = refused(session.forward(&[5], Keep::Last, &mut Unobserved));
    assert_eq!(again, "session: an earlier forward call failed, its state is not usable");
    assert!(session.rollback(0).is_err());
}

#[test]
fn infinities_and_nans_anywhere_in_the_weights_never_become_logits() {
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for layer in 0..6 {
            let mut model = trained();
            model.weights.layers[layer].kv_norm[0] = poison;
            let mut session = Session::new(&model, Profile::DS4);
            assert!(session.forward(&[5, 6], Keep::All, &mut Unobserved).is_err());
        }
        let mut model = trained();
        model.weights.norm[255] = poison;
        let mut session = Session::new(&model, Profile::FLOAT);
        let error = session.forward(&[5, 6], Keep::All, &mut Unobserved).err().unwrap();
        let RunError::NotFinite { site, .. } = run_error(&error) else { panic!("{error}") };
        assert_eq!((site.place, site.tap), (Place::Output, Tap::HeadNorm));
    }
}

#[test]
fn mtp_rows_and_tokens_must_be_as_many_and_rollback_equals_never_having_gone_there() {
    let model = trained();
    let block = MtpModel::open(&folder().join("mtp.gguf"), &model.config).unwrap();
    let tokens: Vec<u32> = (0..100).map(|i| (i * 37 + 5) % 1024).collect();
    let mut session = Session::new(&model, Profile::DS4);
    let streams = session.forward(&tokens, Keep::All, &mut Unobserved).unwrap().streams;
    for pairing in [Pairing::Previous, Pairing::Same] {
        let paired = pairing.tokens(&tokens);
        let mut mtp = MtpSession::new(&model, &block, Profile::DS4);
        assert!(
            mtp.forward(&paired[..3], &streams.slice(0..4), Keep::All, &mut Unobserved).is_err()
        );
        let state = |mtp: &MtpSession<'_>| {
            let mut rows: Vec<(usize, Vec<u32>)> = Vec::new();
            mtp.visit_state(&mut |_, position, row| {
                rows.push((position, row.iter().map(|x| x.to_bits()).collect()));
            });
            rows
        };
        let feed = |mtp: &mut MtpSession<'_>, from: usize, to: usize| -> Rows {
            let rows = streams.slice(from..to);
            mtp.forward(&paired[from..to], &rows, Keep::All, &mut Unobserved).unwrap().logits
        };
        // Around the window of 64 and at every residue of a chunk.
        for length in [1, 5, 60, 63, 64, 65, 70, 80] {
            let mut straight = MtpSession::new(&model, &block, Profile::DS4);
            feed(&mut straight, 0, length);
            for count in 1..=8 {
                let mut back = straight.clone();
                let wrong: Vec<u32> =
                    paired[length..length + count].iter().map(|t| t ^ 1).collect();
                let rows = streams.slice(length..length + count);
                back.forward(&wrong, &rows, Keep::All, &mut Unobserved).unwrap();
                back.rollback(length).unwrap();
                assert_eq!(state(&back), state(&straight), "{count} after {length}");
                let expected = feed(&mut straight.clone(), length, length + 8);
                assert_eq!(feed(&mut back, length, length + 8), expected);
            }
        }
    }
}

#[test]
fn the_two_pairings_differ() {
    let tokens = [1, 2, 3, 4];
    assert_eq!(Pairing::Previous.tokens(&tokens), [2, 3, 4]);
    assert_eq!(Pairing::Same.tokens(&tokens), tokens);
    assert!(Pairing::Previous.tokens(&[]).is_empty());
}
