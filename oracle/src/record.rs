//! An observer that keeps what it sees.
//!
//! Promises: rows are kept by site, exactly as shown; only the taps asked for are kept.

use std::collections::{BTreeMap, BTreeSet};

use engine::tap::{Observer, Site, Tap, Values};

/// Keeps the rows of chosen taps.
#[derive(Debug, Default)]
pub struct Record {
    wanted: BTreeSet<Tap>,
    /// Rows of floats by site.
    pub floats: BTreeMap<Site, Vec<f32>>,
    /// Rows of indices by site.
    pub indices: BTreeMap<Site, Vec<usize>>,
}

impl Record {
    /// An observer of these taps.
    #[must_use]
    pub fn of(taps: &[Tap]) -> Self {
        Self { wanted: taps.iter().copied().collect(), ..Self::default() }
    }
}

impl Observer for Record {
    fn wants(&self, tap: Tap) -> bool {
        self.wanted.contains(&tap)
    }

    fn observe(&mut self, site: Site, values: Values<'_>) {
        match values {
            Values::F32(values) => {
                self.floats.insert(site, values.to_vec());
            }
            Values::Index(values) => {
                self.indices.insert(site, values.to_vec());
            }
        }
    }
}
