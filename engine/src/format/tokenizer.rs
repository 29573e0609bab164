//! Text to token ids and back: byte-level BPE as DeepSeek-V4 uses it.
//!
//! Promises: a tokenizer is made only from metadata that passed every check, and then encoding
//! cannot fail. The same text has the same ids, whatever was encoded before. Encoding plain text
//! never yields a special token, whatever the text contains; special tokens come only from
//! [`Tokenizer::encode_rendered`] and from `chat`. Decoding the ids of a text gives the text.
//!
//! Rendered text is searched for exactly the eight tokens of [`Special`]: the seven that every file
//! must have, and `<｜latest_reminder｜>` where the vocabulary has it, because the official encoder
//! renders it and its tokenizer recognises it. Other added tokens are ordinary text in both.
//!
//! Leaves to others: reading the file; the order of a chat's tokens; adding
//! `<｜begin▁of▁sentence｜>`, which no function here does.

mod alphabet;
mod error;
mod fields;
mod special;
mod split;
mod stream;
mod vocabulary;

pub use error::TokenizerError;
pub use special::{Special, SpecialTokens};
pub use stream::StreamDecoder;

use tokenizers::Model;

use self::split::Splitter;
use self::vocabulary::Vocabulary;
use crate::error::Result;
use crate::format::Metadata;

/// Text to ids and back.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    splitter: Splitter,
}

impl Tokenizer {
    /// Makes the tokenizer that a model file describes.
    ///
    /// # Errors Refuses metadata that lacks a part, contradicts itself or describes another kind of
    /// tokenizer; [`TokenizerError`] lists every way.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        Ok(Self { vocabulary, splitter: Splitter::new() })
    }

    /// Ids of plain text. What looks like a special token is text like any other.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encode_into(text, &mut ids);
        ids
    }

    /// Ids of rendered chat text: special tokens that stand in it literally are recognised, and the
    /// text between them is plain. Text from users belongs in [`Tokenizer::encode`], or in `chat`.
    #[must_use]
    pub fn encode_rendered(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut rest = text;
        let is_known = |special| self.specials().id(special).is_some();
        while let Some((before, special, after)) = Special::split_first(rest, is_known) {
            self.encode_into(before, &mut ids);
            ids.extend(self.specials().id(special));
            rest = after;
        }
        self.encode_into(rest, &mut ids);
        ids
    }

    /// Appends the ids of plain text.
    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) {
        self.splitter.split(text, &mut |piece| {
            let merged = self
                .vocabulary
                .bpe
                .tokenize(&alphabet::chars_of(piece))
                .expect("a model without an unknown token has nothing to refuse");
            ids.extend(merged.iter().map(|token| token.id));
        });
    }

    /// The text of `ids`, with U+FFFD where their bytes are not UTF-8. Use
    /// [`Tokenizer::decode_bytes`] where every byte counts.
    ///
    /// # Errors
    /// Refuses an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let bytes = self.decode_bytes(ids)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The bytes of `ids`; special tokens give their text.
    ///
    /// # Errors
    /// Refuses an id outside the vocabulary.
    pub fn decode_bytes(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id)?);
        }
        Ok(bytes)
    }

    /// The bytes of one token.
    ///
    /// # Errors
    /// Refuses an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8]> {
        let bytes = usize::try_from(id).ok().and_then(|index| self.vocabulary.bytes.get(index));
        Ok(bytes.ok_or(TokenizerError::UnknownId { id, vocab_size: self.vocab_size() })?)
    }

    /// Ids of the special tokens.
    #[must_use]
    pub fn specials(&self) -> &SpecialTokens {
        &self.vocabulary.specials
    }

    /// How many ids there are; the largest is one less.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocabulary.bytes.len()
    }
}
