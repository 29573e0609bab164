//! Activations: rows of equal width, one a token.
//!
//! Promises: `values.len()` is always `rows * width`. No arithmetic.

/// Rows of f32 values, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    width: usize,
    values: Vec<f32>,
}

impl Rows {
    /// `count` rows of zeros.
    #[must_use]
    pub fn zeros(count: usize, width: usize) -> Self {
        Self { width, values: vec![0.0; count * width] }
    }

    /// Rows of `width` made of these values.
    ///
    /// # Panics
    /// When they are not whole rows.
    #[must_use]
    pub fn of(width: usize, values: Vec<f32>) -> Self {
        assert!(values.len().is_multiple_of(width), "whole rows");
        Self { width, values }
    }

    /// No rows yet.
    #[must_use]
    pub fn empty(width: usize) -> Self {
        Self::zeros(0, width)
    }

    /// Values of each row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len() / self.width
    }

    /// All values, row after row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, row after row, to be written.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Row `index`.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// Row `index`, to be written.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.width..(index + 1) * self.width]
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Takes room for `count` rows in all.
    ///
    /// # Errors
    /// When there is no such room.
    pub fn reserve(&mut self, count: usize) -> Result<(), std::collections::TryReserveError> {
        let more = (count * self.width).saturating_sub(self.values.len());
        self.values.try_reserve_exact(more)
    }

    /// Adds a row at the end.
    ///
    /// # Panics
    /// When the row has another width.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.width, "width of a row");
        self.values.extend_from_slice(row);
    }

    /// Some of the rows.
    #[must_use]
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Self {
        let values = self.values[rows.start * self.width..rows.end * self.width].to_vec();
        Self { width: self.width, values }
    }

    /// Drops all rows from `count` on.
    pub fn truncate(&mut self, count: usize) {
        self.values.truncate(count * self.width);
    }

    /// Each row turned into another one of `width` values.
    #[must_use]
    pub fn map(&self, width: usize, mut each: impl FnMut(&[f32], &mut [f32])) -> Self {
        let mut out = Self::zeros(self.count(), width);
        for (from, to) in self.iter().zip(out.values.chunks_exact_mut(width)) {
            each(from, to);
        }
        out
    }
}
