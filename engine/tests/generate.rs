//! `lockstep generate` as a user meets it: text, ids, statistics, refusals, exit codes.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use engine::format::Gguf;
use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/models").join(name);
    path.to_str().unwrap().to_owned()
}

fn trained() -> String {
    fixture("trained-tiny/model.gguf")
}

fn block() -> String {
    fixture("trained-tiny/mtp.gguf")
}

/// The prompt `code` of the trained model without the token that begins every prompt, and its ids.
const CODE: &str = "def somma_lago(a, b):\n    return a";
const CODE_IDS: [u32; 17] =
    [0, 377, 77, 268, 538, 70, 317, 413, 15, 72, 19, 344, 16, 880, 561, 993, 280];
/// What an independent implementation without roundings generates from it, up to the end token.
const CODE_TEXT: &str = " + b\n\nprint(somma_lago(3, 5))  # 8\n";
const END: u32 = 1;

/// The program under these variables and none other that a switch reads.
fn program(variables: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("LOCKSTEP_") || text.starts_with("DS4_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output and standard error of a run that must succeed.
fn run(arguments: &[&str]) -> (String, String) {
    let output = program(&[], arguments).output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    (out, error)
}

/// A generation from [`CODE`].
fn code(more: &[&str]) -> (String, String) {
    run(&[&["generate", "--model", &trained(), "--prompt", CODE][..], more].concat())
}

/// The report of a generation from [`CODE`].
fn report(more: &[&str]) -> Value {
    let (out, _) = code(&[&["--json"], more].concat());
    assert!(out.ends_with("}\n") && out.trim_end().lines().count() >= 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

fn ids(report: &Value) -> Vec<u32> {
    serde_json::from_value(report["token_ids"].clone()).unwrap()
}

/// Exit code 2, nothing on standard output, no panic, and an error that has these words.
fn refused_output(output: &Output, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    assert!(output.stdout.is_empty(), "{words:?}: {}", text(&output.stdout));
    assert!(!error.contains("panicked"), "{error}");
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

fn refused(arguments: &[&str], words: &[&str]) {
    refused_output(&program(&[], arguments).output().unwrap(), words);
}

/// A generation from [`CODE`] with these options is refused.
fn code_refused(more: &[&str], words: &[&str]) {
    let model = trained();
    refused(&[&["generate", "--model", &model, "--prompt", CODE][..], more].concat(), words);
}

#[test]
fn text_is_that_of_an_independent_implementation_and_statistics_are_beside_it() {
    let (out, error) = code(&["--profile", "float", "-n", "40"]);
    assert_eq!(out, CODE_TEXT, "the end token stops and is not printed");
    for words in ["prompt", "17 tokens", "generated", "26 tokens", "tokens/s", "token 1"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(!error.contains('\u{1b}') && !error.contains('\r'), "no bar in a pipe: {error}");
    let report = report(&["--profile", "float", "-n", "40"]);
    let path = fixture("trained-tiny/expected.json");
    let expected: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let expected = &expected["prompts"]["code"]["plain"]["ids"];
    assert_eq!(
        ids(&report)[..],
        serde_json::from_value::<Vec<u32>>(expected.clone()).unwrap()[..26]
    );
    assert_eq!(report["text"], CODE_TEXT);
    assert_eq!(report["end"], serde_json::json!({"reason": "stop", "token": END}));
}

#[test]
fn every_source_of_a_prompt_has_the_same_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("p.txt"), CODE).unwrap();
    fs::write(path("t.json"), format!("{CODE_IDS:?}")).unwrap();
    let (model, expected) = (trained(), code(&["-n", "12"]).0);
    for source in [["--prompt-file", &path("p.txt")], ["--tokens", &path("t.json")]] {
        for chunk in ["1", "5", "512"] {
            let more = ["-n", "12", "--chunk", chunk];
            let arguments = [&["generate", "--model", &model][..], &source, &more].concat();
            assert_eq!(run(&arguments).0, expected, "{source:?} {chunk}");
        }
    }
    assert_eq!(report(&["-n", "1"])["prompt_ids"], serde_json::json!(CODE_IDS));
}

#[test]
fn drafts_change_no_token_whoever_proposes_them_and_however_they_are_verified() {
    let mtp = block();
    let plain = report(&["-n", "20"]);
    assert_eq!(plain["drafts"], Value::Null);
    let (plain_text, _) = code(&["-n", "20"]);
    let sources: [&[&str]; 4] = [
        &["--mtp", &mtp],
        &["--drafter", "self"],
        &["--drafter", "hostile"],
        &["--drafter", "scripted:1,0,2"],
    ];
    for source in sources {
        for depth in ["1", "2", "5"] {
            let mut accepted = Vec::new();
            for strict in ["--mtp-strict=0", "--mtp-strict"] {
                let more = [source, &["-n", "20", "--mtp-draft", depth, strict]].concat();
                let report = report(&more);
                assert_eq!(ids(&report), ids(&plain), "{more:?}");
                assert_eq!(report["text"], plain["text"], "{more:?}");
                assert_eq!(report["end"], plain["end"], "{more:?}");
                let drafts = &report["drafts"];
                let mode = if strict == "--mtp-strict" { "strict" } else { "combined" };
                assert_eq!(drafts["verification"], mode, "{more:?}");
                assert_eq!(drafts["probe"].is_null(), mode == "strict", "{more:?}");
                let count = |field: &str| drafts[field].as_u64().unwrap();
                // The first token comes with the prompt, one with every round, the others are drafts.
                let emitted = 1 + count("rounds") + count("accepted");
                assert_eq!(emitted, report["generated_tokens"].as_u64().unwrap(), "{more:?}");
                let places = drafts["places"].as_array().unwrap();
                assert_eq!(places.len().to_string(), depth);
                let sum = |field: &str| {
                    places.iter().fold(0, |sum, place| sum + place[field].as_u64().unwrap())
                };
                assert_eq!(
                    (sum("proposed"), sum("accepted")),
                    (count("proposed"), count("accepted"))
                );
                accepted.push([&drafts["rounds"], &drafts["places"]].map(Value::clone));
                match source[1] {
                    "self" => assert_eq!(count("accepted"), count("proposed")),
                    "hostile" => assert_eq!(count("accepted"), 0),
                    _ => assert!(count("accepted") > 0, "{more:?}: {drafts}"),
                }
            }
            assert_eq!(accepted[0], accepted[1], "{source:?} {depth}");
        }
    }
    let (out, error) = code(&["-n", "20", "--mtp", &mtp]);
    assert_eq!(out, plain_text);
    for words in ["rounds", "place 1", "place 2", " of ", " %", "combined", "probe", "mtp"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let (_, error) = code(&["-n", "20", "--mtp", &mtp, "--mtp-strict"]);
    assert!(error.contains("strict") && error.contains("option --mtp-strict"), "{error}");
}

#[test]
fn a_seed_says_what_is_drawn_and_drafts_do_not() {
    let mtp = block();
    let sampled = ["-n", "16", "--temperature", "1.5", "--top-p", "0.95", "--ignore-end"];
    let seeded =
        |seed: &str, more: &[&str]| ids(&report(&[&sampled[..], &["--seed", seed], more].concat()));
    let first = seeded("7", &[]);
    assert_eq!(first, seeded("7", &[]));
    assert_ne!(first, seeded("8", &[]));
    assert_ne!(first, ids(&report(&["-n", "16", "--ignore-end"])), "not the greedy ones");
    // Nearly all tokens are equally likely: parts of characters and special tokens among them.
    let wild = ["-n", "120", "--temperature", "50", "--seed", "5", "--ignore-end"];
    let expected = report(&wild)["text"].as_str().unwrap().to_owned();
    assert!(expected.contains('\u{fffd}'), "{expected}");
    assert_eq!(code(&wild).0, expected);
    assert_eq!(code(&[&wild[..], &["--mtp", &mtp]].concat()).0, expected);
    for depth in ["1", "2", "5"] {
        for more in [&["--mtp", &mtp][..], &["--mtp", &mtp, "--mtp-strict"]] {
            assert_eq!(first, seeded("7", &[more, &["--mtp-draft", depth]].concat()), "{depth}");
        }
    }
}

#[test]
fn the_report_is_one_object_with_everything_that_was_in_force() {
    let mtp = block();
    let report = report(&[
        "-n",
        "8",
        "--mtp",
        &mtp,
        "--temperature",
        "0.7",
        "--top-k",
        "40",
        "--min-p",
        "0.05",
        "--seed",
        "18446744073709551615",
        "--threads",
        "3",
    ]);
    assert_eq!(report["lockstep"], env!("CARGO_PKG_VERSION"));
    assert!(report["backend"].as_str().unwrap().ends_with(" x3"), "{}", report["backend"]);
    assert_eq!(report["profile"], "ds4");
    assert_eq!(report["model"]["path"], trained());
    assert_eq!(report["model"]["bytes"], fs::metadata(trained()).unwrap().len());
    assert_eq!(report["mtp"]["bytes"], fs::metadata(&mtp).unwrap().len());
    assert_eq!(report["prompt_tokens"], 17);
    assert_eq!(report["generated_tokens"], ids(&report).len());
    assert_eq!(report["context"], 25);
    let sampler = &report["sampler"];
    assert_eq!((&sampler["temperature"], &sampler["top_p"]), (&0.7.into(), &1.0.into()));
    assert_eq!((&sampler["top_k"], &sampler["min_p"]), (&40.into(), &0.05.into()));
    assert_eq!(sampler["seed"], u64::MAX);
    let switches = report["switches"].as_object().unwrap();
    assert_eq!(switches.len(), 5);
    assert_eq!(switches["threads"]["value"], 3);
    assert_eq!(switches["threads"]["source"]["name"], "--threads");
    assert_eq!(switches["moe-down"]["source"]["kind"], "default");
    let timings = &report["timings"];
    for field in ["load_seconds", "probe_seconds", "prompt_seconds", "generate_seconds"] {
        assert!(timings[field].as_f64().unwrap() > 0.0, "{field}: {timings}");
    }
    for field in ["prompt_tokens_per_second", "generated_tokens_per_second"] {
        assert!(timings[field].as_f64().unwrap() > 0.0, "{field}: {timings}");
    }
    assert_eq!(report["drafts"]["probe"], serde_json::json!({"verdict": "equal", "rows": 5}));
    assert_eq!(report["drafts"]["drafter"], "mtp");
    assert_eq!(report["drafts"]["depth"], 2);
}

#[test]
fn generation_ends_at_a_stop_token_at_its_count_or_at_the_context() {
    let greedy = ids(&report(&["-n", "12", "--ignore-end"]));
    let stop = greedy[5];
    let stop_text = stop.to_string();
    let first = greedy.iter().position(|id| *id == stop).unwrap();
    let mtp = block();
    for drafts in [&[][..], &["--mtp", &mtp], &["--drafter", "self", "--mtp-draft", "8"]] {
        let stopping = [&["-n", "12", "--stop-token", &stop_text][..], drafts].concat();
        let stopped = report(&stopping);
        assert_eq!(ids(&stopped), greedy[..=first]);
        assert_eq!(stopped["end"], serde_json::json!({"reason": "stop", "token": stop}));
        let whole = report(&["-n", &first.to_string()]);
        assert_eq!(stopped["text"], whole["text"], "the stop token is not text");
        assert_eq!(code(&stopping).0, whole["text"].as_str().unwrap());
        let full = report(&[&["-n", "12", "--context", "20"][..], drafts].concat());
        assert_eq!(full["end"], serde_json::json!({"reason": "context"}));
        assert_eq!(ids(&full), greedy[..4], "three fit, and one follows the last");
    }
    assert_eq!(report(&["-n", "3"])["end"], serde_json::json!({"reason": "tokens"}));
    let on = report(&["--profile", "float", "-n", "27", "--ignore-end"]);
    assert_eq!(ids(&on)[25..], [END, 0], "goes on behind the end token");
}

/// B112: log-probabilities above zero, or other ones on another path.
#[test]
fn log_probabilities_are_the_same_on_every_path_and_never_above_zero() {
    let mtp = block();
    let plain = report(&["-n", "10", "--logprobs", "5"]);
    let logprobs = plain["logprobs"].as_array().unwrap();
    assert_eq!(logprobs.len(), 10);
    for (entry, id) in logprobs.iter().zip(ids(&plain)) {
        assert_eq!(entry["id"], id);
        let top = entry["top"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        assert_eq!(top[0], serde_json::json!({"id": id, "logprob": entry["logprob"]}), "greedy");
        let values: Vec<f64> = top.iter().map(|one| one["logprob"].as_f64().unwrap()).collect();
        assert!(values.iter().all(|value| *value <= 0.0), "{values:?}");
        assert!(values.windows(2).all(|pair| pair[0] >= pair[1]), "{values:?}");
    }
    let cold = ["--temperature", "0.001", "--seed", "3"];
    let paths: [&[&str]; 5] = [
        &["--mtp", &mtp],
        &["--mtp", &mtp, "--mtp-draft", "5", "--mtp-strict"],
        &["--drafter", "scripted:1,0,2", "--chunk", "4"],
        &cold,
        &[&cold[..], &["--mtp", &mtp]].concat(),
    ];
    for path in paths {
        let other = report(&[&["-n", "10", "--logprobs", "5"], path].concat());
        assert_eq!(ids(&other), ids(&plain), "{path:?}");
        assert_eq!(other["logprobs"], plain["logprobs"], "{path:?}");
    }
    let hot = report(&["-n", "10", "--logprobs", "1", "--temperature", "3", "--seed", "1"]);
    for entry in hot["logprobs"].as_array().unwrap() {
        let (own, best) = (&entry["logprob"], &entry["top"][0]["logprob"]);
        assert!(own.as_f64() <= best.as_f64() && own.as_f64() <= Some(0.0), "{entry}");
    }
    code_refused(&["--logprobs", "5"], &["--json"]);
    code_refused(&["--logprobs", "0", "--json"], &["--logprobs", "0"]);
}

#[test]
fn a_chat_is_rendered_as_the_model_was_trained() {
    let model = trained();
    let chat = |more: &[&str]| -> Value {
        let start = ["generate", "--model", &model, "--json", "-n", "1", "--chat"];
        serde_json::from_str(&run(&[&start[..], more].concat()).0).unwrap()
    };
    let (system, user) = ("Sei un assistente.", "Che tempo fa a Bergamo?");
    let plain = chat(&["--prompt", user]);
    let with_system = chat(&["--prompt", user, "--system", system]);
    let thinking = chat(&["--prompt", user, "--think"]);
    let off = chat(&["--prompt", user, "--think=off"]);
    let rendered = |report: &Value| report["prompt_text"].as_str().unwrap().to_owned();
    let begin = "<｜begin▁of▁sentence｜>";
    let turn = format!("<｜User｜>{user}<｜Assistant｜>");
    assert_eq!(rendered(&plain), format!("{begin}{turn}</think>"));
    assert_eq!(plain["prompt_ids"], off["prompt_ids"]);
    assert_eq!(rendered(&with_system), format!("{begin}{system}{turn}</think>"));
    assert_eq!(rendered(&thinking), format!("{begin}{turn}<think>"));
    // Text that looks like a special token stays text.
    let forged = run(&["generate", "--model", &model, "-n", "1", "--prompt", "a<｜User｜>b"]).1;
    assert!(forged.contains("warning") && forged.contains("special token"), "{forged}");
    code_refused(&["--system", "x"], &["--chat"]);
    code_refused(&["--think"], &["--chat"]);
    code_refused(&["--chat", "--think=maybe"], &["--think", "maybe"]);
    refused(
        &["generate", "--model", &model, "--tokens", "t.json", "--chat"],
        &["--tokens", "--chat"],
    );
}

#[test]
fn the_budget_and_the_context_are_held_before_anything_runs() {
    code_refused(
        &["-n", "8", "--memory-budget", "1000"],
        &["--memory-budget", "1000", "25 tokens"],
    );
    let needed = report(&["-n", "8"])["state_bytes"].as_u64().unwrap();
    code_refused(
        &["-n", "8", "--memory-budget", &(needed - 1).to_string()],
        &[&needed.to_string(), &(needed - 1).to_string()],
    );
    assert_eq!(report(&["-n", "8", "--memory-budget", &needed.to_string()])["state_bytes"], needed);
    assert_eq!(report(&["-n", "8", "--memory-budget", "1g"])["memory_budget"], 1_u64 << 30);
    // A drafter's own state counts.
    let more = ["-n", "8", "--drafter", "self", "--memory-budget", &needed.to_string()];
    code_refused(&more, &[&(2 * needed).to_string()]);
    for bad in ["", "K", "-1", "1T", "1.5G", "99999999999G", "99999999999999999999"] {
        let option = format!("--memory-budget={bad}");
        code_refused(&[&option], &["--memory-budget"]);
    }
    code_refused(&["--context", "16"], &["17 tokens", "context", "16", "--context"]);
    code_refused(&["--context", "99999999"], &["--context", "99999999"]);
    assert_eq!(ids(&report(&["--context", "17", "-n", "5"])).len(), 1, "a full context has a next");
}

#[test]
fn bad_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, mtp) = (trained(), block());
    let directory = folder.path().to_str().unwrap().to_owned();
    fs::write(path("text.gguf"), "once upon a time there was a model that was text").unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("latin1.txt"), b"caff\xe8").unwrap();
    for file in [path("absent.gguf"), directory.clone(), path("text.gguf"), path("empty")] {
        refused(&["generate", "--model", &file, "--prompt", "x"], &[&file]);
        code_refused(&["--mtp", &file], &[&file]);
        refused(&["generate", "--model", &model, "--tokens", &file], &[&file]);
    }
    code_refused(&["--mtp", &model], &[&model]);
    refused(&["generate", "--model", &mtp, "--prompt", "x"], &[&mtp]);
    for file in [path("absent.txt"), directory, path("empty"), path("latin1.txt")] {
        refused(&["generate", "--model", &model, "--prompt-file", &file], &[&file]);
    }
    for (text, words) in [
        ("[]", "no token ids"),
        ("{}", "not a JSON array of token ids"),
        ("[1, -2]", "not a JSON array of token ids"),
        ("[1, 1024]", "token 1 = 1024: the vocabulary has 1024"),
    ] {
        fs::write(path("t.json"), text).unwrap();
        let file = path("t.json");
        refused(&["generate", "--model", &model, "--tokens", &file], &[&file, words]);
    }
}

/// The trained model with this text, which must be in it, replaced by one of the same length.
fn altered(from: &str, to: &str, path: &str) {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(trained()).unwrap();
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from}");
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_value_that_is_not_finite_is_refused_and_no_token_comes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nan.gguf");
    let mut bytes = fs::read(trained()).unwrap();
    let file = Gguf::from_bytes(bytes.clone()).unwrap();
    let norm = file.tensor("output_norm.weight").unwrap().bytes();
    let at = (0..bytes.len() - norm.len()).find(|at| bytes[*at..].starts_with(norm)).unwrap();
    // Large but finite: the model opens, and overflows when it runs.
    let large = f32::MAX.to_le_bytes();
    bytes[at..at + norm.len()].chunks_exact_mut(4).for_each(|value| value.copy_from_slice(&large));
    fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    for more in [&[][..], &["--json"], &["--drafter", "self"], &["--temperature", "1"]] {
        let arguments = [&["generate", "--model", path, "--prompt", CODE][..], more].concat();
        refused(&arguments, &[path, "not finite", "position"]);
    }
}

#[test]
fn without_a_tokenizer_there_are_ids_but_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (none, half, tokens) = (path("none.gguf"), path("half.gguf"), path("t.json"));
    altered("tokenizer.", "tokeniser.", &none);
    altered("tokenizer.ggml.merges", "tokenizer.ggml.murges", &half);
    fs::write(&tokens, format!("{CODE_IDS:?}")).unwrap();
    refused(&["generate", "--model", &none, "--prompt", "x"], &[&none, "tokenizer.ggml"]);
    let ids_of = |model: &str| {
        ["generate", "--model", model, "--tokens", &tokens, "-n", "6"].map(str::to_owned)
    };
    let arguments = ids_of(&none);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    refused(&arguments, &[&none, "tokenizer.ggml", "--json"]);
    let (out, error) = run(&[&arguments[..], &["--json"]].concat());
    assert!(error.contains("warning") && error.contains("no tokenizer"), "{error}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&found["text"], &found["stop_tokens"]), (&Value::Null, &serde_json::json!([])));
    assert_eq!(ids(&found), ids(&report(&["-n", "6"])));
    let arguments = ids_of(&half);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    refused(&[&arguments[..], &["--json"]].concat(), &[&half, "tokenizer.ggml.merges"]);
}

#[test]
fn bad_options_are_refused_by_name() {
    let (model, mtp) = (trained(), block());
    for (option, value) in [
        ("--temperature", "-1"),
        ("--temperature", "NaN"),
        ("--temperature", "inf"),
        ("--temperature", "warm"),
        ("--top-p", "2"),
        ("--top-p", "0"),
        ("--top-p", "NaN"),
        ("--min-p", "1"),
        ("--min-p", "-0.1"),
        ("--top-k", "-1"),
        ("--seed", "-1"),
        ("--seed", "18446744073709551616"),
        ("--max-tokens", "0"),
        ("--chunk", "0"),
        ("--context", "0"),
        ("--stop-token", "1024"),
        ("--stop-token", "x"),
        ("--profile", "fast"),
        ("--backend", "cuda"),
        ("--drafter", "scripted:"),
        ("--drafter", "scripted:1,9"),
        ("--drafter", "oracle"),
        ("--threads", "0"),
    ] {
        code_refused(&[option, value], &[option, value]);
    }
    code_refused(&["--mtp", &mtp, "--mtp-draft", "9"], &["--mtp-draft", "9"]);
    code_refused(&["--mtp", &mtp, "--mtp-draft", "0"], &["--mtp-draft", "0"]);
    code_refused(&["--mtp-draft", "2"], &["--mtp-draft", "--mtp"]);
    code_refused(&["--drafter", "mtp"], &["--drafter mtp", "--mtp"]);
    code_refused(&["--mtp", &mtp, "--drafter", "self"], &["--mtp", "--drafter self"]);
    code_refused(&["--prompt-file", "p.txt"], &["--prompt"]);
    code_refused(&["--simd", "avx512"], &["simd", "avx512"]);
    refused(&["generate", "--model", &model], &["--prompt"]);
    refused(&["generate", "--prompt", "x"], &["--model"]);
    refused(&["generate", "--model", &model, "--prompt", ""], &["--prompt", "empty"]);
    refused(&[], &["generate"]);
    refused(&["serve"], &["serve"]);
    assert!(run(&["generate", "--help"]).0.contains("--mtp-draft"));
    assert!(run(&["--version"]).0.contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn switches_are_known_and_obeyed_or_refused() {
    let model = trained();
    let reference = ["--backend", "reference"];
    let arguments =
        [&["generate", "--model", &model, "--prompt", CODE, "-n", "1"][..], &reference].concat();
    let under = |variables: &[(&str, &str)], words: &[&str]| {
        refused_output(&program(variables, &arguments).output().unwrap(), words);
    };
    under(&[("LOCKSTEP_MOE_DWON", "atomic")], &["LOCKSTEP_MOE_DWON", "LOCKSTEP_MOE_DOWN"]);
    under(&[("LOCKSTEP_THREADS", "many")], &["LOCKSTEP_THREADS", "many"]);
    under(&[("LOCKSTEP_SIMD", "scalar")], &["simd", "scalar", "LOCKSTEP_SIMD", "reference"]);
    under(&[("DS4_CUDA_MOE_ATOMIC_DOWN", "1")], &["moe-down", "DS4_CUDA_MOE_ATOMIC_DOWN"]);
    for (option, value) in [("--moe-down", "atomic"), ("--simd", "avx2")] {
        let asked = [option, value, reference[0], reference[1]];
        code_refused(&asked, &[option, value, "reference"]);
    }
    code_refused(&["--quality", "--moe-down", "atomic"], &["--quality", "--moe-down"]);
    let quality = report(&["-n", "2", "--quality", "--drafter", "self"]);
    assert_eq!(quality["drafts"]["verification"], "strict");
    assert!(quality["drafts"]["why"].as_str().unwrap().contains("preset --quality"));
    let strict =
        program(&[("DS4_MTP_STRICT", "1")], &[&arguments[..], &["--drafter", "self"]].concat());
    let error = text(&{ strict }.output().unwrap().stderr);
    assert!(error.contains("strict") && error.contains("DS4_MTP_STRICT"), "{error}");
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    code_refused(&["--prompt", "again"], &["is not built:", "--prompt", "2"]);
    code_refused(&["--parallel", "2"], &["--parallel 2 is not built:"]);
    code_refused(&["--save-session", "s.bin"], &["--save-session is not built:"]);
    code_refused(&["--load-session", "s.bin"], &["--load-session is not built:"]);
    code_refused(&["--prefix-cache"], &["--prefix-cache is not built:"]);
    code_refused(&["--prefix-cache", "folder"], &["--prefix-cache is not built:"]);
    assert_eq!(ids(&report(&["--parallel", "1", "-n", "2"])).len(), 2);
    let help = run(&["generate", "--help"]).0;
    assert!(!help.contains("--prefix-cache"), "not offered");
}

#[test]
fn a_reader_that_goes_away_ends_the_run_quietly() {
    let model = trained();
    let base = ["generate", "--model", &model, "--prompt", CODE, "-n", "200", "--ignore-end"];
    for more in [&[][..], &["--json"]] {
        let mut command = program(&[], &[&base[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{error}");
        assert!(!error.contains("panicked") && !error.contains("error"), "{error}");
        let finished = !more.is_empty();
        assert_eq!(error.contains("200 tokens"), finished, "text ends with its reader: {error}");
    }
    let mut command = program(&[], &[&base[..5], &["-n", "4"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "nobody reads the statistics");
    assert_eq!(text(&output.stdout), code(&["-n", "4"]).0);
}

/// The file of the model is only read.
#[test]
fn inputs_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let copy: PathBuf = folder.path().join("model.gguf");
    fs::copy(trained(), &copy).unwrap();
    let before = fs::read(&copy).unwrap();
    let (out, _) =
        run(&["generate", "--model", copy.to_str().unwrap(), "--prompt", CODE, "-n", "2"]);
    assert!(!out.is_empty());
    assert!(fs::read(&copy).unwrap() == before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no file is left behind");
}
