//! Tokens by their bytes.
//!
//! Promises: an id is found only by all of its bytes, and only when no other id has the same.

use std::collections::BTreeMap;

use engine::format::Tokenizer;

/// Ids of a vocabulary by bytes.
#[derive(Clone, Debug)]
pub struct Tokens {
    ids: BTreeMap<Vec<u8>, Vec<u32>>,
}

impl Tokens {
    /// The tokens of this vocabulary.
    #[must_use]
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let mut ids: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for id in (0_u32..).take(tokenizer.vocab_size()) {
            if let Ok(bytes) = tokenizer.token_bytes(id) {
                ids.entry(bytes.to_vec()).or_default().push(id);
            }
        }
        Self { ids }
    }

    /// The id with these bytes.
    ///
    /// # Errors
    /// In words, when there is none or more than one.
    pub fn id(&self, bytes: &[u8]) -> Result<u32, String> {
        let shown = super::hex(bytes);
        match self.ids.get(bytes).map(Vec::as_slice) {
            Some([id]) => Ok(*id),
            Some(ids) => {
                Err(format!("token {shown}: ids {ids:?} of the vocabulary have its bytes"))
            }
            None => Err(format!("token {shown}: none of the vocabulary has its bytes")),
        }
    }
}
