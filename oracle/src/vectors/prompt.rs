//! Prompts of vectors: from the path that a file names to ids.
//!
//! Promises: only files below the given folder are read. Which ids a prompt has is the caller's choice:
//! [`plain_prompt`] and [`chat_prompt`] are the two usual ones.

use std::path::{Component, Path, PathBuf};

use engine::format::Tokenizer;
use engine::format::chat::{Message, RenderOptions, Thinking, ToolsText, encode_chat, render};

use super::parse::{Problem, VectorError};

/// A folder of prompts.
#[derive(Clone, Debug)]
pub struct Prompts {
    folder: PathBuf,
}

impl Prompts {
    /// Prompts in this folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    /// The text of a prompt: the path below the folder, or else the file of that name in it, because files
    /// of vectors name paths of the repository that they come from.
    ///
    /// # Errors
    /// Names the folder, the path and what is wrong.
    pub fn read(&self, path: &str) -> Result<String, VectorError> {
        let refuse = |problem: String| {
            VectorError::new(&self.folder, 0, Problem::Prompt { path: path.to_owned(), problem })
        };
        let relative = Path::new(path);
        let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let Some(name) = relative.file_name().filter(|_| inside) else {
            return Err(refuse("must be a path below the folder of prompts".to_owned()));
        };
        let places = [self.folder.join(relative), self.folder.join(name)];
        let Some(found) = places.iter().find(|place| place.is_file()) else {
            return Err(refuse("no such file in the folder of prompts".to_owned()));
        };
        std::fs::read_to_string(found).map_err(|error| refuse(error.to_string()))
    }
}

/// The ids of a text that is continued as it is.
///
/// # Errors
/// Never; so that it can stand where [`chat_prompt`] does.
pub fn plain_prompt(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    let mut ids = vec![tokenizer.specials().bos];
    ids.extend(tokenizer.encode(text));
    Ok(ids)
}

/// The ids of a text that a user says, answered without reasoning.
///
/// # Errors
/// In words, when it cannot be rendered or the vocabulary lacks a token.
pub fn chat_prompt(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    let messages = [Message::User { content: text.to_owned() }];
    let options =
        RenderOptions { thinking: Thinking::Off, effort: "", tools_text: ToolsText::SCHEMAS_ONLY };
    let rendered = render(&messages, options).map_err(|error| error.to_string())?;
    encode_chat(tokenizer, &rendered).map_err(|error| error.to_string())
}
