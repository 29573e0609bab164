//! Refusals of the tokenizer.
//!
//! Promises: one variant per refusal, with the metadata key, line or id and the value at fault.
//! Assumes nothing. Leaves the name of the file to [`crate::Error`].

/// Why a vocabulary cannot make a tokenizer, or why ids cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A metadata key that the tokenizer needs is absent.
    #[error("{key}: missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A metadata key holds another type than the one that is read.
    #[error("{key}: expected {expected}, found {found}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// The type that is read.
        expected: &'static str,
        /// The type in the file.
        found: &'static str,
    },
    /// The tokenizer is not a byte-level BPE.
    #[error("tokenizer.ggml.model: {model:?} is not supported, only \"gpt2\"")]
    UnsupportedModel {
        /// The name in the file.
        model: String,
    },
    /// The rules that split text before merging are not those of DeepSeek-V4.
    #[error("tokenizer.ggml.pre: {pre:?} is not supported, only \"joyai-llm\"")]
    UnsupportedPreTokenizer {
        /// The name in the file.
        pre: String,
    },
    /// More tokens than any vocabulary that this engine is made for.
    #[error("tokenizer.ggml.tokens: {count} tokens, at most {most} are supported")]
    TooManyTokens {
        /// How many the file has.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The vocabulary has another size than the model's embedding.
    #[error("deepseek4.vocab_size: {vocab_size}, but tokenizer.ggml.tokens has {tokens} entries")]
    VocabularySize {
        /// The size that the model declares.
        vocab_size: u64,
        /// How many tokens the file has.
        tokens: usize,
    },
    /// Two ids have the same text.
    #[error("tokenizer.ggml.tokens: {token:?} is both id {first} and id {second}")]
    DuplicateToken {
        /// The text.
        token: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// There is not one type per token.
    #[error("tokenizer.ggml.token_type: {types} entries for {tokens} tokens")]
    TokenTypeCount {
        /// How many types the file has.
        types: usize,
        /// How many tokens the file has.
        tokens: usize,
    },
    /// A token type that the format does not define.
    #[error("tokenizer.ggml.token_type: id {id} has unknown type {value}")]
    UnknownTokenType {
        /// The token.
        id: u32,
        /// Its type in the file.
        value: i32,
    },
    /// A byte has no token, so some text could not be encoded.
    #[error("tokenizer.ggml.tokens: no token for byte {byte:#04x} ({token:?})")]
    MissingByte {
        /// The byte.
        byte: u8,
        /// The text that its token would have.
        token: String,
    },
    /// A token that chat rendering needs is absent.
    #[error("tokenizer.ggml.tokens: special token {token:?} is missing")]
    MissingSpecial {
        /// Its text.
        token: &'static str,
    },
    /// The file gives another id for a special token than its text has in the vocabulary.
    #[error("{key}: {value}, but {token:?} is id {id}")]
    SpecialIdMismatch {
        /// The key.
        key: &'static str,
        /// The id it gives.
        value: u64,
        /// The text of the special token.
        token: &'static str,
        /// Its id in the vocabulary.
        id: u32,
    },
    /// A merge is not two texts with one space between them.
    #[error("tokenizer.ggml.merges: line {rank} {line:?} is not two parts with one space between")]
    MalformedMerge {
        /// Its index, which is also its rank.
        rank: usize,
        /// The line.
        line: String,
    },
    /// A merge joins a text that is not a token.
    #[error("tokenizer.ggml.merges: line {rank} {line:?} joins {part:?}, which is not a token")]
    UnknownMergePart {
        /// Its index, which is also its rank.
        rank: usize,
        /// The line.
        line: String,
        /// The part that is not a token.
        part: String,
    },
    /// A merge makes a text that is not a token.
    #[error("tokenizer.ggml.merges: line {rank} {line:?} makes {result:?}, which is not a token")]
    UnknownMergeResult {
        /// Its index, which is also its rank.
        rank: usize,
        /// The line.
        line: String,
        /// What it makes.
        result: String,
    },
    /// A merge makes a special token, so that plain text could forge it.
    #[error("tokenizer.ggml.merges: line {rank} {line:?} makes a special token")]
    MergeMakesSpecial {
        /// Its index, which is also its rank.
        rank: usize,
        /// The line.
        line: String,
    },
    /// The same pair has two ranks.
    #[error("tokenizer.ggml.merges: line {rank} {line:?} repeats line {first}")]
    DuplicateMerge {
        /// Its index, which is also its rank.
        rank: usize,
        /// The line.
        line: String,
        /// Where the pair stood first.
        first: usize,
    },
    /// An id outside the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab_size} tokens")]
    UnknownId {
        /// The id.
        id: u32,
        /// How many ids there are.
        vocab_size: usize,
    },
}
