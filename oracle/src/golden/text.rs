//! The text of a golden: a snapshot file in the format of the `insta` crate.
//!
//! Promises: [`parse`] accepts only what [`render`] writes, to the byte, once the payload is there; an
//! error names line and value. The header is YAML between dashes with the keys of insta; `description` is
//! the note, the only line that is not compared. Every other character is printable ASCII, so there is
//! nothing that a locale or an editor reads in another way.

use super::{Golden, MadeFrom, Step, TapDigest, Tensors};
use crate::digest;

const SOURCE: &str = "source: oracle/src/suites/goldens.rs";
/// Opens the last line, so that a change of any byte is seen, also of one that nothing is compared with.
const SEAL: &str = "text before this line: sha256 ";
const TABLE: &str = "step id logit runner-up margin row";

/// Who let a golden in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nobody yet.
    Waiting {
        /// Digest of the accepted text that was there when this golden was made.
        replaces: Option<String>,
    },
    /// Somebody who gave this reason.
    Reason(String),
}

impl Note {
    fn render(&self) -> String {
        match self {
            Self::Waiting { replaces: None } => "waiting: replaces none".into(),
            Self::Waiting { replaces: Some(sha256) } => format!("waiting: replaces {sha256}"),
            Self::Reason(reason) => format!("accepted: {reason}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split_once(": ")? {
            ("accepted", reason) => Some(Self::Reason(reason.to_owned())),
            ("waiting", "replaces none") => Some(Self::Waiting { replaces: None }),
            ("waiting", rest) => {
                Some(Self::Waiting { replaces: Some(rest.strip_prefix("replaces ")?.to_owned()) })
            }
            _ => None,
        }
    }
}

fn quoted(value: &str) -> String {
    // YAML reads JSON strings.
    serde_json::Value::from(value).to_string()
}

/// The file of a golden.
#[must_use]
pub fn render(golden: &Golden, note: &Note) -> String {
    let command = format!("cargo xtask verify --goldens --case golden/{}", golden.case);
    let mut lines = vec![
        "---".to_owned(),
        SOURCE.to_owned(),
        format!("description: {}", quoted(&note.render())),
        format!("expression: {}", quoted(&command)),
        "info:".to_owned(),
        format!("  case: {}", quoted(&golden.case)),
    ];
    let fields = golden.made_from.fields();
    lines.extend(fields.map(|(name, value)| format!("  {name}: {}", quoted(value))));
    lines.push("---".to_owned());
    let payload = golden.tensors.to_bytes();
    let sha256 = digest::of_bytes(&payload);
    lines.push(format!("payload: {} bytes, sha256 {sha256}", payload.len()));
    let positions: Vec<String> = golden.tensors.positions.iter().map(usize::to_string).collect();
    lines.push(format!("logits kept after positions: {}", positions.join(" ")));
    lines.extend(golden.tensors.arrays.iter().map(super::Tensor::line));
    lines.push(String::new());
    lines.push(format!("logits of the prompt: {}", golden.prompt_logits));
    lines.extend(golden.taps.iter().map(|tap| format!("{}: {}", tap.name, tap.sha256)));
    lines.push(String::new());
    lines.push(TABLE.to_owned());
    for (index, step) in golden.steps.iter().enumerate() {
        let Step { id, logit, runner_up, margin, row } = step;
        lines.push(format!("{index} {id} {logit:08x} {runner_up} {margin} {row}"));
    }
    lines.push(format!("{} - - - - {}", golden.steps.len(), golden.last_row));
    lines.push(String::new());
    let text = lines.join("\n") + "\n";
    let sha256 = digest::of_bytes(text.as_bytes());
    format!("{text}{SEAL}{sha256}\n")
}

/// A golden without its payload's arrays.
pub struct Parsed {
    /// The rest of it.
    pub golden: Golden,
    /// Who let it in.
    pub note: Note,
    /// Digest of the payload file.
    pub payload: String,
}

/// Lines, and which one is next.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.number += 1;
        self.lines.next().ok_or_else(|| format!("ends before line {}", self.number))
    }

    fn wrong<T>(&self, line: &str, wanted: &str) -> Result<T, String> {
        Err(format!("line {}: {line:?}: must be {wanted}", self.number))
    }

    fn exactly(&mut self, wanted: &str) -> Result<(), String> {
        match self.next()? {
            line if line == wanted => Ok(()),
            line => self.wrong(line, &format!("{wanted:?}")),
        }
    }

    /// What follows `prefix`.
    fn after(&mut self, prefix: &str) -> Result<&'a str, String> {
        let line = self.next()?;
        line.strip_prefix(prefix).map_or_else(|| self.wrong(line, &format!("{prefix:?} ...")), Ok)
    }

    fn string(&mut self, key: &str) -> Result<String, String> {
        let value = self.after(&format!("{key}: "))?;
        serde_json::from_str(value).or_else(|_| self.wrong(value, "a quoted string"))
    }
}

/// Refuses a text that somebody has edited.
fn sealed(text: &str) -> Result<(), String> {
    let Some((before, after)) = text.rsplit_once(SEAL) else {
        return Err(format!("ends without the line \"{SEAL}DIGEST\""));
    };
    let (found, sealed) = (digest::of_bytes(before.as_bytes()), after.trim_end());
    if found == sealed {
        return Ok(());
    }
    Err(format!("edited: sha256 {found} before the last line, which says {sealed}"))
}

/// Reads the text of a golden.
///
/// # Errors
/// Names line and value.
pub fn parse(text: &str) -> Result<Parsed, String> {
    sealed(text)?;
    let mut lines = Lines { lines: text.lines(), number: 0 };
    lines.exactly("---")?;
    lines.exactly(SOURCE)?;
    let note = lines.string("description")?;
    let Some(note) = Note::parse(&note) else {
        return lines.wrong(&note, "\"accepted: REASON\" or \"waiting: replaces DIGEST\"");
    };
    lines.string("expression")?;
    lines.exactly("info:")?;
    let case = lines.string("  case")?;
    let made_from = MadeFrom {
        contract: lines.string("  contract")?,
        model: lines.string("  model")?,
        profile: lines.string("  profile")?,
        prompt: lines.string("  prompt")?,
        steps: lines.string("  steps")?,
    };
    lines.exactly("---")?;
    let payload = lines.after("payload: ")?;
    let Some((_, payload)) = payload.split_once(" bytes, sha256 ") else {
        return lines.wrong(payload, "N bytes, sha256 DIGEST");
    };
    if payload.len() != 64 || !payload.bytes().all(|b| b.is_ascii_hexdigit()) {
        return lines.wrong(payload, "64 hexadecimal digits");
    }
    let listed = lines.after("logits kept after positions: ")?;
    let Ok(positions) = listed.split(' ').map(str::parse).collect() else {
        return lines.wrong(listed, "positions");
    };
    // What is said of each array is compared once the payload is there.
    while !lines.next()?.is_empty() {}
    let prompt_logits = lines.after("logits of the prompt: ")?.to_owned();
    let mut taps = Vec::new();
    loop {
        match lines.next()? {
            "" => break,
            line => match line.split_once(": ") {
                Some((name, sha256)) => {
                    taps.push(TapDigest { name: name.into(), sha256: sha256.into() });
                }
                None => return lines.wrong(line, "PLACE TAP: DIGEST"),
            },
        }
    }
    let (steps, last_row) = table(&mut lines)?;
    let tensors = Tensors { positions, arrays: Vec::new() };
    let golden = Golden { case, made_from, prompt_logits, taps, steps, last_row, tensors };
    Ok(Parsed { golden, note, payload: payload.to_owned() })
}

fn table(lines: &mut Lines<'_>) -> Result<(Vec<Step>, String), String> {
    lines.exactly(TABLE)?;
    let mut steps = Vec::new();
    loop {
        let line = lines.next()?;
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, id, logit, runner_up, margin, row] = fields[..] else {
            return lines.wrong(line, "six fields");
        };
        if id == "-" {
            return Ok((steps, row.to_owned()));
        }
        let numbers = (id.parse(), u32::from_str_radix(logit, 16), runner_up.parse());
        let (Ok(id), Ok(logit), Ok(runner_up)) = numbers else {
            return lines.wrong(line, "STEP ID BITS ID MARGIN DIGEST");
        };
        if margin.parse::<f32>().is_err() {
            return lines.wrong(line, "a margin that is a number");
        }
        steps.push(Step { id, logit, runner_up, margin: margin.into(), row: row.into() });
    }
}
