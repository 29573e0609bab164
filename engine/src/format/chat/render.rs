//! Turns into rendered text.
//!
//! Promises: the text of the official encoder for the same messages, wherever it has one. Assumes
//! turns that `turn` has checked.

use super::ChatError;
use super::message::{Message, Tool, ToolCall};
use super::rendered::Rendered;
use super::turn::{Block, Source, Turn, TurnKind, turns};
use crate::format::tokenizer::Special;

/// How messages are rendered. There is no default: each field changes the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderOptions<'t> {
    /// Whether the assistant reasons before it answers.
    pub thinking: Thinking,
    /// What stands before everything else when the assistant reasons: the paragraph by which the
    /// model's makers ask for the greatest effort, or nothing.
    pub effort: &'t str,
    /// What is said about tools besides their schemas.
    pub tools_text: ToolsText<'t>,
}

/// Whether the assistant reasons before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// The reasoning is closed before it begins.
    Off,
    /// The reasoning is left open for the assistant.
    On,
}

/// What the section about tools says around the schemas, which come one a line. The instructions that a
/// model was trained with are its makers' text and not part of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolsText<'t> {
    /// Before the schemas.
    pub before: &'t str,
    /// After the schemas.
    pub after: &'t str,
}

impl ToolsText<'_> {
    /// A heading and the schemas.
    pub const SCHEMAS_ONLY: Self = Self { before: "## Tools\n\n", after: "\n" };
}

/// Renders a conversation, up to where the assistant goes on if the last turn is a user's.
///
/// # Errors
/// Refuses an empty list and orders of messages that have no rendering; [`ChatError`] lists them.
pub fn render(messages: &[Message], options: RenderOptions<'_>) -> Result<Rendered, ChatError> {
    if messages.is_empty() {
        return Err(ChatError::NoMessages);
    }
    let turns = turns(messages)?;
    let reasoning = Reasoning::of(&turns, options.thinking);
    reasoning.check_developers(&turns)?;
    let mut out = Rendered::default();
    out.special(Special::Bos);
    if options.thinking == Thinking::On {
        out.template(options.effort);
    }
    for (place, turn) in turns.iter().enumerate() {
        render_turn(&mut out, turn, reasoning.is_kept_at(place), options.tools_text)?;
        let is_last = place + 1 == turns.len();
        let is_answered_next = turns.get(place + 1).is_some_and(|next| next.kind.is_assistant());
        if turn.kind.is_answered() && (is_last || is_answered_next) {
            out.special(Special::Assistant);
            let open = reasoning.is_kept_at(place);
            out.special(if open { Special::Think } else { Special::ThinkEnd });
        }
    }
    Ok(out)
}

/// From which turn on the assistant's reasoning is rendered.
#[derive(Clone, Copy)]
struct Reasoning {
    /// A place among the turns; nothing is rendered without thinking.
    kept_from: Option<usize>,
}

impl Reasoning {
    /// Everywhere if any message declares tools, else from the last user's turn on.
    fn of(turns: &[Turn<'_>], thinking: Thinking) -> Self {
        if thinking == Thinking::Off {
            return Self { kept_from: None };
        }
        let tools = turns.iter().any(|turn| turn.kind.declares_tools());
        let last_user = turns.iter().rposition(|turn| turn.kind.is_answered()).unwrap_or(0);
        Self { kept_from: Some(if tools { 0 } else { last_user }) }
    }

    fn is_kept_at(self, place: usize) -> bool {
        self.kept_from.is_some_and(|from| place >= from)
    }

    /// The official encoder leaves out developer messages where it leaves out reasoning.
    fn check_developers(self, turns: &[Turn<'_>]) -> Result<(), ChatError> {
        let left_out = &turns[..self.kept_from.unwrap_or(0)];
        match left_out.iter().find(|turn| matches!(turn.kind, TurnKind::Developer { .. })) {
            Some(turn) => Err(ChatError::DeveloperHistory { index: turn.index }),
            None => Ok(()),
        }
    }
}

fn render_turn(
    out: &mut Rendered,
    turn: &Turn<'_>,
    reasoning_is_kept: bool,
    tools_text: ToolsText,
) -> Result<(), ChatError> {
    match &turn.kind {
        TurnKind::System { content, tools } => {
            out.text(content);
            render_tools(out, tools, tools_text);
        }
        TurnKind::Developer { content, tools } => {
            out.special(Special::User);
            out.text(content);
            render_tools(out, tools, tools_text);
        }
        TurnKind::LatestReminder { content } => {
            out.special(Special::LatestReminder);
            out.text(content);
        }
        TurnKind::User { blocks } => {
            out.special(Special::User);
            render_blocks(out, blocks);
        }
        TurnKind::Assistant { content, reasoning, calls } => {
            if reasoning_is_kept {
                out.text(reasoning);
                out.special(Special::ThinkEnd);
            }
            out.text(content);
            render_calls(out, turn.index, calls)?;
            out.special(Special::Eos);
        }
    }
    Ok(())
}

fn render_tools(out: &mut Rendered, tools: &[Tool], tools_text: ToolsText<'_>) {
    if tools.is_empty() {
        return;
    }
    out.template("\n\n");
    out.template(tools_text.before);
    for (place, tool) in tools.iter().enumerate() {
        out.template(if place == 0 { "" } else { "\n" });
        out.text(&tool.function.to_string());
    }
    out.template(tools_text.after);
}

/// The parts of a user's turn, with an empty line between them as the official encoder has it.
fn render_blocks(out: &mut Rendered, blocks: &[Block<'_>]) {
    for (place, block) in blocks.iter().enumerate() {
        out.template(if place == 0 { "" } else { "\n\n" });
        match block.source {
            Source::User => out.text(block.content),
            Source::Tool { .. } => {
                out.template("<tool_result>");
                out.text(block.content);
                out.template("</tool_result>");
            }
        }
    }
}

fn render_calls(out: &mut Rendered, index: usize, calls: &[ToolCall]) -> Result<(), ChatError> {
    if calls.is_empty() {
        return Ok(());
    }
    out.template("\n\n<｜DSML｜tool_calls>\n");
    for call in calls {
        out.template("<｜DSML｜invoke name=\"");
        out.text(&call.function.name);
        out.template("\">\n");
        render_parameters(out, index, call)?;
        out.template("\n</｜DSML｜invoke>\n");
    }
    out.template("</｜DSML｜tool_calls>");
    Ok(())
}

fn render_parameters(out: &mut Rendered, index: usize, call: &ToolCall) -> Result<(), ChatError> {
    for (place, (name, value)) in call.function.parameters(index)?.iter().enumerate() {
        out.template(if place == 0 { "" } else { "\n" });
        out.template("<｜DSML｜parameter name=\"");
        out.text(name);
        match value {
            super::Json::Text(text) => {
                out.template("\" string=\"true\">");
                out.text(text);
            }
            other => {
                out.template("\" string=\"false\">");
                out.text(&other.to_string());
            }
        }
        out.template("</｜DSML｜parameter>");
    }
    Ok(())
}
