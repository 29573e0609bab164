//! Speculative generation against plain generation: tokens, logits and state, round by round.
//!
//! Promises: [`Plain::run`] keeps what one token at a time leaves behind at every length; [`compare`] holds
//! each round of another generation against it and returns the first difference by name, or how much was
//! compared. Compared are bits; nothing is asserted here, so a test can ask for either outcome.
//! Digests are those of one process: they are not stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use engine::backend::Backend;
use engine::decode::{
    Acceptance, Decoder, Drafter, End, MtpDrafter, NoDrafts, Options, Picker, Round,
    ScriptedDrafter, Verification,
};
use engine::mtp::MtpSession;
use engine::session::Session;
use engine::tap::{Observer, Place, Site, Tap, Values};

/// Digests of the live rows of a state, by layer and kind.
#[derive(Clone, Debug, Default)]
pub struct StateDigest {
    kinds: BTreeMap<(usize, &'static str), DefaultHasher>,
    rows: usize,
}

impl StateDigest {
    /// Of a main session.
    #[must_use]
    pub fn of<B: Backend>(session: &Session<'_, B>) -> Self {
        let mut digest = Self::default();
        session.visit_state(&mut |layer, kind, position, values| {
            digest.add(layer, kind, position, values);
        });
        digest
    }

    /// Of the session of a multi-token-prediction block.
    #[must_use]
    pub fn of_block<B: Backend>(session: &MtpSession<'_, B>) -> Self {
        let mut digest = Self::default();
        session.visit_state(&mut |kind, position, values| digest.add(0, kind, position, values));
        digest
    }

    fn add(&mut self, layer: usize, kind: &'static str, position: usize, values: &[f32]) {
        let hasher = self.kinds.entry((layer, kind)).or_default();
        (position, values.len()).hash(hasher);
        values.iter().for_each(|value| value.to_bits().hash(hasher));
        self.rows += 1;
    }

    /// Rows that took part.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first layer and kind in which two states differ; a kind that one of them lacks counts.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<(usize, &'static str)> {
        let keys: BTreeSet<_> = self.kinds.keys().chain(other.kinds.keys()).copied().collect();
        keys.into_iter().find(|key| {
            let [own, other] = [self, other].map(|digest| digest.kinds.get(key));
            own.map(Hasher::finish) != other.map(Hasher::finish)
        })
    }
}

/// A drafter whose own state can be looked at.
pub trait Watched<B: Backend>: Drafter<B> {
    /// The block's session, of a drafter that has one.
    fn block(&self) -> Option<&MtpSession<'_, B>> {
        None
    }
}

impl<B: Backend> Watched<B> for NoDrafts {}

impl<B: Backend> Watched<B> for ScriptedDrafter<'_, B> {}

impl<B: Backend> Watched<B> for MtpDrafter<'_, B> {
    fn block(&self) -> Option<&MtpSession<'_, B>> {
        Some(self.session())
    }
}

/// Bits of the newest row of logits of every position.
#[derive(Clone, Debug, Default)]
struct Logits(BTreeMap<usize, Vec<u32>>);

impl Observer for Logits {
    fn wants(&self, tap: Tap) -> bool {
        tap == Tap::Logits
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        if let (Place::Output, Values::F32(values)) = (site.place, values) {
            self.0.insert(site.position, values.iter().map(|value| value.to_bits()).collect());
        }
    }
}

/// What plain generation leaves behind.
#[derive(Clone, Debug)]
pub struct Plain {
    /// The prompt; in a continuation, its part that was not in the session yet.
    pub prompt: Vec<u32>,
    /// Every token emitted.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub end: Option<End>,
    /// Tokens in the session before the first round.
    start: usize,
    kept: Arc<Kept>,
}

/// What a plain run leaves at every length; its parts share it.
#[derive(Debug)]
struct Kept {
    logits: Logits,
    /// State by tokens in the session.
    states: BTreeMap<usize, StateDigest>,
    /// State of the block by its own length.
    blocks: BTreeMap<usize, StateDigest>,
}

impl Plain {
    /// Generates one token a call from `session`; `drafter` is told of every token and never asked.
    ///
    /// # Errors
    /// As for [`Decoder::round`].
    pub fn run<B: Backend>(
        session: Session<'_, B>,
        prompt: &[u32],
        picker: &Picker,
        options: &Options,
        drafter: &mut dyn Watched<B>,
    ) -> engine::Result<Self> {
        let options = Options { depth: 0, verification: Verification::Strict, ..options.clone() };
        let mut logits = Logits::default();
        let mut decoder =
            Decoder::start(session, prompt, picker.clone(), options, drafter, &mut logits)?;
        let start = decoder.session().length();
        let mut tokens = vec![decoder.pending()];
        let (mut states, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        loop {
            states.insert(decoder.session().length(), StateDigest::of(decoder.session()));
            if let Some(block) = drafter.block() {
                blocks.insert(block.length(), StateDigest::of_block(block));
            }
            if decoder.end().is_some() {
                break;
            }
            tokens.extend(decoder.round(drafter, &mut logits)?.emitted);
        }
        let end = decoder.end();
        let kept = Arc::new(Kept { logits, states, blocks });
        Ok(Self { prompt: prompt.to_vec(), tokens, end, start, kept })
    }

    /// What the run would have been with `tokens` tokens to emit at most, no more than it has.
    #[must_use]
    pub fn cut(&self, tokens: usize) -> Self {
        let mut cut = self.clone();
        if tokens < cut.tokens.len() {
            cut.tokens.truncate(tokens);
            cut.end = Some(End::Tokens);
        }
        cut
    }

    /// What the run would have been had it stopped at the first of its tokens that is `stop`.
    #[must_use]
    pub fn stopped(&self, stop: u32) -> Self {
        let mut cut = self.clone();
        if let Some(place) = self.tokens.iter().position(|token| *token == stop) {
            cut.tokens.truncate(place + 1);
            cut.end = Some(End::Stop(stop));
        }
        cut
    }

    /// What the run would have been from a session that holds the tokens before `position - 1`, with the
    /// token there as the prompt.
    ///
    /// # Panics
    /// When the run did not get there.
    #[must_use]
    pub fn from(&self, position: usize) -> Self {
        let before = self.start - self.prompt.len();
        let token = match (position - 1).checked_sub(before) {
            Some(place) if place < self.prompt.len() => Some(self.prompt[place]),
            _ => self.at(position - 1),
        };
        let token = token.expect("a token of the run");
        let tokens = self.tokens[position - self.start..].to_vec();
        Self { prompt: vec![token], tokens, start: position, ..self.clone() }
    }

    /// Tokens in the session before the first round.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Bits of the logits after a position.
    #[must_use]
    pub fn logits_at(&self, position: usize) -> Option<&Vec<u32>> {
        self.kept.logits.0.get(&position)
    }

    /// The state with so many tokens in.
    #[must_use]
    pub fn state_at(&self, length: usize) -> Option<&StateDigest> {
        self.kept.states.get(&length)
    }

    /// The token at an absolute position, of those emitted.
    #[must_use]
    pub fn at(&self, position: usize) -> Option<u32> {
        self.tokens.get(position.checked_sub(self.start)?).copied()
    }
}

/// A drafter that knows a plain run: as [`ScriptedDrafter`], at no cost, on stretches that are known.
pub struct Known<'a> {
    plain: &'a Plain,
    /// How many drafts of each round are right, or that there are none.
    rounds: Vec<Option<usize>>,
    /// The same for all rounds after these.
    then: Option<usize>,
    vocabulary: usize,
    round: usize,
}

impl<'a> Known<'a> {
    /// A drafter with so many right drafts in the `rounds` to come, and `then` in all later ones.
    #[must_use]
    pub fn new(
        plain: &'a Plain,
        vocabulary: usize,
        rounds: &[Option<usize>],
        then: Option<usize>,
    ) -> Self {
        Self { plain, rounds: rounds.to_vec(), then, vocabulary, round: 0 }
    }
}

impl<B: Backend> Drafter<B> for Known<'_> {
    fn propose(
        &mut self,
        _: u32,
        position: usize,
        depth: usize,
        _: &Picker,
    ) -> engine::Result<Vec<u32>> {
        let right = self.rounds.get(self.round).copied().unwrap_or(self.then);
        self.round += 1;
        let Some(right) = right else { return Ok(Vec::new()) };
        // Behind a wrong draft, and behind the end of what is known, anything will do.
        let draft = |place| {
            let own = self.plain.at(position + 1 + place).unwrap_or(0) as usize;
            ((own + usize::from(place >= right)) % self.vocabulary) as u32
        };
        Ok((0..depth).map(draft).collect())
    }

    fn commit(&mut self, _: usize, _: &[u32], _: &B::Rows) -> engine::Result<()> {
        Ok(())
    }
}

impl<B: Backend> Watched<B> for Known<'_> {}

/// What was found equal.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Rounds.
    pub rounds: Vec<Round>,
    /// Tokens emitted.
    pub tokens: usize,
    /// Rows of logits.
    pub logits: usize,
    /// States of the main model.
    pub states: usize,
    /// States of the block.
    pub blocks: usize,
    /// Drafts proposed and accepted, by place.
    pub acceptance: Acceptance,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tokens, {} rows of logits, {} states, {} states of the block equal; {} of {} drafts accepted",
            self.tokens,
            self.logits,
            self.states,
            self.blocks,
            self.acceptance.accepted_total(),
            self.acceptance.proposed_total()
        )
    }
}

impl Seen {
    /// Adds what another comparison saw.
    pub fn add(&mut self, other: Self) {
        self.rounds.extend(other.rounds);
        self.tokens += other.tokens;
        self.logits += other.logits;
        self.states += other.states;
        self.blocks += other.blocks;
        let places = |sum: &mut [u64], more: &[u64]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        places(&mut self.acceptance.proposed, &other.acceptance.proposed);
        places(&mut self.acceptance.accepted, &other.acceptance.accepted);
    }

    /// Whether drafts were accepted and whether some were rejected.
    #[must_use]
    pub fn judged(&self) -> [bool; 2] {
        [self.acceptance.accepted_total() > 0, self.acceptance.rejected_total() > 0]
    }
}

/// The first difference from a plain run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// An emitted token.
    #[error("round {round}: token {index} is {token:?}, plain {plain:?}")]
    Token {
        /// Round, from 0; the prompt is round 0, too.
        round: usize,
        /// Its place among those emitted.
        index: usize,
        /// What was emitted.
        token: Option<u32>,
        /// What plain emitted.
        plain: Option<u32>,
    },
    /// A row of logits that a token was chosen from.
    #[error("round {round}: logits at position {position}")]
    Logits {
        /// Round.
        round: usize,
        /// Position.
        position: usize,
    },
    /// Rows that a later token can read.
    #[error("round {round}: {kind} of layer {layer}, {length} tokens in (block: {block})")]
    State {
        /// Round.
        round: usize,
        /// Tokens in.
        length: usize,
        /// Layer.
        layer: usize,
        /// Kind of row.
        kind: &'static str,
        /// Whether it is the state of the multi-token-prediction block.
        block: bool,
    },
    /// The number of tokens in a session, or of those said to be emitted or accepted.
    #[error("round {round}: {what} is {found}, must be {expected}")]
    Count {
        /// Round.
        round: usize,
        /// Which number.
        what: &'static str,
        /// What it is.
        found: usize,
        /// What it must be.
        expected: usize,
    },
    /// Why the generation ended.
    #[error("ended by {end:?}, plain by {plain:?}")]
    End {
        /// Why this one did.
        end: Option<End>,
        /// Why plain did.
        plain: Option<End>,
    },
    /// The engine refused.
    #[error("{0}")]
    Engine(#[from] engine::Error),
}

impl Difference {
    /// Whether it is one of the drafting block alone.
    #[must_use]
    pub fn is_of_block(&self) -> bool {
        match self {
            Self::State { block, .. } => *block,
            Self::Count { what, .. } => *what == LENGTH_OF_BLOCK,
            _ => false,
        }
    }
}

const LENGTH_OF_BLOCK: &str = "length of the block";

/// Generates from `session` and compares every round with `plain`.
///
/// # Errors
/// The first difference.
pub fn compare<B: Backend>(
    plain: &Plain,
    session: Session<'_, B>,
    picker: &Picker,
    options: &Options,
    drafter: &mut dyn Watched<B>,
) -> Result<Seen, Difference> {
    let (seen, difference) = compare_until(plain, session, picker, options, drafter);
    difference.map_or(Ok(seen), Err)
}

/// The same: what was seen, up to the first difference if there is one.
pub fn compare_until<B: Backend>(
    plain: &Plain,
    session: Session<'_, B>,
    picker: &Picker,
    options: &Options,
    drafter: &mut dyn Watched<B>,
) -> (Seen, Option<Difference>) {
    let (verification, compared) = (options.verification, plain.start - 1);
    let mut comparison = Comparison { plain, seen: Seen::default(), verification, compared };
    let difference = comparison.run(session, picker, options, drafter).err();
    (comparison.seen, difference)
}

/// How far a comparison is.
struct Comparison<'a> {
    plain: &'a Plain,
    seen: Seen,
    verification: Verification,
    /// Positions below were compared.
    compared: usize,
}

impl Comparison<'_> {
    fn run<B: Backend>(
        &mut self,
        session: Session<'_, B>,
        picker: &Picker,
        options: &Options,
        drafter: &mut dyn Watched<B>,
    ) -> Result<(), Difference> {
        let mut logits = Logits::default();
        let (prompt, options) = (&self.plain.prompt, options.clone());
        let mut decoder =
            Decoder::start(session, prompt, picker.clone(), options, drafter, &mut logits)?;
        let first = [decoder.pending()];
        self.tokens(&first)?;
        self.round(&decoder, drafter, &logits)?;
        while decoder.end().is_none() {
            let round = decoder.round(drafter, &mut logits)?;
            let emitted = round.emitted.clone();
            let expected = round.accepted + 1;
            self.seen.rounds.push(round);
            self.tokens(&emitted)?;
            self.counts("tokens of the round", emitted.len(), expected)?;
            self.round(&decoder, drafter, &logits)?;
        }
        self.finish(&decoder)
    }

    fn tokens(&mut self, emitted: &[u32]) -> Result<(), Difference> {
        let round = self.seen.rounds.len();
        for token in emitted {
            let (index, plain) =
                (self.seen.tokens, self.plain.tokens.get(self.seen.tokens).copied());
            if plain != Some(*token) {
                return Err(Difference::Token { round, index, token: Some(*token), plain });
            }
            self.seen.tokens += 1;
        }
        Ok(())
    }

    fn counts(&self, what: &'static str, found: usize, expected: usize) -> Result<(), Difference> {
        let round = self.seen.rounds.len();
        if found == expected {
            return Ok(());
        }
        Err(Difference::Count { round, what, found, expected })
    }

    /// Counts, logits and states after a round whose tokens were compared.
    fn round<B: Backend>(
        &mut self,
        decoder: &Decoder<'_, B>,
        drafter: &dyn Watched<B>,
        logits: &Logits,
    ) -> Result<(), Difference> {
        let length = decoder.session().length();
        self.counts("length of the session", length, self.plain.start + self.seen.tokens - 1)?;
        let (pending, last) = (decoder.pending(), self.plain.tokens[self.seen.tokens - 1]);
        self.counts("pending token", pending as usize, last as usize)?;
        let round = self.seen.rounds.len();
        for position in self.compared..length {
            let row = logits.0.get(&position);
            if row.is_none_or(Vec::is_empty) || row != self.plain.kept.logits.0.get(&position) {
                return Err(Difference::Logits { round, position });
            }
            self.seen.logits += 1;
        }
        let before = std::mem::replace(&mut self.compared, length);
        let digest = StateDigest::of(decoder.session());
        self.state(&self.plain.kept.states, length, &digest, false)?;
        self.seen.states += 1;
        // How far the block is before the first round depends on how the prompt was cut.
        let known = |length| round > 0 || self.plain.kept.blocks.contains_key(&length);
        if let Some(block) = drafter.block().filter(|block| known(block.length())) {
            if round > 0 {
                // The block has not seen the last commit: that of a whole round, or of its last token.
                let expected = match self.verification {
                    Verification::Combined => before,
                    Verification::Strict => length - 1,
                };
                self.counts(LENGTH_OF_BLOCK, block.length(), expected)?;
            }
            let digest = StateDigest::of_block(block);
            self.state(&self.plain.kept.blocks, block.length(), &digest, true)?;
            self.seen.blocks += 1;
        }
        Ok(())
    }

    fn state(
        &self,
        plain: &BTreeMap<usize, StateDigest>,
        length: usize,
        digest: &StateDigest,
        block: bool,
    ) -> Result<(), Difference> {
        let round = self.seen.rounds.len();
        let nothing = StateDigest::default();
        let plain = plain.get(&length).unwrap_or(&nothing);
        match digest.first_difference(plain) {
            Some((layer, kind)) => Err(Difference::State { round, length, layer, kind, block }),
            None if digest.rows != plain.rows || (digest.rows == 0 && !block) => {
                let what = "rows of the state";
                Err(Difference::Count { round, what, found: digest.rows, expected: plain.rows })
            }
            None => Ok(()),
        }
    }

    fn finish<B: Backend>(&mut self, decoder: &Decoder<'_, B>) -> Result<(), Difference> {
        let (round, index) = (self.seen.rounds.len(), self.seen.tokens);
        if let Some(plain) = self.plain.tokens.get(index).copied() {
            return Err(Difference::Token { round, index, token: None, plain: Some(plain) });
        }
        if decoder.end() != self.plain.end {
            return Err(Difference::End { end: decoder.end(), plain: self.plain.end });
        }
        self.seen.acceptance = decoder.acceptance().clone();
        Ok(())
    }
}
