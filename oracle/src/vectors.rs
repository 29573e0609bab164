//! Vectors of ds4's `official.vec` format: what an official service answered, token by token.
//!
//! Promises: a file is read whole or refused with file, line, field and value; what is written reads back
//! as the same vectors. [`compare()`] feeds the official tokens at every step, so one disagreement is counted
//! once, judges each by its measured gap (`margin`), and never leaves a case out in silence.
//! Assumes nothing about ids: tokens are bytes, and a vocabulary finds its own.
//!
//! The format, one record a line, words separated by blanks, `#` begins a comment line:
//!
//! ```text
//! case <name> <context> <steps> <prompt file>
//! step <index> <token> <tops>
//! top <token> <log-probability>
//! end
//! ```
//!
//! Tokens are bytes in hexadecimal. At most 16 steps a case, 32 tops a step, 128 bytes a token.

mod compare;
mod parse;
mod prompt;
mod tokens;

pub use compare::{
    CaseResult, Comparison, Encode, Request, Setting, StepResult, compare, teacher_forced,
};
pub use parse::{Problem, VectorError};
pub use prompt::{Prompts, chat_prompt, plain_prompt};
pub use tokens::Tokens;

use std::fmt::Write as _;
use std::path::Path;

use engine::format::Tokenizer;
use engine::rows::Rows;
use engine::sampler::{Logprobs, argmax};

/// Most steps of a case.
pub const STEPS_MAX: usize = 16;
/// Most tops of a step.
pub const TOPS_MAX: usize = 32;
/// Most bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 128;

/// By how much log-probabilities may add up to more than 1: they were f32 once, of a magnitude below 128,
/// where one ulp is 2^-17, and exponentials turn that into a relative difference.
const ROUNDING: f64 = 1.0 / 65_536.0;

/// A token and the logarithm of its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// Its bytes.
    pub token: Vec<u8>,
    /// At most 0.
    pub logprob: f64,
}

/// What was answered after the tokens before.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Bytes of the token that was chosen.
    pub selected: Vec<u8>,
    /// The most likely tokens.
    pub tops: Vec<Top>,
}

/// A prompt and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The name.
    pub id: String,
    /// Context it was run with.
    pub context: usize,
    /// The prompt's file, as the vectors name it.
    pub prompt: String,
    /// The answer.
    pub steps: Vec<Step>,
}

/// A file of cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    /// The cases in order.
    pub cases: Vec<Case>,
}

/// Why log-probabilities are none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NoProbabilities {
    /// One is above 0, or not a number.
    #[error("log-probability {value} is not a number of at most 0")]
    Above {
        /// The value.
        value: f64,
    },
    /// They add up to more than 1.
    #[error("probabilities add up to {total}, more than 1")]
    Total {
        /// Their sum.
        total: f64,
    },
}

/// Whether these can be log-probabilities of different tokens: none above 0, together at most 1.
///
/// # Errors
/// Says what is wrong.
pub fn sane(logprobs: impl IntoIterator<Item = f64>) -> Result<(), NoProbabilities> {
    let mut total = 0.0;
    for value in logprobs {
        if !value.is_finite() || value > 0.0 {
            return Err(NoProbabilities::Above { value });
        }
        // ORDER: as given; it decides whether input is refused, no result.
        total += libm::exp(value);
    }
    if total > 1.0 + ROUNDING {
        return Err(NoProbabilities::Total { total });
    }
    Ok(())
}

impl Case {
    /// A case whose answer is the greedy choice of each of these rows of logits, with its most likely tokens.
    ///
    /// # Errors
    /// In words, when a row has no choice or a token is outside the vocabulary.
    pub fn from_logits(
        (id, context, prompt): (&str, usize, &str),
        tokenizer: &Tokenizer,
        logits: &Rows,
        tops: usize,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let bytes = |id: u32| match tokenizer.token_bytes(id) {
            Ok(bytes) => Ok(bytes.to_vec()),
            Err(error) => Err(text(&error)),
        };
        let mut steps = Vec::new();
        for (step, row) in logits.iter().enumerate() {
            let selected = bytes(argmax(row, step).map_err(|error| text(&error))?)?;
            let logprobs = Logprobs::of(row, step).map_err(|error| text(&error))?;
            let top = |top: engine::sampler::Logprob| {
                Ok(Top { token: bytes(top.id)?, logprob: top.logprob })
            };
            let tops = logprobs.top(tops).into_iter().map(top).collect::<Result<_, String>>()?;
            steps.push(Step { selected, tops });
        }
        Ok(Self { id: id.to_owned(), context, prompt: prompt.to_owned(), steps })
    }
}

impl Vectors {
    /// Reads a file.
    ///
    /// # Errors
    /// Names file, line, field and value.
    pub fn open(path: &Path) -> Result<Self, VectorError> {
        let bytes = std::fs::read(path).map_err(|error| {
            VectorError::new(path, 0, Problem::Unreadable { problem: error.to_string() })
        })?;
        Self::parse(&bytes, path)
    }

    /// Reads the bytes of a file; `path` is what errors name.
    ///
    /// # Errors
    /// Names file, line, field and value.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, VectorError> {
        parse::parse(bytes, path)
    }

    /// The text of a file that reads back as these vectors.
    ///
    /// # Errors
    /// When they hold something that the format has no place for; `path` is what errors name.
    pub fn to_text(&self, path: &Path) -> Result<String, VectorError> {
        let mut text = String::from(
            "# case <id> <ctx> <steps> <prompt-file>\n\
             # step <index> <selected-hex> <top-count>\n\
             # top <token-hex> <logprob>\n",
        );
        let put = "a string takes everything";
        for case in &self.cases {
            let Case { id, context, prompt, steps } = case;
            write!(text, "\ncase {id} {context} {} {prompt}\n", steps.len()).expect(put);
            for (index, step) in steps.iter().enumerate() {
                let (selected, tops) = (hex(&step.selected), step.tops.len());
                writeln!(text, "step {index} {selected} {tops}").expect(put);
                for top in &step.tops {
                    writeln!(text, "top {} {}", hex(&top.token), top.logprob).expect(put);
                }
            }
            text.push_str("end\n");
        }
        let back = Self::parse(text.as_bytes(), path)?;
        if back == *self {
            return Ok(text);
        }
        Err(VectorError::new(path, 0, Problem::ReadsBackOtherwise))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
