//! Rendered chats: text in which a special token cannot be forged.
//!
//! Promises: a special token comes only from this crate's own text, never from a message;
//! neighbouring pieces of text are one, because text is split for merging as a whole. Leaves the
//! order of the parts to `render`.

use std::fmt;

use super::ChatError;
use crate::format::tokenizer::{Special, Tokenizer};

/// A part of a rendered chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A special token.
    Special(Special),
    /// Text without special tokens, whatever it looks like; not empty.
    Text(String),
}

/// A rendered chat, displayed as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    segments: Vec<Segment>,
}

impl Rendered {
    /// The parts in order; no two texts are neighbours.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether some text looks like a special token, so that encoding the displayed text would give
    /// other ids than [`encode_chat`].
    #[must_use]
    pub fn looks_forged(&self) -> bool {
        let from_text = split(&self.to_string());
        from_text != *self
    }

    pub(super) fn special(&mut self, special: Special) {
        self.segments.push(Segment::Special(special));
    }

    /// Appends text of a message.
    pub(super) fn text(&mut self, text: &str) {
        match self.segments.last_mut() {
            Some(Segment::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => self.segments.push(Segment::Text(text.to_owned())),
        }
    }

    /// Appends text of the format itself, in which special tokens are meant; never text of a message.
    pub(super) fn template(&mut self, text: &str) {
        for segment in split(text).segments {
            match segment {
                Segment::Special(special) => self.special(special),
                Segment::Text(text) => self.text(&text),
            }
        }
    }
}

impl fmt::Display for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Special(special) => f.write_str(special.text()),
            Segment::Text(text) => f.write_str(text),
        })
    }
}

/// `text` with every special token in it recognised.
fn split(text: &str) -> Rendered {
    let mut rendered = Rendered::default();
    let mut rest = text;
    while let Some((before, special, after)) = Special::split_first(rest, |_| true) {
        rendered.text(before);
        rendered.special(special);
        rest = after;
    }
    rendered.text(rest);
    rendered
}

/// Ids of a rendered chat. Where no message looks like a special token they are those of
/// [`Tokenizer::encode_rendered`] on the displayed text.
///
/// # Errors
/// Refuses a special token that the vocabulary lacks.
pub fn encode_chat(tokenizer: &Tokenizer, rendered: &Rendered) -> Result<Vec<u32>, ChatError> {
    let mut ids = Vec::new();
    for segment in rendered.segments() {
        match segment {
            Segment::Special(special) => {
                let id = tokenizer.specials().id(*special);
                ids.push(id.ok_or(ChatError::MissingSpecial { token: special.text() })?);
            }
            Segment::Text(text) => tokenizer.encode_into(text, &mut ids),
        }
    }
    Ok(ids)
}
