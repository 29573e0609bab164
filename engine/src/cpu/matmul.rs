//! Products of stored weights with activations, one or many in one parallel region.
//!
//! Promises: the bits of `reference::matmul::quantised` where the caller asks for int8 activations, of
//! `reference::matmul::float` where not. Every element of every output is written.
//! Work is cut into items of whole output rows; which thread runs an item changes nothing.
//! Leaves the arithmetic to the kernel of each type.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::activations::{Activations, Encoded, Unit};
use super::level::Level;
use super::scalar;
use super::threads::Threads;
use super::view::View;
use crate::format::weights::Matrix;
use crate::rows::Rows;
use crate::tensor::DType;

/// Which rows of activations a product is for, in the order of its output rows.
#[derive(Clone, Debug)]
pub enum Pick<'a> {
    /// Consecutive ones.
    Range(Range<usize>),
    /// Those of these indices.
    List(&'a [usize]),
}

impl Pick<'_> {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of row `place`.
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> usize {
        match self {
            Self::Range(range) => range.start + place,
            Self::List(list) => list[place],
        }
    }
}

/// One product: some rows of a matrix with some rows of activations.
pub struct Job<'a> {
    /// The matrix.
    pub weights: &'a Matrix,
    /// Its rows that are wanted; the columns of `out`.
    pub features: Range<usize>,
    /// The activations; several jobs may share them and their encoding.
    pub x: &'a Activations,
    /// Their rows that are wanted; the rows of `out`.
    pub tokens: Pick<'a>,
    /// Where the product goes.
    pub out: View<'a>,
}

impl<'a> Job<'a> {
    /// The product of a whole matrix with all rows of activations.
    #[must_use]
    pub fn whole(weights: &'a Matrix, x: &'a Activations, out: View<'a>) -> Self {
        let (features, tokens) = (0..weights.rows(), Pick::Range(0..x.count()));
        Self { weights, features, x, tokens, out }
    }

    fn check(&self) {
        assert_eq!(self.x.width(), self.weights.columns(), "inputs of a product");
        assert!(self.features.end <= self.weights.rows(), "rows of the matrix");
        let tokens = (0..self.tokens.len()).map(|place| self.tokens.at(place));
        assert!(tokens.max().is_none_or(|token| token < self.x.count()), "rows of activations");
        assert_eq!(self.out.width(), self.features.len(), "columns of the output");
        assert_eq!(self.out.rows(), self.tokens.len(), "rows of the output");
    }

    /// Products of one pair of numbers in all.
    fn work(&self) -> usize {
        self.features.len() * self.weights.columns() * self.tokens.len()
    }
}

/// A job's activations as its kernel reads them.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    Float(&'a Activations),
    Quantised(&'a Encoded),
}

/// A piece of a job: some rows of its matrix.
pub(super) struct Item<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) input: Input<'a>,
    pub(super) features: Range<usize>,
}

impl Item<'_> {
    /// Writes the product of row `feature` of the matrix with activation row number `place`.
    ///
    /// # Safety
    /// `feature` is one of this item's, and this item is run by one thread.
    #[inline(always)]
    pub(super) unsafe fn set(&self, place: usize, feature: usize, value: f32) {
        // SAFETY: items of a job have different features, jobs have views of their own, and one thread
        // runs this item.
        unsafe { self.job.out.set(place, feature - self.job.features.start, value) };
    }
}

/// Memory of a thread that kernels decode weights into.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) units: Vec<Unit>,
    pub(super) floats: Vec<f32>,
}

impl Scratch {
    /// At least `count` units, of any content.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn units(&mut self, count: usize) -> &mut [Unit] {
        if self.units.len() < count {
            self.units.resize(count, Unit::ZERO);
        }
        &mut self.units[..count]
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Work that is not worth a second thread.
const INLINE_WORK: usize = 100_000;
/// Least work of an item.
const ITEM_WORK: usize = 60_000;
/// Items for each thread, so that a thread that was held up is helped by the others.
const ITEMS_EACH: usize = 8;
/// Rows of an item are a multiple of this: what float kernels do side by side.
const ROWS_TOGETHER: usize = 8;

/// Products at one level on some threads.
pub struct Kernels {
    level: Level,
    threads: Threads,
    /// Items run, by type of weights and whether activations were int8.
    runs: [[AtomicU64; 2]; DType::ALL.len()],
    /// Calls that added experts up in slot order, and as they arrived.
    sums: [AtomicU64; 2],
}

impl Kernels {
    /// Kernels of `level` on `threads`.
    #[must_use]
    pub fn new(level: Level, threads: Threads) -> Self {
        Self { level, threads, runs: Default::default(), sums: Default::default() }
    }

    /// The kernels that ran and how often.
    #[must_use]
    pub fn runs(&self) -> Vec<(String, u64)> {
        let mut runs = Vec::new();
        for (dtype, counts) in DType::ALL.iter().zip(&self.runs) {
            for (suffix, count) in ["", " int8"].iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let name = format!("cpu {} {}{suffix}", self.level.name(), dtype.name());
                    runs.push((name, count));
                }
            }
        }
        for (name, count) in ["cpu down ordered", "cpu down atomic"].iter().zip(&self.sums) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                runs.push(((*name).to_owned(), count));
            }
        }
        runs
    }

    /// Counts a sum of experts.
    pub(super) fn count_sum(&self, atomic: bool) {
        self.sums[usize::from(atomic)].fetch_add(1, Ordering::Relaxed);
    }

    /// The level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The threads, for work of other kinds.
    #[must_use]
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// The product of `weights` and all rows of `x`.
    #[must_use]
    pub fn matmul(&self, weights: &Matrix, x: &Activations, int8: bool) -> Rows {
        let mut out = Rows::zeros(x.count(), weights.rows());
        self.matmul_into(weights, x, int8, out.values_mut());
        out
    }

    /// The same, written over `out`.
    ///
    /// # Panics
    /// When `out` has another length than the product.
    pub fn matmul_into(&self, weights: &Matrix, x: &Activations, int8: bool, out: &mut [f32]) {
        let out = View::of_slice(out, weights.rows());
        self.matmul_jobs(&[Job::whole(weights, x, out)], int8);
    }

    /// Products side by side: group `g` of the rows of the matrix meets part `g` of each row of `x`.
    #[must_use]
    pub fn grouped(&self, weights: &Matrix, groups: usize, x: &Activations, int8: bool) -> Rows {
        let (rank, width) = (weights.rows() / groups, weights.columns());
        let parts: Vec<Activations> =
            (0..groups).map(|group| x.columns(group * width..(group + 1) * width)).collect();
        let mut out = Rows::zeros(x.count(), weights.rows());
        let (mut jobs, mut rest) = (Vec::with_capacity(groups), View::of(&mut out));
        for (group, x) in parts.iter().enumerate() {
            let (out, others) = rest.split_columns(rank);
            rest = others;
            let (features, tokens) = (group * rank..(group + 1) * rank, Pick::Range(0..x.count()));
            jobs.push(Job { weights, features, x, tokens, out });
        }
        self.matmul_jobs(&jobs, int8);
        drop(jobs);
        out
    }

    /// All products of `jobs` in one parallel region.
    ///
    /// # Panics
    /// When the shapes of a job do not fit.
    pub fn matmul_jobs(&self, jobs: &[Job<'_>], int8: bool) {
        jobs.iter().for_each(Job::check);
        let work: usize = jobs.iter().fold(0, |work, job| work + job.work());
        let share = (work / (self.threads.count() * ITEMS_EACH)).max(ITEM_WORK);
        let mut items = Vec::new();
        for job in jobs.iter().filter(|job| job.work() > 0) {
            let input = self.input(job, int8);
            let each = job.weights.columns() * job.tokens.len();
            let rows = (share / each).max(1).next_multiple_of(ROWS_TOGETHER);
            for start in job.features.clone().step_by(rows) {
                let features = start..job.features.end.min(start + rows);
                items.push(Item { job, input, features });
            }
        }
        let run =
            |index: usize| SCRATCH.with_borrow_mut(|scratch| self.item(&items[index], scratch));
        if work < INLINE_WORK {
            (0..items.len()).for_each(run);
        } else {
            self.threads.run(items.len(), &run);
        }
    }

    /// Encodes activations as these weights ask, if that has not been done.
    pub fn encode(&self, weights: &Matrix, x: &Activations, int8: bool) {
        match weights.dtype() {
            DType::Q8_0 if int8 => {
                let _ = x.q8(&self.threads);
            }
            DType::Q2K | DType::Q4K | DType::Iq2Xxs if int8 => {
                let _ = x.q8_k(&self.threads);
            }
            _ => {}
        }
    }

    /// One product on the calling thread alone, from inside a parallel region too: its activations must
    /// be encoded ([`Kernels::encode`]), because that is a region of its own.
    ///
    /// # Panics
    /// When the shapes of the job do not fit.
    pub fn matmul_here(&self, job: &Job<'_>, int8: bool) {
        job.check();
        if job.work() > 0 {
            let (input, features) = (self.input(job, int8), job.features.clone());
            let item = Item { job, input, features };
            SCRATCH.with_borrow_mut(|scratch| self.item(&item, scratch));
        }
    }

    fn input<'a>(&self, job: &Job<'a>, int8: bool) -> Input<'a> {
        match job.weights.dtype() {
            DType::Q8_0 if int8 => Input::Quantised(job.x.q8(&self.threads)),
            DType::Q2K | DType::Q4K | DType::Iq2Xxs if int8 => {
                Input::Quantised(job.x.q8_k(&self.threads))
            }
            _ => Input::Float(job.x),
        }
    }

    fn item(&self, item: &Item<'_>, scratch: &mut Scratch) {
        let dtype = item.job.weights.dtype();
        let place = DType::ALL.iter().position(|each| *each == dtype).expect("a type of the list");
        let int8 = usize::from(matches!(item.input, Input::Quantised(_)));
        self.runs[place][int8].fetch_add(1, Ordering::Relaxed);
        match self.level {
            Level::Scalar => scalar::item(item, scratch),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::avx2::item(item, scratch),
        }
    }
}
