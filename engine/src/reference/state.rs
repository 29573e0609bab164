//! What a sequence leaves behind in a layer: key rows, projected rows, compressed rows.
//!
//! Promises: everything is indexed by absolute position, so the last [`ROLLBACK_MAX`] tokens can be
//! taken back by forgetting them: no row that the remaining tokens need was overwritten, and no window
//! was shifted. Rings are longer by that many rows than their readers look back.
//! Assumes positions are written in order. Leaves it to `session` to refuse deeper rollbacks.

use crate::config::{Compression, Config};
use crate::rows::Rows;

/// Tokens that can be taken back: the deepest draft of a speculative round.
pub const ROLLBACK_MAX: usize = 8;

/// Rows of the most recent positions; it grows to its capacity as positions are written.
#[derive(Clone)]
pub struct Ring {
    rows: Rows,
    capacity: usize,
}

impl Ring {
    /// A ring for readers that look back over `reach` positions, the current one included.
    #[must_use]
    pub fn new(reach: usize, width: usize) -> Self {
        Self { rows: Rows::empty(width), capacity: reach + ROLLBACK_MAX }
    }

    /// Writes the row of `position`.
    pub fn write(&mut self, position: usize, row: &[f32]) {
        let slot = position % self.capacity;
        if slot == self.rows.count() {
            self.rows.push(row);
        } else {
            self.rows.row_mut(slot).copy_from_slice(row);
        }
    }

    /// The row of `position`, which must be among the last ones written.
    #[must_use]
    pub fn row(&self, position: usize) -> &[f32] {
        self.rows.row(position % self.capacity)
    }
}

/// State of one compressor.
#[derive(Clone)]
pub struct CompressorState {
    /// Kind of window.
    pub compression: Compression,
    /// Projected values of recent positions.
    pub kv: Ring,
    /// Projected scores of recent positions.
    pub scores: Ring,
    /// Compressed rows, one a complete window.
    pub rows: Rows,
}

impl CompressorState {
    fn new(compression: Compression, dim: usize) -> Self {
        // An overlapping window is pooled with the one before it.
        let reach = match compression {
            Compression::Ratio4 => 2 * compression.ratio(),
            _ => compression.ratio(),
        };
        let width = compression.projected(dim);
        Self {
            compression,
            kv: Ring::new(reach, width),
            scores: Ring::new(reach, width),
            rows: Rows::empty(dim),
        }
    }

    /// First position whose projected row can still be read once `length` tokens are in.
    fn first_live(&self, length: usize) -> usize {
        let ratio = self.compression.ratio();
        let window = length / ratio;
        match self.compression {
            Compression::Ratio4 => window.saturating_sub(1) * ratio,
            _ => window * ratio,
        }
    }

    fn visit(&self, kinds: [&'static str; 3], length: usize, visit: &mut StateVisitor<'_>) {
        for position in self.first_live(length)..length {
            visit(kinds[0], position, self.kv.row(position));
            visit(kinds[1], position, self.scores.row(position));
        }
        for (index, row) in self.rows.iter().enumerate() {
            visit(kinds[2], index, row);
        }
    }
}

/// Receives the kind, the position (or index of a compressed row) and the values of a live row.
pub type StateVisitor<'a> = dyn FnMut(&'static str, usize, &[f32]) + 'a;

/// State of one layer.
#[derive(Clone)]
pub struct LayerState {
    /// Key rows of the window.
    pub keys: Ring,
    /// State of the compressor, in layers that have one.
    pub compressor: Option<CompressorState>,
    /// State of the indexer's compressor, in layers that have one.
    pub indexer: Option<CompressorState>,
    window: usize,
}

impl LayerState {
    /// State of a layer before the first token.
    #[must_use]
    pub fn new(config: &Config, compression: Compression) -> Self {
        let (compressor, indexer) = match compression {
            Compression::None => (false, false),
            Compression::Ratio4 => (true, true),
            Compression::Ratio128 => (true, false),
        };
        let state = |dim| CompressorState::new(compression, dim);
        Self {
            keys: Ring::new(config.window, config.head_dim),
            compressor: compressor.then(|| state(config.head_dim)),
            indexer: indexer.then(|| state(config.indexer_dim)),
            window: config.window,
        }
    }

    /// Forgets every token from position `length` on.
    pub fn truncate(&mut self, length: usize) {
        for state in [&mut self.compressor, &mut self.indexer].into_iter().flatten() {
            state.rows.truncate(length / state.compression.ratio());
        }
    }

    /// Shows every row that a later token can read, in a fixed order: what two states must agree on to
    /// be the same. `length` is the number of tokens in.
    pub fn visit(&self, length: usize, visit: &mut StateVisitor<'_>) {
        for position in (length + 1).saturating_sub(self.window)..length {
            visit("key", position, self.keys.row(position));
        }
        if let Some(state) = &self.compressor {
            state.visit(["compressor kv", "compressor score", "compressed"], length, visit);
        }
        if let Some(state) = &self.indexer {
            state.visit(["indexer kv", "indexer score", "indexer row"], length, visit);
        }
    }
}
