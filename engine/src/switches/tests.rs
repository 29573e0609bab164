//! Tests of the table of switches; the process environment is never touched.

use super::*;

fn read(variables: &[(&str, &str)], options: &[(&str, &str)]) -> Result<Switches, SwitchError> {
    let quality = options.iter().any(|(option, _)| *option == QUALITY);
    let options = options.iter().filter(|(option, _)| *option != QUALITY);
    let options = options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let environment = variables.iter().map(|(name, value)| (name.into(), value.into()));
    Switches::read(environment, &CommandLine { options, quality })
}

fn refused(variables: &[(&str, &str)], options: &[(&str, &str)], words: &[&str]) {
    let text = read(variables, options).unwrap_err().to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

#[test]
fn defaults_move_no_bit() {
    let switches = read(&[("PATH", "x"), ("DS4_OTHER", "1"), ("lockstep", "1")], &[]).unwrap();
    assert!(switches.entries().iter().all(|entry| entry.source == Source::Default));
    assert_eq!(switches.moe_down.value, MoeDown::Ordered);
    assert_eq!(switches.atomic_threshold.value, 128);
    assert!(!switches.mtp_strict.value);
    assert_eq!(switches.simd.value, Simd::Auto);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(switches.threads.value, cores.min(THREADS_MAX));
}

#[test]
fn every_source_of_every_row_is_read_and_named() {
    let words = |row: &Row| -> Vec<(String, Value)> {
        match row.values {
            Values::Words(words) => words.iter().map(|w| ((*w).into(), Value::Word(w))).collect(),
            Values::Flag => vec![("0".into(), Value::Flag(false)), ("1".into(), Value::Flag(true))],
            Values::Count { least, most } => {
                [least, 7, most].map(|count| (count.to_string(), Value::Count(count))).into()
            }
        }
    };
    let seen = |switches: Switches, row: &Row| {
        let entry = switches.entries().into_iter().find(|entry| entry.row == row).unwrap();
        (entry.value, entry.source)
    };
    for row in TABLE {
        for (text, value) in words(row) {
            let switches = read(&[(row.variable, &text)], &[]).unwrap();
            assert_eq!(seen(switches, row), (value, Source::Variable(row.variable)));
            let switches = read(&[], &[(row.option, &text)]).unwrap();
            assert_eq!(seen(switches, row), (value, Source::Option(row.option)));
        }
        for alias in row.aliases {
            for text in ["1", "yes", "no", "00", " "] {
                let switches = read(&[(alias.name, text)], &[]).unwrap();
                assert_eq!(seen(switches, row), (alias.means, Source::Alias(alias.name)));
            }
            for text in ["", "0"] {
                let switches = read(&[(alias.name, text)], &[]).unwrap();
                assert_eq!(seen(switches, row).1, Source::Default, "{text:?} says nothing");
            }
        }
        if let Some(value) = row.quality {
            let switches = read(&[], &[(QUALITY, "")]).unwrap();
            assert_eq!(seen(switches, row), (value, Source::Preset(QUALITY)));
        }
    }
}

#[test]
fn quality_is_ordered_and_strict() {
    let loose = [("LOCKSTEP_MOE_DOWN", "atomic"), ("LOCKSTEP_MTP_STRICT", "0")];
    let switches = read(&loose, &[(QUALITY, "")]).unwrap();
    assert_eq!(switches.moe_down.value, MoeDown::Ordered);
    assert!(switches.mtp_strict.value);
    assert_eq!(switches.threads.source, Source::Default);
}

#[test]
fn the_command_line_beats_the_preset_the_preset_variables_and_variables_aliases() {
    let alias = ("DS4_CUDA_MOE_ATOMIC_DOWN", "1");
    let variable = ("LOCKSTEP_MOE_DOWN", "atomic");
    let source = |variables: &[_], options: &[_]| read(variables, options).unwrap().moe_down;
    let both = source(&[alias, variable], &[]);
    assert_eq!(both.source, Source::Variable("LOCKSTEP_MOE_DOWN"));
    let preset = source(&[alias, variable], &[(QUALITY, "")]);
    assert_eq!((preset.value, preset.source), (MoeDown::Ordered, Source::Preset(QUALITY)));
    let option = source(&[alias, variable], &[("--moe-down", "ordered")]);
    assert_eq!((option.value, option.source), (MoeDown::Ordered, Source::Option("--moe-down")));
    let all = source(&[alias], &[(QUALITY, ""), ("--moe-down", "ordered")]);
    assert_eq!(all.source, Source::Option("--moe-down"));
}

#[test]
fn contradictions_name_both_sources() {
    let both = [("DS4_CUDA_MOE_ATOMIC_DOWN", "1"), ("DS4_CUDA_MOE_NO_ATOMIC_DOWN", "1")];
    let names = [both[0].0, both[1].0];
    refused(&both, &[], &["moe-down: ", names[0], names[1], "says atomic", "says ordered"]);
    refused(&[both[1], both[0]], &[], &names);
    refused(&both, &[("--moe-down", "ordered")], &names);
    refused(&both, &[(QUALITY, "")], &names);
    assert!(read(&[both[0], ("DS4_CUDA_MOE_NO_ATOMIC_DOWN", "0")], &[]).is_ok());
    let variable = ("LOCKSTEP_MOE_DOWN", "ordered");
    refused(&[variable, both[0]], &[], &[variable.0, both[0].0]);
    assert!(read(&[variable, both[1]], &[]).is_ok());
    refused(
        &[("LOCKSTEP_MTP_STRICT", "0"), ("DS4_MTP_STRICT", "1")],
        &[],
        &["mtp-strict: variable LOCKSTEP_MTP_STRICT says 0, but alias DS4_MTP_STRICT says 1"],
    );
    refused(
        &[],
        &[(QUALITY, ""), ("--moe-down", "atomic")],
        &["moe-down: option --moe-down says atomic, but preset --quality says ordered"],
    );
    refused(&[], &[(QUALITY, ""), ("--mtp-strict", "0")], &["--quality", "--mtp-strict"]);
    refused(&[], &[("--simd", "avx2"), ("--simd", "scalar")], &["--simd", "avx2", "scalar"]);
    refused(&[("LOCKSTEP_SIMD", "avx2"), ("LOCKSTEP_SIMD", "scalar")], &[], &["LOCKSTEP_SIMD"]);
}

#[test]
fn unknown_names_are_errors_that_name_the_nearest() {
    for (name, nearest) in [
        ("LOCKSTEP_MOE_DWON", "LOCKSTEP_MOE_DOWN"),
        ("LOCKSTEP_THREAD", "LOCKSTEP_THREADS"),
        ("LOCKSTEP_moe_down", "LOCKSTEP_MOE_DOWN"),
        ("LOCKSTEP_moe_atomicrows", "LOCKSTEP_MOE_ATOMIC_ROWS"),
        ("LOCKSTEP_MTPSTRICT", "LOCKSTEP_MTP_STRICT"),
        ("LOCKSTEP_MOE_ATOMIC_ROW", "LOCKSTEP_MOE_ATOMIC_ROWS"),
        ("LOCKSTEP_SIMDX", "LOCKSTEP_SIMD"),
    ] {
        let text = read(&[(name, "1")], &[]).unwrap_err().to_string();
        assert_eq!(text, format!("{name}: no such switch; the nearest name is {nearest}"));
        assert!(read(&[(name, "1")], &[(QUALITY, "")]).is_err(), "never ignored");
    }
    refused(&[("LOCKSTEP_", "")], &[], &["LOCKSTEP_:"]);
    refused(&[], &[("--moe-don", "atomic")], &["--moe-don:", "--moe-down"]);
}

#[test]
fn values_that_a_switch_does_not_have_are_errors_that_name_both() {
    for (row, texts) in [
        (&MOE_DOWN, &["", "Ordered", "atomic ", "1"][..]),
        (&MOE_ATOMIC_ROWS, &["", "0", "-1", "+1", "1.0", "4294967296", "99999999999999999999"]),
        (&MTP_STRICT, &["", "true", "2", "01"]),
        (&THREADS, &["0", "1025", "four", " 4", "\u{664}"]),
        (&SIMD, &["", "avx", "neon"]),
    ] {
        for text in texts {
            let values = row.values.to_string();
            refused(&[(row.variable, text)], &[], &[row.variable, &format!("{text:?}"), &values]);
            refused(&[], &[(row.option, text)], &[row.option, &format!("{text:?}"), &values]);
            let good = row.default.unwrap_or(Value::Count(1)).to_string();
            let overruled = read(&[(row.variable, text)], &[(row.option, &good)]);
            assert!(overruled.is_err(), "a bad variable is an error whatever wins");
        }
    }
}

#[cfg(unix)]
#[test]
fn text_that_is_not_utf_8_is_an_error_in_names_and_values() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let refused = |name: &[u8], value: &[u8], word: &str| {
        let variable = (bytes(name), bytes(value));
        let text = Switches::read([variable], &CommandLine::default()).unwrap_err().to_string();
        assert!(text.contains(word), "{text}");
    };
    refused(b"LOCKSTEP_MOE_DOWN", b"ordered\xff", "LOCKSTEP_MOE_DOWN: \"ordered\u{fffd}\"");
    refused(b"DS4_MTP_STRICT", b"\xff", "DS4_MTP_STRICT: \"\u{fffd}\" is not UTF-8");
    refused(b"LOCKSTEP_SIMD\xff", b"auto", "LOCKSTEP_SIMD");
    let other = (bytes(b"OTHER\xff"), bytes(b"\xff"));
    assert!(Switches::read([other], &CommandLine::default()).is_ok(), "not ours");
}

#[test]
fn the_record_has_every_switch_with_value_and_source() {
    let switches = read(
        &[("DS4_CUDA_MOE_ATOMIC_DOWN", "1"), ("LOCKSTEP_THREADS", "3")],
        &[("--mtp-strict", "0"), ("--simd", "scalar")],
    );
    let record = serde_json::to_value(switches.unwrap().record()).unwrap();
    let expected = serde_json::json!({
        "moe-down": {
            "value": "atomic",
            "source": { "kind": "alias", "name": "DS4_CUDA_MOE_ATOMIC_DOWN" },
        },
        "moe-atomic-rows": { "value": 128, "source": { "kind": "default" } },
        "mtp-strict": { "value": false, "source": { "kind": "option", "name": "--mtp-strict" } },
        "threads": { "value": 3, "source": { "kind": "variable", "name": "LOCKSTEP_THREADS" } },
        "simd": { "value": "scalar", "source": { "kind": "option", "name": "--simd" } },
    });
    assert_eq!(record, expected);
    let names: Vec<_> = read(&[], &[]).unwrap().entries().map(|entry| entry.row.name).into();
    assert_eq!(names, TABLE.map(|row| row.name), "the order of the table");
}

#[test]
fn names_follow_one_pattern_and_are_used_once() {
    let mut names = vec![QUALITY];
    for row in TABLE {
        assert_eq!(row.option, format!("--{}", row.name));
        let variable = format!("{PREFIX}{}", row.name.to_uppercase().replace('-', "_"));
        assert_eq!(row.variable, variable);
        names.extend([row.option, row.variable]);
        names.extend(row.aliases.iter().map(|alias| alias.name));
        for value in [row.default, row.quality].into_iter().flatten() {
            assert_eq!(row.values.parse(&value.to_string()), Some(value), "{}", row.name);
        }
        for alias in row.aliases {
            assert!(!alias.name.starts_with(PREFIX));
            assert_eq!(row.values.parse(&alias.means.to_string()), Some(alias.means));
        }
    }
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

/// The documentation lists every row as it is, and no other.
#[test]
fn the_documentation_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/switches.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let expected = TABLE.map(|row| {
        let default = row.default.map_or("those of the machine".into(), |value| value.to_string());
        let quality = row.quality.map_or(String::new(), |value| value.to_string());
        let alias = |alias: &Alias| format!("`{}` ({})", alias.name, alias.means);
        let aliases: Vec<_> = row.aliases.iter().map(alias).collect();
        format!(
            "| `{}` | `{}` | {} | {default} | {quality} | {} | {} |",
            row.option,
            row.variable,
            row.values,
            aliases.join(", "),
            row.what
        )
    });
    assert_eq!(lines, expected, "should be:\n{}", expected.join("\n"));
    assert!(text.contains(QUALITY) && text.contains(PREFIX));
}
