//! What a sequence leaves behind in a layer: key rows, projected rows, compressed rows.
//!
//! Promises: everything is indexed by absolute position, so the last [`ROLLBACK_MAX`] tokens can be
//! taken back by forgetting them: no row that the remaining tokens need was overwritten, and no window
//! was shifted. Rings are longer by that many rows than their readers look back.
//! Assumes positions are written in order. Leaves it to `session` to refuse deeper rollbacks.

use std::collections::TryReserveError;

use crate::backend::CompressedRows;
use crate::config::{Compression, Config};
use crate::rows::Rows;
use crate::session::RunError;

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

    /// Takes room for all of its rows.
    fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.rows.reserve(self.capacity)
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

    /// Takes room for `context` tokens.
    fn reserve(&mut self, context: usize) -> Result<(), TryReserveError> {
        self.kv.reserve()?;
        self.scores.reserve()?;
        self.rows.reserve(context / self.compression.ratio())
    }

    /// Values that it holds once `context` tokens are in.
    fn planned_values(&self, context: usize) -> usize {
        let rings = self.kv.capacity * self.kv.rows.width() * 2;
        rings + context / self.compression.ratio() * self.rows.width()
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
    /// State of a layer before the first token; with a `context`, room for that many tokens is taken now.
    ///
    /// # Errors
    /// When there is no such room.
    pub fn new(
        config: &Config,
        compression: Compression,
        context: Option<usize>,
    ) -> Result<Self, RunError> {
        let mut state = Self::empty(config, compression);
        if let Some(context) = context {
            let bytes = state.planned_bytes(context);
            state.reserve(context).map_err(|_| RunError::OutOfMemory { bytes })?;
        }
        Ok(state)
    }

    fn empty(config: &Config, compression: Compression) -> Self {
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

    fn reserve(&mut self, context: usize) -> Result<(), TryReserveError> {
        self.keys.reserve()?;
        for state in [&mut self.compressor, &mut self.indexer].into_iter().flatten() {
            state.reserve(context)?;
        }
        Ok(())
    }

    /// Bytes that the state of a layer takes for `context` tokens.
    #[must_use]
    pub fn plan(config: &Config, compression: Compression, context: usize) -> u64 {
        Self::empty(config, compression).planned_bytes(context)
    }

    fn planned_bytes(&self, context: usize) -> u64 {
        let keys = self.keys.capacity * self.keys.rows.width();
        let states = [&self.compressor, &self.indexer].into_iter().flatten();
        let values = states.fold(keys, |sum, state| sum + state.planned_values(context));
        values as u64 * size_of::<f32>() as u64
    }

    /// Puts key rows of positions from `start` on into the window.
    pub fn store_keys(&mut self, start: usize, keys: &Rows) {
        for (token, row) in keys.iter().enumerate() {
            self.keys.write(start + token, row);
        }
    }

    /// State of one of the compressors.
    ///
    /// # Panics
    /// When the layer has none.
    #[must_use]
    pub fn compressor(&self, rows: CompressedRows) -> &CompressorState {
        let state = match rows {
            CompressedRows::Attention => &self.compressor,
            CompressedRows::Indexer => &self.indexer,
        };
        state.as_ref().expect("a layer with compressed rows")
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// When the layer has none.
    pub fn compressor_mut(&mut self, rows: CompressedRows) -> &mut CompressorState {
        let state = match rows {
            CompressedRows::Attention => &mut self.compressor,
            CompressedRows::Indexer => &mut self.indexer,
        };
        state.as_mut().expect("a layer with compressed rows")
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
