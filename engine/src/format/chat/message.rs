//! Messages as they come in: JSON in the shape of the OpenAI chat API.
//!
//! Promises: fields that are not read are refused, not skipped. Leaves to `turn`: which roles may
//! follow each other. Content is one string; lists of parts are refused.

use serde::Deserialize;

use super::ChatError;
use super::json::Json;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Instructions without a turn of their own.
    System {
        /// The text.
        #[serde(default)]
        content: String,
        /// Tools that the assistant may call.
        #[serde(default)]
        tools: Vec<Tool>,
    },
    /// Instructions rendered as a user's turn.
    Developer {
        /// The text.
        content: String,
        /// Tools that the assistant may call.
        #[serde(default)]
        tools: Vec<Tool>,
    },
    /// What the user says.
    User {
        /// The text.
        content: String,
    },
    /// What the assistant said before.
    Assistant {
        /// The text.
        #[serde(default)]
        content: Option<String>,
        /// Its reasoning, rendered only where the rules keep it.
        #[serde(default)]
        reasoning_content: Option<String>,
        /// Calls of tools, after the text.
        #[serde(default)]
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool answered.
    Tool {
        /// The text.
        content: String,
        /// Which call it answers.
        #[serde(default)]
        tool_call_id: Option<String>,
    },
    /// A reminder such as the date, before a user's turn.
    LatestReminder {
        /// The text.
        content: String,
    },
}

impl Message {
    /// Reads a JSON list of messages.
    ///
    /// # Errors
    /// Says where the text is not such a list.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>, ChatError> {
        serde_json::from_str(text).map_err(|error| ChatError::Json { problem: error.to_string() })
    }

    /// The role as JSON has it.
    #[must_use]
    pub fn role(&self) -> &'static str {
        match self {
            Self::System { .. } => "system",
            Self::Developer { .. } => "developer",
            Self::User { .. } => "user",
            Self::Assistant { .. } => "assistant",
            Self::Tool { .. } => "tool",
            Self::LatestReminder { .. } => "latest_reminder",
        }
    }
}

/// A tool that the assistant may call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// `"function"`; other kinds are refused.
    #[serde(rename = "type")]
    pub kind: FunctionKind,
    /// Its schema, written into the prompt as it is.
    pub function: Json,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// By which the result names the call.
    #[serde(default)]
    pub id: Option<String>,
    /// `"function"`; other kinds are refused.
    #[serde(rename = "type")]
    pub kind: FunctionKind,
    /// What is called.
    pub function: FunctionCall,
}

/// The one kind of tool there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// `"function"`
    Function,
}

/// A function and its arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCall {
    /// The function.
    pub name: String,
    /// A JSON object, or a string that holds one.
    pub arguments: Json,
}

impl FunctionCall {
    /// The arguments by name, in order.
    pub(super) fn parameters(&self, index: usize) -> Result<Vec<(String, Json)>, ChatError> {
        let refuse = |problem: String| {
            Err(ChatError::ToolArguments { index, name: self.name.clone(), problem })
        };
        let arguments = match &self.arguments {
            Json::Text(text) => match serde_json::from_str(text) {
                Ok(arguments) => arguments,
                Err(error) => return refuse(error.to_string()),
            },
            other => other.clone(),
        };
        match arguments {
            Json::Object(parameters) => Ok(parameters),
            other => refuse(format!("not a JSON object: {other}")),
        }
    }
}
