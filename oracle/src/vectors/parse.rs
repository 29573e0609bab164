//! Bytes to vectors, and every way in which that is refused.
//!
//! Promises: no input panics; every refusal names file and line, and field and value where there is one.
//! Line ends may be LF or CR LF. Memory is at most a few times the input: nothing is reserved from a number
//! that the input states.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{
    Case, NoProbabilities, STEPS_MAX, Step, TOKEN_BYTES_MAX, TOPS_MAX, Top, Vectors, sane,
};

/// A refusal, with its place.
#[derive(Debug)]
pub struct VectorError {
    path: PathBuf,
    line: usize,
    problem: Problem,
}

impl VectorError {
    pub(super) fn new(path: &Path, line: usize, problem: Problem) -> Self {
        Self { path: path.to_path_buf(), line, problem }
    }

    /// The line, from 1; 0 when it is about the whole file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.problem),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.problem),
        }
    }
}

impl std::error::Error for VectorError {}

/// What is wrong with a file of vectors.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be read.
    #[error("{problem}")]
    Unreadable {
        /// What the system says.
        problem: String,
    },
    /// A line is not text.
    #[error("not UTF-8")]
    NotText,
    /// A line begins with another word than a record.
    #[error("record {word:?}: must be case, step, top or end")]
    Record {
        /// The word.
        word: String,
    },
    /// A record stands where it may not.
    #[error("{record}: must be followed or preceded otherwise: {rule}")]
    Place {
        /// The record.
        record: &'static str,
        /// Where it may stand.
        rule: &'static str,
    },
    /// A field is missing.
    #[error("{field}: missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// There is more on the line than the record has fields.
    #[error("{value:?}: one field too many")]
    Extra {
        /// What stands there.
        value: String,
    },
    /// A number is none, or outside its range.
    #[error("{field} {value:?}: must be {rule}")]
    Number {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may stand there.
        rule: String,
    },
    /// A token is not bytes in hexadecimal.
    #[error("{field} {value:?}: must be 1 to {TOKEN_BYTES_MAX} bytes in hexadecimal")]
    Hex {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
    },
    /// A number of records is another than stated.
    #[error("{field} {stated}: {found} follow")]
    Count {
        /// The field.
        field: &'static str,
        /// As stated.
        stated: usize,
        /// As found.
        found: usize,
    },
    /// A name or a token is there twice.
    #[error("{field} {value:?}: there already")]
    Twice {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
    },
    /// Log-probabilities of a step that are none.
    #[error("{0}")]
    Probabilities(#[from] NoProbabilities),
    /// The file ends inside a case.
    #[error("case {id:?}: no end")]
    Unended {
        /// Its name.
        id: String,
    },
    /// The file has no case.
    #[error("no case")]
    NoCase,
    /// Vectors that the format cannot hold, say a name with a blank.
    #[error("vectors: what is written would read back otherwise")]
    ReadsBackOtherwise,
    /// A prompt's path leaves the folder of prompts, or no file is there.
    #[error("prompt {path:?}: {problem}")]
    Prompt {
        /// The path.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

type Parsed<T> = Result<T, Problem>;

/// Words of one line.
struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self, field: &'static str) -> Parsed<&'a str> {
        self.0.next().ok_or(Problem::Missing { field })
    }

    fn number(&mut self, field: &'static str, range: (usize, usize)) -> Parsed<usize> {
        let word = self.next(field)?;
        // Digits only: a sign, say, would be taken by the parser of numbers.
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        let number = word.parse().ok().filter(|n| digits && (range.0..=range.1).contains(n));
        number.ok_or_else(|| {
            let rule = format!("a number from {} to {}", range.0, range.1);
            Problem::Number { field, value: shown(word), rule }
        })
    }

    fn token(&mut self, field: &'static str) -> Parsed<Vec<u8>> {
        let word = self.next(field)?;
        let refuse = || Problem::Hex { field, value: shown(word) };
        if !word.len().is_multiple_of(2) || word.len() > 2 * TOKEN_BYTES_MAX {
            return Err(refuse());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pairs = word.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
        pairs.map(byte).collect::<Option<_>>().ok_or_else(refuse)
    }

    fn logprob(&mut self) -> Parsed<f64> {
        let word = self.next("log-probability")?;
        let number = word.parse::<f64>().ok().filter(|x| x.is_finite());
        let number = number.ok_or_else(|| {
            let rule = "a finite number".to_owned();
            Problem::Number { field: "log-probability", value: shown(word), rule }
        })?;
        sane([number])?;
        Ok(number)
    }

    fn end(&mut self) -> Parsed<()> {
        self.0.next().map_or(Ok(()), |word| Err(Problem::Extra { value: shown(word) }))
    }
}

/// As much of a word as an error should hold.
fn shown(word: &str) -> String {
    let mut shown: String = word.chars().take(64).collect();
    if shown.len() < word.len() {
        shown.push('…');
    }
    shown
}

/// A step that is being read.
struct OpenStep {
    step: Step,
    tops: usize,
}

/// A case that is being read.
struct OpenCase {
    case: Case,
    steps: usize,
    step: Option<OpenStep>,
}

impl OpenCase {
    fn close_step(&mut self) -> Parsed<()> {
        let Some(OpenStep { step, tops: stated }) = self.step.take() else { return Ok(()) };
        let found = step.tops.len();
        if found != stated {
            return Err(Problem::Count { field: "tops", stated, found });
        }
        sane(step.tops.iter().map(|top| top.logprob))?;
        self.case.steps.push(step);
        Ok(())
    }

    fn step(&mut self, words: &mut Words<'_>) -> Parsed<()> {
        self.close_step()?;
        let expected = self.case.steps.len();
        if expected == self.steps {
            let (stated, found) = (self.steps, self.steps + 1);
            return Err(Problem::Count { field: "steps", stated, found });
        }
        words.number("step", (expected, expected))?;
        let selected = words.token("selected token")?;
        let tops = words.number("tops", (0, TOPS_MAX))?;
        words.end()?;
        self.step = Some(OpenStep { step: Step { selected, tops: Vec::new() }, tops });
        Ok(())
    }

    fn top(&mut self, words: &mut Words<'_>) -> Parsed<()> {
        let rule = "a top stands below its step";
        let Some(open) = &mut self.step else {
            return Err(Problem::Place { record: "top", rule });
        };
        let top = Top { token: words.token("token")?, logprob: words.logprob()? };
        words.end()?;
        if open.step.tops.len() == open.tops {
            let (stated, found) = (open.tops, open.tops + 1);
            return Err(Problem::Count { field: "tops", stated, found });
        }
        if open.step.tops.iter().any(|other| other.token == top.token) {
            return Err(Problem::Twice { field: "token", value: super::hex(&top.token) });
        }
        open.step.tops.push(top);
        Ok(())
    }

    fn end(mut self) -> Parsed<Case> {
        self.close_step()?;
        let (stated, found) = (self.steps, self.case.steps.len());
        if found != stated {
            return Err(Problem::Count { field: "steps", stated, found });
        }
        Ok(self.case)
    }
}

fn open_case(words: &mut Words<'_>, before: &[Case]) -> Parsed<OpenCase> {
    let id = words.next("name")?.to_owned();
    let context = words.number("context", (1, 1 << 30))?;
    let steps = words.number("steps", (1, STEPS_MAX))?;
    let prompt = words.next("prompt file")?.to_owned();
    words.end()?;
    if before.iter().any(|case| case.id == id) {
        return Err(Problem::Twice { field: "case", value: shown(&id) });
    }
    let case = Case { id, context, prompt, steps: Vec::new() };
    Ok(OpenCase { case, steps, step: None })
}

fn line(line: &str, open: &mut Option<OpenCase>, cases: &mut Vec<Case>) -> Parsed<()> {
    let mut words = Words(line.split_ascii_whitespace());
    let Some(word) = words.0.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
    match (word, open.as_mut()) {
        ("case", None) => *open = Some(open_case(&mut words, cases)?),
        ("case", Some(_)) => {
            let rule = "a case begins after the end of the one before";
            return Err(Problem::Place { record: "case", rule });
        }
        ("step", Some(case)) => case.step(&mut words)?,
        ("top", Some(case)) => case.top(&mut words)?,
        ("end", Some(_)) => {
            words.end()?;
            if let Some(case) = open.take() {
                cases.push(case.end()?);
            }
        }
        ("step", None) => {
            return Err(Problem::Place { record: "step", rule: "a step stands in a case" });
        }
        ("top", None) => {
            return Err(Problem::Place { record: "top", rule: "a top stands below its step" });
        }
        ("end", None) => {
            return Err(Problem::Place { record: "end", rule: "an end ends a case" });
        }
        _ => return Err(Problem::Record { word: shown(word) }),
    }
    Ok(())
}

pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Vectors, VectorError> {
    let (mut open, mut cases, mut last) = (None, Vec::new(), 0);
    for (index, bytes) in bytes.split(|byte| *byte == b'\n').enumerate() {
        last = index + 1;
        let at = |problem| VectorError::new(path, last, problem);
        let text = std::str::from_utf8(bytes).map_err(|_| at(Problem::NotText))?;
        line(text, &mut open, &mut cases).map_err(at)?;
    }
    if let Some(open) = open {
        return Err(VectorError::new(path, last, Problem::Unended { id: shown(&open.case.id) }));
    }
    if cases.is_empty() {
        return Err(VectorError::new(path, 0, Problem::NoCase));
    }
    Ok(Vectors { cases })
}

#[cfg(test)]
mod tests;
