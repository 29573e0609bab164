//! The rows of the table of switches.
//!
//! Promises: the words of a row are the variants of its type; every default is a value of its row.
//! Leaves reading them to `switches`.

use std::fmt;

use serde::Serialize;

/// A value of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// One of several words.
    Word(&'static str),
    /// On or off.
    Flag(bool),
    /// A number.
    Count(usize),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Flag(on) => u8::from(*on).fmt(f),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// The values that a switch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these.
    Words(&'static [&'static str]),
    /// `0` or `1`.
    Flag,
    /// A number in decimal digits.
    Count {
        /// The smallest.
        least: usize,
        /// The largest.
        most: usize,
    },
}

impl Values {
    /// The value that `text` stands for.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Words(words) => {
                words.iter().find(|word| **word == text).copied().map(Value::Word)
            }
            Self::Flag => match text {
                "0" => Some(Value::Flag(false)),
                "1" => Some(Value::Flag(true)),
                _ => None,
            },
            Self::Count { least, most } => {
                // The standard parser also takes a sign.
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let count = digits.then(|| text.parse().ok()).flatten()?;
                (least..=most).contains(&count).then_some(Value::Count(count))
            }
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(&words.join(" or ")),
            Self::Flag => f.write_str("0 or 1"),
            Self::Count { least, most } => write!(f, "{least} to {most}"),
        }
    }
}

/// A variable of ds4 that sets a switch when its value is neither empty nor `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The variable.
    pub name: &'static str,
    /// What it sets the switch to.
    pub means: Value,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name in listings and records.
    pub name: &'static str,
    /// Its option.
    pub option: &'static str,
    /// Its variable.
    pub variable: &'static str,
    /// Variables of ds4 that mean the same.
    pub aliases: &'static [Alias],
    /// The values it may have.
    pub values: Values,
    /// Its value when nobody sets it; none stands for the threads that the machine offers.
    pub default: Option<Value>,
    /// Its value under the preset, which leaves it alone when there is none.
    pub quality: Option<Value>,
    /// What it does, in one line.
    pub what: &'static str,
}

impl Row {
    /// The option without its dashes.
    #[must_use]
    pub fn flag(&self) -> &'static str {
        self.option.trim_start_matches('-')
    }

    /// What the option does, its values and its default, in one line.
    #[must_use]
    pub fn help(&self) -> String {
        let default = self.default.map_or("those of the machine".into(), |value| value.to_string());
        format!("{} [{}; default: {default}]", self.what, self.values)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$line:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$line])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const WORDS: &'static [&'static str] = &[$($word,)*];

            /// The word on the command line, in variables and in records.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// How the down-projections of a token's experts are added up.
    MoeDown {
        /// In slot order: the bits of the contract.
        Ordered = "ordered",
        /// As they finish, by atomic additions: bits differ from run to run.
        Atomic = "atomic",
    }
}

words! {
    /// The widest instructions that the CPU engine may use. No bit depends on it.
    Simd {
        /// The widest that the machine has.
        Auto = "auto",
        /// None.
        Scalar = "scalar",
        /// AVX2 with fused multiply-add.
        Avx2 = "avx2",
        /// AVX-512.
        Avx512 = "avx512",
    }
}

/// The most threads that can be asked for.
pub const THREADS_MAX: usize = 1024;

/// How the experts of a token are added up.
pub const MOE_DOWN: Row = Row {
    name: "moe-down",
    option: "--moe-down",
    variable: "LOCKSTEP_MOE_DOWN",
    aliases: &[
        Alias { name: "DS4_CUDA_MOE_NO_ATOMIC_DOWN", means: Value::Word(MoeDown::Ordered.name()) },
        Alias { name: "DS4_CUDA_MOE_ATOMIC_DOWN", means: Value::Word(MoeDown::Atomic.name()) },
    ],
    values: Values::Words(MoeDown::WORDS),
    default: Some(Value::Word(MoeDown::Ordered.name())),
    quality: Some(Value::Word(MoeDown::Ordered.name())),
    what: "how a token's experts are added up; atomic has other bits in every run",
};

/// From how many rows on atomic additions apply.
pub const MOE_ATOMIC_ROWS: Row = Row {
    name: "moe-atomic-rows",
    option: "--moe-atomic-rows",
    variable: "LOCKSTEP_MOE_ATOMIC_ROWS",
    aliases: &[],
    values: Values::Count { least: 1, most: u32::MAX as usize },
    default: Some(Value::Count(128)),
    quality: None,
    what: "rows in one forward call from which atomic applies; fewer stay ordered",
};

/// Whether drafts are verified exactly.
pub const MTP_STRICT: Row = Row {
    name: "mtp-strict",
    option: "--mtp-strict",
    variable: "LOCKSTEP_MTP_STRICT",
    aliases: &[Alias { name: "DS4_MTP_STRICT", means: Value::Flag(true) }],
    values: Values::Flag,
    default: Some(Value::Flag(false)),
    quality: Some(Value::Flag(true)),
    what: "1: a draft is taken only where one token at a time would have chosen it",
};

/// Threads.
pub const THREADS: Row = Row {
    name: "threads",
    option: "--threads",
    variable: "LOCKSTEP_THREADS",
    aliases: &[],
    values: Values::Count { least: 1, most: THREADS_MAX },
    default: None,
    quality: None,
    what: "threads that work is spread over; no bit depends on it",
};

/// The widest instructions.
pub const SIMD: Row = Row {
    name: "simd",
    option: "--simd",
    variable: "LOCKSTEP_SIMD",
    aliases: &[],
    values: Values::Words(Simd::WORDS),
    default: Some(Value::Word(Simd::Auto.name())),
    quality: None,
    what: "widest instructions that the CPU engine may use; no bit depends on it",
};

/// Every switch.
pub const TABLE: [&Row; 5] = [&MOE_DOWN, &MOE_ATOMIC_ROWS, &MTP_STRICT, &THREADS, &SIMD];
