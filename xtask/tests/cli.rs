//! The command line as a user meets it: exit codes, named errors, files written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn xtask(arguments: &[&str]) -> Output {
    xtask_under(&[], arguments)
}

/// Under these variables and none other that a run-time switch reads.
fn xtask_under(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("LOCKSTEP_") || text.starts_with("DS4_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Verifies one suite on the cases whose name has this in it.
fn verify(suite: &str, case: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = xtask(&[&["verify", suite, "--case", case], more].concat());
    (output.status.code(), text(&output.stdout))
}

#[test]
fn an_equal_case_is_0_and_its_counts_say_what_was_compared() {
    let (code, out) = verify("--tensor-equivalence", "trained-tiny/code", &[]);
    assert_eq!(code, Some(0), "{out}");
    // Three pairs of the comparator go with every run.
    assert!(out.contains("4 equal, 0 different, 0 not run; 7979 tensors, 3085684"), "{out}");
    assert!(out.contains("verdict: equal"), "{out}");
}

#[test]
fn a_planted_bit_is_1_and_its_repeat_line_is_red_again() {
    let (code, out) = verify("--goldens", "golden/trained-tiny/code", &["--plant", "logit-bit"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("\nDIFFERENT "), "{out}");
    let repeat = out.lines().find_map(|line| line.strip_prefix("repeat: cargo xtask "));
    let repeat = repeat.unwrap_or_else(|| panic!("{out}"));
    let words: Vec<&str> = repeat.split(' ').map(|word| word.trim_matches('\'')).collect();
    assert_eq!(&words[..3], ["verify", "--goldens", "--case"], "{repeat}");
    let again = xtask(&words);
    assert_eq!(again.status.code(), Some(1), "{repeat}: {}", text(&again.stdout));
}

/// B93: a filter that matches nothing must not pass, though the comparator's own pairs are equal.
#[test]
fn nothing_compared_is_3() {
    let (code, out) = verify("--tensor-equivalence", "no-such-case", &[]);
    assert_eq!(code, Some(3));
    assert!(out.contains("verdict: NOTHING WAS COMPARED"), "{out}");
}

/// B91: ground truth that is not here must read `not run`, and alone is no success.
#[test]
fn absent_ground_truth_is_not_run_and_never_green() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let (code, out) = verify("--reference", "hf-tiny", &["--ground-truth", path]);
    assert_eq!(code, Some(3), "{out}");
    assert!(out.contains("0 different, 4 not run"), "{out}");
    assert!(out.contains("is not here"), "{out}");
    // Asked for by name beside a suite that runs, it still is not everything.
    let (code, out) = verify("--kernels", "norm", &["--require", "cuda"]);
    assert_eq!(code, Some(2), "a suite that there is not: {out}");
    let (code, out) = verify("--kernels", "", &["--backend", "cuda"]);
    assert_eq!(code, Some(3), "{out}");
    assert!(out.contains("not run "), "{out}");
}

#[test]
fn bad_usage_and_bad_files_are_2_and_name_the_fault() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logits.npy");
    let tokens = folder.path().join("tokens.json");
    fs::write(&tokens, "[1, 2, 3]").unwrap();
    let model = fixtures().join("models/trained-tiny/model.gguf");
    let hostile = fixtures().join("hostile/version-2.gguf");
    let logits = |model: &Path, tokens: &Path, more: &[&str]| {
        let paths = [model, tokens, &out].map(|path| path.to_str().unwrap().to_owned());
        let arguments = ["logits", "--model", &paths[0], "--tokens", &paths[1], "--out", &paths[2]];
        let output = xtask(&[&arguments[..], more].concat());
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(names, [tokens.to_path_buf()], "no output file beside an error");
        (output.status.code(), text(&output.stderr))
    };
    let refused = |model: &Path, tokens: &Path, more: &[&str], words: &[&str]| {
        let (code, error) = logits(model, tokens, more);
        assert_eq!(code, Some(2), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    };
    refused(&hostile, &tokens, &[], &["version-2.gguf", "version", "2"]);
    refused(&folder.path().join("absent.gguf"), &tokens, &[], &["absent.gguf"]);
    refused(&model, &tokens, &["--profile", "fast"], &["fast", "ds4, float, qat"]);
    refused(&model, &tokens, &["--chunk", "0"], &["--chunk"]);
    refused(&model, &tokens, &["--backend", "cuda"], &["cuda", "reference"]);
    for (text, words) in [
        ("[]", "no token ids"),
        ("{}", "not a JSON array of token ids"),
        ("[1, -2]", "not a JSON array of token ids"),
        ("[1, 1024]", "token 1 = 1024: the vocabulary has 1024"),
    ] {
        fs::write(&tokens, text).unwrap();
        refused(&model, &tokens, &[], &[words]);
    }
    fs::write(&tokens, "[1, 2, 3]").unwrap();
    let copy = folder.path().join("model.gguf");
    fs::copy(&model, &copy).unwrap();
    let [copy, tokens] = [&copy, &tokens].map(|path| path.to_str().unwrap());
    for output in [copy, tokens] {
        let before = fs::read(output).unwrap();
        let run = xtask(&["logits", "--model", copy, "--tokens", tokens, "--out", output]);
        assert_eq!(run.status.code(), Some(2));
        assert!(text(&run.stderr).contains("is in use already"), "{}", text(&run.stderr));
        assert!(fs::read(output).unwrap() == before, "an input is never overwritten");
    }
    assert_eq!(xtask(&["verify"]).status.code(), Some(2));
    assert_eq!(xtask(&["verify", "--tensor-equivalence", "--plant", "x"]).status.code(), Some(2));
    assert_eq!(xtask(&["golden", "accept", "no/such", "--reason", "x"]).status.code(), Some(2));
}

#[test]
fn logits_have_the_same_bytes_for_every_chunk_and_go_on_greedily() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let models = fixtures().join("models/trained-tiny");
    let (model, mtp) = (models.join("model.gguf"), models.join("mtp.gguf"));
    let (model, mtp) = (model.to_str().unwrap(), mtp.to_str().unwrap());
    fs::write(path("t.json"), "[0, 324, 295, 583, 452, 362, 328, 413]").unwrap();
    for chunk in ["8", "3", "1"] {
        let output = xtask(
            &[
                &["logits", "--model", model, "--mtp", mtp, "--tokens", &path("t.json")][..],
                &[
                    "--chunk",
                    chunk,
                    "--greedy",
                    "5",
                    "--tokens-out",
                    &path(&format!("{chunk}.json")),
                ],
                &[
                    "--out",
                    &path(&format!("{chunk}.npy")),
                    "--mtp-out",
                    &path(&format!("{chunk}.d")),
                ],
            ]
            .concat(),
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "quiet in a pipe");
    }
    for suffix in ["npy", "json", "d"] {
        let read = |chunk: &str| fs::read(path(&format!("{chunk}.{suffix}"))).unwrap();
        assert!(read("8") == read("3") && read("8") == read("1"), "{suffix}");
    }
    let file = npyz::NpyFile::new(fs::File::open(path("8.npy")).unwrap()).unwrap();
    assert_eq!(file.shape(), [13, 1024]);
    let logits: Vec<f32> = file.into_vec().unwrap();
    let ids: Vec<u32> = serde_json::from_str(&fs::read_to_string(path("8.json")).unwrap()).unwrap();
    assert_eq!(ids.len(), 5);
    for (row, id) in ids.iter().enumerate() {
        let row = &logits[(7 + row) * 1024..(8 + row) * 1024];
        assert!(row.iter().all(|logit| *logit <= row[*id as usize]), "a greedy choice");
    }
    let drafts = npyz::NpyFile::new(fs::File::open(path("8.d")).unwrap()).unwrap();
    assert_eq!(drafts.shape(), [12, 1024]);
}

#[test]
fn inspect_shows_metadata_tensors_and_hyper_parameters() {
    let model = fixtures().join("models/tiny/model.gguf");
    let output = xtask(&["inspect", model.to_str().unwrap()]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for words in [
        "deepseek4.attention.compress_ratios = [4] 0, 4, 128, 4",
        "blk.2.ffn_down_exps.weight",
        "IQ2_XXS: 8 tensors, 1622016 bytes",
        "hidden: 256",
        "every tensor has a role",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let hostile = fixtures().join("hostile/overlap-inside.gguf");
    assert_eq!(xtask(&["inspect", hostile.to_str().unwrap()]).status.code(), Some(2));
}

/// Exit code 2, nothing on standard output, and an error that has these words.
fn refused(variables: &[(&str, &str)], arguments: &[&str], words: &[&str]) {
    let output = xtask_under(variables, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
}

#[test]
fn env_lists_every_switch_and_where_its_value_came_from() {
    let output = xtask_under(
        &[("DS4_CUDA_MOE_ATOMIC_DOWN", "1"), ("LOCKSTEP_MOE_ATOMIC_ROWS", "64")],
        &["env", "--threads", "3"],
    );
    let out = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(!out.contains('\u{1b}'), "no colours in a pipe");
    let line = |switch: &str| -> Vec<&str> {
        let found = out.lines().find(|line| line.trim_start().starts_with(switch));
        found.unwrap_or_else(|| panic!("{switch}: {out}")).split_whitespace().collect()
    };
    let starts = |switch: &str, words: &[&str]| {
        assert_eq!(line(switch)[1..=words.len()], *words, "{switch}");
    };
    starts("moe-down", &["atomic", "alias", "DS4_CUDA_MOE_ATOMIC_DOWN", "LOCKSTEP_MOE_DOWN"]);
    assert!(line("moe-down").contains(&"DS4_CUDA_MOE_NO_ATOMIC_DOWN,"), "aliases are listed");
    starts("moe-atomic-rows", &["64", "variable", "LOCKSTEP_MOE_ATOMIC_ROWS"]);
    starts("threads", &["3", "option", "--threads", "LOCKSTEP_THREADS"]);
    starts("mtp-strict", &["0", "default", "LOCKSTEP_MTP_STRICT", "--mtp-strict"]);
    starts("simd", &["auto", "default"]);
    for words in ["simd scalar", "simd avx2", "simd avx512", "GPU driver", "libcuda.so.1"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    for words in ["not run: this command computes nothing", "memory", "rustc 1."] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn env_as_json_says_the_same() {
    let output = xtask_under(&[("DS4_MTP_STRICT", "1")], &["env", "--json", "--quality"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let switches = report["switches"].as_array().unwrap();
    let names: Vec<_> = switches.iter().map(|line| line["switch"].as_str().unwrap()).collect();
    assert_eq!(names, ["moe-down", "moe-atomic-rows", "mtp-strict", "threads", "simd"]);
    assert_eq!(switches[0]["value"], "ordered");
    assert_eq!(switches[2]["source"], serde_json::json!({"kind": "preset", "name": "--quality"}));
    assert_eq!(switches[2]["aliases"], serde_json::json!(["DS4_MTP_STRICT"]));
    let machine = &report["machine"];
    assert_eq!(machine["simd"][0]["found"], true);
    assert!(machine["gpu_driver"]["found"].is_boolean());
    assert_eq!(machine["gpu_driver"]["run"], "not run");
    assert!(report["build"]["rustc"].as_str().unwrap().starts_with("rustc "));
}

#[test]
fn no_command_starts_under_an_unknown_or_bad_switch() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (model, out) = (fixtures().join("models/tiny/model.gguf"), path("out"));
    let model = model.to_str().unwrap();
    let commands: [&[&str]; 10] = [
        &["env"],
        &["env", "--json"],
        &["verify", "--tensor-equivalence"],
        &["logits", "--model", model, "--tokens", &path("absent"), "--out", &out],
        &["inspect", model],
        &["fixtures", "check"],
        &["golden", "list"],
        &["sensitivity"],
        &["tidy"],
        &["ci"],
    ];
    for command in commands {
        let unknown = [("LOCKSTEP_MOE_DWON", "atomic")];
        refused(&unknown, command, &["LOCKSTEP_MOE_DWON", "LOCKSTEP_MOE_DOWN"]);
        let bad = [("LOCKSTEP_THREADS", "0")];
        refused(&bad, command, &["LOCKSTEP_THREADS", "\"0\"", "1 to 1024"]);
        let both = [("DS4_CUDA_MOE_ATOMIC_DOWN", "1"), ("DS4_CUDA_MOE_NO_ATOMIC_DOWN", "1")];
        refused(&both, command, &[both[0].0, both[1].0]);
    }
    let noise = ["noise", "--model", model, "--tokens", &path("absent")];
    refused(&[("LOCKSTEP_X", "")], &noise, &["LOCKSTEP_X"]);
    refused(&[], &["env", "--quality", "--moe-down", "atomic"], &["--quality", "--moe-down"]);
    refused(&[], &["env", "--quality", "--mtp-strict=0"], &["--quality", "--mtp-strict"]);
    refused(&[], &["env", "--simd", "neon"], &["--simd", "neon", "avx512"]);
    refused(&[], &["env", "--threads", "1025"], &["--threads", "1025", "1 to 1024"]);
    refused(&[], &["tidy", "--moe-down", "atomic"], &["--moe-down"]);
    assert!(xtask(&["env", "--mtp-strict"]).status.success());
}

#[test]
fn the_record_of_a_run_has_every_switch_with_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let model = fixtures().join("models/trained-tiny/model.gguf");
    let model = model.to_str().unwrap();
    fs::write(path("t.json"), "[0, 324]").unwrap();
    let (tokens, out, record) = (path("t.json"), path("l.npy"), path("r.json"));
    let logits = ["logits", "--model", model, "--tokens", &tokens, "--out", &out];
    let recorded = [&logits[..], &["--record", &record, "--simd", "scalar"]].concat();
    let output = xtask_under(&[("DS4_CUDA_MOE_NO_ATOMIC_DOWN", "1")], &recorded);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "quiet in a pipe");
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path("r.json")).unwrap()).unwrap();
    let switches = &record["switches"];
    assert_eq!(switches.as_object().unwrap().len(), 5);
    assert_eq!(switches["moe-down"]["value"], "ordered");
    assert_eq!(switches["moe-down"]["source"]["name"], "DS4_CUDA_MOE_NO_ATOMIC_DOWN");
    assert_eq!(switches["simd"]["source"]["kind"], "option");
    assert_eq!((&record["profile"], &record["prompt_tokens"]), (&"ds4".into(), &2.into()));
    let over = [&logits[..], &["--record", &out]].concat();
    refused(&[], &over, &["--record", "is in use already"]);
}
