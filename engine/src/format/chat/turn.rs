//! Messages into turns.
//!
//! Promises: neighbouring user and tool messages are one turn of the user; tool results stand in
//! the order of the calls that they answer, in the places that results had; every order of roles
//! for which the format has no rendering is refused.

use super::ChatError;
use super::message::{Message, Tool, ToolCall};

/// What is rendered between two changes of speaker.
pub(super) struct Turn<'m> {
    /// The first message of the turn.
    pub(super) index: usize,
    pub(super) kind: TurnKind<'m>,
}

pub(super) enum TurnKind<'m> {
    System { content: &'m str, tools: &'m [Tool] },
    Developer { content: &'m str, tools: &'m [Tool] },
    LatestReminder { content: &'m str },
    User { blocks: Vec<Block<'m>> },
    Assistant { content: &'m str, reasoning: &'m str, calls: &'m [ToolCall] },
}

/// A part of a user's turn.
#[derive(Clone, Copy)]
pub(super) struct Block<'m> {
    index: usize,
    pub(super) content: &'m str,
    pub(super) source: Source<'m>,
}

/// Where a part of a user's turn is from.
#[derive(Clone, Copy)]
pub(super) enum Source<'m> {
    User,
    Tool { call_id: Option<&'m str> },
}

impl TurnKind<'_> {
    /// Whether the assistant answers such a turn.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self, Self::User { .. } | Self::Developer { .. })
    }

    pub(super) fn is_assistant(&self) -> bool {
        matches!(self, Self::Assistant { .. })
    }

    pub(super) fn declares_tools(&self) -> bool {
        match self {
            Self::System { tools, .. } | Self::Developer { tools, .. } => !tools.is_empty(),
            _ => false,
        }
    }
}

/// The turns of a conversation, checked.
pub(super) fn turns(messages: &[Message]) -> Result<Vec<Turn<'_>>, ChatError> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let kind = match message {
            Message::System { content, tools } => TurnKind::System { content, tools },
            Message::Developer { content, tools } => TurnKind::Developer { content, tools },
            Message::LatestReminder { content } => TurnKind::LatestReminder { content },
            Message::Assistant { content, reasoning_content, tool_calls } => TurnKind::Assistant {
                content: content.as_deref().unwrap_or_default(),
                reasoning: reasoning_content.as_deref().unwrap_or_default(),
                calls: tool_calls,
            },
            Message::User { content } => {
                push_block(&mut turns, Block { index, content, source: Source::User });
                continue;
            }
            Message::Tool { content, tool_call_id } => {
                let source = Source::Tool { call_id: tool_call_id.as_deref() };
                push_block(&mut turns, Block { index, content, source });
                continue;
            }
        };
        check_place(index, message.role(), &kind, turns.last())?;
        turns.push(Turn { index, kind });
    }
    order_results(&mut turns)?;
    Ok(turns)
}

/// Adds to the user's turn that is open, or opens one.
fn push_block<'m>(turns: &mut Vec<Turn<'m>>, block: Block<'m>) {
    if let Some(Turn { kind: TurnKind::User { blocks }, .. }) = turns.last_mut() {
        blocks.push(block);
        return;
    }
    turns.push(Turn { index: block.index, kind: TurnKind::User { blocks: vec![block] } });
}

fn check_place(
    index: usize,
    role: &'static str,
    kind: &TurnKind<'_>,
    before: Option<&Turn<'_>>,
) -> Result<(), ChatError> {
    let after_user = before.is_some_and(|turn| turn.kind.is_answered());
    match kind {
        TurnKind::Assistant { .. } if !after_user => Err(ChatError::AssistantWithoutUser { index }),
        TurnKind::System { .. } | TurnKind::LatestReminder { .. } if after_user => {
            Err(ChatError::AfterUser { index, role })
        }
        _ => Ok(()),
    }
}

/// Checks the calls of every assistant's turn and orders the results after it.
fn order_results(turns: &mut [Turn<'_>]) -> Result<(), ChatError> {
    let mut calls: &[ToolCall] = &[];
    for turn in turns {
        match &mut turn.kind {
            TurnKind::User { blocks } => order_blocks(blocks, calls)?,
            TurnKind::Assistant { calls: made, .. } => {
                check_ids(turn.index, made)?;
                calls = made;
                continue;
            }
            _ => {}
        }
        calls = &[];
    }
    Ok(())
}

fn check_ids(index: usize, calls: &[ToolCall]) -> Result<(), ChatError> {
    let ids: Vec<&String> = calls.iter().filter_map(|call| call.id.as_ref()).collect();
    match ids.iter().enumerate().find(|(place, id)| ids[..*place].contains(id)) {
        Some((_, id)) => Err(ChatError::DuplicateToolCallId { index, id: (*id).clone() }),
        None => Ok(()),
    }
}

fn order_blocks(blocks: &mut Vec<Block<'_>>, calls: &[ToolCall]) -> Result<(), ChatError> {
    let places: Vec<usize> = (0..blocks.len())
        .filter(|&place| matches!(blocks[place].source, Source::Tool { .. }))
        .collect();
    let mut ranked = Vec::with_capacity(places.len());
    for &place in &places {
        let Source::Tool { call_id } = blocks[place].source else { continue };
        let rank = call_rank(blocks[place].index, call_id, calls, places.len() == 1)?;
        ranked.push((rank, place));
    }
    ranked.sort_unstable();
    let mut from: Vec<usize> = (0..blocks.len()).collect();
    for (to, (_, place)) in places.into_iter().zip(ranked) {
        from[to] = place;
    }
    *blocks = from.into_iter().map(|place| blocks[place]).collect();
    Ok(())
}

/// Which call a result answers.
fn call_rank(
    index: usize,
    call_id: Option<&str>,
    calls: &[ToolCall],
    alone: bool,
) -> Result<usize, ChatError> {
    if calls.is_empty() {
        return Err(ChatError::ToolResultWithoutCall { index });
    }
    let Some(id) = call_id else {
        return if alone { Ok(0) } else { Err(ChatError::ToolResultWithoutId { index }) };
    };
    calls
        .iter()
        .position(|call| call.id.as_deref() == Some(id))
        .ok_or_else(|| ChatError::UnknownToolCall { index, id: id.to_owned() })
}
