//! Outputs that several products write into at once.
//!
//! Promises: two [`View`]s that exist at the same time share no element: a view is made from a unique
//! borrow and can only be cut. Leaves it to `matmul` that no two threads write one element of a view.

use std::marker::PhantomData;

use crate::rows::Rows;

/// A rectangle of f32 values inside borrowed memory, to be written.
pub struct View<'a> {
    start: *mut f32,
    rows: usize,
    width: usize,
    stride: usize,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: a view is a unique borrow of its elements, as `&mut [f32]` is, and f32 may go anywhere.
unsafe impl Send for View<'_> {}
// SAFETY: through a shared view nothing is read, and `set` makes its caller promise that no element is
// written by two threads.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// All of `rows`.
    pub fn of(rows: &'a mut Rows) -> Self {
        let width = rows.width();
        Self::of_slice(rows.values_mut(), width)
    }

    /// Rows of `width` values, one after the other.
    ///
    /// # Panics
    /// When the slice is not whole rows.
    pub fn of_slice(values: &'a mut [f32], width: usize) -> Self {
        let rows = values.len().checked_div(width).unwrap_or(0);
        assert_eq!(rows * width, values.len(), "whole rows");
        Self { start: values.as_mut_ptr(), rows, width, stride: width, memory: PhantomData }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of each row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns before `column`, and those from it on.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn split_columns(self, column: usize) -> (Self, Self) {
        assert!(column <= self.width, "a column of the view");
        let right = Self { start: self.at(0, column), width: self.width - column, ..self };
        (Self { width: column, ..self }, right)
    }

    /// Rows before `row`, and those from it on.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn split_rows(self, row: usize) -> (Self, Self) {
        assert!(row <= self.rows, "a row of the view");
        let below = Self { start: self.at(row, 0), rows: self.rows - row, ..self };
        (Self { rows: row, ..self }, below)
    }

    /// Address of an element; beyond the last one it is only computed, never used.
    fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride + column)
    }

    /// Writes one element.
    ///
    /// # Safety
    /// No other thread writes this element meanwhile.
    #[inline(always)]
    pub(super) unsafe fn set(&self, row: usize, column: usize, value: f32) {
        assert!(row < self.rows && column < self.width, "an element of the view");
        // SAFETY: the element is inside the view, whose memory is borrowed uniquely, and no other
        // thread writes it.
        unsafe { self.at(row, column).write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_every_element_once() {
        let mut rows = Rows::zeros(5, 7);
        let (top, bottom) = View::of(&mut rows).split_rows(2);
        let (left, right) = bottom.split_columns(3);
        for (number, view) in [top, left, right].into_iter().enumerate() {
            for row in 0..view.rows() {
                for column in 0..view.width() {
                    // SAFETY: there is one thread.
                    unsafe { view.set(row, column, number as f32 + 1.0) };
                }
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let expected = if index < 2 { [1.0; 7] } else { [2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0] };
            assert_eq!(row, expected, "row {index}");
        }
    }
}
