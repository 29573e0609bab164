//! What kind of fault makes speculative decoding differ from plain decoding.
//!
//! Promises: the verdict rests on an experiment, not on how the difference looks: the round in which it
//! first shows is repeated in one call of the same width from a state that never saw a draft. If that call
//! already differs from plain decoding, an operation depends on the rows of a call (*numeric*); if it does
//! not, something is left over from drafts, or lost with them (*state*). A difference of the drafting
//! block alone changes no emitted token (*draft-only*).

use engine::backend::Backend;
use engine::session::{Keep, Session};

use crate::speculation::{Difference, Plain, Seen, StateDigest};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An operation gives other bits beside other rows.
    Numeric,
    /// Rollback, commit or acceptance leaves another state.
    State,
    /// The drafting block differs; what is emitted does not.
    DraftOnly,
}

impl Kind {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Numeric => "numeric",
            Self::State => "state",
            Self::DraftOnly => "draft-only",
        }
    }
}

/// What a call from an untouched state shows.
struct Replay {
    logits_differ: bool,
    state_differs: bool,
}

/// Tells kinds apart. `plain` must reach at least 9 tokens past the difference; `fresh` makes a session
/// without tokens on the backend at fault.
///
/// # Errors
/// When the engine refuses the experiment.
pub fn classify<'m, B: Backend>(
    plain: &Plain,
    seen: &Seen,
    difference: &Difference,
    fresh: &dyn Fn() -> engine::Result<Session<'m, B>>,
) -> engine::Result<Kind> {
    if difference.is_of_block() {
        return Ok(Kind::DraftOnly);
    }
    let Some((failing, before)) = seen.rounds.split_last() else {
        // The prompt alone differs: no draft was ever in.
        return Ok(Kind::Numeric);
    };
    let emitted = before.iter().fold(0, |sum, round| sum + round.emitted.len());
    let (start, width) = (plain.start() + emitted, failing.proposed + 1);
    let replay = replay(plain, start, width, fresh)?;
    if replay.logits_differ {
        return Ok(Kind::Numeric);
    }
    // Rows that only later tokens read: an operation writes them differently at every width, a commit
    // that goes wrong does so from some width on.
    let narrow = replay.state_differs && width > 2;
    if replay.state_differs && (!narrow || self::replay(plain, start, 2, fresh)?.state_differs) {
        return Ok(Kind::Numeric);
    }
    Ok(Kind::State)
}

/// Tokens one by one up to `start`, then `width` of them in one call.
fn replay<'m, B: Backend>(
    plain: &Plain,
    start: usize,
    width: usize,
    fresh: &dyn Fn() -> engine::Result<Session<'m, B>>,
) -> engine::Result<Replay> {
    let mut session = fresh()?;
    let mut unobserved = engine::tap::Unobserved;
    session.forward(&plain.prompt, Keep::Nothing, &mut unobserved)?;
    let token = |position| plain.at(position).expect("a token of the plain run");
    for position in plain.start()..start {
        session.forward(&[token(position)], Keep::Nothing, &mut unobserved)?;
    }
    let tokens: Vec<u32> = (start..start + width).map(token).collect();
    let forward = session.forward(&tokens, Keep::All, &mut unobserved)?;
    let rows = session.backend().download(&forward.logits)?;
    let logits_differ = rows.iter().enumerate().any(|(row, logits)| {
        let bits: Vec<u32> = logits.iter().map(|value| value.to_bits()).collect();
        plain.logits_at(start + row) != Some(&bits)
    });
    let digest = StateDigest::of(&session);
    let state = plain.state_at(start + width);
    let state_differs = state.is_some_and(|state| digest.first_difference(state).is_some());
    Ok(Replay { logits_differ, state_differs })
}
