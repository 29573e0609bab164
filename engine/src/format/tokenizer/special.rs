//! The tokens that structure a chat.
//!
//! Promises: each is found by its text, never by a number, and recognised only where it stands
//! literally. Assumes nothing about ids. Leaves the order in which they may stand to `chat`.

/// A token with a meaning of its own in rendered chat text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// Begins every prompt.
    Bos,
    /// Ends a turn of the assistant.
    Eos,
    /// Begins a turn of the user.
    User,
    /// Begins a turn of the assistant.
    Assistant,
    /// Opens the reasoning.
    Think,
    /// Closes the reasoning, or says that there is none.
    ThinkEnd,
    /// Marks the tags of tool calls.
    Dsml,
    /// Begins a reminder such as the date.
    LatestReminder,
}

impl Special {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Bos,
        Self::Eos,
        Self::User,
        Self::Assistant,
        Self::Think,
        Self::ThinkEnd,
        Self::Dsml,
        Self::LatestReminder,
    ];

    /// Its text in the vocabulary and in rendered chat text.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Bos => "<｜begin▁of▁sentence｜>",
            Self::Eos => "<｜end▁of▁sentence｜>",
            Self::User => "<｜User｜>",
            Self::Assistant => "<｜Assistant｜>",
            Self::Think => "<think>",
            Self::ThinkEnd => "</think>",
            Self::Dsml => "｜DSML｜",
            Self::LatestReminder => "<｜latest_reminder｜>",
        }
    }

    /// Splits `text` at the first special token that `is_known`: what stands before, the token,
    /// what stands after.
    pub(in crate::format) fn split_first(
        text: &str,
        is_known: impl Fn(Self) -> bool,
    ) -> Option<(&str, Self, &str)> {
        // No special token is a prefix of another, so at most one stands at each place.
        text.match_indices(['<', '｜']).find_map(|(at, _)| {
            Self::ALL.into_iter().filter(|&special| is_known(special)).find_map(|special| {
                let after = text[at..].strip_prefix(special.text())?;
                Some((&text[..at], special, after))
            })
        })
    }
}

/// Ids of the special tokens in one vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialTokens {
    /// `<｜begin▁of▁sentence｜>`
    pub bos: u32,
    /// `<｜end▁of▁sentence｜>`
    pub eos: u32,
    /// `<｜User｜>`
    pub user: u32,
    /// `<｜Assistant｜>`
    pub assistant: u32,
    /// `<think>`
    pub think: u32,
    /// `</think>`
    pub think_end: u32,
    /// `｜DSML｜`
    pub dsml: u32,
    /// `<｜latest_reminder｜>`, the only one that a vocabulary may lack.
    pub latest_reminder: Option<u32>,
}

impl SpecialTokens {
    /// The id of `special`, unless this vocabulary lacks it.
    #[must_use]
    pub fn id(&self, special: Special) -> Option<u32> {
        match special {
            Special::Bos => Some(self.bos),
            Special::Eos => Some(self.eos),
            Special::User => Some(self.user),
            Special::Assistant => Some(self.assistant),
            Special::Think => Some(self.think),
            Special::ThinkEnd => Some(self.think_end),
            Special::Dsml => Some(self.dsml),
            Special::LatestReminder => self.latest_reminder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_special_token_is_a_prefix_of_another() {
        for one in Special::ALL {
            assert!(one.text().starts_with(['<', '｜']));
            for other in Special::ALL {
                assert!(one == other || !one.text().starts_with(other.text()));
            }
        }
    }
}
