//! Tokens and merges of a model file, checked.
//!
//! Promises: behind [`Vocabulary::from_metadata`] every byte has a token, every merge joins two
//! tokens into a third, no merge makes a special token, no two tokens have the same text, and the
//! special tokens are there. Anything else is refused; hostile metadata cannot make it panic.
//!
//! Leaves to others: splitting and merging.

use std::collections::BTreeMap;

use tokenizers::models::bpe::{BPE, Vocab};

use super::TokenizerError;
use super::alphabet;
use super::fields;
use super::special::{Special, SpecialTokens};
use crate::format::Metadata;

/// More tokens than this are refused; DeepSeek-V4 has 129,280.
const TOKENS_MAX: usize = 1 << 20;

/// Token types of the format; the two that mark tokens added after training, and the whole range.
const TYPE_CONTROL: i32 = 3;
const TYPE_USER_DEFINED: i32 = 4;
const TYPES: std::ops::RangeInclusive<i32> = 1..=6;

/// What the metadata says, in the forms that encoding and decoding need.
pub(super) struct Vocabulary {
    /// Per id the bytes that it decodes to.
    pub(super) bytes: Vec<Box<[u8]>>,
    pub(super) specials: SpecialTokens,
    pub(super) bpe: BPE,
}

impl Vocabulary {
    /// Reads and checks the tokenizer's keys.
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Self, TokenizerError> {
        check_kind(metadata)?;
        let tokens = fields::strings(metadata, fields::TOKENS)?;
        check_size(metadata, tokens)?;
        let bytes = token_bytes(tokens, literal_types(metadata, tokens.len())?);
        let ids = ids_by_text(tokens)?;
        check_bytes(&ids)?;
        let specials = find_specials(metadata, &ids)?;
        let merges = read_merges(fields::strings(metadata, fields::MERGES)?, &ids)?;
        Ok(Self { bytes, specials, bpe: build(tokens, merges) })
    }
}

fn check_kind(metadata: &Metadata) -> Result<(), TokenizerError> {
    let model = fields::string(metadata, fields::MODEL)?;
    if model != "gpt2" {
        return Err(TokenizerError::UnsupportedModel { model: model.to_owned() });
    }
    let pre = fields::string(metadata, fields::PRE)?;
    if pre != "joyai-llm" {
        return Err(TokenizerError::UnsupportedPreTokenizer { pre: pre.to_owned() });
    }
    Ok(())
}

fn check_size(metadata: &Metadata, tokens: &[String]) -> Result<(), TokenizerError> {
    if tokens.len() > TOKENS_MAX {
        return Err(TokenizerError::TooManyTokens { count: tokens.len(), most: TOKENS_MAX });
    }
    match fields::optional_unsigned(metadata, fields::VOCAB_SIZE)? {
        Some(vocab_size) if usize::try_from(vocab_size) != Ok(tokens.len()) => {
            Err(TokenizerError::VocabularySize { vocab_size, tokens: tokens.len() })
        }
        _ => Ok(()),
    }
}

/// Per id whether its type says that its text is meant literally; empty if the file has no types.
fn literal_types(metadata: &Metadata, n_tokens: usize) -> Result<Vec<bool>, TokenizerError> {
    let Some(types) = fields::optional_i32s(metadata, fields::TOKEN_TYPE)? else {
        return Ok(Vec::new());
    };
    if types.len() != n_tokens {
        return Err(TokenizerError::TokenTypeCount { types: types.len(), tokens: n_tokens });
    }
    (0..)
        .zip(types)
        .map(|(id, &value)| match value {
            TYPE_CONTROL | TYPE_USER_DEFINED => Ok(true),
            value if TYPES.contains(&value) => Ok(false),
            value => Err(TokenizerError::UnknownTokenType { id, value }),
        })
        .collect()
}

/// Tokens of the training are written in the byte alphabet, tokens added later as they are. The
/// type tells them apart; without types, and for texts that the alphabet cannot write, the text
/// does.
fn token_bytes(tokens: &[String], literal: Vec<bool>) -> Vec<Box<[u8]>> {
    let literal = literal.into_iter().chain(std::iter::repeat(false));
    tokens
        .iter()
        .zip(literal)
        .map(|(token, literal)| {
            let mapped = if literal { None } else { alphabet::bytes_of(token) };
            mapped.unwrap_or_else(|| token.as_bytes().to_vec()).into_boxed_slice()
        })
        .collect()
}

fn ids_by_text(tokens: &[String]) -> Result<BTreeMap<&str, u32>, TokenizerError> {
    let mut ids = BTreeMap::new();
    for (second, token) in (0..).zip(tokens) {
        if let Some(first) = ids.insert(token.as_str(), second) {
            return Err(TokenizerError::DuplicateToken { token: token.clone(), first, second });
        }
    }
    Ok(ids)
}

fn check_bytes(ids: &BTreeMap<&str, u32>) -> Result<(), TokenizerError> {
    for byte in 0..=u8::MAX {
        let token = alphabet::char_of(byte).to_string();
        if !ids.contains_key(token.as_str()) {
            return Err(TokenizerError::MissingByte { byte, token });
        }
    }
    Ok(())
}

fn find_specials(
    metadata: &Metadata,
    ids: &BTreeMap<&str, u32>,
) -> Result<SpecialTokens, TokenizerError> {
    let optional = |special: Special| ids.get(special.text()).copied();
    let find = |special: Special| {
        optional(special).ok_or(TokenizerError::MissingSpecial { token: special.text() })
    };
    let specials = SpecialTokens {
        bos: find(Special::Bos)?,
        eos: find(Special::Eos)?,
        user: find(Special::User)?,
        assistant: find(Special::Assistant)?,
        think: find(Special::Think)?,
        think_end: find(Special::ThinkEnd)?,
        dsml: find(Special::Dsml)?,
        latest_reminder: optional(Special::LatestReminder),
    };
    check_special_id(metadata, fields::BOS_ID, Special::Bos, specials.bos)?;
    check_special_id(metadata, fields::EOS_ID, Special::Eos, specials.eos)?;
    Ok(specials)
}

fn check_special_id(
    metadata: &Metadata,
    key: &'static str,
    special: Special,
    id: u32,
) -> Result<(), TokenizerError> {
    match fields::optional_unsigned(metadata, key)? {
        Some(value) if value != u64::from(id) => {
            Err(TokenizerError::SpecialIdMismatch { key, value, token: special.text(), id })
        }
        _ => Ok(()),
    }
}

/// Both parts of every merge, in order of rank.
fn read_merges(
    lines: &[String],
    ids: &BTreeMap<&str, u32>,
) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut ranks = BTreeMap::new();
    let mut merges = Vec::with_capacity(lines.len());
    for (rank, line) in lines.iter().enumerate() {
        let (left, right) = parse_merge(rank, line)?;
        check_merge(rank, line, left, right, ids)?;
        if let Some(first) = ranks.insert(line.as_str(), rank) {
            return Err(TokenizerError::DuplicateMerge { rank, line: line.clone(), first });
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

fn parse_merge(rank: usize, line: &str) -> Result<(&str, &str), TokenizerError> {
    match line.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left, right))
        }
        _ => Err(TokenizerError::MalformedMerge { rank, line: line.to_owned() }),
    }
}

fn check_merge(
    rank: usize,
    line: &str,
    left: &str,
    right: &str,
    ids: &BTreeMap<&str, u32>,
) -> Result<(), TokenizerError> {
    let line = || line.to_owned();
    if let Some(part) = [left, right].into_iter().find(|part| !ids.contains_key(part)) {
        return Err(TokenizerError::UnknownMergePart { rank, line: line(), part: part.to_owned() });
    }
    let result = [left, right].concat();
    if !ids.contains_key(result.as_str()) {
        return Err(TokenizerError::UnknownMergeResult { rank, line: line(), result });
    }
    if Special::ALL.into_iter().any(|special| special.text() == result) {
        return Err(TokenizerError::MergeMakesSpecial { rank, line: line() });
    }
    Ok(())
}

/// The merging model, without its cache: encoding leaves no state behind.
fn build(tokens: &[String], merges: Vec<(String, String)>) -> BPE {
    // The map is the library's own type; texts are only looked up in it, so its order is of no
    // effect.
    let vocabulary: Vocab = tokens.iter().cloned().zip(0..).collect();
    BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .cache_capacity(0)
        .build()
        .expect("every merge was checked against the vocabulary")
}
