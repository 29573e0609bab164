//! Refusals by line and field, round trips, and bytes that mean nothing.

use proptest::prelude::*;

use super::*;

const GOOD: &str = "# comment\n\ncase first 4096 2 prompts/a.txt\nstep 0 416461 2\ntop 416461 -0.5\n\
                    top 20 -1.25\nstep 1 0A 0\nend\n\ncase second 16 1 b.txt\nstep 0 ff 1\ntop ff 0\nend\n";

fn parsed(text: &str) -> Result<Vectors, VectorError> {
    parse(text.as_bytes(), Path::new("some.vec"))
}

#[test]
fn a_file_is_read_and_written_and_read_back() {
    let vectors = parsed(GOOD).unwrap();
    let first = &vectors.cases[0];
    assert_eq!(
        (first.id.as_str(), first.context, first.prompt.as_str()),
        ("first", 4096, "prompts/a.txt")
    );
    assert_eq!(first.steps[0].selected, b"Ada");
    assert_eq!(first.steps[0].tops[1], Top { token: b" ".to_vec(), logprob: -1.25 });
    assert_eq!((first.steps[1].selected.as_slice(), first.steps[1].tops.len()), (&b"\n"[..], 0));
    assert_eq!(vectors.cases[1].steps[0].tops[0].logprob, 0.0);
    let text = vectors.to_text(Path::new("out.vec")).unwrap();
    assert_eq!(parsed(&text).unwrap(), vectors);
    assert_eq!(parsed(&GOOD.replace('\n', "\r\n")).unwrap(), vectors, "either line end");
    let mut blank = vectors.clone();
    blank.cases[0].prompt = "two words.txt".into();
    let error = blank.to_text(Path::new("out.vec")).unwrap_err();
    assert!(matches!(error.problem(), Problem::Extra { value } if value == "words.txt"), "{error}");
    let mut comment = vectors;
    comment.cases[1].steps[0].tops[0].logprob = f64::NAN;
    assert!(comment.to_text(Path::new("out.vec")).is_err());
}

/// The good file with one line changed, and what the refusal has to say.
#[test]
fn every_refusal_names_file_line_field_and_value() {
    let long = "ab".repeat(129);
    let cases: [(&str, &str, usize, &str); 27] = [
        ("case first 4096 2 prompts/a.txt", "case first 4096 17 p", 3, "steps \"17\""),
        ("case first 4096 2 prompts/a.txt", "case first 0 2 p", 3, "context \"0\""),
        ("case first 4096 2 prompts/a.txt", "case first +9 2 p", 3, "context \"+9\""),
        ("case first 4096 2 prompts/a.txt", "case first 4096 2", 3, "prompt file: missing"),
        ("case first 4096 2 prompts/a.txt", "case", 3, "name: missing"),
        (
            "case first 4096 2 prompts/a.txt",
            "case first 4096 2 a b",
            3,
            "\"b\": one field too many",
        ),
        ("case first 4096 2 prompts/a.txt", "case first 4096 3 p", 8, "steps 3: 2 follow"),
        ("case first 4096 2 prompts/a.txt", "case first 4096 1 p", 7, "steps 1: 2 follow"),
        ("case first 4096 2 prompts/a.txt", "", 4, "a step stands in a case"),
        ("step 0 416461 2", "step 1 416461 2", 4, "step \"1\""),
        ("step 0 416461 2", "step 0 416461 33", 4, "tops \"33\""),
        ("step 0 416461 2", "step 0 41646 2", 4, "selected token \"41646\""),
        ("step 0 416461 2", "step 0 4g 2", 4, "selected token \"4g\""),
        ("step 0 416461 2", "step 0 é 2", 4, "selected token \"é\""),
        ("step 0 416461 2", "step 0 416461 3", 7, "tops 3: 2 follow"),
        ("step 0 416461 2", "step 0 416461 1", 6, "tops 1: 2 follow"),
        ("step 0 416461 2", "", 5, "a top stands below its step"),
        ("top 416461 -0.5", "top 416461 0.5", 5, "log-probability 0.5"),
        ("top 416461 -0.5", "top 416461 nan", 5, "log-probability \"nan\""),
        ("top 416461 -0.5", "top 416461 -inf", 5, "log-probability \"-inf\""),
        ("top 416461 -0.5", "top 416461", 5, "log-probability: missing"),
        ("top 416461 -0.5", "top 20 -0.5", 6, "token \"20\": there already"),
        ("top 416461 -0.5", "top 416461 -0.1", 7, "add up to 1.19"),
        ("case second 16 1 b.txt", "case first 16 1 b.txt", 10, "case \"first\": there already"),
        ("top ff 0", "end", 12, "tops 1: 0 follow"),
        ("top ff 0", "case third 1 1 c", 12, "a case begins after the end"),
        ("top ff 0", "frob", 12, "record \"frob\""),
    ];
    for (old, new, line, words) in cases {
        let error = parsed(&GOOD.replacen(old, new, 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("some.vec:{line}: ")), "{new}: {text}");
        assert!(text.contains(words), "{new}: {text}");
    }
    let error = parsed(&GOOD.replacen("416461", &long, 1)).unwrap_err();
    assert!(error.to_string().len() < 200 && error.line() == 4, "{error}");
    assert!(parsed(&GOOD.replacen("416461", &long[2..], 1)).is_ok(), "128 bytes are allowed");
    let error = parsed(&GOOD[..GOOD.len() - 5]).unwrap_err();
    assert!(matches!(error.problem(), Problem::Unended { id } if id == "second"), "{error}");
    assert_eq!(parsed("end\n").unwrap_err().line(), 1);
    assert!(matches!(parsed("# nothing\n").unwrap_err().problem(), Problem::NoCase));
    let error = parse(b"# fine\n\xff\n", Path::new("some.vec")).unwrap_err();
    assert_eq!(error.to_string(), "some.vec:2: not UTF-8");
    let error = Vectors::open(Path::new("no-such.vec")).unwrap_err();
    assert!(error.to_string().starts_with("no-such.vec: "), "{error}");
}

#[test]
fn limits_are_reached_but_not_passed() {
    let mut text = String::from("case long 1 16 p\n");
    for step in 0..16 {
        text += &format!("step {step} {step:02x} 32\n");
        (0..32).for_each(|top| text += &format!("top {top:02x} -9999\n"));
    }
    text += "end\n";
    assert_eq!(parsed(&text).unwrap().cases[0].steps.len(), 16);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes, Path::new("fuzz.vec"));
    }

    #[test]
    fn no_words_panic(
        words in proptest::collection::vec(
            prop_oneof![
                Just("case a 9 1 p\n"), Just("case b 9 2 p\n"), Just("step 0 41 1\n"),
                Just("step 1 42 0\n"), Just("step 0 41 0\n"), Just("top 41 -1\n"),
                Just("top 42 -0.25\n"), Just("end\n"), Just("# x\n"), Just(" 7 "), Just("\r\n"),
                Just("step"), Just("-"), Just("top 41 1e999\n"), Just("step 0 4é 1\n"),
            ],
            0..24,
        ),
    ) {
        let _ = parsed(&words.concat());
    }

    #[test]
    fn what_is_written_reads_back(
        cases in proptest::collection::vec(
            proptest::collection::vec(
                (
                    proptest::collection::vec(any::<u8>(), 1..=TOKEN_BYTES_MAX),
                    proptest::collection::btree_map(
                        proptest::collection::vec(any::<u8>(), 1..4), 3.5_f64..1e5, 0..=TOPS_MAX,
                    ),
                ),
                1..=STEPS_MAX,
            ),
            1..4,
        ),
    ) {
        let step = |(selected, tops): (Vec<u8>, std::collections::BTreeMap<Vec<u8>, f64>)| {
            let top = |(token, logprob): (Vec<u8>, f64)| Top { token, logprob: -logprob };
            Step { selected, tops: tops.into_iter().map(top).collect() }
        };
        let case = |(index, steps): (usize, Vec<_>)| Case {
            id: format!("case-{index}"),
            context: 1 + index,
            prompt: format!("prompts/{index}.txt"),
            steps: steps.into_iter().map(step).collect(),
        };
        let vectors = Vectors { cases: cases.into_iter().enumerate().map(case).collect() };
        let text = vectors.to_text(Path::new("out.vec")).unwrap();
        prop_assert_eq!(parsed(&text).unwrap(), vectors);
    }

    #[test]
    fn one_byte_changed_never_panics(place in 0..GOOD.len(), byte in any::<u8>()) {
        let mut bytes = GOOD.as_bytes().to_vec();
        bytes[place] = byte;
        let _ = parse(&bytes, Path::new("fuzz.vec"));
    }
}
