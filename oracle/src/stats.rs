//! Figures that describe how far two sets of logits are apart. They explain; they are not verdicts.
//!
//! Promises: rows are compared position by position; NaN counts as disagreement and makes a distance
//! infinite, so it can never look close.

use engine::rows::Rows;

use crate::npy::Array;

/// Distances of logits row by row.
#[derive(Clone, Debug)]
pub struct Distances {
    /// Root mean square difference of each row.
    pub rms: Vec<f64>,
    /// Largest difference of each row.
    pub largest: Vec<f64>,
    /// Whether both sides choose the same token, for each row.
    pub agree: Vec<bool>,
}

/// The index of the largest value, lowest index first among equals; `None` for an empty row or NaN.
#[must_use]
pub fn argmax(row: &[f64]) -> Option<usize> {
    let mut best = None;
    for (index, value) in row.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if best.is_none_or(|best: usize| *value > row[best]) {
            best = Some(index);
        }
    }
    best
}

/// The difference between the largest and the second largest value; 0 for fewer than two.
#[must_use]
pub fn margin(row: &[f64]) -> f64 {
    let Some(best) = argmax(row) else { return 0.0 };
    let others = row.iter().enumerate().filter(|(index, _)| *index != best);
    let second = others.fold(f64::NEG_INFINITY, |max, (_, value)| max.max(*value));
    if second.is_finite() { row[best] - second } else { 0.0 }
}

/// A row of ours as f64.
#[must_use]
pub fn widen(row: &[f32]) -> Vec<f64> {
    row.iter().map(|value| f64::from(*value)).collect()
}

/// Compares the rows of two arrays of logits; arrays of different shapes agree nowhere.
#[must_use]
pub fn between(ours: &Rows, theirs: &Array) -> Distances {
    if theirs.shape != [ours.count(), ours.width()] {
        let count = ours.count().max(1);
        let apart = vec![f64::INFINITY; count];
        return Distances { rms: apart.clone(), largest: apart, agree: vec![false; count] };
    }
    let rows = ours.iter().map(widen).zip(theirs.values.chunks_exact(theirs.width()));
    let mut distances = Distances { rms: Vec::new(), largest: Vec::new(), agree: Vec::new() };
    for (ours, theirs) in rows {
        let differences = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
        let (mut squares, mut largest) = (0.0_f64, 0.0_f64);
        for difference in differences {
            let difference = if difference.is_nan() { f64::INFINITY } else { difference };
            squares += difference * difference;
            largest = largest.max(difference);
        }
        distances.rms.push((squares / ours.len() as f64).sqrt());
        distances.largest.push(largest);
        let chosen = argmax(&ours);
        distances.agree.push(chosen.is_some() && chosen == argmax(theirs));
    }
    distances
}

/// The median; NaN for an empty list, which no bound accepts.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The share of `true`; NaN for an empty list, which no bound accepts.
#[must_use]
pub fn share(flags: &[bool]) -> f64 {
    flags.iter().filter(|flag| **flag).count() as f64 / flags.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32], width: usize) -> Rows {
        let mut rows = Rows::empty(width);
        values.chunks(width).for_each(|row| rows.push(row));
        rows
    }

    fn array(values: &[f64], width: usize) -> Array {
        Array { shape: vec![values.len() / width, width], values: values.to_vec() }
    }

    #[test]
    fn distances_are_those_of_each_row() {
        let ours = rows(&[1.0, 2.0, 3.0, 3.0], 2);
        let found = between(&ours, &array(&[1.0, 2.0, 0.0, 7.0], 2));
        assert_eq!(found.largest, [0.0, 4.0]);
        assert_eq!(found.rms, [0.0, 12.5_f64.sqrt()]);
        assert_eq!(found.agree, [true, false], "a tie goes to the lower id");
        assert_eq!((share(&found.agree), median(&found.largest)), (0.5, 4.0));
    }

    #[test]
    fn nan_other_shapes_and_nothing_never_look_close() {
        let ours = rows(&[1.0, f32::NAN], 2);
        let found = between(&ours, &array(&[1.0, 1.0], 2));
        assert_eq!((found.largest[0], found.agree[0]), (f64::INFINITY, false));
        let ours = rows(&[1.0, 2.0, 3.0, 4.0], 2);
        for theirs in [array(&[1.0, 2.0], 2), array(&[1.0, 2.0, 3.0, 4.0], 4), array(&[], 2)] {
            let found = between(&ours, &theirs);
            assert_eq!((median(&found.rms), share(&found.agree)), (f64::INFINITY, 0.0));
        }
        assert!(median(&[]).is_nan() && share(&[]).is_nan());
        assert_eq!((argmax(&[]), argmax(&[1.0, f64::NAN])), (None, None));
        assert_eq!((margin(&[]), margin(&[1.0]), margin(&[3.0, 1.0, 2.5])), (0.0, 0.0, 0.5));
    }
}
