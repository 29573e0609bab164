//! The prompt: where it comes from, and its ids.
//!
//! Promises: a prompt has at least one id and only ids of the vocabulary; a text begins with the token
//! that begins every prompt; text that looks like a special token stays text. Names option or file.

use std::path::Path;

use engine::format::Tokenizer;
use engine::format::chat::{Message, RenderOptions, Thinking, ToolsText, encode_chat, render};
use engine::{Error, Model};

use crate::error::{Failure, Result};
use crate::flags::{Generate, Think};
use crate::output::warn;

/// A prompt.
pub struct Prompt {
    /// Its ids.
    pub ids: Vec<u32>,
    /// What is encoded, special tokens included; none where ids were given.
    pub text: Option<String>,
}

/// Reads the tokens file, if that is the prompt.
pub fn tokens(flags: &Generate) -> Result<Option<Vec<u32>>> {
    let Some(path) = flags.tokens.first() else { return Ok(None) };
    let text = read(path)?;
    let ids: Vec<u32> = serde_json::from_str(&text)
        .map_err(|error| Failure::file(path, format!("not a JSON array of token ids: {error}")))?;
    if ids.is_empty() {
        return Err(Failure::file(path, "no token ids"));
    }
    Ok(Some(ids))
}

/// The text of the prompt, if it is text, and the option or file that it came from.
pub fn text(flags: &Generate) -> Result<Option<(String, String)>> {
    let (text, from) = match (flags.prompt.first(), flags.prompt_file.first()) {
        (Some(text), _) => (text.clone(), "--prompt".to_owned()),
        (None, Some(path)) => (read(path)?, path.display().to_string()),
        (None, None) => return Ok(None),
    };
    if text.is_empty() {
        return Err(Failure::option(from, "empty"));
    }
    Ok(Some((text, from)))
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| Error::from(error).in_file(path))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::file(path, format!("not UTF-8 at byte {at}"))
    })
}

/// Ids of a text.
pub fn encode(flags: &Generate, tokenizer: &Tokenizer, text: &str, from: &str) -> Result<Prompt> {
    if flags.chat {
        return chat(flags, tokenizer, text, from);
    }
    let begin = tokenizer.specials().bos;
    let mut ids = vec![begin];
    ids.extend(tokenizer.encode(text));
    if tokenizer.encode_rendered(text) != ids[1..] {
        warn_forged(from);
    }
    let begin = tokenizer.decode(&[begin])?;
    Ok(Prompt { ids, text: Some(begin + text) })
}

fn chat(flags: &Generate, tokenizer: &Tokenizer, text: &str, from: &str) -> Result<Prompt> {
    let system = flags.system.iter();
    let system = system.map(|text| Message::System { content: text.clone(), tools: Vec::new() });
    let user = Message::User { content: text.to_owned() };
    let messages: Vec<Message> = system.chain([user]).collect();
    let thinking = match flags.think {
        Some(Think::On) => Thinking::On,
        Some(Think::Off) | None => Thinking::Off,
    };
    let options = RenderOptions { thinking, effort: "", tools_text: ToolsText::SCHEMAS_ONLY };
    let rendered = render(&messages, options).map_err(Error::from)?;
    if rendered.looks_forged() {
        warn_forged(from);
    }
    let ids = encode_chat(tokenizer, &rendered).map_err(Error::from)?;
    Ok(Prompt { ids, text: Some(rendered.to_string()) })
}

fn warn_forged(from: &str) {
    warn(format_args!("{from}: what looks like a special token is read as text"));
}

/// Refuses ids that are not in the vocabulary; `from` is the option or file that they came from.
pub fn check(model: &Model, ids: &[u32], from: &str) -> Result<()> {
    let vocabulary = model.config.vocabulary;
    match ids.iter().position(|id| *id as usize >= vocabulary) {
        None => Ok(()),
        Some(index) => {
            let id = ids[index];
            let problem = format!("token {index} = {id}: the vocabulary has {vocabulary}");
            Err(Failure::option(from, problem))
        }
    }
}
