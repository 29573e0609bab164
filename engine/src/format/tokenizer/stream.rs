//! Text as it is generated, token by token.
//!
//! Promises: what comes out is whole characters, and all of it together is what
//! [`Tokenizer::decode`] makes of the same ids. Holds at most three bytes back.

use super::Tokenizer;
use crate::error::Result;

/// Collects bytes of tokens until they make characters.
#[derive(Clone, Debug, Default)]
pub struct StreamDecoder {
    /// The beginning of a character.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder at the beginning of a text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The characters that `id` completes, possibly none.
    ///
    /// # Errors
    /// Refuses an id outside the vocabulary and then keeps its state.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        self.pending.extend_from_slice(tokenizer.token_bytes(id)?);
        let whole = whole_characters(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..whole]).into_owned();
        self.pending.drain(..whole);
        Ok(text)
    }

    /// Ends the text: U+FFFD if a character is still incomplete, else nothing.
    #[must_use]
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// How many bytes come before an incomplete character at the end. Bytes that can never become a
/// character count as complete.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut done = 0;
    loop {
        match std::str::from_utf8(&bytes[done..]) {
            Ok(_) => return bytes.len(),
            Err(error) => {
                done += error.valid_up_to();
                match error.error_len() {
                    Some(invalid) => done += invalid,
                    None => return done,
                }
            }
        }
    }
}
