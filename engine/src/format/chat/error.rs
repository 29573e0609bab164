//! Refusals of chat rendering.
//!
//! Promises: one variant per refusal, with the place of the message and the value at fault. Assumes
//! nothing. Leaves the name of the file, if there is one, to the caller.

/// Why messages cannot be rendered. `index` counts messages from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The text is not a JSON list of messages.
    #[error("messages: {problem}")]
    Json {
        /// What is wrong, with line and column.
        problem: String,
    },
    /// There is nothing to render.
    #[error("messages: the list is empty")]
    NoMessages,
    /// The assistant would speak without being asked, for which there is no rendering.
    #[error("message {index}: an assistant message must follow a user, tool or developer message")]
    AssistantWithoutUser {
        /// The message.
        index: usize,
    },
    /// Something stands between a user's turn and the answer, where no rendering agrees with
    /// another.
    #[error("message {index}: a {role} message cannot directly follow a user's turn")]
    AfterUser {
        /// The message.
        index: usize,
        /// Its role.
        role: &'static str,
    },
    /// The official encoder silently leaves this message out; here that is refused.
    #[error(
        "message {index}: a developer message before the last user's turn has no place in thinking \
         mode without tools"
    )]
    DeveloperHistory {
        /// The message.
        index: usize,
    },
    /// A tool result answers no call.
    #[error("message {index}: a tool result must follow an assistant message with tool calls")]
    ToolResultWithoutCall {
        /// The message.
        index: usize,
    },
    /// One of several tool results does not say which call it answers.
    #[error("message {index}: one of several tool results lacks tool_call_id")]
    ToolResultWithoutId {
        /// The message.
        index: usize,
    },
    /// A tool result answers a call that was not made.
    #[error("message {index}: tool_call_id {id:?} is no call of the assistant message before")]
    UnknownToolCall {
        /// The message.
        index: usize,
        /// The id.
        id: String,
    },
    /// Two calls of one message have the same id.
    #[error("message {index}: two tool calls have the id {id:?}")]
    DuplicateToolCallId {
        /// The message.
        index: usize,
        /// The id.
        id: String,
    },
    /// The arguments of a call are not a JSON object.
    #[error("message {index}: arguments of the call of {name:?}: {problem}")]
    ToolArguments {
        /// The message.
        index: usize,
        /// The tool.
        name: String,
        /// What is wrong with them.
        problem: String,
    },
    /// The rendered chat needs a special token that the vocabulary lacks.
    #[error("special token {token:?} is not in the vocabulary")]
    MissingSpecial {
        /// Its text.
        token: &'static str,
    },
}
