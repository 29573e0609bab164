//! Messages of a chat to the text and ids that DeepSeek-V4 was trained on.
//!
//! Promises: [`render`] gives the text of the official encoder, and refuses by name what that
//! encoder leaves out silently or renders in a place that contradicts itself. Nothing is inserted
//! between turns. A message cannot forge a special token: special tokens are segments of their own,
//! and text that looks like one is encoded as text. So ids of such text differ from those of an
//! encoder that renders to one string first.
//!
//! Where sources differ, this follows the official encoder: parts of one user's turn, which are
//! neighbouring user and tool messages, have an empty line between them, and a developer message is
//! a user's turn.
//!
//! Leaves to others: the markup of tools and results, which is text (`<tool_result>`, names of
//! tools and parameters in quotation marks) and is not escaped, as nothing in the format escapes
//! it; reading calls from what the assistant wrote; lists of content parts, response formats and
//! tasks, which are refused as unknown fields.

mod error;
mod json;
mod message;
mod render;
mod rendered;
mod turn;

pub use error::ChatError;
pub use json::Json;
pub use message::{FunctionCall, FunctionKind, Message, Tool, ToolCall};
pub use render::{RenderOptions, Thinking, ToolsText, render};
pub use rendered::{Rendered, Segment, encode_chat};
