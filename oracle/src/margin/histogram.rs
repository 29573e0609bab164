//! How margins are distributed: powers of two, in value and in ulp.
//!
//! Promises: every row is counted once: in a bucket, as an exact tie or as excluded. Nothing is rounded.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Margin;

/// Counts of margins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Rows with a margin, ties included.
    pub rows: u64,
    /// Rows whose two largest logits are equal.
    pub exact_ties: u64,
    /// Rows that have no margin, because an entry is not finite.
    pub excluded: u64,
    /// Key `k` counts margins from `2^k` up to but not including `2^(k+1)`.
    pub value: BTreeMap<i32, u64>,
    /// The same for margins in ulp.
    pub ulps: BTreeMap<u32, u64>,
}

/// The power of two at or below a positive number, from its exponent bits.
fn floor_log2(x: f64) -> i32 {
    // Differences of floats are normal in f64.
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

impl Histogram {
    /// Counts a margin.
    pub fn add(&mut self, margin: &Margin) {
        self.add_gap(margin.value);
        if let Some(bucket) = margin.ulps.checked_ilog2() {
            *self.ulps.entry(bucket).or_default() += 1;
        }
    }

    /// Counts a gap that is known in value only.
    pub fn add_gap(&mut self, gap: f64) {
        if !gap.is_finite() {
            self.excluded += 1;
            return;
        }
        self.rows += 1;
        if gap == 0.0 {
            self.exact_ties += 1;
        } else {
            *self.value.entry(floor_log2(gap.abs())).or_default() += 1;
        }
    }

    /// Counts a row without a margin.
    pub fn exclude(&mut self) {
        self.excluded += 1;
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.exact_ties += other.exact_ties;
        self.excluded += other.excluded;
        other.value.iter().for_each(|(k, n)| *self.value.entry(*k).or_default() += n);
        other.ulps.iter().for_each(|(k, n)| *self.ulps.entry(*k).or_default() += n);
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, exact_ties, excluded, value, ulps } = self;
        writeln!(f, "{rows} rows, {exact_ties} exact ties, {excluded} excluded")?;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, key: i64, count: &u64| {
            let bar = "#".repeat((40 * count).div_ceil((*rows).max(1)) as usize);
            writeln!(f, "{name} 2^{key:<5} {count:>8} {bar}")
        };
        value.iter().try_for_each(|(key, count)| line(f, "value", i64::from(*key), count))?;
        ulps.iter().try_for_each(|(key, count)| line(f, "ulp  ", i64::from(*key), count))
    }
}
