//! What goes to standard output and to standard error.
//!
//! Promises: text is written in whole characters, flushed after every round, without the token that
//! stopped it; all of it together is the text of the report. A reader that went away is
//! [`Failure::Closed`]; nobody listening on standard error is no failure.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use engine::decode::End;
use engine::format::Tokenizer;
use engine::format::tokenizer::StreamDecoder;

use crate::error::{Failure, Result};

/// A line on standard error.
pub fn note(line: fmt::Arguments<'_>) {
    // Nobody may be listening, and then there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

/// A warning on standard error.
pub fn warn(line: fmt::Arguments<'_>) {
    note(format_args!("warning: {line}"));
}

/// Writes and flushes standard output.
pub fn write(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Text as it is generated.
pub struct Text<'t> {
    tokenizer: &'t Tokenizer,
    decoder: StreamDecoder,
    text: String,
    stream: bool,
}

impl<'t> Text<'t> {
    /// Empty text; with `stream` it is written as it comes.
    pub fn new(tokenizer: &'t Tokenizer, stream: bool) -> Self {
        Self { tokenizer, decoder: StreamDecoder::new(), text: String::new(), stream }
    }

    /// Adds what a round emitted.
    pub fn push(&mut self, emitted: &[u32], end: Option<End>) -> Result<()> {
        let text = match end {
            Some(End::Stop(_)) => &emitted[..emitted.len() - 1],
            _ => emitted,
        };
        let mut new = String::new();
        for id in text {
            new += &self.decoder.push(self.tokenizer, *id)?;
        }
        self.add(&new)
    }

    fn add(&mut self, new: &str) -> Result<()> {
        self.text += new;
        if self.stream && !new.is_empty() { write(new) } else { Ok(()) }
    }

    /// Ends the text; on a terminal with a line end.
    pub fn finish(mut self) -> Result<String> {
        let rest = std::mem::take(&mut self.decoder).finish();
        self.add(&rest)?;
        if self.stream && io::stdout().is_terminal() {
            write("\n")?;
        }
        Ok(self.text)
    }
}
