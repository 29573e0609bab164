//! The closed table of run-time switches, and where the value in force of each came from.
//!
//! Promises: [`TABLE`] is the whole list; parsing, errors, listings, the options of the command line and
//! `docs/switches.md` follow it. A variable that starts with [`PREFIX`] and is not in it is an error, as is
//! a value that a switch does not have: nothing that was set is ever ignored. Options win over the
//! preset, the preset over variables, variables over aliases, aliases over defaults; what contradicts
//! itself on the command line, or in the environment, is an error even where something else wins.
//! Assumes the environment is handed in. Leaves acting on a switch to the code it is named after; the
//! reference reads none of them but the number of threads, which changes no bit.

mod table;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

use serde::Serialize;
pub use table::{
    Alias, MOE_ATOMIC_ROWS, MOE_DOWN, MTP_STRICT, MoeDown, Row, SIMD, Simd, TABLE, THREADS,
    THREADS_MAX, Value, Values,
};

/// Every variable that starts with this is ours, and must be known.
pub const PREFIX: &str = "LOCKSTEP_";
/// The preset: every switch on the value that moves no bit.
pub const QUALITY: &str = "--quality";

/// What the preset sets, in one line.
#[must_use]
pub fn quality_help() -> String {
    let sets = |row: &'static Row| Some(format!("{} {}", row.option, row.quality?));
    format!("Preset: {}", TABLE.into_iter().filter_map(sets).collect::<Vec<_>>().join(", "))
}

/// Refusals of a variable or an option. Messages name the culprit and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// A variable of ours or an option that the table lacks.
    #[error("{name}: no such switch; the nearest name is {nearest}")]
    Unknown {
        /// As it was given; what is not UTF-8 is replaced.
        name: String,
        /// The known name that takes the fewest edits.
        nearest: &'static str,
    },
    /// A value that the switch does not have.
    #[error("{name}: {value:?} is not {values}")]
    Value {
        /// The variable or the option.
        name: &'static str,
        /// As it was given; what is not UTF-8 is replaced.
        value: String,
        /// What the switch may be.
        values: Values,
    },
    /// The value of an alias is not UTF-8.
    #[error("{name}: {value:?} is not UTF-8")]
    NotUtf8 {
        /// The alias.
        name: &'static str,
        /// Its value; what is not UTF-8 is replaced.
        value: String,
    },
    /// Two sources of the same standing disagree.
    #[error("{switch}: {} says {}, but {} says {}", first.0, first.1, second.0, second.1)]
    Contradiction {
        /// The switch.
        switch: &'static str,
        /// A source and its value.
        first: (Source, Value),
        /// The source and the value that contradict it.
        second: (Source, Value),
    },
}

/// Where a value came from; the later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The variable that users of ds4 know.
    Alias(&'static str),
    /// The variable.
    Variable(&'static str),
    /// The preset on the command line.
    Preset(&'static str),
    /// The option on the command line.
    Option(&'static str),
}

impl Source {
    /// The sources among which a contradiction is an error.
    fn level(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Alias(_) | Self::Variable(_) => "environment",
            Self::Preset(_) | Self::Option(_) => "command line",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Alias(name) => write!(f, "alias {name}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::Option(name) => write!(f, "option {name}"),
        }
    }
}

/// A value in force and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// What is in force.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

/// What the command line said, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Options as in [`Row::option`], each with its value.
    pub options: Vec<(String, String)>,
    /// Whether [`QUALITY`] was given.
    pub quality: bool,
}

/// Every switch with the value in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// How the experts of a token are added up.
    pub moe_down: Setting<MoeDown>,
    /// Rows in one forward call from which [`MoeDown::Atomic`] applies.
    pub atomic_threshold: Setting<usize>,
    /// Whether drafts are verified by the arithmetic of one token at a time.
    pub mtp_strict: Setting<bool>,
    /// Threads, at least one.
    pub threads: Setting<usize>,
    /// The widest instructions in use.
    pub simd: Setting<Simd>,
}

/// A line of a listing or a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The switch.
    #[serde(skip)]
    pub row: &'static Row,
    /// What is in force.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

impl Switches {
    /// The values in force under this environment and this command line.
    ///
    /// # Errors
    /// When a variable or an option is unknown, a value is not one of its switch's, or two sources of
    /// the same standing contradict each other.
    pub fn read(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        command_line: &CommandLine,
    ) -> Result<Self, SwitchError> {
        let mut claims = from_environment(environment)?;
        claims.extend(from_command_line(command_line)?);
        // The winner first; an order that does not depend on the order of the environment.
        claims.sort_by_key(|claim| std::cmp::Reverse(claim.source));
        Ok(Self {
            moe_down: settle(&MOE_DOWN, &claims)?,
            atomic_threshold: settle(&MOE_ATOMIC_ROWS, &claims)?,
            mtp_strict: settle(&MTP_STRICT, &claims)?,
            threads: settle(&THREADS, &claims)?,
            simd: settle(&SIMD, &claims)?,
        })
    }

    /// Every switch in the order of [`TABLE`].
    #[must_use]
    pub fn entries(&self) -> [Entry; TABLE.len()] {
        [
            entry(&MOE_DOWN, self.moe_down),
            entry(&MOE_ATOMIC_ROWS, self.atomic_threshold),
            entry(&MTP_STRICT, self.mtp_strict),
            entry(&THREADS, self.threads),
            entry(&SIMD, self.simd),
        ]
    }

    /// Every switch by name with value and source, for the record of a run.
    #[must_use]
    pub fn record(&self) -> BTreeMap<&'static str, Entry> {
        self.entries().into_iter().map(|entry| (entry.row.name, entry)).collect()
    }
}

/// What one source says about one switch.
struct Claim {
    row: &'static Row,
    value: Value,
    source: Source,
}

fn from_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Claim>, SwitchError> {
    let ours = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let alias = |name: &OsStr| {
        TABLE.into_iter().find_map(|row| Some((row, row.aliases.iter().find(|a| a.name == name)?)))
    };
    let mut variables: Vec<_> =
        environment.into_iter().filter(|(name, _)| ours(name) || alias(name).is_some()).collect();
    variables.sort();
    let mut claims = Vec::new();
    for (name, value) in variables {
        if let Some((row, alias)) = alias(&name) {
            let Some(text) = value.to_str() else {
                let value = value.to_string_lossy().into_owned();
                return Err(SwitchError::NotUtf8 { name: alias.name, value });
            };
            // Empty and 0 mean that the alias says nothing.
            if !["", "0"].contains(&text) {
                let source = Source::Alias(alias.name);
                claims.push(Claim { row, value: alias.means, source });
            }
            continue;
        }
        let Some(row) = TABLE.into_iter().find(|row| row.variable == name) else {
            let name = name.to_string_lossy().into_owned();
            let nearest = nearest(&name, TABLE.map(|row| row.variable));
            return Err(SwitchError::Unknown { name, nearest });
        };
        let source = Source::Variable(row.variable);
        claims.push(Claim { row, value: parse(row, row.variable, &value)?, source });
    }
    Ok(claims)
}

fn from_command_line(command_line: &CommandLine) -> Result<Vec<Claim>, SwitchError> {
    let mut claims = Vec::new();
    for (option, value) in &command_line.options {
        let Some(row) = TABLE.into_iter().find(|row| row.option == option) else {
            let nearest = nearest(option, TABLE.map(|row| row.option));
            return Err(SwitchError::Unknown { name: option.clone(), nearest });
        };
        let source = Source::Option(row.option);
        claims.push(Claim { row, value: parse(row, row.option, OsStr::new(value))?, source });
    }
    if command_line.quality {
        let source = Source::Preset(QUALITY);
        let sets = |row: &'static Row| Some(Claim { row, value: row.quality?, source });
        claims.extend(TABLE.into_iter().filter_map(sets));
    }
    Ok(claims)
}

fn parse(row: &Row, name: &'static str, value: &OsStr) -> Result<Value, SwitchError> {
    let parsed = value.to_str().and_then(|text| row.values.parse(text));
    let value = || value.to_string_lossy().into_owned();
    parsed.ok_or_else(|| SwitchError::Value { name, value: value(), values: row.values })
}

/// The known name that takes the fewest edits; the first of the table among equals.
fn nearest(name: &str, known: [&'static str; TABLE.len()]) -> &'static str {
    let edits =
        |known: &&str| strsim::damerau_levenshtein(&name.to_uppercase(), &known.to_uppercase());
    known.into_iter().min_by_key(edits).expect("the table has rows")
}

/// The first of the claims on a switch, which must not contradict another of its level.
fn settle<T: Typed>(row: &'static Row, claims: &[Claim]) -> Result<Setting<T>, SwitchError> {
    let claims: Vec<&Claim> = claims.iter().filter(|claim| claim.row.name == row.name).collect();
    for (index, first) in claims.iter().enumerate() {
        let contradicts = |second: &&&Claim| {
            second.source.level() == first.source.level() && second.value != first.value
        };
        if let Some(second) = claims[index + 1..].iter().find(contradicts) {
            return Err(SwitchError::Contradiction {
                switch: row.name,
                first: (first.source, first.value),
                second: (second.source, second.value),
            });
        }
    }
    let default = || (row.default.unwrap_or_else(|| Value::Count(cores())), Source::Default);
    let (value, source) = claims.first().map_or_else(default, |claim| (claim.value, claim.source));
    Ok(Setting { value: T::from_value(value), source })
}

fn entry<T: Typed>(row: &'static Row, setting: Setting<T>) -> Entry {
    Entry { row, value: setting.value.to_value(), source: setting.source }
}

/// Threads the machine offers this process.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// The type of a switch.
trait Typed: Copy {
    /// From a value that its row has.
    fn from_value(value: Value) -> Self;
    /// And back.
    fn to_value(self) -> Value;
}

impl Typed for bool {
    fn from_value(value: Value) -> Self {
        value == Value::Flag(true)
    }

    fn to_value(self) -> Value {
        Value::Flag(self)
    }
}

impl Typed for usize {
    fn from_value(value: Value) -> Self {
        match value {
            Value::Count(count) => count,
            Value::Flag(_) | Value::Word(_) => unreachable!("the row of a count"),
        }
    }

    fn to_value(self) -> Value {
        Value::Count(self)
    }
}

/// An enum with a word for every variant.
macro_rules! typed {
    ($($name:ident)*) => {$(
        impl Typed for $name {
            fn from_value(value: Value) -> Self {
                let found = Self::ALL.iter().find(|variant| Value::Word(variant.name()) == value);
                *found.expect("the row's words are those of the type")
            }

            fn to_value(self) -> Value {
                Value::Word(self.name())
            }
        }
    )*};
}

typed!(MoeDown Simd);

#[cfg(test)]
mod tests;
